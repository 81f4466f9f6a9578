"""Pruning of hopeless trials, by racing them on queries.

The queries of a trial are measured in blocks, in the same order in every trial. After each block but the last the
trial is held against every program f of the current front, on the queries it has so far. For each objective the
differences to f on these queries (same queries, same seeds) have a mean m, a standard error s and n queries; the
optimistic bound of the trial's lead is ``m + t * s``, with t the one-sided quantile of Student's t with n - 1
degrees of freedom at the level ``RISK / (looks x programs on the front)``.

The trial is pruned if, for one f, all optimistic bounds are below 0: even at its best it would be dominated by f.
A bound needs ``FEWEST`` queries, so a trial is never pruned on fewer. A trial that is as good as f in any one
objective is pruned with a probability of at most ``RISK``, over all looks and rivals together (Bonferroni), as
far as the differences are normal. A trial is pruned as well when by the same bound it passes a limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import TypeVar

from scipy import stats

from .objectives import Objective, Value, lead_over

__all__ = ["FEWEST", "RISK", "blocks", "hopeless", "over_limit"]

FEWEST = 4
RISK = 0.05
T = TypeVar("T")


def blocks(items: Sequence[T], count: int) -> list[list[T]]:
    """Split queries into so many blocks, the first with ``FEWEST`` or more; fewer blocks where there are too few."""
    first = max(FEWEST, ceil(len(items) / count))
    if count < 2 or first >= len(items):
        return [list(items)]
    rest = items[first:]
    size = ceil(len(rest) / (count - 1))
    return [list(items[:first]), *(list(rest[at : at + size]) for at in range(0, len(rest), size))]


def hopeless(
    own: Mapping[str, Value], front: Sequence[Mapping[str, Value]], objectives: Sequence[Objective], looks: int
) -> bool:
    """Return whether a program of the front dominates a trial even at its best.

    Args:
        own: What the trial has so far.
        front: What the programs of the front have.
        objectives: What is compared.
        looks: How often a trial is looked at.
    """
    level = RISK / max(looks * len(front), 1)
    return any(all(_at_best(own[o.name], other[o.name], o, level) < 0 for o in objectives) for other in front)


def _at_best(own: Value, other: Value, objective: Objective, level: float) -> float:
    """Return the optimistic bound of the lead of a trial over another."""
    lead = lead_over(own, other, objective)
    if lead.mean is None or lead.se is None or lead.n < FEWEST:
        return inf
    return lead.mean + float(stats.t.ppf(1 - level, lead.n - 1)) * lead.se


def over_limit(own: Value, bound: float, objective: Objective, looks: int) -> bool:
    """Return whether a value passes a limit even at its best: too much of a cost, too little of a gain."""
    if own.value is None or own.se is None or own.n < FEWEST:
        return False
    best = objective.sign * own.value + float(stats.t.ppf(1 - RISK / max(looks, 1), own.n - 1)) * own.se
    return best < objective.sign * bound
