"""The last comparison: the picked program against the untuned one, on tasks that nothing before has seen.

The picked program is better if an objective gained and none lost, by Student's interval of the paired differences.
It loses by an interval at 95 %; it gains by one at 1 - 5 % / objectives (Bonferroni), for with several objectives
one of them gains easily by chance. Held-out tasks are few, and the bootstrap, which cannot leave the range of what it
has seen, is then far too sure: of two tasks that both gained by luck it would say, one time in four, that a gain is
certain. Values that are rounded, such as ratings in whole points, vary by no less than their rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..evals.comparing import sign_flip_p
from ..evals.jobs import JobRow
from ..evals.statistics import FEW, LEVEL, Interval, mean_interval, student_interval
from ..modules.embedding import Embedder
from .compile_report import HeldOut
from .objectives import Objective, Value, values_of

__all__ = ["Verdict", "gain_level", "verdict_of"]

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


def gain_level(objectives: int) -> float:
    """Return the level of the interval by which one of so many objectives gains."""
    return 1 - (1 - LEVEL) / objectives


def verdict_of(
    before: Sequence[JobRow], after: Sequence[JobRow], goals: Sequence[Objective], embedder: Embedder, seed: int = 0
) -> Verdict:
    """Compare two programs by query.

    Args:
        before: Rows of the untuned program.
        after: Rows of the picked one, on the same queries and seeds.
        goals: The objectives.
        embedder: Embeds answers.
        seed: Of the resamples.
    """
    untuned, tuned = values_of(before, goals, embedder), values_of(after, goals, embedder)
    sessions = len(before) / len({row.query for row in before}) if before else 1.0  # on each query
    found, gained, lost = dict[str, HeldOut](), list[str](), list[str]()
    for goal in goals:
        gaps, least = _gaps(tuned[goal.name], untuned[goal.name]), goal.step / (6 * sessions) ** 0.5
        difference = student_interval(gaps, LEVEL, least)
        if goal.sign * student_interval(gaps, gain_level(len(goals)), least).sign > 0:
            gained.append(goal.name)
        elif goal.sign * difference.sign < 0:
            lost.append(goal.name)
        means = _mean(tuned[goal.name], seed), _mean(untuned[goal.name], seed)
        found[goal.name] = HeldOut(*means, difference, sign_flip_p(gaps, seed), len(gaps))
    return Verdict(found, bool(gained) and not lost, _told(gained, lost, found))


def _gaps(tuned: Value, untuned: Value) -> list[float]:
    """Return tuned minus untuned of each query that both have; what is only rounding is 0."""
    other = untuned.by_query
    pairs = [(a, b) for query, a in tuned.by_query.items() if a is not None and (b := other.get(query)) is not None]
    return [a - b if abs(a - b) > _ROUNDING * max(abs(a), abs(b)) else 0.0 for a, b in pairs]


def _mean(value: Value, seed: int) -> Interval:
    return mean_interval([known for known in value.by_query.values() if known is not None], seed)


def _told(gained: Sequence[str], lost: Sequence[str], found: dict[str, HeldOut]) -> str:
    queries = max((held.n for held in found.values()), default=0)
    few = f" They are few ({queries}): only a large difference would show."
    if gained and lost:
        text = f"The tuned program gained {_listed(gained)} and lost {_listed(lost)} on held-out tasks."
    elif gained:
        rest = ", and no loss was shown" if len(found) > len(gained) else ""
        text = f"On held-out tasks the tuned program is better in {_listed(gained)}{rest}."
        few = f" They are few ({queries}): take it as a sign, not a finding."
    elif lost:
        text = f"The tuned program lost {_listed(lost)} on held-out tasks."
    else:
        text = "No difference from the untuned program was shown on held-out tasks."
        few = few if queries else " No task has a value of both."
    kept = "" if gained and not lost else " The untuned one is kept."
    return text + (few if queries < FEW else "") + kept


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)
