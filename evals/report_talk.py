"""A session's discussion as entries to read, in order, grouped by turn.

Private thoughts that follow each other become one entry, as do a ballot with its votes and the ratings of a
round of experts. Every entity keeps its id, so that citations can point to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..modules.events import (
    Ballot,
    Chosen,
    Comment,
    Consensus,
    Declined,
    Draft,
    Duplicate,
    Entity,
    Event,
    Facilitation,
    Failure,
    Floor,
    Idea,
    Left,
    Message,
    Phase,
    Rated,
    Round,
    Summary,
    Thought,
    Vote,
    wording,
)
from ..modules.session import Session

__all__ = ["KINDS", "Entry", "Item", "Turn", "kind_of", "turns_of"]

KINDS = {
    Comment: "remark",
    Idea: "idea",
    Thought: "private thought",
    Vote: "vote",
    Facilitation: "facilitator's word",
    Summary: "summary",
    Draft: "answer",
    Message: "person's message",
}


def kind_of(entity: Entity) -> str:
    """Return what an entity is called."""
    return KINDS.get(type(entity), "entry")


@dataclass(frozen=True)
class Item:
    """One entity or one line of an entry that holds several."""

    who: str
    text: str
    id: str = ""
    cites: tuple[str, ...] = ()
    note: str = ""


@dataclass
class Entry:
    """Something to read.

    Attributes:
        kind: Decides how it is shown: said, idea, private, votes, ratings, note or trouble.
        label: What it is, in words.
        items: What it holds; one item, unless it is a group.
        aside: A remark beside it, such as whom it is for.
    """

    kind: str
    label: str
    items: list[Item] = field(default_factory=list)
    aside: str = ""


@dataclass
class Turn:
    """The entries of a turn; ``phase`` is set where a phase begins."""

    number: int
    minute: float
    phase: str = ""
    entries: list[Entry] = field(default_factory=list)


def turns_of(session: Session) -> list[Turn]:
    """Return the discussion of a session; turns without anything to read are left out."""
    turns: list[Turn] = []
    for event in session.events:
        if isinstance(event, Phase):
            turns.append(Turn(event.turn, event.minute, f"{event.phase.capitalize()}: {event.reason}"))
            continue
        if not turns or turns[-1].number != event.turn:
            turns.append(Turn(event.turn, event.minute))
        _add(turns[-1].entries, event, session)
    return [turn for turn in turns if turn.entries or turn.phase]


def _add(entries: list[Entry], event: Event, session: Session) -> None:
    """Add an event to the entries of its turn, or to the last one where it belongs there."""
    last = entries[-1] if entries else Entry("", "")
    entry = _said(event, session) or _counted(event, session) or _noted(event, session)
    if entry is None:
        return
    if _continues(entry, last):
        last.items += entry.items
    else:
        entries.append(entry)


def _continues(entry: Entry, last: Entry) -> bool:
    """Say whether an entry belongs to the group that the last one began."""
    same = entry.kind == last.kind and entry.label == last.label
    return same and entry.kind in ("private", "ratings", "votes")


def _item(entity: Entity, session: Session) -> Item:
    return Item(session.label(entity.author), wording(entity), entity.id, tuple(entity.cites))


def _said(event: Event, session: Session) -> Entry | None:
    """Return the entry of something that was said or thought."""
    match event:
        case Thought():
            wants = {"pass": "wants to listen", "comment": "wants to speak", "idea": "has an idea"}[event.wants]
            item = _item(event, session)
            note = f"eagerness {event.eagerness:g}, {wants}"
            return Entry("private", "Private thoughts", [Item(item.who, item.text, item.id, item.cites, note)])
        case Comment():
            to = ", ".join(session.label(persona) for persona in event.addressed)
            return Entry("said", "remark", [_item(event, session)], f"to {to}" if to else "")
        case Idea():
            return Entry("idea", "idea", [_item(event, session)], _improves(event))
        case Facilitation():
            aside = f"to {session.label(event.target)} alone" if event.target else "to all"
            late = "" if event.accepted else "; not heeded, so nobody heard it"
            action = event.action.replace("_", " ")
            return Entry("facilitator", action, [_item(event, session)], f"{aside}{late}. Reason: {event.reason}")
        case Summary():
            return Entry("said", "summary", [_item(event, session)])
        case Draft():
            seen = ", ".join(event.shown)
            aside = f"round {event.round}" + (f", was shown {seen}" if seen else "")
            item = _item(event, session)
            note = f"On the others: {event.critique}" if event.critique else ""
            return Entry("said", "answer", [Item(item.who, item.text, item.id, item.cites, note)], aside)
        case Message():
            return Entry("person", "message", [_item(event, session)])
    return None


def _improves(idea: Idea) -> str:
    return f"takes the place of {idea.supersedes}" if idea.supersedes else ""


def _counted(event: Event, session: Session) -> Entry | None:
    """Return the entry of a vote, a ballot or a rating."""
    match event:
        case Ballot():
            who = session.label(event.persona)
            dropped = ", ".join(f"{count} {reason}" for reason, count in event.dropped.items())
            aside = f"Not counted: {dropped}." if dropped else ""
            return Entry("votes", who, [], aside)
        case Vote():
            who = session.label(event.author)
            return Entry("votes", who, [Item(who, event.idea, event.id, note=event.reason)])
        case Rated():
            raw = f", said {event.raw:g}" if event.raw != event.score else ""
            item = Item(session.label(event.expert), event.would_add, note=f"{event.score:.3g}{raw}")
            return Entry("ratings", "Confidence of the experts", [item])
    return None


def _noted(event: Event, session: Session) -> Entry | None:
    """Return the entry of something that is worth a line."""
    name = session.label
    match event:
        case Chosen():
            return _line(name(event.speaker), f"gets the floor (tier {event.tier}: {event.reason})")
        case Duplicate():
            text = f"proposes “{event.title}”, which is on the whiteboard already (cosine {event.cosine:.2f})"
            return Entry("note", "duplicate", [Item(name(event.persona), text, cites=(event.idea,))])
        case Declined():
            return _line(name(event.expert), "has nothing to add")
        case Floor():
            return _line("", f"The floor is the person's: {event.reason}")
        case Round():
            return _line("", f"The answers of round {event.round} are written")
        case Consensus():
            how = "The judge chose" if event.decided else "Not chosen by the judge:"
            return _line("", f"{how} {event.idea or 'nothing'}. {event.reason}")
        case Failure():
            return _line(name(event.speaker), f"has no answer: {event.error}", "trouble")
        case Left():
            return _line(name(event.persona), f"left: {event.reason}", "trouble")
    return None


def _line(who: str, text: str, kind: str = "note") -> Entry:
    return Entry(kind, kind, [Item(who, text)])
