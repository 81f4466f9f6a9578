"""Reading tables: formats, dialects, encodings, and files that are not what they are called."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from salon.data.tables import ENDINGS, Source, Table, read_file, read_hub

from salon.errors import UserError

REVISION = "0123456789abcdef0123456789abcdef01234567"
ROWS = [
    {"id": "007", "task": 'Write "no", then stop; or\nnot.', "área": "詩"},
    {"id": "NA", "task": "null", "área": ""},
    {"id": "3", "task": "اكتب قصيدة 👓", "área": "1.50"},
]


def written(folder: Path, name: str, rows: list[dict[str, str]]) -> Path:
    path = folder / name
    frame = pd.DataFrame(rows, dtype=object)
    write: dict[str, Callable[[], Any]] = {
        ".csv": lambda: frame.to_csv(path, index=False),
        ".tsv": lambda: frame.to_csv(path, index=False, sep="\t"),
        ".json": lambda: path.write_text(json.dumps(rows)),
        ".jsonl": lambda: path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows)),
        ".parquet": lambda: frame.to_parquet(path),
        ".xlsx": lambda: frame.to_excel(path, index=False),
    }
    write[path.suffix.lower()]()
    return path


def trouble(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_file(path, ["task"])
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    return str(caught.value)


# ---------------------------------------------------------------- what is read


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_same_texts(ending: str, tmp_path: Path) -> None:
    table = read_file(written(tmp_path, f"table{ending}", ROWS), ["task"])
    assert table.columns == ("id", "task", "área")
    assert table.rows == ROWS
    assert table.source.place == f"table{ending}"
    assert len(table.source.sha256) == 64


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("start", ["", "\n \n"])
def test_csv_in_any_sensible_dialect(delimiter: str, end: str, encoding: str, start: str, tmp_path: Path) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end)
    writer.writerows([["", "Task ", "area"], ["0", "Say; this, \t or | that", "詩"], ["", "", ""], ["1", "Ünd", ""]])
    path = tmp_path / "table.csv"
    path.write_bytes((start.replace("\n", end) + text.getvalue()).encode(encoding))
    table = read_file(path, ["task"])
    assert table.columns == ("Task", "area")
    assert table.rows == [{"Task": "Say; this, \t or | that", "area": "詩"}, {"Task": "Ünd", "area": ""}]


def test_short_rows_are_filled_up_and_long_ones_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("task,area\nalone\nboth,here\n")
    assert read_file(path).rows == [{"task": "alone", "area": ""}, {"task": "both", "area": "here"}]
    path.write_text("task,area\nboth,here\none,two,three\n")
    assert "line 3" in trouble(path)


def test_huge_fields(tmp_path: Path) -> None:
    huge = 'é"' * 500_000
    for ending in (".csv", ".jsonl", ".json", ".parquet"):
        assert read_file(written(tmp_path, f"huge{ending}", [{"task": huge}])).rows == [{"task": huge}]


@pytest.mark.parametrize("ending", [".json", ".jsonl", ".parquet"])
def test_values_that_are_no_texts(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"table{ending}"
    rows = [
        {"a": 3, "b": 2.5, "c": True, "d": ["ü", "é"], "e": None},
        {"a": None, "b": float("nan"), "c": None, "d": None, "e": "x"},
    ]
    if ending == ".parquet":
        datasets.Dataset.from_list(rows).to_parquet(path)
    else:
        path.write_text(json.dumps({"rows": rows}) if ending == ".json" else "\n\n".join(map(json.dumps, rows)))
    assert read_file(path).rows == [
        {"a": "3", "b": "2.5", "c": "true", "d": '["ü", "é"]', "e": ""},
        {"a": "", "b": "", "c": "", "d": "", "e": "x"},
    ]


def test_dates_and_bytes_of_parquet(tmp_path: Path) -> None:
    day = dt.date(2026, 2, 1)
    pd.DataFrame({"day": [day], "raw": [b"caf\xc3\xa9"], "many": [[day]]}).to_parquet(tmp_path / "table.parquet")
    (row,) = read_file(tmp_path / "table.parquet").rows
    assert row == {"day": "2026-02-01", "raw": "café", "many": '["2026-02-01"]'}


def test_line_separators_and_lone_surrogates_are_text(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    path.write_text('{"task": "a\u2028b\u0085c"}\r\n{"task": "\\ud800"}\n', encoding="utf-8")
    assert [row["task"] for row in read_file(path).rows] == ["a\u2028b\u0085c", "\ufffd"]


def test_columns_are_found_whatever_their_case() -> None:
    table = Table(Source("table"), ("My  Task", "B"), [{"My  Task": "x", "B": "y"}])
    assert table.find(["none", "my task"]) == "My  Task"
    assert table.find([]) is None


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1).filter(str.strip), min_size=1))
def test_any_text_comes_back_from_csv(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "table.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["task"], *([text] for text in texts)])
        assert [row["task"] for row in read_file(path, ["task"]).rows] == texts


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("other", ENDINGS)
def test_a_file_that_is_something_else(ending: str, other: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"file{other}", ROWS).rename(tmp_path / f"table{ending}")
    alike = {".csv", ".tsv"}
    if ending == other or {ending, other} <= alike:
        assert read_file(path, ["task"]).rows == ROWS
    elif ending in alike and other in (".json", ".jsonl"):  # a text that may be a table, of strange columns
        with pytest.raises(UserError, match="table"):
            read_file(path, ["task"]).column(["task"], "tasks")
    else:
        trouble(path)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "content", [b"", b" \n\r\n", b"\x00" * 40, b"PK\x03\x04 broken", b"PAR1 broken PAR1", b"\xff\xfe\x00"]
)
def test_damaged_files(ending: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"table{ending}"
    path.write_bytes(content)
    if ending in (".csv", ".tsv") and b"broken" in content:  # a header
        assert "has no rows" in trouble(path)
    else:
        trouble(path)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("t.csv", "task\né\n".encode("latin-1"), "line 2 is not UTF-8"),
        ("t.csv", b'task\n"never closed\n', "not well-formed.*close all quotes"),
        ("t.csv", b"task,Task\na,b\n", "'task' is there twice"),
        ("t.csv", b"task,task\na,b\n", "'task' is there twice"),
        ("t.csv", b"task\n\n\n", "has no rows"),
        ("t.json", b"{}", "no one list"),
        ("t.json", b'{"a": [], "b": []}', "no one list"),
        ("t.json", b"[]", "has no rows"),
        ("t.json", b"[1]", "entry 1 is not an object"),
        ("t.json", b"[" * 100_000, "not JSON"),
        ("t.json", b'{"task": "a"}\n{"task": "b"}', "not JSON.*name it by what it is"),
        ("t.jsonl", b'{"task": "a"}\n{"task": \n', "line 2 is not JSON"),
        ("t.jsonl", b'[{"task": "a"}]', "entry 1 is not an object"),
        ("t.txt", b"task\na\n", "does not end in .csv, .tsv"),
    ],
)
def test_what_is_wrong_is_told(name: str, content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert re.search(told, trouble(tmp_path / name))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert "There is no file" in trouble(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder" in trouble(tmp_path / "folder.csv")
    for path in ("long" * 5000 + ".csv", "null\0.csv"):
        with pytest.raises(UserError, match="cannot be read"):
            read_file(path)


# ---------------------------------------------------------------- the hub


def test_the_hub_is_asked_for_one_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[tuple[str, ...], dict[str, Any]]] = []
    parts = {"train": [{"Task": "a", "n": 1, "big": "x"}], "test": [{"Task": "b", "n": None, "big": "y"}]}

    def load(*names: str, **options: Any) -> datasets.DatasetDict:
        asked.append((names, options))
        return datasets.DatasetDict({name: datasets.Dataset.from_list(rows) for name, rows in parts.items()})

    monkeypatch.setattr(datasets, "load_dataset", load)
    table = read_hub(f"hub:some/set@{REVISION}")
    assert table.rows == [{"Task": "a", "n": "1", "big": "x"}, {"Task": "b", "n": "", "big": "y"}]
    assert (table.source.place, table.source.revision) == ("hub:some/set", REVISION)
    assert read_hub(f"hub:some/set/config@{REVISION}", {"task", "n"}).columns == ("Task", "n")
    read_hub(f"hub:some/set/a/b.jsonl@{REVISION}")
    assert asked == [
        (("some/set",), {"revision": REVISION, "name": None}),
        (("some/set",), {"revision": REVISION, "name": "config"}),
        (("some/set",), {"revision": REVISION, "data_files": "a/b.jsonl"}),
    ]


@pytest.mark.parametrize(
    "reference",
    [
        "hub:set",
        "hub:some/set",
        "hub:some/set@main",
        "hub:some/set@0123456",
        f"hub:@{REVISION}",
        f"hub:a/b@{REVISION}0",
    ],
)
def test_a_revision_is_needed(reference: str) -> None:
    with pytest.raises(UserError, match=r"fixed revision.*hub:OWNER/NAME@REVISION"):
        read_hub(reference)


def test_without_the_hub_a_file_is_asked_for() -> None:
    with pytest.raises(UserError, match=r"cannot be loaded: .*Give a local file of it with data") as caught:
        read_hub(f"hub:some/set@{REVISION}")
    assert "\n" not in str(caught.value)
