"""The last comparison, against computation by hand and by SciPy."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from salon.evals.jobs import JobRow
from salon.modules import Embedder
from salon.optimize.objectives import Objective, objectives_of
from salon.optimize.verify import Verdict, verdict_of
from scipy import stats

QUALITY = objectives_of(["quality"], 2)
COSTLY = objectives_of(["quality", "tokens"], 2)


def rows(qualities: Mapping[str, float | None], tokens: Mapping[str, int] | None = None) -> list[JobRow]:
    """One session on each query, with the quality that a judge gave; None for a session that failed."""
    return [
        JobRow(
            "program", query, 1, 0, status="failed" if value is None else "ok", answer=query,
            ratings=[] if value is None else [{"value": value, "error": ""}],
            prompt_tokens=(tokens or {}).get(query, 0),
        )
        for query, value in qualities.items()
    ]  # fmt: skip


def named(*values: float | None) -> dict[str, float | None]:
    return {f"q{n}": value for n, value in enumerate(values)}


def judged(before: list[JobRow], after: list[JobRow], goals: list[Objective] = QUALITY) -> Verdict:
    return verdict_of(before, after, goals, Embedder(), seed=3)


def test_a_gain_is_what_students_interval_says() -> None:
    before, after = (5.0, 4.0, 6.0, 5.5, 3.0), (6.0, 5.5, 6.5, 7.0, 4.5)
    found = judged(rows(named(*before)), rows(named(*after)))
    held = found.held_out["quality"]
    gaps = np.subtract(after, before)
    interval = stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
    assert (held.difference.low, held.difference.high) == pytest.approx((interval.low, interval.high))
    assert held.difference.value == pytest.approx(fmean(gaps))
    assert (held.tuned.value, held.untuned.value) == (pytest.approx(fmean(after)), pytest.approx(fmean(before)))
    assert held.p == pytest.approx(2 / 2**5)  # of all changes of sign, none and all are as far out
    assert (held.n, found.better) == (5, True)
    assert "better in quality" in found.text
    assert "few (5)" in found.text


def test_a_loss_and_a_gain_at_once_keep_the_untuned_program() -> None:
    quality, cost = named(5, 5.1, 5.2, 4.9), {f"q{n}": 100 for n in range(4)}
    dearer = {query: tokens + 50 + n for n, (query, tokens) in enumerate(cost.items())}
    better = {query: (value or 0) + 1 + n / 100 for n, (query, value) in enumerate(quality.items())}
    both = judged(rows(quality, cost), rows(better, dearer), COSTLY)
    assert not both.better
    assert "gained quality and lost tokens" in both.text
    assert "untuned one is kept" in both.text
    cheaper = judged(rows(quality, dearer), rows(quality, cost), COSTLY)
    assert cheaper.better
    assert cheaper.held_out["tokens"].difference.value == pytest.approx(-51.5)
    assert "better in tokens, and no loss was shown" in cheaper.text
    lost = judged(rows(better), rows(quality))
    assert (lost.better, "lost quality" in lost.text) == (False, True)


def test_two_lucky_tasks_are_no_proof() -> None:
    assert not judged(rows(named(5, 5)), rows(named(6, 5.5))).better


def test_equal_gains_of_rounded_ratings_are_no_proof_unless_they_are_large() -> None:
    """Two tasks that gain a third of a point each may do so by rounding; four that gain three points do not."""
    small = judged(rows(named(5, 4)), rows(named(5 + 1 / 3, 4 + 1 / 3)))
    assert not small.better
    reach = stats.t.ppf(0.975, 1) * 1 / 6**0.5 / 2**0.5  # of one session's rounding: 1 / sqrt(12), twice
    low, high = small.held_out["quality"].difference.low, small.held_out["quality"].difference.high
    assert (low, high) == (pytest.approx(1 / 3 - reach), pytest.approx(1 / 3 + reach))
    assert judged(rows(named(5, 4, 3, 4)), rows(named(8, 7, 6, 7))).better
    more_sessions = (
        judged(rows(named(5, 4)) * 8, [row for _ in range(8) for row in rows(named(6, 5))])
        .held_out["quality"]
        .difference
    )
    assert more_sessions.high - more_sessions.low == pytest.approx(2 * reach / 8**0.5)


def test_of_several_objectives_one_gains_by_a_wider_interval() -> None:
    """Quality gains at 95 % but not at 97.5 %, which is enough alone and not beside another."""
    before, after = named(5, 5, 5, 5, 5), named(6.6, 5.5, 5.6, 6.9, 5.4)
    cost = {f"q{n}": 100 + n for n in range(5)}
    alone, beside = judged(rows(before), rows(after)), judged(rows(before, cost), rows(after, cost), COSTLY)
    p = stats.ttest_1samp([a - 5 for a in after.values() if a is not None], 0).pvalue
    assert 0.025 < p < 0.05
    assert alone.held_out["quality"].difference == beside.held_out["quality"].difference
    assert (alone.better, beside.better) == (True, False)


@pytest.mark.parametrize(
    ("before", "after", "n"),
    [((5,), (9,), 1), ((5, None), (9, 9), 1), ((None, None), (9, 9), 0), ((5, None), (None, 9), 0), ((), (), 0)],
)
def test_fewer_than_two_tasks_have_no_interval(
    before: tuple[float | None, ...], after: tuple[float | None, ...], n: int
) -> None:
    found = judged(rows(named(*before)), rows(named(*after)))
    held = found.held_out["quality"]
    assert (held.n, held.difference.n, held.difference.low, held.p) == (n, n, None, None)
    assert held.difference.value == (4 if n else None)
    assert not found.better
    assert ("No task has a value of both" in found.text) == (n == 0)


def test_rounding_is_no_difference() -> None:
    values = (5.1, 6.3, 7.7)
    found = judged(rows(named(*values)), rows(named(*(v * (1 + 1e-13) for v in values))))
    assert found.held_out["quality"].difference.value == 0
    assert not found.better


def test_answers_that_are_alike_in_both_have_no_difference() -> None:
    goals = objectives_of(["vendi", "distance", "div_bleu"], 2)
    pair = [JobRow("program", "q0", run, 0, status="ok", answer=f"the answer {run}") for run in (1, 2)]
    found = verdict_of(pair, pair, goals, Embedder())
    assert [held.difference.value for held in found.held_out.values()] == [0, 0, 0]
    assert not found.better


values = st.none() | st.integers(10, 100).map(lambda n: n / 10)


@settings(max_examples=25)  # each draws 40,000 resamples
@given(st.lists(st.tuples(values, values), min_size=1, max_size=8))
def test_changing_sides_changes_signs(pairs: list[tuple[float | None, float | None]]) -> None:
    one, other = rows(named(*(a for a, _ in pairs))), rows(named(*(b for _, b in pairs)))
    there, back = judged(one, other), judged(other, one)
    a, b = there.held_out["quality"], back.held_out["quality"]
    both = sum(x is not None and y is not None for x, y in pairs)
    assert a.n == b.n == both
    assert a.p == b.p
    assert (a.tuned, a.untuned) == (b.untuned, b.tuned)
    assert a.difference.sign == -b.difference.sign
    assert not (there.better and back.better)
    if both:
        assert a.difference.value == pytest.approx(-(b.difference.value or 0))
    if both > 1:
        assert a.difference.low == pytest.approx(-(b.difference.high or 0))
