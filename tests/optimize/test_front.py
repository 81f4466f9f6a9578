"""Fronts, the area they cover, and the rules to pick from them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from salon.optimize.front import RULES, default_rule, dominates, hypervolume, pareto, pick
from salon.optimize.objectives import OBJECTIVES, objectives_of

from salon.errors import UserError

TWO = [OBJECTIVES["quality"], OBJECTIVES["tokens"]]
THREE = [OBJECTIVES["quality"], OBJECTIVES["vendi"], OBJECTIVES["tokens"]]
_COORDINATE = st.one_of(st.none(), st.integers(0, 6).map(float))


def points_of(names: list[str]) -> Any:
    return st.lists(st.fixed_dictionaries(dict.fromkeys(names, _COORDINATE)), max_size=9)


def test_the_default_rule_is_the_first_that_the_objectives_say() -> None:
    for names, rule in (
        (["quality", "vendi", "tokens"], "diverse"), (["vendi"], "diverse"), (["quality", "tokens"], "quality"),
        (["tokens"], "cheapest"), (["depth", "balance"], "balanced"),
    ):  # fmt: skip
        assert default_rule(objectives_of(names, 3)) == rule


@given(points_of(["quality", "vendi", "tokens"]))
def test_a_front_is_what_nothing_dominates(points: list[dict[str, float | None]]) -> None:
    front = pareto(points, THREE)
    for at, own in enumerate(points):
        if None in own.values():
            assert at not in front
            continue
        better = [
            p for p in points if None not in p.values()
            and p["quality"] >= own["quality"] and p["vendi"] >= own["vendi"] and p["tokens"] <= own["tokens"]
            and p != own
        ]  # fmt: skip
        assert (at in front) == (not better)
        assert all(dominates(p, own, THREE) for p in better)


@given(points_of(["quality", "tokens"]))
def test_the_area_is_that_of_the_cells_that_a_point_dominates(points: list[dict[str, float | None]]) -> None:
    reference = {"quality": 1.0, "tokens": 5.0}
    cells = sum(
        any(
            p["quality"] is not None and p["tokens"] is not None and p["quality"] >= x + 1 and p["tokens"] <= y
            for p in points
        )
        for x, y in itertools.product(range(1, 6), range(5))
    )  # a cell reaches from quality x to x + 1 and from y to y + 1 tokens
    assert hypervolume(points, TWO, reference) == pytest.approx(cells)


def test_an_area_needs_two_objectives_and_a_reference() -> None:
    with pytest.raises(UserError, match="two objectives"):
        hypervolume([], THREE, {"quality": 1, "vendi": 1, "tokens": 1})
    with pytest.raises(UserError, match="reference"):
        hypervolume([], TWO, {"quality": 1, "tokens": None})


FRONT = [
    {"quality": 8.00, "vendi": 2.0, "tokens": 900.0},
    {"quality": 7.95, "vendi": 2.4, "tokens": 950.0},
    {"quality": 7.91, "vendi": 2.3, "tokens": 700.0},
    {"quality": 7.00, "vendi": 3.6, "tokens": 500.0},
    {"quality": 5.00, "vendi": 4.0, "tokens": 800.0},
    {"quality": 4.00, "vendi": 1.0, "tokens": 100.0},
    {"quality": None, "vendi": 5.0, "tokens": 1.0},
    {"quality": 3.00, "vendi": 1.0, "tokens": 200.0},
]


def test_each_rule_takes_what_it_says() -> None:
    taken = {rule: pick(FRONT, THREE, rule) for rule in RULES}
    assert taken == {"diverse": 1, "quality": 0, "balanced": 3, "cheapest": 5}
    assert pick(FRONT, THREE) == 1


def test_ties_go_to_quality_then_diversity_then_cost_then_the_first() -> None:
    same = {"quality": 8.0, "vendi": 2.0, "tokens": 100.0}
    assert pick([same, dict(same)], THREE, "diverse") == 0
    assert pick([{**same, "quality": 7.99}, same], THREE, "diverse") == 1
    assert pick([{**same, "tokens": 90.0}, same], [OBJECTIVES["quality"]], "quality") == 0


def test_nothing_to_pick_is_none_and_a_rule_needs_its_objective() -> None:
    assert pick([], THREE) is None
    assert pick([{"quality": None, "vendi": 1.0, "tokens": 1.0}], THREE, "balanced") is None
    with pytest.raises(UserError, match="picks by cost"):
        pick(FRONT, THREE[:2], "cheapest")
    with pytest.raises(UserError, match="picks by diversity"):
        pick(FRONT, TWO)
    with pytest.raises(UserError, match="no rule 'best'"):
        pick(FRONT, THREE, "best")
    assert pick(FRONT, THREE[1:2], "diverse") == 6


@given(points_of(["quality", "vendi", "tokens"]), st.sampled_from(list(RULES)))
def test_what_is_picked_is_on_the_front(points: list[dict[str, float | None]], rule: str) -> None:
    front = pareto(points, THREE)
    taken = pick(points, THREE, rule)
    assert taken in front if front else taken is None
