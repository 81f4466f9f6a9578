"""Intervals and correlations, against formulas written out here and against computations of another kind."""

from __future__ import annotations

import math
import tracemalloc
from statistics import fmean

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from salon.evals.statistics import Interval, correlation, mean_interval, share_interval
from scipy import stats

Z = stats.norm.ppf(0.975)
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False, width=32)


# ---------------------------------------------------------------- means


@pytest.mark.parametrize("n", [2, 3, 8, 30, 200])
def test_a_mean_has_the_interval_of_a_percentile_bootstrap(n: int) -> None:
    data = np.random.default_rng(n).gamma(2, size=n)
    draws = np.random.default_rng(99).integers(0, n, (100_000, n))
    low, high = np.percentile(data[draws].mean(axis=1), [2.5, 97.5])
    found = mean_interval(list(data))
    room = 0.1 * data.std() / math.sqrt(n)
    assert found.value == pytest.approx(fmean(data))
    assert found.low == pytest.approx(low, abs=room)
    assert found.high == pytest.approx(high, abs=room)
    assert found.n == n


def test_an_interval_of_many_is_the_normal_one() -> None:
    data = np.random.default_rng(1).normal(3, 2, 1500)
    found, half = mean_interval(list(data)), Z * data.std(ddof=1) / math.sqrt(len(data))
    assert found.low == pytest.approx(data.mean() - half, abs=0.01)
    assert found.high == pytest.approx(data.mean() + half, abs=0.01)


@pytest.mark.parametrize("value", [0.0, 2.5, -1.0, 0.1, 1e-12])
def test_equal_values_have_no_width(value: float) -> None:
    found = mean_interval([value] * 7)
    assert found.value == pytest.approx(value)
    assert found.low == pytest.approx(value)
    assert found.high == pytest.approx(value)
    assert found.sign == (value > 0) - (value < 0)


def test_few_values_have_less_to_say() -> None:
    assert mean_interval([]) == Interval(None, None, None, 0)
    assert mean_interval([4.0]) == Interval(4.0, None, None, 1)
    assert mean_interval([0.0, 1.0]) == Interval(0.5, 0.0, 1.0, 2)
    assert [mean_interval(v).sign for v in ([], [4.0], [1.0, 2.0], [-1.0, -2.0], [-1.0, 2.0])] == [0, 0, 1, -1, 0]


def test_intervals_are_told_with_their_number() -> None:
    assert str(Interval(None, None, None, 0)) == "–"
    assert str(Interval(0.5, None, None, 1)) == "0.500 (n=1)"
    assert str(Interval(0.5, 0.25, 0.75, 4)) == "0.500 [0.250, 0.750] (n=4)"


def test_the_same_values_have_the_same_interval() -> None:
    data = list(np.random.default_rng(2).normal(size=20))
    assert mean_interval(data) == mean_interval(data)
    assert mean_interval(data).low == pytest.approx(mean_interval(data, seed=1).low, abs=0.05)


@settings(max_examples=40)
@given(st.lists(NUMBERS, min_size=2, max_size=12))
def test_a_mean_lies_in_its_interval_and_the_interval_among_the_values(values: list[float]) -> None:
    found = mean_interval(values)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value <= found.high
    room = 1e-9 * max(map(abs, values))
    assert min(values) - room <= found.low
    assert found.high <= max(values) + room


def test_many_values_are_not_resampled_all_at_once() -> None:
    tracemalloc.start()
    mean_interval([float(n % 7) for n in range(3000)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6  # all at once would take 480 MB


# ---------------------------------------------------------------- shares


def wilson(hits: int, n: int) -> tuple[float, float]:
    p = hits / n
    centre = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    return centre - half, centre + half


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (1, 1), (0, 10), (10, 10), (3, 10), (1, 2), (57, 60), (500, 1000)])
def test_a_share_has_the_interval_of_wilsons_formula(hits: int, n: int) -> None:
    found = share_interval(hits, n)
    assert found.value == hits / n
    assert (found.low, found.high) == pytest.approx(wilson(hits, n), abs=1e-12)
    assert found.n == n


@given(st.integers(0, 400), st.integers(0, 400))
def test_a_share_lies_in_its_interval_and_that_between_0_and_1(hits: int, misses: int) -> None:
    found = share_interval(hits, hits + misses)
    if not hits + misses:
        assert found == Interval(None, None, None, 0)
        return
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert -1e-12 <= found.low <= found.value <= found.high <= 1 + 1e-12


@pytest.mark.parametrize(("hits", "n"), [(3, 2), (-1, 2), (1, 0)])
def test_more_hits_than_trials_are_a_mistake(hits: int, n: int) -> None:
    with pytest.raises(ValueError, match=f"{hits} hits in {n} trials"):
        share_interval(hits, n)


# ---------------------------------------------------------------- correlations


def test_pearson_by_hand() -> None:
    """x = 1, 2, 3, 4, 5 and y = 2, 1, 4, 3, 5: covariance 8, both sums of squares 10, so r = 0.8."""
    found = correlation([(1, 2), (2, 1), (3, 4), (4, 3), (5, 5)])
    assert found.r == pytest.approx(0.8)
    t = 0.8 * math.sqrt((5 - 2) / (1 - 0.8**2))
    assert found.p == pytest.approx(2 * stats.t.sf(t, 3))
    half = Z / math.sqrt(5 - 3)
    assert found.low == pytest.approx(math.tanh(math.atanh(0.8) - half))
    assert found.high == pytest.approx(math.tanh(math.atanh(0.8) + half))
    assert (found.n, found.undefined) == (5, "")


@given(st.lists(st.tuples(st.floats(-100, 100), st.floats(-100, 100)), min_size=4, max_size=15))
def test_pearson_agrees_with_regression_and_covariance(pairs: list[tuple[float, float]]) -> None:
    x, y = (np.array(column) for column in zip(*pairs, strict=True))
    assume(np.ptp(x) > 0.01)
    assume(np.ptp(y) > 0.01)
    found, line = correlation(pairs), stats.linregress(x, y)
    assert found.r is not None
    assert found.p is not None
    assert found.r == pytest.approx(line.rvalue, abs=1e-9)
    assert found.r == pytest.approx(np.cov(x, y)[0, 1] / (x.std(ddof=1) * y.std(ddof=1)), abs=1e-9)
    assert found.p == pytest.approx(line.pvalue, abs=1e-6)
    if found.low is not None:
        assert found.high is not None
        assert -1 <= found.low <= found.r <= found.high <= 1


def test_pairs_without_a_value_do_not_count() -> None:
    whole = [(1.0, 2.0), (2.0, 1.0), (3.0, 4.0), (4.0, 3.0), (5.0, 5.0)]
    with_gaps = [*whole[:2], (9.0, None), *whole[2:], (0.0, None)]
    assert correlation(with_gaps) == correlation(whole)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_pairs_have_no_correlation(count: int) -> None:
    found = correlation([(float(n), float(n)) for n in range(count)] + [(7.0, None)] * 3)
    assert (found.r, found.p, found.low, found.n) == (None, None, None, count)
    assert found.undefined == "fewer than three pairs"


def test_three_pairs_have_no_interval() -> None:
    found = correlation([(1, 1), (2, 3), (3, 2)])
    assert found.r == pytest.approx(0.5)
    assert (found.low, found.high, found.n) == (None, None, 3)
    perfect = correlation([(1, 1), (2, 2), (3, 3), (4, 4)])
    assert perfect.r == pytest.approx(1)
    assert perfect.n == 4


@pytest.mark.parametrize(
    "pairs",
    [
        [(1.0, 5.0)] * 4,
        [(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)],
        [(1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (4.0, 0.0)],
        [(1.0, 0.7), (2.0, 0.1 + 0.6), (3.0, 0.7), (4.0, 0.7)],  # 0.1 + 0.6 is a hair below 0.7
        [(1.0, 1.0), (2.0, 1.0 + 1e-15), (3.0, 1.0)],
    ],
)
def test_a_column_that_does_not_vary_has_no_correlation(pairs: list[tuple[float, float | None]]) -> None:
    found = correlation(pairs)
    assert (found.r, found.p) == (None, None)
    assert found.undefined == "one of the two does not vary"


@given(st.lists(st.tuples(NUMBERS, st.none() | NUMBERS), max_size=8))
def test_nothing_is_ever_nan(pairs: list[tuple[float, float | None]]) -> None:
    found = correlation(pairs)
    for value in (found.r, found.p, found.low, found.high):
        assert value is None or math.isfinite(value)
    assert (found.r is None) == bool(found.undefined)
    assert found.r is None or -1 <= found.r <= 1
