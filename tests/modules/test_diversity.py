"""How different texts are: bounds, reference values, and no NaN anywhere."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from salon.modules import Embedder
from salon.modules.diversity import cosines, distinct, order, pairwise_distance, too_close


def unit(rows: Any) -> Any:
    vectors = np.asarray(rows, dtype=np.float32)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)


VECTORS = nps.arrays(
    np.float32,
    st.tuples(st.integers(0, 6), st.just(4)),
    elements=st.floats(-1, 1, width=32, allow_subnormal=False),
).map(unit)


def test_reference_values() -> None:
    same = unit([[1, 2, 3]] * 5)
    assert pairwise_distance(same) == pytest.approx(0, abs=1e-6)
    assert pairwise_distance(np.eye(4, dtype=np.float32)) == 1
    assert pairwise_distance(unit([[1, 0], [-1, 0]])) == 2
    assert pairwise_distance(unit([[1, 0], [0, 1], [1, 1]])) == pytest.approx((1 + 2 * (1 - 0.5**0.5)) / 3)


@pytest.mark.parametrize("vectors", [np.zeros((0, 0)), np.zeros((0, 4)), np.ones((1, 1))])
def test_fewer_than_two_are_undefined(vectors: Any) -> None:
    assert pairwise_distance(vectors) is None


def test_a_text_without_a_vector_has_a_distance() -> None:
    assert pairwise_distance(unit([[0, 0], [0, 0]])) == 1
    assert pairwise_distance(unit([[0, 0], [1, 0]])) == 1


@given(VECTORS)
def test_distance_and_cosines_are_finite_and_bounded(vectors: Any) -> None:
    distance = pairwise_distance(vectors)
    matrix = cosines(vectors)
    assert (distance is None) == (len(vectors) < 2)
    if distance is not None:
        assert math.isfinite(distance)
        assert 0 <= distance <= 2
        assert pairwise_distance(vectors[::-1]) == pytest.approx(distance, abs=1e-9)
    assert len(matrix) == len(vectors)
    for i, row in enumerate(matrix):
        assert all(-1 <= c <= 1 and c == matrix[j][i] for j, c in enumerate(row))


@given(VECTORS, st.floats(-1, 1))
def test_pairs_that_are_too_close_are_above_the_limit(vectors: Any, limit: float) -> None:
    matrix = cosines(vectors)
    pairs = too_close(matrix, limit)
    every = [(i, j) for i in range(len(matrix)) for j in range(i + 1, len(matrix))]
    assert pairs == [(i, j) for i, j in every if matrix[i][j] > limit]


def test_the_limit_itself_is_not_too_close() -> None:
    assert too_close([[1, 0.9], [0.9, 1]], 0.9) == []
    assert too_close([[1, 0.91], [0.91, 1]], 0.9) == [(0, 1)]


def test_equal_texts_of_the_packaged_model_have_no_distance() -> None:
    embedder = Embedder()
    vectors = embedder.embed(["Tea for two."] * 3 + ["A lathe."])
    assert pairwise_distance(vectors[:3]) == pytest.approx(0, abs=1e-6)
    assert embedder.similarities("Tea for two.", ["Tea for two.", "A lathe."])[0] == pytest.approx(1)
    apart = pairwise_distance(vectors[2:])
    assert apart is not None
    assert apart > 0.5


# ---------------------------------------------------------------- order


def test_the_order_parameter_is_the_length_of_the_mean_vector() -> None:
    vectors = unit(np.random.default_rng(4).normal(size=(9, 5)))
    mean = vectors.astype(np.float64).mean(axis=0)
    assert order(vectors) == pytest.approx(float(np.linalg.norm(mean)), abs=1e-6)
    by_definition = np.mean([v @ (mean / np.linalg.norm(mean)) for v in vectors])
    assert order(vectors) == pytest.approx(float(by_definition), abs=1e-6)


@pytest.mark.parametrize("n", [2, 3, 10])
def test_reference_values_of_order(n: int) -> None:
    assert order(unit([[1, 2, 3]] * n)) == pytest.approx(1)
    assert order(np.eye(n, dtype=np.float32)) == pytest.approx(1 / math.sqrt(n))
    assert order(unit([[1, 0], [-1, 0]] * n)) == 0
    assert order(np.zeros((n, 4), dtype=np.float32)) == 0
    assert order(unit([[1, 0]])) is None
    assert order(np.zeros((0, 0), dtype=np.float32)) is None


@given(VECTORS)
def test_order_is_finite_and_bounded(vectors: Any) -> None:
    found = order(vectors)
    assert (found is None) == (len(vectors) < 2)
    assert found is None or 0 <= found <= 1


# ---------------------------------------------------------------- distinct words


def test_distinct_words_by_hand() -> None:
    """The red kite / the Red sea: 4 of 6 words; the red, red kite, the red, red sea: 3 of 4 pairs."""
    texts = ["The red kite", "the Red sea!"]
    assert distinct(texts, 1) == 4 / 6
    assert distinct(texts, 2) == 3 / 4
    assert distinct(texts, 3) == 2 / 2
    assert distinct(texts, 4) is None


def test_pairs_do_not_reach_over_the_end_of_a_text() -> None:
    assert distinct(["a", "b"], 2) is None
    assert distinct(["a b", "b a"], 2) == 1.0


@pytest.mark.parametrize("texts", [[], [""], ["?!", " "]])
def test_texts_without_words_have_no_distinct_share(texts: list[str]) -> None:
    assert distinct(texts, 1) is None


@given(st.lists(st.text(alphabet="ab ", max_size=10), max_size=5), st.integers(1, 3))
def test_distinct_is_a_share_and_repeating_lowers_it(texts: list[str], n: int) -> None:
    found = distinct(texts, n)
    assert found is None or 0 < found <= 1
    twice = distinct(texts * 2, n)
    assert twice == (None if found is None else pytest.approx(found / 2))


def test_distinct_grows_with_the_words_alone() -> None:
    texts = [f"word{n} and word{n + 1} of number {n % 50}" for n in range(4000)]
    started = time.perf_counter()
    assert distinct(texts, 2) is not None
    assert time.perf_counter() - started < 2
