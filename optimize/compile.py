"""Compiling a session program: numbers and prompts tuned together, one program picked, and held to account.

1. The untuned program answers the held-out tasks; what that costs, twice over, is set aside for the end.
2. Its numbers are tuned on the training tasks (``study``).
3. With ``prompts``, the prompts of the program picked so far are tuned: learnt on one half of the training tasks and
   chosen by the other (``prompts``). If better ones are found, numbers are tuned once more, around them.
4. All programs measured, of whatever stage, make one front; one of it is picked by a rule (``front``).
5. The picked program answers the held-out tasks, which nothing before has seen, with the seeds of the untuned one.
   It is better if an objective gained, by an interval that lies above 0, and none lost, by one that lies below.

If it is not better, the untuned program is what comes of it, and the report says so. Everything is kept in one
folder: the same call goes on where it stopped and repeats no call of a session or a judge.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dspy

from salon.errors import UserError

from ..data.benchmarks import Benchmark
from ..data.rubrics import RUBRICS, Rubric
from ..evals.conditions import check_whole
from ..evals.runner import judge_with
from ..modules.budget import Budget
from ..modules.program import SessionProgram, synchronous
from .artifact import write_artifact
from .compile_checks import (
    check_answerable,
    check_apart,
    check_kinds,
    check_process,
    check_tuning,
    facts_of,
    tasks_of,
)
from .compile_folder import CompileFolder
from .compile_plan import Plan
from .compile_stages import Compiling, Tell
from .compiled_page import write_compiled_page
from .front import default_rule, pick
from .objectives import Objective, needs_ratings, objectives_of
from .optimizers import Prompts
from .reporting import front_programs, report_of
from .samplers import Sampler, check_sampler
from .space import space_of
from .storage import open_storage, quiet_optuna
from .study import check_limits

__all__ = ["acompile", "compile"]


async def acompile(
    program: SessionProgram,
    trainset: Benchmark | Sequence[Any],
    valset: Benchmark | Sequence[Any],
    objectives: Sequence[str | Objective] = ("quality", "vendi"),
    trials: int = 30,
    *,
    prompts: Prompts | None = None,
    seed: int = 0,
    budget: Budget | None = None,
    groups: int = 3,
    judge: Any = None,
    rubric: Rubric | None = None,
    rule: str | None = None,
    sampler: Sampler = "tpe",
    include: Sequence[str] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    limits: Mapping[str, float] | None = None,
    only: str | None = None,
    reflection_lm: Any = None,
    out: str | Path | None = None,
    storage: str | None = None,
    workers: int = 1,
    max_concurrency: int = 32,
    tell: Tell = lambda _: None,
) -> SessionProgram:
    """Tune a program and return the better of the tuned and the untuned one.

    Args:
        program: The untuned program, with its LMs; it stays as it is. Its embedder measures diversity.
        trainset: Tasks that everything is tuned on: a benchmark, or tasks as texts, examples with a ``task``, or
            ``Task``.
        valset: Other tasks, held out for the last comparison with the untuned program.
        objectives: What to reach: names of ``OBJECTIVES``, or objectives of one's own. With a cost among them,
            sessions take no answers from DSPy's cache, which cost nothing.
        trials: Variants tried in all, the untuned one included.
        prompts: How to tune the prompts: ``gepa``, ``mipro`` or ``bootstrap``; None for numbers alone.
        seed: Decides the seeds of sessions and the search.
        budget: Hard limits of all of it; what an earlier run in the folder spent counts.
        groups: Sessions on each task (G), whose answers are one set.
        judge: An LM, or several for a panel; None for DSPy's current LM; False for no judge.
        rubric: What answers are rated on; by default that of the benchmark, else ``ideas``.
        rule: Which program of the front to pick: ``diverse``, ``quality``, ``balanced`` or ``cheapest``; by default
            the first of these that the objectives say.
        sampler: Who suggests numbers: ``tpe``, ``nsga2``, ``gp``, ``random`` or ``grid``.
        include: Names of the numbers to tune; by default those that the program says.
        ranges: Ranges of numbers, by name, in place of the program's own.
        limits: By name of an objective, the most of a cost, or the least of a gain, that a program may have to win,
            e.g. ``{"tokens": 20_000}``.
        only: Name of the one predictor whose prompt is tuned.
        reflection_lm: Writes new prompts; None for DSPy's current LM, or the participants'.
        out: Folder of the compiled program; None keeps nothing.
        storage: Optuna storage to share between machines; by default a journal in the folder.
        workers: Variants measured at once by this process.
        max_concurrency: Most calls in flight at once.
        tell: Told of each trial (``Progress``) and each session (``Measuring``), and in a line of what is done.

    Returns:
        The program to call: the picked one if it is better on the held-out tasks, else the untuned one. Its
        attribute ``compile_report`` (``CompileReport``) says what was done and found.

    Raises:
        UserError: If something cannot work; said before anything is spent.
        OutputError: If the folder holds something else, or cannot be written.
        BudgetSpent: If the budget ends before the untuned program is measured.
        CallFailure: If no call can succeed (model name, key); what was made is kept.
        RunFailure: If no variant succeeds.
    """
    check_kinds(program, budget, trials=trials, groups=groups, max_concurrency=max_concurrency, workers=workers)
    check_whole("seed", seed, 0)
    train, held_out = tasks_of(trainset, "trainset"), tasks_of(valset, "valset")
    check_apart(train, held_out)
    check_answerable(program, [*train, *held_out])
    goals = objectives_of([objectives] if isinstance(objectives, str | Objective) else objectives, groups)
    rule = rule or default_rule(goals)
    pick([], goals, rule)  # refuses a rule that the objectives do not fit
    check_limits(limits or {}, goals)
    check_process(program, goals)
    panel = judge_with(rubric or _rubric(trainset), judge, None, seed)
    if panel is None and needs_ratings(goals):
        raise UserError("Quality cannot be reached without a judge", todo="Give a judge, or other objectives.")
    space = space_of(program, include=include, ranges=ranges)
    check_sampler(sampler, space)
    writer = reflection_lm or dspy.settings.lm or program.lms.get("participant")
    if prompts is None and only is not None:
        raise UserError(f"The prompt of {only!r} is not tuned", "no way of tuning prompts is given", "Give prompts.")
    if prompts is not None:
        check_tuning(program, prompts, train, goals, panel is not None, only, writer)
    facts = facts_of(program, train, held_out, goals, panel, groups, seed, prompts, only, space)
    if storage is not None:
        with quiet_optuna():
            await asyncio.to_thread(open_storage, storage)  # refuses one that cannot be opened
    with _folder(out) as root:
        compiling = Compiling(
            program=program,
            train=train,
            held_out=held_out,
            goals=goals,
            judge=panel,
            groups=groups,
            seed=seed,
            budget=budget or Budget(),
            folder=CompileFolder(root, facts),
            plan=Plan(trials, prompts, rule, sampler, include, ranges, only, writer, storage, workers, limits or {}),
            max_concurrency=max_concurrency,
            embedder=program.embedder,
            tell=tell,
        )
        await compiling.untuned()
        await compiling.search()
        picked, verdict, kept = await compiling.concluded()
        compiling.folder.note()
        report = report_of(compiling, picked, verdict, kept, trainset)
        async with compiling.folder.alone(tell):
            await asyncio.to_thread(write_artifact, root, kept, report, front_programs(compiling))
            await asyncio.to_thread(write_compiled_page, root)
    kept.compile_report = report
    return kept


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    """Open a folder for the compile, for the time of it alone if none is given."""
    if out is not None:
        yield Path(out)
        return
    with tempfile.TemporaryDirectory(prefix="salon-compile-") as place:
        yield Path(place)


compile = synchronous("compile", acompile)


def _rubric(trainset: Any) -> Rubric:
    return trainset.rubric if isinstance(trainset, Benchmark) else RUBRICS["ideas"]
