"""What every session program must do: each test runs over all of ``PROGRAMS``.

To add a program, add a line to ``PROGRAMS``: a factory that takes settings such as ``max_concurrency`` and
makes a small program, and the inputs of a session. Sessions talk to a loopback server, whose answers depend
on the prompt alone; embeddings are made up (``quick_embeddings``), also in the processes started here.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import numpy as np
import pytest
from salon.modules import Embedder
from salon.modules.events import Entity, Event
from salon.modules.log import LOG_NAME, Recorded, read_log
from salon.modules.program import SessionProgram

from salon import Budget, Control, Debate, Roundtable, Session, YesAnd, replay, resume
from salon.errors import LMSetupError, LogError
from salon.testing import ChatRequest, LoopbackServer, default_reply


class Entry(NamedTuple):
    """How to make a program, the inputs of a session, and settings of a short and of a varied session.

    ``draws`` says whether the seed decides anything beside which cached answers are a session's own.
    """

    make: Callable[..., SessionProgram]
    inputs: dict[str, Any]
    shortest: dict[str, Any]
    varied: dict[str, Any]
    draws: bool = True


PEOPLE = [{"name": "Ada", "sketch": "Ada mends bicycles."}, {"name": "Bo", "sketch": "Bo nurses at night."}]
PROGRAMS: dict[str, Entry] = {
    "Roundtable": Entry(
        lambda **settings: Roundtable(**{"personas": PEOPLE, "turns": 2, "ideas": 1, "votes": 2, **settings}),
        {"topic": "Bicycles for winter"},
        shortest={"turns": 1},
        varied={"personas": [*PEOPLE, {"name": "Cy", "sketch": "Cy teaches maths."}], "turns": 4},
    ),
    "Debate": Entry(
        lambda **settings: Debate(**{"agents": 3, "rounds": 1, "k": 1, **settings}),
        {"task": "Bicycles for winter"},
        shortest={"agents": 2},
        varied={"agents": 4, "rounds": 3, "peers": "random"},
    ),
    "YesAnd": Entry(
        lambda **settings: YesAnd(**{"experts": PEOPLE, "threshold": 3, "max_agent_turns": 2, **settings}),
        {"problem": "Bicycles for winter", "person": ["Where do we begin?", "What of ice?", "/sage"]},
        shortest={"max_agent_turns": 1},
        varied={"max_agent_turns": 4},
        draws=False,
    ),
}


def is_said(item: Any) -> bool:
    """Whether a model said something in public."""
    return isinstance(item, Entity) and item.prefix not in ("T", "U")


def spread(texts: list[str]) -> Any:
    """Vectors that are the same in every process."""
    seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts]
    return np.stack([np.random.default_rng(seed).normal(size=64) for seed in seeds])


def child(name: str, base: str, model: str, out: str, seed: int, kill_after: int) -> None:
    """Hold a session in a process of its own; kill it, where asked to, after so many public words."""
    Embedder._encoder = lambda _: spread  # type: ignore[method-assign]
    said = 0

    def listen(item: Any) -> None:
        nonlocal said
        said += is_said(item)
        if said == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    entry = PROGRAMS[name]
    with dspy.context(lm=dspy.LM(f"openai/{model}", api_base=base, api_key="loopback", cache=False)):
        entry.make()(**entry.inputs, seed=seed, out=out, listen=listen)


def start(name: str, server: LoopbackServer, out: Path, kill_after: int = -1, **env: str) -> subprocess.Popen[bytes]:
    arguments = [name, server.base_url, server.model, str(out), 7, kill_after]
    run = f"runpy.run_path({str(Path(__file__))!r})['child'](*json.loads({json.dumps(arguments)!r}))"
    script = f"import json, runpy; {run}"
    return subprocess.Popen([sys.executable, "-c", script], env={**os.environ, **env})


@pytest.fixture(params=sorted(PROGRAMS))
def name(request: pytest.FixtureRequest, quick_embeddings: None) -> str:
    return str(request.param)


def hold(name: str, server: LoopbackServer, settings: dict[str, Any] | None = None, **arguments: Any) -> Session:
    entry = PROGRAMS[name]
    with dspy.context(lm=server.lm(cache=False)):
        return asyncio.run(entry.make(**(settings or {})).hold(**{**entry.inputs, "seed": 7, **arguments}))


def again(server: LoopbackServer, folder: Path, **arguments: Any) -> Session:
    with dspy.context(lm=server.lm(cache=False)):
        return resume(folder, **arguments)


def canonical(session: Session) -> dict[str, Any]:
    assert session.log is not None
    return session.log.canonical()


class Small(NamedTuple):
    """A recorded session: the server that answered it, its folder, its canonical log, its lines."""

    name: str
    server: LoopbackServer
    folder: Path
    canonical: dict[str, Any]
    lines: list[bytes]


@pytest.fixture
def small(name: str, loopback: LoopbackServer, tmp_path: Path) -> Small:
    folder = tmp_path / "whole"
    session = hold(name, loopback, out=folder)
    assert session.status == "complete"
    lines = (folder / LOG_NAME).read_bytes().splitlines(keepends=True)
    assert read_log(folder).canonical() == canonical(session)
    return Small(name, loopback, folder, canonical(session), lines)


def put(folder: Path, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOG_NAME).write_bytes(content)
    return folder


# The same again


def test_the_log_does_not_depend_on_concurrency(name: str) -> None:
    with LoopbackServer(delay=0.003) as server:
        logs, in_flight = [], []
        for most in (1, 2, 40):
            server.reset()
            logs.append(canonical(hold(name, server, {"max_concurrency": most})))
            in_flight.append(server.max_in_flight)
    assert logs[0] == logs[1] == logs[2]
    assert in_flight[:2] == [1, 2]
    assert in_flight[2] >= 2


def test_the_log_does_not_depend_on_the_order_of_answers(name: str) -> None:
    """Each request waits for a time of its own, other ones in each session."""
    logs = []
    for session in range(3):

        def delay(request: ChatRequest, session: int = session) -> float:
            return (hash((request.text, session)) % 7) / 1000

        with LoopbackServer(delay=delay, model="same", port=0) as server:
            recorded = canonical(hold(name, server))
            recorded["header"]["models"] = None  # the port is another one
            logs.append(recorded)
    assert logs[0] == logs[1] == logs[2]


def test_the_log_is_the_same_in_another_process(small: Small, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert start(small.name, small.server, other, PYTHONHASHSEED="4711").wait() == 0
    assert read_log(other).canonical() == small.canonical


def test_another_seed_gives_another_session(name: str, loopback: LoopbackServer) -> None:
    sessions = [hold(name, loopback, PROGRAMS[name].varied, seed=seed) for seed in (1, 2, 3, 4, 1)]
    courses = [json.dumps(canonical(session)["events"]) for session in sessions]
    assert (len(set(courses[:4])) > 1) == PROGRAMS[name].draws
    assert courses[4] == courses[0]


def test_a_second_run_is_answered_by_the_cache_and_seeds_are_kept_apart(name: str, tmp_path: Path) -> None:
    """The server never says the same twice, so sessions are equal through the cache alone."""
    words = iter(range(10**6))

    def reply(request: ChatRequest) -> dict[str, Any]:
        texts = {k: v for k, v in default_reply(request).items() if isinstance(v, str) and len(v.split()) > 4}
        return {**default_reply(request), **{k: f"This is the {next(words)}th saying." for k in texts}}

    entry, counts, logs = PROGRAMS[name], [], []
    with LoopbackServer(reply=reply) as server:
        for seed in (1, 2, 3, 1, 2, 3):
            with dspy.context(lm=server.lm()):
                session = entry.make()(**entry.inputs, seed=seed, out=tmp_path / str(len(logs))).session
            counts.append(server.count)
            logs.append(session)
    assert 0 < counts[0] < counts[1] < counts[2] == counts[5]
    assert all(one.events == two.events for one, two in zip(logs[:3], logs[3:], strict=True))
    assert logs[3].usage.tokens == 0
    said = [set(re.findall(r"\d+th saying", str(session.events))) for session in logs[:3]]
    assert all(said)
    assert not said[0] & said[1] | said[1] & said[2] | said[0] & said[2]


# Interrupted


def test_resuming_at_any_record_makes_exactly_the_missing_calls(
    name: str, loopback: LoopbackServer, tmp_path: Path
) -> None:
    whole = hold(name, loopback, PROGRAMS[name].shortest, out=tmp_path / "whole")
    lines = (tmp_path / "whole" / LOG_NAME).read_bytes().splitlines(keepends=True)
    ideas = (tmp_path / "whole" / "ideas.csv").read_text()
    missing = [json.loads(line).get("kind") == "call" for line in lines]
    for at in range(1, len(lines)):
        for torn in (b"", lines[at][:-1] if at % 3 else lines[at][: len(lines[at]) // 2]):
            folder = put(tmp_path / f"{at}-{len(torn)}", b"".join(lines[:at]) + torn)
            loopback.reset()
            session = again(loopback, folder)
            assert loopback.count == sum(missing[at:])
            assert canonical(session) == canonical(whole)
            assert read_log(folder).canonical() == canonical(whole)
            assert (folder / "ideas.csv").read_text() == ideas


def test_a_log_without_a_whole_line_is_no_session(small: Small, tmp_path: Path) -> None:
    for content in (b"", small.lines[0][:-1], small.lines[0][:40]):
        folder = put(tmp_path / "torn", content)
        for call in (resume, replay):
            with pytest.raises(LogError, match="holds no session: its first line is missing"):
                call(folder)


def test_resuming_twice_in_a_row_is_as_good_as_once(small: Small, tmp_path: Path) -> None:
    """Stopped at every third event, again and again."""
    folder = put(tmp_path / "again", small.lines[0])
    small.server.reset()
    for stop_at in range(3, 1000, 3):

        def listen(item: Any, stop_at: int = stop_at) -> None:
            if isinstance(item, Event) and item.n == stop_at:
                raise KeyboardInterrupt

        try:
            session = again(small.server, folder, listen=listen)
            break
        except KeyboardInterrupt:
            pass
    assert canonical(session) == small.canonical
    assert small.server.count == session.usage.calls


def test_killed_between_calls_and_resumed_costs_no_request_more(small: Small, tmp_path: Path) -> None:
    folder, whole = tmp_path / "killed", len(small.canonical["calls"])
    small.server.reset()
    process = start(small.name, small.server, folder, kill_after=2)
    assert process.wait() == -signal.SIGKILL
    assert 0 < small.server.count < whole
    assert read_log(folder).end is None
    session = again(small.server, folder)
    assert small.server.count == whole
    assert canonical(session) == small.canonical
    assert read_log(folder).canonical() == small.canonical


def test_killed_in_the_middle_of_calls_and_resumed_repeats_those_in_flight_alone(name: str, tmp_path: Path) -> None:
    """From the fifth request on the server says nothing until its client is dead."""
    dead = False

    async def reply(_: ChatRequest) -> None:
        while server.count >= 5 and not dead:
            await asyncio.sleep(0.005)

    with LoopbackServer(reply=reply) as server:
        process = start(name, server, tmp_path / "killed")
        log = tmp_path / "killed" / LOG_NAME
        while server.count < 5 or log.read_bytes().count(b'"kind":"call"') < 4:
            assert process.poll() is None
            time.sleep(0.005)
        process.kill()
        process.wait()
        kept = len(read_log(log.parent).calls)
        dead = True
        while server.stats()["in_flight"]:
            time.sleep(0.005)
        server.reset()
        session = again(server, log.parent)
        assert server.count == session.usage.calls - kept
        assert canonical(session) == canonical(hold(name, server))


def test_a_cancelled_session_can_be_resumed(small: Small, tmp_path: Path) -> None:
    entry, folder = PROGRAMS[small.name], tmp_path / "cancelled"

    async def cancelled() -> None:
        def listen(item: Any) -> None:
            if is_said(item):
                task.cancel()

        task = asyncio.ensure_future(entry.make().hold(**entry.inputs, seed=7, out=folder, listen=listen))
        await asyncio.wait([task])
        assert task.cancelled()

    small.server.reset()
    with dspy.context(lm=small.server.lm(cache=False)):
        asyncio.run(cancelled())
    recorded = read_log(folder)
    assert recorded.end is None
    before = small.server.count
    session = again(small.server, folder)
    assert canonical(session) == small.canonical
    assert small.server.count - before == session.usage.calls - len(recorded.calls)


# Replayed


@pytest.fixture
def nothing_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Embeddings and calls of any LM are errors."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a replay needs neither a model nor embeddings")

    monkeypatch.setattr(Embedder, "_encoder", refuse)
    monkeypatch.setattr(dspy.Predict, "acall", refuse)


def test_a_replay_needs_nothing_but_the_log(small: Small, nothing_works: None) -> None:
    before = {path: path.read_bytes() for path in small.folder.iterdir()}
    assert dspy.settings.lm is None
    told: list[Event] = []
    session = replay(small.folder, listen=lambda item: told.append(item) if isinstance(item, Event) else None)
    assert canonical(session) == small.canonical
    assert told == session.events
    assert session.ideas
    assert resume(small.folder).events == told  # nothing is left to do
    assert {path: path.read_bytes() for path in small.folder.iterdir()} == before


def test_a_replay_of_an_interrupted_session_says_what_is_missing(
    small: Small, tmp_path: Path, nothing_works: None
) -> None:
    for at in range(1, len(small.lines)):
        folder = put(tmp_path / "part", b"".join(small.lines[:at]))
        if sum(b'"kind":"call"' in line for line in small.lines[at:]):
            with pytest.raises(LogError, match=r"it lacks the (call|reading)"):
                replay(folder)


def changed(lines: list[bytes], kind: str, change: Callable[[dict[str, Any]], Any]) -> list[bytes]:
    """Each possible change of one record of a kind; a change to None removes the record."""
    contents = []
    for at, line in enumerate(lines):
        record = json.loads(line)
        if record["kind"] != kind:
            continue
        new = change(record)
        replaced = [] if new is None else [json.dumps(new).encode() + b"\n"]
        contents.append(b"".join([*lines[:at], *replaced, *lines[at + 1 :]]))
    return contents


def other_text(record: dict[str, Any]) -> dict[str, Any]:
    """The record with one of its values changed."""
    for field, value in record.items():
        if field not in ("kind", "type", "n") and isinstance(value, str | float | int):
            return {**record, field: value + "x" if isinstance(value, str) else value + 1}
    return {**record, "extra": 1}


def test_a_changed_log_is_refused_in_one_line(small: Small, tmp_path: Path, nothing_works: None) -> None:
    lines = small.lines
    tampered = [
        *changed(lines, "event", other_text),
        *changed(lines, "event", lambda _: None),
        *changed(lines, "call", lambda _: None),
        *changed(lines, "call", lambda call: {**call, "digest": "0" * 24}),
        *changed(lines, "reading", lambda _: None),
        *changed(lines, "header", lambda header: {**header, "version": 99}),
        *changed(
            lines,
            "header",
            lambda header: {**header, "inputs": {k: f"{v}!" for k, v in header["inputs"].items()}},
        ),
        *changed(lines, "end", lambda end: {**end, "status": "partial"}),
        *(b"".join([*lines[:at], b"{damaged\n", *lines[at + 1 :]]) for at in (1, len(lines) // 2)),
    ]
    for content in tampered:
        folder = put(tmp_path / "tampered", content)
        with pytest.raises(LogError) as caught:
            replay(folder)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400


def test_a_changed_answer_is_refused(small: Small, tmp_path: Path, nothing_works: None) -> None:
    """An answer that cannot be read, and one that would have led elsewhere."""
    changes: list[Callable[[dict[str, Any]], Any]] = [
        lambda call: {**call, "outputs": {name: [[]] for name in call["outputs"]}},
        lambda call: {**call, "status": "failed", "error": "made up"},
    ]
    for change in changes:
        for content in changed(small.lines, "call", change):
            with pytest.raises(LogError):
                replay(put(tmp_path / "tampered", content))


def test_a_changed_log_is_not_continued_at_the_users_cost(small: Small, tmp_path: Path) -> None:
    """Where events on file no longer follow from the calls, no call is made for them."""
    lines = small.lines[:-2]
    event = [content for content in changed(lines, "event", other_text)]
    topic = changed(lines, "header", lambda h: {**h, "inputs": {k: f"{v}!" for k, v in h["inputs"].items()}})
    for content in [*event, *topic]:
        small.server.reset()
        with pytest.raises(LogError):
            again(small.server, put(tmp_path / "tampered", content))
        assert small.server.count == 0


# Steered


def test_no_lm_is_said_before_anything_is_written(name: str, tmp_path: Path) -> None:
    entry = PROGRAMS[name]
    with pytest.raises(LMSetupError, match="No language model is set"):
        entry.make()(**entry.inputs, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_budget_of_calls_is_never_passed(small: Small) -> None:
    whole = len(small.canonical["calls"])
    for limit in range(1, whole + 2):
        small.server.reset()
        session = hold(small.name, small.server, budget=Budget(calls=limit))
        assert small.server.count == session.usage.calls <= limit
        assert session.status in ("cut short", "partial") or small.server.count == whole
        assert session.reason


def test_a_session_cut_short_goes_on_with_more(small: Small, tmp_path: Path) -> None:
    whole = len(small.canonical["calls"])
    for limit in (1, whole // 2, whole - 1):
        folder = tmp_path / str(limit)
        small.server.reset()
        first = hold(small.name, small.server, out=folder, budget=Budget(calls=limit))
        assert first.status in ("cut short", "partial")
        assert canonical(replay(folder)) == canonical(first)
        session = again(small.server, folder)
        assert session.status == "complete"
        assert [event.model_dump(mode="json") for event in session.events] == small.canonical["events"]
        texts = [request.text for request in small.server.requests]
        assert len(texts) == len(set(texts)) == session.usage.calls


def test_wrapping_up_ends_early_and_can_be_taken_back(small: Small, tmp_path: Path) -> None:
    control, folder = Control(), tmp_path / "wrapped"

    def listen(item: Any) -> None:
        control.wrap_up = control.wrap_up or is_said(item)

    small.server.reset()
    varied = PROGRAMS[small.name].varied
    session = hold(small.name, small.server, varied, out=folder, control=control, listen=listen)
    assert canonical(replay(folder)) == canonical(session)
    assert len(session.events) < len(hold(small.name, small.server, varied).events)
    assert session.status in ("cut short", "partial")
    assert session.reason == "asked to wrap up"
    small.server.reset()
    before = session.usage.calls
    after = again(small.server, folder)
    assert after.status == "complete"
    assert len(after.events) > len(session.events)
    assert small.server.count == after.usage.calls - before


def test_a_wish_to_wrap_up_during_a_resume_holds_from_where_it_was_interrupted(small: Small, tmp_path: Path) -> None:
    half = small.lines[: len(small.lines) // 2]
    session = again(small.server, put(tmp_path / "half", b"".join(half)), control=Control(wrap_up=True))
    assert session.status in ("cut short", "complete")
    on_file = [json.loads(line) for line in half if b'"kind":"event"' in line]
    told = [event.model_dump(mode="json") for event in session.events]
    assert told[: len(on_file)] == [{k: v for k, v in event.items() if k != "kind"} for event in on_file]


def test_events_come_as_they_happen_and_leaving_stops_the_session(small: Small, tmp_path: Path) -> None:
    entry, folder = PROGRAMS[small.name], tmp_path / "left"

    async def left() -> list[Event]:
        seen: list[Event] = []
        stream = entry.make().stream(**entry.inputs, seed=7, out=folder)
        async for event in stream:
            seen.append(event)
            if is_said(event):
                break
        await stream.aclose()  # type: ignore[attr-defined]
        count = small.server.count
        await asyncio.sleep(0.1)
        assert small.server.count == count
        return seen

    small.server.reset()
    with dspy.context(lm=small.server.lm(cache=False)):
        seen = asyncio.run(left())
    assert 0 < small.server.count < len(small.canonical["calls"])
    assert [event.model_dump(mode="json") for event in seen] == small.canonical["events"][: len(seen)]
    assert canonical(again(small.server, folder)) == small.canonical


def test_a_whole_stream_is_the_session(small: Small) -> None:
    entry = PROGRAMS[small.name]

    async def all_events() -> list[dict[str, Any]]:
        return [event.model_dump(mode="json") async for event in entry.make().stream(**entry.inputs, seed=7)]

    with dspy.context(lm=small.server.lm(cache=False)):
        assert asyncio.run(all_events()) == small.canonical["events"]


def test_the_log_tells_what_made_the_session(small: Small) -> None:
    recorded: Recorded = read_log(small.folder)
    header = recorded.header
    assert header["version"] == 1
    assert header["program"]["name"] == small.name
    assert header["program"]["state"]
    assert header["inputs"] == PROGRAMS[small.name].inputs
    assert header["seed"] == 7
    assert all(model["model"] == f"openai/{small.server.model}" for model in header["models"].values())
    assert {"python", "salon", "dspy"} <= header["packages"].keys()
    assert all(key.count("/") == 2 for key in recorded.calls)
    assert recorded.end is not None
    assert recorded.end["usage"]["calls"] == len(recorded.calls)
