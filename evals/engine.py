"""Doing jobs: each is answered by its method and rated by the judges, as one unit of work.

Whatever runs the jobs, one event loop here or many workers elsewhere, each job goes through ``run_job``: its
calls, its seeds and its row are the same everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from ..modules.budget import Account, Usage
from ..modules.limits import Limit
from .jobs import Job, JobRow
from .judges import RubricJudge
from .ledger import Ledger, together
from .methods import Method

__all__ = ["JOBS_PER_CALL", "Engine", "LocalEngine", "Todo", "answering", "book", "judging", "run_job"]

Todo: TypeAlias = Sequence[tuple[Job, JobRow | None]]
"""Jobs to do, each with the row it has already."""

_APART, _MANY = 0.03, 5  # seconds between the first jobs, where there are so many times more jobs to come

JOBS_PER_CALL = 2
"""Jobs under way for each call that may be in flight, so that none waits for a job to start."""


class Engine(Protocol):
    """Something that does jobs."""

    async def run(self, todo: Todo, done: Callable[[JobRow], None]) -> str:
        """Do all jobs.

        Args:
            todo: What to do, in this order as far as possible.
            done: Told of each row once its job is finished.

        Returns:
            Why jobs were left undone; empty if none was.
        """


async def run_job(
    job: Job,
    row: JobRow | None,
    method: Method,
    judge: RubricJudge | None,
    root: Path,
    limit: Limit,
    purse: Account | None = None,
    seed: int = 0,
) -> JobRow:
    """Have a job answered and its answer rated; what is there already is not done again.

    Args:
        job: The job.
        row: The row it has already.
        method: Its method.
        judge: Rates the answer; None leaves it unrated.
        root: Folder of the evaluation.
        limit: Bounds calls in flight.
        purse: The account of the whole evaluation.
        seed: Seed of the evaluation.

    Raises:
        CallFailure: If no call can succeed (model name, key).
        OutputError: If the job's folder holds something else.
    """
    if row is None or row.status != "ok":
        row = await method.answer(job, root, limit, purse)
    elif purse is not None:
        purse.book("", answering(row), 0.0)
    if row.status == "ok" and judge is not None:
        name, folder = "/".join(map(str, job.key)), job.folder(root) / "judge"
        with Ledger(folder, "rating", judge.lms, seed, limit=limit, temperature=0.0, purse=purse) as ledger:
            authors = method.authors() if len(judge.lms) > 1 else ()  # a single judge judges whoever wrote it
            rated = await judge.rate(ledger, name, job.task, row.answer, authors)
            spent = ledger.spent
        row.ratings = [asdict(rating) for rating in rated]
        row.judge_calls, row.judge_tokens = spent.calls, spent.tokens
        row.judge_usd = None if spent.unpriced else spent.usd
    return row


def book(purse: Account, row: JobRow) -> None:
    """Book what an earlier run of the evaluation spent on a job that is not done again."""
    purse.spent.add(answering(row))
    purse.spent.add(judging(row))


def answering(row: JobRow) -> Usage:
    """Return what the answer of a row cost."""
    unpriced = row.calls if row.usd is None else 0
    return Usage(row.calls, row.prompt_tokens, row.completion_tokens, row.usd or 0.0, unpriced)


def judging(row: JobRow) -> Usage:
    """Return what the ratings of a row cost; what judges read and wrote is not told apart, and counts as read."""
    unpriced = row.judge_calls if row.judge_usd is None else 0
    return Usage(row.judge_calls, row.judge_tokens, 0, row.judge_usd or 0.0, unpriced)


@dataclass
class LocalEngine:
    """Does jobs in this process, side by side.

    Attributes:
        methods: Methods by name.
        judge: Rates the answers.
        root: Folder of the evaluation.
        limit: Bounds calls in flight.
        purse: The account of the whole evaluation.
        at_once: Jobs under way at most (see ``JOBS_PER_CALL``).
        seed: Seed of the evaluation.
    """

    methods: Mapping[str, Method]
    judge: RubricJudge | None
    root: Path
    limit: Limit
    purse: Account
    at_once: int
    seed: int = 0

    async def run(self, todo: Todo, done: Callable[[JobRow], None]) -> str:
        """Do all jobs; none is started any more once the account is empty."""
        waiting, refusal = iter(todo), ""
        lanes = min(self.at_once, len(todo))
        # Where calls take equally long, jobs that begin together would wait for each other's handling all along.
        apart = _APART if len(todo) > _MANY * lanes else 0.0

        async def work(start: float) -> None:
            nonlocal refusal
            await asyncio.sleep(start)
            for job, row in waiting:
                if refusal := refusal or self._refusal():
                    return
                method = self.methods[job.method]
                row = await run_job(job, row, method, self.judge, self.root, self.limit, self.purse, self.seed)
                done(row)
                if not row.finished:
                    refusal = refusal or self._refusal()

        await together(work(lane * apart) for lane in range(lanes))
        return refusal

    def _refusal(self) -> str:
        """Return why no further call fits the account, or an empty string."""
        self.purse.spent.seconds = self.purse.elapsed()
        return self.purse.refused or self.purse.budget.refusal(self.purse.spent, Usage(calls=1))
