"""What prompts show of a session: a transcript that only grows, until it is compacted.

Each public entity is one line that starts with its id. Texts of people and models are made inert on the
way in. When the transcript would pass its token budget, its older part is replaced by a summary and by a
short line for each older entity that later ones cite, so that no id in sight loses its meaning.
"""

from __future__ import annotations

from .events import (
    EVERYONE,
    Comment,
    Duplicate,
    Event,
    Facilitation,
    Idea,
    Left,
    Message,
    Summary,
    Thought,
    visible_to,
)
from .session import Session
from .text import excerpt, fitted, neutral, tokens

__all__ = ["NOTE_TOKENS", "Transcript", "notes", "whiteboard"]

_GIST = 80  # characters kept of an older entity that is still cited
_OLDER = 160  # characters kept of a persona's own earlier thoughts
_SHORTEST = 7  # tokens of a description below which titles stand alone
_NOTHING = "(nothing yet)"
NOTE_TOKENS = 200  # most that a note may cost


class Transcript:
    """The shared transcript of a session, fed with its events one by one.

    Args:
        session: The session; its events are shown as everyone sees them.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lines: list[tuple[str, str]] = []
        self._older: set[str] = set()
        self._head = ""
        self._cost = 0

    def feed(self, event: Event) -> None:
        """Append the line of a new event, if everyone sees it and it says something."""
        if not visible_to(event, EVERYONE):
            return
        line = self._line(event)
        if line:
            self._lines.append((getattr(event, "id", ""), line))
            self._cost += tokens(line) + 1

    @property
    def text(self) -> str:
        """The transcript as prompts show it."""
        return "\n".join([*([self._head] if self._head else []), *(line for _, line in self._lines)]) or _NOTHING

    @property
    def cost(self) -> int:
        """Estimated tokens of the transcript."""
        return self._cost

    def oldest(self, count: int) -> str:
        """Return the text of the oldest lines, with the head of an earlier compaction."""
        return "\n".join([*([self._head] if self._head else []), *(line for _, line in self._lines[:count])])

    def older(self, keep: int) -> int:
        """Return how many of the oldest lines to compact so that the rest costs at most ``keep`` tokens."""
        cost = 0
        for at in range(len(self._lines) - 1, -1, -1):
            cost += tokens(self._lines[at][1]) + 1
            if cost > keep:
                return at + 1
        return 0

    def compact(self, count: int, summary: str, keep: int) -> None:
        """Replace the oldest ``count`` lines by a summary and by gists of what later entities cite.

        The newest line stays in any case, shortened if it alone costs more than ``keep``.

        Args:
            count: Lines to replace.
            summary: What they said; may be empty if no summary could be had.
            keep: Most tokens the replacement may cost; gists of older entities give way first.
        """
        count = min(count, len(self._lines) - 1)
        self._older.update(name for name, _ in self._lines[:count] if name)
        later = self._cited_later()
        cited = [name for name in self._session.entities if name in self._older and name in later]
        told = fitted(f"Earlier: {neutral(summary)}", keep) if summary else ""
        gists: list[str] = []
        left = keep - tokens(told)
        for name in reversed(cited):
            gist = self._gist(name)
            left -= tokens(gist) + 1
            if left < 0:
                break
            gists.append(gist)
        self._head = "\n".join(part for part in (told, *gists[::-1]) if part)
        self._lines = self._lines[count:]
        if len(self._lines) == 1:
            self._lines = [(name, fitted(line, keep)) for name, line in self._lines]
        self._cost = tokens(self._head) + sum(tokens(line) + 1 for _, line in self._lines)

    def _cited_later(self) -> set[str]:
        later = (e for e in self._session.entities.values() if e.id not in self._older)
        return {cited for entity in later if not isinstance(entity, Thought) for cited in entity.cites}

    def _gist(self, name: str) -> str:
        entity = self._session.entities[name]
        text = entity.title if isinstance(entity, Idea) else getattr(entity, "text", "")
        return f"{name} {self._session.label(entity.author)}: {excerpt(neutral(text), _GIST)}"

    def _line(self, event: Event) -> str:
        label = self._session.label
        match event:
            case Comment():
                asks = f" {neutral(event.question)}" if event.question not in ("", event.text) else ""
                return f"{event.id} {label(event.author)}: {neutral(event.text)}{asks}"
            case Message():
                return f"{event.id} Person: {neutral(event.text)}"
            case Idea():
                body = f"{neutral(event.title)} - {neutral(event.description)}"
                return f"{event.id} {label(event.author)} proposes: {body}"
            case Facilitation() if event.accepted:
                return f"{event.id} Facilitator: {neutral(event.text)}"
            case Summary(purpose="phase"):
                return f"{event.id} Facilitator sums up: {neutral(event.text)}"
            case Duplicate():
                return f"({label(event.persona)} proposed the same as {event.idea})"
            case Left():
                return f"({label(event.persona)} left)"
        return ""


def notes(session: Session, persona: str, last: int) -> str:
    """Return what a persona alone sees: its own last thoughts and words meant for it alone.

    The newest stands in full, older ones are shortened: this part of a prompt is shared with no other.
    """
    own = session.own_entities(persona, last)
    lines = []
    for entity in own:
        text = neutral(getattr(entity, "text", ""))
        said = fitted(text, NOTE_TOKENS - 10) if entity is own[-1] else excerpt(text, _OLDER)
        who = "Facilitator, to you" if isinstance(entity, Facilitation) else "You"
        lines.append(f"{entity.id} {who}: {said}")
    return "\n".join(lines) or _NOTHING


def whiteboard(session: Session, limit: int, full: bool = False) -> str:
    """Return the ideas on the whiteboard, at most ``limit`` tokens.

    Args:
        session: The session.
        limit: Most tokens; descriptions are shortened first, then the oldest titles give way.
        full: Show descriptions too.
    """
    ideas = session.board
    if not ideas:
        return _NOTHING
    heads = [f"{i.id} {neutral(i.title)} ({session.label(i.author)})" for i in ideas]
    if full:
        room = (limit - sum(tokens(h) + 3 for h in heads)) // len(ideas)
        if room >= _SHORTEST:
            bodies = (fitted(neutral(idea.description), room) for idea in ideas)
            heads = [f"{head}: {body}" for head, body in zip(heads, bodies, strict=True)]
    while len(heads) > 1 and sum(tokens(h) + 1 for h in heads) > limit:
        heads.pop(0)
    return "\n".join(heads)
