"""The live view of an evaluation: a table of means so far, in place on a terminal, else a line now and then."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from salon.modules.files import cost_line

__all__ = ["EvaluationView"]

_EVERY = 10.0  # seconds between two lines where there is no terminal


class EvaluationView:
    """Shows the progress of an evaluation; called with it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._told, self._stage = 0.0, ""

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: Any) -> None:
        """Show the progress."""
        if self._live is not None:
            self._live.update(_table(progress), refresh=True)
        elif self._due(progress):
            self._told, self._stage = time.monotonic(), progress.stage
            self._console.print(headline(progress), highlight=False, soft_wrap=True)

    def _due(self, progress: Any) -> bool:
        last = progress.done == progress.total
        return last or progress.stage != self._stage or time.monotonic() - self._told >= _EVERY


def headline(progress: Any) -> str:
    """Return how far an evaluation is, in one line."""
    left = "" if progress.seconds_left is None else f", about {_time(progress.seconds_left)} left"
    failed = sum(progress.failed.values())
    lost = f" ({failed} failed)" if failed else ""
    return f"{progress.stage}: {progress.done} of {progress.total} answers{lost}, {cost_line(progress.spent)}{left}"


def _table(progress: Any) -> Table:
    table = Table(title=headline(progress), title_justify="left", title_style="")
    for column in ("method", "answers", "failed", "mean quality so far"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for method, values in progress.quality.items():
        mean = f"{sum(values) / len(values):.2f}" if values else "–"
        table.add_row(method, str(len(values)), str(progress.failed.get(method, 0)), mean)
    return table


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
