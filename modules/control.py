"""How someone outside steers a running session: wrap it up, speak, cut in. Safe to use from any thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Control", "PersonSource"]

PersonSource = Callable[[Any], "str | dict[str, Any] | Awaitable[str | dict[str, Any] | None] | None"]


@dataclass
class Control:
    """Wishes of whoever runs a session.

    Attributes:
        wrap_up: Set it to end the phase and vote on what is there.
        person: Asked for the person's next move in a conversation, with the session; None ends it.
        interactive: Whether a person is really there: then the Sage does not sum up unasked at the end.
    """

    wrap_up: bool = False
    person: PersonSource | None = None
    interactive: bool = False
    _said: deque[str] = field(default_factory=deque)
    _bell: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def interject(self, text: str) -> None:
        """Say something without being asked; it is heard before the next speaker is chosen."""
        if text.strip():
            self._said.append(text)
            if self._bell is not None:
                loop, event = self._bell
                loop.call_soon_threadsafe(event.set)

    def taken(self) -> str | None:
        """Take the oldest words not heard yet."""
        return self._said.popleft() if self._said else None

    async def spoken(self) -> None:
        """Wait until there are words not heard yet."""
        event = asyncio.Event()
        self._bell = (asyncio.get_running_loop(), event)
        try:
            if not self._said:
                await event.wait()
        finally:
            self._bell = None
