"""Reading a table from a file or from the hub: columns with names, and cells that are texts.

Files are CSV, TSV, JSON (a list of objects, alone or under one key), JSON lines, Parquet, and the first sheet of
a workbook (``.xlsx``). The ending says which; a file that is something else is refused.

On the hub a data set is named ``hub:OWNER/NAME@REVISION``, and its part ``hub:OWNER/NAME/PART@REVISION``, where
PART is a configuration or the path of one file in it. The revision is a whole commit hash, since a branch may
move. The rows of all its splits are read.

Every cell becomes a text as it is written; empty cells, nulls and NaN become the empty text, lists and objects
their JSON. Columns without a name, such as an index, are left out, and rows that are empty are skipped.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from salon.errors import UserError

from .formats import READERS, Unreadable, column_key, keyed

__all__ = ["ENDINGS", "HUB", "Source", "Table", "read_file", "read_hub"]

HUB = "hub:"
_REFERENCE = re.compile(r"hub:(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<part>[\w./-]+))?@(?P<revision>[0-9a-f]{40})")
ENDINGS = tuple(READERS)


@dataclass(frozen=True)
class Source:
    """Where the rows come from.

    Attributes:
        place: The name of the file, or the data set on the hub.
        revision: The commit on the hub; empty for a file.
        sha256: The hash of the file; empty for the hub.
    """

    place: str
    revision: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Table:
    """Rows that each have a text under every column."""

    source: Source
    columns: tuple[str, ...]
    rows: list[dict[str, str]]

    def find(self, names: Sequence[str]) -> str | None:
        """Return the first column that has one of the names; case and spaces do not matter."""
        by_key = {column_key(column): column for column in self.columns}
        return next((by_key[key] for key in map(column_key, names) if key in by_key), None)

    def column(self, names: Sequence[str], what: str) -> str:
        """Return the column of that name, or tell which columns there are."""
        found = self.find(names)
        if found is None:
            there = ", ".join(repr(column[:40]) for column in self.columns[:20]) or "none"
            wanted = " or ".join(repr(name) for name in names)
            why = f"there is no column {wanted} for the {what}, only {there}"
            todo = "Tell which column it is, or give another file."
            raise UserError(f"{self.source.place} cannot be used", why, todo)
        return found


def read_file(path: str | Path, wanted: Sequence[str] = ()) -> Table:
    """Read a table from a file.

    Args:
        path: The file.
        wanted: Names of columns by which the delimiter of a CSV file is told.

    Raises:
        UserError: If the file cannot be read, is not what its ending says, or holds no row.
    """
    file = Path(path).expanduser()
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        raise UserError(f"{path} cannot be read", f"its name does not end in {', '.join(ENDINGS)}", "Convert it.")
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise UserError(f"There is no file {path}", todo="Check the path.") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder", todo="Give the path of a file in it.") from None
    except (OSError, ValueError) as error:  # a ValueError for a path that no system could have
        raise UserError(f"{str(path)[:300]!r} cannot be read", getattr(error, "strerror", "") or str(error)) from error
    if not content.strip():
        raise UserError(f"{path} is empty", todo="Give a file with a header and a row for each task.")
    try:
        columns, rows = reader(content, wanted)
    except Unreadable as error:
        raise UserError(f"{path} cannot be read", " ".join(str(error).split())[:300], error.todo) from error
    return _table(Source(file.name, sha256=hashlib.sha256(content).hexdigest()), columns, rows)


def read_hub(reference: str, keep: Collection[str] | None = None) -> Table:
    """Read a table from the hub at a fixed revision, through ``datasets``.

    Args:
        reference: ``hub:OWNER/NAME@REVISION`` or ``hub:OWNER/NAME/PART@REVISION``.
        keep: Keys of the columns to read; all of them if not given.

    Raises:
        UserError: If the reference is not of this form, or the hub does not give the data.
    """
    parts = _REFERENCE.fullmatch(reference)
    if not parts:
        todo = "Write hub:OWNER/NAME@REVISION with the commit's 40 hexadecimal digits, as the hub's history shows it."
        raise UserError(f"{reference!r} is no data set at a fixed revision", todo=todo)
    repo, part, revision = parts["repo"], parts["part"], parts["revision"]
    one_file = part is not None and Path(part).suffix.lower() in ENDINGS
    chosen = {"data_files": part} if one_file else {"name": part}
    try:
        import datasets

        rows: list[Mapping[str, Any]] = []
        for data in datasets.load_dataset(repo, revision=revision, **chosen).values():
            columns = [column for column in data.column_names if keep is None or column_key(column) in keep]
            rows += data.select_columns(columns or data.column_names)
    except Exception as error:  # what is raised depends on the hub, the network and the kind of the files
        why = f"{type(error).__name__}: {error}"[:300]
        raise UserError(f"{reference} cannot be loaded", why, "Give a local file of it with data (--data).") from error
    return _table(Source(reference.split("@")[0], revision=revision), *keyed(rows))


def _table(source: Source, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Table:
    named = {column: " ".join(column.split()) for column in columns if column.strip()}
    counts = Counter(column_key(name) for name in named.values())
    for name in named.values():
        if counts[column_key(name)] > 1:
            todo = "Rename or remove one of them."
            raise UserError(f"{source.place} cannot be used", f"the column {name[:60]!r} is there twice", todo)
    cells = [{name: _cell(row.get(column)) for column, name in named.items()} for row in rows]
    filled = [row for row in cells if any(cell.strip() for cell in row.values())]
    if not filled:
        raise UserError(f"{source.place} has no rows", "nothing is in it but a header", "Add a row for each task.")
    return Table(source, tuple(named.values()), filled)


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    written = isinstance(value, bool | int | float | list | Mapping)
    text = json.dumps(value, ensure_ascii=False, default=str) if written else str(value)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
