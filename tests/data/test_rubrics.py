"""Rubrics: those that come with salon, and files of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from salon.data import RUBRICS, Dimension, Rubric, load_rubric

from salon.errors import UserError

OWN = Rubric("meals", (Dimension("taste", "how good it is"), Dimension("effort", "how little work it is", False)))
DIMENSIONS: list[Any] = [
    {"taste": "how  good\nit is", "effort": {"description": "how little work it is", "scored": False}},
    [
        {"name": "taste", "description": "how good it is"},
        {"name": " effort ", "description": "how little work it is", "scored": False},
    ],
]


def test_the_rubrics_of_the_benchmarks() -> None:
    names = {name: [d.name for d in rubric.scored] for name, rubric in RUBRICS.items()}
    assert names == {
        "ideas": ["originality", "feasibility", "clarity", "relevance"],
        "liveideabench": ["originality", "feasibility", "clarity"],
        "macgyver": ["out-of-the-box thinking", "practical feasibility", "use of the constraints"],
        "argument-topics": ["persuasiveness", "novelty", "logical coherence"],
        "creative-writing": ["creativity", "relevance", "language quality"],
    }
    beside = [d.name for d in RUBRICS["liveideabench"].dimensions if not d.scored]
    assert beside == ["relevance"]
    for name, rubric in RUBRICS.items():
        assert load_rubric(name) is rubric
        assert rubric.name == name
        assert all("\n" not in d.description and len(d.description) > 20 for d in rubric.dimensions)


@pytest.mark.parametrize("dimensions", DIMENSIONS)
@pytest.mark.parametrize("ending", [".json", ".yaml", ".YML"])
def test_a_rubric_of_ones_own(dimensions: Any, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"file{ending}"
    path.write_text("\ufeff" + json.dumps({"name": "meals", "dimensions": dimensions}), encoding="utf-8")
    assert load_rubric(path) == load_rubric(str(path)) == OWN
    path.write_text(json.dumps({"dimensions": dimensions}))
    assert load_rubric(path).name == "file"


def test_a_rubric_in_any_script(tmp_path: Path) -> None:
    (tmp_path / "eigen.yaml").write_text(
        "name: 料理\ndimensions:\n  味: どれほど美味しいか\n  käse: wie reif\n", encoding="utf-8"
    )
    rubric = load_rubric(tmp_path / "eigen.yaml")
    assert [rubric.name, *(d.name for d in rubric.dimensions)] == ["料理", "味", "käse"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "no dimensions"), ("[]", "no dimensions"), ("{}", "no dimensions"), ("dimensions: 3", "no dimensions"),
        ("{", "it is not"), ("dimensions: []", "no scored dimension"), ("dimensions: [a]", "no description"),
        ("dimensions: {a: ' '}", "lacks a description"), ("dimensions: {' ': x}", "lacks a name"),
        ("dimensions: {a: 3}", "not a text"), ("dimensions: {1: x}", "not a text"),
        ("dimensions: {A: x, a: y}", "there twice"),
        ("dimensions: {a: {description: x, scored: maybe}}", "scored true"),
        ("dimensions: {a: {description: x, scored: false}}", "no scored dimension"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_rubric(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "rubric.yaml").write_text(content)
    with pytest.raises(UserError, match=told) as caught:
        load_rubric(tmp_path / "rubric.yaml")
    assert "\n" not in str(caught.value)


def test_rubrics_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no rubric 'tase'.*ideas, liveideabench, macgyver"):
        load_rubric("tase")
    with pytest.raises(UserError, match="cannot be read"):
        load_rubric(tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes(b'{"name": "\xe9"}')
    with pytest.raises(UserError, match="is not JSON"):
        load_rubric(tmp_path / "latin.json")
    with pytest.raises(UserError, match="no scored dimension"):
        Rubric("empty", ())
