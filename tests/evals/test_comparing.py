from __future__ import annotations

from itertools import pairwise, product
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from salon.evals.comparing import bradley_terry, holm, paired, win_rates
from scipy import optimize, stats

P = st.floats(0, 1, allow_nan=False)


def test_paired_differences_are_of_queries_that_both_have() -> None:
    found = paired({"a": 3.0, "b": 5.0, "c": None, "d": 1.0}, {"a": 1.0, "b": 2.0, "c": 9.0, "e": 4.0})
    assert found.n == 2
    assert found.difference.value == pytest.approx(2.5)
    assert found.p == pytest.approx(0.5)  # of the four sign changes, +2+3 and -2-3 are as far from 0


def test_exact_p_value_equals_enumeration_and_scipys_permutation_test() -> None:
    gaps = [0.5, -0.2, 0.9, 0.4, 0.1, 0.7, -0.1]
    found = paired({str(n): g for n, g in enumerate(gaps)}, {str(n): 0.0 for n in range(len(gaps))})
    far = sum(
        abs(sum(s * g for s, g in zip(signs, gaps, strict=True))) >= abs(sum(gaps)) - 1e-12
        for signs in product((1, -1), repeat=len(gaps))
    )
    assert found.p == pytest.approx(far / 2 ** len(gaps))
    other = stats.permutation_test((np.array(gaps),), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert found.p == pytest.approx(other.pvalue)


def test_many_pairs_are_resampled_and_near_the_t_test() -> None:
    rng = np.random.default_rng(3)
    gaps = rng.normal(0.3, 1, size=60)
    found = paired({str(n): float(g) for n, g in enumerate(gaps)}, {str(n): 0.0 for n in range(60)})
    assert found.p == pytest.approx(stats.ttest_1samp(gaps, 0).pvalue, abs=0.01)


def test_one_pair_has_no_p_value() -> None:
    assert paired({"a": 1.0}, {"a": 0.0}).p is None
    assert paired({}, {}).difference.value is None


def test_holm_by_hand() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": None}) == {
        "a": pytest.approx(0.03),
        "b": pytest.approx(0.06),
        "c": pytest.approx(0.06),
        "d": None,
    }


@given(st.dictionaries(st.text(max_size=3), P, max_size=8))
def test_holm_raises_p_values_keeps_their_order_and_is_bounded(values: dict[str, float]) -> None:
    corrected = holm(values)
    for name, p in values.items():
        assert p <= (corrected[name] or 0.0) + 1e-12 <= 1.0 + 1e-9
    ordered = sorted(values, key=lambda name: values[name])
    assert all((corrected[a] or 0) <= (corrected[b] or 0) for a, b in pairwise(ordered))


def test_win_rates_count_a_tie_half() -> None:
    rates = win_rates([("x", "y", 1.0), ("x", "y", 0.5), ("y", "z", 0.0)])
    assert rates["x"] == {"y": 0.75}
    assert rates["y"] == {"x": 0.25, "z": 0.0}
    assert "z" not in rates["x"]


def test_bradley_terry_of_two_is_the_log_odds() -> None:
    results = [("a", "b", 1.0)] * 30 + [("a", "b", 0.0)] * 10
    strength = bradley_terry(results, prior=0.0)
    assert strength["a"] - strength["b"] == pytest.approx(log(3), abs=1e-6)
    assert strength["a"] + strength["b"] == pytest.approx(0, abs=1e-9)


def test_bradley_terry_equals_the_likelihoods_maximum() -> None:
    rng = np.random.default_rng(5)
    true = {"a": 1.0, "b": 0.2, "c": -0.4, "d": -0.8}
    results = []
    for _ in range(400):
        one, two = (str(name) for name in rng.choice(list(true), 2, replace=False))
        won = rng.random() < 1 / (1 + np.exp(true[two] - true[one]))
        results.append((one, two, float(won)))
    found = bradley_terry(results, prior=0.0)

    def unlikely(free: np.ndarray) -> float:
        at = dict(zip(true, [*free, -free.sum()], strict=True))
        return sum(np.log1p(np.exp(-(at[a] - at[b]) * (2 * s - 1))) for a, b, s in results)

    best = optimize.minimize(unlikely, np.zeros(3)).x
    assert [found[name] for name in true] == pytest.approx([*best, -best.sum()], abs=1e-3)
    assert list(found) == sorted(found, key=lambda name: -found[name])


def test_bradley_terry_stays_finite_where_one_always_wins() -> None:
    strength = bradley_terry([("a", "b", 1.0)] * 5)
    assert strength["a"] == pytest.approx(log(5.25 / 0.25) / 2, abs=1e-6)
