"""One line of text for each event that a person wants to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from salon.modules.events import (
    PERSON,
    Ballot,
    Comment,
    Consensus,
    Declined,
    Distinctness,
    Draft,
    Duplicate,
    Event,
    Facilitation,
    Failure,
    Idea,
    Joined,
    Left,
    Message,
    Phase,
    Rated,
    Round,
    Summary,
)
from salon.modules.text import excerpt

__all__ = ["bar", "line_of", "rating_line", "spark"]

_BLOCKS = "▁▂▃▄▅▆▇█"


def bar(value: float, high: float = 10, width: int = 10) -> str:
    """Return a bar for a value on a scale from 0."""
    full = round(min(max(value / high, 0), 1) * width)
    return "█" * full + "░" * (width - full)


def spark(values: Sequence[float]) -> str:
    """Return a row of blocks whose heights follow the values, from the lowest to the highest."""
    low, high = min(values), max(values)
    span = high - low
    return "".join(_BLOCKS[round((v - low) / span * (len(_BLOCKS) - 1)) if span else 3] for v in values)


def line_of(event: Event, labels: Mapping[str, str]) -> Text | None:
    """Return the line of an event, or None if there is nothing to read.

    Args:
        event: The event.
        labels: What personas are called, by id.
    """
    return _talk(event, labels) or _course(event, labels) or _counting(event, labels)


def rating_line(event: Rated, labels: Mapping[str, str], speaks: bool) -> Text:
    """Return the line of an expert's confidence: a bar, and "hmm" unless it gets the floor."""
    style = "bold" if speaks else "dim"
    head = f"     {labels.get(event.expert, event.expert):<27.27} {bar(event.score)} {event.score:>4.3g}"
    return Text(f"{head}  {'' if speaks else 'hmm: '}{excerpt(event.would_add, 44)}", style)


def _talk(event: Event, labels: Mapping[str, str]) -> Text | None:
    """Return the line of something that was said."""
    name = labels.get
    match event:
        case Comment():
            asks = f" {event.question}" if event.question and event.question != event.text else ""
            return Text.assemble((f"{event.id:>4} {name(event.author)}: ", "bold"), event.text, (asks, "italic"))
        case Message():
            return Text.assemble((f"{event.id:>4} You: " if event.author == PERSON else "", "bold blue"), event.text)
        case Idea(author="sage"):
            head = (f"{event.id:>4} Sage: ", "bold green")
            return Text.assemble(head, (event.title, "green"), f". {event.description}")
        case Idea() if event.title and not event.description.startswith(event.title.rstrip("…")):
            head = (f"{event.id:>4} {name(event.author, event.author)} proposes: ", "bold green")
            return Text.assemble(head, (event.title, "green"), f". {event.description}")
        case Draft():
            return Text.assemble((f"{event.id:>4} {name(event.author)}: ", "bold"), excerpt(event.text, 400))
        case Facilitation():
            to = f" to {name(event.target)}" if event.target else ""
            late = "" if event.accepted else " (not heeded: it is too early to move on)"
            return Text(f"{event.id:>4} Facilitator{to}: {event.text}{late}", "magenta")
        case Summary():
            return Text(f"{event.id:>4} Facilitator sums up: {event.text}", "dim magenta")
    return None


def _course(event: Event, labels: Mapping[str, str]) -> Text | None:
    """Return the line of something that moves the session on."""
    name = labels.get
    match event:
        case Joined():
            role = f", {event.role}" if event.role else ""
            return Text.assemble((f"  {event.label}", "bold"), f"{role}: {excerpt(event.sketch, 160)}")
        case Phase(phase="closed"):
            return Text(f"— end: {event.reason}", "dim")
        case Phase():
            return Text(f"\n— {event.phase} ({event.reason})", "bold cyan")
        case Round():
            moved = "" if event.distance is None else f": mean distance {event.distance:.3f} {bar(event.distance, 1)}"
            return Text(f"\n— round {event.round} is written{moved}", "bold cyan")
        case Failure():
            who = name(event.speaker, event.speaker)
            return Text(f"     {who} has no answer: {excerpt(event.error, 200)}", "yellow")
        case Left():
            return Text(f"     {name(event.persona)} left: {event.reason}", "yellow")
        case Distinctness() if event.too_close:
            pairs = "; ".join(f"{name(a)} and {name(b)}" for a, b in event.too_close)
            return Text(f"     Personas that are much alike: {pairs}", "yellow")
    return None


def _counting(event: Event, labels: Mapping[str, str]) -> Text | None:
    """Return the line of a vote, a rating or a choice."""
    name = labels.get
    match event:
        case Ballot():
            return Text(f"     {name(event.persona)} votes for {', '.join(event.ideas) or 'nothing'}")
        case Duplicate():
            end = "is on the whiteboard already, and counts as a vote for it"
            return Text(f"     {name(event.persona)}'s “{event.title}” ({event.idea}) {end}", "dim")
        case Declined():
            return Text(f"     {name(event.expert)} has nothing to add", "dim")
        case Consensus():
            why = "chosen" if event.decided else "not chosen by the judge"
            return Text(f"     {event.idea or 'nothing'} {why}: {event.reason}", "magenta")
    return None
