"""Splits: for ever the same, and nothing but the words decides."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from salon.data import load_benchmark, split_of
from salon.data.splits import normalised, rank_of

CASED = "abcdefghijklmnopqrstuvwxyzäöüéñçøšžαβγδεζηθικλμνξοπρτυφχψωабвгдежзийклмнопрстуфхцчшщъыьэюя"  # no final sigma
PINNED = {
    "meteorology": "train",
    "periodic table": "train",
    "genetics": "test",
    "Should cities ban cars?": "validation",
    "": "train",
    "氷の彫刻について書いてください": "train",
    "Напиши стихотворение о чае": "train",
    "👓": "train",
    "one": "validation",
    "two": "train",
    "three": "train",
}


@pytest.mark.parametrize(("text", "part"), PINNED.items())
def test_splits_never_change(text: str, part: str) -> None:
    assert split_of(text) == part


def test_the_hash_never_changes() -> None:
    assert rank_of("Meteorology", "salt") == rank_of(" meteorology\n", "salt") == 10534368219816238204
    assert rank_of("meteorology", "other salt") != rank_of("meteorology", "salt")


@given(st.text(CASED + " \t\n-.,0123456789", max_size=60))
def test_case_and_white_space_do_not_matter(text: str) -> None:
    same = [text.upper(), text.title(), text.swapcase(), f"\n {text}\t", text.replace(" ", " \u3000\u00a0 ")]
    assert {split_of(one) for one in same} == {split_of(text)}


@given(st.text(max_size=60))
def test_compatible_characters_are_the_same(text: str) -> None:
    assert normalised(normalised(text)) == normalised(text)
    assert split_of(normalised(text)) == split_of(text)
    assert normalised("ﬁｎｅ  ①") == "fine 1"


@given(st.lists(st.text(min_size=1, max_size=20), unique_by=normalised, min_size=1, max_size=20), st.randoms())
def test_neither_order_nor_company_moves_a_text(texts: list[str], chance: random.Random) -> None:
    alone = {text: split_of(text) for text in texts}
    chance.shuffle(texts)
    assert {text: split_of(text) for text in texts[: len(texts) // 2 + 1]}.items() <= alone.items()


def test_order_of_a_file_moves_nothing(tmp_path: Path) -> None:
    tasks = [f"Task number {n}" for n in range(60)]
    parts: list[dict[str, set[str]]] = []
    prints = set()
    for seed in range(3):
        random.Random(seed).shuffle(tasks)
        (tmp_path / "tasks.csv").write_text("\n".join(["task", *tasks]))
        whole = load_benchmark(tmp_path / "tasks.csv")
        parts.append(
            {name: {task.text for task in whole.split(name).tasks} for name in ("train", "validation", "test")}
        )
        prints.add(whole.fingerprint)
        parts[-1]["drawn"] = {task.text for task in whole.sample(7, seed=3).tasks}
    assert parts[0] == parts[1] == parts[2]
    assert len(prints) == 1
    assert set.union(*(parts[0][name] for name in ("train", "validation", "test"))) == set(tasks)


def test_parts_have_their_sizes() -> None:
    counts = Counter(split_of(f"text {n}") for n in range(5000))
    assert abs(counts["train"] - 3000) < 150
    assert abs(counts["validation"] - 1000) < 120
    assert abs(counts["test"] - 1000) < 120


def test_another_process_draws_the_same() -> None:
    code = "import salon; print([t.id for t in salon.load_benchmark('topics', split='test', limit=4, seed=9).tasks])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    here = load_benchmark("topics", split="test", limit=4, seed=9)
    assert told.strip() == str([task.id for task in here.tasks])
