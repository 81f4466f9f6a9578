"""Benchmarks: tasks for a session, the rubric that its ideas are judged by, and where the tasks come from.

Each benchmark is a recipe: which columns of a table make a task, in which words, and which rows count. The same
recipe reads the original file of a benchmark, a copy in another format and the data set on the hub. A benchmark
of one's own is a table with a column of tasks, judged by the rubric ``ideas`` unless another is given.

| name | tasks | rubric | read from |
|---|---|---|---|
| ``topics`` | 60 topics over product, science, society, writing and constrained tool use | ``ideas`` | this package |
| ``liveideabench`` | an idea for a keyword of science (MIT) | ``liveideabench`` | ``data=FILE`` |
| ``macgyver`` | a problem to be solved with the things at hand (Apache-2.0) | ``macgyver`` | ``data=FILE`` |
| ``argument-topics`` | a case for one side of a topic | ``argument-topics`` | ``data=FILE`` |
| ``arena-hard-creative`` | a request for creative writing (Apache-2.0) | ``creative-writing`` | the hub, or ``data`` |

Where a benchmark is on the hub at a revision that is known to hold it, it is loaded from there at that revision;
otherwise a file must be given, or a data set on the hub with its revision (see `salon.data.tables`).

Rows without a task are counted and left out, and so are rows whose task another row has had before, in whatever
case and spacing. The part of a task (training, validation, test) follows from the text that the data set itself
has, so our own words around a keyword may change without moving a task.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from salon.errors import UserError

from .formats import column_key
from .recipes import OWN, RECIPES, Recipe
from .rubrics import RUBRICS, Rubric, load_rubric
from .splits import SPLITS, Split, normalised, rank_of, split_of
from .tables import HUB, Source, Table, read_file, read_hub

if TYPE_CHECKING:
    import datasets
    import dspy
    import pandas as pd

__all__ = ["Benchmark", "Counts", "Task", "load_benchmark", "tasks_digest"]


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        id: The name that the data set gives it, or the start of a hash of its text.
        text: What a session is asked.
        source: The text of the data set that it was made from, by which its part is told.
        extra: What else the data set has on it, as texts by column.
    """

    id: str
    text: str
    source: str
    extra: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def split(self) -> Split:
        """The part it belongs to."""
        return split_of(self.source)


def tasks_digest(tasks: Sequence[Task]) -> str:
    """Return a hash of tasks, ids and texts in their order."""
    return hashlib.sha256(json.dumps([[task.id, task.text] for task in tasks]).encode()).hexdigest()[:16]


class Counts(NamedTuple):
    """What became of the rows of a table: those that are neither blank, excluded nor duplicates are tasks."""

    rows: int
    blank: int
    excluded: int
    duplicates: int


@dataclass(frozen=True)
class Benchmark:
    """Tasks that are judged by one rubric.

    Attributes:
        name: The name it was loaded by, or that of its file.
        tasks: The tasks, in the order of the table.
        rubric: What answers are judged by.
        licence: The licence of the data.
        source: Where the tasks come from.
        counts: What became of the rows of the table.
    """

    name: str
    tasks: tuple[Task, ...] = field(repr=False)
    rubric: Rubric
    licence: str
    source: Source
    counts: Counts

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def fingerprint(self) -> str:
        """A hash of the tasks and the rubric; the order of the tasks does not matter."""
        content = [sorted([task.id, task.text] for task in self.tasks), asdict(self.rubric)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def split(self, name: str) -> Benchmark:
        """Return the tasks of one part: ``train``, ``validation`` or ``test``.

        Raises:
            UserError: If there is no such part, or no task is in it.
        """
        if name not in SPLITS:
            raise UserError(f"There is no split {name!r}", todo=f"Give one of {', '.join(SPLITS)}.")
        tasks = tuple(task for task in self.tasks if task.split == name)
        if not tasks:
            why = f"a hash of each text decides, and none of its {len(self.tasks)} falls there"
            raise UserError(f"{self.name} has no tasks for {name}", why, "Use all tasks, or give more.")
        return replace(self, tasks=tasks)

    def sample(self, limit: int, seed: int = 0) -> Benchmark:
        """Return at most so many tasks, drawn by the seed; the order of the table does not change which.

        Raises:
            UserError: If the limit is less than 1.
        """
        if limit < 1:
            raise UserError(f"A limit of {limit} leaves no task", todo="Give a limit of 1 or more.")
        ranked = sorted(self.tasks, key=lambda task: rank_of(task.source, f"salon sample {seed}"))
        drawn = {task.id for task in ranked[:limit]}
        return replace(self, tasks=tuple(task for task in self.tasks if task.id in drawn))

    def examples(self) -> list[dspy.Example]:
        """Return the tasks as examples with the input ``task``, and with ``id``, ``split`` and ``extra`` beside it."""
        import dspy

        fields = ({"task": t.text, "id": t.id, "split": t.split, "extra": dict(t.extra)} for t in self.tasks)
        return [dspy.Example(**values).with_inputs("task") for values in fields]

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each task: id, task, split, source, and its extra columns, where those are free names."""
        import pandas as pd

        own = ("id", "task", "split", "source")
        extra = dict.fromkeys(column for task in self.tasks for column in task.extra)
        columns = {column: f"extra {column}" if column in own else column for column in extra}
        rows = [
            (task.id, task.text, task.split, task.source, *(task.extra.get(column, "") for column in columns))
            for task in self.tasks
        ]
        return pd.DataFrame(rows, columns=[*own, *columns.values()], dtype=object)

    def to_dataset(self) -> datasets.Dataset:
        """Return the rows of `to_frame` as a data set."""
        import datasets

        return datasets.Dataset.from_dict(self.to_frame().to_dict("list"))


def load_benchmark(
    name_or_path: str | Path,
    data: str | Path | None = None,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    *,
    task_column: str | None = None,
    rubric: Rubric | str | Path | None = None,
    licence: str | None = None,
    unsolvable: bool = False,
) -> Benchmark:
    """Load a benchmark.

    Args:
        name_or_path: A name from the table above, or tasks of one's own: the path of a CSV, TSV, JSON, JSONL,
            Parquet or XLSX file, or ``hub:OWNER/NAME@REVISION``.
        data: For a named benchmark, the file or the data set on the hub to read it from.
        split: ``train``, ``validation`` or ``test``; all tasks if not given.
        limit: How many tasks to draw at most.
        seed: What the draw depends on.
        task_column: The column of the tasks. If not given, the one that the benchmark's own file has; for tasks
            of one's own ``task``, ``prompt`` or ``topic``.
        rubric: A rubric, the name of one that comes with salon, or its JSON or YAML file.
        licence: The licence to record, where it is not the benchmark's own.
        unsolvable: Whether the problems of ``macgyver`` that have no solution are included.

    Raises:
        UserError: If the data cannot be had, lack a column or hold no tasks; it tells what to do.
    """
    recipe = RECIPES.get(str(name_or_path), OWN)
    if unsolvable and recipe is not RECIPES["macgyver"]:
        raise UserError(f"{name_or_path} has no unsolvable problems", todo="Ask for them with macgyver alone.")
    table = _table(str(name_or_path), recipe, data, task_column)
    own = Path(table.source.place).stem if recipe is OWN else str(name_or_path)
    tasks, counts = _tasks(recipe, table, task_column, unsolvable)
    if not tasks:
        blank = f"of {counts.rows} rows {counts.blank} have no task and {counts.excluded} are left out"
        raise UserError(f"{table.source.place} has no tasks", blank, "Give a file with a task in each row.")
    judged = rubric if isinstance(rubric, Rubric) else load_rubric(rubric) if rubric else RUBRICS[recipe.rubric]
    benchmark = Benchmark(own, tasks, judged, licence or recipe.licence, table.source, counts)
    chosen = benchmark.split(split) if split is not None else benchmark
    return chosen.sample(limit, seed) if limit is not None else chosen


def _table(name: str, recipe: Recipe, data: str | Path | None, task_column: str | None) -> Table:
    """Read the table of a benchmark from where it is."""
    if recipe is OWN and data is not None:
        raise UserError(f"There is no benchmark {name!r}", "with data, a name is needed", _KNOWN)
    if recipe is OWN and not name.startswith(HUB) and not Path(name).suffix:
        raise UserError(
            f"There is no benchmark {name[:60]!r}", todo=f"{_KNOWN[:-1]}, or the path of a file with tasks."
        )
    place = name if recipe is OWN else recipe.home if data is None else data
    if place is None:
        why = f"no revision of {recipe.about} is known to hold it"
        raise UserError(f"{name} needs a file", why, "Give it with data (--data): a FILE, or hub:OWNER/NAME@REVISION.")
    wanted = [task_column] if task_column else list(recipe.columns)
    if str(place).startswith(HUB):
        needed = [*wanted, *recipe.ids, *recipe.conditions, *(recipe.keep or ())]
        return read_hub(str(place), None if recipe.keep is None else set(map(column_key, needed)))
    return read_file(place, wanted)


def _tasks(recipe: Recipe, table: Table, task_column: str | None, unsolvable: bool) -> tuple[tuple[Task, ...], Counts]:
    """Return the tasks of a table, and what became of its rows."""
    column = table.column([task_column] if task_column else recipe.columns, "tasks")
    conditions = {table.column([name], "selection"): value for name, value in recipe.conditions.items()}
    id_column = table.find(recipe.ids)
    tasks: dict[str, Task] = {}
    counted: Counter[str] = Counter()
    for row in table.rows:
        source = row[column].strip()
        if not source:
            counted["blank"] += 1
        elif not unsolvable and any(column_key(row[name]) != value for name, value in conditions.items()):
            counted["excluded"] += 1
        elif (key := normalised(source)) in tasks:
            counted["duplicates"] += 1
        else:
            named = row[id_column].strip() if id_column else ""
            extra = {name: value for name, value in row.items() if name not in (column, id_column)}
            tasks[key] = Task(named or f"{rank_of(source, 'salon id'):016x}", recipe.text(source), source, extra)
    twice = [name for name, count in Counter(task.id for task in tasks.values()).items() if count > 1]
    if twice:
        why = f"two of its tasks have the id {twice[0][:60]!r}"
        raise UserError(f"{table.source.place} cannot be used", why, "Give each task an id of its own, or none.")
    counts = Counts(len(table.rows), counted["blank"], counted["excluded"], counted["duplicates"])
    return tuple(tasks.values()), counts


_KNOWN = f"Give one of {', '.join(RECIPES)}."
