"""Axes with round numbers: which values an axis shows, where a value lies on it, how a number is written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Scale", "finite", "number", "tick_label"]

_HUGE = 1e300  # beyond it the length of an axis would overflow
_TINY = 1e-100  # below it the distance of two ticks would be lost
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_LARGE = 1e4  # from here on numbers are written with a unit
MISSING = "–"


def finite(value: float | None) -> float | None:
    """Return a value that can be drawn, or None for one that is missing, infinite or not a number."""
    if value is None or not math.isfinite(value):
        return None
    return max(-_HUGE, min(_HUGE, float(value))) if abs(value) > _TINY else 0.0


def number(value: float | None, digits: int = 3) -> str:
    """Write a number for a reader: a few significant digits, a unit for large ones, a dash for none.

    Args:
        value: The number.
        digits: Significant digits of what is not whole.
    """
    known = finite(value)
    if known is None:
        return MISSING
    size = abs(known)
    if size >= 1e15:
        return f"{known:.1e}"
    if size >= _LARGE:
        unit, name = _unit(size)
        return f"{known / unit:.{max(digits, 3)}g} {name}"
    if known == int(known) or size >= 10 ** (digits - 1):
        return f"{round(known):,}"
    return f"{known:.{digits}f}" if 0.001 <= size < 10 else f"{known:.{digits}g}"


def tick_label(value: float) -> str:
    """Write the number of a tick, which is round, as short as can be."""
    size = abs(value)
    if size >= 1e15 or 0 < size < 1e-4:
        return f"{value:.3g}"
    if size < _LARGE:
        return f"{value:.6g}"
    unit, name = _unit(size)
    return f"{value / unit:.6g} {name}"


def _unit(size: float) -> tuple[float, str]:
    return next((unit, name) for unit, name in _UNITS if size >= unit)


@dataclass(frozen=True)
class Scale:
    """A stretch of numbers laid along a stretch of pixels.

    Attributes:
        low: The number at ``start``.
        high: The number at ``end``.
        ticks: Round numbers between them, for the axis.
        start: Pixel of ``low``.
        end: Pixel of ``high``; below ``start`` for an axis that grows upwards.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    start: float
    end: float

    @classmethod
    def over(
        cls,
        values: Iterable[float | None],
        start: float,
        end: float,
        *,
        low: float | None = None,
        high: float | None = None,
        count: int = 5,
        exact: bool = False,
        whole: bool = False,
    ) -> Scale:
        """Return a scale that holds all values.

        Args:
            values: What must fit; missing and infinite ones are left out.
            start: Pixel of the lowest number.
            end: Pixel of the highest number.
            low: A number that the scale reaches down to at least.
            high: A number that the scale reaches up to at least.
            count: About how many ticks.
            exact: Whether the scale ends at the data instead of at round numbers.
            whole: Whether ticks are whole numbers.
        """
        known = [v for v in map(finite, (*values, low, high)) if v is not None] or [0.0, 1.0]
        bottom, top = min(known), max(known)
        if top - bottom <= 1e-9 * max(abs(top), abs(bottom), 1e-12):
            room = abs(top) * 0.1 or 1.0
            bottom, top = (bottom if bottom == 0 else bottom - room), top + room
        step = _round_step((top - bottom) / max(count, 1), whole)
        first, last = math.floor(bottom / step + 1e-9), math.ceil(top / step - 1e-9)
        if exact:
            first, last = math.ceil(bottom / step - 1e-9), math.floor(top / step + 1e-9)
        else:
            last = max(last, first + 1)
            bottom, top = first * step, last * step
        ticks = tuple(_tidy(n * step, step) for n in range(first, last + 1))
        return cls(bottom, top, ticks, start, end)

    def at(self, value: float) -> float:
        """Return the pixel of a number; what lies outside is put on the edge."""
        share = (max(self.low, min(self.high, value)) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def _round_step(rough: float, whole: bool) -> float:
    """Return the next of 1, 2, 2.5, 5 or 10 times a power of ten."""
    rough = max(rough, 1.0) if whole else rough
    power = 10.0 ** math.floor(math.log10(rough))
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    return next(factor * power for factor in factors if factor * power >= rough * (1 - 1e-9))


def _tidy(value: float, step: float) -> float:
    """Return a multiple of the step without the noise of its multiplication."""
    return round(value, max(0, 2 - math.floor(math.log10(step)))) if step < 1e6 else value
