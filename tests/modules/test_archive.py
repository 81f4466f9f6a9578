"""Recorded sessions read from their logs alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dspy
import pytest
from salon.modules.archive import read_session
from salon.modules.log import LOG_NAME, read_log

from salon import Budget, Debate, LogError, OutputError, Session, YesAnd, replay
from salon.testing import LoopbackServer

PEOPLE = [{"name": "Ada", "sketch": "Ada mends bicycles."}, {"name": "Bo", "sketch": "Bo nurses at night."}]


@pytest.fixture(params=["Roundtable", "Debate", "YesAnd", "cut short"])
def folder(
    request: pytest.FixtureRequest, roundtable: Callable[..., Any], loopback: LoopbackServer, tmp_path: Path
) -> Path:
    """A session of each program, and one that ran out of its budget."""
    place = tmp_path / "run"
    with dspy.context(lm=loopback.lm()):
        match request.param:
            case "Roundtable":
                roundtable()(topic="Ice", out=place)
            case "cut short":
                roundtable()(topic="Ice", out=place, budget=Budget(calls=6))
            case "Debate":
                Debate(agents=3, rounds=1, k=1)(task="Ice", out=place)
            case "YesAnd":
                YesAnd(experts=PEOPLE, threshold=3)(problem="Ice", person=["Hello", "/sage"], out=place)
    return place


def same(one: Session, two: Session) -> bool:
    return one == two and one.ideas == two.ideas and one.lineage == two.lineage and one.personas == two.personas


def test_what_is_read_is_what_a_replay_gives(folder: Path) -> None:
    session = read_session(folder)
    assert same(session, replay(folder))
    assert session.log == read_log(folder)
    assert session.folder == folder
    assert session.status in ("complete", "cut short")
    assert session.usage.calls == len([c for c in read_log(folder).calls.values() if c["calls"]])


def test_an_interrupted_session_is_read_as_far_as_it_came(folder: Path, tmp_path: Path) -> None:
    whole = read_session(folder)
    lines = (folder / LOG_NAME).read_bytes().splitlines(keepends=True)
    part = tmp_path / "part"
    part.mkdir()
    calls = 0
    for at in range(1, len(lines)):
        (part / LOG_NAME).write_bytes(b"".join(lines[:at]) + lines[at][:7])
        session = read_session(part)
        assert (session.status, session.reason) == ("running", "its log has no end")
        assert session.events == whole.events[: len(session.events)]
        assert session.usage.calls >= calls
        calls = session.usage.calls
    assert session.events == whole.events
    spent, known = asdict(session.usage), asdict(whole.usage)
    assert {**spent, "seconds": 0} == {**known, "seconds": 0}
    assert 0 < session.usage.seconds <= whole.usage.seconds


def test_a_folder_without_a_session_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="There is no session"):
        read_session(tmp_path)
    (tmp_path / LOG_NAME).write_bytes(b"")
    with pytest.raises(LogError, match="holds no session"):
        read_session(tmp_path)
