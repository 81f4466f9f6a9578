"""The last comparison: the picked program against the untuned one, on tasks that nothing before has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from ..evals.comparing import paired
from ..evals.jobs import JobRow
from ..evals.statistics import FEW, LEVEL, Interval, mean_interval
from ..modules.embedding import Embedder
from .compile_report import HeldOut
from .objectives import Objective, Value, values_of

__all__ = ["Verdict", "verdict_of"]

_ROUNDING = 1e-9  # share of the values below which a difference is none


@dataclass(frozen=True)
class Verdict:
    """What came of the comparison.

    Attributes:
        held_out: Means and paired differences by objective; empty if nothing was compared.
        better: Whether the picked program is better.
        text: The result in a sentence or two.
    """

    held_out: dict[str, HeldOut]
    better: bool
    text: str


def verdict_of(
    before: Sequence[JobRow], after: Sequence[JobRow], goals: Sequence[Objective], embedder: Embedder, seed: int = 0
) -> Verdict:
    """Compare two programs by query.

    The picked one is better if an objective gained, by a 95 % interval of the paired difference that lies on its
    good side of 0, and none lost, by one that lies on the other. The interval is Student's: held-out tasks are
    few, and the bootstrap, which cannot leave the range of what it has seen, is then far too sure (of two tasks
    that both gained by luck, one time in four, it would say that a gain is certain).

    Args:
        before: Rows of the untuned program.
        after: Rows of the picked one, on the same queries and seeds.
        goals: The objectives.
        embedder: Embeds answers.
        seed: Of the resamples.
    """
    untuned, tuned = values_of(before, goals, embedder), values_of(after, goals, embedder)
    found = {goal.name: _held_out(tuned[goal.name], untuned[goal.name], seed) for goal in goals}
    signs = {goal.name: goal.sign * found[goal.name].difference.sign for goal in goals}
    gained, lost = ([name for name, sign in signs.items() if sign == way] for way in (1, -1))
    better = bool(gained) and not lost
    return Verdict(found, better, _told(gained, lost, found))


def _held_out(tuned: Value, untuned: Value, seed: int) -> HeldOut:
    compared = paired(tuned.by_query, untuned.by_query, seed)
    difference = _difference(tuned.by_query, untuned.by_query)
    return HeldOut(_mean(tuned, seed), _mean(untuned, seed), difference, compared.p, compared.n)


def _difference(tuned: Mapping[str, float | None], untuned: Mapping[str, float | None]) -> Interval:
    """Return the mean of tuned minus untuned over the queries that both have, with Student's interval."""
    pairs = [(a, b) for query, a in tuned.items() if a is not None and (b := untuned.get(query)) is not None]
    gaps: Any = np.array([a - b if abs(a - b) > _ROUNDING * max(abs(a), abs(b)) else 0.0 for a, b in pairs])
    n = len(gaps)
    if n < 2:
        return Interval(float(gaps[0]) if n else None, None, None, n)
    mean, se = float(gaps.mean()), float(gaps.std(ddof=1)) / n**0.5
    reach = float(stats.t.ppf((1 + LEVEL) / 2, n - 1)) * se
    return Interval(mean, mean - reach, mean + reach, n)


def _mean(value: Value, seed: int) -> Interval:
    return mean_interval([known for known in value.by_query.values() if known is not None], seed)


def _told(gained: Sequence[str], lost: Sequence[str], found: Mapping[str, HeldOut]) -> str:
    queries = max((held.n for held in found.values()), default=0)
    few = f" They are few ({queries}): only a large difference would show."
    if gained and lost:
        text = f"The tuned program gained {_listed(gained)} and lost {_listed(lost)} on held-out tasks."
    elif gained:
        rest = ", and surely worse in nothing" if len(found) > len(gained) else ""
        text = f"On held-out tasks the tuned program is better in {_listed(gained)}{rest}."
        few = f" They are few ({queries}): take it as a sign, not a finding."
    elif lost:
        text = f"The tuned program lost {_listed(lost)} on held-out tasks."
    else:
        text = "No difference from the untuned program is sure on held-out tasks."
        few = few if queries else " No task has a value of both."
    kept = "" if gained and not lost else " The untuned one is kept."
    return text + (few if queries < FEW else "") + kept


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)
