"""``salon export``: a recorded session in other forms, also one that was interrupted."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from salon.modules.exports import FORMATS

from salon.cli import main
from salon.testing import LoopbackServer

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Typed:
    """Type an export command; return exit code, stdout and stderr."""

    def run(*words: str | Path) -> tuple[int, str, str]:
        try:
            code = main(["export", *map(str, words)])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def folder(roundtable: Callable[..., Any], loopback: LoopbackServer, tmp_path: Path) -> Path:
    """A whole session on disk."""
    place = tmp_path / "run"
    with dspy.context(lm=loopback.lm()):
        roundtable()(topic="Bicycles", out=place)
    return place


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Once the session is there, calls and embeddings are errors."""
    from salon.modules import Embedder

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("an export needs neither a model nor embeddings")

    monkeypatch.setattr(Embedder, "_encoder", refuse)
    monkeypatch.setattr(dspy.Predict, "acall", refuse)


def test_one_form_is_printed(typed: Typed, folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for name in FORMATS:
        code, out, err = typed(folder, name)
        assert (code, err) == (0, "")
        if name in ("session.json", "ideas.md"):
            assert out == (folder / name).read_text()
        if name.endswith(".json"):
            assert json.loads(out)
        if name.endswith(".csv"):
            assert len(list(csv.reader(io.StringIO(out)))) > 3
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_several_are_written_and_their_paths_printed(typed: Typed, folder: Path, tmp_path: Path) -> None:
    code, out, err = typed(folder, "lineage.dot", "ideas.csv", "lineage.dot", "--out", tmp_path / "new" / "place")
    assert (code, err) == (0, "")
    assert out.splitlines() == [str(tmp_path / "new" / "place" / name) for name in ("lineage.dot", "ideas.csv")]
    assert (tmp_path / "new" / "place" / "ideas.csv").read_bytes() == (folder / "ideas.csv").read_bytes()
    assert typed(folder, "lineage.mmd", "transcript.md")[0] == 0
    assert (folder / "lineage.mmd").read_text().startswith("flowchart LR\n")
    code, out, _ = typed(folder, "ideas.md", "--out", tmp_path / "one")
    assert out == f"{tmp_path / 'one' / 'ideas.md'}\n"


def test_without_a_name_all_are_written(typed: Typed, folder: Path, tmp_path: Path) -> None:
    code, out, _ = typed(folder)
    assert code == 0
    assert {Path(line) for line in out.splitlines()} == {folder / name for name in FORMATS}
    assert typed(folder, "--out", tmp_path / "all")[0] == 0
    for name in FORMATS:
        assert (tmp_path / "all" / name).read_bytes() == (folder / name).read_bytes()


def test_graphs_of_one_idea(typed: Typed, folder: Path, tmp_path: Path) -> None:
    whole, part = (json.loads(typed(folder, "lineage.json", *idea)[1]) for idea in ([], ["--idea", "I1"]))
    names = {node["id"] for node in part["nodes"]}
    assert "I1" in names < {node["id"] for node in whole["nodes"]}
    code, _, _ = typed("--idea", "I1", folder, "--out", tmp_path / "all")
    assert code == 0
    assert json.loads((tmp_path / "all" / "lineage.json").read_text()) == part
    assert (tmp_path / "all" / "ideas.md").read_text() == (folder / "ideas.md").read_text()


def test_an_interrupted_session_is_exported_as_far_as_it_came(typed: Typed, folder: Path, tmp_path: Path) -> None:
    lines = (folder / "session.jsonl").read_bytes().splitlines(keepends=True)
    for at in range(1, len(lines), 5):
        (tmp_path / "part").mkdir(exist_ok=True)
        (tmp_path / "part" / "session.jsonl").write_bytes(b"".join(lines[:at]) + lines[at][:-5])
        code, out, err = typed(tmp_path / "part", "session.json")
        assert (code, err) == (0, "")
        document = json.loads(out)
        assert document["status"] == "running"
        assert len(document["events"]) == sum(b'"kind":"event"' in line for line in lines[:at])
        assert document["usage"]["calls"] == sum(b'"kind":"call"' in line for line in lines[:at])
        assert typed(tmp_path / "part", "--out", tmp_path / "forms")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "DIR"),
        (["nowhere"], "There is no session in nowhere"),
        (["RUN", "ideas.pdf"], "There is no form 'ideas.pdf'"),
        (["RUN", "ideas.md", "x.y"], "Name ideas.md, ideas.csv"),
        (["RUN", "lineage.dot", "--idea", "I99"], "has no idea 'I99'"),
        (["RUN", "lineage.dot", "--idea", ""], "has no idea ''"),
        (["RUN", "--idea", "C1"], "has no idea 'C1'"),
        (["RUN", "ideas.md", "--idea", "I1"], "--idea has no use here"),
        (["RUN", "--out", "/proc/nothing/here"], "/proc/nothing/here"),
        (["RUN", "--out", "RUN/session.jsonl"], "cannot be written"),
    ],
)
def test_a_mistake_gets_one_line(typed: Typed, folder: Path, words: list[str], said: str) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    code, out, err = typed(*(word.replace("RUN", str(folder)) for word in words))
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_damaged_log_is_a_failure_told_in_one_line(typed: Typed, folder: Path) -> None:
    log = folder / "session.jsonl"
    lines = log.read_text().splitlines()
    for damage in (
        ["{", *lines[1:]],
        [*lines[:3], "{}", *lines[3:]],
        [line.replace('"type":"phase"', '"type":"rain"') for line in lines],
        [line for line in lines if '"id":"I1"' not in line],
        [line.replace('"id":"I2"', '"id":"I1"') for line in lines],
        [line.replace('"status":"complete"', '"status":"over"') for line in lines],
        [lines[0].replace('"topic":', '"1":').replace('"settings":', '"other":'), *lines[1:]],
    ):
        log.write_text("\n".join(damage) + "\n")
        code, out, err = typed(folder, "ideas.md")
        assert (code, out) == (1, ""), damage
        assert "damaged" in err or "no session log" in err
        assert len(err.splitlines()) == 1


def test_hostile_material_is_printed_and_written(hostile: Any, typed: Typed, tmp_path: Path) -> None:
    hostile.save(tmp_path / "hostile")
    for name in FORMATS:
        code, out, err = typed(tmp_path / "hostile", name)
        assert (code, err) == (0, "")
        assert out.encode("utf-8")
    assert typed(tmp_path / "hostile", "--out", tmp_path / "forms")[0] == 0
    assert {path.name for path in (tmp_path / "forms").iterdir()} == FORMATS.keys()
