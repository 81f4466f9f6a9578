"""The report of a session of 2,000 events: seconds to build the page, the embedding model loaded, and its size."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from salon.evals.report import write_report
from salon.modules.events import Comment, Event, Idea, Joined, Phase, Thought, Vote
from salon.modules.session import Session

from .material import people, warm_embedder

PERSONAS = 13
EVENTS = 2000
_SAID = "What if it told me only what I asked for, and forgot it again before anybody else could read along?"


def measure() -> dict[str, str]:
    """Return figures by name."""
    session, embedder = _session(), warm_embedder()
    session.measures(embedder)  # embeds the ideas, which is not what is measured
    with tempfile.TemporaryDirectory() as place:
        page = Path(place) / "report.html"
        write_report([session], page, embedder)
        start = time.perf_counter()
        write_report([session], page, embedder)
        seconds, size = time.perf_counter() - start, page.stat().st_size
    return {
        f"report of {len(session.events)} events, s (under 3)": f"{seconds:.2f}",
        f"report of {len(session.events)} events, size (under 2 MB)": f"{size / 1e6:.2f} MB",
    }


def _session() -> Session:
    """Return a session of so many events: turns of thoughts and a remark, then ideas and votes."""
    draw = random.Random(1)
    cast = people(PERSONAS)
    program = {"name": "Roundtable", "settings": {}, "state": {"ideation_minutes": {"value": 10.0}, **_PLAN}}
    header = {
        "program": program, "settings": {}, "inputs": {"topic": "AI smart glasses"}, "seed": 1,
        "models": {}, "packages": {}, "started": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    session = Session(header, status="complete")

    def add(kind: type[Event], **content: object) -> None:
        turn = len(session.events) // (PERSONAS + 1)
        session.add(kind(n=len(session.events), turn=turn, minute=turn * 0.3, **content))

    def say(kind: type[Thought | Comment | Idea | Vote], author: int, **content: object) -> None:
        seen = list(session.entities)[-40:]
        cites = content.pop("cites", None) or draw.sample(seen, min(len(seen), draw.randint(0, 3)))
        add(kind, id=session.next_id(kind), author=f"P{author + 1}", cites=cites, **content)

    for n, persona in enumerate(cast, 1):
        add(Joined, persona=f"P{n}", name=persona.name, label=persona.name, role=persona.role, sketch=persona.sketch)
    add(Phase, phase="discussion", reason="it began")
    while len(session.events) < EVENTS - 8 * PERSONAS:
        for author in range(PERSONAS):
            say(Thought, author, text=_SAID, eagerness=draw.randint(0, 10), wants="comment")
        say(Comment, draw.randrange(PERSONAS), text=f"{_SAID} {_SAID}")
    add(Phase, phase="ideation", reason="time is up")
    for author in [*range(PERSONAS)] * 2:
        number = len(session.board) + 1
        say(Idea, author, title=f"Idea number {number}", description=f"Number {number}. {_SAID}")
    add(Phase, phase="voting", reason="all ideas are there")
    while len(session.events) < EVENTS:
        idea = draw.choice(session.board).id
        say(Vote, draw.randrange(PERSONAS), idea=idea, origin="ballot", reason=_SAID, cites=[idea])
    return session


_PLAN = {name: {"value": value} for name, value in (("minutes", 40.0), ("ideas", 2), ("votes", 5))}
