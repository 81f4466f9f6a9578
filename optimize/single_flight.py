"""One computation for each key, however often and from however many threads it is asked for.

DSPy's threads submit an example again when it takes longer than two minutes, and its optimizers run the same
program on the same example time and again. A session is decided by its program, inputs and seed, so whoever asks
second waits for the first and gets its result.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Generic, TypeVar

__all__ = ["Halt", "SingleFlight", "wait_from_thread"]

T = TypeVar("T")
_LOOK = 0.5  # seconds between two looks at whether anything can still come


class Halt(BaseException):
    """Ends an optimizer at once: DSPy and Optuna go on after any ``Exception``, but not after this."""


class SingleFlight(Generic[T]):
    """Results by key, each made once, all on one event loop.

    Args:
        context: Where computations run, whoever asks for them: the settings of the first caller must not matter.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def get(self, key: str, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a key, made by the first who asks; what it raised is raised for all."""
        task = self._tasks.get(key)
        if task is None:
            loop = asyncio.get_running_loop()
            task = self._tasks[key] = loop.create_task(make(), context=self._context.copy())
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Stop what is under way."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def wait_from_thread(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], closed: Callable[[], bool]) -> T:
    """Run a coroutine on a loop of another thread and wait for its result.

    Raises:
        Halt: If nothing will come any more, as the loop's side is ``closed`` or has cancelled the work.
    """
    if closed():
        work.close()
        raise Halt
    future = asyncio.run_coroutine_threadsafe(work, loop)
    while not concurrent.futures.wait([future], timeout=_LOOK).done:
        if closed():
            future.cancel()
            raise Halt
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        raise Halt from None
