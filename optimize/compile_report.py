"""What a compile did, as data: all that its card and its page tell, and the plots show.

A `CompileReport` is written as ``compile.json`` and read back equal; its card and its page are made from it alone.
``version`` rises when a field changes its meaning or goes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from ..evals.statistics import Interval
from ..modules.budget import Usage
from ..modules.program import SessionProgram
from ..modules.tunable import Tunable

__all__ = [
    "STUDY_NAME",
    "VERSION",
    "CompileReport",
    "DataSource",
    "Direction",
    "Goal",
    "HeldOut",
    "Measured",
    "Number",
    "ProgramChange",
    "PromptChange",
    "Range",
    "State",
    "TaskText",
    "Trial",
    "program_change",
]

VERSION: Literal[1] = 1
STUDY_NAME = "study.log"

Number = int | float
Direction = Literal["maximize", "minimize"]
State = Literal["complete", "pruned", "failed"]
Plain = str | int | float | bool | None


@dataclass(frozen=True)
class PromptChange:
    """What became of one predictor's prompt.

    Attributes:
        predictor: Its name in the program.
        before: Its instructions in the untuned program.
        after: Its instructions now.
        fields: Descriptions of fields that were changed, as name: (before, after).
        demos: The demonstrations it has now, each value as a text.
        demos_before: How many it had.
    """

    predictor: str
    before: str
    after: str
    fields: dict[str, tuple[str, str]] = field(default_factory=dict)
    demos: list[dict[str, str]] = field(default_factory=list)
    demos_before: int = 0

    @property
    def changed(self) -> bool:
        """Whether anything is other than before."""
        return self.before != self.after or bool(self.fields) or len(self.demos) != self.demos_before


@dataclass(frozen=True)
class ProgramChange:
    """A program before and after.

    Attributes:
        name: Its class.
        input: What a call of it takes, ``topic``, ``task`` or ``problem``.
        settings_before: Its settings before.
        settings: Its settings now.
        numbers_before: The values of its tunables before, by name.
        numbers: The values now.
        prompts: Each of its predictors.
    """

    name: str
    input: str
    settings_before: dict[str, Any]
    settings: dict[str, Any]
    numbers_before: dict[str, Number]
    numbers: dict[str, Number]
    prompts: list[PromptChange]

    @property
    def changed(self) -> bool:
        """Whether it is another program than before."""
        same = self.settings == self.settings_before and self.numbers == self.numbers_before
        return not same or any(prompt.changed for prompt in self.prompts)


@dataclass(frozen=True)
class DataSource:
    """The data a program was tuned on."""

    name: str
    fingerprint: str
    licence: str
    source: dict[str, Plain] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskText:
    """A task by its id and in words."""

    id: str
    text: str


@dataclass(frozen=True)
class Goal:
    """What was optimized."""

    name: str
    direction: Direction
    unit: str = ""


@dataclass(frozen=True)
class Range:
    """A dimension of the search space: from ``low`` to ``high``, both included."""

    low: Number
    high: Number
    log: bool
    integer: bool
    default: Number


@dataclass(frozen=True)
class Measured:
    """An objective of a trial: its mean over queries, the standard error of that, and the queries; None if unknown."""

    value: float | None
    se: float | None
    n: int


@dataclass(frozen=True)
class Trial:
    """One variant of the program that was tried.

    Attributes:
        number: Its number in the study; 0 is the untuned program.
        values: The values of its tunables.
        objectives: What was measured, by objective.
        state: How it ended.
        reason: Why it was pruned, or failed.
        prompts: Which prompts it had: ``default``, ``gepa-1``...
        usage: What it cost, judges included.
        confirmed: Whether it was measured again with other seeds.
    """

    number: int
    values: dict[str, Number]
    objectives: dict[str, Measured]
    state: State
    reason: str = ""
    prompts: str = "default"
    usage: Usage = field(default_factory=Usage)
    confirmed: bool = False


@dataclass(frozen=True)
class HeldOut:
    """The chosen and the untuned program on tasks that were used for nothing else.

    Attributes:
        tuned: Mean over queries of the chosen program, with its 95 % interval.
        untuned: The same of the untuned program.
        difference: Mean of tuned minus untuned over the queries that both have, with Student's interval.
        p: Two-sided p value of no difference (sign flips); None for fewer than two queries.
        n: Queries that both have.
    """

    tuned: Interval
    untuned: Interval
    difference: Interval
    p: float | None
    n: int


@dataclass(frozen=True)
class CompileReport:
    """A compile from its data to its result.

    Attributes:
        program: The program before and after.
        benchmark: Where the tasks come from.
        train: Tasks of these that prompts were learnt from.
        validation: Tasks that everything was tuned on.
        test: Tasks held out for the last comparison.
        groups: Answers to each query (G), whose diversity is measured.
        seed: Seed of the search and of the sessions.
        models: LM of each role.
        judges: LMs that rated answers.
        packages: Versions.
        objectives: What was optimized, in the order in which it is told.
        space: The search space, by tunable.
        trials: All trials, in their order.
        front: Numbers of the trials that no other beats in every objective.
        picked: The trial that was chosen; None if there was none.
        rule: How it was chosen, in words.
        held_out: The last comparison, by objective; empty if it was not made.
        better: Whether the chosen program is better by that comparison; otherwise the untuned one is kept.
        verdict: The result in a sentence.
        usage: Cost by purpose: sessions, judges, and the tuning of prompts with its own sessions.
        seconds: Wall time of all of it.
        started: When it began, as an ISO time.
        limits: What a reader must not conclude from it, in sentences.
        search: The searcher and its settings, in words.
        storage: Where the study is: its journal in the folder, or the address of a data base, without credentials.
        stopped: Why the search ended before its time; empty if it did not.
        version: Version of this record.
    """

    program: ProgramChange
    benchmark: DataSource
    train: list[TaskText]
    validation: list[TaskText]
    test: list[TaskText]
    groups: int
    seed: int
    models: dict[str, str]
    judges: list[str]
    packages: dict[str, str]
    objectives: list[Goal]
    space: dict[str, Range]
    trials: list[Trial]
    front: list[int]
    picked: int | None
    rule: str
    held_out: dict[str, HeldOut]
    better: bool
    verdict: str
    usage: dict[str, Usage]
    seconds: float
    started: str
    limits: list[str]
    search: str = ""
    storage: str = STUDY_NAME
    stopped: str = ""
    version: Literal[1] = VERSION

    def of_state(self, state: State) -> list[Trial]:
        """Return the trials that ended in one way."""
        return [trial for trial in self.trials if trial.state == state]

    def trial(self, number: int) -> Trial | None:
        """Return a trial by its number."""
        return next((trial for trial in self.trials if trial.number == number), None)

    @property
    def total(self) -> Usage:
        """The cost of everything."""
        total = Usage()
        for usage in self.usage.values():
            total.add(usage)
        total.seconds = self.seconds
        return total


def program_change(before: SessionProgram, after: SessionProgram) -> ProgramChange:
    """Return what differs between an untuned program and what became of it.

    Args:
        before: The untuned program.
        after: A program of the same class.
    """
    told = before.described()["state"], after.described()["state"]
    prompts = [
        _prompt_change(name, list(predictor.signature.fields), *(state.get(name) for state in told))
        for name, predictor in after.named_predictors()
    ]
    return ProgramChange(
        name=type(after).__name__,
        input=after.inputs[0],
        settings_before=before.settings(),
        settings=after.settings(),
        numbers_before=_numbers(before),
        numbers=_numbers(after),
        prompts=prompts,
    )


def _numbers(program: SessionProgram) -> dict[str, Number]:
    parameters = cast("list[tuple[str, Any]]", program.named_parameters())
    return {name: parameter.value for name, parameter in parameters if isinstance(parameter, Tunable)}


def _prompt_change(name: str, fields: list[str], before: Any, after: Any) -> PromptChange:
    """Return the change of a predictor from its saved state before, which may be missing, and after."""
    earlier = before or {"demos": [], "signature": {"instructions": "", "fields": []}}
    pairs = zip(fields, earlier["signature"]["fields"], after["signature"]["fields"], strict=False)
    worded = {field: (old["description"], new["description"]) for field, old, new in pairs}
    return PromptChange(
        predictor=name,
        before=earlier["signature"]["instructions"],
        after=after["signature"]["instructions"],
        fields={field: change for field, change in worded.items() if change[0] != change[1]},
        demos=[{str(key): _text(value) for key, value in demo.items()} for demo in after["demos"]],
        demos_before=len(earlier["demos"]),
    )


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
