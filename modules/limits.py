"""How many calls may be in flight: one number for all of them, or one for each LM.

In one process a semaphore is all it takes. Where the calls of many processes share a limit, something that all of
them can ask gives out the places, LM by LM: a ``CallLimits``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

__all__ = ["CallLimits", "Limit", "place"]


class CallLimits(ABC):
    """Bounds the calls in flight of each LM apart."""

    @abstractmethod
    def of(self, lm: Any) -> AbstractAsyncContextManager[Any]:
        """Return what a call of an LM waits for, and holds as long as it is in flight."""


Limit: TypeAlias = asyncio.Semaphore | CallLimits
"""What bounds calls in flight."""


def place(limit: Limit, lm: Any) -> AbstractAsyncContextManager[Any]:
    """Return what a call of an LM has to enter under a limit."""
    return limit.of(lm) if isinstance(limit, CallLimits) else limit
