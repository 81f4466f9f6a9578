"""Evaluation: methods answer the same queries several times, and judges say how good the answers are.

All jobs (method, query, run) are done at once under one limit of calls in flight. Each finished job is a line on
disk the same moment, so an evaluation that was interrupted, or is run again with more methods, queries or runs,
does only what is missing. A job that fails is a row with its reason; it is tried again the next time. Nothing
is dropped and nothing imputed.

After the jobs, methods are held against each other: for the first runs of each query, every pair of answers is
judged in both orders. Where fluency is measured, the answers of one method to one query are graded by how
alike they are.

The folder:

| file | content |
|---|---|
| ``evaluation.json`` | benchmark, methods, judge, seed, sizes, versions |
| ``jobs.jsonl`` | a line for each finished job: answer, cost, ratings; the last one of a job counts |
| ``pairs.jsonl``, ``similar.jsonl`` | a line for each comparison |
| ``sessions/`` | the log of each session, with its judges' calls |
| ``methods.csv``, ``queries.csv``, ``jobs.csv`` | tables of the result |
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy

from salon.errors import UserError

from ..data.benchmarks import Benchmark, load_benchmark
from ..data.rubrics import Rubric
from ..modules.budget import Account, Budget, Usage
from ..modules.program import synchronous
from .conditions import check_whole
from .engine import JOBS_PER_CALL, Engine, LocalEngine, Todo, book
from .jobs import JobFile, JobKey, JobRow, jobs_of, read_rows
from .judges import RubricJudge
from .matches import Matches
from .methods import all_methods
from .record import keep_record, record_of
from .results import Results
from .uncached import Uncached

__all__ = ["Progress", "aevaluate", "evaluate", "judge_with"]

Tell = Callable[["Progress"], None]


@dataclass
class Progress:
    """How far an evaluation is.

    Attributes:
        done: Jobs finished, those of earlier runs included.
        total: Jobs in all.
        failed: Jobs without an answer, by method.
        spent: What methods and judges cost, earlier runs included.
        quality: By method, the qualities of its answers so far.
        seconds_left: Expected time to the end; None if nothing is known yet.
        stage: What is being done.
    """

    done: int
    total: int
    failed: dict[str, int]
    spent: Usage
    quality: dict[str, list[float]]
    seconds_left: float | None = None
    stage: str = "answering"


@dataclass
class _Counter:
    """Keeps the progress up to date."""

    purse: Account
    total: int
    tell: Tell
    progress: Progress = field(init=False)
    _started: float = field(default_factory=time.monotonic)
    _fresh: int = 0

    def __post_init__(self) -> None:
        self.progress = Progress(0, self.total, {}, self.purse.spent, {})

    def add(self, row: JobRow, fresh: bool = True) -> None:
        """Count a row in."""
        progress = self.progress
        progress.done += 1
        self._fresh += fresh
        if row.status != "ok":
            progress.failed[row.method] = progress.failed.get(row.method, 0) + 1
        known = progress.quality.setdefault(row.method, [])
        if row.quality is not None:
            known.append(row.quality)
        if fresh:
            passed = time.monotonic() - self._started
            progress.seconds_left = passed / self._fresh * (self.total - progress.done)
            self.tell(progress)

    def at(self, stage: str) -> None:
        """Say what is being done."""
        self.progress.stage, self.progress.seconds_left = stage, None
        self.tell(self.progress)


async def aevaluate(
    methods: Any,
    benchmark: Benchmark | str | Path = "topics",
    *,
    out: str | Path | None = None,
    queries: int | None = None,
    runs: int = 5,
    groups: int | None = None,
    judge: Any = None,
    drawn: int | None = None,
    compare: int = 1,
    similar: bool | None = None,
    baseline: str | None = None,
    threshold: float = 6.0,
    seed: int = 0,
    budget: Budget | None = None,
    lms: Mapping[str, Any] | None = None,
    embedder: str | None = None,
    max_concurrency: int = 32,
    engine: Callable[..., Engine] | None = None,
    tell: Tell = lambda _: None,
) -> Results:
    """Evaluate methods on a benchmark, or go on with an evaluation.

    Args:
        methods: A session program, a DSPy module or a function of a task; a mapping from names to these; or names,
            e.g. ``["debate", "direct"]`` (see ``salon.evals.methods.method_of``).
        benchmark: A benchmark, its name, or a file of tasks.
        out: Folder of the evaluation; one that holds it is gone on with. None keeps nothing. In any case no answer
            is taken from DSPy's cache, where it would cost nothing.
        queries: Tasks, drawn by the seed; all if not given.
        runs: Answers of each method to each query.
        groups: Answers whose diversity is measured together (G): runs 1 to G of a query, then the next G. By
            default 5, or all runs if there are fewer.
        judge: An LM, or several for a panel; None for DSPy's current LM, False for no judge.
        drawn: Judges drawn from a panel for each answer; all if not given.
        compare: Runs of each query in which all methods are compared in pairs.
        similar: Whether to grade how alike a method's answers to one query are (fluency of LiveIdeaBench); by
            default where the rubric is LiveIdeaBench's.
        baseline: Method that the others are tested against; by default ``direct`` if it is there, else the first.
        threshold: Quality from which an answer counts for gated diversity.
        seed: Decides the tasks, the seeds of all runs, and the draws of judges.
        budget: Hard limits of the whole evaluation; what earlier runs of it spent counts.
        lms: LMs by role, for methods that are named; roles without one use DSPy's current LM.
        embedder: Embedding model that diversity is measured with; the packaged one if not given.
        max_concurrency: Most calls in flight at once.
        engine: Makes what runs the jobs (see ``salon.evals.cluster``); this process if not given.
        tell: Told of the progress.

    Raises:
        UserError: If something cannot work; said before anything is spent.
        OutputError: If the folder holds another evaluation, or cannot be written.
        CallFailure: If no call can succeed (model name, key).
    """
    groups = min(5, runs) if groups is None and isinstance(runs, int) else groups
    for name, value in (("runs", runs), ("groups", groups), ("max_concurrency", max_concurrency)):
        check_whole(name, value, 1)
    check_whole("compare", compare, 0)
    check_whole("seed", seed)
    known = all_methods(methods, lms)
    data = benchmark if isinstance(benchmark, Benchmark) else load_benchmark(benchmark)
    data = data if queries is None else data.sample(queries, seed)
    if out is None:
        with tempfile.TemporaryDirectory(prefix="salon-eval-") as place:
            return await aevaluate(
                known, data, out=place, runs=runs, groups=groups, judge=judge, drawn=drawn, compare=compare,
                similar=similar, baseline=baseline, threshold=threshold, seed=seed, budget=budget,
                embedder=embedder, max_concurrency=max_concurrency, engine=engine, tell=tell,
            )  # fmt: skip
    panel = judge_with(data.rubric, judge, drawn, seed)
    data = data if panel is None else replace(data, rubric=panel.rubric)
    grading = data.rubric.name == "liveideabench" if similar is None else similar
    root = Path(out)
    record = record_of(
        known, data, panel, seed=seed, runs=runs, groups=groups, threshold=threshold, baseline=baseline,
        compare=compare, similar=grading, embedder=embedder,
    )  # fmt: skip
    keep_record(record, root)
    limit, started = asyncio.Semaphore(max_concurrency), time.monotonic()
    purse = Account(budget or Budget(), lambda: time.monotonic() - started)
    rows, jobs = read_rows(root), jobs_of(known, data.tasks, runs, seed)
    counter = _Counter(purse, len(jobs), tell)
    todo = _left(jobs, rows, panel, purse, counter)
    make = engine or LocalEngine
    bare = Uncached()
    used = {name: bare.method(method) for name, method in known.items()}
    running = make(used, panel, root, limit, purse, JOBS_PER_CALL * max_concurrency, seed)
    with JobFile(root) as file, dspy.context(lm=bare.lm(dspy.settings.lm)):

        def done(row: JobRow) -> None:
            file.add(row)
            rows[row.key] = row
            counter.add(row)

        left = await running.run(todo, done)
    if panel is not None and not left:
        matches = Matches(panel, known, data.tasks, rows, root, limit, purse, seed)
        await matches.compare(min(compare, runs), counter.at)
        if grading:
            await matches.grade(min(groups, runs), counter.at)
        left = purse.refused
    results = await asyncio.to_thread(Results.load, root)
    results.left = left
    await asyncio.to_thread(results.to_csv, root)
    return results


evaluate = synchronous("evaluate", aevaluate)


def judge_with(rubric: Rubric, judge: Any, drawn: int | None, seed: int) -> RubricJudge | None:
    """Return a judge by a rubric for what a caller gives: an LM, several, None for DSPy's current one, False for none.

    Raises:
        UserError: If there is no LM to judge with.
    """
    if judge is False:
        return None
    if isinstance(judge, RubricJudge):
        return judge
    lms = list(judge) if isinstance(judge, Sequence) else [judge or dspy.settings.lm]
    if not lms or any(lm is None or isinstance(lm, str) for lm in lms):
        todo = "Give judge=salon.lm(...), a list of these, or False; or set an LM with dspy.context."
        raise UserError("There is no judge", "an LM is needed", todo)
    return RubricJudge(rubric, lms, drawn, seed)


def _left(
    jobs: Iterable[Any],
    rows: Mapping[JobKey, JobRow],
    judge: RubricJudge | None,
    purse: Account,
    counter: _Counter,
) -> Todo:
    """Return the jobs that are not finished; those that are go on the account."""
    todo = []
    for job in jobs:
        row = rows.get(job.key)
        if row is not None and row.finished and (judge is None or row.ratings):
            book(purse, row)
            counter.add(row, fresh=False)
        else:
            todo.append((job, row))
    return todo
