"""Budgets: nothing is spent beyond them, and a session that comes near one still votes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from salon.modules.budget import Account, Budget, Usage
from salon.modules.log import Recorded, read_log

from salon import Roundtable, Session, replay, resume
from salon.errors import UserError
from salon.testing import ChatRequest, LoopbackServer, default_reply

TOPIC = "Bicycles for winter"


def hold(program: Roundtable, server: LoopbackServer, **arguments: Any) -> Session:
    with dspy.context(lm=server.lm(cache=False, num_retries=0)):
        session: Session = program(topic=TOPIC, seed=1, **arguments).session
    return session


def counted(session: Session) -> dict[str, int]:
    """Calls of a session by purpose."""
    assert session.log is not None
    purposes = [key.split("/")[1] for key, call in session.log.calls.items() if call["calls"]]
    return {purpose: purposes.count(purpose) for purpose in purposes}


# Limits


@pytest.mark.parametrize("name", ["usd", "tokens", "seconds", "calls"])
@pytest.mark.parametrize("limit", [0, -1, float("nan"), True])
def test_a_limit_is_a_positive_number(name: str, limit: Any) -> None:
    with pytest.raises(UserError, match=f"{name} is not possible: it must be more than 0"):
        Budget(**{name: limit})


def test_closing_comes_at_its_share_or_when_what_is_ahead_would_not_fit() -> None:
    budget = Budget(calls=100)
    assert budget.closing(Usage(calls=84), Usage(calls=16)) == ""
    assert budget.closing(Usage(calls=85), Usage()) == "85 of 100 calls are used"
    assert budget.closing(Usage(calls=84), Usage(calls=17)) == "another turn might not fit: 84 of 100 calls are used"
    assert Budget().closing(Usage(calls=10**9), Usage(calls=1)) == ""


costs = st.builds(Usage, calls=st.just(1), prompt_tokens=st.integers(0, 50), completion_tokens=st.integers(0, 50))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(costs, st.floats(0, 1), st.integers(0, 5)), max_size=20),
    st.builds(Budget, tokens=st.integers(1, 500), calls=st.none() | st.integers(1, 15)),
)
def test_concurrent_calls_never_pass_a_limit(wanted: list[tuple[Usage, float, int]], budget: Budget) -> None:
    """Calls that cost at most what was expected of them, in any order of their ends."""
    account = Account(budget)

    async def call(expected: Usage, share: float, pauses: int) -> str:
        refusal = await account.reserve("m", expected)
        if refusal:
            return refusal
        for _ in range(pauses):
            await asyncio.sleep(0)
        used = Usage(1, int(share * expected.prompt_tokens), int(share * expected.completion_tokens))
        account.book("m", used, 0.1)
        account.release("m", expected)
        assert not budget.refusal(account.spent, Usage())
        return ""

    async def all_calls() -> list[str]:
        return await asyncio.wait_for(asyncio.gather(*(call(*each) for each in wanted)), 10)

    refusals = asyncio.run(all_calls())
    assert account.spent.calls == refusals.count("")
    for (expected, *_), refusal in zip(wanted, refusals, strict=True):
        if refusal:  # it would not fit even now that nothing is in flight
            assert budget.refusal(account.spent, expected)


def test_a_call_waits_for_those_in_flight_only_as_long_as_they_may_leave_room() -> None:
    async def run() -> list[str]:
        account, told = Account(Budget(tokens=100)), []
        first, second = Usage(calls=1, prompt_tokens=70), Usage(calls=1, prompt_tokens=60)

        async def later() -> None:
            told.append(await account.reserve("m", second) or "second goes")

        assert await account.reserve("m", first) == ""
        waiting = asyncio.create_task(later())
        assert await account.reserve("m", Usage(calls=1, prompt_tokens=101)) == "the budget of 100 tokens is used up"
        told.append("first ends")
        account.book("m", Usage(calls=1, prompt_tokens=40), 0.0)
        account.release("m", first)
        await waiting
        return told

    assert asyncio.run(run()) == ["first ends", "second goes"]


def test_the_first_call_of_a_model_goes_alone_where_money_is_limited() -> None:
    async def run() -> list[int]:
        account, flying, most = Account(Budget(usd=1.0)), 0, []

        async def call() -> None:
            nonlocal flying
            cost = Usage(calls=1, prompt_tokens=100, completion_tokens=50)
            assert await account.reserve("m", cost) == ""
            flying += 1
            most.append(flying)
            await asyncio.sleep(0)
            flying -= 1
            account.book("m", Usage(1, 80, 10, usd=0.001), 0.0)
            account.release("m", cost)

        await asyncio.gather(*(call() for _ in range(4)))
        return most

    assert asyncio.run(run()) == [1, 1, 2, 3]


def test_an_unpriced_model_is_free() -> None:
    async def run() -> str:
        account = Account(Budget(usd=0.001))
        account.book("m", Usage(1, 80, 10, unpriced=1), 0.0)
        return await account.reserve("m", Usage(calls=1, prompt_tokens=10**9))

    assert asyncio.run(run()) == ""


@given(st.floats(0.1, 8), st.integers(1, 2000), st.integers(1, 600), st.integers(0, 2000), st.integers(0, 600))
def test_the_expected_price_is_never_below_the_real_one(
    ratio: float, prompt: int, answer: int, next_prompt: int, next_answer: int
) -> None:
    """For the part that surprises: output, which costs up to 8 times the input."""
    account = Account(Budget(usd=10.0**9))
    account.book("m", Usage(1, prompt, answer, usd=prompt + ratio * answer), 0.0)
    cost = Usage(1, next_prompt, next_answer)
    expected, known = account._price("m", cost)
    assert known
    assert expected >= ratio * next_answer


# Sessions


@pytest.mark.parametrize("limit", [1, 2, 4, 5, 8, 11, 13, 17])
def test_a_budget_of_calls_is_kept_and_ends_with_ranked_ideas(
    roundtable: Callable[..., Roundtable], limit: int
) -> None:
    with LoopbackServer() as server:
        session = hold(roundtable(turns=3), server, budget=Budget(calls=limit))
        assert server.count == session.usage.calls <= limit
    assert session.ideas
    assert session.status == "cut short"
    assert "calls" in session.reason
    if limit >= 8:  # a round of ideas, and the vote
        assert session.ideas[0].votes


@pytest.mark.parametrize("limit", [2500, 5000, 7000, 9000, 12_000])
def test_a_budget_of_tokens_is_kept(roundtable: Callable[..., Roundtable], limit: int) -> None:
    with LoopbackServer() as server:
        session = hold(roundtable(turns=4), server, budget=Budget(tokens=limit))
        used = sum(len(request.text.encode()) // 4 for request in server.requests)
    assert used < session.usage.tokens <= limit
    assert session.status == "cut short"
    assert "tokens" in session.reason
    assert session.ideas


def test_demos_and_long_instructions_count_against_a_budget_of_tokens(
    roundtable: Callable[..., Roundtable],
) -> None:
    program = roundtable()
    program.think.signature = program.think.signature.with_instructions("Think hard. " * 600)
    program.propose.demos = [dspy.Example(topic="t " * 3000, title="A", description="b", cites=[])]
    with LoopbackServer() as server:
        session = hold(program, server, budget=Budget(tokens=6000))
    assert session.usage.tokens <= 6000


def test_a_budget_of_money_is_kept(roundtable: Callable[..., Roundtable]) -> None:
    with LoopbackServer(model="gpt-4o-mini") as server:  # a model whose price is known
        whole = hold(roundtable(turns=3), server)
        assert whole.usage.usd > 0
        assert whole.usage.unpriced == 0
        for share in (0.5, 0.7, 0.9):
            limit = whole.usage.usd * share
            session = hold(roundtable(turns=3), server, budget=Budget(usd=limit))
            assert 0 < session.usage.usd <= limit
            assert session.status == "cut short"
            assert session.ideas


def test_money_cannot_be_counted_where_the_price_is_unknown_and_the_session_says_so(
    roundtable: Callable[..., Roundtable],
) -> None:
    with LoopbackServer() as server:
        session = hold(roundtable(), server, budget=Budget(usd=0.000001))
    assert session.status == "complete"
    assert session.usage.unpriced == session.usage.calls == server.count


def test_a_budget_of_seconds_ends_with_ranked_ideas_and_no_request_after_it(
    roundtable: Callable[..., Roundtable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock of its own: a second passes with each look at it."""
    ticks = itertools.count()
    monkeypatch.setattr("salon.modules.run.Run.elapsed", lambda _: float(next(ticks)))
    with LoopbackServer() as server:
        session = hold(roundtable(turns=50), server, budget=Budget(seconds=60))
        assert session.ideas
        assert session.status == "cut short"
        assert "seconds" in session.reason
        server.reset()
        hold(roundtable(turns=50), server, budget=Budget(seconds=1))
        assert server.count == 0


def test_a_call_in_flight_is_given_up_when_time_is_over(roundtable: Callable[..., Roundtable]) -> None:
    with LoopbackServer(delay=60) as server:
        session = hold(roundtable(), server, budget=Budget(seconds=0.3))
        assert server.count == 3 + 1
    assert session.log is not None
    assert {call["error"] for call in session.log.calls.values()} == {"the budget of 0.3 seconds is used up"}
    assert session.status == "partial"


def test_a_repair_counts_and_is_left_out_where_it_does_not_fit(roundtable: Callable[..., Roundtable]) -> None:
    for limit in range(2, 24, 3):
        with LoopbackServer(reply=lambda request: "no answer at all" if request.number % 3 == 0 else None) as server:
            session = hold(roundtable(turns=3), server, budget=Budget(calls=limit))
            assert server.count == session.usage.calls <= limit
    assert session.log is not None
    assert any(call["repairs"] for call in session.log.calls.values())


def test_longer_answers_than_expected_are_learnt_from(roundtable: Callable[..., Roundtable]) -> None:
    """An LM without max_tokens may surprise the account by the answers of one turn, no more."""

    def reply(request: ChatRequest) -> dict[str, Any]:
        said = default_reply(request)
        return {**said, "thought": "word " * 1000} if "thought" in said else said

    with LoopbackServer(reply=reply) as server:
        session = hold(roundtable(turns=9, facilitator=False), server, budget=Budget(tokens=20_000))
    assert session.log is not None
    assert max(call["completion_tokens"] for call in session.log.calls.values()) > 600
    assert session.usage.tokens <= 20_000


def test_a_session_with_a_refused_call_is_not_complete(roundtable: Callable[..., Roundtable]) -> None:
    with LoopbackServer() as server:
        whole = hold(roundtable(), server)
        for limit in range(whole.usage.calls - 3, whole.usage.calls):
            session = hold(roundtable(), server, budget=Budget(calls=limit))
            assert session.status == "cut short"
        assert hold(roundtable(), server, budget=Budget(calls=whole.usage.calls + 9)).status == "complete"


# Over a resume


def test_a_larger_budget_goes_on_without_repeating_calls(roundtable: Callable[..., Roundtable], tmp_path: Path) -> None:
    with LoopbackServer() as server, dspy.context(lm=server.lm(cache=False)):
        whole = hold(roundtable(turns=3), server)
        assert whole.log is not None
        server.reset()
        first = hold(roundtable(turns=3), server, out=tmp_path, budget=Budget(calls=12))
        assert first.status == "cut short"
        before = read_log(tmp_path)
        second = resume(tmp_path, budget=Budget(calls=60))
        assert second.status == "complete"
        assert server.count == second.usage.calls
        texts = [request.text for request in server.requests]
        assert len(set(texts)) == len(texts)
        after = read_log(tmp_path)
    assert second.events == whole.events
    reused = {key for key, call in before.calls.items() if after.calls.get(key) == call}
    assert reused >= {key for key in before.calls if key < "t0002"}
    assert server.count == len(after.calls) + len(after.past)


def test_what_was_spent_before_counts_after_a_resume(roundtable: Callable[..., Roundtable], tmp_path: Path) -> None:
    """Also for answers that could not be read, which are not used again."""

    def reply(request: ChatRequest) -> Any:
        return "nothing" if "comment" in request.fields and broken else None

    with LoopbackServer(reply=reply) as server, dspy.context(lm=server.lm(cache=False)):
        broken = True
        first = hold(roundtable(turns=3), server, out=tmp_path, budget=Budget(calls=13))
        assert first.usage.calls == server.count
        assert any(call["status"] == "failed" for call in read_log(tmp_path).calls.values())
        broken = False
        second = resume(tmp_path, budget=Budget(calls=16))
        assert second.usage.calls == server.count <= 16
        assert second.usage.tokens > first.usage.tokens
        assert second.usage.seconds >= first.usage.seconds
        third = resume(tmp_path)
        assert third.status == "complete"
        assert third.usage.calls == server.count
        assert replay(tmp_path).usage == third.usage


def test_an_interrupted_session_keeps_its_budget_and_an_ended_one_does_not(
    roundtable: Callable[..., Roundtable], tmp_path: Path
) -> None:
    def stop(item: Any) -> None:
        if getattr(item, "type", "") == "comment":
            raise KeyboardInterrupt

    with LoopbackServer() as server, dspy.context(lm=server.lm(cache=False)):
        with pytest.raises(KeyboardInterrupt):
            hold(roundtable(turns=9), server, out=tmp_path, budget=Budget(calls=20), listen=stop)
        session = resume(tmp_path)
        assert session.status == "cut short"
        assert session.usage.calls == server.count <= 20
        assert resume(tmp_path).status == "complete"


@pytest.mark.parametrize("budget", [None, Budget(calls=16), Budget(calls=500), Budget(tokens=10_000)])
def test_a_decision_on_record_stands_whatever_the_budget_of_the_resume(
    roundtable: Callable[..., Roundtable], tmp_path: Path, budget: Budget | None
) -> None:
    """Interrupted in the vote it was cut short to, or before any budget was set, it goes on from there."""
    for number, given_before in enumerate((Budget(calls=14), None)):
        folder = tmp_path / str(number)
        with LoopbackServer() as server, dspy.context(lm=server.lm(cache=False)):
            hold(roundtable(turns=3), server, out=folder, budget=given_before)
            path = folder / "session.jsonl"
            lines = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join(lines[:-4]))
            recorded: Recorded = read_log(folder)
            session = resume(folder, budget=budget)
            assert session.log is not None
            assert [e for e in session.log.events[: len(recorded.events)]] == recorded.events
            assert replay(folder).events == session.events


def test_a_replay_knows_what_the_session_cost(roundtable: Callable[..., Roundtable], tmp_path: Path) -> None:
    with LoopbackServer() as server:
        session = hold(roundtable(), server, out=tmp_path, budget=Budget(calls=12))
    assert session.status == "cut short"
    again = replay(tmp_path)
    assert (again.usage, again.status, again.reason) == (session.usage, session.status, session.reason)
    assert again.events == session.events
    assert counted(again) == counted(session)
