"""What can happen in a session, as typed events, and who may see each of them.

Visibility has three layers: public events are seen by all, private ones by their author, targeted
ones by their author and their target. ``visible_to`` is the only place where that is decided.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

__all__ = [
    "EVERYONE",
    "FACILITATOR",
    "JUDGE",
    "PERSON",
    "SAGE",
    "AnyEvent",
    "Ballot",
    "Chosen",
    "Comment",
    "Consensus",
    "Declined",
    "Distinctness",
    "Draft",
    "Entity",
    "Event",
    "Facilitation",
    "Failure",
    "Floor",
    "Idea",
    "Joined",
    "Left",
    "Message",
    "Phase",
    "Rated",
    "Round",
    "Summary",
    "Thought",
    "Vote",
    "event_from",
    "visible_to",
    "wording",
]

FACILITATOR = "facilitator"
JUDGE = "judge"
PERSON = "person"
SAGE = "sage"
EVERYONE = "everyone"


class Event(BaseModel):
    """One thing that happened.

    Attributes:
        n: Position in the session's events, from 0.
        turn: Turn in which it happened; 0 before the first.
        minute: Session clock in minutes when it happened.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_serialization_defaults_required=True)
    prefix: ClassVar[str] = ""

    n: int
    turn: int
    minute: float


class Joined(Event):
    """A persona took a seat."""

    type: Literal["joined"] = "joined"
    persona: str
    name: str
    label: str
    role: str = ""
    sketch: str
    extra: dict[str, str] = {}
    regenerated: bool = False


class Distinctness(Event):
    """How alike the personas' sketches are: cosine similarity of each pair, in seat order."""

    type: Literal["distinctness"] = "distinctness"
    personas: list[str]
    matrix: list[list[float]]
    too_close: list[tuple[str, str]] = []


class Phase(Event):
    """A phase began."""

    type: Literal["phase"] = "phase"
    phase: Literal["discussion", "ideation", "voting", "conversation", "closed"]
    reason: str


class Chosen(Event):
    """Who got the floor, by which of the three tiers, and why."""

    type: Literal["chosen"] = "chosen"
    speaker: str
    tier: Literal[1, 2, 3]
    reason: str


class Entity(Event):
    """An event with an id of its own that later entities can cite.

    Attributes:
        id: Unique in the session; a letter by kind and a number.
        author: Persona id, or ``facilitator``.
        cites: Earlier entities that influenced this one; all exist and were visible to the author.
        dropped: Citations that were not kept, counted by reason (unknown, invisible, itself, repeated).
        clamped: Numbers that the model wrote outside their scale.
    """

    id: str = Field(pattern=r"^[A-Z][0-9]+$")
    author: str
    cites: list[str] = []
    dropped: dict[str, int] = {}
    clamped: int = 0


class Thought(Entity):
    """A private thought of one persona."""

    prefix: ClassVar[str] = "T"
    type: Literal["thought"] = "thought"
    text: str
    eagerness: float
    wants: Literal["comment", "idea", "pass"]


class Comment(Entity):
    """A spoken contribution."""

    prefix: ClassVar[str] = "C"
    type: Literal["comment"] = "comment"
    text: str
    addressed: list[str] = []
    question: str = ""


class Idea(Entity):
    """An idea on the whiteboard; one that supersedes an earlier one is ranked before it."""

    prefix: ClassVar[str] = "I"
    type: Literal["idea"] = "idea"
    title: str
    description: str
    supersedes: str = ""


class Vote(Entity):
    """One vote of one persona for one idea."""

    prefix: ClassVar[str] = "V"
    type: Literal["vote"] = "vote"
    idea: str
    origin: Literal["ballot", "duplicate"]
    reason: str = ""


class Ballot(Event):
    """One persona's ballot as counted: the ideas voted for, and what was not counted, by reason."""

    type: Literal["ballot"] = "ballot"
    persona: str
    ideas: list[str]
    dropped: dict[str, int] = {}
    reason: str = ""


class Duplicate(Event):
    """A proposal too close to an idea on the whiteboard; it became a vote, or nothing if it was one's own."""

    type: Literal["duplicate"] = "duplicate"
    persona: str
    title: str
    idea: str
    cosine: float
    quota_returned: bool


class Facilitation(Entity):
    """A word of the facilitator; targeted ones are seen by their target alone."""

    prefix: ClassVar[str] = "F"
    type: Literal["facilitation"] = "facilitation"
    action: Literal["invite", "redirect", "challenge", "move_on"]
    target: str = ""
    text: str
    reason: str
    accepted: bool = True


class Summary(Entity):
    """A summary by the facilitator: of a phase, or of the older talk that it replaces in prompts."""

    prefix: ClassVar[str] = "S"
    type: Literal["summary"] = "summary"
    purpose: Literal["phase", "compaction"]
    text: str
    through: int


class Draft(Entity):
    """One agent's answer in one round of a debate; it cites the answers it was shown and its own last one."""

    prefix: ClassVar[str] = "D"
    type: Literal["draft"] = "draft"
    round: int
    text: str
    critique: str = ""
    shown: list[str] = []


class Round(Event):
    """The answers of a round are there: how different they are, and whose answer each agent is shown next."""

    type: Literal["round"] = "round"
    round: int
    distance: float | None
    vendi: float | None
    shown: dict[str, list[str]] = {}


class Consensus(Event):
    """The choice of one answer.

    Attributes:
        idea: The chosen idea; empty if there was none to choose.
        order: Ideas in the order the judge saw them.
        rejected: Authors whose answer could not win, with the reason.
        decided: Whether the judge decided; else the first admissible answer in seat order stands.
        reason: The judge's reason, or why it did not decide.
    """

    type: Literal["consensus"] = "consensus"
    idea: str
    order: list[str]
    rejected: dict[str, str] = {}
    decided: bool
    reason: str


class Message(Entity):
    """Words of the person."""

    prefix: ClassVar[str] = "U"
    type: Literal["message"] = "message"
    text: str


class Rated(Event):
    """An expert's confidence that it can add something; one that does not get the floor is a "hmm".

    Attributes:
        expert: Who rated.
        raw: What it said, 0 to 10.
        score: What the choice used: the raw rating, or the calibrated one.
        would_add: What it would add.
    """

    type: Literal["rated"] = "rated"
    expert: str
    raw: float
    score: float
    would_add: str


class Declined(Event):
    """An expert that was handed the floor had nothing to add."""

    type: Literal["declined"] = "declined"
    expert: str


class Floor(Event):
    """The floor is the person's again."""

    type: Literal["floor"] = "floor"
    reason: str


class Failure(Event):
    """A call that failed after its retries; its speaker was silent this turn."""

    type: Literal["failure"] = "failure"
    key: str
    speaker: str
    error: str


class Left(Event):
    """A persona left the session."""

    type: Literal["left"] = "left"
    persona: str
    reason: str


AnyEvent = Annotated[
    Joined
    | Distinctness
    | Phase
    | Chosen
    | Thought
    | Comment
    | Idea
    | Vote
    | Ballot
    | Duplicate
    | Facilitation
    | Summary
    | Draft
    | Round
    | Consensus
    | Message
    | Rated
    | Declined
    | Floor
    | Failure
    | Left,
    Field(discriminator="type"),
]
_ADAPTER: TypeAdapter[Event] = TypeAdapter(AnyEvent)


def event_from(data: dict[str, Any]) -> Event:
    """Build the typed event of a log line."""
    return _ADAPTER.validate_python(data)


def wording(entity: Entity) -> str:
    """Return what an entity says, as one text; a title that only opens the description is not said twice."""
    match entity:
        case Idea() if entity.description.startswith(entity.title.rstrip("…")):
            return entity.description
        case Idea():
            return f"{entity.title}. {entity.description}"
        case Vote():
            return entity.reason
        case Comment() if entity.question not in ("", entity.text):
            return f"{entity.text} {entity.question}"
    return str(getattr(entity, "text", ""))


def visible_to(event: Event, viewer: str) -> bool:
    """Say whether ``viewer`` (a persona id, ``facilitator`` or ``everyone``) may see the event.

    A word of the facilitator that was not heeded was never spoken: nobody else saw it.
    """
    if isinstance(event, Thought):
        return viewer == event.author
    if isinstance(event, Facilitation) and (event.target or not event.accepted):
        return viewer in (event.target, FACILITATOR)
    return not isinstance(event, Failure | Chosen | Distinctness | Round | Rated)
