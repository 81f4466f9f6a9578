"""Keeps what DSPy's optimizers print away from standard output, which may carry JSON.

They print, log and draw progress bars on standard output and standard error. What the optimizer's own thread
writes goes to a file instead; all other threads write where they always do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TextIO

__all__ = ["captured_output", "writing_to"]

_FILE: ContextVar[TextIO | None] = ContextVar("salon_optimizer_log", default=None)


class _Routed:
    """A stream that writes to the file of the current context, if it has one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return int((_FILE.get() or self._stream).write(text) or 0)

    def flush(self) -> None:
        (_FILE.get() or self._stream).flush()

    def isatty(self) -> bool:
        return _FILE.get() is None and bool(self._stream.isatty())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def captured_output(log: Path | None) -> Iterator[TextIO]:
    """Make standard output and error such that ``writing_to`` can turn them away, and yield the file for it.

    Optuna's level of logging, which MIPROv2 lowers for good, is what it was afterwards.

    Args:
        log: The file, which is added to; None throws away what is written.
    """
    import optuna

    level = optuna.logging.get_verbosity()
    before = sys.stdout, sys.stderr
    routed = _Routed(sys.stdout), _Routed(sys.stderr)
    with (log or Path(os.devnull)).open("a", encoding="utf-8", errors="replace") as file:
        sys.stdout, sys.stderr = routed
        try:
            yield file
        finally:
            # Somebody may have replaced them in the meantime; what is theirs stays.
            sys.stdout = before[0] if sys.stdout is routed[0] else sys.stdout
            sys.stderr = before[1] if sys.stderr is routed[1] else sys.stderr
            optuna.logging.set_verbosity(level)


@contextmanager
def writing_to(file: TextIO) -> Iterator[None]:
    """Send what this thread writes to a file."""
    token = _FILE.set(file)
    try:
        yield
    finally:
        _FILE.reset(token)
