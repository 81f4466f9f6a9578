"""The live view of a compile: the front so far, in place on a terminal, else a line for each trial."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from salon.modules.files import cost_line
from salon.optimize.bench import Measuring

__all__ = ["CompileView"]


class CompileView:
    """Shows how far a compile is; called with a line of text, the progress of a study, or of a measurement."""

    def __init__(self, console: Console, first: Sequence[str] = ()) -> None:
        """Make a view; ``first`` are lines to print once something is done, which refusals come before."""
        self._first = list(first)
        self._console, self._started = console, time.monotonic()
        self._live: Live | None = None
        self._progress: Any = None
        self._measuring: Measuring | None = None
        self._line = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self._shown, refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._measuring = None
        if self._live is not None:
            self._live.stop()

    def __call__(self, told: Any) -> None:
        """Show what is told; sessions are shown on a terminal alone."""
        while self._first:
            self._console.print(self._first.pop(0), highlight=False, soft_wrap=True, markup=False)
        if isinstance(told, Measuring):
            self._measuring = told
            return
        self._line, self._measuring = str(told), None
        if not isinstance(told, str):
            self._progress = told
        if self._live is None:
            self._console.print(self._line, highlight=False, soft_wrap=True, markup=False)

    def _shown(self) -> RenderableType:
        """Return the front, what was told last, and how far the sessions under way are."""
        parts: list[RenderableType] = [] if self._progress is None else [_table(self._progress)]
        parts.append(Text(self._line))
        if self._measuring is not None:
            spent = cost_line(self._measuring.spent).rpartition(", ")[0]
            passed = time.monotonic() - self._started
            parts.append(Text(f"{self._measuring}; {spent}, {passed:,.0f} s", style="dim"))
        return Group(*parts)


def _table(progress: Any) -> Table:
    """Return the front as a table: trial, values of the objectives, numbers."""
    names = list(progress.record.values) or list(progress.front[0].values if progress.front else [])
    title = f"Front after {progress.done} of {progress.trials} trials"
    table = Table(title=title, title_justify="left", title_style="")
    for column in ("trial", *names, "numbers"):
        table.add_column(column, justify="left" if column == "numbers" else "right")
    for record in progress.front:
        numbers = ", ".join(f"{name} {value:g}" for name, value in record.numbers.items())
        table.add_row(str(progress.before + record.rank), *(str(record.values[name]) for name in names), numbers)
    return table
