"""Measuring a program: its sessions on some tasks, with the same seeds whatever the program is.

All variants of a program answer the same tasks in runs of equal seeds (common random numbers), so that a
difference between two variants is less the luck of a draw. A variant's sessions and ratings are kept in a folder
of its own: measured again, also after a crash, it makes only the calls that are missing.

What is found on disk is on the account from the start, also that of variants which are not measured again: limits
hold for all runs together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import dspy

from salon.errors import BudgetSpent

from ..data.benchmarks import Task
from ..evals.engine import JOBS_PER_CALL, LocalEngine, book
from ..evals.jobs import JOBS_NAME, JobFile, JobKey, JobRow, jobs_of, read_rows
from ..evals.judges import RubricJudge
from ..evals.methods import ProgramMethod
from ..evals.uncached import Uncached
from ..modules.budget import Account, Budget, Usage
from ..modules.embedding import Embedder
from ..modules.program import SessionProgram
from ..modules.streams import rollout_id

__all__ = ["Bench", "Measuring", "cost_of"]

_METHOD = "program"


@dataclass(frozen=True)
class Measuring:
    """How far the measurement of a program is.

    Attributes:
        done: Sessions that were held and rated, or failed.
        sessions: Sessions in all.
        spent: What everything on the bench's account cost so far.
    """

    done: int
    sessions: int
    spent: Usage

    def __str__(self) -> str:
        return f"{self.done} of {self.sessions} sessions"


class Bench:
    """Measures programs on tasks.

    Args:
        out: Folder under which each variant has its own.
        judge: Rates the answers; None leaves them unrated.
        groups: Sessions on each task (G), whose answers are one set.
        seed: Decides the seeds of all sessions.
        budget: Hard limits of everything that is measured; what is found on disk counts.
        max_concurrency: Most calls in flight at once.
        embedder: Embeds answers for measures of diversity.
        elapsed: Returns the seconds that count for the budget; those since it was made if not given.
        tell: Told of each session that is done.
        cached: Whether answers may come from DSPy's cache. They cost nothing then, so a bench on which costs are
            compared must not take them: two variants share many calls, and the second one would seem cheap.

    Attributes:
        purse: The account of everything.
        limit: Bounds calls in flight.
        closed: Why no more sessions may be held; empty as long as they may.

    Raises:
        LogError: If rows on disk are damaged.
    """

    def __init__(
        self,
        out: Path,
        judge: RubricJudge | None,
        groups: int,
        seed: int = 0,
        budget: Budget | None = None,
        max_concurrency: int = 32,
        embedder: Embedder | None = None,
        elapsed: Callable[[], float] | None = None,
        tell: Callable[[Measuring], None] = lambda _: None,
        cached: bool = True,
    ) -> None:
        self.out, self.judge, self.groups, self.seed = out, judge, groups, seed
        self.embedder, self._tell = embedder or Embedder(), tell
        self.limit = asyncio.Semaphore(max_concurrency)
        started = time.monotonic()
        self.purse = Account(budget or Budget(), elapsed or (lambda: time.monotonic() - started))
        self._at_once = JOBS_PER_CALL * max_concurrency
        self._booked: dict[tuple[Path, JobKey], Usage] = {}
        self._bare = None if cached else Uncached()
        self.closed = ""
        for path in sorted(out.glob(f"*/seeds-*/{JOBS_NAME}")):
            for row in read_rows(path.parent).values():
                self._book(path.parent, row)

    @property
    def spent(self) -> Usage:
        """What was spent so far, by sessions and judges."""
        return self.purse.spent

    def folder(self, place: str, fresh: int = 0) -> Path:
        """Return where the sessions of a variant are."""
        return self.out / place / f"seeds-{fresh}"

    async def measure(
        self,
        program: SessionProgram,
        tasks: Sequence[Task],
        place: str,
        fresh: int = 0,
        enough: Callable[[list[JobRow]], bool] = lambda _: False,
    ) -> list[JobRow]:
        """Return the rows of all sessions of a program on some tasks: run by run, task by task.

        Args:
            program: The variant.
            tasks: The tasks.
            place: Name of the variant's folder; another variant needs another.
            fresh: 0 for the seeds that all variants share; another number for other seeds.
            enough: Says of the rows of an earlier call whether they will do, though some failed; otherwise those are
                done again.

        Raises:
            BudgetSpent: If the budget ends before all is measured; what was made is kept.
            CallFailure: If no call can succeed (model name, key).
            OutputError: If the place holds another variant.
        """
        root = self.folder(place, fresh)
        seed = self.seed if not fresh else rollout_id(self.seed, "fresh", fresh)
        jobs = jobs_of([_METHOD], tasks, self.groups, seed)
        rows = read_rows(root)
        todo = []
        there = [rows[job.key] for job in jobs if job.key in rows and not _cut_short(rows[job.key])]
        if len(there) == len(jobs) and enough(there):
            for known in there:
                self._book(root, known)
            return there
        for job in jobs:
            row = rows.get(job.key)
            if row is None or not row.finished or (self.judge is not None and not row.ratings):
                self._unbook(root, job.key)  # doing it books all its calls, earlier ones too
                todo.append((job, row))
            else:
                self._book(root, row)
        if not todo:
            return [rows[job.key] for job in jobs]
        if self.closed:
            raise BudgetSpent("The measurement is not finished", self.closed, "Run it again with a larger budget.")
        used = program if self._bare is None else self._bare.program(program)
        methods = {_METHOD: ProgramMethod(_METHOD, used)}
        engine = LocalEngine(methods, self.judge, root, self.limit, self.purse, self._at_once, seed)
        with JobFile(root) as file:

            def done(row: JobRow) -> None:
                file.add(row)
                rows[row.key] = row
                self._booked[root, row.key] = cost_of(row)
                self._tell(Measuring(sum(job.key in rows for job in jobs), len(jobs), replace(self.spent)))

            with dspy.context(lm=dspy.settings.lm if self._bare is None else self._bare.lm(dspy.settings.lm)):
                left = await engine.run(todo, done)
        if left:
            raise BudgetSpent("The measurement is not finished", left, "Run it again with a larger budget.")
        return [rows[job.key] for job in jobs]

    def _book(self, root: Path, row: JobRow) -> None:
        """Put a row that this bench did not make on the account, once."""
        if (root, row.key) not in self._booked:
            book(self.purse, row)
            self._booked[root, row.key] = cost_of(row)

    def _unbook(self, root: Path, key: JobKey) -> None:
        self.purse.spent = self.purse.spent.minus(self._booked.pop((root, key), Usage()))


def _cut_short(row: JobRow) -> bool:
    """Return whether a budget, and no failure, kept a session or a rating from its end."""
    return row.reason.startswith("cut short") or any("is used up" in str(r["error"]) for r in row.ratings)


def cost_of(*rows: JobRow) -> Usage:
    """Return what rows cost, answers and ratings."""
    account = Account(Budget())
    for row in rows:
        book(account, row)
    return account.spent
