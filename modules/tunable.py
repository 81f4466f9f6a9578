"""Numbers that shape a session, held where DSPy's optimizers and savers can see them.

A ``Tunable`` is a DSPy ``Parameter``: it shows in ``module.named_parameters()``, is saved and loaded
with the program, is deep-copied with it, and is left alone when prompts are reset, so that prompts
can be tuned after numbers and numbers after prompts. ``salon.optimize`` reads its search space off
the tunables it finds in a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dspy.predict.parameter import Parameter

from salon.errors import UserError

__all__ = ["Tunable"]


class Tunable(Parameter):
    """A number with a range.

    Args:
        value: The value in use.
        low: Smallest value allowed.
        high: Largest value allowed.
        unit: What the number counts, for people ("minutes", "cosine").
        log: Whether a search should move on a logarithmic scale.
        whole: Whether only whole numbers are allowed; by default where ``value`` is an ``int``.
        search: Where a search looks unless it is told otherwise: lowest, highest, and for a number that is not
            whole the step. None: a search leaves the number alone unless it is named.

    Raises:
        UserError: If the value is not a number within the range.
    """

    def __init__(
        self,
        value: float,
        low: float,
        high: float,
        unit: str = "",
        log: bool = False,
        whole: bool | None = None,
        search: Sequence[float] | None = None,
    ) -> None:
        self.low, self.high, self.unit, self.log = low, high, unit, log
        self.search = None if search is None else tuple(search)
        self.integer = isinstance(value, int) if whole is None else whole
        self._value: float = 0
        self.value = value

    @property
    def value(self) -> float:
        """The value in use (an ``int`` if the tunable is integer)."""
        return self._value

    @value.setter
    def value(self, new: float) -> None:
        if isinstance(new, bool) or not isinstance(new, int | float) or not self.low <= new <= self.high:
            raise UserError(
                f"{new!r} is not allowed here",
                f"a number from {self.low} to {self.high}{f' {self.unit}' if self.unit else ''} is needed",
            )
        if self.integer and new != int(new):
            raise UserError(f"{new!r} is not allowed here", "a whole number is needed")
        self._value = int(new) if self.integer else float(new)

    def reset(self) -> None:
        """Keep the value: resetting a program for prompt tuning must not undo tuned numbers."""

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """Return the state saved with the program; the range stays in code."""
        return {"value": self._value}

    def load_state(self, state: dict[str, Any], **_: Any) -> Tunable:
        """Take the value of a saved program."""
        self.value = state["value"]
        return self

    def __float__(self) -> float:
        return float(self._value)

    def __int__(self) -> int:
        return int(self._value)

    def __repr__(self) -> str:
        return f"Tunable({self._value!r}, {self.low}..{self.high}{f' {self.unit}' if self.unit else ''})"
