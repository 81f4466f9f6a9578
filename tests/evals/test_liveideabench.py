"""LiveIdeaBench's five scores, held against plain arithmetic."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from salon.evals.liveideabench import RATED, liveidea_scores


def job(method: str, query: str, run: int, *ratings: tuple[float, float, float] | None) -> dict[str, Any]:
    listed = [{"scores": dict(zip(RATED, r, strict=True)) if r else {}, "value": None} for r in ratings]
    return {"method": method, "query": query, "run": run, "ratings": listed}


def grade(method: str, query: str, score: float | None) -> dict[str, Any]:
    return {"method": method, "query": query, "run_a": 1, "run_b": 2, "score": score}


def test_the_five_scores() -> None:
    jobs = [
        job("a", "tea", 1, (8, 6, 7), (6, 4, 5)),
        job("a", "tea", 2, (5, 5, 5)),
        job("a", "fog", 1, (9, 9, 3)),
        job("a", "owl", 1, (2, 2, 2), None),
        job("b", "tea", 1, (1, 1, 1)),
    ]
    found = liveidea_scores(jobs, [grade("a", "tea", 10), grade("a", "fog", 4), grade("a", "fog", 1)])
    a = found["a"]
    assert (a.originality.value, a.originality.n) == (pytest.approx((7 + 5 + 9 + 2) / 4), 4)
    assert a.feasibility.value == pytest.approx((5 + 5 + 9 + 2) / 4)
    assert a.clarity.value == pytest.approx((6 + 5 + 3 + 2) / 4)
    assert (a.fluency.value, a.fluency.n) == (5.0, 3)
    keywords = sorted([(6 + 5) / 2, 7.0, 2.0])
    assert (a.flexibility.value, a.flexibility.n) == (pytest.approx(keywords[0] + 0.6 * (keywords[1] - keywords[0])), 3)
    five = [a.originality, a.feasibility, a.clarity, a.fluency, a.flexibility]
    assert a.overall.value == pytest.approx(statistics.mean(score.value or 0 for score in five))
    for score in [*five, a.overall]:
        assert score.low is not None
        assert score.high is not None
        assert score.low <= (score.value or 0) <= score.high
    b = found["b"]
    assert (b.originality.value, b.originality.low, b.originality.n) == (1.0, None, 1)
    assert (b.fluency.value, b.fluency.n, b.overall.value) == (None, 0, None)


def test_what_was_not_judged_is_not_there() -> None:
    jobs = [job("a", "tea", 1, None), job("a", "fog", 1), job("a", "owl", 1, None)]
    (found,) = liveidea_scores(jobs, [grade("a", "tea", None)]).values()
    assert all(score.value is None and score.n == 0 for score in vars(found).values())
    assert liveidea_scores([]) == {}


def test_a_critic_that_lacks_a_dimension_does_not_count() -> None:
    row = {"method": "a", "query": "tea", "ratings": [{"scores": {"originality": 9.0, "feasibility": 9.0}}]}
    (found,) = liveidea_scores([row, job("a", "tea", 2, (3, 3, 3))]).values()
    assert (found.originality.value, found.originality.n) == (3.0, 1)


@given(st.lists(st.tuples(st.integers(0, 5), st.tuples(*[st.integers(1, 10)] * 3)), min_size=1, max_size=25))
@settings(max_examples=12, deadline=None)
def test_scores_are_those_of_an_independent_computation(rows: list[tuple[int, tuple[int, int, int]]]) -> None:
    jobs = [job("m", f"k{keyword}", n, scores) for n, (keyword, scores) in enumerate(rows)]
    (found,) = liveidea_scores(jobs).values()
    for at, name in enumerate(RATED):
        assert getattr(found, name).value == pytest.approx(np.mean([scores[at] for _, scores in rows]))
    by_keyword = [np.mean([s for k, s in rows if k == keyword]) for keyword in {k for k, _ in rows}]
    assert found.flexibility.value == pytest.approx(np.quantile(by_keyword, 0.3))
