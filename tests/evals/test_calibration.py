"""A judge against labels: the sample, the numbers, and what is said of judges that are good, bad and silent."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from salon.data.labels import load_labels
from salon.data.rubrics import RUBRICS
from salon.evals.calibration import Calibration, calibrate, calibration_markdown, draw_labels
from salon.evals.diagnostics import diagnose
from salon.evals.judges import RubricJudge
from salon.evals.ordering import ordering
from scipy import stats

from salon.cli import main
from salon.errors import UserError
from salon.testing import ChatRequest, Fault, LoopbackServer

RUBRIC = RUBRICS["macgyver"]
FIELDS = ("out_of_the_box_thinking", "practical_feasibility", "use_of_the_constraints")
WORDS = {"efficient": 8, "inefficient": 5, "infeasible": 2}


@pytest.fixture
def labelled(tmp_path: Path) -> Callable[..., Any]:
    """Write and read a table of solutions: (problem, label), and whether the problem has a solution."""

    def made(*rows: tuple[str, str] | tuple[str, str, str]) -> Any:
        listed = [
            {"ID": f"s{n}", "Problem": row[0], "Solution": f"Solution {n} is {row[1]}.", "Label": row[1],
             "Solvable?": row[2] if len(row) > 2 else "Yes"}
            for n, row in enumerate(rows)
        ]  # fmt: skip
        path = tmp_path / "labels.json"
        path.write_text(json.dumps(listed))
        return load_labels(path)

    return made


def knowing(request: ChatRequest) -> dict[str, Any]:
    """Rate what the solution says of itself, on the second dimension alone; noise on the others."""
    (word,) = re.findall(r"is (efficient|inefficient|infeasible)", request.text)
    noise = 1 + zlib.crc32(request.text.encode()) % 10
    return {"reason": "so", **dict(zip(FIELDS, (noise, WORDS[word], 5), strict=True))}


def calibrated(labels: Any, reply: Callable[[ChatRequest], Any], judges: int = 1, **arguments: Any) -> Calibration:
    faults = arguments.pop("faults", None)
    with LoopbackServer(reply=reply, faults=faults) as server:
        judge = RubricJudge(RUBRIC, [server.lm(num_retries=0, cache=False) for _ in range(judges)])
        return asyncio.run(calibrate(labels, judge, **arguments))


ROWS = [(f"P{n // 3}", label) for n, label in enumerate(["efficient", "inefficient", "infeasible"] * 6)]


def test_a_judge_that_knows_is_told_by_the_dimension_it_knows(labelled: Callable[..., Any]) -> None:
    found = calibrated(labelled(*ROWS), knowing)
    known = found.dimensions["practical feasibility"]
    assert (known.ranks.value, known.ranks.n) == (pytest.approx(1.0), 18)
    assert (known.pairs.value, known.pairs.n) == (1.0, 3 * 6 * 6)
    assert (known.within.value, known.within.n) == (1.0, 18)
    flat = found.dimensions["use of the constraints"]
    assert (flat.ranks.value, flat.ranks.undefined) == (None, "one of the two does not vary")
    assert (flat.pairs.value, flat.within.value) == (0.5, 0.5)
    assert found.labels == {"efficient": 6, "inefficient": 6, "infeasible": 6}
    assert (found.n, found.failed.value, found.how, found.left_out) == (18, 0.0, {"integers": 18}, {})
    text = calibration_markdown(found)
    assert "| practical feasibility | 1.000 [1.000, 1.000] (n=18) | 1.000 [1.000, 1.000] (n=108) |" in text
    assert "goes with the labels" in text
    assert json.loads(json.dumps(asdict(found)))["rubric"] == "macgyver"


def test_the_mean_is_held_against_labels_as_computed_elsewhere(labelled: Callable[..., Any]) -> None:
    found = calibrated(labelled(*ROWS), knowing)
    values, labels = [row["value"] for row in found.rows], [row["score"] for row in found.rows]
    assert found.mean.ranks.value == pytest.approx(stats.spearmanr(values, labels).statistic)
    pairs = [
        0.5 if a[0] == b[0] else float((a[0] > b[0]) == (a[1] > b[1]))
        for a, b in itertools.combinations(zip(values, labels, strict=True), 2)
        if a[1] != b[1]
    ]
    assert found.mean.pairs.value == pytest.approx(sum(pairs) / len(pairs))
    assert found.mean.pairs.n == len(pairs)


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (lambda word, text: 10 - WORDS[word], "goes against the labels"),
        (lambda word, text: 7, "Nothing can be said of the judge: one of the two does not vary"),
        (lambda word, text: 1 + zlib.crc32(f"a{text}".encode()) % 10, "cannot be told from chance"),
    ],
)
def test_what_is_said_of_a_bad_judge(labelled: Callable[..., Any], score: Any, said: str) -> None:
    def reply(request: ChatRequest) -> dict[str, Any]:
        (word,) = re.findall(r"is (efficient|inefficient|infeasible)", request.text)
        return {"reason": "so", **dict.fromkeys(FIELDS, score(word, request.text))}

    assert said in calibration_markdown(calibrated(labelled(*ROWS), reply))


def test_failures_are_counted_and_left_out(labelled: Callable[..., Any]) -> None:
    found = calibrated(labelled(*ROWS), knowing, faults=lambda request: Fault(500) if "P2" in request.text else None)
    assert (found.failed.value, found.failed.n, found.n) == (pytest.approx(3 / 18), 18, 15)
    (reason,) = found.errors
    assert found.errors == {reason: 3}
    assert "scripted failure" in reason
    assert f"Failed 3x: {reason[:20]}" in calibration_markdown(found)
    assert found.mean.ranks.n == 15


def test_a_judge_that_says_nothing_has_no_numbers(labelled: Callable[..., Any]) -> None:
    found = calibrated(labelled(*ROWS), lambda request: "I would rather not.")
    assert (found.n, found.failed.value, found.how, found.labels) == (0, 1.0, {}, {})
    assert (found.mean.ranks.value, found.mean.pairs.value, found.mean.within.value) == (None, None, None)
    assert "Nothing can be said" in calibration_markdown(found)


def test_a_panel_is_held_against_labels_together_and_alone(labelled: Callable[..., Any]) -> None:
    with LoopbackServer(reply=knowing, model="wise") as one, LoopbackServer(model="dice") as two:
        judge = RubricJudge(RUBRIC, [one.lm(), two.lm()])
        found = asyncio.run(calibrate(labelled(*ROWS), judge))
    assert found.models == ["openai/wise", "openai/dice"]
    assert set(found.judges) == set(found.models)
    assert found.failed.n == 36
    assert found.mean.ranks.n == found.judges["openai/wise"].ranks.n == 18
    assert "mean, openai/dice alone" in calibration_markdown(found)


def test_a_calibration_is_not_paid_for_twice(labelled: Callable[..., Any], tmp_path: Path) -> None:
    said: list[str] = []
    with LoopbackServer(reply=knowing) as server:

        def run(limit: int) -> Calibration:
            judge = RubricJudge(RUBRIC, [server.lm(cache=False)])
            return asyncio.run(calibrate(labelled(*ROWS), judge, out=tmp_path / "c", limit=limit, tell=said.append))

        first = run(9)
        assert (server.count, first.n) == (9, 9)
        assert run(9) == first
        assert server.count == 9
        assert run(15).n == server.count == 15
    assert "Judging 9 of 18 labelled solutions" in said


def test_what_has_no_score_and_what_has_no_solution_is_left_out(labelled: Callable[..., Any]) -> None:
    rows = [*ROWS, ("P9", "none"), ("P10", "correct_right_reason", "No"), ("P11", "wrong_solution", "No")]
    found = calibrated(labelled(*rows), knowing)
    assert found.left_out == {"the label has no score": 1, "the problem has no solution": 2}
    assert found.n == 18
    assert "Left out because the problem has no solution: 2." in calibration_markdown(found)


def test_a_sample_has_as_many_of_each_label_as_there_are(labelled: Callable[..., Any]) -> None:
    labels = labelled(*[(f"P{n}", "efficient") for n in range(20)], ("Q", "inefficient"), *ROWS[:9])
    drawn = draw_labels(labels, 13, seed=1)
    assert Counter(drawn["label"]) == {"efficient": 6, "inefficient": 4, "infeasible": 3}
    assert list(drawn.index) == sorted(drawn.index)
    assert list(draw_labels(labels, 13, seed=1)["id"]) == list(drawn["id"])
    assert list(draw_labels(labels, 13, seed=2)["id"]) != list(drawn["id"])
    assert set(draw_labels(labels, 8, seed=1)["id"]) < set(drawn["id"])
    assert len(draw_labels(labels, None)) == len(draw_labels(labels, 99)) == 30


@pytest.mark.parametrize("limit", [1, 0, -3, True])
def test_a_limit_that_leaves_nothing_to_compare_is_refused(labelled: Callable[..., Any], limit: Any) -> None:
    with pytest.raises(UserError, match="limit"):
        draw_labels(labelled(*ROWS), limit)


def test_no_usable_label_is_told(labelled: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match="no labels to calibrate"):
        draw_labels(labelled(("P", "none"), ("Q", "efficient")), None)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 10) | st.none(), st.sampled_from("abc")), max_size=12))
@settings(max_examples=25, deadline=None)
def test_order_is_that_of_a_plain_count(rows: list[tuple[int, int | None, str]]) -> None:
    found = ordering([s for _, s, _ in rows], [float(label) for label, _, _ in rows], [task for _, _, task in rows])
    known = [row for row in rows if row[1] is not None]
    for interval, same in ((found.pairs, False), (found.within, True)):
        counted = [
            0.5 if a[1] == b[1] else float(((a[1] or 0) > (b[1] or 0)) == (a[0] > b[0]))
            for a, b in itertools.combinations(known, 2)
            if a[0] != b[0] and (a[2] == b[2] or not same)
        ]
        assert interval.n == len(counted)
        assert interval.value == (pytest.approx(sum(counted) / len(counted)) if counted else None)
        if interval.low is not None and interval.high is not None:
            assert 0 <= interval.low <= (interval.value or 0) <= interval.high <= 1
    assert found.ranks.n == len(known)


def test_its_rows_tell_the_diagnostics_as_much(labelled: Callable[..., Any]) -> None:
    found = calibrated(labelled(*ROWS), knowing)
    rows = [{"method": "people", "query": row["id"], "run": 1, "ratings": row["ratings"]} for row in found.rows]
    known = {("people", row["id"], 1): row["score"] for row in found.rows}
    (check,) = diagnose(rows, labels=known).judges
    assert check.labels == found.mean.ranks


def test_on_the_command_line_a_dry_run_spends_nothing_and_the_rest_is_a_table(
    labelled: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled(*ROWS)
    monkeypatch.chdir(tmp_path)
    with LoopbackServer(reply=knowing) as server:
        words = ["eval", "calibrate", "--labels", "labels.json", "--limit", "6", "--api-key", "x"]
        words += ["--lm", f"openai/{server.model}", "--api-base", server.base_url]
        assert main([*words, "--dry-run"]) == 0
        told = capsys.readouterr().out
        assert server.count == 0
        assert not (tmp_path / "salon-runs").exists()
        assert told.startswith("Expected: 6 solutions. About 6 calls, ")
        assert "Nothing was spent." in told
        assert main(words) == 0
        assert server.count == 6
    assert "| mean |" in capsys.readouterr().out
