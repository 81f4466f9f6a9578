"""An optimizer in a thread of its own, beside the event loop that holds its sessions."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from pathlib import Path
from typing import Any

import dspy

from salon.errors import RunFailure, SalonError

from .captured import captured_output, writing_to
from .optimizers import Course, run_optimizer
from .single_flight import Halt

__all__ = ["run_in_thread"]


async def run_in_thread(course: Course, log: Path | None) -> dict[str, Any]:
    """Run an optimizer to its end, its output turned away; return what is to be told of its course.

    However it ends, also where the caller is cancelled, its thread has ended then and no session is held any more.

    Args:
        course: The optimizer with what it works on.
        log: File for its output; None throws it away.

    Raises:
        SalonError: What ended it early: a budget, a model that cannot be used, or a failure of the optimizer's own.
    """
    told: dict[str, Any] | None = None

    def work() -> dict[str, Any] | None:
        with writing_to(file), dspy.context(trace=[], num_threads=course.threads):
            with suppress(Halt):
                return run_optimizer(course)
            gc.collect()  # a progress bar that was left open in a cycle writes its last line now, and to the file
            return None

    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
    with captured_output(log) as file:
        thread = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            told = await asyncio.shield(thread)
        except SalonError:
            raise
        except Exception as error:  # an optimizer's own failure, of whatever type
            if course.groups.failure is None:
                raise RunFailure(f"{course.how} failed", f"{type(error).__name__}: {error}") from error
        finally:
            await course.groups.close()
            await asyncio.gather(thread, return_exceptions=True)
    if course.groups.failure is not None:
        raise course.groups.failure
    if told is None:
        raise RunFailure(f"{course.how} was stopped")
    return told
