"""The live view of a compile: the front so far, in place on a terminal, else a line for each trial."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

__all__ = ["CompileView"]


class CompileView:
    """Shows how far a compile is; called with a line of text or the progress of a study."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._progress: Any = None
        self._line = ""

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, told: Any) -> None:
        """Show what is told."""
        self._line = str(told)
        if not isinstance(told, str):
            self._progress = told
        if self._live is None:
            self._console.print(self._line, highlight=False, soft_wrap=True, markup=False)
        elif self._progress is None:
            self._live.update(Text(self._line), refresh=True)
        else:
            self._live.update(Group(_table(self._progress), Text(self._line)), refresh=True)


def _table(progress: Any) -> Table:
    """Return the front as a table: trial, values of the objectives, numbers."""
    names = list(progress.record.values) or list(progress.front[0].values if progress.front else [])
    title = f"Front after {progress.done} of {progress.trials} trials"
    table = Table(title=title, title_justify="left", title_style="")
    for column in ("trial", *names, "numbers"):
        table.add_column(column, justify="left" if column == "numbers" else "right")
    for record in progress.front:
        numbers = ", ".join(f"{name} {value:g}" for name, value in record.numbers.items())
        table.add_row(str(record.number), *(str(record.values[name]) for name in names), numbers or "untuned")
    return table
