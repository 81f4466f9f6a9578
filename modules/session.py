"""A session as its participants and its readers see it: events, who sees what, ideas, lineage.

``Session`` is built by adding events one by one; it makes no calls and reads no files. ``view`` is the
only answer to "what does X see now".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from salon.errors import OutputError

from .budget import Usage
from .embedding import Embedder
from .events import EVERYONE, Comment, Entity, Event, Idea, Joined, Left, Phase, Vote, visible_to
from .lineage import Lineage
from .log import LOG_NAME, Recorded, SessionLog
from .measures import Measures, measure
from .trajectory import Plan, Point, actual

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RankedIdea", "Session", "Status"]

Status = Literal["running", "complete", "cut short", "partial"]


@dataclass(frozen=True)
class RankedIdea:
    """An idea with its place in the ranking.

    Attributes:
        rank: 1 for the best; ideas with equal votes are ranked by who came first.
        id: Its id in the session.
        title: What it is called.
        description: What it is.
        author: Label of the persona that proposed it.
        votes: Number of votes.
        voters: Labels of those who voted for it.
        cites: Ids of the earlier entities it grew out of.
    """

    rank: int
    id: str
    title: str
    description: str
    author: str
    votes: int
    voters: tuple[str, ...]
    cites: tuple[str, ...]


class _Ids(Collection[str]):
    """The ids one viewer can see: the public ones and those for it alone, without copying either."""

    def __init__(self, public: dict[str, None], own: dict[str, None]) -> None:
        self._public, self._own = public, own

    def __contains__(self, name: object) -> bool:
        return name in self._public or name in self._own

    def __iter__(self) -> Iterator[str]:
        yield from self._public
        yield from self._own

    def __len__(self) -> int:
        return len(self._public) + len(self._own)


@dataclass
class Session:
    """The events of a session and what follows from them.

    Attributes:
        header: Program, settings, inputs, seed, models, versions.
        events: Everything that happened, in order.
        status: ``running`` until it ended.
        reason: Why it ended as it did.
        usage: What it cost.
        folder: Where its log is, if it has one.
        log: Its records: calls and readings.
        personas: Who took part, by id, in seat order.
        entities: Everything that has an id, by id, in order.
        lineage: The citation graph of all entities.
        board: The ideas on the whiteboard, in order.
        contributions: How often each persona spoke: comments and ideas.
        left: Ids of personas that left.
    """

    header: dict[str, Any]
    events: list[Event] = field(default_factory=list)
    status: Status = "running"
    reason: str = ""
    usage: Usage = field(default_factory=Usage)
    folder: Path | None = None
    log: Recorded | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        earlier, self.events = self.events, []
        self.entities: dict[str, Entity] = {}
        self.personas: dict[str, Joined] = {}
        self.left: set[str] = set()
        self.board: list[Idea] = []
        self.lineage = Lineage()
        self.contributions: dict[str, int] = {}
        self._public: dict[str, None] = {}
        self._own: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._counts: defaultdict[str, int] = defaultdict(int)
        for event in earlier:
            self.add(event)

    # ---------------------------------------------------------------- growing

    def next_id(self, kind: type[Entity]) -> str:
        """Return the id that the next entity of a kind will have."""
        return f"{kind.prefix}{self._counts[kind.prefix] + 1}"

    def add(self, event: Event) -> None:
        """Add the next event."""
        self.events.append(event)
        if isinstance(event, Joined):
            self.personas[event.persona] = event
            self.contributions[event.persona] = 0
        elif isinstance(event, Left):
            self.left.add(event.persona)
        elif isinstance(event, Entity):
            self.entities[event.id] = event
            self.lineage.add(event.id, event.author, event.cites)
            if isinstance(event, Idea):
                self.board.append(event)
            if isinstance(event, Comment | Idea) and event.author in self.contributions:
                self.contributions[event.author] += 1
            self._counts[event.prefix] += 1
            if visible_to(event, EVERYONE):
                self._public[event.id] = None
            else:
                for persona in self.personas:
                    if visible_to(event, persona):
                        self._own[persona][event.id] = None

    # ---------------------------------------------------------------- seeing

    def view(self, viewer: str) -> list[Event]:
        """Return what a persona, the facilitator or ``everyone`` sees now."""
        return [event for event in self.events if visible_to(event, viewer)]

    def visible_ids(self, viewer: str) -> Collection[str]:
        """Return the ids of the entities a viewer sees now."""
        return _Ids(self._public, self._own[viewer])

    def own_entities(self, persona: str, last: int) -> list[Entity]:
        """Return the last entities that this persona sees and the public does not."""
        newest = islice(reversed(self._own[persona]), last)
        return [self.entities[name] for name in newest][::-1]

    @property
    def seated(self) -> list[str]:
        """Ids of the personas still there, in seat order."""
        return [persona for persona in self.personas if persona not in self.left]

    def label(self, author: str) -> str:
        """Return how an author is called in prompts and reports."""
        return self.personas[author].label if author in self.personas else author.capitalize()

    # ---------------------------------------------------------------- results

    @property
    def topic(self) -> str:
        """What the session was about: its topic, task or problem."""
        return str(next(iter(self.header["inputs"].values())))

    @property
    def votes(self) -> dict[str, list[Vote]]:
        """Votes by idea id, for every idea on the whiteboard."""
        tally: dict[str, list[Vote]] = {idea.id: [] for idea in self.board}
        for entity in self.entities.values():
            if isinstance(entity, Vote):
                tally[entity.idea].append(entity)
        return tally

    @property
    def ideas(self) -> list[RankedIdea]:
        """The ideas, best first; among equals one that is not superseded, then the earlier one."""
        votes = self.votes
        superseded = {idea.supersedes for idea in self.board}
        ordered = sorted(votes, key=lambda name: (-len(votes[name]), name in superseded))
        return [self._ranked(rank, name, votes[name]) for rank, name in enumerate(ordered, 1)]

    def _ranked(self, rank: int, name: str, votes: list[Vote]) -> RankedIdea:
        idea = self.entities[name]
        assert isinstance(idea, Idea)
        voters = tuple(self.label(vote.author) for vote in votes)
        return RankedIdea(
            rank,
            name,
            idea.title,
            idea.description,
            self.label(idea.author),
            len(votes),
            voters,
            tuple(idea.cites),
        )

    def plan(self) -> Plan | None:
        """Return what a roundtable was planned to bring, with its expected course; None for other sessions."""
        state = self.header["program"]["state"]
        return Plan.of(state, len(self.personas)) if "ideation_minutes" in state else None

    def trajectory(self) -> list[Point]:
        """Return the actual course: ideas and votes that existed at each minute."""
        return actual(self.events)

    def discussion_ids(self) -> list[str]:
        """Return the ids of the personas' public entities of the discussion phase."""
        found: list[str] = []
        discussing = False
        for event in self.events:
            if isinstance(event, Phase):
                discussing = event.phase == "discussion"
            elif discussing and isinstance(event, Comment | Idea):
                found.append(event.id)
        return found

    def measures(self, embedder: Embedder | None = None) -> Measures:
        """Measure the session (definitions: see ``Measures``).

        Args:
            embedder: Embeds the ideas for their distance; by default the session's own model.
        """
        return measure(self, embedder)

    def to_frame(self, what: str = "ideas") -> pd.DataFrame:
        """Return the session as a table (columns: see ``salon.modules.frames``).

        Args:
            what: ``ideas``, ``transcript`` or ``votes``.

        Raises:
            UserError: If there is no such table.
        """
        from .frames import to_frame  # frames reads sessions, so it cannot be imported above

        return to_frame(self, what)

    def save(self, folder: str | Path) -> None:
        """Write the log and the result files into a folder, which must not hold a session yet.

        Raises:
            OutputError: If it does, or if it cannot be written.
        """
        from .files import write_results  # files reads sessions, so it cannot be imported above

        place = Path(folder)
        if self.log is None or (place / LOG_NAME).exists():
            raise OutputError(f"The session cannot be saved in {place}", "there is a session already")
        SessionLog(place, self.log).close()
        write_results(self, place)

    @property
    def name(self) -> str:
        """Name of the program that held the session."""
        return str(self.header["program"]["name"])
