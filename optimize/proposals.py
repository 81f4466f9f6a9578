"""Numbers that no sampler suggested: the points of a grid, and programs that are new."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from random import Random
from typing import Any

from salon.errors import UserError

from ..modules.program import SessionProgram
from ..modules.streams import stream
from .samplers import SAMPLERS, Sampler
from .space import Dimension, points, program_key, size, with_values

__all__ = ["check_sampler", "drawn", "next_of_grid"]

_DRAWS = 1_000
_GRID = 100_000


def check_sampler(sampler: Sampler, space: Mapping[str, Dimension]) -> None:
    """Make sure that a sampler can search a space.

    Raises:
        UserError: If it is not known, or a grid that cannot be walked.
    """
    if sampler not in SAMPLERS:
        raise UserError(f"There is no sampler {sampler!r}", todo=f"Give one of {', '.join(SAMPLERS)}.")
    if sampler == "grid" and (size(space) or _GRID + 1) > _GRID:
        why = "it has a continuous scale" if size(space) is None else f"it has {size(space)} points"
        raise UserError("This space is no grid", why, f"Search fewer numbers, with at most {_GRID} points in all.")


def drawn(
    program: SessionProgram, space: Mapping[str, Dimension], tried: Collection[Any], draw: Random
) -> dict[str, float] | None:
    """Draw numbers that make a program whose key was not tried; None if none is found."""
    for _ in range(_DRAWS):
        numbers = {
            name: draw.choice(d.values) if d.count is not None else d.tidy(draw.uniform(d.low, d.high))
            for name, d in space.items()
        }
        if program_key(with_values(program, numbers)) not in tried:
            return numbers
    return None


def next_of_grid(
    space: Mapping[str, Dimension], tried: Sequence[Mapping[str, float]], seed: int
) -> dict[str, float] | None:
    """Return the next point of the grid, in an order drawn by the seed; None if it is walked."""
    walked = {tuple(numbers.get(name) for name in space) for numbers in tried}
    order = list(range(prod(dimension.count or 1 for dimension in space.values())))
    stream(seed, "grid").shuffle(order)
    found = (points(space, at) for at in order)
    return next((numbers for numbers in found if tuple(numbers.values()) not in walked), None)
