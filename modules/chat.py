"""A conversation with a person in the loop, driven from outside: say, sage, interject, save.

The session runs in a thread of its own with its own event loop; moves of the person go in through a queue,
events come out through one queue per move. So the same code holds scripted, simulated and live conversations.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
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

_END = object()


class Following:
    """The events that follow a move, as they happen; iterate it plainly or with ``async for``.

    It ends when the floor is the person's again. Events not yet read are kept.
    """

    def __init__(self) -> None:
        self._events: queue.Queue[Any] = queue.Queue()
        self._error: BaseException | None = None
        self._over = False

    def put(self, event: Event) -> None:
        """Add an event."""
        self._events.put(event)

    def close(self, error: BaseException | None = None) -> None:
        """Let iteration end after what is there, with an error if there is one."""
        self._error = error
        self._events.put(_END)

    def __iter__(self) -> Iterator[Event]:
        while not self._over:
            event = self._events.get()
            if event is _END:
                self._over = True
                if self._error is not None:
                    raise self._error
                return
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        events = iter(self)
        while (event := await asyncio.to_thread(next, events, None)) is not None:
            yield event


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
        self._moves: queue.Queue[tuple[dict[str, Any] | None, Following]] = queue.Queue()
        self._current = self.opening
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._lock = threading.RLock()
        context = contextvars.copy_context()
        target = self._held(program.hold(**arguments, control=self.control, listen=self._heard))
        self._thread = threading.Thread(target=context.run, args=(asyncio.run, target), name="salon-chat", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------- what the person does

    def say(self, text: str) -> Following:
        """Say something; return the events that follow, as they happen."""
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
        self._threshold: float | None = float(value)

    def interject(self, text: str) -> Following:
        """Cut in while experts speak: heard before the next speaker is chosen, cancelling pointless ratings.

        While nobody speaks this is the same as ``say``. Returns the events of the move it falls into.
        """
        with self._lock:
            if self._idle or self._current is self.opening:
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

    def save(self, folder: str | Path) -> None:
        """Write the log and the results so far into a folder; ``YesAnd.resume`` goes on from it.

        Raises:
            OutputError: If the folder holds a session already, or cannot be written.
        """
        if self.session is None:
            raise UserError("There is nothing to save yet", "the conversation has not begun")
        session, loop = self.session, self._loop
        if loop is None or self._done.is_set():
            session.save(folder)
            return

        async def saved() -> None:
            session.save(folder)

        asyncio.run_coroutine_threadsafe(saved(), loop).result()  # where nobody else changes the session

    def close(self) -> Session:
        """End the conversation and return its session."""
        with self._lock:
            if not self._done.is_set():
                self._moves.put((None, Following()))
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self.session is not None
        return self.session

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._done.is_set():
            self.close()

    # ---------------------------------------------------------------- the session's side

    _threshold: float | None = None
    _idle = False
    _loop: asyncio.AbstractEventLoop | None = None

    def _move(self, move: dict[str, Any]) -> Following:
        with self._lock:
            if self._done.is_set():
                raise self._error or UserError("The conversation is over", "it was closed", "Open or resume one.")
            if self._threshold is not None:
                move["threshold"], self._threshold = self._threshold, None
            following = Following()
            self._moves.put((move, following))
            self._idle = False
            return following

    async def _next_move(self, session: Session) -> dict[str, Any] | None:
        """Give the session the person's next move: called when the floor is the person's."""
        self._loop = asyncio.get_running_loop()
        with self._lock:  # words that came in this moment are the next move
            self.session = session
            if pending := self.control.taken():
                return {"text": pending}
            self._idle = self._moves.empty()
            self._current.close()
        move, following = await asyncio.to_thread(self._moves.get)
        with self._lock:
            self._idle, self._current = False, following
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
                while not self._moves.empty():
                    self._moves.get()[1].close(self._error)
