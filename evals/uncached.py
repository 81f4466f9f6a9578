"""Language models that don't look into DSPy's cache.

An answer from the cache costs nothing. Where costs are compared that would be false: two programs share many calls,
and the second one would seem cheap. What is measured is kept in its own folder, so nothing is paid for twice.
"""

from __future__ import annotations

from copy import copy
from typing import Any, TypeVar

from ..modules.debate import Debate
from ..modules.program import SessionProgram
from .answering import CallableMethod, Method, ProgramMethod

__all__ = ["Uncached"]

Program = TypeVar("Program", bound=SessionProgram)


class Uncached:
    """Makes one copy of each LM that doesn't look into the cache."""

    def __init__(self) -> None:
        self._bare: dict[int, tuple[Any, Any]] = {}  # the LM itself is kept, so that its id stays its own

    def lm(self, lm: Any) -> Any:
        """Return the one copy of an LM; what cannot be copied stays."""
        if lm is None or not hasattr(lm, "copy"):
            return lm
        if id(lm) not in self._bare:
            self._bare[id(lm)] = lm, lm.copy(cache=False)
        return self._bare[id(lm)][1]

    def program(self, program: Program) -> Program:
        """Return a program like this one with copies of its LMs."""
        bare = program.changed(lms={who: self.lm(lm) for who, lm in program.lms.items()})
        for _, predictor in bare.named_predictors():
            predictor.lm = self.lm(predictor.lm)
        if isinstance(bare, Debate):
            bare.models = [self.lm(lm) for lm in bare.models]
        return bare

    def method(self, method: Method) -> Method:
        """Return a method like this one with copies of its LMs."""
        if isinstance(method, ProgramMethod):
            return ProgramMethod(method.name, self.program(method.program))
        if isinstance(method, CallableMethod):
            other = copy(method)
            other.lm = self.lm(method.lm)
            return other
        return method
