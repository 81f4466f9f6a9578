"""Whole sessions against a chat server whose replies are scripted by kind of call and persona."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy
import hypothesis
import numpy as np
import pytest
from salon.modules import Embedder, Roundtable, Session
from salon.signatures import Persona

from salon.testing import ChatRequest, Fault, LoopbackServer

hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

KINDS = {
    "thought": "think", "comment": "speak", "title": "propose", "votes": "vote", "action": "facilitate",
    "summary": "summarise", "people": "cast", "sketch": "sketch",
}  # fmt: skip


class Words(Embedder):
    """Bags of words, hashed: equal texts are equal, texts without a common word are far apart."""

    def __init__(self) -> None:
        super().__init__("words")

    def _encoder(self) -> Callable[[list[str]], Any]:
        return lambda texts: np.stack([self._vector(text) for text in texts])

    def _vector(self, text: str) -> Any:
        vector = np.zeros(2048, dtype=np.float32)
        for word in text.lower().split():
            vector[zlib.crc32(word.encode("utf-8", "replace")) % 2048] += 1
        return vector


@dataclass(frozen=True)
class Call:
    """One call as a script sees it.

    Attributes:
        kind: think, speak, propose, vote, facilitate, summarise, cast or sketch.
        who: Id of the persona it is for; empty for the facilitator and the cast.
        nth: How many calls of this kind and persona there were, this one included.
        text: The prompt.
        model: The model asked.
    """

    kind: str
    who: str
    nth: int
    text: str
    model: str = ""


@dataclass
class Script:
    """Replies by kind of call: a value, or a function of the call; what is not scripted is plain."""

    replies: Mapping[str, Any]
    calls: list[Call] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __call__(self, request: ChatRequest) -> dict[str, Any] | str | Fault:
        kind = next(kind for name, kind in KINDS.items() if name in request.fields)
        own = request.text.rpartition("[[ ## persona ## ]]")[2]
        seat = re.search(r"Sketch of seat (P\d+)\.", own)
        who = seat[1] if seat else ""
        self.counts[kind, who] += 1
        call = Call(kind, who, self.counts[kind, who], request.text, str(request.body.get("model")))
        self.calls.append(call)
        reply = self.replies.get(kind, {})
        reply = reply(call) if callable(reply) else reply
        return {**self.plain(call), **reply} if isinstance(reply, dict) else reply

    def plain(self, call: Call) -> dict[str, Any]:
        """Return what is answered where the script says nothing."""
        mark = f"{call.who}x{call.nth}"
        plain: dict[str, dict[str, Any]] = {
            "think": {"thought": f"Thought-{mark}.", "cites": [], "eagerness": 5, "wants": "comment"},
            "speak": {"comment": f"Remark-{mark} is made.", "cites": [], "nominates": ""},
            "propose": {"title": f"title-{mark}", "description": f"a{mark} b{mark} c{mark}", "cites": []},
            "vote": {"reason": f"reason-{mark}", "votes": []},
            "facilitate": {"reason": "all is well", "action": "no_action", "target": "", "message": ""},
            "summarise": {"summary": f"Summary-{mark}."},
            "cast": {"people": [{"name": f"Guest{n}", "role": f"role{n}"} for n in range(1, 4)]},
            "sketch": {"sketch": f"sketch{call.nth} by{call.nth} itself{call.nth}"},
        }
        return plain[call.kind]


@dataclass
class Held:
    """A session that was held, and what was asked for it."""

    session: Session
    calls: list[Call]
    server: LoopbackServer
    program: Roundtable

    def asked(self, kind: str, who: str | None = None) -> list[Call]:
        """Return the calls of a kind, of all or of one persona."""
        return [call for call in self.calls if call.kind == kind and who in (None, call.who)]

    def events(self, kind: str) -> list[Any]:
        """Return the events of a type, in order."""
        return [event for event in self.session.events if event.type == kind]  # type: ignore[attr-defined]

    @property
    def phases(self) -> list[str]:
        """The phases, in order."""
        return [event.phase for event in self.events("phase")]


def people(*names: str) -> list[Persona]:
    return [Persona(name=name, sketch=f"Sketch of seat P{n}.") for n, name in enumerate(names, 1)]


@pytest.fixture
def hold() -> Callable[..., Held]:
    """Hold a session.

    Called with names (or a number of personas to invent), replies by kind of call, and settings of the
    ``Roundtable``; ``tuned`` sets its other tunables, ``server`` has settings of the ``LoopbackServer``.
    """

    def held(
        names: Sequence[str | Persona] | int = ("Ann", "Bo", "Cy"),
        replies: Mapping[str, Any] | None = None,
        *,
        topic: str = "Tea",
        seed: int = 0,
        tuned: Mapping[str, float] | None = None,
        server: Mapping[str, Any] | None = None,
        hold: Mapping[str, Any] | None = None,
        lms: Callable[[LoopbackServer], Any] | None = None,
        **settings: Any,
    ) -> Held:
        script = Script(replies or {})
        cast = names
        if not isinstance(names, int):
            cast = [n if isinstance(n, Persona) else p for n, p in zip(names, people(*map(str, names)), strict=True)]
        defaults = {"minutes": None, "turns": 2, "facilitator": False, "embedder": Words()}
        with LoopbackServer(reply=script, **(server or {})) as loopback:
            given = {**defaults, **settings, **({"lms": lms(loopback)} if lms else {})}
            program = Roundtable(personas=cast, **given)
            for name, value in (tuned or {}).items():
                getattr(program, name).value = value
            with dspy.context(lm=loopback.lm(num_retries=0)):
                session = asyncio.run(program.hold(topic=topic, seed=seed, **(hold or {})))
        return Held(session, script.calls, loopback, program)

    return held
