"""Locks between processes that share a folder, kept by the operating system: one that dies leaves none behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from filelock import FileLock, Timeout

__all__ = ["WAIT", "alone", "locked"]

WAIT = 0.5
"""Seconds between two looks at what another process does."""


def locked(lock: FileLock) -> bool:
    """Take a lock if it is free; return whether it was."""
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    return True


@asynccontextmanager
async def alone(path: Path, waiting: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
    """Let one process at a time do what follows.

    Args:
        path: File of the lock.
        waiting: Called once if another process has it.
    """
    lock = FileLock(path, thread_local=False)
    if not locked(lock):
        waiting()
        while not locked(lock):
            await asyncio.sleep(WAIT)
    try:
        yield
    finally:
        lock.release()
