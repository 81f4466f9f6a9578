"""Means with intervals, shares, correlations: the statistics that results are reported with.

Every result says how many values it rests on, and is None where it cannot be had; nothing is imputed.
Intervals are at 95 %. Computed with SciPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

__all__ = [
    "FEW",
    "LEVEL",
    "Correlation",
    "Interval",
    "correlation",
    "mean_interval",
    "share_interval",
    "student_interval",
]

LEVEL = 0.95
FEW = 8  # values below which an interval or a correlation rests on few
_RESAMPLES = 10_000
_AT_ONCE = 2_000_000  # resampled values held in memory
_NOISE = 1e-9  # share of the values below which differences are rounding


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval.

    Attributes:
        value: The mean or share; None if there was nothing to measure.
        low: Lower end; None where no interval can be had (fewer than two values).
        high: Upper end.
        n: Values it rests on.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        if self.value is None:
            return "–"
        if self.low is None or self.high is None:
            return f"{self.value:.3f} (n={self.n})"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}] (n={self.n})"

    @property
    def sign(self) -> int:
        """1 or -1 where the interval lies wholly above or below 0, else 0."""
        if self.low is None or self.high is None:
            return 0
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


@dataclass(frozen=True)
class Correlation:
    """Pearson's correlation of two variables.

    Attributes:
        r: The coefficient, -1 to 1; None where it is undefined.
        p: Two-sided p value of r = 0.
        low: Lower end of the 95 % interval (Fisher's transformation); None for fewer than four pairs.
        high: Upper end.
        n: Pairs it rests on.
        undefined: Why r is None; empty if it is not.
    """

    r: float | None
    p: float | None
    low: float | None
    high: float | None
    n: int
    undefined: str = ""


def mean_interval(values: Sequence[float], seed: int = 0) -> Interval:
    """Return the mean of independent values with its percentile bootstrap interval (10,000 resamples)."""
    data = np.asarray(values, dtype=float)
    if not len(data):
        return Interval(None, None, None, 0)
    if len(data) == 1:
        return Interval(float(data[0]), None, None, 1)
    draws = stats.bootstrap(
        (data,),
        np.mean,
        n_resamples=_RESAMPLES,
        batch=max(1, _AT_ONCE // len(data)),
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return _around(float(data.mean()), draws, len(data))


def student_interval(values: Sequence[float], level: float = LEVEL, least: float = 0.0) -> Interval:
    """Return the mean of independent values with Student's interval.

    For a handful of values: the bootstrap cannot leave the range of what it has seen and is then far too sure.

    Args:
        values: The values.
        level: How often such an interval holds the true mean.
        least: Standard deviation that values have at least, for example that of rounding; a few rounded values may
            be equal by chance, which says nothing of how much they vary.
    """
    data = np.asarray(values, dtype=float)
    n = len(data)
    if n < 2:
        return Interval(float(data[0]) if n else None, None, None, n)
    mean, deviation = float(data.mean()), max(float(data.std(ddof=1)), least)
    reach = float(stats.t.ppf((1 + level) / 2, n - 1)) * deviation / n**0.5
    return Interval(mean, mean - reach, mean + reach, n)


def share_interval(hits: int, n: int) -> Interval:
    """Return a share with Wilson's interval.

    Raises:
        ValueError: If there are more hits than trials.
    """
    if not 0 <= hits <= n:
        raise ValueError(f"{hits} hits in {n} trials")
    if not n:
        return Interval(None, None, None, 0)
    return _around(hits / n, stats.binomtest(hits, n).proportion_ci(LEVEL, method="wilson"), n)


def _around(value: float, ends: Any, n: int) -> Interval:
    """Return an interval that holds its value, which rounding may have put a hair outside."""
    return Interval(value, min(float(ends.low), value), max(float(ends.high), value), n)


def correlation(pairs: Sequence[tuple[float, float | None]]) -> Correlation:
    """Return Pearson's r of pairs (x, y); pairs whose y is None are left out and do not count in n."""
    known = [(x, y) for x, y in pairs if y is not None]
    n = len(known)
    if n < 3:
        return Correlation(None, None, None, None, n, "fewer than three pairs")
    x, y = (np.asarray(column, dtype=float) for column in zip(*known, strict=True))
    if any(np.ptp(column) <= _NOISE * np.max(np.abs(column)) for column in (x, y)):
        return Correlation(None, None, None, None, n, "one of the two does not vary")
    found = stats.pearsonr(x, y)
    r, p = float(found.statistic), float(found.pvalue)
    if n < 4 or abs(r) >= 1:
        return Correlation(r, p, None, None, n)
    ends = found.confidence_interval(LEVEL)
    return Correlation(r, p, float(ends.low), float(ends.high), n)
