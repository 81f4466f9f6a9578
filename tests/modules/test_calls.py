"""Calls: who speaks through which LM, in which format, and what becomes of calls that fail."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
from salon.modules.adapters import ADAPTERS, format_of
from salon.modules.answers import Answer
from salon.modules.budget import Budget
from salon.modules.calls import CallProgress, Desk, LMs
from salon.modules.events import Comment, Failure, Idea, Left, Vote
from salon.modules.log import Recorded, SessionLog, read_log

from salon import Roundtable, Session, replay, resume
from salon.errors import CallFailure, LMSetupError, LogError, OutputError
from salon.testing import ChatRequest, Fault, LoopbackServer, default_reply

TOPIC = "Bicycles for winter"
Make = Callable[..., Roundtable]


def hold(program: Roundtable, lm: Any, **arguments: Any) -> Session:
    with dspy.context(lm=lm):
        session: Session = program(**{"topic": TOPIC, "seed": 3, **arguments}).session
    return session


def events(session: Session, kind: type[Any]) -> list[Any]:
    return [event for event in session.events if isinstance(event, kind)]


def says(request: ChatRequest, name: str) -> bool:
    """Whether a request is a persona's own."""
    return f"You are {name}." in request.text


# Which LM


@pytest.fixture
def three(loopback: LoopbackServer) -> Iterator[tuple[LoopbackServer, LoopbackServer, LoopbackServer]]:
    with LoopbackServer() as second, LoopbackServer() as third:
        yield loopback, second, third


def test_roles_and_personas_have_lms_of_their_own(
    roundtable: Make, three: tuple[LoopbackServer, LoopbackServer, LoopbackServer], tmp_path: Path
) -> None:
    people, chair, ada = three
    lms = {"participant": people.lm(), "facilitator": chair.lm(), "Ada": ada.lm()}
    session = roundtable(lms=lms)(topic=TOPIC, out=tmp_path).session
    assert session.status == "complete"
    assert people.count
    assert chair.count
    assert all(says(request, "Ada") for request in ada.requests)
    assert not any(says(request, "Ada") for request in people.requests)
    assert all("You facilitate." in r.text or "Sum up" in r.text for r in chair.requests)
    assert session.usage.calls == sum(server.count for server in three)
    calls = read_log(tmp_path).calls
    assert {call["model"] for call in calls.values() if call["speaker"] == "P1"} == {f"openai/{ada.model}"}
    models = {who: model["model"] for who, model in session.header["models"].items()}
    assert models == {who: lm.model for who, lm in lms.items()}


def test_a_persona_is_found_by_id_too_and_more_exactly_than_by_role(
    roundtable: Make, three: tuple[LoopbackServer, LoopbackServer, LoopbackServer]
) -> None:
    people, _, bo = three
    hold(roundtable(lms={"P2": bo.lm()}), people.lm())
    assert bo.requests
    assert all(says(request, "Bo") for request in bo.requests)
    assert not any(says(request, "Bo") for request in people.requests)


def test_predictors_can_have_lms_of_their_own(
    roundtable: Make, three: tuple[LoopbackServer, LoopbackServer, LoopbackServer], tmp_path: Path
) -> None:
    """As in any DSPy program; LMs that are named for the session go before, DSPy's current one after them."""
    others, thinking, ada = three
    program = roundtable(lms={"Ada": ada.lm()})
    program.set_lm(others.lm())
    program.think.lm = thinking.lm()
    session = program(topic=TOPIC, out=tmp_path).session
    assert session.status == "complete"
    assert all("Think to yourself" in request.text for request in thinking.requests)
    assert not any("Think to yourself" in request.text for request in others.requests)
    assert all(says(request, "Ada") for request in ada.requests)
    assert all(server.count for server in three)
    assert session.header["predictors"]["think"]["model"] == f"openai/{thinking.model}"
    calls = read_log(tmp_path).calls
    assert calls["t0001/think/P2"]["model"] == f"openai/{thinking.model}"
    assert calls["t0001/think/P1"]["model"] == f"openai/{ada.model}"


def test_without_any_lm_there_is_no_session() -> None:
    with pytest.raises(LMSetupError, match=r"No language model is set: .*salon\.lm\(\)"):
        LMs().of("participant", "P1")
    assert LMs(named={"P1": 1}).of("participant", "P1") == 1
    assert LMs(default=2).of("participant", "P1") == 2
    assert LMs(default=2).of("participant", "P1", own=3) == 3


def test_the_lm_of_the_context_is_used_and_nothing_is_configured(
    roundtable: Make,
    three: tuple[LoopbackServer, LoopbackServer, LoopbackServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a library must not configure DSPy")

    outer, inner, _ = three
    monkeypatch.setattr(type(dspy.settings), "configure", refuse)
    with dspy.context(lm=outer.lm()):
        hold(roundtable(), inner.lm())
        assert dspy.settings.lm.model == f"openai/{outer.model}"
    assert inner.count
    assert not outer.count
    assert dspy.settings.lm is None
    assert dspy.settings.adapter is None


# Answer formats


@pytest.mark.parametrize(
    ("supports", "used"),
    [((), "chat"), (("json_object",), "json"), (("json_schema", "json_object"), "bounded")],
)
def test_the_format_is_lowered_to_what_the_server_takes_and_noted(
    roundtable: Make, tmp_path: Path, supports: tuple[str, ...], used: str
) -> None:
    with LoopbackServer(supports=supports) as server:
        lm = server.lm()
        session = hold(roundtable(), lm, out=tmp_path)
        kinds = [request.body.get("response_format", {}).get("type") for request in server.requests]
        first = server.count
        hold(roundtable(), lm, seed=4)
        assert server.count - first < first or used == "bounded"  # known by now: nothing is refused any more
    assert session.status == "complete"
    assert format_of(lm) == used
    calls = read_log(tmp_path).calls
    assert {call["format"] for call in calls.values()} == {used}
    assert {call["status"] for call in calls.values()} == {"ok"}
    assert session.usage.calls == len(calls)
    refused = [kind for kind in kinds if kind is not None and kind not in supports]
    assert len(kinds) == len(calls) + len(refused)
    assert len(refused) <= 2 * 4 + 4  # by those that were in flight at the start alone


def test_a_schema_whose_bounds_are_refused_is_sent_without(roundtable: Make) -> None:
    def reply(request: ChatRequest) -> Fault | None:
        bounded = "maxLength" in str(request.body["response_format"])
        return Fault(status=400, message="Invalid schema for response_format: maxLength") if bounded else None

    with LoopbackServer(reply=reply) as server:
        session = hold(roundtable(), server.lm())
    assert session.log is not None
    assert {call["format"] for call in session.log.calls.values()} == {"schema"}


def test_another_400_does_not_lower_the_format(roundtable: Make) -> None:
    with LoopbackServer(reply=lambda _: Fault(status=400, message="no such parameter: top_q")) as server:
        lm = server.lm()
        session = hold(roundtable(facilitator=False, turns=1), lm)
        assert format_of(lm) == "bounded"
        assert all("top_q" in failure.error for failure in events(session, Failure))


@pytest.mark.parametrize("adapter", [dspy.JSONAdapter(), dspy.ChatAdapter()])
def test_an_adapter_of_the_users_own_is_respected(roundtable: Make, loopback: LoopbackServer, adapter: Any) -> None:
    with dspy.context(adapter=adapter):
        session = hold(roundtable(), loopback.lm())
    assert session.status == "complete"
    assert session.log is not None
    calls = session.log.calls.values()
    assert {(call["format"], call["status"]) for call in calls} == {(type(adapter).__name__, "ok")}
    assert all(request.text.startswith("Your input fields are:") for request in loopback.requests)


# Failures


def test_a_failing_call_is_an_event_and_its_persona_is_silent_this_turn(roundtable: Make) -> None:
    def reply(request: ChatRequest) -> Fault | None:
        first = "(nothing yet)" in request.text.partition("[[ ## transcript ## ]]")[2][:20]
        return Fault() if first and says(request, "Bo") and "Think to" in request.text else None

    with LoopbackServer(reply=reply) as server:
        session = hold(roundtable(facilitator=False), server.lm(num_retries=0))
    [failure] = events(session, Failure)
    assert (failure.key, failure.speaker, failure.turn) == ("t0001/think/P2", "P2", 1)
    assert failure.error.startswith("LMServerError: ")
    thought = {event.author for event in session.events if getattr(event, "prefix", "") == "T" and event.turn == 1}
    assert thought == {"P1", "P3"}
    assert not events(session, Left)
    assert session.status == "complete"
    assert session.measures().failures == 1


def test_after_three_failures_in_a_row_a_persona_leaves(roundtable: Make) -> None:
    def reply(request: ChatRequest) -> Fault | None:
        return Fault() if says(request, "Bo") else None

    with LoopbackServer(reply=reply) as server:
        session = hold(roundtable(turns=6, facilitator=False), server.lm(num_retries=0))
        assert sum(says(request, "Bo") for request in server.requests) == 3
    [left] = events(session, Left)
    assert (left.persona, left.turn) == ("P2", 3)
    assert len(events(session, Failure)) == 3
    assert session.status == "complete"
    assert session.ideas


def test_failures_that_are_not_in_a_row_do_not_make_it_leave(roundtable: Make) -> None:
    asked = 0

    def reply(request: ChatRequest) -> Fault | None:
        nonlocal asked
        asked += says(request, "Bo")
        return Fault() if says(request, "Bo") and asked % 3 else None

    with LoopbackServer(reply=reply) as server:
        session = hold(roundtable(turns=6, facilitator=False), server.lm(num_retries=0))
    assert len(events(session, Failure)) >= 4
    assert not events(session, Left)


def test_under_two_personas_it_is_partial_and_goes_on_when_the_server_is_back(roundtable: Make, tmp_path: Path) -> None:
    down = True

    def reply(request: ChatRequest) -> Fault | None:
        return Fault() if down and not says(request, "Ada") else None

    with LoopbackServer(reply=reply) as server, dspy.context(lm=server.lm(num_retries=0, cache=False)):
        session = hold(roundtable(turns=5), server.lm(num_retries=0, cache=False), out=tmp_path)
        assert session.status == "partial"
        assert session.reason == "only 1 personas were left"
        assert replay(tmp_path).events == session.events
        made, down = len([c for c in read_log(tmp_path).calls.values() if c["status"] == "ok"]), False
        server.reset()
        after = resume(tmp_path)
        assert after.status == "complete"
        assert not events(after, Left)
        assert server.count <= after.usage.calls < server.count + made + 1
        assert replay(tmp_path).events == after.events


def test_a_burst_of_429_is_waited_out(roundtable: Make) -> None:
    def faults(request: ChatRequest) -> Fault | None:
        return Fault(status=429, retry_after=0.01) if request.number % 3 else None

    with LoopbackServer(faults=faults) as server:
        session = hold(roundtable(), server.lm(num_retries=30))
        assert server.count > session.usage.calls
    assert session.status == "complete"
    assert not events(session, Failure)


def test_a_persona_that_always_times_out_does_not_stop_the_others(roundtable: Make) -> None:
    def reply(request: ChatRequest) -> Fault | None:
        return Fault.hang(30) if says(request, "Cy") else None

    with LoopbackServer(reply=reply) as server:
        lms = {"Cy": server.lm(timeout=0.1, num_retries=0)}
        session = hold(roundtable(turns=4, facilitator=False, lms=lms), server.lm())
    assert [event.persona for event in events(session, Left)] == ["P3"]
    assert all("timed out" in failure.error for failure in events(session, Failure))
    assert session.status == "complete"
    assert {idea.author for idea in session.ideas} == {"Ada", "Bo"}


def test_an_error_during_the_vote_costs_one_ballot(roundtable: Make) -> None:
    def reply(request: ChatRequest) -> Fault | None:
        return Fault() if "Vote, as the persona" in request.text and says(request, "Bo") else None

    with LoopbackServer(reply=reply) as server:
        session = hold(roundtable(votes=3), server.lm(num_retries=0))
    assert [failure.key.split("/")[1:] for failure in events(session, Failure)] == [["vote", "P2"]]
    assert session.status == "complete"
    assert {vote.author for vote in events(session, Vote)} <= {"P1", "P3"}
    assert sum(idea.votes for idea in session.ideas) > 0


@pytest.mark.parametrize("fault", [Fault.drop(), Fault.malformed(), Fault(status=503), Fault.truncated()])
def test_every_kind_of_broken_answer_is_a_failure_or_repaired(roundtable: Make, fault: Fault) -> None:
    with LoopbackServer(faults=lambda request: fault if request.number % 4 == 0 else None) as server:
        session = hold(roundtable(), server.lm(num_retries=0))
    assert session.status == "complete"
    assert session.ideas
    assert session.log is not None
    assert any(call["repairs"] or call["status"] == "failed" for call in session.log.calls.values())


def test_an_answer_that_cannot_be_read_is_asked_for_once_more(roundtable: Make) -> None:
    asked: dict[str, int] = {}

    def reply(request: ChatRequest) -> str | None:
        if "Think to" not in request.text:
            return None
        asked[request.text] = asked.get(request.text, 0) + 1
        return None if asked[request.text] > 1 and says(request, "Ada") else "I would rather not."

    with LoopbackServer(reply=reply) as server:
        lm = server.lm()
        session = hold(roundtable(turns=1, facilitator=False), lm)
        assert set(asked.values()) == {2}
        assert session.log is not None
        calls = session.log.calls
        assert (calls["t0001/think/P1"]["status"], calls["t0001/think/P1"]["repairs"]) == ("ok", 1)
        assert (calls["t0001/think/P2"]["status"], calls["t0001/think/P2"]["repairs"]) == ("failed", 1)
        assert calls["t0001/think/P2"]["error"].startswith("the answer could not be read: ")
        assert session.usage.calls == server.count
        count = server.count
        again = hold(roundtable(turns=1, facilitator=False), lm)  # bad answers are cached like good ones
        assert server.count == count
        assert again.events == session.events


def test_a_resume_asks_anew_what_could_not_be_read_also_with_a_cache(roundtable: Make, tmp_path: Path) -> None:
    broken = True

    def reply(_: ChatRequest) -> str | None:
        return "Hm." if broken else None

    with LoopbackServer(reply=reply) as server, dspy.context(lm=server.lm()):
        assert hold(roundtable(), server.lm(), out=tmp_path).status == "partial"
        broken = False
        assert resume(tmp_path).status == "complete"


KEY = "sk-very-secret-0123456789abcdef"


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_ends_the_session_at_once_and_never_shows(
    roundtable: Make,
    tmp_path: Path,
    status: int,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    message = f"Incorrect API key provided: {KEY}. " + "x" * 250 + f" Your key is {KEY}."
    bad = True

    def reply(_: ChatRequest) -> Fault | None:
        return Fault(status=status, message=message) if bad else None

    with LoopbackServer(reply=reply) as server, caplog.at_level(logging.DEBUG):
        lm = server.lm(api_key=KEY, cache=False)
        with pytest.raises(CallFailure, match=r"cannot be used: .*\*\*\*.*salon doctor") as caught:
            hold(roundtable(), lm, out=tmp_path)
        assert server.count <= 4
        told = "".join(traceback.format_exception(caught.value)) + caplog.text + "".join(capfd.readouterr())
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert files
        for text in (told, *(path.read_text(encoding="utf-8") for path in files)):
            assert KEY not in text
            assert KEY[:20] not in text
        assert read_log(tmp_path).calls == {}
        bad = False
        with dspy.context(lm=lm):
            assert resume(tmp_path).status == "complete"


def test_a_key_that_a_provider_echoes_in_any_error_never_shows(roundtable: Make, tmp_path: Path) -> None:
    """In errors of calls, too, and where a message is cut in the middle of the key."""
    for padding in (0, 240, 250, 260, 270):
        key = "local+key/with signs"
        message = "y" * padding + f" the key {key} is overloaded"
        with LoopbackServer(reply=lambda _, message=message: Fault(status=500, message=message)) as server:
            folder = tmp_path / str(padding)
            session = hold(roundtable(turns=1), server.lm(api_key=key, num_retries=0), out=folder)
        assert session.status == "partial"
        for path in folder.iterdir():
            text = path.read_text(encoding="utf-8")
            assert key not in text
            assert key[:9] not in text


def test_when_one_call_ends_the_session_the_others_are_given_up(roundtable: Make) -> None:
    """Also in an event loop that lives on."""

    def reply(request: ChatRequest) -> Fault | None:
        return Fault(status=401) if says(request, "Bo") else None

    def delay(request: ChatRequest) -> float:
        return 0.0 if says(request, "Bo") else 5.0

    async def run() -> None:
        with pytest.raises(CallFailure):
            await roundtable().hold(topic=TOPIC)
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    with LoopbackServer(reply=reply, delay=delay) as server, dspy.context(lm=server.lm()):
        asyncio.run(run())
        assert server.count <= 4


def test_a_disk_that_fills_up_stops_the_session_and_keeps_what_was_written(
    roundtable: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, lines = SessionLog._write, []

    def fill(self: SessionLog, record: dict[str, Any]) -> None:
        lines.append(record)
        if len(lines) == 12:
            assert self._file is not None
            self._file.close()
            self._file = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115
        write(self, record)

    with LoopbackServer() as server, dspy.context(lm=server.lm(cache=False)):
        whole = hold(roundtable(), server.lm(cache=False))
        monkeypatch.setattr(SessionLog, "_write", fill)
        with pytest.raises(OutputError, match="No space left on device"):
            hold(roundtable(), server.lm(cache=False), out=tmp_path)
        monkeypatch.undo()
    kept = read_log(tmp_path)
    assert kept.end is None
    assert whole.log is not None
    assert kept.events == whole.log.events[: len(kept.events)]


# The desk by itself


def desk(server: LoopbackServer, log: SessionLog, **settings: Any) -> Desk:
    return Desk(log, LMs(default=server.lm(cache=False)), 1, Budget(), asyncio.Semaphore(2), **settings)


QUESTION = dspy.Predict("question -> answer")


def test_a_call_is_found_under_its_key_if_its_inputs_are_the_same(loopback: LoopbackServer) -> None:
    log = SessionLog(None, Recorded({}))

    async def run() -> list[Answer]:
        first = await desk(loopback, log).ask(QUESTION, "t1/ask/P1", "participant", "P1", question="What?")
        second = await desk(loopback, log).ask(QUESTION, "t1/ask/P1", "participant", "P1", question="What?")
        assert loopback.count == 1
        third = await desk(loopback, log).ask(QUESTION, "t1/ask/P1", "participant", "P1", question="Why?")
        assert loopback.count == 2
        return [first, second, third]

    first, second, third = asyncio.run(run())
    assert first == second != third
    assert first.answer
    assert len(log.recorded.past) == 1
    with pytest.raises(AttributeError):
        _ = first.nothing


def test_offline_only_the_record_answers(loopback: LoopbackServer) -> None:
    log = SessionLog(None, Recorded({}))

    async def run() -> None:
        await desk(loopback, log).ask(QUESTION, "t1/ask/P1", "participant", "P1", question="What?")
        closed = desk(loopback, log, offline=True)
        await closed.ask(QUESTION, "t1/ask/P1", "participant", "P1", question="What?")
        with pytest.raises(LogError, match="its call t1/ask/P1 had other inputs"):
            await closed.ask(QUESTION, "t1/ask/P1", "participant", "P1", question="Why?")
        with pytest.raises(LogError, match="it lacks the call t1/ask/P2"):
            await closed.ask(QUESTION, "t1/ask/P2", "participant", "P2", question="What?")

    asyncio.run(run())
    assert loopback.count == 1


def test_calls_tell_when_they_begin_and_end(loopback: LoopbackServer) -> None:
    told: list[tuple[str, str, bool]] = []

    def notify(progress: CallProgress) -> None:
        told.append((progress.speaker, progress.purpose, progress.ended))

    async def run() -> None:
        log = SessionLog(None, Recorded({}))
        asked = desk(loopback, log, notify=notify)
        await asked.ask(QUESTION, "t1/ask/P1", "participant", "P1", question="What?")
        await asked.ask(QUESTION, "t1/ask/P1", "participant", "P1", question="What?")

    asyncio.run(run())
    assert told == [("P1", "ask", False), ("P1", "ask", True), ("P1", "ask", True)]


def test_no_more_calls_are_in_flight_than_allowed() -> None:
    async def run() -> None:
        log = SessionLog(None, Recorded({}))
        asked = desk(server, log)
        keys = [f"t1/ask/P{n}" for n in range(9)]
        await asyncio.gather(*(asked.ask(QUESTION, key, "participant", key, question=key) for key in keys))

    with LoopbackServer(delay=0.01) as server:
        asyncio.run(run())
        assert server.count == 9
        assert server.max_in_flight == 2


def test_every_format_can_be_read_by_the_server(roundtable: Make) -> None:
    """What the loopback server makes of each prompt layout: the same fields."""
    program = roundtable()
    for name, predictor in program.named_predictors():
        signature = predictor.signature
        for tier in ("json", "chat"):
            messages = ADAPTERS[tier].format(signature, [], dict.fromkeys(signature.input_fields, "x"))
            request = ChatRequest({"messages": messages})
            assert request.fields == tuple(signature.output_fields), (name, tier)
            assert request.style == tier
            parsed = ADAPTERS[tier].parse(signature, _rendered(request))
            assert parsed.keys() == signature.output_fields.keys()


def _rendered(request: ChatRequest) -> str:
    from salon._loopback_reply import render

    return render(request, default_reply(request))


def test_comments_and_ideas_are_there_at_all(roundtable: Make, loopback: LoopbackServer) -> None:
    session = hold(roundtable(turns=4, ideas=2), loopback.lm())
    assert events(session, Comment) or events(session, Idea)
