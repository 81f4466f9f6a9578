"""Benchmarks: what each recipe makes of a table of the shape that the original has."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
from salon.data import RUBRICS, Benchmark, load_benchmark
from salon.data.splits import normalised

import salon
from salon.errors import UserError

PROBLEMS = [
    (541, " Open a jar with a spoon.", "Yes", "unconventional", "Tap.", "efficient"),
    (542, "Light a fire under water.", "No", None, "No.", "correct_right_reason"),
    (543, "Find north with a leaf.", "yes", "conventional", "Float it.", "infeasible"),
]
CREATIVE = [
    {
        "uid": "a1",
        "category": "creative_writing",
        "subcategory": "creative_writing",
        "prompt": "Write a rap.\n\nShort.",
    },
    {"uid": "b2", "category": "hard_prompt", "subcategory": "coding", "prompt": "Sort a list."},
    {"uid": "c3", "category": "creative_writing", "subcategory": "creative_writing", "prompt": "写一首诗"},
]


def saved(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def texts(benchmark: Benchmark) -> list[str]:
    return [task.text for task in benchmark.tasks]


# ---------------------------------------------------------------- the recipes


def test_topics_come_with_the_package() -> None:
    benchmark = load_benchmark("topics")
    assert Counter(task.extra["area"] for task in benchmark.tasks) == dict.fromkeys(
        ("product", "science", "society", "writing", "tools"), 12
    )
    assert len({normalised(text) for text in texts(benchmark)}) == len(benchmark) == 60
    assert all(20 < len(text) < 200 and text.isascii() for text in texts(benchmark))
    assert benchmark.rubric is RUBRICS["ideas"]
    assert benchmark.licence == "MIT"
    assert benchmark.source.place == "topics.csv"
    assert [len(benchmark.split(name)) for name in ("train", "validation", "test")] == [34, 13, 13]


def test_no_two_topics_are_nearly_the_same() -> None:
    words = [set(normalised(text).split()) for text in texts(load_benchmark("topics"))]
    alike = [len(a & b) / len(a | b) for n, a in enumerate(words) for b in words[:n]]
    assert max(alike) < 0.5


@pytest.mark.parametrize("header", [",Keyword", "keywords,category"])
def test_liveideabench(header: str, tmp_path: Path) -> None:
    rows = ["0,meteorology", "1,periodic table"] if header.startswith(",") else ["meteorology,x", "periodic table,y"]
    repeated = [*rows, rows[0].replace("meteorology", " METEOROLOGY ")]
    benchmark = load_benchmark("liveideabench", saved(tmp_path, "keywords.csv", "\n".join([header, *repeated])))
    assert [task.source for task in benchmark.tasks] == ["meteorology", "periodic table"]
    for task in benchmark.tasks:
        assert task.source in task.text
        assert "at most 100 words" in task.text
        assert len(task.id) == 16
    assert benchmark.counts == (3, 0, 0, 1)
    assert benchmark.rubric is RUBRICS["liveideabench"]
    assert benchmark.licence == "MIT"


def test_macgyver(tmp_path: Path) -> None:
    path = tmp_path / "pairs.xlsx"
    header = ["ID", "Problem", "Solvable?", "Unconventional?", "Solution", "Label"]
    pd.DataFrame(PROBLEMS, columns=header).to_excel(path, index=False)
    benchmark = load_benchmark("macgyver", path)
    assert [(task.id, task.text) for task in benchmark.tasks] == [
        ("541", "Open a jar with a spoon."), ("543", "Find north with a leaf."),
    ]  # fmt: skip
    assert benchmark.counts == (3, 0, 1, 0)
    assert len(load_benchmark("macgyver", path, unsolvable=True)) == 3
    assert load_benchmark("macgyver", path, unsolvable=True).tasks[1].extra["Unconventional?"] == ""
    assert benchmark.licence == "Apache-2.0"
    assert benchmark.rubric is RUBRICS["macgyver"]


def test_argument_topics(tmp_path: Path) -> None:
    path = saved(
        tmp_path, "prompts.csv", "ESSAY;PROMPT\ne1.txt;Should  cities ban cars?\ne2.txt;Is tea, or coffee, best?\n"
    )
    benchmark = load_benchmark("argument-topics", path)
    assert [task.source for task in benchmark.tasks] == ["Should  cities ban cars?", "Is tea, or coffee, best?"]
    assert "Should cities ban cars?" in benchmark.tasks[0].text
    assert "at most 100 words" in benchmark.tasks[0].text
    assert "publisher" in benchmark.licence


def test_arena_hard_creative(tmp_path: Path) -> None:
    path = saved(tmp_path, "creative.jsonl", "\n".join(map(json.dumps, CREATIVE)))
    benchmark = load_benchmark("arena-hard-creative", path)
    assert [(task.id, task.text) for task in benchmark.tasks] == [("a1", "Write a rap.\n\nShort."), ("c3", "写一首诗")]
    assert benchmark.counts == (3, 0, 1, 0)
    assert benchmark.rubric is RUBRICS["creative-writing"]


def test_the_hub_is_the_home_of_what_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def load(repo: str, **options: Any) -> datasets.DatasetDict:
        asked.append({"repo": repo, **options})
        rows = [{"keywords": "ice", "idea": "x"}] * 3 if "live" in repo else CREATIVE
        return datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)})

    monkeypatch.setattr(datasets, "load_dataset", load)
    benchmark = load_benchmark("arena-hard-creative")
    assert texts(benchmark) == ["Write a rap.\n\nShort.", "写一首诗"]
    assert len(benchmark.source.revision) == 40
    live = load_benchmark("liveideabench", f"hub:6cf/liveideabench@{'0' * 40}")
    assert live.counts == (3, 0, 0, 2)
    assert live.tasks[0].extra == {}
    own = load_benchmark(f"hub:some/set/config@{'1' * 40}", task_column="uid")
    assert (own.name, texts(own)) == ("config", ["a1", "b2", "c3"])
    assert asked[0]["data_files"] == "data/arena-hard-v2.0/question.jsonl"
    assert asked[1] == {"repo": "6cf/liveideabench", "revision": "0" * 40, "name": None}


def test_what_is_not_to_be_had() -> None:
    with pytest.raises(UserError, match=r"arena-hard-auto.*cannot be loaded.*a local file of it with data"):
        load_benchmark("arena-hard-creative")
    for name in ("liveideabench", "macgyver", "argument-topics"):
        with pytest.raises(UserError, match=rf"{name} needs a file: no revision.*a FILE, or hub:"):
            load_benchmark(name)


# ---------------------------------------------------------------- tasks of one's own


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = saved(tmp_path, "mine.csv", "id,prompt,split\n7,Bake bread.,dev\n,Grow rice.,\n")
    benchmark = load_benchmark(path, licence="CC0")
    assert (benchmark.name, benchmark.licence, benchmark.rubric) == ("mine", "CC0", RUBRICS["ideas"])
    assert benchmark.tasks[0].id == "7"
    assert len(benchmark.tasks[1].id) == 16
    frame = benchmark.to_frame()
    assert list(frame.columns) == ["id", "task", "split", "source", "extra split"]
    assert frame["extra split"].tolist() == ["dev", ""]
    assert load_benchmark(str(path), task_column="SPLIT").counts == (2, 1, 0, 0)
    assert load_benchmark(path).licence == "not stated"


def test_a_rubric_of_ones_own(tmp_path: Path) -> None:
    path = saved(tmp_path, "mine.csv", "task\nBake bread.\n")
    rubric = saved(tmp_path, "rubric.yaml", "dimensions: {taste: how good it is}")
    assert load_benchmark(path, rubric="macgyver").rubric is RUBRICS["macgyver"]
    own = load_benchmark(path, rubric=rubric)
    assert own.rubric.dimensions[0].name == "taste"
    assert load_benchmark(path, rubric=own.rubric).rubric is own.rubric
    assert own.fingerprint != load_benchmark(path).fingerprint


def test_blank_and_repeated_rows_are_counted(tmp_path: Path) -> None:
    rows = [{"task": "Bake  bread."}, {"task": None, "n": 1}, {"task": float("nan"), "n": 2}, {"task": " bake BREAD. "}]
    path = saved(tmp_path, "mine.json", json.dumps([*rows, {"task": "\u3000", "n": 3}, {}]))
    benchmark = load_benchmark(path)
    assert texts(benchmark) == ["Bake  bread."]
    assert benchmark.counts == (5, 3, 0, 1)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("name,text\na,b\n", "no column 'task' or 'prompt' or 'topic' for the tasks, only 'name', 'text'"),
        ("task,n\n,1\n", "has no tasks: of 1 rows 1 have no task"),
        ("id,task\n1,a\n1,b\n", "two of its tasks have the id '1'"),
        ("", "is empty"),
        ("task\n", "has no rows"),
    ],
)
def test_what_is_wrong_is_told(content: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told) as caught:
        load_benchmark(saved(tmp_path, "mine.csv", content))
    assert "\n" not in str(caught.value)


def test_mistakes_of_the_caller(tmp_path: Path) -> None:
    path = saved(tmp_path, "mine.csv", "task\nBake bread.\n")
    with pytest.raises(UserError, match=r"no benchmark 'topic'.*topics, liveideabench, macgyver.*path of a file"):
        load_benchmark("topic")
    for name in (tmp_path, "long " * 5000, ""):
        with pytest.raises(UserError, match="no benchmark"):
            load_benchmark(name)
    with pytest.raises(UserError, match="no benchmark"):
        load_benchmark(path, data=path)
    with pytest.raises(UserError, match="There is no file"):
        load_benchmark("none.csv")
    with pytest.raises(UserError, match=r"no split 'dev'.*train, validation, test"):
        load_benchmark(path, split="dev")
    with pytest.raises(UserError, match="no unsolvable problems"):
        load_benchmark(path, unsolvable=True)
    with pytest.raises(UserError, match="leaves no task"):
        load_benchmark(path, limit=0)
    with pytest.raises(UserError, match="no column 'nope' for the tasks, only 'task'"):
        load_benchmark(path, task_column="nope")
    with pytest.raises(UserError, match="no column 'solvable"):
        load_benchmark("macgyver", path, task_column="task")
    part = load_benchmark(path).tasks[0].split
    (other, *_) = {"train", "validation", "test"} - {part}
    with pytest.raises(UserError, match=f"has no tasks for {other}"):
        load_benchmark(path, split=other)


# ---------------------------------------------------------------- what a benchmark gives


def test_samples_are_drawn_by_the_seed() -> None:
    whole = load_benchmark("topics")
    drawn = load_benchmark("topics", limit=10, seed=1)
    assert texts(drawn) == texts(whole.sample(10, 1)) != texts(whole.sample(10, 2))
    assert [text for text in texts(whole) if text in texts(drawn)] == texts(drawn)
    assert set(texts(drawn)) < set(texts(whole.sample(11, 1)))
    assert whole.sample(1000) == whole
    assert drawn.fingerprint not in (whole.fingerprint, whole.sample(10, 2).fingerprint)
    inside = load_benchmark("topics", split="train", limit=5)
    assert {task.split for task in inside.tasks} == {"train"}


def test_examples_frame_and_data_set() -> None:
    benchmark = load_benchmark("topics", limit=5)
    examples = benchmark.examples()
    assert [example.task for example in examples] == texts(benchmark)
    assert examples[0].inputs().keys() == ["task"]
    assert examples[0].extra["area"] == benchmark.tasks[0].extra["area"]
    frame = benchmark.to_frame()
    assert frame["task"].tolist() == texts(benchmark)
    assert list(frame.columns) == ["id", "task", "split", "source", "area"]
    assert benchmark.to_dataset().to_list() == frame.to_dict("records")


def test_benchmarks_are_values() -> None:
    benchmark = load_benchmark("topics", limit=5)
    again = pickle.loads(pickle.dumps(benchmark))
    assert again == benchmark
    assert again.fingerprint == benchmark.fingerprint == load_benchmark("topics", limit=5).fingerprint
    assert len({*benchmark.tasks, *again.tasks}) == 5
    with pytest.raises(AttributeError):
        benchmark.name = "other"  # type: ignore[misc]


def test_the_front_door_has_it_and_costs_nothing() -> None:
    assert salon.load_benchmark is load_benchmark
    assert "load_benchmark" in salon.__all__
    assert all(hasattr(salon.data, name) for name in salon.data.__all__)
    code = (
        "import sys, salon; salon.load_benchmark\n"
        "assert not {'datasets', 'pandas', 'pyarrow', 'openpyxl', 'torch'} & set(sys.modules)\n"
        "salon.load_benchmark('topics'); assert not {'datasets', 'openpyxl', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
