"""How far judges agree, with each other and with people; and what gives a bad judge away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

__all__ = ["Agreement", "krippendorff_alpha", "rank_agreement"]

_RESAMPLES = 2_000


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
    units = [[r for r in item if r is not None] for item in ratings]
    units = [unit for unit in units if len(unit) > 1]
    values = np.asarray([r for unit in units for r in unit], dtype=float)
    n = len(values)
    if n < 2 or np.ptp(values) == 0:
        return None
    observed = sum(_spread(unit) / (len(unit) - 1) for unit in units) / n
    expected = _spread(values) / (n * (n - 1))
    return float(1 - observed / expected)


def _spread(values: Sequence[float] | np.typing.NDArray[np.float64]) -> float:
    """Return the sum of squared differences over all ordered pairs, in linear time."""
    data = np.asarray(values, dtype=float)
    data = data - data.mean()
    return float(2 * len(data) * np.sum(data**2))


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
