"""Sessions side by side: matched, resumed, never mixed, and a failure is an outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from salon.data.rubrics import RUBRICS
from salon.evals.conditions import Condition, Outcome, Progress, check_whole, hold_all, rate_all, row, sessions_at_once
from salon.evals.judges import RubricJudge
from salon.evals.ledger import Ledger
from salon.modules import Roundtable, Session
from salon.modules.budget import Budget

from salon.errors import CallFailure, LogError, OutputError, UserError
from salon.testing import Fault, LoopbackServer

PEOPLE = [{"name": name, "sketch": f"Sketch of seat P{n}."} for n, name in enumerate(("Ann", "Bo", "Cy"), 1)]
CONDITIONS = [Condition({"citations": kind, "minutes": 0}, seed) for kind in ("required", "off") for seed in (3, 4)]


@pytest.fixture
def server(scripted: Callable[..., Any]) -> Iterator[LoopbackServer]:
    with LoopbackServer(reply=scripted(), model="talker") as running:
        yield running


def program(server: LoopbackServer, **settings: Any) -> Roundtable:
    lm = server.lm(num_retries=0, cache=False)
    given = {"minutes": 0, "ideas": 1, "votes": 1, "facilitator": False, "lms": {"participant": lm, "facilitator": lm}}
    return Roundtable(**{"personas": PEOPLE, **given, **settings})


def held(
    program: Roundtable, root: Path, conditions: Sequence[Condition] = CONDITIONS, topic: str = "Tea", **settings: Any
) -> list[Outcome]:
    limit, at_once = asyncio.Semaphore(settings.pop("limit", 8)), settings.pop("at_once", 8)
    return asyncio.run(hold_all(program, {"topic": topic}, conditions, root, limit, at_once, **settings))


def test_each_condition_has_its_session_with_its_setting_and_seed(
    server: LoopbackServer, worded: None, tmp_path: Path
) -> None:
    told: list[Progress] = []
    outcomes = held(program(server), tmp_path, tell=told.append)
    assert [o.condition for o in outcomes] == CONDITIONS
    for outcome in outcomes:
        assert outcome.session is not None
        assert outcome.measures is not None
        assert outcome.session.status == "complete"
        assert outcome.session.header["seed"] == outcome.condition.seed
        assert outcome.session.header["settings"]["citations"] == outcome.condition.factors["citations"]
        assert (outcome.condition.folder(tmp_path) / "session.jsonl").exists()
    assert (tmp_path / "citations-off" / "minutes-0" / "seed-4" / "session.json").exists()
    assert [(p.done, p.total) for p in told] == [(n, 4) for n in (1, 2, 3, 4)]
    assert told[-1].spent.calls == server.count == 4 * 6


def test_what_is_complete_is_read_and_not_held_again(server: LoopbackServer, worded: None, tmp_path: Path) -> None:
    first = held(program(server), tmp_path)
    count = server.count
    again = held(program(server), tmp_path)
    assert server.count == count
    assert [row(o) for o in again] == [row(o) for o in first]
    assert [o.session.events for o in again if o.session] == [o.session.events for o in first if o.session]
    held(program(server, max_concurrency=3), tmp_path)  # changes nothing in a session
    assert server.count == count


def test_what_was_interrupted_goes_on_where_it_stopped(server: LoopbackServer, worded: None, tmp_path: Path) -> None:
    first = held(program(server), tmp_path)
    log = CONDITIONS[1].folder(tmp_path) / "session.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    kept = records[: next(n for n, r in enumerate(records) if r.get("type") == "idea")]
    log.write_text("".join(json.dumps(r) + "\n" for r in kept))
    missing = sum(r["kind"] == "call" for r in records) - sum(r["kind"] == "call" for r in kept)
    count = server.count
    again = held(program(server), tmp_path)
    assert 0 < missing < 6
    assert server.count == count + missing
    assert [o.session.events for o in again if o.session] == [o.session.events for o in first if o.session]


def test_sessions_keep_to_one_limit_over_all(scripted: Callable[..., Any], worded: None, tmp_path: Path) -> None:
    with LoopbackServer(reply=scripted(), delay=0.02) as server:
        held(program(server), tmp_path, limit=2)
        assert server.max_in_flight == 2


# ---------------------------------------------------------------- nothing is mixed


@pytest.mark.parametrize(
    ("changes", "topic", "told"),
    [
        ({}, "Coffee", "it has another topic"),
        ({"ideas": 2}, "Tea", "it has other settings"),
        ({"personas": PEOPLE[:2]}, "Tea", "it has other settings"),
        ({"ideas": 2}, "Coffee", "it has other settings and another topic"),
    ],
)
def test_another_study_in_the_folder_is_told_before_anything_is_spent(
    server: LoopbackServer, worded: None, tmp_path: Path, changes: dict[str, Any], topic: str, told: str
) -> None:
    held(program(server), tmp_path, CONDITIONS[2:])
    count = server.count
    with pytest.raises(OutputError, match=f"holds another session: {told}. Give the same settings, or another folder"):
        held(program(server, **changes), tmp_path, topic=topic)
    assert server.count == count
    assert not CONDITIONS[0].folder(tmp_path).exists()


def test_a_session_of_another_seed_or_model_is_not_taken_for_ones_own(
    server: LoopbackServer, worded: None, tmp_path: Path
) -> None:
    held(program(server), tmp_path, CONDITIONS[:1])
    with LoopbackServer(model="other") as other:
        with pytest.raises(OutputError, match="other models: participant openai/talker and not openai/other"):
            held(program(other), tmp_path, CONDITIONS[:1])
        assert other.count == 0
    CONDITIONS[0].folder(tmp_path).rename(CONDITIONS[0].folder(tmp_path).with_name("seed-9"))
    with pytest.raises(OutputError, match="it has another seed"):
        held(program(server), tmp_path, [Condition(CONDITIONS[0].factors, 9)])


def test_the_same_model_at_another_address_is_the_same(server: LoopbackServer, worded: None, tmp_path: Path) -> None:
    held(program(server), tmp_path, CONDITIONS[:1])
    with LoopbackServer(model="talker") as moved:
        held(program(moved), tmp_path, CONDITIONS[:1])
        assert moved.count == 0


# ---------------------------------------------------------------- failures


def changed_log(folder: Path) -> None:
    """Interrupt a session and change its log, so that it cannot be gone on with."""
    log = folder / "session.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    joined = next(r for r in records if r.get("type") == "joined")
    joined["label"] = "Somebody"
    log.write_text("".join(json.dumps(r) + "\n" for r in records[:-1]))


def test_a_session_that_fails_is_an_outcome_with_its_reason(
    server: LoopbackServer, worded: None, tmp_path: Path
) -> None:
    held(program(server), tmp_path)
    changed_log(CONDITIONS[0].folder(tmp_path))
    outcomes = held(program(server), tmp_path)
    assert [o.session is None for o in outcomes] == [True, False, False, False]
    assert "cannot be run over its log" in outcomes[0].failure
    rows = [row(o) for o in outcomes]
    assert {tuple(r) for r in rows} == {tuple(rows[0])}  # the same columns in the same order
    assert rows[0]["status"] == "failed"
    assert rows[0]["reason"] == outcomes[0].failure
    assert rows[0]["depth"] is None
    assert rows[1]["status"] == "complete"
    assert rows[1]["ideas"] == 3
    assert outcomes[0].quality is None


def test_a_damaged_log_is_told_and_nothing_is_spent(server: LoopbackServer, worded: None, tmp_path: Path) -> None:
    folder = CONDITIONS[3].folder(tmp_path)
    folder.mkdir(parents=True)
    (folder / "session.jsonl").write_text("{}\n")
    with pytest.raises(LogError, match="seed-4"):
        held(program(server), tmp_path)
    assert server.count == 0


def test_a_folder_that_cannot_be_written_is_the_users_mistake(server: LoopbackServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        held(program(server), tmp_path / "file")
    assert server.count == 0


def test_a_model_that_cannot_be_used_stops_all_and_what_was_done_is_kept(
    scripted: Callable[..., Any], worded: None, tmp_path: Path
) -> None:
    with LoopbackServer(reply=scripted(), faults=lambda r: Fault(401) if r.number > 8 else None) as server:
        with pytest.raises(CallFailure):
            held(program(server), tmp_path, limit=1)
        assert server.count == 9
        server.settings.faults = {}
        held(program(server), tmp_path, limit=1)
        assert server.count == 9 + 4 * 6 - 8


def test_a_session_cut_short_by_its_budget_says_so(server: LoopbackServer, worded: None, tmp_path: Path) -> None:
    (outcome,) = held(program(server), tmp_path, CONDITIONS[:1], budget=Budget(calls=4))
    told = row(outcome)
    assert told["status"] in ("cut short", "partial")
    assert "4 calls" in told["reason"]
    assert told["calls"] <= 4


# ---------------------------------------------------------------- rating


def test_all_ideas_are_rated_once_and_belong_to_their_session(
    scripted: Callable[..., Any], worded: None, tmp_path: Path
) -> None:
    model = scripted(rate=lambda call: {"originality": 2 + len(call.section("answer")) % 5})
    with LoopbackServer(reply=model) as server:
        outcomes = held(program(server), tmp_path / "s", CONDITIONS[:2])
        count = server.count
        for _ in range(2):
            judge = RubricJudge(RUBRICS["liveideabench"], [server.lm(cache=False)])
            with Ledger(tmp_path / "judge", "quality", judge.lms, temperature=0.0) as ledger:
                asyncio.run(rate_all([*outcomes, Outcome(CONDITIONS[2], failure="x")], judge, ledger))
        assert server.count == count + 6
    for outcome in outcomes:
        assert isinstance(outcome.session, Session)
        assert set(outcome.ratings) == {idea.id for idea in outcome.session.board}
        for idea in outcome.session.board:
            said = f"{idea.title}. {idea.description}"
            assert outcome.ratings[idea.id].scores["originality"] == 2 + len(said) % 5
        assert row(outcome)["rated"] == 3
        assert outcome.quality == pytest.approx(sum(r.value or 0 for r in outcome.ratings.values()) / 3)


@pytest.mark.parametrize("value", [0, -1, True, 2.0, "3", None, float("nan")])
def test_whole_numbers(value: Any) -> None:
    with pytest.raises(UserError, match=r"sessions=.*whole number, 1 or more"):
        check_whole("sessions", value, 1)
    check_whole("seed", -7)


@pytest.mark.parametrize(("at_once", "most"), [(1, 1), (2, 2), (8, 4)])
def test_no_more_sessions_are_under_way_than_were_asked_for(
    server: LoopbackServer, worded: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, most: int
) -> None:
    under_way, seen, hold = 0, [], Roundtable.hold

    async def counted(self: Roundtable, **arguments: Any) -> Any:
        nonlocal under_way
        under_way += 1
        seen.append(under_way)
        try:
            return await hold(self, **arguments)
        finally:
            under_way -= 1

    monkeypatch.setattr(Roundtable, "hold", counted)
    outcomes = held(program(server), tmp_path, [Condition({"minutes": 0}, seed) for seed in range(4)], at_once=at_once)
    assert max(seen) == most
    assert all(outcome.session is not None for outcome in outcomes)


def test_as_many_sessions_at_once_as_keep_the_calls_in_flight() -> None:
    assert [sessions_at_once(calls, seats) for calls, seats in [(32, 13), (4, 3), (1, 5), (32, 2)]] == [4, 2, 1, 32]
