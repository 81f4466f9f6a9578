"""What a study keeps of its trials, and what it hands back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from salon.errors import UserError

from ..data.benchmarks import Task
from ..evals.jobs import JobRow
from ..modules.embedding import Embedder
from ..modules.program import SessionProgram
from .front import DEFAULT_RULE, pareto, pick
from .objectives import Objective, Value
from .space import Dimension, with_values

__all__ = ["Measures", "Progress", "State", "TrialRecord", "Tuned", "front_of", "winners_of"]

State: TypeAlias = Literal["running", "complete", "pruned", "failed"]


class Measures(Protocol):
    """What a study needs of a bench; ``optimize.bench.Bench`` is one."""

    @property
    def groups(self) -> int:
        """Answers per query (G)."""
        ...

    @property
    def embedder(self) -> Embedder:
        """Embeds the answers."""
        ...

    async def measure(self, program: SessionProgram, tasks: Sequence[Task], place: str, fresh: int = 0) -> list[JobRow]:
        """Return G rows for each task; what is found in the place is not made again.

        Args:
            program: The variant.
            tasks: The tasks.
            place: Name of the variant's folder.
            fresh: 0 for the seeds that all trials share; another number for other seeds.

        Raises:
            BudgetSpent: If the budget ends before.
        """
        ...


@dataclass(frozen=True)
class TrialRecord:
    """One program that was tried.

    Attributes:
        number: Number of the trial in the study; 0 is the untuned program.
        numbers: The numbers as they were suggested.
        state: ``complete``, ``pruned`` (hopeless, see ``racing``), ``failed`` or ``running``.
        values: What was measured of each objective, all measurements pooled; of the queries so far if pruned.
        measured: How often it was measured on all queries: once, and again with other seeds before it may win.
        feasible: Whether it keeps the limits.
        reason: Why it failed or was pruned; or that a limit is passed.
        key: Hash of the program; also the name of its folder.
        untuned: Whether it is the untuned program.
        copy_of: Number of the earlier trial of the same program, whose values it has; None for one of its own.
        rank: The number of its program in the study, in the order of their first trials; 0 is the untuned one.
        sessions: Sessions held.
        failed: Sessions of these that failed.
        seconds: Wall time of its measurement.
    """

    number: int
    numbers: Mapping[str, float]
    state: State
    values: Mapping[str, Value] = field(repr=False)
    measured: int = 1
    feasible: bool = True
    reason: str = ""
    key: str = ""
    untuned: bool = False
    copy_of: int | None = None
    rank: int = 0
    sessions: int = 0
    failed: int = 0
    seconds: float = 0.0

    @property
    def means(self) -> dict[str, float | None]:
        """The values alone, by objective."""
        return {name: value.value for name, value in self.values.items()}

    @property
    def place(self) -> str:
        """Name of the folder of its sessions."""
        return f"trial-{self.key}"


@dataclass(frozen=True)
class Progress:
    """Where a study stands.

    Attributes:
        record: The trial that has just ended; or been measured again.
        done: Programs whose trials ended.
        trials: How many there will be.
        front: The front so far.
        before: Programs of earlier studies of the same compile.
    """

    record: TrialRecord
    done: int
    trials: int
    front: list[TrialRecord]
    before: int = 0

    def __str__(self) -> str:
        values = ", ".join(f"{name} {value}" for name, value in self.record.values.items())
        told = self.record.reason if self.record.state != "complete" else values
        state = "measured again" if self.record.measured > 1 else self.record.state
        far = f"{self.done} of {self.trials} done, {len(self.front)} on the front"
        return f"Trial {self.before + self.record.rank}: {state}, {told}; {far}"


@dataclass(frozen=True)
class Tuned:
    """What a study found.

    Attributes:
        trials: All trials by number, copies included.
        front: Trials that may win and that none of those dominates: measured again as often as was asked for.
        objectives: What was compared.
        space: What was searched.
        program: The untuned program.
        stopped: Why the study ended before its time; empty if it did not.
        name: Name of the study.
        storage: Where it is, for ``optuna-dashboard``.
        unfinished: What failed, as in an outage, and is tried again by the next call; empty if nothing did.
    """

    trials: list[TrialRecord] = field(repr=False)
    front: list[TrialRecord]
    objectives: list[Objective]
    space: dict[str, Dimension]
    program: SessionProgram = field(repr=False)
    stopped: str
    name: str
    storage: str
    unfinished: str = ""

    @property
    def untuned(self) -> TrialRecord | None:
        """The trial of the untuned program; None if it was never measured."""
        return next((record for record in self.trials if record.untuned and record.state == "complete"), None)

    def program_of(self, record: TrialRecord) -> SessionProgram:
        """Return the program of a trial."""
        return with_values(self.program, record.numbers)

    def picked(self, rule: str = DEFAULT_RULE) -> TrialRecord:
        """Return the trial to take from the front, by a rule of ``front.pick``.

        Raises:
            UserError: If the front is empty, or the rule does not fit the objectives.
        """
        at = pick([record.means for record in self.front], self.objectives, rule)
        if at is None:
            raise UserError("There is no program to pick", self.stopped or "no trial has values and keeps the limits")
        return self.front[at]


def front_of(records: Sequence[TrialRecord], objectives: Sequence[Objective]) -> list[TrialRecord]:
    """Return the trials with values that keep the limits and that no other such trial dominates; no copies."""
    able = [r for r in records if r.state == "complete" and r.feasible and r.copy_of is None]
    return [able[at] for at in pareto([record.means for record in able], objectives)]


def winners_of(records: Sequence[TrialRecord], objectives: Sequence[Objective], again: int) -> list[TrialRecord]:
    """Return the front of the trials that were measured again so often; of all, if there are none."""
    sure = [record for record in records if record.measured > again]
    return front_of(sure, objectives) or front_of(records, objectives)
