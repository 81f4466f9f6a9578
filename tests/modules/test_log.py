"""The log file: what is written is read back, however it was torn; what cannot be read is said in a line."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from salon.modules import log as log_module
from salon.modules.log import LOG_NAME, Recorded, SessionLog, read_log

from salon.errors import LogError, OutputError

HEADER = {
    "kind": "header", "version": 1, "program": {"name": "Roundtable"}, "settings": {"max_concurrency": 3},
    "inputs": {"topic": "x"}, "seed": 1, "models": {}, "packages": {}, "started": "2026-01-01T00:00:00",
}  # fmt: skip
IN_PLACE = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

texts = st.text(st.characters(exclude_categories=[]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
costs = st.fixed_dictionaries(
    {
        "calls": st.integers(0, 3),
        "prompt_tokens": st.integers(0, 9999),
        "completion_tokens": st.integers(0, 999),
        "usd": st.none() | st.floats(0, 1),
        "elapsed": st.floats(0, 100),
    }
)
calls = st.builds(
    lambda key, digest, outputs, status, cost: {
        "key": key, "digest": digest, "outputs": outputs, "status": status, "error": "", "clamped": 0, **cost
    },
    st.sampled_from(["t0001/think/P1", "t0001/think/P2", "t0002/speak/P1"]),
    texts,
    st.dictionaries(texts, values, max_size=3),
    st.sampled_from(["ok", "failed", "refused"]),
    costs,
)  # fmt: skip
events = st.builds(
    lambda n, told: {**told, "n": n, "type": "comment"},
    st.integers(0),
    st.dictionaries(texts, values, max_size=3),
)
entries = st.lists(
    st.one_of(
        st.tuples(st.just("call"), calls),
        st.tuples(st.just("reading"), st.tuples(texts, values)),
        st.tuples(st.just("event"), events.filter(lambda event: "kind" not in event)),
    ),
    max_size=12,
)


def write(log: SessionLog, wanted: list[tuple[str, Any]]) -> None:
    for kind, content in wanted:
        if kind == "reading":
            log.reading(*content)
        else:
            getattr(log, kind)(content)


def written(folder: Path, wanted: list[tuple[str, Any]]) -> SessionLog:
    log = SessionLog(folder, Recorded(dict(HEADER)))
    write(log, wanted)
    log.close()
    return log


@IN_PLACE
@given(entries)
def test_what_was_written_is_read_back(tmp_path: Path, wanted: list[tuple[str, Any]]) -> None:
    log = written(tmp_path, wanted)
    assert read_log(tmp_path) == log.recorded
    assert all(line.isascii() for line in (tmp_path / LOG_NAME).read_bytes().splitlines())


@IN_PLACE
@given(entries, st.data())
def test_a_torn_log_is_read_as_far_as_it_is_whole_and_can_be_continued(
    tmp_path: Path, wanted: list[tuple[str, Any]], data: st.DataObject
) -> None:
    written(tmp_path, wanted)
    path = tmp_path / LOG_NAME
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    if not whole:
        with pytest.raises(LogError, match="holds no session"):
            read_log(tmp_path)
        return
    kept, missing = wanted[: whole - 1], wanted[whole - 1 :]
    recorded = read_log(tmp_path)
    assert len(recorded.events) == sum(kind == "event" for kind, _ in kept)
    assert len(recorded.calls) + len(recorded.past) == sum(kind == "call" for kind, _ in kept)
    log = SessionLog(tmp_path, recorded, rewrite=False)
    write(log, [("event", dict(event)) for event in recorded.events])
    write(log, missing)
    log.close()
    assert path.read_bytes() == content


@IN_PLACE
@given(entries, st.data())
def test_a_changed_byte_is_a_log_error_or_leaves_a_readable_log(
    tmp_path: Path, wanted: list[tuple[str, Any]], data: st.DataObject
) -> None:
    written(tmp_path, wanted)
    path = tmp_path / LOG_NAME
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(LogError):  # any other error fails
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{}", "unknown kind 'None'"),
        ('{"kind": "wish"}', "unknown kind 'wish'"),
        ('{"kind": ["call"]}', "unknown kind"),
        ('{"kind": "call", "key": "k"}', "a record without calls, clamped"),
        ("[1]", "not an object"),
        ("{", "Expecting property name"),
        ("", "Expecting value"),
        ('{"kind": "reading", "key": "\xff", "value": 1}', "can't decode"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str, why: str) -> None:
    written(tmp_path, [("reading", ("a", 1)), ("reading", ("b", 2))])
    path = tmp_path / LOG_NAME
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], line.encode("latin-1"), *lines[1:], b""]))
    with pytest.raises(LogError, match=rf"damaged: line 2 is no record of a session .*{why}"):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"version": 2}, "log version 2: this salon reads version 1"),
        ({"version": None}, "log version None"),
        ({"kind": "event"}, "no session log"),
    ],
)
def test_another_header_is_refused(tmp_path: Path, header: dict[str, Any], why: str) -> None:
    (tmp_path / LOG_NAME).write_text(json.dumps({**HEADER, **header}) + "\n", encoding="utf-8")
    with pytest.raises(LogError, match=why):
        read_log(tmp_path)


def test_a_header_without_its_parts_is_refused(tmp_path: Path) -> None:
    (tmp_path / LOG_NAME).write_text('{"kind": "header", "version": 1, "seed": 1}\n', encoding="utf-8")
    with pytest.raises(LogError, match="its header lacks inputs, models, packages, program, settings"):
        read_log(tmp_path)


def test_a_folder_without_a_session_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="There is no session in"):
        read_log(tmp_path / "nowhere")
    (tmp_path / LOG_NAME).mkdir()
    with pytest.raises(OutputError, match="cannot be read"):
        read_log(tmp_path)


# Running over a log


def call(
    key: str, digest: str = "d", status: str = "ok", usd: float | None = 0.5, elapsed: float = 1.0
) -> dict[str, Any]:
    return {
        "key": key, "digest": digest, "status": status, "error": "", "clamped": 0, "calls": 1,
        "prompt_tokens": 10, "completion_tokens": 5, "usd": usd, "elapsed": elapsed,
    }  # fmt: skip


def event(n: int, text: str = "a") -> dict[str, Any]:
    return {"n": n, "type": "comment", "text": text}


def test_events_are_held_against_those_on_file(tmp_path: Path) -> None:
    written(tmp_path, [("event", event(0)), ("event", event(1))])
    log = SessionLog(tmp_path, read_log(tmp_path), rewrite=False)
    assert log.behind
    log.event(event(0))
    assert log.behind
    with pytest.raises(LogError, match="its event 1, 'comment', is a different one"):
        log.event(event(1, "b"))
    with pytest.raises(LogError, match="its event 1, 'comment', is 'vote' now"):
        log.event({"n": 1, "type": "vote"})
    log.event(event(1))
    assert not log.behind
    log.event(event(2))
    log.close()
    assert [e["n"] for e in read_log(tmp_path).events] == [0, 1, 2]


def test_an_end_before_the_events_on_file_or_another_end_is_refused(tmp_path: Path) -> None:
    first = written(tmp_path, [("event", event(0))])
    first = SessionLog(None, first.recorded)
    with pytest.raises(LogError, match="it has 1 events, not 0"):
        first.end({"status": "complete", "reason": "", "usage": {}})
    first.event(event(0))
    first.end({"status": "complete", "reason": "done", "usage": {"seconds": 2.0}})
    again = SessionLog(None, first.recorded)
    again.event(event(0))
    with pytest.raises(LogError, match=r"it ended complete \(done\)"):
        again.end({"status": "partial", "reason": "done", "usage": {}})


def test_time_and_order_of_arrival_are_not_part_of_the_canonical_log() -> None:
    one, two = (
        Recorded(dict(HEADER)),
        Recorded({**HEADER, "started": "later", "settings": {"max_concurrency": 9}}),
    )
    for record in (call("b", elapsed=1.0), call("a", elapsed=2.0)):
        one.take(record)
    for record in (call("a", elapsed=7.0), call("b", elapsed=8.0)):
        two.take({**record, "seconds": 0.5})
    assert json.dumps(one.canonical()) == json.dumps(two.canonical())
    two.take(call("b", digest="other"))
    assert one.canonical() != two.canonical()


def test_a_call_made_again_stays_on_the_account(tmp_path: Path) -> None:
    written(tmp_path, [("call", call("k", "old")), ("call", call("k", "new"))])
    recorded = read_log(tmp_path)
    assert recorded.calls["k"]["digest"] == "new"
    assert [c["digest"] for c in recorded.past] == ["old"]
    SessionLog(tmp_path, recorded).close()
    again = read_log(tmp_path)
    assert (again.calls, again.past) == (recorded.calls, recorded.past)


def test_an_ended_session_is_reopened_without_what_ended_it(tmp_path: Path) -> None:
    log = written(
        tmp_path,
        [
            ("call", call("t0001/think/P1")),
            ("call", call("t0001/think/P2", status="failed")),
            ("call", call("t0001/think/P3", status="refused")),
            ("reading", ("t0001/clock", {"seconds": 3.0, "closing": "all used"})),
            ("reading", ("t0001/wrap_up", True)),
            ("reading", ("t0002/nearest/P1", [0, 0.9])),
            ("reading", ("t0002/person", {"text": "What about bees?"})),
            ("reading", ("budget", {"calls": 3})),
            ("event", event(0)),
        ],
    )
    log.recorded.end = {"kind": "end", "status": "cut short", "reason": "", "usage": {"seconds": 4.5}}
    SessionLog(tmp_path, log.recorded.reopened()).close()
    recorded = read_log(tmp_path)
    assert list(recorded.calls) == ["t0001/think/P1"]
    assert [c["status"] for c in recorded.past] == ["failed", "refused"]
    assert recorded.readings == {"t0002/person": {"text": "What about bees?"}, "elapsed": 4.5}
    assert recorded.events == []
    assert recorded.end is None
    assert recorded.seconds == 4.5


# Disks


def test_a_folder_that_cannot_be_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written: Not a directory"):
        SessionLog(tmp_path / "file" / "out", Recorded(dict(HEADER)))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "session.tmp").symlink_to("/dev/full")
    with pytest.raises(OutputError, match="cannot be written: No space left on device"):
        SessionLog(tmp_path, Recorded(dict(HEADER)))
    assert not (tmp_path / LOG_NAME).exists()


def test_a_disk_with_too_little_room_is_said_before_anything_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, [("event", event(0))])
    content = (tmp_path / LOG_NAME).read_bytes()
    recorded = read_log(tmp_path)
    monkeypatch.setattr(log_module.shutil, "disk_usage", lambda _: SimpleNamespace(total=10**9, free=300 * 1024))
    for rewrite in (True, False):
        with pytest.raises(OutputError, match="the disk has 300 KiB left"):
            SessionLog(tmp_path, recorded, rewrite=rewrite)
    assert (tmp_path / LOG_NAME).read_bytes() == content


def test_a_disk_that_does_not_tell_its_size_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module.shutil, "disk_usage", lambda _: SimpleNamespace(total=0, free=0))
    written(tmp_path, [("event", event(0))])
    assert len(read_log(tmp_path).events) == 1


def test_a_write_that_fails_is_told_once_and_closing_stays_quiet(tmp_path: Path) -> None:
    log = SessionLog(tmp_path, Recorded(dict(HEADER)))
    assert log._file is not None
    os.dup2(os.open("/dev/full", os.O_WRONLY), log._file.fileno())
    with pytest.raises(OutputError, match=r"session.jsonl cannot be written: No space left on device\. Free some"):
        log.reading("a", 1)
    log.close()
    assert read_log(tmp_path).readings == {}
