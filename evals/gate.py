"""What the workers of a cluster share: places for calls, LM by LM, and one account.

One ``Gate`` lives in a process of its own. A worker asks it before each call, and tells it after. Whatever a worker
holds there, a place for a call or a sum that is set aside, it holds under a ticket; a worker that has died gives
nothing back, so its tickets are given back for it, and what its unfinished jobs spent is taken off the account,
as it is booked once more when they are gone on with.

Messages to the gate may overtake each other. So what a call cost is told in the same message as that its reservation
is given back, and a ticket may be given back before it is taken.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

from ..modules.budget import Account, Budget, Usage
from ..modules.limits import CallLimits

__all__ = ["Gate", "JobAccount", "SharedLimits"]

Booked: TypeAlias = list[tuple[str, Usage, float]]
"""Calls that ended: model, cost, seconds."""


class Gate:
    """Gives out places and money; an actor.

    Args:
        most: Calls of one LM in flight at most.
        budget: Hard limits of all that is spent.
        spent: What was spent before.
        elapsed: Seconds that have gone by before.
    """

    def __init__(self, most: int, budget: Budget, spent: Usage, elapsed: float) -> None:
        start = time.monotonic() - elapsed
        self._account = Account(budget, lambda: time.monotonic() - start, replace(spent))
        self._most, self._rooms = most, dict[str, asyncio.Semaphore]()
        self._held: defaultdict[str, dict[int, Callable[[], None] | None]] = defaultdict(dict)
        self._costs: dict[tuple[str, int], Usage] = {}
        self._open: defaultdict[str, dict[int, Usage]] = defaultdict(lambda: defaultdict(Usage))
        self._closed: set[tuple[str, int]] = set()
        self._early: set[tuple[str, int]] = set()
        self._gone: set[str] = set()

    async def enter(self, worker: str, ticket: int, lm: str) -> None:
        """Wait for a place for a call of an LM."""
        room = self._rooms.setdefault(lm, asyncio.Semaphore(self._most))
        await self._hold(worker, ticket, room.acquire(), room.release)

    async def reserve(
        self, worker: str, job: int, booked: Booked, ticket: int, model: str, cost: Usage
    ) -> tuple[str, float]:
        """Book what a job spent and set a call's cost aside; return why it cannot be made, if so, and its price."""
        self._book(worker, job, booked)
        self._costs[worker, ticket] = cost

        def undo() -> None:
            self._account.release(model, cost)
            self._costs.pop((worker, ticket), None)

        refusal = str(await self._hold(worker, ticket, self._account.reserve(model, cost), undo))
        if refusal:
            self._costs.pop((worker, ticket), None)
        return refusal, cost.usd

    async def extend(self, worker: str, ticket: int, used: Usage) -> str:
        """Let a reservation hold for one more attempt; return why it cannot."""
        return await self._account.extend(self._costs[worker, ticket], used)

    async def leave(self, worker: str, ticket: int) -> None:
        """Take back what was held under a ticket."""
        if ticket not in self._held[worker]:
            self._early.add((worker, ticket))
        elif undo := self._held[worker].pop(ticket):
            undo()

    async def settle(self, worker: str, job: int, booked: Booked, ticket: int) -> None:
        """Book what a job spent and take back a reservation."""
        self._book(worker, job, booked)
        await self.leave(worker, ticket)

    async def close(self, worker: str, job: int, booked: Booked) -> None:
        """Book what a job spent, and take note that it is finished: what it spent stays booked."""
        self._book(worker, job, booked)
        self._closed.add((worker, job))
        self._open[worker].pop(job, None)

    def _book(self, worker: str, job: int, booked: Booked) -> None:
        for model, cost, seconds in booked if worker not in self._gone else ():
            self._account.book(model, cost, seconds)
            if (worker, job) not in self._closed:
                self._open[worker][job].add(cost)

    async def drop(self, worker: str) -> None:
        """Take back everything a dead worker held, and what its unfinished jobs spent."""
        self._gone.add(worker)
        for undo in self._held.pop(worker, {}).values():
            if undo is not None:
                undo()
        for cost in self._open.pop(worker, {}).values():
            gone = {name: -value for name, value in vars(cost).items()}
            self._account.spent.add(Usage(**gone))

    async def _hold(self, worker: str, ticket: int, taking: Awaitable[Any], undo: Callable[[], None]) -> Any:
        """Take something and hold it under a ticket, unless the ticket was given back while it was waited for."""
        self._held[worker][ticket] = None
        refusal = await taking
        refused = isinstance(refusal, str) and refusal
        wanted = ticket in self._held[worker] and worker not in self._gone and (worker, ticket) not in self._early
        self._early.discard((worker, ticket))
        if wanted and not refused:
            self._held[worker][ticket] = undo
            return refusal
        self._held[worker].pop(ticket, None)
        if not refused:
            undo()
        return refusal


class SharedLimits(CallLimits):
    """The places for calls that a worker asks the gate for.

    Args:
        gate: Handle of the gate.
        worker: Name of the worker.
        tickets: Numbers its tickets.
    """

    def __init__(self, gate: Any, worker: str, tickets: itertools.count[int]) -> None:
        self._gate, self._worker, self._tickets = gate, worker, tickets

    def of(self, lm: Any) -> AbstractAsyncContextManager[Any]:
        """Return what a call of an LM waits for; the same model at the same address is one LM."""
        address = (getattr(lm, "kwargs", None) or {}).get("api_base") or ""
        return self._place(f"{getattr(lm, 'model', '')} {address}")

    @asynccontextmanager
    async def _place(self, name: str) -> AsyncIterator[None]:
        ticket = next(self._tickets)
        try:
            await self._gate.enter.remote(self._worker, ticket, name)
            yield
        finally:
            self._gate.leave.remote(self._worker, ticket)


class JobAccount(Account):
    """What one job spends, held against the account that all workers share.

    Args:
        gate: Handle of the gate.
        worker: Name of the worker.
        job: Number of the job.
        tickets: Numbers the worker's tickets.
        budget: The limits that the gate holds.
    """

    def __init__(self, gate: Any, worker: str, job: int, tickets: itertools.count[int], budget: Budget) -> None:
        super().__init__(budget)
        self._gate, self._worker, self._job, self._tickets = gate, worker, job, tickets
        self._limited = budget != Budget()
        self._mine: dict[int, int] = {}
        self._booked: Booked = []

    def book(self, model: str, cost: Usage, seconds: float) -> None:
        """Book a call that ended."""
        super().book(model, cost, seconds)
        self._booked.append((model, cost, seconds))

    async def reserve(self, model: str, cost: Usage) -> str:
        """Set a call's expected cost aside; return why it cannot be made, or an empty string."""
        if not self._limited:
            return ""
        ticket = next(self._tickets)
        try:
            refusal, cost.usd = await self._gate.reserve.remote(*self._told(), ticket, model, cost)
        except BaseException:
            self._gate.leave.remote(self._worker, ticket)
            raise
        if refusal:
            self.refused = refusal
        else:
            self._mine[id(cost)] = ticket
        return str(refusal)

    async def extend(self, cost: Usage, used: Usage) -> str:
        """Let a reservation hold for one more attempt; return why it cannot."""
        if not self._limited:
            return ""
        return str(await self._gate.extend.remote(self._worker, self._mine[id(cost)], used))

    def release(self, model: str, cost: Usage) -> None:
        """Undo a reservation."""
        if self._limited:
            self._gate.settle.remote(*self._told(), self._mine.pop(id(cost)))

    def close(self) -> None:
        """Say that the job is finished."""
        if self._limited:
            self._gate.close.remote(*self._told())

    def _told(self) -> tuple[str, int, Booked]:
        """Return what the gate is told each time: who asks, for which job, and what that has spent since."""
        booked, self._booked = self._booked, []
        return self._worker, self._job, booked
