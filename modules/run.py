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

from .budget import Budget, Usage
from .calls import Answer, CallProgress, Desk
from .embedding import Embedder
from .events import Entity, Event, Failure
from .lineage import check_citations
from .log import SessionLog
from .session import Session
from .text import words

__all__ = ["WORDS_PER_MINUTE", "WRAP_UP", "Control", "Run"]

WORDS_PER_MINUTE = 150
WRAP_UP = "asked to wrap up"
E = TypeVar("E", bound=Event)


@dataclass
class Control:
    """How someone outside steers a running session.

    Attributes:
        wrap_up: Set it to end the phase and vote on what is there.
    """

    wrap_up: bool = False


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
        self._before = max(
            (v["seconds"] for k, v in self.log.recorded.readings.items() if k.endswith("/clock")), default=0.0
        )

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

    def entity(self, kind: type[Entity], author: str, cites: list[str], **fields: Any) -> Any:
        """Emit an entity with its id, keeping only citations that hold."""
        name = self.session.next_id(kind)
        checked = check_citations(cites, self.session.visible_ids(author), self.session.entities, name)
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
        readings = self.log.recorded.readings
        if key not in readings:
            self.log.reading(key, take())
        return readings[key]

    async def slow_reading(self, key: str, take: Callable[[], Any]) -> Any:
        """Like ``reading``, for one that takes long: it is taken in a thread."""
        readings = self.log.recorded.readings
        if key not in readings:
            self.log.reading(key, await asyncio.to_thread(take))
        return readings[key]

    def closing(self, ahead_calls: int) -> str:
        """Return why it is time to come to an end, or an empty string.

        Args:
            ahead_calls: How many calls one more turn and the vote will take.
        """
        if self.reading_if(f"t{self.turn:04}/wrap_up", self.control.wrap_up):
            return WRAP_UP
        if self.budget == Budget():
            return ""
        key = f"t{self.turn:04}/clock"
        return str(self.reading(key, lambda: self._clock(ahead_calls))["closing"])

    def reading_if(self, key: str, now: bool) -> bool:
        """Record a wish from outside once it is made; return whether it was made by this point."""
        if now and key not in self.log.recorded.readings:
            self.log.reading(key, True)
        return key in self.log.recorded.readings

    def _clock(self, ahead_calls: int) -> dict[str, Any]:
        seconds = self.elapsed()
        spent, mean = self.desk.spent, self.desk.mean_call()
        spent.seconds = seconds
        ahead = Usage(
            calls=ahead_calls,
            prompt_tokens=ahead_calls * mean.prompt_tokens,
            completion_tokens=ahead_calls * mean.completion_tokens,
            usd=ahead_calls * mean.usd,
        )
        return {"seconds": round(seconds, 3), "closing": self.budget.closing(spent, ahead)}
