"""A session as its readers want it: what was said and what happened, entry by entry.

An entry is an entity of the session, or an event of its course that a reader misses without: who joined
and left, phases, ratings, rounds, duplicates, failures. Who got the floor and how ballots were counted is left
to ``session.json``. The transcript is written from the entries, as Markdown and as CSV.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields

from .events import (
    EVERYONE,
    Consensus,
    Declined,
    Duplicate,
    Entity,
    Event,
    Failure,
    Joined,
    Left,
    Phase,
    Rated,
    Round,
    visible_to,
    wording,
)
from .files import csv_table, markdown
from .session import Session

__all__ = ["Entry", "entries", "transcript_csv", "transcript_markdown"]


@dataclass(frozen=True)
class Entry:
    """One thing that was said or happened.

    Attributes:
        n: Position of its event in the session, from 0.
        turn: Turn in which it happened; 0 before the first.
        minute: Session clock in minutes.
        kind: Type of the event, e.g. ``comment`` or ``phase``.
        id: Id of an entity; empty for other events.
        author: Label of who said it or whom it concerns; empty for nobody.
        private: Whether others could not see it: a thought, or a word meant for one persona.
        cites: Ids of the earlier entities that it names as its sources.
        text: What was said or what happened.
    """

    n: int
    turn: int
    minute: float
    kind: str
    id: str
    author: str
    private: bool
    cites: tuple[str, ...]
    text: str


def entries(session: Session, course: bool = True) -> Iterator[Entry]:
    """Yield the entries of a session, in order.

    Args:
        session: The session.
        course: Whether to yield events without an id too.
    """
    for event in session.events:
        kind = type(event).__name__.lower()
        if isinstance(event, Entity):
            author, text, hidden = event.author, wording(event), not visible_to(event, EVERYONE)
            known = (event.id, session.label(author), hidden, tuple(event.cites), text)
            yield Entry(event.n, event.turn, event.minute, kind, *known)
        elif course and (happened := _happened(event)):
            who, text = happened
            label = session.label(who) if who else ""
            yield Entry(event.n, event.turn, event.minute, kind, "", label, False, (), text)


def _happened(event: Event) -> tuple[str, str] | None:
    """Return whom an event of the course concerns and what it says; None for one that is not told."""
    match event:
        case Joined():
            return event.persona, f"{event.role}: {event.sketch}" if event.role else event.sketch
        case Left():
            return event.persona, event.reason
        case Phase():
            return "", f"{event.phase}: {event.reason}"
        case Duplicate():
            return event.persona, f"{event.title} (too close to {event.idea})"
        case Rated():
            return event.expert, f"{event.score:g} of 10: {event.would_add}"
        case Declined():
            return event.expert, "has nothing to add"
        case Round():
            apart = "" if event.distance is None else f", mean distance {event.distance:.3f}"
            return "", f"round {event.round} is written{apart}"
        case Consensus():
            return "", f"{event.idea or 'nothing'} is chosen: {event.reason}"
        case Failure():
            return event.speaker, event.error
    return None


def transcript_csv(session: Session) -> str:
    """Return the transcript as CSV, safe to open in a spreadsheet; ids in ``cites`` are parted by spaces."""
    columns = [field.name for field in fields(Entry)]
    rows = (astuple(entry) for entry in entries(session))
    return csv_table(columns, ([" ".join(c) if isinstance(c, tuple) else c for c in row] for row in rows))


def transcript_markdown(session: Session) -> str:
    """Return the transcript as Markdown; phases are its sections, and thoughts are marked as private."""
    ending = f"{session.status} ({markdown(session.reason)})" if session.reason else session.status
    lines = [f"# {markdown(session.topic)}", "", f"Transcript of a {session.name}. Status: {ending}.", ""]
    for entry in entries(session):
        if entry.kind == "phase":
            lines += ["", f"## {markdown(entry.text)}, minute {entry.minute:.1f}", ""]
        else:
            lines.append(_item(entry))
    return "\n".join([*lines, ""])


def _item(entry: Entry) -> str:
    head = " ".join(part for part in (entry.id, entry.kind) if part)
    notes = [f"turn {entry.turn}", f"minute {entry.minute:.1f}"]
    notes += ["private"] if entry.private else []
    notes += [f"from {', '.join(entry.cites)}"] if entry.cites else []
    who = f"**{markdown(entry.author)}**, " if entry.author else ""
    return f"- {who}{head} ({'; '.join(notes)}): {markdown(entry.text)}"
