"""``salon study duration`` as users type it."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from salon.cli import main
from salon.testing import Fault, LoopbackServer

POOL = "name,sketch\nAnn,A nurse who reads labels.\nBo,A courier in the rain.\n=SUM(A1),A teacher of maths.\n"
Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(
    loopback: LoopbackServer, capsys: pytest.CaptureFixture[str], quick_embeddings: None, tmp_path: Path
) -> Typed:
    """Type ``salon study duration``; return exit code, stdout and stderr."""
    (tmp_path / "pool.csv").write_text(POOL)

    def run(*words: str) -> tuple[int, str, str]:
        lm = ["--lm", f"openai/{loopback.model}", "--api-base", loopback.base_url, "--api-key", "sk-my-own-key-123"]
        people = [] if "--personas" in words else ["--personas", str(tmp_path / "pool.csv")]
        try:
            code = main(["study", "duration", *people, "--ideas", "1", "--no-facilitator", *lm, *words])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return (code, *capsys.readouterr())

    return run


def test_a_study_prints_its_findings_and_leaves_table_and_page(
    typed: Typed, tmp_path: Path, loopback: LoopbackServer
) -> None:
    out = tmp_path / "study"
    words = ("--minutes", "0,0.5", "--sessions", "2", "--topic", "tea <b>", "--out", str(out))
    code, stdout, stderr = typed(*words)
    assert code == 0
    assert stdout.count("| required | ") == stdout.count("| optional | ") == 2
    assert "Citations required: There are signs that influence depth rises with minutes" in stdout
    assert "8 of 8 sessions" in stderr
    assert f"Page: {out / 'report.html'}" in stderr
    assert {p.name for p in out.iterdir()} == {
        "citations-required", "citations-optional", "judge", "report.html", "sessions.csv", "study.json", "figure.svg",
        "figure.png",
    }  # fmt: skip
    rows = list(csv.DictReader((out / "sessions.csv").open()))
    assert len(rows) == 8
    assert {row["quality"] for row in rows} != {""}
    page = (out / "report.html").read_text()
    assert "tea &lt;b&gt;" in page
    assert "=SUM(A1)" in page
    count, table = loopback.count, (out / "sessions.csv").read_bytes()
    code, stdout, _ = typed(*words, "--json")
    assert (code, loopback.count) == (0, count)
    assert json.loads(stdout)["seeds"] == [0, 1]
    assert (out / "sessions.csv").read_bytes() == table
    for path in out.rglob("*"):
        assert not path.is_file() or b"sk-my-own-key" not in path.read_bytes()


def test_a_dry_run_spends_nothing_and_counts_every_session(
    typed: Typed, tmp_path: Path, loopback: LoopbackServer
) -> None:
    out = tmp_path / "study"
    words = ("--minutes", "0,1", "--sessions", "3", "--citations", "required, off", "--out", str(out))
    code, stdout, _ = typed(*words, "--dry-run")
    assert (code, loopback.count) == (0, 0)
    assert "Expected: 12 sessions" in stdout
    assert "Nothing was spent" in stdout
    assert not out.exists()
    assert typed(*words, "--dry-run", "--max-tokens", "0")[0] == 2
    assert "one call of the judge for each idea" in stdout
    invented = typed(*words, "--dry-run", "--personas", "3", "--no-judged")[1]
    calls = [int(count) for text in (stdout, invented) for count in re.findall(r"about (\d+) calls", text)]
    assert calls[1] == calls[0] + 1 + 3  # personas are invented once, not for every session
    assert "judge" not in invented


def test_the_judge_can_be_left_out(typed: Typed, tmp_path: Path, loopback: LoopbackServer) -> None:
    words = ("--minutes", "0", "--sessions", "1", "--citations", "off", "--no-judged", "--out", str(tmp_path / "s"))
    code, stdout, _ = typed(*words)
    assert code == 0
    assert not (tmp_path / "s" / "judge").exists()
    assert not any("originality" in r.fields for r in loopback.requests)
    assert "was not studied both with and without" in stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--minutes", "0,five"), "'0,five' cannot be read"),
        (("--minutes", ""), "cannot be read"),
        (("--minutes", "0,,5"), "cannot be read"),
        (("--minutes", "-5,5"), "expected one argument"),
        (("--minutes=-5",), "-5 minutes"),
        (("--minutes", "nan"), "nan minutes"),
        (("--minutes", "inf"), "inf minutes"),
        (("--minutes", "5,5.0"), "none twice"),
        (("--minutes", "1000"), "1000 minutes"),
        (("--sessions", "0"), "sessions"),
        (("--sessions", "-3"), "sessions"),
        (("--citations", "sometimes"), "sometimes"),
        (("--citations", "off,off"), "none twice"),
        (("--topic", " "), "topic"),
        (("--personas", "1"), "at least 2"),
        (("--personas", "missing.csv"), "missing.csv"),
        (("--concurrency", "0"), "max_concurrency=0"),
        (("--concurrency", "-1"), "max_concurrency=-1"),
        (("--max-usd", "-1"), "-1"),
    ],
)
def test_a_mistake_gets_one_line_and_costs_nothing(
    typed: Typed, tmp_path: Path, loopback: LoopbackServer, words: tuple[str, ...], told: str
) -> None:
    code, stdout, stderr = typed("--out", str(tmp_path / "study"), *words)
    assert code == 2
    assert stdout == ""
    assert told in stderr
    assert len(stderr.strip().splitlines()) == 1
    assert loopback.count == 0
    assert not (tmp_path / "study").exists()


def test_another_study_in_the_folder_is_told(typed: Typed, tmp_path: Path, loopback: LoopbackServer) -> None:
    words = ("--minutes", "0", "--sessions", "1", "--no-judged", "--out", str(tmp_path / "s"))
    assert typed(*words)[0] == 0
    count = loopback.count
    code, stdout, stderr = typed(*words, "--topic", "Coffee")
    assert (code, stdout, loopback.count) == (2, "", count)
    assert "it has another topic" in stderr
    assert "another folder" in stderr


def test_a_model_that_refuses_the_key_fails(typed: Typed, tmp_path: Path, loopback: LoopbackServer) -> None:
    loopback.settings.faults = lambda _: Fault(401, message="no: sk-my-own-key-123")
    code, stdout, stderr = typed("--minutes", "0", "--sessions", "1", "--out", str(tmp_path / "s"))
    assert (code, stdout) == (1, "")
    assert "sk-my-own-key" not in stderr
    assert "cannot be used" in stderr
