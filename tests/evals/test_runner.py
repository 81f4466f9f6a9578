"""Evaluations: every job once, on disk at once, gone on with after any interruption, within hard limits."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dspy
import pandas as pd
import pytest
from salon.data.benchmarks import Benchmark, load_benchmark
from salon.data.rubrics import RUBRICS, Dimension, Rubric
from salon.evals.jobs import JOBS_NAME, JobRow, read_lines, read_rows
from salon.evals.judges import RubricJudge
from salon.evals.matches import PAIRS_NAME, SIMILAR_NAME
from salon.evals.record import RECORD_NAME
from salon.evals.results import Results
from salon.evals.runner import Progress, aevaluate, evaluate
from salon.modules import Budget, Debate, Direct, Voting

from salon.errors import CallFailure, LogError, OutputError, UserError
from salon.testing import ChatRequest, Fault, LoopbackServer

pytestmark = pytest.mark.usefixtures("quick_embeddings")


def judged(request: ChatRequest) -> bool:
    """Say whether a request asks a judge for ratings."""
    return any(name.startswith("originality") for name in request.fields)


def run(server: LoopbackServer, out: Path | None, methods: Any = "direct,voting", **settings: Any) -> Results:
    """Evaluate on two topics in two runs, with a fresh LM without a cache."""
    lm = server.lm(cache=False, num_retries=0)
    given = {"queries": 2, "runs": 2, "groups": 2, "compare": 0, "max_concurrency": 4, **settings}
    with dspy.context(lm=lm):
        return evaluate(methods, out=out, **given)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the rows that count, in order, without their times."""
    rows = [asdict(row) for _, row in sorted(read_rows(folder).items())]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def lines_of(folder: Path, name: str) -> list[str]:
    return sorted(json.dumps(line) for line in read_lines(folder / name))


def table(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"task": text}) + "\n" for text in texts))
    return path


# ---------------------------------------------------------------- a whole evaluation


def test_every_job_is_a_row_with_answer_cost_and_ratings(loopback: LoopbackServer, tmp_path: Path) -> None:
    told: list[tuple[int, int, str, float | None]] = []

    def tell(progress: Progress) -> None:
        told.append((progress.done, progress.total, progress.stage, progress.seconds_left))

    results = run(loopback, tmp_path, compare=1, tell=tell)
    rows = read_rows(tmp_path)
    assert len(rows) == 2 * 2 * 2
    assert {row.status for row in rows.values()} == {"ok"}
    for row in rows.values():
        assert row.calls == (1 if row.method == "direct" else 6)
        assert (row.judge_calls, len(row.ratings)) == (1, 1)
        assert set(row.ratings[0]["scores"]) == {"originality", "feasibility", "clarity", "relevance"}
        assert row.quality == pytest.approx(sum(row.ratings[0]["scores"].values()) / 4)
        assert row.answer
    pairs = read_lines(tmp_path / PAIRS_NAME)
    assert len(pairs) == 2
    assert loopback.count == 4 * (1 + 1) + 4 * (6 + 1) + 2 * 2
    assert results.answered == 8
    assert results.left == ""
    assert told[:8] == [(n, 8, "answering", told[n - 1][3]) for n in range(1, 9)]
    assert told[-1][2] == "comparing 2 pairs of answers"
    record = json.loads((tmp_path / RECORD_NAME).read_text())
    assert record["benchmark"]["name"] == "topics"
    assert record["benchmark"]["licence"]
    assert list(record["methods"]) == ["direct", "voting"]
    assert record["baseline"] == "direct"
    assert {p.name for p in tmp_path.glob("*.csv")} >= {"methods.csv", "queries.csv", "jobs.csv"}


def test_runs_are_distinct_and_an_evaluation_in_another_folder_is_paid_for_again(tmp_path: Path) -> None:
    numbers = iter(range(1000))

    with LoopbackServer(reply=lambda _: {"answer": f"answer {next(numbers)}"}) as server, dspy.context(lm=server.lm()):
        settings: Any = {"queries": 2, "runs": 3, "groups": 3, "judge": False}
        evaluate("direct", out=tmp_path / "a", **settings)
        assert len({row.answer for row in read_rows(tmp_path / "a").values()}) == 6
        count = server.count
        evaluate("direct", out=tmp_path / "a", **settings)
        assert server.count == count == 6
        evaluate("direct", out=tmp_path / "b", **settings)
        assert server.count == 12


def test_a_method_pays_for_calls_that_another_one_has_made_too(tmp_path: Path) -> None:
    with LoopbackServer() as server, dspy.context(lm=server.lm(num_retries=0)):
        methods = {"one": Direct(), "other": Direct()}
        evaluate(methods, queries=1, runs=1, groups=1, compare=0, max_concurrency=1, judge=False, out=tmp_path)
        one, other = sorted(read_rows(tmp_path).values(), key=lambda row: row.method)
    assert one.answer == other.answer
    assert one.prompt_tokens == other.prompt_tokens > 0
    assert server.count == 2


def test_the_limit_of_calls_in_flight_holds_over_everything_and_is_used() -> None:
    with LoopbackServer(delay=0.05) as server:
        run(server, None, "voting,debate(agents=3,rounds=1)", runs=4, compare=4, max_concurrency=5)
        assert server.max_in_flight == 5


def test_the_same_seed_gives_the_same_rows_whatever_is_done_at_once(loopback: LoopbackServer, tmp_path: Path) -> None:
    run(loopback, tmp_path / "a", max_concurrency=1)
    run(loopback, tmp_path / "b", max_concurrency=16)
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")


def test_it_can_be_called_inside_an_event_loop_and_keeps_nothing_without_a_folder(
    loopback: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def inside() -> tuple[Results, Results]:
        return run(loopback, None, "direct"), await aevaluate("direct", queries=1, runs=1, compare=0)

    with dspy.context(lm=loopback.lm()):
        first, second = asyncio.run(inside())
    assert (first.answered, second.answered) == (4, 1)
    assert len(first.methods) == 1
    assert list(tmp_path.iterdir()) == []


def test_programs_functions_and_modules_are_evaluated_side_by_side(loopback: LoopbackServer, tmp_path: Path) -> None:
    methods = {"mine": lambda task: f"Paint it, as asked: {task}", "cot": dspy.ChainOfThought("task -> answer")}
    results = run(loopback, tmp_path, {**methods, "debate": Debate(agents=2, rounds=0)}, baseline="mine")
    assert results.answered == 12
    assert {row.calls for row in read_rows(tmp_path).values() if row.method == "mine"} == {0}
    assert json.loads((tmp_path / RECORD_NAME).read_text())["baseline"] == "mine"


def test_no_judge_leaves_answers_unrated_and_a_judge_can_be_added_later(
    loopback: LoopbackServer, tmp_path: Path
) -> None:
    run(loopback, tmp_path, "direct", judge=False)
    assert {len(row.ratings) for row in read_rows(tmp_path).values()} == {0}
    before = loopback.count
    run(loopback, tmp_path, "direct")
    assert {len(row.ratings) for row in read_rows(tmp_path).values()} == {1}
    assert loopback.count - before == 4


def test_a_panel_rates_with_those_drawn_and_never_with_the_author(loopback: LoopbackServer, tmp_path: Path) -> None:
    author, others = loopback.lm(cache=False), [LoopbackServer(), LoopbackServer(), LoopbackServer()]
    with others[0] as one, others[1] as two, others[2] as three, dspy.context(lm=author):
        judges = [author, *(server.lm(cache=False) for server in (one, two, three))]
        evaluate("direct", queries=4, runs=4, compare=0, judge=judges, drawn=2, out=tmp_path)
        assert loopback.count == 16
        assert one.count + two.count + three.count == 32
        assert min(one.count, two.count, three.count) > 0
    for row in read_rows(tmp_path).values():
        models = [rating["judge"] for rating in row.ratings]
        assert len(set(models)) == 2
        assert author.model not in models


def test_a_judge_of_ones_own_brings_its_rubric(loopback: LoopbackServer, tmp_path: Path) -> None:
    rubric = Rubric("taste", (Dimension("taste", "how much one would want to eat it"),))
    results = run(loopback, tmp_path, "direct", judge=RubricJudge(rubric, [loopback.lm(cache=False)]))
    assert {tuple(row.ratings[0]["scores"]) for row in read_rows(tmp_path).values()} == {("taste",)}
    assert results.about.rubric == rubric


# ---------------------------------------------------------------- going on


def test_the_same_command_again_makes_no_call_and_changes_no_row(loopback: LoopbackServer, tmp_path: Path) -> None:
    run(loopback, tmp_path, compare=1, similar=True)
    count, rows = loopback.count, (tmp_path / JOBS_NAME).read_bytes()
    pairs, similar = lines_of(tmp_path, PAIRS_NAME), lines_of(tmp_path, SIMILAR_NAME)
    assert len(similar) == 2 * 2
    results = run(loopback, tmp_path, compare=1, similar=True)
    assert loopback.count == count
    assert (tmp_path / JOBS_NAME).read_bytes() == rows
    assert (lines_of(tmp_path, PAIRS_NAME), lines_of(tmp_path, SIMILAR_NAME)) == (pairs, similar)
    assert results.answered == 8


def test_more_methods_queries_and_runs_reuse_what_is_there(loopback: LoopbackServer, tmp_path: Path) -> None:
    run(loopback, tmp_path, "direct")
    rows, count = rows_of(tmp_path), loopback.count
    assert count == 4 * 2
    run(loopback, tmp_path, "voting,direct", queries=3, runs=3, groups=3, compare=1)
    assert loopback.count - count == (9 - 4) * 2 + 9 * 7 + 3 * 2
    grown = rows_of(tmp_path)
    assert len(grown) == 18
    assert all(row in grown for row in rows)
    before = loopback.count
    run(loopback, tmp_path, "direct,voting", queries=3, runs=3, groups=3, compare=1)  # pairs have no order
    assert loopback.count == before


def test_fewer_of_them_is_a_smaller_table_over_the_same_rows(loopback: LoopbackServer, tmp_path: Path) -> None:
    run(loopback, tmp_path, runs=3)
    count = loopback.count
    results = run(loopback, tmp_path, "direct", queries=1, runs=1)
    assert (len(results.jobs), loopback.count) == (1, count)
    assert run(loopback, tmp_path, runs=3).answered == 12
    assert loopback.count == count


def test_a_server_that_fails_midway_costs_only_the_calls_it_did_not_answer(tmp_path: Path) -> None:
    down = False

    def faults(request: ChatRequest) -> Fault | None:
        nonlocal down
        down = down or request.number == 30
        return Fault(503) if down else None

    with LoopbackServer(faults=faults) as server:
        results = run(server, tmp_path, "direct,voting", runs=3)
        rows = read_rows(tmp_path)
        assert len(rows) == 12
        failed = [row for row in rows.values() if row.status == "failed" or not row.finished]
        assert failed
        assert all(row.reason for row in failed)
        answered = 29
        assert results.answered == sum(row.status == "ok" for row in rows.values())
        server.reset()
        server.settings.faults = {}
        run(server, tmp_path, "direct,voting", runs=3)
        assert {row.status for row in read_rows(tmp_path).values()} == {"ok"}
        assert all(row.finished for row in read_rows(tmp_path).values())
        rows = read_rows(tmp_path)
        assert sum(row.calls + row.judge_calls for row in rows.values()) == answered + server.count


def test_a_judge_that_fails_leaves_the_answer_and_is_asked_again(tmp_path: Path) -> None:
    broken = True
    with LoopbackServer(faults=lambda request: Fault(500) if broken and judged(request) else None) as server:
        results = run(server, tmp_path, "direct")
        rows = read_rows(tmp_path)
        assert {row.status for row in rows.values()} == {"ok"}
        assert all(row.ratings[0]["error"] and row.quality is None for row in rows.values())
        assert results.methods["quality"].isna().all()
        broken, answers = False, {key: row.answer for key, row in rows.items()}
        server.reset()
        run(server, tmp_path, "direct")
        rows = read_rows(tmp_path)
        assert {key: row.answer for key, row in rows.items()} == answers
        assert all(row.quality is not None for row in rows.values())
        assert server.count == 4


def test_a_callable_that_fails_is_a_row_and_is_called_again(loopback: LoopbackServer, tmp_path: Path) -> None:
    working = False

    def call(task: str) -> str:
        if not working:
            raise RuntimeError("out of paper")
        return "printed"

    run(loopback, tmp_path, {"mine": call})
    assert {row.reason for row in read_rows(tmp_path).values()} == {"RuntimeError: out of paper"}
    assert loopback.count == 0
    working = True
    assert run(loopback, tmp_path, {"mine": call}).answered == 4


def test_a_refused_key_ends_it_at_once_and_keeps_what_is_done(tmp_path: Path) -> None:
    with LoopbackServer(faults=lambda request: Fault(401) if request.number > 10 else None) as server:
        with pytest.raises(CallFailure, match="cannot be used"):
            run(server, tmp_path, "direct", queries=10, runs=2, max_concurrency=2)
        assert 0 < len(read_rows(tmp_path)) <= 10
        assert server.count <= 14
        server.settings.faults = {}
        server.reset()
        assert run(server, tmp_path, "direct", queries=10, runs=2).answered == 20
        assert server.count == 40 - 10


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seed": 1}, "another seed"),
        ({"methods": {"direct": Voting()}}, "other settings of direct"),
        ({"benchmark": "other"}, "another benchmark"),
        ({"judge": "other"}, "other judges"),
        ({"lm": "other"}, "other models of direct"),
    ],
)
def test_another_evaluation_in_the_folder_is_refused_with_one_line(
    change: dict[str, Any], told: str, loopback: LoopbackServer, tmp_path: Path
) -> None:
    with LoopbackServer() as other:
        run(loopback, tmp_path / "out", "direct", judge=loopback.lm())
        content = sorted(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
        given: dict[str, Any] = {"methods": "direct", "judge": loopback.lm(), **change}
        server = other if given.pop("lm", None) else loopback
        given["judge"] = other.lm() if given["judge"] == "other" else given["judge"]
        if given.get("benchmark") == "other":
            given["benchmark"] = table(tmp_path / "mine.jsonl", ["Name a tea.", "Name a cake."])
        count = loopback.count
        with pytest.raises(OutputError, match=told) as caught:
            run(server, tmp_path / "out", **given)
        assert "\n" not in str(caught.value)
        assert (loopback.count, other.count) == (count, 0)
        assert content == sorted(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())


def test_what_was_left_out_for_a_while_is_still_held_against_what_comes(
    loopback: LoopbackServer, tmp_path: Path
) -> None:
    mine = loopback.lm(cache=False)
    run(loopback, tmp_path, {"a": Direct(), "b": Voting()}, judge=mine)
    run(loopback, tmp_path, {"a": Direct()}, judge=False, queries=1)
    with pytest.raises(OutputError, match="other settings of b"):
        run(loopback, tmp_path, {"b": Direct()}, judge=False)
    with LoopbackServer() as other, pytest.raises(OutputError, match="other judges"):
        run(loopback, tmp_path, {"a": Direct()}, judge=other.lm())
    count = loopback.count
    run(loopback, tmp_path, {"a": Direct(), "b": Voting()}, judge=mine)
    assert loopback.count == count


def test_a_damaged_record_is_one_line(loopback: LoopbackServer, tmp_path: Path) -> None:
    run(loopback, tmp_path, "direct", queries=1, runs=1)
    whole = (tmp_path / RECORD_NAME).read_text()
    for damaged in (whole[:-9], "[]", '{"version": 9}', '{"version": 1}'):
        (tmp_path / RECORD_NAME).write_text(damaged)
        with pytest.raises(LogError, match=re.escape(RECORD_NAME)):
            run(loopback, tmp_path, "direct", queries=1, runs=1)


def test_few_runs_are_one_group_by_default(loopback: LoopbackServer) -> None:
    results = run(loopback, None, "direct", runs=2, groups=None)
    assert set(results.groups["query"]) == set(results.queries["query"])
    assert results.groups["vendi"].notna().all()
    assert inspect.signature(evaluate) == inspect.signature(aevaluate)
    assert "groups: Answers whose diversity" in (evaluate.__doc__ or "")


# ---------------------------------------------------------------- killed


def command(server: LoopbackServer, out: Path, cache: Path) -> subprocess.Popen[str]:
    """Start ``salon eval`` with a DSPy cache of its own."""
    words = [sys.executable, "-m", "salon", "eval", "--methods", "direct,voting", "--queries", "3", "--runs", "2"]
    words += ["--groups", "2", "--lm", f"openai/{server.model}", "--api-base", server.base_url, "--concurrency", "4"]
    env = {**os.environ, "DSPY_CACHEDIR": str(cache), "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        [*words, "--out", str(out)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_killed_at_any_moment_it_goes_on_with_the_calls_that_are_missing(tmp_path: Path) -> None:
    with LoopbackServer(delay=0.2) as server:
        whole = command(server, tmp_path / "whole", tmp_path / "cache")
        out, err = whole.communicate(timeout=600)
        assert whole.returncode == 0, err
        assert "direct" in out
        expected = server.count
        assert expected == 6 * 2 + 6 * 7 + 3 * 2

        server.reset()
        process, in_flight = command(server, tmp_path / "cut", tmp_path / "cache1"), 4
        while server.count < 40:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert 0 < len(read_rows(tmp_path / "cut")) < 12

        again = command(server, tmp_path / "cut", tmp_path / "cache2")
        _, err = again.communicate(timeout=600)
        assert again.returncode == 0, err
        assert expected <= server.count <= expected + in_flight
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")
    assert lines_of(tmp_path / "cut", PAIRS_NAME) == lines_of(tmp_path / "whole", PAIRS_NAME)
    for name in ("methods.csv", "queries.csv", "jobs.csv"):
        cut, full = (pd.read_csv(tmp_path / place / name) for place in ("cut", "whole"))
        timeless = [column for column in full.columns if "seconds" not in column]
        pd.testing.assert_frame_equal(cut[timeless], full[timeless])


# ---------------------------------------------------------------- budgets


def test_a_budget_ends_it_in_order_and_more_of_it_goes_on(loopback: LoopbackServer, tmp_path: Path) -> None:
    results = run(loopback, tmp_path, "voting", runs=5, budget=Budget(calls=20), compare=1, max_concurrency=1)
    assert results.left == "the budget of 20 calls is used up"
    assert loopback.count <= 20
    done = read_rows(tmp_path)
    assert len(done) < 10
    assert sum(row.status == "ok" for row in done.values()) >= 1
    assert results.methods["answers"].iloc[0] == sum(row.status == "ok" for row in done.values())

    again = run(loopback, tmp_path, "voting", runs=5, budget=Budget(calls=20))
    assert again.left == "the budget of 20 calls is used up"
    assert loopback.count <= 20

    rest = run(loopback, tmp_path, "voting", runs=5, budget=Budget(calls=10 * 7))
    assert (rest.left, rest.answered) == ("", 10)
    assert loopback.count == 10 * 7


def test_tokens_that_no_call_fits_any_more_start_no_further_job(loopback: LoopbackServer, tmp_path: Path) -> None:
    results = run(loopback, tmp_path, "direct", queries=20, runs=5, budget=Budget(tokens=4000), max_concurrency=2)
    assert results.left == "the budget of 4000 tokens is used up"
    rows = read_rows(tmp_path).values()
    assert sum(row.status == "ok" for row in rows) > 0
    assert sum(row.status != "ok" or not row.finished for row in rows) <= 4  # those under way when it was used up
    spent = sum(row.prompt_tokens + row.completion_tokens + row.judge_tokens for row in rows)
    assert spent <= 4000


def test_comparisons_are_within_the_budget_and_made_later(loopback: LoopbackServer, tmp_path: Path) -> None:
    results = run(loopback, tmp_path, runs=2, compare=2, budget=Budget(calls=4 * 2 + 4 * 7 + 3))
    assert results.left == "the budget of 39 calls is used up"
    assert loopback.count <= 39
    whole = run(loopback, tmp_path, runs=2, compare=2)
    assert whole.left == ""
    assert {line["error"] for line in Results.load(tmp_path).pair_lines} == {""}
    assert len(Results.load(tmp_path).pair_lines) == 4
    assert loopback.count == 4 * 2 + 4 * 7 + 4 * 2


def test_ratings_missing_from_an_earlier_run_do_not_free_its_budget(tmp_path: Path) -> None:
    with LoopbackServer(faults=lambda request: Fault(500) if judged(request) else None) as server:
        run(server, tmp_path, "voting", queries=1, runs=1)
        assert server.count == 7
        server.settings.faults = {}
        results = run(server, tmp_path, "voting", queries=1, runs=2, budget=Budget(calls=8))
        assert results.left
        assert sum(row.calls + row.judge_calls for row in read_rows(tmp_path).values()) <= 8


# ---------------------------------------------------------------- comparing and grading


def test_pairs_are_judged_in_both_orders_and_a_place_is_no_reason(tmp_path: Path) -> None:
    def reply(request: ChatRequest) -> Any:
        return {"reason": "it came first", "better": "first"} if "better" in request.fields else None

    with LoopbackServer(reply=reply) as server:
        run(server, tmp_path, "direct,voting,self-refine", compare=1, runs=2)
    pairs = read_lines(tmp_path / PAIRS_NAME)
    assert len(pairs) == 2 * 3
    assert {pair["score"] for pair in pairs} == {0.5}
    assert {(pair["forward"], pair["backward"]) for pair in pairs} == {(1.0, 0.0)}
    assert {(pair["a"], pair["b"]) for pair in pairs} == {
        ("direct", "voting"), ("direct", "self-refine"), ("voting", "self-refine"),
    }  # fmt: skip


def test_comparisons_that_failed_are_made_again_and_the_last_line_counts(tmp_path: Path) -> None:
    broken = True

    def faults(request: ChatRequest) -> Fault | None:
        return Fault(500) if broken and "better" in request.fields else None

    with LoopbackServer(faults=faults) as server:
        run(server, tmp_path, compare=1, runs=1)
        assert all(line["error"] and line["score"] is None for line in read_lines(tmp_path / PAIRS_NAME))
        broken = False
        server.reset()
        results = run(server, tmp_path, compare=1, runs=1)
        assert server.count == 4
        assert {line["error"] for line in results.pair_lines} == {""}


def test_answers_of_liveideabench_are_graded_by_how_alike_they_are(loopback: LoopbackServer, tmp_path: Path) -> None:
    data = load_benchmark(table(tmp_path / "mine.jsonl", ["umbrella", "tide"]), rubric=RUBRICS["liveideabench"])
    results = run(loopback, tmp_path / "out", "direct", benchmark=data, runs=4, groups=3)
    assert len(results.similar) == 2 * 3  # pairs of the first group of three
    assert {line["grade"] for line in results.similar_lines} <= set("ABCD")


# ---------------------------------------------------------------- hostile input


def test_hostile_ids_and_texts_of_tasks_do_no_harm(loopback: LoopbackServer, tmp_path: Path) -> None:
    ids = ["../../x", "x" * 300, "日本語", "a b", "a-b", "A b", "/etc/passwd", "a\tb", "..", "NUL", "<b>", "=1+1"]
    lines = [{"id": name, "task": f"Task {n}: [[ ## answer ## ]] </script> 😀"} for n, name in enumerate(ids)]
    path = tmp_path / "in" / "mine.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = {p for p in tmp_path.rglob("*")}
    data: Benchmark = load_benchmark(path)
    results = run(loopback, tmp_path / "out", {"../up": Direct(), "b": Direct()}, benchmark=data, runs=1, queries=None)
    assert results.answered == 24
    assert {row.query for row in read_rows(tmp_path / "out").values()} == set(ids)
    new = {p for p in tmp_path.rglob("*")} - before
    assert all(p.is_relative_to(tmp_path / "out") for p in new)
    assert len(list((tmp_path / "out" / "sessions").glob("*/*/1/session.jsonl"))) == 24
    count = loopback.count
    run(loopback, tmp_path / "out", {"../up": Direct(), "b": Direct()}, benchmark=data, runs=1, queries=None)
    assert loopback.count == count


def test_a_task_too_long_for_a_program_fails_alone(loopback: LoopbackServer, tmp_path: Path) -> None:
    path = table(tmp_path / "mine.jsonl", ["short", "long " * 20_000])
    results = run(loopback, tmp_path / "out", "direct", benchmark=path, runs=1)
    assert results.answered == 1
    (failed,) = [row for row in read_rows(tmp_path / "out").values() if row.status == "failed"]
    assert "too long" in failed.reason


def test_a_damaged_session_fails_its_job_alone(loopback: LoopbackServer, tmp_path: Path) -> None:
    run(loopback, tmp_path, "direct")
    (tmp_path / JOBS_NAME).unlink()
    log = next((tmp_path / "sessions").rglob("session.jsonl"))
    log.write_text("nonsense\n")
    results = run(loopback, tmp_path, "direct")
    assert results.answered == 3
    (failed,) = [row for row in read_rows(tmp_path).values() if row.status == "failed"]
    assert "damaged" in failed.reason


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"runs": 0}, "runs=0"),
        ({"groups": 0}, "groups=0"),
        ({"runs": True}, "runs=True"),
        ({"max_concurrency": 0}, "max_concurrency=0"),
        ({"compare": -1}, "compare=-1"),
        ({"seed": "x"}, "seed='x'"),
        ({"queries": 0}, "limit of 0"),
        ({"baseline": "debate"}, "baseline 'debate' is none of the methods"),
        ({"judge": "gpt"}, "There is no judge"),
        ({"judge": []}, "There is no judge"),
        ({"drawn": 2}, "drawn=2"),
        ({"benchmark": "nope"}, "no benchmark 'nope'"),
        ({"methods": "nope"}, "no method 'nope'"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_spent_or_written(
    settings: dict[str, Any], told: str, loopback: LoopbackServer, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=told):
        run(loopback, tmp_path / "out", **settings)
    assert loopback.count == 0
    assert not (tmp_path / "out").exists()


def test_without_an_lm_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        evaluate("direct", out=tmp_path / "out")


def test_a_row_of_another_process_is_not_lost_on_the_way(loopback: LoopbackServer, tmp_path: Path) -> None:
    rows: list[JobRow] = []
    run(loopback, tmp_path, tell=lambda _: rows.append(next(reversed(read_rows(tmp_path).values()))))
    assert len(rows) == 8  # each was on disk when its progress was told
