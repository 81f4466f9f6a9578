"""What a compile did, as data: all that its card and its page tell, and the plots show.

A `CompileReport` is written as ``compile.json`` and read back equal; its card and its page are made from it alone.
``version`` rises when a field changes its meaning or goes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from ..evals.statistics import Interval
from ..modules.budget import Usage
from .program_change import Number, ProgramChange
from .storage import STUDY_NAME

__all__ = [
    "VERSION",
    "CompileReport",
    "DataSource",
    "Direction",
    "Goal",
    "HeldOut",
    "Measured",
    "Range",
    "State",
    "TaskText",
    "Trial",
]

VERSION: Literal[1] = 1

Direction = Literal["maximize", "minimize"]
State = Literal["complete", "pruned", "failed"]
Plain = str | int | float | bool | None


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
        prompts: Which prompts it had: ``default``, or how they were tuned, e.g. ``gepa``.
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

    def value(self, objective: str) -> float | None:
        """Return what was measured of an objective; None if nothing was."""
        measured = self.objectives.get(objective)
        return None if measured is None else measured.value


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
        rubric: What they rated, in words.
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
    rubric: str = ""
    storage: str = STUDY_NAME
    stopped: str = ""
    version: Literal[1] = VERSION

    def of_state(self, state: State) -> list[Trial]:
        """Return the trials that ended in one way."""
        return [trial for trial in self.trials if trial.state == state]

    def trial(self, number: int) -> Trial | None:
        """Return a trial by its number."""
        return next((trial for trial in self.trials if trial.number == number), None)

    def marks(self, trial: Trial) -> list[str]:
        """Return what a reader should know of a trial at a glance: picked, untuned, on the front..."""
        marks = {
            "picked": trial.number == self.picked,
            "untuned": trial.number == 0,
            "front": trial.number in self.front,
            "confirmed": trial.confirmed,
            trial.state: trial.state != "complete",
        }
        return [mark for mark, holds in marks.items() if holds]

    @property
    def total(self) -> Usage:
        """The cost of everything."""
        return replace(Usage.total(self.usage.values()), seconds=self.seconds)
