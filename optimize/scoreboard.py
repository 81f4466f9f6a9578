"""Which programs were tried on all validation tasks, and how good they were."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..modules.program import SessionProgram
from .groups import Group
from .metric import Aim, Score

__all__ = ["Candidate", "Scoreboard"]


@dataclass(frozen=True)
class Candidate:
    """A whole program that was tried on all validation tasks.

    Attributes:
        program: The program, with the LMs of the untuned one.
        score: Mean score over the tasks, 0 to 1.
        quality: Mean value that judges gave, 1 to 10; None if nothing was rated.
        diversity: Mean diversity as measured, e.g. the Vendi score; None where it does not count or is undefined.
        objectives: Means of ``quality`` and ``diversity`` on the scale of 0 to 1, as the optimizer saw them.
        by_task: Scores by id of the task.
        n: Number of tasks.
    """

    program: SessionProgram = field(repr=False)
    score: float
    quality: float | None
    diversity: float | None
    objectives: Mapping[str, float]
    by_task: Mapping[str, Score] = field(repr=False)
    n: int


class Scoreboard:
    """Collects groups on validation tasks, program by program.

    Args:
        untuned: The program as it was.
        tasks: Ids of the validation tasks.
        aim: What makes a group good.
        tell: Told in a line of each program whose tasks are complete.

    Attributes:
        candidates: Programs that are complete, in the order in which they were.
    """

    def __init__(self, untuned: SessionProgram, tasks: Sequence[str], aim: Aim, tell: Callable[[str], None]) -> None:
        self.candidates: list[Candidate] = []
        self.untuned: Candidate | None = None
        self._program, self._tasks, self._aim, self._tell = untuned, list(tasks), aim, tell
        self._first = json.dumps(untuned.described())
        self._scores: dict[str, dict[str, Score]] = {}

    @property
    def best(self) -> Candidate | None:
        """The program with the highest score; among equals the one that was there first."""
        return max(self.candidates, key=lambda candidate: candidate.score, default=None)

    def add(self, described: dict[str, Any], group: Group) -> None:
        """Note the score of a program on a task; one that could not be rated leaves its program incomplete."""
        if group.task.id not in self._tasks or group.score.value is None:
            return
        name = json.dumps(described)
        scores = self._scores.setdefault(name, {})
        scores[group.task.id] = group.score
        if len(scores) < len(self._tasks):
            return
        candidate = self._candidate(described, scores)
        self.candidates.append(candidate)
        if name == self._first:
            self.untuned = candidate
        told = [f"score {candidate.score:.3f}"]
        told += [] if candidate.quality is None else [f"quality {candidate.quality:.2f}"]
        told += [] if candidate.diversity is None else [f"{self._aim.measure} {candidate.diversity:.2f}"]
        told += [f"best so far {self.best.score:.3f}"] if self.best is not None else []
        self._tell(f"Program {len(self.candidates)}: {', '.join(told)}")

    def _candidate(self, described: dict[str, Any], scores: dict[str, Score]) -> Candidate:
        program = self._program.changed()
        program.load_state(described["state"])
        ordered = {task: scores[task] for task in self._tasks}
        objectives = {"quality": _mean([s.quality for s in ordered.values()]) or 0.0}
        if self._aim.diversity:
            objectives["diversity"] = _mean([s.diversity for s in ordered.values()]) or 0.0
        return Candidate(
            program=program,
            score=_mean([s.value for s in ordered.values()]) or 0.0,
            quality=_mean([s.rated for s in ordered.values()]),
            diversity=_mean([s.measured for s in ordered.values()]),
            objectives=objectives,
            by_task=ordered,
            n=len(ordered),
        )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
