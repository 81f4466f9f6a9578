"""Ideas and votes: quotas, duplicates that become votes, and the tally of ballots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

__all__ = ["Counted", "Quotas", "count_ballot"]


@dataclass
class Quotas:
    """What each persona has left.

    Attributes:
        ideas: Ideas each may propose.
        votes: Votes each may cast.
    """

    ideas: int
    votes: int
    _proposed: Counter[str] = field(default_factory=Counter)
    _returned: set[str] = field(default_factory=set)
    _voted: dict[str, set[str]] = field(default_factory=dict)

    def ideas_left(self, persona: str) -> int:
        """Return how many ideas a persona may still propose."""
        return self.ideas - self._proposed[persona]

    def votes_left(self, persona: str) -> int:
        """Return how many votes a persona may still cast."""
        return self.votes - len(self._voted.get(persona, ()))

    def voted(self, persona: str) -> Collection[str]:
        """Return the ideas a persona has voted for."""
        return self._voted.get(persona, set())

    def propose(self, persona: str) -> None:
        """Use one idea of a persona's quota."""
        self._proposed[persona] += 1

    def give_back(self, persona: str) -> bool:
        """Return an idea to the quota of a persona; only the first time. Say whether it was returned."""
        if persona in self._returned:
            return False
        self._returned.add(persona)
        self._proposed[persona] -= 1
        return True

    def vote(self, persona: str, idea: str) -> None:
        """Use one vote of a persona."""
        self._voted.setdefault(persona, set()).add(idea)


@dataclass(frozen=True)
class Counted:
    """A ballot as counted: the ideas that get a vote, and what was not counted, by reason."""

    votes: list[str]
    dropped: dict[str, int]


def count_ballot(
    ballot: Iterable[str],
    ideas: Collection[str],
    own: Collection[str],
    voted: Collection[str],
    votes: int,
) -> Counted:
    """Count one ballot.

    Args:
        ballot: Ids as they were read, in order, best first.
        ideas: Ids on the whiteboard.
        own: Ideas this persona may not vote for.
        voted: Ideas it has voted for already.
        votes: How many votes it has left.

    Returns:
        The votes that count. Reasons for the others: ``unknown``, ``own``, ``repeated``, ``too many``.
    """
    kept: dict[str, None] = {}
    dropped: Counter[str] = Counter()
    for idea in ballot:
        if idea not in ideas:
            dropped["unknown"] += 1
        elif idea in own:
            dropped["own"] += 1
        elif idea in kept or idea in voted:
            dropped["repeated"] += 1
        elif len(kept) >= votes:
            dropped["too many"] += 1
        else:
            kept[idea] = None
    return Counted(list(kept), dict(dropped))
