"""What is searched, which numbers go together, and when two variants are the same program."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from salon.modules import Debate, Roundtable, Tunable, YesAnd
from salon.modules.baselines import BASELINES, Voting
from salon.optimize.space import points, program_key, size, space_of, tunables, with_values

from salon.errors import UserError

PROGRAMS = [Debate, Roundtable, YesAnd, lambda: Roundtable(turns=8), *BASELINES.values()]


@pytest.mark.parametrize("make", PROGRAMS)
def test_every_program_has_a_space_that_holds_its_own_values(make: Any) -> None:
    program = make()
    space = space_of(program)
    assert space
    for name, dimension in space.items():
        tunable = tunables(program)[name]
        assert tunable.low <= dimension.low < dimension.high <= tunable.high
        assert dimension.default == tunable.value
        assert tunable.value in dimension.values
        for value in (dimension.low, dimension.high):
            with_values(program, {name: value})


def test_a_search_is_narrower_than_what_is_allowed() -> None:
    assert {name: (d.low, d.high) for name, d in space_of(Debate()).items()} == {
        "rounds": (0, 3), "k": (1, 4), "temperature": (0.5, 1.3),
    }  # fmt: skip
    assert size(space_of(Debate())) == 4 * 4 * 9
    assert "prompt_tokens" not in space_of(Roundtable())
    assert space_of(Debate(rounds=6, agents=8))["rounds"].high == 6


def test_a_user_restricts_and_extends() -> None:
    space = space_of(Debate(), include=["k"], ranges={"agents": (3, 8), "temperature": (0.8, 1.2, 0.2)})
    assert list(space) == ["agents", "k", "temperature"]
    assert space["temperature"].values == [0.8, 1.0, 1.2]
    assert space_of(Debate(), ranges={"temperature": (0.33, 1.1)})["temperature"].low == 0.4
    wide = space_of(Roundtable(), include=["prompt_tokens"])["prompt_tokens"]
    assert (wide.low, wide.high, wide.log, wide.integer) == (1500, 1_000_000, True, True)


def test_steps_are_counted_from_the_own_value_and_tidy() -> None:
    program = Roundtable()
    assert space_of(program)["fairness"].values == [1.01, 1.06, 1.11, 1.16, 1.21, 1.26, 1.31]
    program.temperature.value = 0.93
    assert space_of(program)["temperature"].values == [0.53, 0.63, 0.73, 0.83, 0.93, 1.03, 1.13, 1.23]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"include": ["speed"]}, "no number 'speed'"),
        ({"include": []}, "nothing to search"),
        ({"ranges": {"k": (3, 4)}}, "the program's own value 2 is not among them"),
        ({"ranges": {"k": (3, 1)}}, "it must rise"),
        ({"ranges": {"k": (2, 2)}}, "set it on the program"),
        ({"ranges": {"k": (1, 99)}}, "within 1 to 49"),
        ({"ranges": {"k": (1, 2.5)}}, "whole numbers"),
        ({"ranges": {"k": (1, 3, 1)}}, "a step is for floats"),
        ({"ranges": {"k": (1,)}}, "the lowest and the highest"),
        ({"ranges": {"k": "13"}}, "the lowest and the highest"),
        ({"ranges": {"k": (True, 3)}}, "the lowest and the highest"),
        ({"ranges": {"temperature": (0.9, 1.1, 0.5)}}, "in steps of 0.5"),
        ({"ranges": {"temperature": (0.9, 1.1, 0)}}, "more than 0"),
        ({"ranges": {"temperature": (float("nan"), 1.1)}}, "it must rise"),
    ],
)
def test_impossible_ranges_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        space_of(Debate(), **settings)


def test_a_number_without_effect_is_not_searched() -> None:
    assert "k" not in space_of(Debate(peers="all"))
    assert "facilitator_rest" not in space_of(Roundtable(facilitator=False))
    assert list(space_of(YesAnd(order="fixed"))) == ["temperature"]
    assert "answers" not in space_of(Voting(equal_calls=9))
    with pytest.raises(UserError, match="no effect"):
        space_of(Debate(peers="all"), ranges={"k": (1, 3)})


def test_the_original_stays_and_the_copy_keeps_the_rest() -> None:
    program = Debate(agents=4, lenses=["critical"])
    program.temperature.value = 0.7
    program.draft.signature = program.draft.signature.with_instructions("Write well.")
    changed = with_values(program, {"k": 3, "rounds": 1})
    assert (int(program.k), int(program.rounds)) == (2, 2)
    assert (int(changed.k), int(changed.rounds), float(changed.temperature)) == (3, 1, 0.7)
    assert changed.lenses == program.lenses
    assert changed.draft.signature.instructions == "Write well."
    with pytest.raises(UserError, match="no number 'speed'"):
        with_values(program, {"speed": 1})
    with pytest.raises(UserError, match="not allowed"):
        with_values(program, {"k": 77})


def effect(program: Debate) -> tuple[Any, ...]:
    """Return what a debate does with its numbers, told independently of ``space``."""
    agents, rounds = int(program.agents), int(program.rounds)
    shown = min(int(program.k), agents - 1) if rounds and agents > 1 else 0
    return agents, rounds, shown, float(program.temperature)


_NUMBERS = st.fixed_dictionaries({"agents": st.integers(1, 4), "rounds": st.integers(0, 2), "k": st.integers(1, 4)})


@given(_NUMBERS, _NUMBERS)
def test_two_variants_are_the_same_program_just_if_they_do_the_same(
    first: dict[str, int], second: dict[str, int]
) -> None:
    a, b = with_values(_DEBATE, first), with_values(_DEBATE, second)
    assert (program_key(a) == program_key(b)) == (effect(a) == effect(b))


_DEBATE = Debate()


def test_what_is_without_effect_is_put_back() -> None:
    table = Roundtable(turns=5)
    quiet = with_values(table, {"turns": 0, "threshold": 3.0, "memory": 5})
    assert (float(quiet.threshold), int(quiet.memory)) == (6.0, 2)
    assert program_key(quiet) == program_key(with_values(table, {"turns": 0}))
    bare = with_values(table, {"ideas": 0, "votes": 9, "threshold": 3.0})
    assert (int(bare.votes), float(bare.threshold)) == (5, 3.0)


def test_a_key_tells_prompts_and_settings_but_not_how_many_calls_are_in_flight() -> None:
    program = Debate()
    assert program_key(program) == program_key(Debate(max_concurrency=3)) == program_key(with_values(program, {}))
    assert program_key(program) != program_key(Debate(peers="random"))
    other = Debate()
    other.draft.signature = other.draft.signature.with_instructions("Write well.")
    assert program_key(program) != program_key(other)


def test_points_walk_the_whole_space_once() -> None:
    space = space_of(Debate())
    count = size(space) or 0
    assert len({tuple(points(space, at).values()) for at in range(count)}) == count
    assert size({**space, "free": space_of(_with_log_float())["free"]}) is None


def _with_log_float() -> Debate:
    program = Debate()
    program.free = Tunable(0.1, 0.001, 1.0, log=True, search=(0.01, 1.0))
    return program
