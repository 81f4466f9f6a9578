"""Reading a pool of personas from a CSV, JSON or YAML file.

A pool is a table: a CSV file with a header, or a JSON or YAML list of objects, alone or under the key
``personas``. ``name`` and ``sketch`` are needed and ``role`` is read; every other column is kept as text.
Column names are told apart without regard to case and spaces, and ``description`` or ``bio`` stands for the
sketch where no column is called that. Every value that is not a list or an object is taken as text, as it is
written: a persona may be called ``007`` or ``No``. Rows in which everything is empty are skipped.

All three formats become rows with the line they start on, so that what is wrong is told by line. The
delimiter of a CSV file is the one under which its header has the columns needed.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from salon.errors import PersonaError

from ..signatures.personas import Persona

__all__ = ["load_personas"]

_COLUMNS = {"name": ("name",), "sketch": ("sketch", "description", "bio"), "role": ("role",)}
_NEEDED = ("name", "sketch")
_DELIMITERS = ",;\t|"
_SPACE = re.compile(r"[ \t\r\n]*")
_EXAMPLE = "Each persona needs a name and a sketch of a sentence or more."


class _Row(NamedTuple):
    """One entry of a pool: the line it starts on, and its cells as they are named in the file."""

    line: int
    cells: Mapping[str, Any]


def load_personas(path: str | Path) -> list[Persona]:
    """Read a pool of personas.

    Args:
        path: A ``.csv``, ``.tsv``, ``.json``, ``.yaml`` or ``.yml`` file in UTF-8.

    Returns:
        The personas in the order of the file; names need not be unique.

    Raises:
        PersonaError: If the file cannot be read, or has no personas; it tells the line and what to do.
    """
    file = Path(path).expanduser()
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise PersonaError(
            f"{path} is no persona pool", f"its name does not end in {', '.join(_READERS)}", "Convert it."
        )
    pool = _Pool(str(path))
    personas = [pool.persona(row) for row in reader(pool, pool.text(file)) if not _blank(row.cells)]
    if not personas:
        raise PersonaError(f"{path} has no personas", "it holds no row with anything in it", _EXAMPLE)
    return personas


class _Pool:
    """The file that is read, as errors name it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def error(self, line: int, trouble: str, todo: str = _EXAMPLE) -> PersonaError:
        """Return the error for a line."""
        return PersonaError(f"{self.name}, line {line}", trouble, todo)

    def text(self, file: Path) -> str:
        """Return the file's text."""
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            raise PersonaError(f"There is no file {self.name}", todo="Check the path.") from None
        except IsADirectoryError:
            raise PersonaError(f"{self.name} is a folder", todo="Give the path of a file in it.") from None
        except OSError as error:
            raise PersonaError(f"{self.name} cannot be read", error.strerror or str(error)) from error
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise self.error(line, "it is not UTF-8", "Save the file with the encoding UTF-8.") from error
        if not text.strip():
            raise PersonaError(f"{self.name} is empty", todo=_EXAMPLE)
        return text

    def persona(self, row: _Row) -> Persona:
        """Return the persona of a row."""
        self.check_columns(row.line, list(row.cells))
        places = _places(row.cells)
        own = {field: self._own(row, field, key) for field, key in places.items()}
        for field in _NEEDED:
            if not own.get(field):
                whose = f"{own['name']!r}" if own.get("name") else "this persona"
                raise self.error(row.line, f"{whose} has no {field}", f"Fill in its {field}.")
        kept = {key: value for key, value in row.cells.items() if key not in places.values()}
        extra = {key: _text(value) for key, value in kept.items()}
        return Persona(name=own["name"], sketch=own["sketch"], role=own.get("role", ""), extra=extra)

    def _own(self, row: _Row, field: str, key: str) -> str:
        value = row.cells[key]
        if isinstance(value, Mapping | list):
            kind = "a list" if isinstance(value, list) else "an object"
            raise self.error(row.line, f"the {field} is {kind}", f"Write the {field} as one text.")
        text = _text(value).strip()
        return text if field == "sketch" else " ".join(text.split())

    def check_columns(self, line: int, columns: Sequence[str]) -> None:
        """Refuse columns that differ in case and spaces alone."""
        counts = Counter(_key(column) for column in columns)
        twice = [column for column in columns if counts[_key(column)] > 1]
        if twice:
            raise self.error(line, f"the column {twice[0]!r} is there twice", "Rename or remove one of them.")


def _key(column: str) -> str:
    return " ".join(column.casefold().split())


def _places(columns: Mapping[str, Any] | Sequence[str]) -> dict[str, str]:
    """Return under which column each field of a persona is found."""
    by_key = {_key(column): column for column in columns}
    found = {field: [by_key[key] for key in keys if key in by_key] for field, keys in _COLUMNS.items()}
    return {field: columns[0] for field, columns in found.items() if columns}


def _blank(cells: Mapping[str, Any]) -> bool:
    return all(value is None or value == "" or str(value).isspace() for value in cells.values())


def _text(value: Any) -> str:
    """Return a value as text; lists and objects as JSON."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# ---------------------------------------------------------------- CSV


def _read_csv(pool: _Pool, text: str) -> Iterator[_Row]:
    line, header, delimiter = _header(pool, text)
    pool.check_columns(line, [column for column in header if column])
    missing = [field for field in _NEEDED if field not in _places(header)]
    if missing:
        there = ", ".join(repr(column) for column in header if column)
        raise pool.error(
            line,
            f"the header has no column {' and no column '.join(missing)}, only {there}",
            "The first line must name the columns; name and sketch are needed.",
        )
    records = _records(pool, text, delimiter)
    next(records)
    for line, cells in records:
        if any(cell.strip() for cell in cells[len(header) :]):
            raise pool.error(
                line,
                f"it has {len(cells)} cells, the header {len(header)}",
                'Put cells that hold a delimiter in quotes ("...").',
            )
        named = {column: cell for column, cell in zip(header, cells, strict=False) if column}
        unnamed = {f"column {n}": cell for n, (c, cell) in enumerate(zip(header, cells, strict=False), 1) if not c}
        yield _Row(line, {**named, **{column: cell for column, cell in unnamed.items() if cell.strip()}})


def _header(pool: _Pool, text: str) -> tuple[int, list[str], str]:
    """Return the header with its line, and the delimiter under which it has most of what is needed."""
    found: list[tuple[int, list[str], str]] = []
    trouble: PersonaError | None = None
    for delimiter in _DELIMITERS:
        try:
            line, cells = next(_records(pool, text, delimiter), (1, []))
        except PersonaError as error:
            trouble = trouble or error
        else:
            found.append((line, [" ".join(cell.split()) for cell in cells], delimiter))
    if not found:
        raise trouble or pool.error(1, "there is no header")
    return max(found, key=lambda one: (len(_places(one[1])), len(one[1])))


def _records(pool: _Pool, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each record that is not blank with the line it starts on; cells may hold line breaks."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise pool.error(
                line, f"it is not well-formed ({error})", 'Close quotes; write a quote in quotes as "".'
            ) from error
        if any(cell.strip() for cell in cells):
            yield line, cells


# ---------------------------------------------------------------- JSON


def _read_json(pool: _Pool, text: str) -> Iterator[_Row]:
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        raise pool.error(error.lineno, f"it is not JSON ({error.msg})", "Mend it there.") from error
    except (ValueError, RecursionError) as error:
        raise PersonaError(f"{pool.name} is not JSON", str(error)) from error
    start = _skip(text, 0)
    if isinstance(whole, dict):
        places = {key: at for key, at in _json_values(text, start) if key == "personas"}
        start = places.get("personas", start)
        whole = whole.get("personas", whole)
    _check_list(pool, _line(text, start), whole)
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    for _, at in _json_values(text, start):
        try:
            entry, _ = decoder.raw_decode(text, at)
        except ValueError as error:
            raise pool.error(_line(text, at), str(error), "Rename or remove one of them.") from error
        yield from _entry(pool, _line(text, at), entry)


def _json_values(text: str, start: int) -> Iterator[tuple[Any, int]]:
    """Yield where each value of a well-formed array or object begins, with its key in an object."""
    decoder = json.JSONDecoder()
    keyed, at = text[start] == "{", _skip(text, start + 1)
    while text[at] not in "]}":
        key = None
        if keyed:
            key, at = decoder.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        yield key, at
        at = _skip(text, decoder.raw_decode(text, at)[1])
        at = _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    counts = Counter(key for key, _ in pairs)
    for key, count in counts.items():
        if count > 1:
            raise ValueError(f"the column {key!r} is there twice")
    return dict(pairs)


# ---------------------------------------------------------------- YAML


class _Loader(yaml.SafeLoader):
    """Reads the nodes of a document; aliases, by which a small file can grow without bound, are refused."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "aliases are not read here", mark)
        return super().compose_node(parent, index)


def _read_yaml(pool: _Pool, text: str) -> Iterator[_Row]:
    try:
        node = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise pool.error(line, f"it is not YAML ({error.problem})", "Mend it there.") from error
    except yaml.reader.ReaderError as error:
        line = _line(text, error.position)
        raise pool.error(line, f"it is not YAML ({error.reason})", "Remove that character.") from error
    except RecursionError as error:
        raise PersonaError(f"{pool.name} is nested too deep") from error
    line = node.start_mark.line + 1 if node else 1
    if isinstance(node, yaml.MappingNode):
        node = next((value for key, value in node.value if key.value == "personas"), node)
    if not isinstance(node, yaml.SequenceNode):
        _check_list(pool, line, None if node is None else _plain(pool, node))
        return
    for item in node.value:
        yield from _entry(pool, item.start_mark.line + 1, _plain(pool, item))


def _plain(pool: _Pool, node: yaml.Node) -> Any:
    """Return a node as lists, dicts, texts as they are written, and None."""
    if isinstance(node, yaml.SequenceNode):
        return [_plain(pool, item) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        keys = [str(_plain(pool, key)) for key, _ in node.value]
        pool.check_columns(node.start_mark.line + 1, keys)
        return {key: _plain(pool, value) for key, (_, value) in zip(keys, node.value, strict=True)}
    return None if node.tag == "tag:yaml.org,2002:null" else node.value


# ---------------------------------------------------------------- both


def _check_list(pool: _Pool, line: int, value: Any) -> None:
    if not isinstance(value, list):
        raise pool.error(
            line,
            "there is no list of personas",
            'The file must hold a list of objects, or an object with such a list under "personas".',
        )


def _entry(pool: _Pool, line: int, entry: Any) -> Iterator[_Row]:
    if isinstance(entry, Mapping):
        yield _Row(line, {" ".join(str(key).split()): value for key, value in entry.items()})
    elif entry is not None:
        raise pool.error(line, f"{_text(entry)[:60]!r} is not an object", "Write name: and sketch: for it.")


_READERS = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".json": _read_json,
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
}
