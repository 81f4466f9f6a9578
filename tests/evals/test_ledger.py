"""Calls outside of sessions: kept, never asked twice, never mixed, within the budget."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
from salon.evals.ledger import LEDGER_NAME, Ledger, together
from salon.modules.budget import Budget
from salon.signatures.judging import JudgeUse

from salon.errors import CallFailure, LogError, OutputError
from salon.testing import Fault, LoopbackServer

JUDGE = dspy.Predict(JudgeUse)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(model="judge-1") as running:
        yield running


def asked(ledger: Ledger, count: int, first: int = 1) -> list[Any]:
    """Ask so many questions at once."""

    async def all_of_them() -> list[Any]:
        numbers = range(first, first + count)
        texts = [{"topic": "Tea", "earlier": f"e{n}", "later": f"l{n}"} for n in numbers]
        calls = zip(numbers, texts, strict=True)
        return await together(ledger.ask(JUDGE, f"C{n}/use/1", "judge", **text) for n, text in calls)

    return asyncio.run(all_of_them())


def opened(folder: Path | None, server: LoopbackServer, purpose: str = "edges", **settings: Any) -> Ledger:
    settings.setdefault("lms", {"judge": server.lm(num_retries=0)})
    return Ledger(folder, purpose, **settings)


def test_what_was_asked_is_not_asked_again(server: LoopbackServer, tmp_path: Path) -> None:
    with opened(tmp_path, server) as ledger:
        first = asked(ledger, 3)
        spent = ledger.spent
    assert (server.count, spent.calls) == (3, 3)
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    with opened(tmp_path, server) as ledger:
        assert [a.outputs for a in asked(ledger, 3)] == [a.outputs for a in first]
        assert server.count == 3
        asked(ledger, 5)
        assert server.count == 5
        assert ledger.spent.calls == 5
        assert ledger.spent.tokens > spent.tokens


def test_another_input_under_the_same_key_is_asked_anew(server: LoopbackServer, tmp_path: Path) -> None:
    with opened(tmp_path, server) as ledger:
        asked(ledger, 1)
        changed = {"topic": "Tea", "earlier": "other", "later": "l1"}
        assert not asyncio.run(ledger.ask(JUDGE, "C1/use/1", "judge", **changed)).error
    assert server.count == 2


def test_a_ledger_can_be_kept_in_memory(server: LoopbackServer) -> None:
    with opened(None, server) as ledger:
        asked(ledger, 2)
        asked(ledger, 2)
    assert server.count == 2


@pytest.mark.parametrize("cut", [1, 20, 400])
def test_a_torn_last_line_costs_one_call(server: LoopbackServer, tmp_path: Path, cut: int) -> None:
    with opened(tmp_path, server) as ledger:
        asked(ledger, 3)
    log = tmp_path / LEDGER_NAME
    log.write_bytes(log.read_bytes()[:-cut])
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    with opened(tmp_path, server) as ledger:
        asked(ledger, 3)
    assert server.count == 4
    kinds = [json.loads(line)["kind"] for line in log.read_text().splitlines()]
    assert (kinds[0], kinds.count("call")) == ("header", 3)


def test_damage_before_the_end_is_told(server: LoopbackServer, tmp_path: Path) -> None:
    with opened(tmp_path, server) as ledger:
        asked(ledger, 3)
    log = tmp_path / LEDGER_NAME
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([lines[0], "{}\n", *lines[1:]]))
    with pytest.raises(LogError, match=r"calls.jsonl is damaged"):
        opened(tmp_path, server)


@pytest.mark.parametrize("other", [{"purpose": "masking"}, {"seed": 1}])
def test_calls_of_another_purpose_or_seed_are_not_mixed_in(
    server: LoopbackServer, tmp_path: Path, other: dict[str, Any]
) -> None:
    with opened(tmp_path, server) as ledger:
        asked(ledger, 1)
    before = (tmp_path / LEDGER_NAME).read_bytes()
    with pytest.raises(OutputError, match=r"calls.jsonl holds other calls: it is of edges with seed 0"):
        opened(tmp_path, server, **other)
    assert (tmp_path / LEDGER_NAME).read_bytes() == before
    assert server.count == 1


def test_answers_of_another_model_are_not_mixed_in(server: LoopbackServer, tmp_path: Path) -> None:
    with opened(tmp_path, server) as ledger:
        asked(ledger, 1)
    with LoopbackServer(model="judge-2") as other:
        with pytest.raises(OutputError, match=r"other models: judge openai/judge-1 and not openai/judge-2"):
            opened(tmp_path, other)
        with dspy.context(lm=other.lm()):
            with opened(tmp_path / "default", other, lms=None) as ledger:
                asked(ledger, 1)
        with dspy.context(lm=server.lm()), pytest.raises(OutputError, match="default openai/judge-2"):
            opened(tmp_path / "default", other, lms=None)


def test_a_ledger_that_is_open_cannot_be_opened_twice(server: LoopbackServer, tmp_path: Path) -> None:
    with opened(tmp_path, server) as ledger:
        with pytest.raises(OutputError, match="under way already"):
            opened(tmp_path, server)
        asked(ledger, 1)
    with opened(tmp_path, server):
        pass


def test_a_budget_is_kept_over_all_runs_and_what_it_refused_is_asked_later(tmp_path: Path) -> None:
    with LoopbackServer() as server:
        with opened(tmp_path, server, budget=Budget(calls=2)) as ledger:
            answers = asked(ledger, 4)
        assert server.count == 2
        assert [a.refused for a in answers].count(True) == 2
        assert all("the budget of 2 calls is used up" in a.error for a in answers if a.refused)
        with opened(tmp_path, server, budget=Budget(calls=3)) as ledger:
            assert [a.refused for a in asked(ledger, 4)].count(True) == 1
        assert server.count == 3
        with opened(tmp_path, server) as ledger:
            assert not any(a.error for a in asked(ledger, 4))
        assert server.count == 4


def test_what_failed_is_asked_again_on_reopening_and_what_it_cost_stays(tmp_path: Path) -> None:
    with LoopbackServer(faults={2: Fault(500)}) as server:
        with opened(tmp_path, server) as ledger:
            answers = asked(ledger, 3)
        failed = [n for n, answer in enumerate(answers) if answer.error]
        assert len(failed) == 1
        assert "scripted failure" in answers[failed[0]].error
        with opened(tmp_path, server) as ledger:
            assert not any(answer.error for answer in asked(ledger, 3))
            assert server.count == 4
            assert ledger.spent.calls == 3


def test_an_answer_that_cannot_be_read_is_a_failure_and_not_a_verdict(tmp_path: Path) -> None:
    with LoopbackServer(reply=lambda _: "I would rather not say.") as server:
        with opened(tmp_path, server) as ledger:
            (answer,) = asked(ledger, 1)
            assert "could not be read" in answer.error
            assert ledger.spent.calls == 2  # one repair


def test_a_model_that_cannot_be_used_stops_everything(tmp_path: Path) -> None:
    with LoopbackServer(faults=lambda r: Fault(401, message="bad key sk-verysecret123") if r.number > 1 else None) as s:
        with opened(tmp_path, s, limit=asyncio.Semaphore(1)) as ledger, pytest.raises(CallFailure) as caught:
            asked(ledger, 20)
        assert s.count == 2
    assert "sk-verysecret123" not in str(caught.value)
    assert "sk-verysecret123" not in (tmp_path / LEDGER_NAME).read_text()


def test_calls_keep_to_the_limit_and_keys_stay_out_of_the_file(tmp_path: Path) -> None:
    with LoopbackServer(delay=0.02) as server:
        lms = {"judge": server.lm(api_key="sk-topsecretkey1", num_retries=0)}
        with opened(tmp_path, server, lms=lms, limit=asyncio.Semaphore(3)) as ledger:
            asked(ledger, 12)
        assert server.max_in_flight == 3
    assert "topsecret" not in (tmp_path / LEDGER_NAME).read_text()


def test_a_persona_is_asked_through_its_own_model(server: LoopbackServer) -> None:
    with LoopbackServer() as own:
        lms = {"judge": server.lm(), "Ann": own.lm()}
        with Ledger(None, "masking", lms) as ledger:
            texts = {"topic": "Tea", "earlier": "a", "later": "b"}
            asyncio.run(ledger.ask(JUDGE, "I1/x/1", "judge", "P1", "Ann", **texts))
            asyncio.run(ledger.ask(JUDGE, "I2/x/1", "judge", "P2", "Bo", **texts))
        assert (own.count, server.count) == (1, 1)


# ---------------------------------------------------------------- together


def test_results_come_in_order_and_a_failure_stops_the_rest() -> None:
    stopped: list[int] = []

    async def work(n: int) -> int:
        try:
            await asyncio.sleep(0.01 * (5 - n) if n < 5 else 5)
        except asyncio.CancelledError:
            stopped.append(n)
            raise
        if n == 4:
            raise ValueError("no")
        return n

    assert asyncio.run(together(work(n) for n in range(4))) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="no"):
        asyncio.run(together(work(n) for n in (4, 5, 6)))
    assert stopped == [5, 6]
    assert asyncio.run(together([])) == []


def test_what_waits_is_stopped_with_it() -> None:
    ended: list[str] = []

    async def inner() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            ended.append("inner")

    async def outer() -> None:
        await asyncio.wait_for(together([together([inner()])]), 0.05)

    with pytest.raises(TimeoutError):
        asyncio.run(outer())
    assert ended == ["inner"]
