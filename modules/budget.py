"""What a session may spend, what it has spent, and when it should come to its end.

A budget is hard: a call is refused when what it is expected to cost no longer fits. Expectations are on
the safe side: a prompt is counted as it will be sent, an answer at the longest the LM may give, and output
tokens at ``_DEAR`` times the price of input tokens. What a model costs is learnt from its first call,
which therefore goes alone where money is limited.

So that a session still ends with ranked ideas, it is told to close at ``CLOSING_SHARE`` of any limit, or
earlier when the next turn and the vote would not fit any more.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from salon.errors import UserError

__all__ = ["CLOSING_SHARE", "Account", "Budget", "Usage"]

CLOSING_SHARE = 0.85
_DEAR = 8  # an output token costs at most as much as this many input tokens


@dataclass
class Usage:
    """What LM calls cost.

    Attributes:
        calls: Calls that reached a model or its cache.
        prompt_tokens: Tokens read by models; cached answers add none.
        completion_tokens: Tokens written by models.
        usd: Known cost in US dollars.
        unpriced: Calls whose cost is unknown.
        seconds: Wall time of the session.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    unpriced: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Usage:
        """Return what the call of a log record cost; its seconds are not counted, as calls run side by side."""
        usd = record["usd"]
        return cls(
            calls=record["calls"],
            prompt_tokens=record["prompt_tokens"],
            completion_tokens=record["completion_tokens"],
            usd=usd or 0.0,
            unpriced=record["calls"] if usd is None else 0,
        )

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def add(self, other: Usage) -> None:
        """Add another account to this one."""
        self.calls += other.calls
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.usd += other.usd
        self.unpriced += other.unpriced
        self.seconds += other.seconds

    @classmethod
    def total(cls, parts: Iterable[Usage]) -> Usage:
        """Return several accounts as one."""
        whole = cls()
        for part in parts:
            whole.add(part)
        return whole

    def minus(self, part: Usage) -> Usage:
        """Return this account without a part of it; the seconds, which run side by side, stay."""
        return Usage(
            self.calls - part.calls,
            self.prompt_tokens - part.prompt_tokens,
            self.completion_tokens - part.completion_tokens,
            self.usd - part.usd,
            self.unpriced - part.unpriced,
            self.seconds,
        )


@dataclass(frozen=True)
class Budget:
    """Hard limits of one session; None means no limit.

    Attributes:
        usd: US dollars; calls of unknown price count as free, and the session says how many there were.
        tokens: Prompt and completion tokens.
        seconds: Wall time.
        calls: LM calls that are answered; a repair counts, an attempt that the provider turned away does not.

    Raises:
        UserError: If a limit is not a positive number.
    """

    usd: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    calls: int | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            limit = getattr(self, item.name)
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float) or not limit > 0):
                raise UserError(f"A budget of {limit!r} {item.name} is not possible", "it must be more than 0")

    def refusal(self, spent: Usage, pending: Usage) -> str:
        """Return why calls costing ``pending`` no longer fit, or an empty string."""
        for name, limit in self._limits().items():
            if getattr(spent, name) + getattr(pending, name) > limit:
                return f"the budget of {limit:g} {name} is used up"
        return ""

    def closing(self, spent: Usage, ahead: Usage) -> str:
        """Return why it is time to vote, or an empty string.

        Args:
            spent: The account so far.
            ahead: What one more turn and the vote are expected to cost.
        """
        for name, limit in self._limits().items():
            used = getattr(spent, name)
            if used >= CLOSING_SHARE * limit:
                return f"{used:.4g} of {limit:g} {name} are used"
            if used + getattr(ahead, name) > limit:
                return f"another turn might not fit: {used:.4g} of {limit:g} {name} are used"
        return ""

    def minus(self, spent: Usage) -> Budget | None:
        """Return what is left of the limits; None if nothing is left of one."""
        left = {name: limit - getattr(spent, name) for name, limit in self._limits().items()}
        return Budget(**left) if all(rest > 0 for rest in left.values()) else None

    def _limits(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}


_FIRST = Usage(calls=1, prompt_tokens=700, completion_tokens=120)  # taken for a call before there was one


@dataclass
class Account:
    """What one session has spent and set aside, held against its budget.

    Args:
        budget: Hard limits.
        elapsed: Returns the seconds the session has run.

    Attributes:
        spent: The account so far.
        longest: Tokens of the longest answer so far.
        refused: Why a call was refused; empty as long as none was.
    """

    budget: Budget
    elapsed: Callable[[], float] = lambda: 0.0
    spent: Usage = field(default_factory=Usage)
    longest: int = 0
    refused: str = ""

    def __post_init__(self) -> None:
        self._reserved: dict[int, Usage] = {}
        self._models: Counter[str] = Counter()
        self._by_model: defaultdict[str, Usage] = defaultdict(Usage)
        self._dearest = Usage()
        self._settled = asyncio.Event()
        self._busy, self._made, self._abreast = 0.0, 0, 1

    def book(self, model: str, cost: Usage, seconds: float) -> None:
        """Book a call that ended; it took ``seconds``."""
        self.spent.add(cost)
        self._by_model[model].add(cost)
        self.longest = max(self.longest, cost.completion_tokens)
        self._busy, self._made = self._busy + seconds, self._made + 1

    async def reserve(self, model: str, cost: Usage) -> str:
        """Set a call's expected cost aside; return why it cannot be made, or an empty string.

        Waits while only calls in flight stand in its way. The price is added to ``cost``.
        """
        while True:
            self.spent.seconds = self.elapsed()
            cost.usd, known = self._price(model, cost)
            refusal = self.budget.refusal(self.spent, self._pending(cost))
            if refusal and (not self._reserved or self.budget.refusal(self.spent, cost)):
                self.refused = refusal
                return refusal
            if not refusal and (known or not self._models[model]):
                break
            self._settled.clear()
            await self._settled.wait()
        self._reserved[id(cost)] = cost
        self._models[model] += 1
        self._abreast = max(self._abreast, len(self._reserved))
        if cost.tokens + cost.usd > self._dearest.tokens + self._dearest.usd:
            self._dearest = cost
        return ""

    async def extend(self, cost: Usage, used: Usage) -> str:
        """Let a reservation, of which ``used`` is gone, hold for one more attempt; return why it cannot."""
        refusal = self.budget.refusal(self.spent, self._pending(used))
        if not refusal:
            cost.add(used)
        return refusal

    def release(self, model: str, cost: Usage) -> None:
        """Undo a reservation."""
        del self._reserved[id(cost)]
        self._models[model] -= 1
        self._settled.set()

    def ahead(self, calls: int, steps: int) -> Usage:
        """Return what so many calls are expected to cost, with room for one that costs the most.

        Args:
            calls: How many calls.
            steps: How many of them have to follow each other.
        """
        made = self.spent if self.spent.calls else _FIRST
        count, dearest = max(made.calls, 1), self._dearest
        spare = max(dearest.tokens - made.tokens / count, 0)
        return Usage(
            calls=calls,
            prompt_tokens=round(calls * made.prompt_tokens / count + spare),
            completion_tokens=round(calls * made.completion_tokens / count),
            usd=calls * made.usd / count + max(dearest.usd - made.usd / count, 0),
            seconds=max(steps, calls / self._abreast) * self._busy / max(self._made, 1),
        )

    def _price(self, model: str, cost: Usage) -> tuple[float, bool]:
        """Return what tokens cost at most, and whether that is known."""
        if self.budget.usd is None:
            return 0.0, True
        known = self._by_model[model]
        weight = known.prompt_tokens + _DEAR * known.completion_tokens
        if not weight:
            return 0.0, False
        return known.usd / weight * (cost.prompt_tokens + _DEAR * cost.completion_tokens), True

    def _pending(self, more: Usage) -> Usage:
        return Usage.total([*self._reserved.values(), more])
