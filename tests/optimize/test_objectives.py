"""What is measured of a program: by query, with its noise, and nothing where it is undefined."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from salon.evals.jobs import JobRow
from salon.optimize.objectives import OBJECTIVES, gated, lead_over, objectives_of, pooled, value_of, values_of
from vendi_score import vendi as reference

from salon.errors import UserError

_NUMBERS = st.lists(st.one_of(st.none(), st.floats(-100, 100)), min_size=1, max_size=12)


def row(query: str, run: int, author: str = "", quality: float | None = 6.0, **more: Any) -> JobRow:
    rating = {"judge": "j", "scores": {}, "value": quality, "how": "", "reason": "", "error": ""}
    answer = f"spread 0.5 author {author or f'{query}{run}'}"
    return JobRow("program", query, run, run, **{"status": "ok", "answer": answer, "ratings": [rating], **more})


def test_every_objective_says_what_it_is() -> None:
    assert set(OBJECTIVES) == {
        "quality", "vendi", "distance", "div_bleu", "gated", "tokens", "usd", "depth", "absorption", "balance",
    }  # fmt: skip
    for name, objective in OBJECTIVES.items():
        assert objective.name == name
        assert objective.unit
        assert objective.needs
        assert objective.direction == ("minimize" if objective.kind == "cost" else "maximize")
        assert objective.high is None or objective.high > objective.low


def test_values_are_means_over_queries_with_their_standard_error(spread: Any) -> None:
    rows = [row(f"q{n}", run, quality=float(n + run)) for n in range(4) for run in (1, 2, 3)]
    found = values_of(rows, objectives_of(["quality", "tokens"], 3), spread)["quality"]
    assert dict(found.by_query) == {"q0": 2, "q1": 3, "q2": 4, "q3": 5}
    assert (found.value, found.n, found.reason) == (3.5, 4, "")
    assert found.se == pytest.approx(np.std([2, 3, 4, 5], ddof=1) / sqrt(4))


def test_diversity_of_a_set_is_that_of_the_public_implementation(spread: Any) -> None:
    rows = [row("q", run) for run in (1, 2, 3)]
    vectors = spread.embed([r.answer for r in rows])
    found = values_of(rows, objectives_of(["vendi", "distance"], 3), spread)
    assert found["vendi"].value == pytest.approx(reference.score(vectors, lambda a, b: float(a @ b)), abs=1e-4)
    pairs = [1 - float(vectors[i] @ vectors[j]) for i in range(3) for j in range(i)]
    assert found["distance"].value == pytest.approx(np.mean(pairs), abs=1e-5)
    assert found["vendi"].se is None


def test_a_set_that_lacks_an_answer_has_no_diversity_but_a_quality(spread: Any) -> None:
    rows = [row("a", 1), row("a", 2), row("b", 1), row("b", 2, status="failed", answer="", ratings=[])]
    found = values_of(rows, objectives_of(["quality", "vendi", "div_bleu", "gated"], 2), spread)
    for name in ("vendi", "div_bleu", "gated"):
        assert found[name].by_query["b"] is None
        assert found[name].n == 1
        assert found[name].reason.startswith("1 of 2 queries lack all its answers")
    assert found["quality"].n == 2


def test_gated_diversity_counts_good_answers_alone(spread: Any) -> None:
    aim = objectives_of(["gated:7"], 3)
    good = {"a": (9, 9, 9), "b": (9, 9, 2), "c": (9, 2, 2), "d": (2, 2, 2), "e": (9, None, 9)}
    rows = [row(q, n, quality=v) for q, values in good.items() for n, v in enumerate(values, 1)]
    found = values_of(rows, aim, spread)["gated"].by_query
    everything = values_of(rows, objectives_of(["vendi"], 3), spread)["vendi"].by_query
    assert found["a"] == pytest.approx(everything["a"])
    assert found["b"] is not None
    assert 1 < found["b"] < 2 + 1e-9
    assert (found["c"], found["d"], found["e"]) == (1.0, 0.0, None)


def test_costs_and_measures_of_talk(spread: Any) -> None:
    rows = [
        row("q", 1, prompt_tokens=100, completion_tokens=20, usd=0.2, depth=3.0, balance=0.5),
        row("q", 2, prompt_tokens=300, completion_tokens=60, usd=0.4, depth=None, balance=0.7),
        row("p", 1, usd=None),
        row("p", 2, usd=0.1),
    ]
    found = values_of(rows, objectives_of(["tokens", "usd", "depth", "absorption", "balance"], 2), spread)
    assert found["tokens"].by_query == {"q": 240, "p": 0}
    assert found["usd"].by_query == {"q": pytest.approx(0.3), "p": None}
    assert found["depth"].by_query == {"q": 3.0, "p": None}
    assert found["balance"].value == pytest.approx(0.6)
    assert found["absorption"].value is None
    assert str(found["absorption"]) == "none (2 of 2 queries lack a roundtable that says it)"


@given(_NUMBERS)
def test_nothing_is_filled_in(numbers: list[float | None]) -> None:
    found = value_of({f"q{n}": number for n, number in enumerate(numbers)})
    known = [number for number in numbers if number is not None]
    assert found.n == len(known)
    assert found.value == (pytest.approx(np.mean(known), abs=1e-9) if known else None)
    assert (found.se is None) == (len(known) < 2)
    assert bool(found.reason) == (len(known) < len(numbers))


@given(_NUMBERS, _NUMBERS)
def test_measurements_pool_by_query(first: list[float | None], second: list[float | None]) -> None:
    a, b = (value_of({f"q{n}": v for n, v in enumerate(part)}) for part in (first, second))
    both = pooled([a, b]).by_query
    for query in {*a.by_query, *b.by_query}:
        known = [v for v in (a.by_query.get(query), b.by_query.get(query)) if v is not None]
        assert both[query] == (pytest.approx(np.mean(known), abs=1e-9) if known else None)
    assert pooled([a]) is a


def test_differences_are_paired_and_know_which_way_is_better() -> None:
    cost, first = OBJECTIVES["tokens"], value_of({"a": 1.0, "b": 5.0, "c": None})
    found = lead_over(first, value_of({"a": 2.0, "b": 8.0, "c": 1.0, "d": 1.0}), cost)
    assert (found.mean, found.n) == (2.0, 2)
    assert found.se == pytest.approx(np.std([1, 3], ddof=1) / sqrt(2))
    assert lead_over(first, value_of({"c": 1.0}), cost) == (None, None, 0)


@pytest.mark.parametrize(
    ("names", "groups", "told"),
    [
        (["quality", "fun"], 3, "There is no objective 'fun'"),
        ([], 3, "not possible"),
        (["vendi", "vendi"], 3, "none twice"),
        (["gated:11"], 3, "cannot be asked for"),
        (["quality", "vendi"], 1, "one answer per query has no diversity"),
    ],
)
def test_objectives_that_cannot_be_measured_are_refused(names: list[str], groups: int, told: str) -> None:
    with pytest.raises(UserError, match=told):
        objectives_of(names, groups)


def test_scales_know_the_number_of_answers_and_own_objectives_pass() -> None:
    own = gated(5)
    assert [o.high for o in objectives_of(["vendi", own, "quality"], 4)] == [4, 4, 10]
