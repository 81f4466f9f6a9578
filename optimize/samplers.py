"""Which numbers a study tries next: those of Optuna's samplers, the points of a grid, and programs that are new.

A sampler is made anew for each suggestion, seeded by the study's seed and the number of trials so far. All it
knows is then in the storage: a study that was interrupted suggests what it would have suggested, and several
workers never draw alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from random import Random
from typing import Any, Literal, TypeAlias, get_args

from salon.errors import UserError

from ..modules.program import SessionProgram
from ..modules.streams import rollout_id, stream
from .space import Dimension, points, program_key, size, with_values

__all__ = ["SAMPLERS", "Sampler", "check_sampler", "drawn", "next_of_grid", "sampler_of"]

Sampler: TypeAlias = Literal["tpe", "nsga2", "gp", "random", "grid"]
SAMPLERS: tuple[Sampler, ...] = get_args(Sampler)
STARTUP = 10
_POPULATION = 12
_DRAWS = 1_000
_GRID = 100_000


def sampler_of(name: Sampler, seed: int, trials: int) -> Any:
    """Return Optuna's sampler; the points of a grid are set by the study, so any will do.

    Args:
        name: ``tpe``, ``nsga2``, ``gp``, ``random`` or ``grid``.
        seed: Seed of the study.
        trials: Trials so far.
    """
    import optuna

    draw = rollout_id(seed, "sampler", trials) % 2**32
    kinds = optuna.samplers
    if name == "tpe":
        return kinds.TPESampler(seed=draw, n_startup_trials=STARTUP, multivariate=True)
    if name == "nsga2":
        return kinds.NSGAIISampler(seed=draw, population_size=_POPULATION)
    if name == "gp":
        return kinds.GPSampler(seed=draw, n_startup_trials=STARTUP)
    return kinds.RandomSampler(seed=draw)


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
