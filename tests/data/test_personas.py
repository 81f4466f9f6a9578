"""Reading pools of personas: what is read, and which line an error names."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from salon.data import load_personas
from salon.signatures import Persona

from salon.errors import PersonaError, UserError

ANN = Persona(name="Ann", sketch="A nurse on nights.")
SUFFIXES = (".csv", ".tsv", ".json", ".yaml", ".yml")


def pool(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def trouble(path: Path) -> PersonaError:
    with pytest.raises(PersonaError) as caught:
        load_personas(path)
    assert str(path) in str(caught.value)
    return caught.value


def line_of(error: PersonaError) -> int:
    told = re.search(r", line (\d+):", str(error))
    assert told, str(error)
    return int(told[1])


# ---------------------------------------------------------------- what is read


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\ufeff\r\n\r\n", "  \n"])
def test_csv_in_any_sensible_dialect(tmp_path: Path, delimiter: str, end: str, start: str) -> None:
    rows = [["name", "role", "sketch", "age"], ["Ann", "nurse", "Nights; days, \t and | all.", "41"]]
    rows += [["", "", "", ""], ["Bo", "", 'Says "no".', ""]]
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=end).writerows(rows)
    assert load_personas(pool(tmp_path, "pool.csv", start + out.getvalue())) == [
        Persona(name="Ann", role="nurse", sketch="Nights; days, \t and | all.", extra={"age": "41"}),
        Persona(name="Bo", sketch='Says "no".', extra={"age": ""}),
    ]


def test_csv_with_spaces_after_delimiters_and_a_trailing_one(tmp_path: Path) -> None:
    path = pool(tmp_path, "pool.csv", 'name, sketch,\n"Ann", "A nurse on nights.",\n')
    assert load_personas(path) == [ANN]


def test_an_index_without_a_name_is_kept(tmp_path: Path) -> None:
    path = pool(tmp_path, "pool.csv", ",name,sketch\n0,Ann,A nurse on nights.\n")
    assert load_personas(path) == [Persona(**{**ANN.model_dump(), "extra": {"column 1": "0"}})]


@pytest.mark.parametrize(
    "content",
    [
        '[{"name": "Ann", "sketch": "A nurse on nights."}]',
        '{"version": [1, {"personas": 2}], "personas": [{"name": "Ann", "sketch": "A nurse on nights."}]}',
        '\ufeff[\n\t{\n\t\t"name": "Ann",\n\t\t"sketch": "A nurse on nights."\n\t},\n\tnull, {}\n]\n',
    ],
)
def test_json_as_a_list_or_under_personas(tmp_path: Path, content: str) -> None:
    assert load_personas(pool(tmp_path, "pool.json", content)) == [ANN]


@pytest.mark.parametrize(
    "content",
    [
        "- name: Ann\n  sketch: A nurse on nights.\n",
        "version: 1\npersonas:\n  - name: Ann\n    sketch: >\n      A nurse\n      on nights.\n  -\n  - {}\n",
        "# people\n---\n- {name: Ann, sketch: A nurse on nights., role: ~}\n",
    ],
)
@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".YAML"])
def test_yaml_as_a_list_or_under_personas(tmp_path: Path, content: str, suffix: str) -> None:
    assert load_personas(pool(tmp_path, f"pool{suffix}", content)) == [ANN]


@pytest.mark.parametrize(
    ("name", "sketch"),
    [
        ("Name", " Sketch "),
        ("NAME", "SKETCH"),
        (" name", "description"),
        ("name", "Bio"),
        ("name\t", "  sketch"),
    ],
)
def test_columns_are_known_by_other_spellings(tmp_path: Path, name: str, sketch: str) -> None:
    row = {name: "Ann", sketch: "A nurse on nights."}
    out = io.StringIO()
    csv.writer(out).writerows([row.keys(), row.values()])
    assert load_personas(pool(tmp_path, "pool.csv", out.getvalue())) == [ANN]
    assert load_personas(pool(tmp_path, "pool.json", json.dumps([row]))) == [ANN]
    assert load_personas(pool(tmp_path, "pool.yaml", yaml.safe_dump([row]))) == [ANN]


def test_a_description_beside_a_sketch_is_an_extra(tmp_path: Path) -> None:
    path = pool(tmp_path, "pool.csv", "description,name,sketch\nlong,Ann,short\n")
    assert load_personas(path) == [Persona(name="Ann", sketch="short", extra={"description": "long"})]


def test_values_are_kept_as_they_are_written(tmp_path: Path) -> None:
    text = "- {name: 007, sketch: No, age: 034, on: 2024-01-01, tags: [a, b], seen: ~}\n"
    extra = {"age": "034", "on": "2024-01-01", "tags": '["a", "b"]', "seen": ""}
    read = load_personas(pool(tmp_path, "pool.yaml", text))
    assert read == [Persona(name="007", sketch="No", extra=extra)]
    row = {"name": 7, "sketch": "x", "age": 3, "at": 1.5, "ok": True, "of": {"é": [1]}, "seen": None}
    extra = {"age": "3", "at": "1.5", "ok": "true", "of": '{"é": [1]}', "seen": ""}
    read = load_personas(pool(tmp_path, "pool.json", json.dumps([row])))
    assert read == [Persona(name="7", sketch="x", extra=extra)]


def test_names_need_not_be_unique_and_are_set_on_one_line(tmp_path: Path) -> None:
    rows = [{"name": n, "sketch": " s\nt "} for n in ("Alex", "Alex ", "Ana\n María", "小明", "🦊", "None")]
    read = load_personas(pool(tmp_path, "pool.json", json.dumps(rows)))
    assert [p.name for p in read] == ["Alex", "Alex", "Ana María", "小明", "🦊", "None"]
    assert {p.sketch for p in read} == {"s\nt"}


def test_lone_surrogates_are_replaced_and_pairs_are_joined(tmp_path: Path) -> None:
    read = load_personas(pool(tmp_path, "a.json", '[{"name": "A\\ud800", "sketch": "\\ud83e\\udd8a"}]'))
    assert read == [Persona(name="A\ufffd", sketch="🦊")]
    read = load_personas(pool(tmp_path, "a.yaml", '- {name: "A\\ud800", sketch: "\\ud83e\\udd8a"}'))
    assert read == [Persona(name="A\ufffd", sketch="🦊")]


CELL = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00\ufeff"), max_size=20)
ROW = st.tuples(CELL, CELL, CELL)


@settings(deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=6), delimiter=st.sampled_from(",;\t|"))
def test_what_csv_writes_is_read_back(tmp_path_factory: pytest.TempPathFactory, rows: Any, delimiter: str) -> None:
    written = [(f"N{a}", f"S{b}", f"E{c}") for a, b, c in rows]
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([("name", "sketch", "more"), *written])
    read = load_personas(pool(tmp_path_factory.mktemp("pool"), "pool.csv", out.getvalue()))
    assert [(p.name, p.sketch, p.extra["more"]) for p in read] == [
        (" ".join(a.split()), b.strip(), c) for a, b, c in written
    ]


@settings(deadline=None)
@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_content_is_read_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    for suffix in SUFFIXES:
        path = pool(tmp_path_factory.getbasetemp(), f"any{suffix}", content)
        try:
            told = str(len(load_personas(path)))
        except PersonaError as error:
            told = str(error)
        assert told.isdecimal() or (str(path) in told and "\n" not in told)


# ---------------------------------------------------------------- which line an error names


def test_the_line_of_a_csv_row_after_quoted_line_breaks(tmp_path: Path) -> None:
    content = 'name,sketch\nAnn,"one\ntwo\r\nthree"\n\n"Bo\n",x\nCy,\n'
    error = trouble(pool(tmp_path, "pool.csv", content))
    assert line_of(error) == 8
    assert "'Cy' has no sketch" in str(error)


@pytest.mark.parametrize(
    ("content", "line", "told"),
    [
        ("\n\nname;age\nAnn;3\n", 3, "no column sketch"),
        ("who,what\nAnn,x\n", 1, "no column name and no column sketch, only 'who', 'what'"),
        ("name,sketch\n,x\n", 2, "this persona has no name"),
        ("name,sketch\nAnn,x\nBo,hello, world\n", 3, "3 cells, the header 2"),
        ("name,sketch,Name \nAnn,x,y\n", 1, "twice"),
        ("name,sketch,note,NOTE\nAnn,x,y,z\n", 1, "twice"),
        ('name,sketch\nAnn,"x\ny\n', 2, "not well-formed"),
        ('name,sketch\nAnn,x\nBo,"x" y\n', 3, "not well-formed"),
        ('name,"sketch\nAnn,x\n', 1, "only 'name,\"sketch'"),
    ],
)
def test_lines_of_csv_errors(tmp_path: Path, content: str, line: int, told: str) -> None:
    error = trouble(pool(tmp_path, "pool.csv", content))
    assert line_of(error) == line
    assert told in str(error)
    assert error.todo


@pytest.mark.parametrize(
    ("content", "line", "told"),
    [
        ('[\n {"name": "Ann", "sketch": "x"},\n {"name": "Bo"}\n]', 3, "'Bo' has no sketch"),
        ('{"a": "[",\n"personas": [{"name": "Ann", "sketch": "\\n"},\n\n{}, "Bo"]}', 2, "'Ann' has no sketch"),
        ('[{"name": "Ann", "sketch": "x"},\n\n "Bo, a baker"]', 3, "'Bo, a baker' is not an object"),
        ('[\n{"name": "Ann", "sketch": ["x"]}]', 2, "the sketch is a list"),
        ('[\n{"name": {"first": "Ann"}, "sketch": "x"}]', 2, "the name is an object"),
        ('[\n{"name": "Ann", "sketch": "x", "name": "Bo"}]', 2, "twice"),
        ('[\n{"name": "Ann", "sketch": "x", "Sketch": "y"}]', 2, "twice"),
        ('[\n{"name": "Ann" "sketch": "x"}]', 2, "not JSON"),
        ('\n{"people": []}', 2, "no list of personas"),
        ('\n"Ann"', 2, "no list of personas"),
        ('{"x": 1,\n"personas": {"Ann": "x"}}', 2, "no list of personas"),
    ],
)
def test_lines_of_json_errors(tmp_path: Path, content: str, line: int, told: str) -> None:
    error = trouble(pool(tmp_path, "pool.json", content))
    assert line_of(error) == line
    assert told in str(error)
    assert error.todo


@pytest.mark.parametrize(
    ("content", "line", "told"),
    [
        ("- name: Ann\n  sketch: >\n    a\n    b\n- name: Bo\n", 5, "'Bo' has no sketch"),
        ("a: 1\npersonas:\n- name: ~\n  sketch: x\n", 3, "no name"),
        ("- name: Ann\n  sketch: x\n- Bo\n", 3, "'Bo' is not an object"),
        ("- name: Ann\n  sketch: [x, y]\n", 1, "the sketch is a list"),
        ("\n- name: Ann\n  sketch: x\n  name: Bo\n", 2, "twice"),
        ("- name: Ann\n  sketch: x\n bad: y\n", 3, "not YAML"),
        ("- name: Ann\n  sketch: a: b\n", 2, "not YAML"),
        ("- &a {name: Ann, sketch: x}\n- *a\n", 2, "aliases"),
        ("- {name: Ann, sketch: x}\n---\n- {name: Bo, sketch: x}\n", 2, "not YAML"),
        ("- name: Ann\n  sketch: \x07\n", 2, "not YAML"),
        ("name: Ann\nsketch: x\n", 1, "no list of personas"),
        ("# nobody\n", 1, "no list of personas"),
    ],
)
def test_lines_of_yaml_errors(tmp_path: Path, content: str, line: int, told: str) -> None:
    error = trouble(pool(tmp_path, "pool.yaml", content))
    assert line_of(error) == line
    assert told in str(error)
    assert error.todo


def test_a_file_in_another_encoding_is_told_by_line(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        error = trouble(pool(tmp_path, f"pool{suffix}", "name,sketch\nAnn,x\nAna María,y\n".encode("latin-1")))
        assert line_of(error) == 3
        assert "UTF-8" in str(error)


def test_files_that_are_no_pool(tmp_path: Path) -> None:
    assert isinstance(trouble(tmp_path / "none.csv"), UserError)
    assert "does not end in" in str(trouble(pool(tmp_path, "pool.xlsx", "x")))
    assert "does not end in" in str(trouble(pool(tmp_path, "pool", "x")))
    folder = tmp_path / "folder.json"
    folder.mkdir()
    assert "is a folder" in str(trouble(folder))
    for suffix in SUFFIXES:
        assert "is empty" in str(trouble(pool(tmp_path, f"empty{suffix}", "\ufeff \n")))
    for name, content in {"a.csv": "name,sketch\n,\n", "a.json": "[]", "a.yaml": "personas: []\n"}.items():
        assert "has no personas" in str(trouble(pool(tmp_path, name, content)))


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pool(tmp_path, "pool.csv", "name,sketch\n")

    def denied(*_: object, **__: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    for name in ("open", "read_bytes", "read_text"):
        monkeypatch.setattr(Path, name, denied)
    assert "cannot be read" in str(trouble(path))


@pytest.mark.parametrize(
    ("suffix", "opening", "closing"), [(".json", "[", "]"), (".yaml", "[", "]"), (".yaml", "- ", "")]
)
def test_a_file_nested_without_end_is_refused(tmp_path: Path, suffix: str, opening: str, closing: str) -> None:
    trouble(pool(tmp_path, f"deep{suffix}", opening * 5_000 + closing * 5_000))


def test_a_home_directory_and_a_string_are_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool(tmp_path, "pool.csv", "name,sketch\nAnn,A nurse on nights.\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_personas("~/pool.csv") == [ANN]
