"""Who speaks next: the three tiers, and the statistics of the draws."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from salon.modules.turns import Bid, Choice, choose_speaker

DRAWS = 4000
SLACK = 0.04  # five standard deviations of a share drawn so often


def bid(eagerness: float = 5, wants: bool = True, silent: int = 1, heard: int = 0) -> Bid:
    return Bid(eagerness, wants, silent, heard)


def choose(
    bids: dict[str, Bid],
    *addressed: str,
    last: str = "",
    threshold: float = 6,
    fairness: float = 1.01,
    seed: int = 0,
) -> Choice | None:
    return choose_speaker(bids, addressed, last, threshold, fairness, random.Random(seed))


def shares(bids: dict[str, Bid], **settings: Any) -> dict[str, float]:
    chosen = Counter(c.speaker for seed in range(DRAWS) if (c := choose(bids, seed=seed, **settings)))
    return {name: chosen[name] / DRAWS for name in bids}


# ---------------------------------------------------------------- the tiers


def test_whoever_was_addressed_speaks_first_whatever_it_wants() -> None:
    bids = {"a": bid(10), "b": bid(0, wants=False), "c": bid(10)}
    assert choose(bids, "b", "c") == Choice("b", 1, "was addressed by name")


def test_the_addressed_who_cannot_speak_give_way_to_the_next_in_line() -> None:
    bids = {"a": bid(10), "b": bid(0), "c": bid(0)}
    choice = choose(bids, "gone", "a", "c", last="a")
    assert choice
    assert (choice.speaker, choice.tier) == ("c", 1)
    choice = choose(bids, "gone", "a", last="a")
    assert choice
    assert choice.tier == 3


def test_eagerness_at_the_threshold_is_enough() -> None:
    choice = choose({"a": bid(6), "b": bid(5.9), "c": bid(5.9, heard=1)})
    assert choice
    assert (choice.speaker, choice.tier) == ("a", 2)


def test_whoever_passes_is_not_drawn_for_its_eagerness() -> None:
    choice = choose({"a": bid(10, wants=False, heard=3), "b": bid(6, heard=9)})
    assert choice
    assert (choice.speaker, choice.tier) == ("b", 2)
    choice = choose({"a": bid(10, wants=False, heard=3), "b": bid(5, heard=9)})
    assert choice
    assert (choice.speaker, choice.tier) == ("a", 3)


def test_the_least_heard_speaks_when_nobody_is_eager() -> None:
    for seed in range(50):
        choice = choose({"a": bid(5, heard=2), "b": bid(0, heard=1), "c": bid(5, heard=3)}, seed=seed)
        assert choice
        assert (choice.speaker, choice.tier) == ("b", 3)


def test_the_last_speaker_is_out_in_every_tier() -> None:
    for addressed in ((), ("a",)):
        for eagerness in (10, 1):
            bids = {"a": bid(eagerness, heard=0), "b": bid(0, heard=9)}
            choice = choose(bids, *addressed, last="a")
            assert choice
            assert choice.speaker == "b"


def test_the_last_speaker_alone_goes_on() -> None:
    choice = choose({"a": bid(2)}, last="a")
    assert choice
    assert choice.speaker == "a"
    assert choose({}, "a", last="a") is None


# ---------------------------------------------------------------- the draws


def test_tier_two_is_drawn_by_eagerness() -> None:
    found = shares({"a": bid(6), "b": bid(9), "c": bid(10), "d": bid(5)})
    assert found == pytest.approx({"a": 6 / 25, "b": 9 / 25, "c": 10 / 25, "d": 0}, abs=SLACK)


def test_tier_two_is_drawn_by_silence_at_equal_eagerness() -> None:
    found = shares({"a": bid(8, silent=1), "b": bid(8, silent=3)}, fairness=2)
    assert found == pytest.approx({"a": 1 / 5, "b": 4 / 5}, abs=SLACK)
    found = shares({"a": bid(8, silent=1), "b": bid(8, silent=101)})
    weight = 1.01**100
    assert found == pytest.approx({"a": 1 / (1 + weight), "b": weight / (1 + weight)}, abs=SLACK)


def test_fairness_of_one_ignores_silence() -> None:
    found = shares({"a": bid(8, silent=1), "b": bid(8, silent=500)}, fairness=1)
    assert found == pytest.approx({"a": 0.5, "b": 0.5}, abs=SLACK)


def test_ties_of_tier_three_are_drawn_evenly() -> None:
    found = shares({"a": bid(1), "b": bid(3), "c": bid(5), "d": bid(1, heard=1)})
    assert found == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3, "d": 0}, abs=SLACK)


def test_at_a_threshold_of_zero_the_uneager_are_drawn_evenly() -> None:
    found = shares({"a": bid(0), "b": bid(0)}, threshold=0)
    assert found == pytest.approx({"a": 0.5, "b": 0.5}, abs=SLACK)


def test_silence_without_end_does_not_overflow() -> None:
    bids = {"a": bid(10, silent=10_000), "b": bid(10, silent=9_000)}
    assert shares(bids, fairness=2) == {"a": 1.0, "b": 0.0}


def test_a_long_session_hears_everyone() -> None:
    """One who is barely over the threshold is still heard beside nine who are as eager as can be."""
    names = [f"p{n}" for n in range(10)]
    spoke_at, heard, last = dict.fromkeys(names, 0), dict.fromkeys(names, 0), ""
    for turn in range(1, 501):
        bids = {n: Bid(6 if n == "p0" else 10, True, turn - spoke_at[n], heard[n]) for n in names}
        choice = choose(bids, last=last, fairness=1.05, seed=turn)
        assert choice
        assert choice.speaker != last
        last = choice.speaker
        spoke_at[last], heard[last] = turn, heard[last] + 1
    assert heard["p0"] > 500 / 10 * 0.6
    assert max(heard.values()) < 500 / 10 * 1.6


NAMES = st.sampled_from("abcdef")
BIDS = st.dictionaries(
    NAMES,
    st.builds(Bid, st.floats(0, 10), st.booleans(), st.integers(0, 10_000), st.integers(0, 10_000)),
)


@given(BIDS, st.lists(NAMES, max_size=4), NAMES | st.just(""), st.floats(0, 10), st.floats(1, 2), st.integers())
def test_every_choice_keeps_the_rules(
    bids: dict[str, Bid], addressed: list[str], last: str, threshold: float, fairness: float, seed: int
) -> None:
    choice = choose_speaker(bids, addressed, last, threshold, fairness, random.Random(seed))
    if not bids:
        assert choice is None
        return
    assert choice is not None
    others = bids.keys() - {last} or bids.keys()
    chosen = bids[choice.speaker]
    assert choice.speaker in others
    called = [name for name in addressed if name in others]
    eager = {name for name in others if bids[name].wants and bids[name].eagerness >= threshold}
    if called:
        assert (choice.speaker, choice.tier) == (called[0], 1)
    elif eager:
        assert choice.tier == 2
        assert choice.speaker in eager
    else:
        assert choice.tier == 3
        assert chosen.heard == min(bids[name].heard for name in others)
    assert choice == choose_speaker(bids, addressed, last, threshold, fairness, random.Random(seed))
