"""Which processes work on a study: each holds a lock file of its own in the study's folder while it lives."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from salon.errors import OutputError

from .locks import locked

__all__ = ["Workers"]


class Workers:
    """The processes of a study, as one of them sees the others.

    Args:
        place: The folder of their lock files.

    Attributes:
        me: Name of this process.

    Raises:
        OutputError: If the folder cannot be made.
    """

    def __init__(self, place: Path) -> None:
        self.me, self._place = uuid.uuid4().hex, place
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{place.parent} cannot be written", error.strerror or str(error)) from error
        self._mine = self._lock(self.me)

    def begin(self) -> None:
        """Let the others see that this process lives."""
        self._mine.acquire()

    def end(self, forget: bool) -> None:
        """Let the others see that it ends.

        Args:
            forget: Whether it leaves nothing for others to take up.
        """
        self._mine.release()
        if forget:
            with suppress(OSError):  # only clutter would be left
                (self._place / self.me).unlink()

    def shares(self, worker: str) -> bool:
        """Return whether a process has, or had, its lock file in this folder."""
        return (self._place / worker).exists()

    def lives(self, worker: str) -> bool:
        """Return whether a process lives, as far as can be told: of those with other folders nothing can."""
        if not self.shares(worker):
            return True
        lock = self._lock(worker)
        if not locked(lock):
            return True
        lock.release()
        return False

    def _lock(self, worker: str) -> FileLock:
        return FileLock(self._place / worker, thread_local=False)
