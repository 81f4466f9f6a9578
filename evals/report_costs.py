"""What a session cost: by what the calls were for, by role and by model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ..modules.budget import Usage
from ..modules.files import cost_line
from ..modules.session import Session

__all__ = ["CostRow", "costs", "price"]

PURPOSES = {
    "cast": "casting the personas",
    "sketch": "sketching the personas",
    "resketch": "sketching personas once more",
    "think": "private thoughts",
    "speak": "speaking",
    "propose": "proposing ideas",
    "vote": "voting",
    "facilitate": "facilitating",
    "summary-phase": "summing up a phase",
    "summary-compaction": "shortening the transcript",
    "draft": "first answers",
    "revise": "revising answers",
    "choose": "choosing the answer",
    "rate": "rating confidence",
    "contribute": "speaking",
    "sum_up": "summing up",
    "play": "playing the person",
}


@dataclass
class CostRow:
    """What calls of one sort cost.

    Attributes:
        name: What they have in common.
        usage: Their account; calls made at the same time count their seconds each.
        repairs: Answers that had to be asked for again.
        failed: Calls that failed after their retries.
    """

    name: str
    usage: Usage = field(default_factory=Usage)
    repairs: int = 0
    failed: int = 0

    def add(self, call: dict[str, Any]) -> None:
        """Add a recorded call."""
        cost = Usage(call["calls"], call["prompt_tokens"], call["completion_tokens"], call["usd"] or 0.0)
        cost.unpriced = call["calls"] if call["usd"] is None else 0
        cost.seconds = call.get("seconds") or 0.0
        self.usage.add(cost)
        self.repairs += call.get("repairs") or 0
        self.failed += call.get("status", "ok") != "ok"

    @property
    def price(self) -> str:
        """The cost in words."""
        return price(self.usage)


def price(usage: Usage) -> str:
    """Return the cost in words, as in the other files of a session."""
    return cost_line(usage).split(", ")[2]


def costs(session: Session) -> dict[str, list[CostRow]]:
    """Return the cost of a session by purpose, role and model; empty where its calls were not kept."""
    if session.log is None:
        return {}
    calls = [*session.log.past, *session.log.calls.values()]
    return {
        "what for": _grouped(calls, _purpose),
        "role": _grouped(calls, lambda call: str(call.get("role") or "unknown")),
        "model": _grouped(calls, lambda call: str(call.get("model") or "unknown")),
    }


def _grouped(calls: Iterable[dict[str, Any]], name: Callable[[dict[str, Any]], str]) -> list[CostRow]:
    rows: dict[str, CostRow] = {}
    for call in calls:
        rows.setdefault(name(call), CostRow(name(call))).add(call)
    return sorted(rows.values(), key=lambda row: -row.usage.tokens)


def _purpose(call: dict[str, Any]) -> str:
    parts = str(call.get("key", "")).split("/")
    purpose = parts[1] if len(parts) > 1 else "unknown"
    return PURPOSES.get(purpose, purpose)
