"""What the formats of a table have in common once read: the names of the columns, and a mapping for each row.

Text is read as UTF-8, or as UTF-16 where it begins with a byte order mark. A CSV file may be delimited by commas,
semicolons, tabs or bars: the delimiter is the one under which its header has a column that is wanted, and the
most columns. The first row that is not blank is the header, of a workbook that of its first sheet.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["READERS", "Unreadable", "column_key", "keyed"]

_BLANK_LINES = re.compile(r"(?:[ \t]*(?:\r\n?|\n))*")
_DELIMITERS = ",;\t|"


class Unreadable(Exception):
    """What is wrong with the content of a file, and what to do about it."""

    def __init__(self, why: str, todo: str) -> None:
        super().__init__(why)
        self.todo = todo


def column_key(name: str) -> str:
    """Return what two spellings of a column's name have in common."""
    return " ".join(name.casefold().split())


def keyed(rows: Sequence[Any]) -> tuple[list[str], Sequence[Mapping[str, Any]]]:
    """Return rows that are objects with all the keys that they have."""
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise Unreadable(f"entry {number} is not an object", "Write an object for each row.")
    return list(dict.fromkeys(str(key) for row in rows for key in row)), rows


def _grid(rows: Sequence[Sequence[str]]) -> tuple[list[str], list[dict[str, str]]]:
    """Return rows under the first of them that is not blank; an unnamed column loses its cells."""
    start = next((n for n, row in enumerate(rows) if any(cell.strip() for cell in row)), len(rows))
    header = [" ".join(cell.split()) for cell in rows[start]] if start < len(rows) else []
    for name, count in Counter(map(column_key, filter(None, header))).items():
        if count > 1:
            raise Unreadable(f"the column {name[:60]!r} is there twice", "Rename or remove one of them.")
    return header, [dict(zip(header, row, strict=True)) for row in rows[start + 1 :]]


def _text(content: bytes) -> str:
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    if encoding != "utf-16" and b"\0" in content:
        raise Unreadable("it is not a text in UTF-8", "Name it by what it is, or convert it.")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Unreadable(f"line {line} is not {encoding[:6].upper()}", "Save it with the encoding UTF-8.") from error


def _csv(content: bytes, wanted: Sequence[str]) -> tuple[list[str], list[dict[str, str]]]:
    import pandas as pd

    text = _text(content)
    blank = _BLANK_LINES.match(text)
    skipped = blank[0] if blank else ""
    text = "\n" * len(skipped.splitlines()) + text[len(skipped) :]  # pandas skips them if nothing is in them
    keys = set(map(column_key, wanted))

    def records(delimiter: str, count: int | None = None) -> list[list[str]]:
        frame = pd.read_csv(
            io.StringIO(text, newline=""), sep=delimiter, header=None, nrows=count, dtype=str,
            na_filter=False, skipinitialspace=True, engine="c",
        )  # fmt: skip
        return [[cell if isinstance(cell, str) else "" for cell in row] for row in frame.itertuples(index=False)]

    def fit(delimiter: str) -> tuple[bool, int]:
        try:
            header = records(delimiter, 1)[0]
        except (pd.errors.ParserError, pd.errors.EmptyDataError, IndexError):
            return False, 0
        return not keys.isdisjoint(map(column_key, header)), len(header)

    try:
        return _grid(records(max(_DELIMITERS, key=fit)))
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        todo = 'Put cells that hold a delimiter in quotes ("..."), and close all quotes.'
        raise Unreadable(f"it is not well-formed ({error})", todo) from error


def _json(content: bytes, wanted: Sequence[str]) -> tuple[list[str], Sequence[Mapping[str, Any]]]:
    try:
        whole = json.loads(_text(content))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not JSON ({error})", "Mend it there, or name it by what it is.") from error
    if isinstance(whole, Mapping):
        lists = [value for value in whole.values() if isinstance(value, list)]
        whole = lists[0] if len(lists) == 1 else None
    if not isinstance(whole, list):
        raise Unreadable("there is no one list in it", "Write a list of objects, or an object with such a list.")
    return keyed(whole)


def _jsonl(content: bytes, wanted: Sequence[str]) -> tuple[list[str], Sequence[Mapping[str, Any]]]:
    rows = []
    for number, line in enumerate(_text(content).split("\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                todo = "Write one object on each line, or name it by what it is."
                raise Unreadable(f"line {number} is not JSON ({error})", todo) from error
    return keyed(rows)


def _parquet(content: bytes, wanted: Sequence[str]) -> tuple[list[str], Sequence[Mapping[str, Any]]]:
    from pyarrow import ArrowException, parquet  # type: ignore[import-untyped]

    try:
        return keyed(parquet.read_table(io.BytesIO(content)).to_pylist())
    except (ArrowException, OSError, ValueError) as error:
        raise Unreadable(f"it is not Parquet ({error})", "Name it by what it is, or write it anew.") from error


def _xlsx(content: bytes, wanted: Sequence[str]) -> tuple[list[str], list[dict[str, str]]]:
    import pandas as pd

    try:
        frame = pd.read_excel(io.BytesIO(content), header=None, dtype=str, na_filter=False, engine="openpyxl")
    except Exception as error:  # a damaged workbook fails in many ways, in the archive, its XML and its relations
        raise Unreadable(f"it is not a workbook ({error})", "Name it by what it is, or save it anew.") from error
    return _grid([list(row) for row in frame.itertuples(index=False)])


_Reader = Callable[[bytes, Sequence[str]], tuple[Sequence[str], Sequence[Mapping[str, Any]]]]
READERS: dict[str, _Reader] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".json": _json,
    ".jsonl": _jsonl,
    ".parquet": _parquet,
    ".xlsx": _xlsx,
}
