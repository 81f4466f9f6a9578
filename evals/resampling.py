"""Intervals of statistics that are no plain mean: the units that are independent are drawn anew, many times.

The percentile bootstrap (Efron, 1979) at 95 %. Draws in which the statistic is undefined are left out; where more
than half of them are, there is no interval.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .statistics import Interval

__all__ = ["Drawn", "bootstrap"]

_DRAWS = 1_000
_TAILS = (2.5, 97.5)
Drawn: TypeAlias = np.typing.NDArray[Any]  # places of the units drawn, some of them more than once


def bootstrap(units: int, statistic: Callable[[Drawn], float | None], n: int | None = None, seed: int = 0) -> Interval:
    """Return a statistic of independent units with its interval.

    Args:
        units: How many there are.
        statistic: Computes it from the units in these places; None where it is undefined.
        n: Values it rests on; as many as there are units by default.
        seed: Of the draws.
    """
    value, n = statistic(np.arange(units)), units if n is None else n
    if value is None or units < 2:
        return Interval(value, None, None, n)
    rng = np.random.default_rng(seed)
    drawn = (statistic(rng.integers(0, units, units)) for _ in range(_DRAWS))
    known = [one for one in drawn if one is not None]
    if len(known) <= _DRAWS // 2:
        return Interval(value, None, None, n)
    low, high = np.percentile(known, _TAILS)
    return Interval(value, min(float(low), value), max(float(high), value), n)
