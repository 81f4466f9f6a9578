"""The search space of a program: its tunables, each with a range and a step.

A tunable is searched if it has a search range, or if it is named; the others keep their values. A float moves in
steps, its own or a twentieth of its range, counted from the program's own value, so that the untuned program is a
point of the space and numbers stay readable; a tunable on a logarithmic scale has no step.

**Numbers that depend on each other.** What a program does with its numbers decides what counts as the same
program, so a variant is put right in one way only (``with_values``): a number without effect
(``SessionProgram.idle_tunables``) is set back to the program's own value, and one that others bound is bounded
(``SessionProgram.settle``). Two variants are then the same program just if their ``program_key`` is the same. A
number that cannot have an effect in any variant is not searched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import floor, prod
from typing import Any, TypeVar

from salon.errors import UserError

from ..modules.program import SessionProgram
from ..modules.tunable import Tunable

__all__ = ["Dimension", "points", "program_key", "size", "space_of", "tunables", "with_values"]

_STEPS = 20
_DIGITS = 10
Program = TypeVar("Program", bound=SessionProgram)


@dataclass(frozen=True)
class Dimension:
    """One number that is searched.

    Attributes:
        name: Its name among the program's parameters.
        low: Lowest value.
        high: Highest value.
        step: What values differ by; None on a logarithmic scale of floats.
        log: Whether it is searched on a logarithmic scale.
        integer: Whether its values are whole.
        default: The value of the untuned program.
        unit: What it counts.
    """

    name: str
    low: float
    high: float
    step: float | None
    log: bool
    integer: bool
    default: float
    unit: str = ""

    def __str__(self) -> str:
        step = f" in steps of {self.step:g}" if self.step is not None and not self.integer else ""
        return f"{self.name} {self.low:g} to {self.high:g}{step}{' (log)' if self.log else ''}"

    @property
    def count(self) -> int | None:
        """How many values it has; None on a continuous scale."""
        return None if self.step is None else 1 + round((self.high - self.low) / self.step)

    @property
    def values(self) -> list[float]:
        """Its values, from the lowest; none on a continuous scale."""
        return [self.tidy(self.low + n * (self.step or 0)) for n in range(self.count or 0)]

    def suggest(self, trial: Any) -> float:
        """Let an Optuna trial suggest a value."""
        if self.integer:
            return int(trial.suggest_int(self.name, int(self.low), int(self.high), log=self.log))
        return self.tidy(trial.suggest_float(self.name, self.low, self.high, step=self.step, log=self.log))

    def tidy(self, value: float) -> float:
        """Return a value without the error of adding steps up."""
        return round(value) if self.integer else round(float(value), _DIGITS)


def tunables(program: SessionProgram) -> dict[str, Tunable]:
    """Return the tunables of a program by name."""
    return {name: p for name, p in program.named_parameters() if isinstance(p, Tunable)}


def space_of(
    program: SessionProgram,
    include: Collection[str] | None = None,
    ranges: Mapping[str, Sequence[float]] | None = None,
) -> dict[str, Dimension]:
    """Return what a search moves, by name.

    Args:
        program: The untuned program.
        include: Names of the tunables to search, with their own ranges; None for all that have a search range.
        ranges: Other ranges, by name: lowest, highest and, for floats, the step. What is named here is searched too.

    Raises:
        UserError: If a name is not known or has no effect, a range is impossible or leaves out the program's own
            value, or nothing is left to search.
    """
    known, given = tunables(program), dict(ranges or {})
    idle = program.idle_tunables(always=True)
    for name in [*(include or ()), *given]:
        if name not in known:
            raise UserError(f"There is no number {name!r} to search", todo=f"Name some of {', '.join(known)}.")
        if name in idle:
            raise UserError(f"{name} cannot be searched", "it has no effect in this program")
    chosen = [
        name
        for name, tunable in known.items()
        if name in given or (name in include if include is not None else tunable.search and name not in idle)
    ]
    if not chosen:
        raise UserError("There is nothing to search", "the program has no number with a range", "Name some.")
    return {name: _dimension(name, known[name], given.get(name)) for name in chosen}


def _dimension(name: str, tunable: Tunable, given: Sequence[float] | None) -> Dimension:
    own = tunable.value
    wanted = given if given is not None else tunable.search or (tunable.low, tunable.high)
    low, high, *rest = _checked(name, tunable, wanted)
    if given is not None and not low <= own <= high:
        raise UserError(
            f"{name} cannot be searched from {low:g} to {high:g}",
            f"the program's own value {own:g} is not among them, and the untuned program is always tried",
            "Set another value before, or give a range that holds it.",
        )
    low, high = min(low, own), max(high, own)
    if tunable.log:
        return Dimension(name, low, high, 1 if tunable.integer else None, True, tunable.integer, own, tunable.unit)
    if tunable.integer:
        return Dimension(name, low, high, 1, False, True, own, tunable.unit)
    usual = (tunable.search or ())[2:]
    step = next((step for step in (*rest, *usual)), (high - low) / _STEPS)
    if step > high - low:
        raise UserError(f"{name} cannot be searched in steps of {step:g}", f"its range is {low:g} to {high:g}")
    below, above = (floor(room / step + 1e-9) for room in (own - low, high - own))
    low, high = round(own - below * step, _DIGITS), round(own + above * step, _DIGITS)
    return Dimension(name, low, high, step, False, False, own, tunable.unit)


def _checked(name: str, tunable: Tunable, wanted: Sequence[float]) -> Sequence[float]:
    """Return a range and perhaps a step that are possible."""
    told = f"{name} cannot be searched in {wanted!r}"
    numbers = isinstance(wanted, Sequence) and not isinstance(wanted, str)
    if (
        not numbers
        or len(wanted) not in (2, 3)
        or any(isinstance(v, bool) or not isinstance(v, int | float) for v in wanted)
    ):
        raise UserError(told, "the lowest and the highest number are needed, e.g. (1, 3)")
    if not tunable.low <= wanted[0] < wanted[1] <= tunable.high:
        why = f"it must rise, within {tunable.low:g} to {tunable.high:g}"
        raise UserError(told, why, "For a single value set it on the program.")
    if len(wanted) == 3 and (tunable.integer or tunable.log or not wanted[2] > 0):
        raise UserError(told, "a step is for floats on a linear scale, and more than 0")
    if tunable.integer and any(value != int(value) for value in wanted):
        raise UserError(told, "it has whole numbers")
    return wanted


def size(space: Mapping[str, Dimension]) -> int | None:
    """Return how many combinations a space has; None if one of its scales is continuous."""
    counts = [dimension.count for dimension in space.values()]
    known = [count for count in counts if count is not None]
    return prod(known) if len(known) == len(counts) else None


def points(space: Mapping[str, Dimension], at: int) -> dict[str, float]:
    """Return the combination of a number of a space without a continuous scale, from 0."""
    found = {}
    for name, dimension in space.items():
        at, place = divmod(at, dimension.count or 1)
        found[name] = dimension.values[place]
    return found


def with_values(program: Program, values: Mapping[str, float]) -> Program:
    """Return a copy of a program with other numbers, put right as the module says; the original stays as it is.

    Raises:
        UserError: If a number is not known, or not allowed.
    """
    changed, own = program.changed(), {name: tunable.value for name, tunable in tunables(program).items()}
    numbers = tunables(changed)
    for name, value in values.items():
        if name not in numbers:
            raise UserError(f"{type(program).__name__} has no number {name!r}", todo=f"They are {', '.join(numbers)}.")
        numbers[name].value = value
    for name in changed.idle_tunables().intersection(values):
        numbers[name].value = own[name]
    changed.settle()
    return changed


def program_key(program: SessionProgram) -> str:
    """Return a hash of all that makes a program: its class, settings, prompts, demos and numbers; not its LMs."""
    described = program.described()
    settings = {name: value for name, value in described["settings"].items() if name != "max_concurrency"}
    content = json.dumps([described["name"], settings, described["state"]], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:16]
