"""``salon report`` as users type it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import dspy
import pytest

from salon.cli import main
from salon.testing import LoopbackServer


@pytest.fixture
def folder(roundtable: Callable[..., object], tmp_path: Path) -> Path:
    """The folder of a session that was held."""
    with LoopbackServer() as server, dspy.context(lm=server.lm()):
        roundtable()(topic="Tea", out=tmp_path / "run")  # type: ignore[operator]
    return tmp_path / "run"


def test_the_path_of_the_page_is_printed_and_nothing_else(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr() == (f"{folder / 'report.html'}\n", "")
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert main(["report", str(folder), "--json", "--out", str(folder / "other.html")]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(folder / "other.html")}


def test_several_sessions_go_into_a_page_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder.parent)
    assert main(["report", "run", "run"]) == 0
    assert capsys.readouterr().out == "report.html\n"
    assert "Side by side" in Path("report.html").read_text()


@pytest.mark.parametrize("words", [["nowhere"], ["run", "--out", "run/session.jsonl/page.html"], []])
def test_a_mistake_gets_one_line(
    folder: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder.parent)
    try:
        code = main(["report", *words])
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("salon: ")
