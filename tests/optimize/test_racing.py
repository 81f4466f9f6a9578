"""When a trial is stopped: never by luck alone, and never while it may still be good."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from salon.optimize.objectives import OBJECTIVES, Value, value_of
from salon.optimize.racing import FEWEST, RISK, blocks, hopeless, over_limit

AIMS = [OBJECTIVES["quality"], OBJECTIVES["tokens"]]


def values(quality: list[float | None], tokens: list[float | None]) -> dict[str, Value]:
    return {
        "quality": value_of({f"q{n}": v for n, v in enumerate(quality)}),
        "tokens": value_of({f"q{n}": v for n, v in enumerate(tokens)}),
    }


@given(st.integers(1, 60), st.integers(1, 8))
def test_blocks_keep_the_queries_in_order(count: int, parts: int) -> None:
    split = blocks(list(range(count)), parts)
    assert [n for part in split for n in part] == list(range(count))
    assert 1 <= len(split) <= parts
    assert all(split)
    assert len(split) == 1 or len(split[0]) >= FEWEST


def test_a_trial_that_is_worse_in_everything_is_stopped() -> None:
    front = [values([7.0, 6.5, 7.2, 6.8], [9.0, 9.5, 9.1, 9.0]), values([7.0, 6.5, 7.2, 6.8], [5.0, 5.5, 5.1, 5.0])]
    poor = values([4.0, 3.4, 4.1, 3.9], [7.0, 7.6, 7.1, 7.1])
    assert hopeless(poor, front, AIMS, looks=2)
    assert not hopeless(poor, front[:1], AIMS, looks=2)  # it is cheaper than that one
    assert not hopeless(poor, [], AIMS, looks=2)


def test_few_queries_noise_and_equals_stop_nothing() -> None:
    good, poor = values([7, 7, 7, 7], [5, 5, 5, 5]), values([4, 4, 4], [7, 7, 7])
    assert not hopeless(poor, [good], AIMS, looks=1)
    assert not hopeless(values([4, 4, 4, None], [7, 7, 7, 7]), [good], AIMS, looks=1)
    assert not hopeless(good, [good], AIMS, looks=1)
    noisy = values([2, 9, 3, 8], [1, 9, 8, 9])
    assert not hopeless(noisy, [good], AIMS, looks=1)


def test_common_seeds_make_small_differences_plain() -> None:
    luck = np.random.default_rng(1).normal(size=12) * 3
    good = values(list(6 + luck), [5.0] * 12)
    poor = values(list(5.5 + luck + 0.05 * np.random.default_rng(2).normal(size=12)), [6.0] * 12)
    assert hopeless(poor, [good], AIMS, looks=2)


def test_a_trial_as_good_as_its_rivals_is_stopped_at_most_so_often() -> None:
    draw, stopped, runs, looks = np.random.default_rng(5), 0, 2000, 2
    for _ in range(runs):
        rivals = [draw.normal(size=12) for _ in range(3)]
        own = draw.normal(size=12)
        stopped += any(
            hopeless(
                values(list(own[:n]), [9.0] * n), [values(list(r), [5.0] * 12) for r in rivals], AIMS, looks
            )
            for n in (4, 8)
        )  # fmt: skip
    assert stopped / runs <= RISK


@pytest.mark.parametrize(("bound", "stopped"), [(50.0, True), (100.0, False), (105.0, False)])
def test_a_trial_that_is_sure_to_pass_a_limit_is_stopped(bound: float, stopped: bool) -> None:
    cost = value_of({"a": 99.0, "b": 101.0, "c": 100.0, "d": 102.0})
    assert over_limit(cost, bound, OBJECTIVES["tokens"], looks=2) is stopped
    assert not over_limit(value_of({"a": 99.0}), bound, OBJECTIVES["tokens"], looks=2)
    gain = value_of({"a": 5.0, "b": 5.1, "c": 4.9, "d": 5.0})
    assert over_limit(gain, 8.0, OBJECTIVES["quality"], looks=2)
    assert not over_limit(gain, 4.0, OBJECTIVES["quality"], looks=2)
