"""What a session may spend, what it has spent, and when it should come to its end.

A budget is hard: a call is refused when what it is expected to cost no longer fits. So that a session
still ends with ranked ideas, it is told to close at ``CLOSING_SHARE`` of any limit, or earlier when the
next turn and the vote would not fit any more.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from salon.errors import UserError

__all__ = ["CLOSING_SHARE", "Budget", "Usage"]

CLOSING_SHARE = 0.85


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

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def add(self, other: Usage) -> None:
        """Add another account to this one."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


@dataclass(frozen=True)
class Budget:
    """Hard limits of one session; None means no limit.

    Attributes:
        usd: US dollars; calls of unknown price count as free, and the session says how many there were.
        tokens: Prompt and completion tokens.
        seconds: Wall time.
        calls: LM calls.

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
            if limit is not None and (isinstance(limit, bool) or not limit > 0):
                raise UserError(
                    f"A budget of {limit!r} {item.name} is not possible", "it must be more than 0"
                )

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
            if used >= CLOSING_SHARE * limit or used + getattr(ahead, name) > limit:
                return f"{used:.4g} of {limit:g} {name} are used"
        return ""

    def _limits(self) -> dict[str, float]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
