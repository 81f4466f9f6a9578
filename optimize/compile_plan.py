"""How a compile searches, and how it divides what it has between numbers and prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..data.benchmarks import Task
from .metric import DIVERSITIES
from .objectives import DEFAULT_THRESHOLD, Objective
from .optimizers import Prompts, least_calls
from .samplers import Sampler

__all__ = ["Plan", "halves", "most_groups", "weights"]


@dataclass(frozen=True)
class Plan:
    """How the search goes.

    Attributes:
        trials: Variants tried in all.
        prompts: How prompts are tuned; None for numbers alone.
        rule: Which program of the front is picked.
        sampler: Who suggests numbers.
        include: Names of the numbers to tune.
        ranges: Ranges of numbers in place of the program's own.
        only: The one predictor whose prompt is tuned.
        reflection_lm: Writes new prompts.
        storage: Optuna storage; None for a journal in the folder.
        workers: Variants measured at once.
        limits: By name of an objective, the most of a cost, or the least of a gain, that a winner may have.
    """

    trials: int
    prompts: Prompts | None
    rule: str
    sampler: Sampler
    include: Sequence[str] | None = None
    ranges: Mapping[str, tuple[float, float]] | None = None
    only: str | None = None
    reflection_lm: Any = None
    storage: str | None = None
    workers: int = 1
    limits: Mapping[str, float] = field(default_factory=dict)


def halves(tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """Return the tasks that prompts are learnt from, and those that they are chosen by."""
    half = len(tasks) // 2
    return list(tasks[:half]), list(tasks[half:])


def most_groups(how: str, trials: int, tasks: int) -> int:
    """Return how many groups of sessions the tuning of prompts may ask for: as many as trials on its own tasks take.

    Args:
        how: ``gepa``, ``mipro`` or ``bootstrap``.
        trials: Variants tried in all.
        tasks: Tasks to tune on.
    """
    half = tasks // 2
    return max(least_calls(how, half, tasks - half), trials * (tasks - half))


def weights(goals: Sequence[Objective], judged: bool) -> tuple[dict[str, float], float]:
    """Return what prompts are tuned for, and the quality from which an answer is good enough.

    Quality and the first diversity among the objectives count evenly; quality alone where there is neither.
    Nothing is returned where there is nothing to go by.
    """
    quality = ["quality"] if judged and any(goal.kind == "quality" for goal in goals) else []
    diverse = [goal for goal in goals if goal.name in DIVERSITIES][:1]
    names = [*quality, *(goal.name for goal in diverse)] or (["quality"] if judged else [])
    gate = next((goal.threshold for goal in diverse if goal.threshold is not None), DEFAULT_THRESHOLD)
    return dict.fromkeys(names, 1.0), gate
