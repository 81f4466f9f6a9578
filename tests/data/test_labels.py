"""Labelled solutions: columns, scores, and texts that fit the tasks of the benchmark."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest
from salon.data import load_benchmark, load_labels

from salon.errors import UserError

HEADER = ["ID", "Problem", "Solvable?", "Unconventional?", "Solution", "Label"]
ROWS = [
    [541, " Open the jar with a spoon.", "Yes", "unconventional", "Step1: Tap. <br>\nStep2: Twist.<br>", "efficient"],
    [7, "Light a fire under water.", "No", None, "It is not possible.", "correct_right_reason"],
    [8, "Fly home with a kite.", "No", None, "Run<BR/>jump", "wrong_solution"],
    [9, "Cool a can with sand.", "Yes", "conventional", "It is not possible.", "none"],
    [10, "Find north with a leaf.", "Yes", "conventional", "Let it float.", "inefficient"],
]


@pytest.fixture
def workbook(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.xlsx"
    pd.DataFrame(ROWS, columns=HEADER).to_excel(path, index=False)
    return path


def test_the_original_format(workbook: Path) -> None:
    frame = load_labels(workbook)
    assert list(frame.columns) == ["id", "task", "solution", "label", "score", "solvable"]
    assert list(frame["id"]) == ["541", "7", "8", "9", "10"]
    assert list(frame["score"].dropna()) == [2.0, 2.0, 0.0, 1.0]
    assert frame["score"].isna().tolist() == [False, False, False, True, False]
    assert frame["solvable"].tolist() == [True, False, False, True, True]
    assert frame["solution"].tolist()[:3] == ["Step1: Tap.\nStep2: Twist.\n", "It is not possible.", "Run\njump"]
    tasks = {task.id: task.text for task in load_benchmark("macgyver", workbook, unsolvable=True).tasks}
    assert dict(zip(frame["id"], frame["task"], strict=True)) == tasks


def test_numbers_and_labels_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("task,answer,label\nCook,Boil,4.5\nCook,Fry, GOOD\nBake,Toast,-1\n")
    frame = load_labels(path, scores={"good": 9})
    assert frame["score"].tolist() == [4.5, 9.0, -1.0]
    assert frame["id"].tolist() == ["1", "2", "3"]
    assert frame["solvable"].isna().all()


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([["a", "b"], ["x", "y"]], r"no column 'problem' or 'task' for the task, only 'a', 'b'"),
        ([["task", "solution"], ["x", "y"]], r"no column 'label'"),
        ([["task", "solution", "label"], ["x", "", "1"]], "row 1: it has no solution"),
        ([["task", "solution", "label"], ["x", "y", "1"], ["x", "y", "good"]], "row 2: the label 'good' has no score"),
        ([["task", "solution", "label"], ["x", "y", "nan"]], "the label 'nan' has no score"),
        ([["task", "solution", "label"], ["x", "y", "inf"]], "the label 'inf' has no score"),
        ([["task", "solution", "label"]], "has no rows"),
    ],
)
def test_what_is_wrong_is_told(rows: list[list[str]], told: str, tmp_path: Path) -> None:
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    with pytest.raises(UserError, match=told):
        load_labels(tmp_path / "labels.csv")
