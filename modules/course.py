"""What the courses of a roundtable and of a conversation share: emitting, seats and labels, silence and leaving."""

from __future__ import annotations

from typing import Any

from .answers import Answer
from .events import Event, Left
from .run import Run
from .text import neutral
from .transcript import Transcript

__all__ = ["FAILURES_TO_LEAVE", "Course"]

FAILURES_TO_LEAVE = 3


class Course:
    """Base of the courses; keeps the transcript in step with the session.

    Args:
        run: The running session.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.session = run, run.session
        self.transcript = Transcript(self.session)

    def emit(self, kind: type[Event], **fields: Any) -> Any:
        """Emit an event."""
        event = self.run.emit(kind, **fields)
        self.transcript.feed(event)
        return event

    def entity(self, kind: Any, author: str, cites: list[str], **fields: Any) -> Any:
        """Emit an entity with its id and the citations that hold."""
        entity = self.run.entity(kind, author, cites, **fields)
        self.transcript.feed(entity)
        return entity

    def labels(self) -> dict[str, str]:
        """Return what those present are called, by id."""
        return {p: self.session.label(p) for p in self.session.seated}

    def who(self, persona: str) -> str:
        """Return the text that tells a model whom it plays."""
        joined = self.session.personas[persona]
        role = f" ({neutral(joined.role)})" if joined.role else ""
        return f"You are {joined.label}{role}. {neutral(joined.sketch)}"

    def silent(self, purpose: str, persona: str, answer: Answer) -> None:
        """Record that a persona has no answer; after three in a row it leaves."""
        self.run.failed(purpose, persona, answer)
        if self.run.silent_for.get(persona, 0) >= FAILURES_TO_LEAVE:
            self.emit(Left, persona=persona, reason=f"{FAILURES_TO_LEAVE} calls in a row failed")
