"""How good ideas are, by a judge that rates each alone.

Absolute scores depend on the judge more than on the idea: compare them within one judge, don't quote levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..modules.text import fitted, neutral
from .ledger import Ledger, together

__all__ = ["DIMENSIONS", "Rated", "rate_ideas"]

DIMENSIONS = ("originality", "feasibility", "clarity")
_LONGEST = 400  # tokens of an idea that the judge is shown


@dataclass(frozen=True)
class Rated:
    """A judge's ratings of one idea.

    Attributes:
        scores: Rating 1 to 10 by dimension, relevance included; empty if the judge gave no answer.
        reason: Its reason.
        error: Why there is no rating.
    """

    scores: dict[str, int]
    reason: str = ""
    error: str = ""

    @property
    def quality(self) -> float | None:
        """Mean of originality, feasibility and clarity (LiveIdeaBench's dimensions), 1 to 10; None if unrated."""
        return sum(self.scores[name] for name in DIMENSIONS) / len(DIMENSIONS) if self.scores else None


async def rate_ideas(ledger: Ledger, judge: Any, topic: str, ideas: Sequence[tuple[str, str]]) -> list[Rated]:
    """Have ideas rated, all at once.

    Args:
        ledger: Makes the calls.
        judge: Predictor for ``RateIdea``.
        topic: What the ideas are for.
        ideas: A unique name and the text of each.
    """

    async def one(name: str, text: str) -> Rated:
        said = fitted(neutral(text), _LONGEST)
        answer = await ledger.ask(judge, f"{name}/rate/1", "judge", topic=neutral(topic), idea=said)
        if answer.error:
            return Rated({}, error=answer.error)
        scores = {dimension: int(answer.outputs[dimension]) for dimension in ("relevance", *DIMENSIONS)}
        return Rated(scores, str(answer.reason))

    return await together(one(name, text) for name, text in ideas)
