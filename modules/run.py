"""A session while it runs: the one object that program code talks to.

``Run`` numbers events and writes them, makes calls through the desk, and takes everything else that comes
from outside (clock, similarity, Ctrl-C) as a *reading*: recorded under a key, and answered from the record
when the session is run again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from salon.errors import LogError

from .answers import Answer
from .budget import Budget
from .calls import CallProgress, Desk
from .control import Control
from .embedding import Embedder
from .events import Entity, Event, Failure
from .lineage import check_citations
from .log import SessionLog
from .session import Session
from .text import words

__all__ = ["WORDS_PER_MINUTE", "WRAP_UP", "Control", "Run"]

WORDS_PER_MINUTE = 150
WRAP_UP = "asked to wrap up"
_STEPS = 4  # calls in sequence of one more turn, a round of ideas and the vote
E = TypeVar("E", bound=Event)


@dataclass
class Run:
    """A running session.

    Attributes:
        session: What happened so far.
        log: Where it is recorded.
        desk: Makes the calls.
        embedder: Compares texts.
        seed: The session's seed.
        budget: Hard limits.
        control: Wishes from outside.
        listen: Told of every event and of calls that begin and end.
        turn: The current turn.
        minute: The session clock.
    """

    session: Session
    log: SessionLog
    desk: Desk
    embedder: Embedder
    seed: int
    budget: Budget
    control: Control
    listen: Callable[[Event | CallProgress], None]
    turn: int = 0
    minute: float = 0.0
    silent_for: dict[str, int] = field(default_factory=dict)
    _started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._before = self.log.recorded.seconds

    def elapsed(self) -> float:
        """Return the seconds this session has run, those before a resume included."""
        return self._before + time.monotonic() - self._started

    def emit(self, kind: type[E], **fields: Any) -> E:
        """Add an event to the session and its log, and tell listeners."""
        event = kind(n=len(self.session.events), turn=self.turn, minute=round(self.minute, 4), **fields)
        self.log.event(event.model_dump(mode="json"))
        self.session.add(event)
        self.listen(event)
        return event

    def entity(
        self, kind: type[Entity], author: str, cites: list[str], asked_at: int | None = None, **fields: Any
    ) -> Any:
        """Emit an entity with its id, keeping only citations that hold.

        Args:
            kind: Its type.
            author: Who made it.
            cites: What it says led to it.
            asked_at: Events there were when its author was asked, if others have come since: it saw no later ones.
            fields: Its other fields.
        """
        name, entities = self.session.next_id(kind), self.session.entities
        visible = self.session.visible_ids(author)
        if asked_at is not None:
            visible = {cited for cited in cites if cited in visible and entities[cited].n < asked_at}
        checked = check_citations(cites, visible, entities, name)
        return self.emit(kind, id=name, author=author, cites=checked.kept, dropped=checked.dropped, **fields)

    def speak(self, text: str) -> None:
        """Let the session clock run for as long as the text takes to say."""
        self.minute += words(text) / WORDS_PER_MINUTE

    async def ask(self, predict: Any, purpose: str, role: str, speaker: str, **inputs: Any) -> Answer:
        """Make the call of this turn for a purpose and a speaker."""
        persona = self.session.personas.get(speaker)
        key = f"t{self.turn:04}/{purpose}/{speaker}"
        names = (persona.name,) if persona else ()
        return await self.desk.ask(predict, key, role, speaker, names, **inputs)

    def failed(self, purpose: str, speaker: str, answer: Answer) -> None:
        """Record that a speaker has no answer; refusals for want of budget do not count against it."""
        self.emit(Failure, key=f"t{self.turn:04}/{purpose}/{speaker}", speaker=speaker, error=answer.error)
        if not answer.refused:
            self.silent_for[speaker] = self.silent_for.get(speaker, 0) + 1

    def answered(self, speaker: str) -> None:
        """Forget the earlier failures of a speaker."""
        self.silent_for.pop(speaker, None)

    def reading(self, key: str, take: Callable[[], Any]) -> Any:
        """Return the recorded reading under a key, or take and record it (a JSON value)."""
        if not self._on_record(key):
            self.log.reading(key, take())
        return self.log.recorded.readings[key]

    async def slow_reading(self, key: str, take: Callable[[], Any]) -> Any:
        """Like ``reading``, for one that takes long: it is taken in a thread."""
        if not self._on_record(key):
            self.log.reading(key, await asyncio.to_thread(take))
        return self.log.recorded.readings[key]

    async def embed_ahead(self, texts: list[str]) -> None:
        """Embed texts in one batch, so that the readings that compare them one by one find them ready."""
        if texts and not self.desk.offline and not self.log.behind:
            await asyncio.to_thread(self.embedder.embed, texts)

    def _on_record(self, key: str) -> bool:
        known = key in self.log.recorded.readings
        if not known and self.desk.offline:
            raise LogError(
                "The session cannot be run over its log",
                f"it lacks the reading {key}",
                "Resume the session to take it; a log that was changed has to be started anew.",
            )
        return known

    def heard(self, key: str) -> str:
        """Return what the person said by this point without being asked, or an empty string."""
        if key not in self.log.recorded.readings and not self.desk.offline and not self.log.behind:
            said = self.control.taken()
            if said:
                self.log.reading(key, said)
        return str(self.log.recorded.readings.get(key, ""))

    def closing(self, ahead_calls: int) -> str:
        """Return why it is time to come to an end, or an empty string.

        A session that is run again decides by its record; it decides anew only where it was interrupted.

        Args:
            ahead_calls: How many calls one more turn and the vote will take.
        """
        wish, clock = f"t{self.turn:04}/wrap_up", f"t{self.turn:04}/clock"
        now = not self.log.behind and not self.desk.offline
        if now and self.control.wrap_up:
            self.reading(wish, lambda: True)
        if wish in self.log.recorded.readings:
            return WRAP_UP
        if clock in self.log.recorded.readings or (now and self.budget != Budget()):
            return str(self.reading(clock, lambda: self._clock(ahead_calls))["closing"])
        return ""

    def _clock(self, ahead_calls: int) -> dict[str, Any]:
        spent = self.desk.spent
        spent.seconds = self.elapsed()
        closing = self.budget.closing(spent, self.desk.account.ahead(ahead_calls, _STEPS))
        return {"seconds": round(spent.seconds, 3), "closing": closing}
