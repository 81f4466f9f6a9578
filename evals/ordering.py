"""How well a judge's scores put solutions in the order of their labels.

Spearman's rank correlation, and the share of pairs with different labels that the scores put in the right order: a
tie counts half, chance is 0.5. Solutions to one problem may depend on each other, so problems are what the interval
of that share draws anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .agreement import Agreement, rank_agreement
from .resampling import Drawn, bootstrap
from .statistics import Interval

__all__ = ["Ordering", "ordering"]


@dataclass(frozen=True)
class Ordering:
    """How well scores put solutions in the order of their labels.

    Attributes:
        ranks: Spearman's rank correlation with the labels.
        pairs: Share of pairs with different labels in the right order; n counts pairs.
        within: The same over pairs of solutions to one problem.
    """

    ranks: Agreement
    pairs: Interval
    within: Interval


def ordering(scores: Sequence[float | None], labels: Sequence[float], tasks: Sequence[str], seed: int = 0) -> Ordering:
    """Hold scores of solutions against their labels.

    Args:
        scores: Score of each; None leaves a solution out.
        labels: Label of each.
        tasks: The problem of each.
        seed: Of the resamples.
    """
    known = [(s, label, task) for s, label, task in zip(scores, labels, tasks, strict=True) if s is not None]
    values, marks = np.array([k[0] for k in known]), np.array([k[1] for k in known])
    places = {name: n for n, name in enumerate(dict.fromkeys(k[2] for k in known))}
    task = np.array([places[k[2]] for k in known], dtype=int)
    gaps = np.sign(marks[:, None] - marks[None, :])
    differ = np.triu(gaps != 0, 1).astype(float)
    right = differ * (1 + gaps * np.sign(values[:, None] - values[None, :])) / 2
    same = task[:, None] == task[None, :]

    def share(mask: np.typing.NDArray[Any], once: bool) -> Interval:
        """Over all pairs a pair counts as often as both its problems are drawn, within one as often as its own."""
        ones, counted = right * mask, differ * mask

        def of(drawn: Drawn) -> float | None:
            times = np.bincount(drawn, minlength=len(places))[task].astype(float)
            other = np.minimum(times, 1) if once else times
            total = float(times @ counted @ other)
            return float(times @ ones @ other) / total if total else None

        return bootstrap(len(places), of, int(counted.sum()), seed)

    ranks = rank_agreement([float(v) for v in values], [float(v) for v in marks], seed)
    return Ordering(ranks, share(np.ones_like(differ), once=False), share(same, once=True))
