"""Expected and actual course of a session: how many ideas and votes there are at each minute.

The expected course follows the plan: during the discussion a fixed share of all ideas comes up, evenly;
during ideation the rest; all votes fall at the end. The actual course is read off the events.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .events import Event, Idea, Vote

__all__ = ["DISCUSSION_SHARE", "Plan", "Point", "actual"]

DISCUSSION_SHARE = 0.2
MINUTES_PER_TURN = 0.3  # about 45 words


@dataclass(frozen=True)
class Point:
    """Ideas and votes that exist at a minute of the session clock; ``at`` is the event it was reached by."""

    minute: float
    ideas: float
    votes: float
    at: int = 0


@dataclass(frozen=True)
class Plan:
    """What a session is planned to bring.

    Attributes:
        discussion: Minutes of discussion.
        ideation: Minutes of ideation after it.
        ideas: Ideas wanted from all personas together.
        votes: Votes all personas have together.
    """

    discussion: float
    ideation: float
    ideas: int
    votes: int

    @classmethod
    def of(cls, tunables: Mapping[str, Any], personas: int) -> Plan:
        """Return the plan of a roundtable, from its tunables' saved state and its number of personas."""
        value = {name: state["value"] for name, state in tunables.items() if "value" in state}
        bounds = {"minutes": 1.0, "turns": MINUTES_PER_TURN}
        minutes = min(value[name] * length for name, length in bounds.items() if name in value)
        return cls(minutes, value["ideation_minutes"], personas * value["ideas"], personas * value["votes"])

    def expected(self) -> list[Point]:
        """Return the corner points of the expected course; between them it is a straight line."""
        early = self.ideas * DISCUSSION_SHARE if self.discussion > 0 else 0.0
        end = self.discussion + self.ideation
        return [
            Point(0.0, 0.0, 0.0),
            Point(self.discussion, early, 0.0),
            Point(end, float(self.ideas), 0.0),
            Point(end, float(self.ideas), float(self.votes)),
        ]

    def ideas_at(self, minute: float) -> float:
        """Return how many ideas are expected by a minute of the session."""
        corners = self.expected()
        for left, right in itertools.pairwise(corners):
            if minute <= right.minute and right.minute > left.minute:
                share = (minute - left.minute) / (right.minute - left.minute)
                return left.ideas + share * (right.ideas - left.ideas)
        return float(self.ideas)


def actual(events: Iterable[Event]) -> list[Point]:
    """Return a point for each idea and vote, in order."""
    ideas = votes = 0
    points = [Point(0.0, 0.0, 0.0)]
    for event in events:
        if isinstance(event, Idea | Vote):
            ideas += isinstance(event, Idea)
            votes += isinstance(event, Vote)
            points.append(Point(event.minute, float(ideas), float(votes), event.n))
    return points
