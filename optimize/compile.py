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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

import dspy

from salon.errors import LMSetupError, UserError

from ..data.benchmarks import Benchmark, Task
from ..data.rubrics import RUBRICS, Rubric
from ..data.splits import normalised
from ..evals.answering import PERSON
from ..evals.conditions import check_whole
from ..evals.judges import RubricJudge
from ..evals.runner import judge_with
from ..modules.budget import Budget
from ..modules.checks import check_arguments
from ..modules.program import SessionProgram, run_sync
from ..modules.text import excerpt
from .artifact import write_artifact
from .compile_folder import CompileFolder, digest
from .compiling import Compiling, Plan, Prompts, Tell, halves, weights
from .front import DEFAULT_RULE, pick
from .objectives import Objective, objectives_of
from .prompts import check_prompts
from .reporting import report_of
from .samplers import Sampler, open_storage, quiet
from .search import check_sampler
from .space import Dimension, program_key, space_of

__all__ = ["acompile", "compile", "tasks_of"]


async def acompile(
    program: SessionProgram,
    trainset: Benchmark | Sequence[Any],
    valset: Benchmark | Sequence[Any],
    objectives: Sequence[str | Objective] = ("quality", "vendi"),
    *,
    trials: int = 30,
    prompts: Prompts | None = None,
    seed: int = 0,
    budget: Budget | None = None,
    groups: int = 3,
    judge: Any = None,
    rubric: Rubric | None = None,
    rule: str = DEFAULT_RULE,
    sampler: Sampler = "tpe",
    include: Sequence[str] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
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
        objectives: What to reach: names of ``OBJECTIVES``, or objectives of one's own.
        trials: Variants tried in all, the untuned one included.
        prompts: How to tune the prompts: ``gepa``, ``mipro`` or ``bootstrap``; None for numbers alone.
        seed: Decides the seeds of sessions and the search.
        budget: Hard limits of all of it; what an earlier run in the folder spent counts.
        groups: Sessions on each task (G), whose answers are one set.
        judge: An LM, or several for a panel; None for DSPy's current LM; False for no judge.
        rubric: What answers are rated on; by default that of the benchmark, else ``ideas``.
        rule: Which program of the front to pick: ``diverse``, ``quality``, ``balanced`` or ``cheapest``.
        sampler: Who suggests numbers: ``tpe``, ``nsga2``, ``gp``, ``random`` or ``grid``.
        include: Names of the numbers to tune; by default those that the program says.
        ranges: Ranges of numbers, by name, in place of the program's own.
        only: Name of the one predictor whose prompt is tuned.
        reflection_lm: Writes new prompts; None for DSPy's current LM, or the participants'.
        out: Folder of the compiled program; None keeps nothing.
        storage: Optuna storage to share between machines; by default a journal in the folder.
        workers: Variants measured at once by this process.
        max_concurrency: Most calls in flight at once.
        tell: Told of each trial, and in a line of what is done.

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
    if out is None:
        with tempfile.TemporaryDirectory(prefix="salon-compile-") as place:
            return await acompile(
                program, trainset, valset, objectives, trials=trials, prompts=prompts, seed=seed, budget=budget,
                groups=groups, judge=judge, rubric=rubric, rule=rule, sampler=sampler, include=include, ranges=ranges,
                only=only, reflection_lm=reflection_lm, out=place, storage=storage, workers=workers,
                max_concurrency=max_concurrency, tell=tell,
            )  # fmt: skip
    _check(program, budget, trials=trials, groups=groups, max_concurrency=max_concurrency, workers=workers)
    check_whole("seed", seed)
    train, held_out = tasks_of(trainset, "trainset"), tasks_of(valset, "valset")
    _apart(train, held_out)
    _answerable(program, [*train, *held_out])
    goals = objectives_of([objectives] if isinstance(objectives, str | Objective) else objectives, groups)
    pick([], goals, rule)  # refuses a rule that the objectives do not fit
    panel = judge_with(rubric or _rubric(trainset), judge, None, seed)
    if panel is None and any(goal.name == "quality" or goal.threshold is not None for goal in goals):
        raise UserError("Quality cannot be reached without a judge", todo="Give a judge, or other objectives.")
    space = space_of(program, include=include, ranges=ranges)
    check_sampler(sampler, space)
    writer = reflection_lm or dspy.settings.lm or program.lms.get("participant")
    if prompts is not None:
        _check_tuning(program, prompts, train, goals, panel is not None, only, writer)
    facts = _facts(program, train, held_out, goals, panel, groups, seed, prompts, only, space)
    if storage is not None:
        with quiet():
            await asyncio.to_thread(open_storage, storage)  # refuses one that cannot be opened
    compiling = Compiling(
        program=program,
        train=train,
        held_out=held_out,
        goals=goals,
        judge=panel,
        groups=groups,
        seed=seed,
        budget=budget or Budget(),
        folder=CompileFolder(Path(out), facts),
        plan=Plan(trials, prompts, rule, sampler, include, ranges, only, writer, storage, workers),
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
        await asyncio.to_thread(write_artifact, compiling.folder.root, kept, report)
    kept.compile_report = report
    return kept


def compile(
    program: SessionProgram,
    trainset: Benchmark | Sequence[Any],
    valset: Benchmark | Sequence[Any],
    objectives: Sequence[str | Objective] = ("quality", "vendi"),
    **settings: Any,
) -> SessionProgram:
    """Do as ``acompile``, for callers without an event loop and for those inside one."""
    return run_sync(acompile(program, trainset, valset, objectives, **settings))


def tasks_of(given: Any, name: str = "tasks") -> list[Task]:
    """Return tasks for a benchmark, texts, examples with a ``task``, or tasks.

    Raises:
        UserError: If there is none, or one is nothing of these.
    """
    if isinstance(given, Benchmark):
        return list(given.tasks)
    one = isinstance(given, str | Mapping | Task) or not isinstance(given, Iterable)
    found: list[Task] = []
    for item in [given] if one else given:
        text = item.text if isinstance(item, Task) else item if isinstance(item, str) else getattr(item, "task", None)
        if not isinstance(text, str) or not text.strip():
            what = "An empty text" if isinstance(text, str) else type(item).__name__
            raise UserError(f"{what} in the {name} is no task", "a text is needed, or an example with a task")
        own = getattr(item, "id", None)
        named = str(own) if own else blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
        found.append(item if isinstance(item, Task) else Task(named, text, text))
    if not found:
        raise UserError(f"The {name} is empty", "at least one task is needed")
    if len({task.id for task in found}) < len(found) or len({normalised(t.text) for t in found}) < len(found):
        raise UserError(f"A task of the {name} is there twice", "two have one text or one id", "Give each task once.")
    return found


def _check(program: object, budget: object, **numbers: int) -> None:
    """Refuse settings of the wrong kind.

    Raises:
        UserError: If there are any.
    """
    if not isinstance(program, SessionProgram):
        raise UserError(f"{type(program).__name__} cannot be compiled", "a session program is needed")
    check_arguments(budget=budget)
    for name, value in numbers.items():
        check_whole(name, value, 1)


def _apart(train: Sequence[Task], held_out: Sequence[Task]) -> None:
    """Refuse held-out tasks that are trained on."""
    texts = {normalised(task.text) for task in train}
    if both := [task.text for task in held_out if normalised(task.text) in texts]:
        why = f"{both[0][:60]!r} is in both, so it says nothing on new tasks"
        raise UserError("Training and held-out tasks overlap", why, "Give different tasks.")


def _answerable(program: SessionProgram, tasks: Sequence[Task]) -> None:
    """Refuse tasks that no session can be held on, such as those that are too long.

    Raises:
        UserError: If there is one.
    """
    person = {"person": PERSON} if "person" in program.inputs else {}
    for task in tasks:
        try:
            program.checked({program.inputs[0]: task.text, **person})
        except UserError as error:
            told = f"No session can be held on the task {excerpt(task.id, 40)}"
            raise UserError(told, f"{error.what}: {error.why}", "Leave it out.") from error


def _check_tuning(
    program: SessionProgram,
    how: str,
    train: Sequence[Task],
    goals: Sequence[Objective],
    judged: bool,
    only: str | None,
    writer: Any,
) -> None:
    """Refuse what prompts cannot be tuned with.

    Raises:
        UserError: If it cannot work.
    """
    if len(train) < 2:
        raise UserError("One task is too few to tune prompts", "some are learnt from, others are chosen by")
    check_prompts(how, *halves(train), program, only)
    if not weights(goals, judged)[0]:
        why = "they are tuned for quality or diversity, and there is neither a judge nor such an objective"
        raise UserError("Prompts cannot be tuned for these objectives", why, "Give a judge, or tune numbers alone.")
    if how != "bootstrap" and writer is None:
        todo = "Give reflection_lm, or set an LM with dspy.context."
        raise LMSetupError("No language model is set", f"{how} needs one that writes prompts", todo)


def _facts(
    program: SessionProgram,
    train: Sequence[Task],
    held_out: Sequence[Task],
    goals: Sequence[Objective],
    judge: RubricJudge | None,
    groups: int,
    seed: int,
    prompts: str | None,
    only: str | None,
    space: Mapping[str, Dimension],
) -> dict[str, Any]:
    """Return what the sessions of a compile rest on, by what it is called."""
    return {
        "program": f"{type(program).__name__} {program_key(program)}",
        "models": {role: str(model.get("model")) for role, model in program.described_lms().items()},
        "training tasks": digest([[task.id, task.text] for task in train]),
        "held-out tasks": digest([[task.id, task.text] for task in held_out]),
        "objectives": [f"{goal.direction} {goal.name} ({goal.unit})" for goal in goals],
        "judges": [str(lm.model) for lm in judge.lms.values()] if judge is not None else [],
        "rubric": digest(asdict(judge.rubric)) if judge is not None else None,
        "number of sessions on a task": groups,
        "seed": seed,
        "way of tuning prompts": [prompts, only] if prompts is not None else None,
        "search space": [str(dimension) for dimension in space.values()],
        "embedder": program.embedder.model,
    }


def _rubric(trainset: Any) -> Rubric:
    return trainset.rubric if isinstance(trainset, Benchmark) else RUBRICS["ideas"]
