"""A conversation with a person in the loop, driven from outside: say, sage, interject, save.

The session runs in a thread of its own with its own event loop. Moves of the person wait in a queue until the
floor is the person's; events come out move by move. So the same code holds scripted, simulated and live
conversations.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from salon.errors import UserError

from .calls import CallProgress
from .control import Control
from .events import Event
from .names import named
from .session import Session

if TYPE_CHECKING:
    from .yes_and import YesAnd

__all__ = ["Chat", "Following"]

_LOOK_AGAIN = 0.02  # seconds between looks for new events in ``async for``


class Following:
    """The events that follow a move, as they happen; iterate it plainly or with ``async for``.

    Iteration ends when the floor is the person's again. Each reader gets all events from the first.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._error: BaseException | None = None
        self._over = False
        self._news = threading.Condition()

    def put(self, event: Event) -> None:
        """Add an event."""
        with self._news:
            self._events.append(event)
            self._news.notify_all()

    def close(self, error: BaseException | None = None) -> None:
        """Let iteration end after what is there, with an error if there is one."""
        with self._news:
            if not self._over:
                self._error, self._over = error, True
            self._news.notify_all()

    def __iter__(self) -> Iterator[Event]:
        at = 0
        while True:
            with self._news:
                self._news.wait_for(lambda at=at: at < len(self._events) or self._over)  # type: ignore[misc]
                if at >= len(self._events):
                    break
                event = self._events[at]
            yield event
            at += 1
        if self._error is not None:
            raise self._error

    async def __aiter__(self) -> AsyncIterator[Event]:
        at = 0
        while at < len(self._events) or not self._over:
            if at >= len(self._events):
                await asyncio.sleep(_LOOK_AGAIN)
                continue
            yield self._events[at]
            at += 1
        if self._error is not None:
            raise self._error


class Chat:
    """A live conversation; made by ``YesAnd.open``.

    Args:
        program: The program that holds it.
        arguments: Arguments of ``hold``: ``problem``, ``seed``, ``out``, ``budget``, ``recorded``...
        listen: Told of every event and call, from the session's thread.
    """

    def __init__(
        self,
        program: YesAnd,
        arguments: dict[str, Any],
        listen: Callable[[Event | CallProgress], None] | None = None,
    ) -> None:
        program.checked({name: arguments[name] for name in program.inputs if name in arguments})
        self.program = program
        self.control = Control(person=self._next_move, interactive=True)
        self.session: Session | None = None
        self.opening = Following()
        self._listen = listen
        self._moves: deque[tuple[dict[str, Any] | None, Following]] = deque()
        self._current = self.opening
        self._threshold: float | None = None
        self._idle = False
        self._bell: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._error: BaseException | None = None
        self._told = False
        self._done = threading.Event()
        self._lock = threading.RLock()
        context = contextvars.copy_context()
        target = self._held(program.hold(**arguments, control=self.control, listen=self._heard))
        self._thread = threading.Thread(target=context.run, args=(asyncio.run, target), name="salon-chat", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------- what the person does

    def say(self, text: str) -> Following:
        """Say something; return the events that follow, as they happen.

        Raises:
            UserError: If the conversation is over, or ``text`` is no text.
        """
        if not isinstance(text, str):
            raise UserError(f"{text!r} cannot be said", "a text is needed")
        return self._move({"text": text})

    def sage(self) -> Following:
        """Have the Sage sum up; return the events that follow."""
        return self._move({"text": "/sage"})

    def ask(self, expert: str) -> Following:
        """Give an expert the floor by name; return the events that follow.

        Raises:
            UserError: If no expert has that name.
        """
        if self.session is not None and not self.knows(expert):
            raise UserError(f"There is no expert {expert!r}", f"there are {', '.join(self.experts())}")
        return self._move({"text": f"/ask {expert}"})

    def set_threshold(self, value: float) -> None:
        """Change the confidence from which experts speak, from the next move on.

        Raises:
            UserError: If it is not a number from 0 to 10.
        """
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10:
            raise UserError(f"A threshold of {value!r} is not possible", "it is a number from 0 to 10")
        self._threshold = float(value)

    def interject(self, text: str) -> Following:
        """Cut in while experts speak: heard before the next speaker is chosen, cancelling pointless ratings.

        While nobody speaks this is the same as ``say``. Returns the events of the move it falls into.
        """
        with self._lock:
            if self._idle or self._done.is_set() or self._current is self.opening:
                return self.say(text)
            self.control.interject(text)
            return self._current

    def experts(self) -> list[str]:
        """Return what the experts are called."""
        return [self.session.label(p) for p in self.session.seated] if self.session else []

    def knows(self, name: str) -> bool:
        """Say whether a text names an expert."""
        labels = {p: self.session.label(p) for p in self.session.seated} if self.session else {}
        return bool(named(name, labels))

    @property
    def over(self) -> bool:
        """Whether the conversation has ended."""
        return self._done.is_set()

    def save(self, folder: str | Path) -> None:
        """Write the log and the results so far into a folder; ``YesAnd.resume`` goes on from it.

        Raises:
            OutputError: If the folder holds a session already, or cannot be written.
        """
        if self.session is None:
            raise UserError("There is nothing to save yet", "the conversation has not begun")
        session, bell = self.session, self._bell
        if bell is None or self._done.is_set():
            session.save(folder)
            return

        async def saved() -> None:
            session.save(folder)

        asyncio.run_coroutine_threadsafe(saved(), bell[0]).result()  # where nobody else changes the session

    def close(self) -> Session:
        """End the conversation, after what is under way, and return its session."""
        with self._lock:
            if not self._done.is_set():
                self._enqueue(None)
        self._thread.join()
        if self._error is not None:
            self._told = True
            raise self._error
        assert self.session is not None
        return self.session

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the chat; an error of the block goes before one of the session."""
        try:
            if not self._told:
                self.close()
        except BaseException:
            if kind is None:
                raise

    # ---------------------------------------------------------------- the session's side

    def _move(self, move: dict[str, Any]) -> Following:
        with self._lock:
            if self._done.is_set():
                self._told = True
                raise self._error or UserError("The conversation is over", "it was closed", "Open or resume one.")
            if self._threshold is not None:
                move["threshold"], self._threshold = self._threshold, None
            return self._enqueue(move)

    def _enqueue(self, move: dict[str, Any] | None) -> Following:
        following = Following()
        self._moves.append((move, following))
        self._idle = False
        if self._bell is not None:
            loop, bell = self._bell
            loop.call_soon_threadsafe(bell.set)
        return following

    async def _next_move(self, session: Session) -> dict[str, Any] | None:
        """Give the session the person's next move: called when the floor is the person's."""
        bell = asyncio.Event()
        with self._lock:  # words that came in this moment are the next move
            self._bell = (asyncio.get_running_loop(), bell)
            self.session = session
            if pending := self.control.taken():
                return {"text": pending}
            self._idle = not self._moves
            self._current.close()
        while not self._moves:
            await bell.wait()
        with self._lock:
            move, self._current = self._moves.popleft()
            self._idle = False
        return move

    def _heard(self, item: Event | CallProgress) -> None:
        if isinstance(item, Event):
            self._current.put(item)
        if self._listen is not None:
            self._listen(item)

    async def _held(self, session: Any) -> None:
        try:
            self.session = await session
        except BaseException as error:
            self._error = error
        finally:
            with self._lock:
                self._done.set()
                self._current.close(self._error)
                for _, following in self._moves:
                    following.close(self._error)
