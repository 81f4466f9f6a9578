"""Answers held against each other: methods in pairs, and the answers of one method among themselves.

Each comparison is a line on disk when it is made; one that is there is not made again, one that failed is.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ..data.benchmarks import Task
from ..modules.budget import Account
from .jobs import JobFile, JobKey, JobRow, read_lines
from .judges import RubricJudge
from .ledger import Ledger, together
from .methods import Method

__all__ = ["PAIRS_NAME", "SIMILAR_NAME", "Matches"]

PAIRS_NAME = "pairs.jsonl"
SIMILAR_NAME = "similar.jsonl"
Match: TypeAlias = tuple[dict[str, Any], Task, JobRow, JobRow]


@dataclass(frozen=True)
class Matches:
    """The comparisons of an evaluation.

    Attributes:
        judge: Makes them.
        methods: Methods by name, in order.
        tasks: The queries.
        rows: Rows of all jobs.
        root: Folder of the evaluation.
        limit: Bounds calls in flight.
        purse: The account of the whole evaluation.
        seed: Seed of the evaluation.
    """

    judge: RubricJudge
    methods: Mapping[str, Method]
    tasks: Sequence[Task]
    rows: Mapping[JobKey, JobRow]
    root: Path
    limit: asyncio.Semaphore
    purse: Account
    seed: int

    async def compare(self, runs: int, tell: Callable[[str], None]) -> None:
        """Judge every pair of methods on the first runs of each query, in both orders."""
        known = self._known(PAIRS_NAME, "query", "run", "a", "b")
        todo = [
            ({"query": task.id, "run": run, "a": a, "b": b}, task, first, second)
            for run in range(1, runs + 1)
            for task in self.tasks
            for a, b in itertools.combinations(self.methods, 2)
            if (task.id, run, a, b) not in known
            and (task.id, run, b, a) not in known
            and (first := self._answer(a, task, run)) is not None
            and (second := self._answer(b, task, run)) is not None
        ]
        if todo:
            tell(f"comparing {len(todo)} pairs of answers")
            await self._judged("comparing", PAIRS_NAME, todo, self.judge.prefer)

    async def grade(self, group: int, tell: Callable[[str], None]) -> None:
        """Grade how alike the answers of the first group of each method and query are."""
        known = self._known(SIMILAR_NAME, "method", "query", "run_a", "run_b")
        todo = [
            ({"method": method, "query": task.id, "run_a": a, "run_b": b}, task, first, second)
            for method in self.methods
            for task in self.tasks
            for a, b in itertools.combinations(range(1, group + 1), 2)
            if (method, task.id, a, b) not in known
            and (first := self._answer(method, task, a)) is not None
            and (second := self._answer(method, task, b)) is not None
        ]
        if todo:
            tell(f"grading {len(todo)} pairs for fluency")
            await self._judged("grading", SIMILAR_NAME, todo, self.judge.alike)

    def _known(self, name: str, *columns: str) -> set[tuple[Any, ...]]:
        lines = read_lines(self.root / name)
        return {tuple(line[column] for column in columns) for line in lines if not line["error"]}

    def _answer(self, method: str, task: Task, run: int) -> JobRow | None:
        row = self.rows.get(JobKey(method, task.id, run))
        return row if row is not None and row.status == "ok" else None

    async def _judged(
        self, purpose: str, name: str, todo: Sequence[Match], judged: Callable[..., Awaitable[Any]]
    ) -> None:
        folder = self.root / "judge" / Path(name).stem
        ledger = Ledger(folder, purpose, self.judge.lms, self.seed, None, self.limit, 0.0, purse=self.purse)
        with ledger, JobFile(self.root, name) as file:

            async def one(columns: dict[str, Any], task: Task, first: JobRow, second: JobRow) -> None:
                if self.purse.refused:
                    return
                key = json.dumps(list(columns.values()))
                authors = {model for row in (first, second) for model in self.methods[row.method].authors()}
                told = await judged(ledger, key, task.text, first.answer, second.answer, authors)
                file.add({**columns, **asdict(told)})

            await together(one(*match) for match in todo)
