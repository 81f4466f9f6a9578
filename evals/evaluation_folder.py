"""The folder of an evaluation as it is read: what was evaluated, and what the runner has written so far.

``evaluation.json`` says what was to be done; ``jobs.jsonl``, ``pairs.jsonl`` and ``similar.jsonl`` what is done.
Lines on methods, queries or runs that ``evaluation.json`` does not name, left by an earlier and larger evaluation
in the same folder, are counted and left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from salon.errors import LogError

from ..data.rubrics import Dimension, Rubric
from ..modules.budget import Usage
from ..modules.log import read_log
from .jobs import JOBS_NAME, JobRow, read_lines, read_rows
from .ledger import LEDGER_NAME
from .record import RECORD_NAME, read_record

__all__ = ["Evaluation", "Kept", "is_evaluation", "judge_usage", "kept_lines", "kept_rows"]

_NEEDED = {"benchmark", "methods", "seed", "runs", "groups", "threshold", "judge"}
_RATING = {"judge", "scores", "value", "how", "reason", "error"}
_AGAIN = "Run the evaluation again over this folder, or give another one."


@dataclass(frozen=True)
class Evaluation:
    """What was evaluated.

    Attributes:
        folder: Where it is.
        benchmark: Name of the benchmark.
        licence: Licence of its data.
        source: Where its tasks come from, as name and value.
        rubric: What answers are judged by.
        tasks: The text of each query, by its id, in order.
        methods: What is known of each method, by its name, in order.
        baseline: The method that others are tested against; empty for none.
        seed: Seed of the evaluation.
        runs: Runs of each method and query.
        size: Runs in a group whose diversity is measured.
        threshold: Quality that an answer must reach to count for gated diversity, 1 to 10.
        judges: Names of the judges' models; empty if answers were not judged.
        embedder: Name of the embedding model; None for the packaged one.
        told: The whole content of the file.
    """

    folder: Path
    benchmark: str
    licence: str
    source: Mapping[str, Any]
    rubric: Rubric
    tasks: Mapping[str, str]
    methods: Mapping[str, Any]
    baseline: str
    seed: int
    runs: int
    size: int
    threshold: float
    judges: tuple[str, ...]
    embedder: str | None
    told: Mapping[str, Any]

    @classmethod
    def read(cls, folder: str | Path) -> Evaluation:
        """Read ``evaluation.json``.

        Raises:
            OutputError: If there is none, or it cannot be opened.
            LogError: If it is damaged, or of another version.
        """
        content = read_record(Path(folder))
        path = Path(folder) / RECORD_NAME
        if lacking := _NEEDED - content.keys():
            raise LogError(f"{path} is damaged", f"it lacks {', '.join(sorted(lacking))}", _AGAIN)
        try:
            return _made(Path(folder), content)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise LogError(f"{path} is damaged", f"{type(error).__name__}: {error}", _AGAIN) from error

    @property
    def groups(self) -> int:
        """Whole groups of runs for each method and query."""
        return self.runs // self.size

    @property
    def leftover(self) -> int:
        """Runs of each method and query that fill no group."""
        return self.runs % self.size


def _made(folder: Path, content: Mapping[str, Any]) -> Evaluation:
    bench, judge = content["benchmark"], content["judge"] or {}
    rubric = bench["rubric"]
    dimensions = tuple(Dimension(d["name"], d["description"], bool(d["scored"])) for d in rubric["dimensions"])
    runs, size = int(content["runs"]), int(content["groups"])
    if runs < 1 or size < 1:
        raise ValueError(f"{runs} runs in groups of {size} are not possible")
    return Evaluation(
        folder=folder,
        benchmark=str(bench["name"]),
        licence=str(bench.get("licence") or ""),
        source=dict(bench.get("source") or {}),
        rubric=Rubric(str(rubric["name"]), dimensions),
        tasks={str(task["id"]): str(task["text"]) for task in bench["tasks"]},
        methods=dict(content["methods"]),
        baseline=str(content.get("baseline") or ""),
        seed=int(content["seed"]),
        runs=runs,
        size=size,
        threshold=float(content["threshold"]),
        judges=tuple(map(str, judge.get("models") or ())),
        embedder=content.get("embedder") or None,
        told=content,
    )


def is_evaluation(folder: str | Path) -> bool:
    """Say whether a folder holds an evaluation."""
    return (Path(folder) / RECORD_NAME).is_file()


@dataclass(frozen=True)
class Kept:
    """What counts of a file's lines, and how many name what the evaluation does not."""

    rows: list[Any]
    strange: int


def kept_rows(about: Evaluation) -> Kept:
    """Return the rows of the jobs that are done, in the order methods, queries, runs.

    Raises:
        LogError: If the file is damaged.
    """
    found = read_rows(about.folder)
    for number, row in enumerate(found.values(), 1):
        if not _sound(row):
            why = f"job {number} of them, {row.method} on {row.query}, has values that it cannot have"
            raise LogError(f"{about.folder / JOBS_NAME} is damaged", why, "Remove its line; the job is done again.")
    methods, tasks = _places(about.methods), _places(about.tasks)
    known = [r for r in found.values() if r.method in methods and r.query in tasks and 1 <= r.run <= about.runs]
    known.sort(key=lambda r: (methods[r.method], tasks[r.query], r.run))
    return Kept(known, len(found) - len(known))


def _sound(row: JobRow) -> bool:
    numbers = [row.run, row.calls, row.prompt_tokens, row.completion_tokens, row.seconds]
    numbers += [value for value in (row.usd, row.depth, row.absorption, row.balance) if value is not None]
    for rating in row.ratings:
        if not isinstance(rating, dict) or _RATING - rating.keys() or not isinstance(rating["scores"], dict):
            return False
        numbers += [value for value in (rating["value"], *rating["scores"].values()) if value is not None]
    texts = (row.method, row.query, row.answer, row.reason)
    return all(map(_finite, numbers)) and all(isinstance(text, str) for text in texts)


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _places(names: Collection[str]) -> dict[str, int]:
    return {name: at for at, name in enumerate(names)}


def kept_lines(about: Evaluation, name: str, key: Collection[str], numbers: Collection[str] = ()) -> Kept:
    """Return the lines of a file on queries and methods that the evaluation names, the last one of each key.

    Args:
        about: The evaluation.
        name: Name of the file.
        key: Fields that tell one line from another.
        numbers: Fields that hold a number or null.

    Raises:
        LogError: If a line is damaged.
    """
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    for number, line in enumerate(read_lines(about.folder / name), 1):
        lacking = [field for field in (*key, *numbers, "judge", "error") if field not in line]
        wrong = [field for field in numbers if line.get(field) is not None and not _finite(line[field])]
        if lacking or wrong:
            why = f"line {number} {'lacks' if lacking else 'has no number as'} {', '.join(lacking or wrong)}"
            raise LogError(f"{about.folder / name} is damaged", why, "Remove the line; it is done again.")
        last[tuple(json.dumps(line[field]) for field in key)] = line
    known = [line for line in last.values() if _named(about, line)]
    return Kept(known, len(last) - len(known))


def _named(about: Evaluation, line: Mapping[str, Any]) -> bool:
    """Say whether the evaluation names the query and all methods of a line."""
    held: dict[str, Collection[str]] = {"query": about.tasks, **dict.fromkeys(("method", "a", "b"), about.methods)}
    return all(isinstance(line[field], str) and line[field] in names for field, names in held.items() if field in line)


def judge_usage(about: Evaluation, rows: Iterable[JobRow]) -> Usage:
    """Return what the judges cost: rating answers, comparing methods, grading how alike answers are.

    Raises:
        LogError: If a judges' log is damaged.
    """
    total = Usage()
    for row in rows:
        unpriced = row.judge_calls if row.judge_usd is None else 0
        total.add(Usage(row.judge_calls, row.judge_tokens, 0, row.judge_usd or 0.0, unpriced))
    for ledger in sorted((about.folder / "judge").rglob(LEDGER_NAME)):
        total.add(read_log(ledger.parent, LEDGER_NAME).usage)
    return total
