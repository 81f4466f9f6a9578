"""How far judges agree, with each other and with people; and what gives a bad judge away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import stats

__all__ = ["Agreement", "alpha_of", "alpha_sums", "krippendorff_alpha", "rank_agreement"]

_RESAMPLES = 2_000
_NOISE = 1e-12  # share of the squares below which differences are rounding
Sums: TypeAlias = np.typing.NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """A coefficient of agreement with its 95 % bootstrap interval over items; None where it is undefined."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    undefined: str = ""


def krippendorff_alpha(ratings: Sequence[Sequence[float | None]]) -> float | None:
    """Return Krippendorff's alpha for interval data: 1 perfect agreement, 0 that of chance, below 0 worse.

    Args:
        ratings: For each item the ratings of all judges, None where one is missing.

    Returns:
        Alpha; None if fewer than two ratings can be paired, or no rating differs from another.
    """
    return alpha_of(alpha_sums(ratings))


def alpha_sums(ratings: Sequence[Sequence[float | None]]) -> Sums:
    """Return what alpha is computed from, a row for each item: disagreement, ratings, their sum and sum of squares.

    The rows of any choice of items, some of them more than once, give the alpha of these items. Ratings are taken
    from their mean, for the sake of precision. Items with fewer than two ratings count for nothing.
    """
    units = [unit for item in ratings if len(unit := [r for r in item if r is not None]) > 1]
    values = [value for unit in units for value in unit]
    centre = sum(values) / len(values) if values else 0.0
    rows = []
    for unit in units:
        data = [value - centre for value in unit]
        total, squares, n = sum(data), sum(value**2 for value in data), len(data)
        rows.append((2 * (n * squares - total**2) / (n - 1), n, total, squares))
    return np.asarray(rows, dtype=float).reshape(-1, 4)


def alpha_of(rows: Sums) -> float | None:
    """Return alpha from rows of ``alpha_sums``."""
    disagreement, n, total, squares = rows.sum(axis=0)
    expected = 2 * (n * squares - total**2)
    if n < 2 or expected <= _NOISE * max(n * squares, 1e-300):
        return None
    return float(1 - disagreement * (n - 1) / expected)


def rank_agreement(judge: Sequence[float | None], labels: Sequence[float | None], seed: int = 0) -> Agreement:
    """Return Spearman's rank correlation of a judge with labels, over the items that have both.

    Raises:
        ValueError: If there are not as many scores as labels.
    """
    both = [(a, b) for a, b in zip(judge, labels, strict=True) if a is not None and b is not None]
    n = len(both)
    if n < 3:
        return Agreement(None, None, None, n, "fewer than three items have both")
    data = np.asarray(both, dtype=float)
    if np.ptp(data[:, 0]) == 0 or np.ptp(data[:, 1]) == 0:
        return Agreement(None, None, None, n, "one of the two does not vary")
    rng, draws = np.random.default_rng(seed), []
    for _ in range(_RESAMPLES):
        part = data[rng.integers(0, n, n)]
        if np.ptp(part[:, 0]) > 0 and np.ptp(part[:, 1]) > 0:
            draws.append(_rho(part))
    low, high = np.percentile(draws, [2.5, 97.5])
    return Agreement(_rho(data), float(low), float(high), n)


def _rho(pairs: np.typing.NDArray[np.float64]) -> float:
    ranks = stats.rankdata(pairs, axis=0)  # as spearmanr does, without its p value, which takes most of its time
    return float(np.corrcoef(ranks, rowvar=False)[0, 1])
