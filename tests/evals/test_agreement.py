from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from salon.evals.agreement import krippendorff_alpha, rank_agreement
from scipy import stats

RATINGS = st.lists(st.lists(st.none() | st.integers(1, 10), min_size=2, max_size=4), max_size=8)


def slow_alpha(ratings: list[list[float | None]]) -> float | None:
    """Alpha from the coincidences of all pairs, as in its definition."""
    pairs, values = [], []
    for item in ratings:
        known = [r for r in item if r is not None]
        if len(known) > 1:
            values += known
            pairs += [
                ((a - b) ** 2, 1 / (len(known) - 1)) for i, a in enumerate(known) for j, b in enumerate(known) if i != j
            ]
    if len(values) < 2 or len(set(values)) == 1:
        return None
    observed = sum(d * w for d, w in pairs) / len(values)
    gaps = [(a - b) ** 2 for i, a in enumerate(values) for j, b in enumerate(values) if i != j]
    return 1 - observed / (sum(gaps) / (len(values) * (len(values) - 1)))


@given(RATINGS)
def test_alpha_equals_its_definition(ratings: list[list[float | None]]) -> None:
    expected = slow_alpha(ratings)
    found = krippendorff_alpha(ratings)
    assert (found is None) == (expected is None)
    if expected is not None:
        assert found == pytest.approx(expected, abs=1e-9)


def test_alpha_of_judges_that_agree_and_of_one_that_guesses() -> None:
    assert krippendorff_alpha([[1, 1], [5, 5], [9, 9]]) == pytest.approx(1)
    rng = np.random.default_rng(0)
    guessed = [[float(rng.integers(1, 11)), float(rng.integers(1, 11))] for _ in range(2000)]
    assert krippendorff_alpha(guessed) == pytest.approx(0, abs=0.06)
    assert krippendorff_alpha([[7, 7], [7, 7]]) is None


def test_rank_agreement_equals_spearman_and_has_an_interval_round_it() -> None:
    rng = np.random.default_rng(1)
    labels = [float(x) for x in rng.integers(0, 3, 80)]
    scores = [label + float(rng.normal(0, 1)) for label in labels]
    found = rank_agreement([*scores, None], [*labels, 1.0])
    assert found.n == 80
    assert found.value == pytest.approx(stats.spearmanr(scores, labels).statistic)
    assert found.low is not None
    assert found.high is not None
    assert found.low < (found.value or 0) < found.high


def test_a_judge_that_always_says_seven_has_no_agreement() -> None:
    found = rank_agreement([7.0] * 10, [float(n) for n in range(10)])
    assert found.value is None
    assert "does not vary" in found.undefined
    assert rank_agreement([1.0, 2.0], [1.0, 2.0]).undefined.startswith("fewer than three")
