"""Ratings for prompts that are tuned: each answer to a task is rated once, however many programs gave it.

A ledger keeps what the judges say, so that a tuning that is run again asks them nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Self

from ..evals.judges import Rated, RubricJudge
from ..evals.ledger import Ledger, together
from ..modules.budget import Account, Usage
from ..modules.limits import Limit

__all__ = ["RatedOnce"]


class RatedOnce:
    """Rates answers; a context manager, called with a task and its answers.

    Args:
        judge: The judges; None leaves answers unrated.
        folder: Where their calls are kept.
        seed: Seed of the calls.
        limit: Bounds calls in flight.
        purse: The account of the calls.
        authors: Models that write the answers, which don't rate them where others are there.

    Raises:
        OutputError: If the folder has the calls of other judges, or cannot be written.
    """

    def __init__(
        self,
        judge: RubricJudge | None,
        folder: Path,
        seed: int,
        limit: Limit,
        purse: Account,
        authors: Collection[str] = (),
    ) -> None:
        self._judge, self._authors = judge, authors
        self._ledger = (
            Ledger(folder, "rating", judge.lms, seed, limit=limit, temperature=0.0, purse=purse)
            if judge is not None
            else None
        )
        self._known: dict[str, asyncio.Task[list[Rated]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._known.values():
            task.cancel()
        if self._ledger is not None:
            self._ledger.__exit__(kind, error, trace)

    @property
    def answers(self) -> tuple[int, int]:
        """How many answers were to be rated, and how many of them no judge rated."""
        done = [task for task in self._known.values() if task.done() and not task.cancelled() and not task.exception()]
        return len(done), sum(all(rated.value is None for rated in task.result()) for task in done)

    @property
    def spent(self) -> Usage:
        """What all ratings cost, those of earlier runs included."""
        return self._ledger.spent if self._ledger is not None else Usage()

    async def __call__(self, task: str, answers: Sequence[str]) -> list[list[Rated]]:
        """Return the ratings of each answer, one of each judge."""
        return await together(asyncio.shield(self._rated(task, answer)) for answer in answers)

    def _rated(self, task: str, answer: str) -> asyncio.Task[list[Rated]]:
        name = blake2b(f"{task}\n{answer}".encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        if name not in self._known:
            self._known[name] = asyncio.ensure_future(self._asked(name, task, answer))
        return self._known[name]

    async def _asked(self, name: str, task: str, answer: str) -> list[Rated]:
        if self._judge is None or self._ledger is None:
            return [Rated()]
        return await self._judge.rate(self._ledger, name, task, answer, self._authors)
