"""Measuring programs: the same seeds for all, nothing twice, and one account for all runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from salon.data.benchmarks import Task
from salon.data.rubrics import RUBRICS
from salon.evals.jobs import JOBS_NAME, JobRow
from salon.evals.judges import RubricJudge
from salon.modules import Debate
from salon.optimize.bench import Bench, Measuring, cost_of

from salon import Budget, BudgetSpent, CallFailure, OutputError
from salon.testing import ChatRequest, Fault, LoopbackServer

TASKS = [Task("a", "Find a use for corks", "a"), Task("b", "Find a use for bells", "b")]
CALLS = 4  # of a session of two agents without rounds, with its rating
Make = Callable[..., Bench]


@pytest.fixture
def lm(loopback: LoopbackServer) -> Any:
    return loopback.lm(cache=False, num_retries=0)


@pytest.fixture
def program(lm: Any) -> Debate:
    return Debate(agents=2, rounds=0, lms={"participant": lm, "judge": lm})


@pytest.fixture
def bench(lm: Any, tmp_path: Path) -> Make:
    """Make a bench over the same folder, as another process would."""

    def make(judged: bool = True, **settings: Any) -> Bench:
        judge = RubricJudge(RUBRICS["ideas"], [lm]) if judged else None
        return Bench(tmp_path, judge, **{"groups": 2, "max_concurrency": 4, **settings})

    return make


def measured(bench: Bench, program: Debate, place: str = "one", tasks: Any = TASKS, fresh: int = 0) -> list[JobRow]:
    return asyncio.run(bench.measure(program, tasks, place, fresh))


def test_all_variants_get_the_same_seeds_and_fresh_ones_others(bench: Make, program: Debate) -> None:
    first = measured(bench(), program)
    other = measured(bench(), program.changed(agents=3), "two")
    fresh = measured(bench(), program, fresh=1)
    assert [(row.query, row.run) for row in first] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert [row.seed for row in first] == [row.seed for row in other]
    assert len({row.seed for row in first}) == 4
    assert not {row.seed for row in first} & {row.seed for row in fresh}
    assert all(row.quality is not None for row in first)
    assert not {row.seed for row in measured(bench(seed=7), program, "three")} & {row.seed for row in first}


def test_nothing_is_made_twice_and_all_is_on_the_account(
    bench: Make, program: Debate, loopback: LoopbackServer
) -> None:
    told: list[Measuring] = []
    kept = bench(tell=told.append)
    rows = measured(kept, program)
    assert [str(measuring) for measuring in told] == [f"{n} of 4 sessions" for n in (1, 2, 3, 4)]
    assert told[-1].spent.calls == 4 * CALLS
    assert loopback.count == kept.spent.calls == cost_of(*rows).calls == 4 * CALLS
    assert measured(kept, program) == rows
    later = bench()  # what is on disk counts, whether it is measured again or not
    assert (later.spent.calls, later.spent.tokens) == (kept.spent.calls, kept.spent.tokens)
    assert measured(later, program) == rows
    assert later.spent.calls == loopback.count == 4 * CALLS


def test_after_a_crash_only_what_is_missing_is_made(
    bench: Make, program: Debate, loopback: LoopbackServer, tmp_path: Path
) -> None:
    rows = measured(bench(), program)
    path = tmp_path / "one" / "seeds-0" / JOBS_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]) + lines[-2][:40])  # killed while the third row was written
    kept = bench()
    assert kept.spent.calls == 2 * CALLS
    assert measured(kept, program) == rows  # the sessions and ratings themselves were on disk
    assert loopback.count == kept.spent.calls == 4 * CALLS


def test_a_session_that_failed_is_tried_again_and_booked_once(bench: Make, lm: Any, tmp_path: Path) -> None:
    broken = {"is": True}

    def reply(request: ChatRequest) -> Any:
        return Fault(status=400, message="no") if broken["is"] and "choice" in request.fields else None

    with LoopbackServer(reply=reply) as server:
        mine = server.lm(cache=False, num_retries=0)
        program = Debate(agents=2, rounds=0, lms={"participant": mine, "judge": mine})
        kept = bench(judged=False)
        rows = measured(kept, program, tasks=TASKS[:1])
        answered = [row.status for row in rows]
        broken["is"] = False
        later = bench(judged=False)
        fixed = measured(later, program, tasks=TASKS[:1])
        total = cost_of(*fixed).calls
    assert [row.status for row in fixed] == ["ok", "ok"]
    assert later.spent.calls == total
    assert answered == ["ok", "ok"] or later.spent.calls > kept.spent.calls


def test_ratings_can_be_added_later(bench: Make, program: Debate, loopback: LoopbackServer) -> None:
    rows = measured(bench(judged=False), program)
    assert {row.quality for row in rows} == {None}
    before = loopback.count
    rated = measured(kept := bench(), program)
    assert loopback.count == before + 4
    assert kept.spent.calls == loopback.count
    assert [row.answer for row in rated] == [row.answer for row in rows]


@pytest.mark.parametrize("most", [1, 5, 10, 15])
def test_a_budget_ends_it_in_order_and_more_goes_on(
    bench: Make, program: Debate, loopback: LoopbackServer, most: int
) -> None:
    with pytest.raises(BudgetSpent, match=f"The measurement is not finished: the budget of {most} calls"):
        measured(bench(budget=Budget(calls=most)), program)
    assert loopback.count <= most
    kept = bench(budget=Budget(calls=4 * CALLS))
    measured(kept, program)
    assert loopback.count == kept.spent.calls == 4 * CALLS


def test_the_clock_can_be_the_callers(bench: Make, program: Debate) -> None:
    with pytest.raises(BudgetSpent, match="100 seconds"):
        measured(bench(budget=Budget(seconds=100), elapsed=lambda: 101.0), program)


def test_another_program_in_the_place_is_not_mixed_in(bench: Make, program: Debate, tmp_path: Path) -> None:
    measured(bench(), program)
    (tmp_path / "one" / "seeds-0" / JOBS_NAME).unlink()
    with pytest.raises(OutputError, match="holds another session: it has other settings"):
        measured(bench(), program.changed(agents=3))


def test_a_model_that_cannot_be_used_ends_it(bench: Make) -> None:
    with LoopbackServer(reply=lambda _: Fault(status=401, message="no such key")) as server:
        lm = server.lm(cache=False, num_retries=0)
        program = Debate(agents=2, rounds=0, lms={"participant": lm, "judge": lm})
        with pytest.raises(CallFailure, match="cannot be used"):
            measured(bench(), program)


def test_costs_are_those_without_a_cache(bench: Make, loopback: LoopbackServer) -> None:
    """A variant asks much that another has asked: from DSPy's cache that would be free, and seem cheap."""
    lm = loopback.lm()
    program = Debate(agents=2, rounds=0, lms={"participant": lm, "judge": lm})
    program.draft.lm = lm
    first = measured(bench(judged=False), program)
    shared = measured(bench(judged=False), program, "two")
    tokens = [row.prompt_tokens + row.completion_tokens for row in first]
    assert min(tokens) > 0
    assert {row.prompt_tokens for row in shared} == {0}
    own = measured(bench(judged=False, cached=False), program, "three")
    assert [row.prompt_tokens + row.completion_tokens for row in own] == tokens
    with dspy.context(lm=lm):
        current = measured(bench(judged=False, cached=False), Debate(agents=2, rounds=0), "four")
    assert [row.prompt_tokens + row.completion_tokens for row in current] == tokens
    assert (lm.cache, program.draft.lm, program.lms["judge"]) == (True, lm, lm)


def test_rows_are_lines_of_json(bench: Make, program: Debate, tmp_path: Path) -> None:
    rows = measured(bench(), program)
    lines = [json.loads(line) for line in (tmp_path / "one" / "seeds-0" / JOBS_NAME).read_text().splitlines()]
    assert {(line["query"], line["run"]): line["answer"] for line in lines} == {
        (row.query, row.run): row.answer for row in rows
    }
