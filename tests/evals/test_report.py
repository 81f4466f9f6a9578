"""The report of a session as text: what it shows of roundtables, debates and conversations, and how large it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import dspy
import pytest
from salon.evals.pages import render_page
from salon.evals.report import session_page, write_report
from salon.evals.report_costs import costs
from salon.evals.report_measures import KNOWN
from salon.evals.report_rerun import rerun_command, rerun_python
from salon.evals.report_talk import turns_of
from salon.modules import Session
from salon.modules.archive import read_session
from salon.modules.events import Declined, Distinctness, Failure, Left
from salon.modules.measures import Measures

from salon import Debate, YesAnd
from salon.testing import ChatRequest, LoopbackServer, default_reply

pytestmark = pytest.mark.usefixtures("quick_embeddings")


def page_of(session: Session) -> str:
    return render_page("report.html.j2", **session_page(session))


def words_of(page: str) -> str:
    body = re.sub(r"<style>.*?</style>|<script.*?</script>", "", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def held(program: Any, reply: Any = None, **inputs: Any) -> Session:
    with LoopbackServer(reply=reply) as server, dspy.context(lm=server.lm(num_retries=0)):
        session: Session = program(**inputs).session
    return session


def with_events(session: Session, *events: Any) -> Session:
    extra = [event(n=len(session.events) + n, turn=1, minute=0.5) for n, event in enumerate(events)]
    return Session(session.header, [*session.events, *extra], session.status, session.reason, session.usage)


def test_a_roundtable_is_told_in_full(roundtable: Callable[..., Any], tmp_path: Path) -> None:
    session = held(roundtable(), topic="Tea & <biscuits>", seed=3)
    page = page_of(session)
    words = words_of(page)
    assert "Tea & <biscuits>" in words
    for idea in session.ideas:
        assert idea.title in words
        assert f'data-lineage="{idea.id}"' in page
    for name, persona in session.personas.items():
        assert persona.sketch in words
        assert f"spoke {session.contributions[name]}×" in words
    for name in session.entities:
        assert f'data-id="{name}"' in page
        assert len(re.findall(rf'id="{name}"(?! data-l)', page.replace(f'data-id="{name}"', ""))) == 1
    for anchor in re.findall(r'href="#([A-Z]\d+)"', page):
        assert anchor in session.entities
    assert "Ideas, as planned and as they came" in words
    assert "Who spoke in which turn" in words
    assert "salon brainstorm 'Tea & <biscuits>' --turns 2" in words
    assert "private thoughts" in words


def test_a_debate_shows_its_answers_and_how_different_they_were() -> None:
    def reply(request: ChatRequest) -> Any:
        plain = default_reply(request)
        return {**plain, "choice": 1} if "choice" in request.fields else plain

    session = held(Debate(agents=3, rounds=1, k=1), reply, task="A use for umbrellas")
    words = words_of(page_of(session))
    for text in (
        "Distance of the answers by round",
        "Answers of round 1",
        "was shown",
        "The judge chose the answer of",
    ):
        assert text in words
    assert rerun_command(session).startswith("salon debate 'A use for umbrellas' --agents 3 --rounds 1 --k 1")


def test_a_conversation_shows_the_confidence_of_its_experts() -> None:
    def reply(request: ChatRequest) -> Any:
        plain = default_reply(request)
        return {**plain, "confidence": 8} if "confidence" in request.fields else plain

    session = held(YesAnd(), reply, problem="Recall mail", person=["hello", "/sage"])
    words = words_of(page_of(session))
    assert "Confidence of the experts" in words
    assert "speaks from 7" in words
    assert "hello" in words
    assert rerun_command(session).startswith("salon chat 'Recall mail' --threshold 7")


def test_a_report_reads_an_interrupted_session(roundtable: Callable[..., Any], tmp_path: Path) -> None:
    with LoopbackServer() as server, dspy.context(lm=server.lm()):
        roundtable()(topic="Tea", out=tmp_path / "run")
    log = tmp_path / "run" / "session.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    for count in (1, 2, len(lines) // 2, len(lines) - 1):
        log.write_text("".join(lines[:count]))
        write_report([read_session(tmp_path / "run")], tmp_path / "report.html")
        assert "running" in words_of((tmp_path / "report.html").read_text())


def test_trouble_is_shown(made: Callable[..., Session]) -> None:
    session = with_events(
        made(["Ann", "Bo"], [("comment", 1, "Hello", [])]),
        lambda **place: Failure(key="t0001/speak/P2", speaker="P2", error="timed <out>", **place),
        lambda **place: Left(persona="P2", reason="3 failures", **place),
        lambda **place: Declined(expert="P1", **place),
        lambda **place: Distinctness(
            personas=["P1", "P2"], matrix=[[1, 0.95], [0.95, 1]], too_close=[("P1", "P2")], **place
        ),
    )
    words = words_of(page_of(session))
    for text in ("timed <out>", "left: 3 failures", "has nothing to add", "Too close: Ann and Bo", "0.95"):
        assert text in words


def test_an_empty_session_has_a_page(made: Callable[..., Session]) -> None:
    for session in (made([], []), made(["Ann"], [])):
        words = words_of(page_of(session))
        assert "No idea came up." in words
        assert "undefined:" in words


def test_votes_that_follow_a_ballot_are_one_entry(made: Callable[..., Session]) -> None:
    said = [("idea", 1, "one", []), ("idea", 1, "two", []), ("vote", 2, "good", ["I1"]), ("vote", 2, "good", ["I2"])]
    entries = [entry for turn in turns_of(made(["Ann", "Bo"], said)) for entry in turn.entries]
    votes = [entry for entry in entries if entry.kind == "votes"]
    assert [[item.text for item in entry.items] for entry in votes] == [["I1", "I2"]]


def test_every_measure_has_a_label() -> None:
    assert set(Measures.__dataclass_fields__) - {"undefined"} <= set(KNOWN)


def test_costs_add_up(roundtable: Callable[..., Any]) -> None:
    session = held(roundtable(), topic="Tea")
    for rows in costs(session).values():
        assert sum(row.usage.calls for row in rows) == session.usage.calls
        assert sum(row.usage.tokens for row in rows) == session.usage.tokens


def test_the_python_lines_hold_the_same_session(roundtable: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "run"
    with LoopbackServer() as server, dspy.context(lm=server.lm()):
        roundtable()(topic="Tea", seed=5, out=out)
        code = re.sub(r"^program\.lms = .*$", "", rerun_python(read_session(out)), flags=re.MULTILINE)
        scope: dict[str, Any] = {}
        exec(code, scope)
    assert [event.model_dump() for event in scope["result"].session.events] == [
        event.model_dump() for event in read_session(out).events
    ]


def test_keys_never_show(made: Callable[..., Session], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecretkey123")
    session = held(Debate(agents=2, rounds=0), task="x")
    assert "loopback" in page_of(session)
    assert "verysecret" not in page_of(session)


def test_a_session_of_2000_events_stays_under_2_megabytes(gathering: Callable[..., Session], tmp_path: Path) -> None:
    session = gathering(141)
    assert len(session.events) > 2000
    write_report([session], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 2_000_000


def test_a_comparison_puts_sessions_side_by_side(gathering: Callable[..., Session], tmp_path: Path) -> None:
    folder = tmp_path / "javascript:alert(1)"
    folder.mkdir()
    (folder / "report.html").write_text("")
    first, second = gathering(3), gathering(1, ["Ann", "Bo"])
    first.folder = folder
    write_report([first, second], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    words = words_of(page)
    assert 'href="./javascript%3Aalert%281%29/report.html"' in page
    for session in (first, second):
        assert session.ideas[0].title in words
    assert "Influence depth" in words
    assert "Model calls" in words
