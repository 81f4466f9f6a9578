"""Solutions that people have labelled, to tell how far a judge agrees with them.

The labels of MacGyver are on two scales of three steps each, which become the scores 0, 1 and 2: a solution to a
problem that has one is infeasible, inefficient or efficient, and an answer on a problem that has none is wrong,
right for a wrong reason, or right. ``none`` was given where a solvable problem was declared unsolvable; it has no
place on either scale and no score. Labels that are numbers are their own scores.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from salon.errors import UserError

from .formats import column_key
from .tables import Table, read_file

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LABELS", "load_labels"]

LABELS: dict[str, float | None] = {
    "infeasible": 0.0,
    "inefficient": 1.0,
    "efficient": 2.0,
    "wrong_solution": 0.0,
    "correct_wrong_reason": 1.0,
    "correct_right_reason": 2.0,
    "none": None,
}
"""The score of each label of MacGyver."""

_BREAK = re.compile(r"[ \t]*<br\s*/?>[ \t]*\n?", re.IGNORECASE)
_COLUMNS = {"id": ("id",), "task": ("problem", "task"), "solution": ("solution", "answer"), "label": ("label",)}
_SOLVABLE = ("solvable?", "solvable")


def load_labels(path: str | Path, scores: Mapping[str, float | None] = LABELS) -> pd.DataFrame:
    """Read labelled solutions, in the format of MacGyver's ``problem_solution_pair.xlsx`` or in any other.

    Args:
        path: A table with the columns ``Problem`` (or ``task``), ``Solution`` and ``Label``, and with ``ID`` and
            ``Solvable?`` if they are known.
        scores: The score of each label that is no number.

    Returns:
        A row for each solution: id, task as `salon.data.load_benchmark` has it, solution, label, score (missing
        where the label has none) and solvable (missing where it is not known).

    Raises:
        UserError: If the file cannot be read, lacks a column or a cell, or has a label of no known score.
    """
    import pandas as pd

    table = read_file(path, [name for names in _COLUMNS.values() for name in names])
    columns = {field: table.column(names, field) for field, names in _COLUMNS.items() if field != "id"}
    known = {column_key(label): score for label, score in scores.items()}
    ids, solvable = table.find(_COLUMNS["id"]), table.find(_SOLVABLE)
    rows = []
    for number, row in enumerate(table.rows, 1):
        cells = {field: row[column].strip() for field, column in columns.items()}
        for field, cell in cells.items():
            if not cell:
                raise _trouble(table, number, f"it has no {field}", "Fill it in, or remove the row.")
        score = _score(table, number, cells["label"], known)
        told = {"yes": True, "no": False}.get(column_key(row[solvable])) if solvable else None
        solution = _BREAK.sub("\n", cells["solution"])
        name = row[ids].strip() if ids else str(number)
        rows.append((name, cells["task"], solution, cells["label"], score, told))
    frame = pd.DataFrame(rows, columns=["id", "task", "solution", "label", "score", "solvable"])
    return frame.astype({"score": "float64", "solvable": "boolean"})


def _score(table: Table, number: int, label: str, known: Mapping[str, float | None]) -> float | None:
    if column_key(label) in known:
        return known[column_key(label)]
    try:
        score = float(label)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        todo = f"Labels are numbers, or one of {', '.join(known)}."
        raise _trouble(table, number, f"the label {label[:60]!r} has no score", todo)
    return score


def _trouble(table: Table, number: int, why: str, todo: str) -> UserError:
    return UserError(f"{table.source.place}, row {number}", why, todo)
