"""The report of a compile, made from what is in its folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, cast

from ..data.benchmarks import Benchmark, Task, tasks_digest
from ..evals.engine import answering, judging
from ..evals.jobs import JOBS_NAME, read_rows
from ..modules.budget import Usage
from ..modules.program import SessionProgram
from .bench import cost_of
from .compile_plan import halves
from .compile_report import (
    CompileReport,
    DataSource,
    Goal,
    Measured,
    Range,
    State,
    TaskText,
    Trial,
)
from .compile_stages import Compiling, Found
from .front import RULES, pareto
from .program_change import program_change
from .prompt_stage import spent_before
from .space import tunables
from .storage import STUDY_NAME
from .trials import TrialRecord
from .verify import Verdict

__all__ = ["report_of"]

_PACKAGES = ("salon", "dspy", "litellm", "optuna", "sentence-transformers")


def report_of(
    compiling: Compiling, picked: Found | None, verdict: Verdict, kept: SessionProgram, trainset: Any
) -> CompileReport:
    """Return the report of a compile.

    Args:
        compiling: The compile, concluded.
        picked: The program that was picked; None if there was none.
        verdict: How it did on the held-out tasks.
        kept: The program that is returned.
        trainset: The tasks as the caller gave them.
    """
    plan, everything = compiling.plan, compiling.everything()
    numbers = _numbers(compiling)
    return CompileReport(
        program=program_change(compiling.program, kept),
        benchmark=_source(trainset, compiling.train),
        train=_texts(halves(compiling.train)[0]) if plan.prompts else [],
        validation=_texts(compiling.train),
        test=_texts(compiling.held_out),
        groups=compiling.groups,
        seed=compiling.seed,
        models=_models(compiling),
        judges=[str(lm.model) for lm in compiling.judge.lms.values()] if compiling.judge is not None else [],
        packages={"python": sys.version.split()[0], **{name: version(name) for name in _PACKAGES}},
        objectives=[Goal(goal.name, goal.direction, goal.unit) for goal in compiling.goals],
        space=_space(compiling),
        trials=[_trial(compiling, numbers[id(found.record)], found) for found in everything],
        front=sorted(front_programs(compiling)),
        picked=numbers[id(picked.record)] if picked is not None else None,
        rule=RULES[plan.rule],
        held_out=verdict.held_out,
        better=verdict.better,
        verdict=verdict.text,
        usage=_usage(compiling),
        seconds=round(compiling.folder.seconds, 1),
        started=compiling.folder.started,
        limits=_limits(compiling, bool(verdict.held_out)),
        search=_search(compiling, len(everything)),
        rubric=_rubric(compiling),
        storage=plan.storage or STUDY_NAME,
        stopped=compiling.stopped,
    )


def front_programs(compiling: Compiling) -> dict[int, SessionProgram]:
    """Return the programs of the front, by the numbers that the report gives their trials."""
    able, numbers = compiling.able(), _numbers(compiling)
    front = pareto([found.record.means for found in able], compiling.goals)
    return {numbers[id(able[at].record)]: able[at].program for at in front}


def _numbers(compiling: Compiling) -> dict[int, int]:
    """Return the number of each trial in the report, by the identity of its record; 0 is the untuned program's."""
    everything = compiling.everything()
    first = 0 if everything and compiling.is_untuned(everything[0]) else 1
    return {id(found.record): number for number, found in enumerate(everything, first)}


def _search(compiling: Compiling, tried: int) -> str:
    plan = compiling.plan
    only = f", those of {plan.only} alone" if plan.only else ""
    prompts = f"; prompts by {plan.prompts}{only}" if plan.prompts else ""
    limits = "".join(
        f"; {goal.name} at {'least' if goal.sign > 0 else 'most'} {plan.limits[goal.name]:g}"
        for goal in compiling.goals
        if goal.name in plan.limits
    )
    return f"{plan.sampler}, {tried} program{'' if tried == 1 else 's'}{prompts}{limits}"


def _models(compiling: Compiling) -> dict[str, str]:
    """Return the LM of each role, and the one that wrote prompts, if any did."""
    models = {role: str(model.get("model")) for role, model in compiling.program.described_lms().items()}
    if compiling.plan.prompts in ("gepa", "mipro"):
        models["prompt writer"] = str(getattr(compiling.plan.reflection_lm, "model", "unknown"))
    return models


def _space(compiling: Compiling) -> dict[str, Range]:
    space = compiling.stages[0][0].space if compiling.stages else {}
    return {n: Range(d.low, d.high, d.log, d.integer, d.default) for n, d in space.items()}


def _trial(compiling: Compiling, number: int, found: Found) -> Trial:
    record = found.record
    values = {name: Measured(value.value, value.se, value.n) for name, value in record.values.items()}
    return Trial(
        number=number,
        values={name: tunables(found.program)[name].value for name in record.numbers},
        objectives=values,
        state=cast(State, record.state),
        reason=record.reason,
        prompts=found.prompts,
        usage=_spent_on(compiling, record),
        confirmed=record.measured > 1,
    )


def _spent_on(compiling: Compiling, record: TrialRecord) -> Usage:
    """Return what the sessions of a trial and their ratings cost, as far as they are in this folder."""
    places = (compiling.bench.folder(record.place, fresh) for fresh in range(record.measured + 1))
    total = cost_of(*(row for place in places for row in read_rows(place).values()))
    total.seconds = record.seconds
    return total


def _usage(compiling: Compiling) -> dict[str, Usage]:
    """Return the cost by purpose, as far as it is in this folder."""
    sessions, judge = Usage(), Usage()
    for path in sorted((compiling.folder.root / "sessions").glob(f"*/*/seeds-*/{JOBS_NAME}")):
        for row in read_rows(path.parent).values():
            sessions.add(answering(row))
            judge.add(judging(row))
    parts = {"sessions": sessions, "judges": judge}
    if compiling.tuning is not None:
        judge.add(compiling.tuning.judging)
        parts["tuning of prompts"] = compiling.tuning.spent
    elif compiling.plan.prompts and (before := spent_before(compiling.folder)).calls:
        parts["tuning of prompts"] = before
    return parts


def _rubric(compiling: Compiling) -> str:
    if compiling.judge is None:
        return ""
    rubric = compiling.judge.rubric
    names = ", ".join(dimension.name for dimension in rubric.dimensions)
    return f"{rubric.name} ({names}), each 1 to 10; quality is their mean"


def _limits(compiling: Compiling, compared: bool) -> list[str]:
    told = [
        f"It was tuned on {_tasks(compiling.train)} with {compiling.groups} session"
        f"{'' if compiling.groups == 1 else 's'} each, and {'' if compared else 'not '}held against the untuned "
        f"program on {_tasks(compiling.held_out)}; of other models and other kinds of tasks nothing is known.",
    ]
    if compiling.judge is not None:
        told.append("Quality is what the judges say: it compares programs under one judge, and is no level to quote.")
        authors = {str(model.get("model")) for model in compiling.program.described_lms().values()}
        if authors & {str(lm.model) for lm in compiling.judge.lms.values()}:
            told.append("A judge is the model that writes the answers, and may favour its own ways.")
    if compiling.plan.prompts:
        told.append("Prompts were chosen on half of the tasks that numbers were tuned on.")
    if compiling.stopped:
        told.append(f"The search ended before its time: {compiling.stopped}")
    return told


def _tasks(tasks: Sequence[Task]) -> str:
    return f"{len(tasks)} task{'' if len(tasks) == 1 else 's'}"


def _texts(tasks: Sequence[Task]) -> list[TaskText]:
    return [TaskText(task.id, task.text) for task in tasks]


def _source(trainset: Any, tasks: Sequence[Task]) -> DataSource:
    if not isinstance(trainset, Benchmark):
        return DataSource("own tasks", tasks_digest(tasks), "")
    return DataSource(trainset.name, trainset.fingerprint, trainset.licence, asdict(trainset.source))
