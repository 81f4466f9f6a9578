"""``salon audit`` as users type it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from salon.cli import main
from salon.testing import LoopbackServer

POOL = "name,sketch\nAnn,A nurse who reads labels.\nBo,A courier in the rain.\nCy,A teacher of maths.\n"
Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(loopback: LoopbackServer, capsys: pytest.CaptureFixture[str], quick_embeddings: None) -> Typed:
    """Type a command; return exit code, stdout and stderr."""

    def run(*words: str, model: bool = True) -> tuple[int, str, str]:
        lm = ["--lm", f"openai/{loopback.model}", "--api-base", loopback.base_url, "--api-key", "sk-my-own-key-123"]
        try:
            code = main([*words, *(lm if model else [])])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def session(typed: Typed, tmp_path: Path) -> Path:
    """A session of two turns with six ideas."""
    (tmp_path / "pool.csv").write_text(POOL)
    words = ("--personas", str(tmp_path / "pool.csv"), "--turns", "2", "--no-facilitator", "--out")
    assert typed("brainstorm", "glasses", *words, str(tmp_path / "run"))[0] == 0
    return tmp_path / "run"


SMALL = ("--seeds", "1", "--samples", "1", "--sources", "1", "--edges", "4")


def test_an_audit_prints_its_tables_and_keeps_them(typed: Typed, session: Path, loopback: LoopbackServer) -> None:
    code, stdout, stderr = typed("audit", str(session), *SMALL)
    assert code == 0
    assert stdout.startswith("# Lineage audit")
    for head in ("## Ablation", "## Masking", "## Edges", "In all: ", "Cost: "):
        assert head in stdout
    assert "3 of 3 sessions" in stderr
    assert (session / "audit" / "audit.md").read_text().strip() == stdout.strip()
    kept = json.loads((session / "audit" / "audit.json").read_text())
    assert kept["models"]["judge"] == f"openai/{loopback.model}"
    count = loopback.count
    code, again, _ = typed("audit", str(session), *SMALL, "--json")
    assert (code, loopback.count) == (0, count)
    assert json.loads(again)["masking"] == kept["masking"]
    for path in session.rglob("*"):
        assert not path.is_file() or "sk-my-own-key" not in path.read_text()
    assert typed("replay", str(session), model=False)[0] == 0  # the session itself is as it was


def test_the_models_are_those_of_the_session_unless_others_are_named(
    typed: Typed, session: Path, loopback: LoopbackServer
) -> None:
    count = loopback.count
    key = ("--api-key", "sk-my-own-key-123")
    assert typed("audit", str(session), *SMALL, "--seeds", "0", *key, model=False)[0] == 0
    assert loopback.count > count
    count = loopback.count
    with LoopbackServer() as other:
        lm = ("--lm", f"judge=openai/{other.model}", "--api-base", other.base_url, *key)
        code, _, stderr = typed("audit", str(session), *SMALL, "--seeds", "0", *lm, model=False)
        assert (code, other.count, loopback.count) == (2, 0, count)
        assert f"judge openai/{loopback.model} and not openai/{other.model}" in stderr
        (session / "audit" / "judge" / "calls.jsonl").unlink()
        assert typed("audit", str(session), *SMALL, "--seeds", "0", *lm, model=False)[0] == 0
        assert 0 < other.count <= 8
    models = json.loads((session / "audit" / "audit.json").read_text())["models"]
    assert models["judge"] == f"openai/{other.model}"
    assert models["participant"] == f"openai/{loopback.model}"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--samples", "0"), "samples=0"),
        (("--seeds", "-1"), "seeds=-1"),
        (("--sources", "0"), "sources=0"),
        (("--edges", "0"), "edges=0"),
        (("--concurrency", "0"), "max_concurrency=0"),
        (("--concurrency", "-4"), "max_concurrency=-4"),
        (("--max-tokens", "0"), "0 tokens"),
        (("--seeds", "some"), "some"),
    ],
)
def test_wrong_numbers_are_told_in_one_line_and_cost_nothing(
    typed: Typed, session: Path, loopback: LoopbackServer, words: tuple[str, str], told: str
) -> None:
    count = loopback.count
    code, stdout, stderr = typed("audit", str(session), *words)
    assert (code, stdout, loopback.count) == (2, "", count)
    assert told in stderr
    assert len(stderr.strip().splitlines()) == 1
    assert not (session / "audit").exists()


def test_what_cannot_be_audited_is_told_in_one_line(typed: Typed, session: Path, tmp_path: Path) -> None:
    assert typed("debate", "x", "--agents", "2", "--rounds", "1", "--k", "1", "--out", str(tmp_path / "debate"))[0] == 0
    code, _, stderr = typed("audit", str(tmp_path / "debate"))
    assert code == 2
    assert "holds a session of Debate" in stderr
    code, _, stderr = typed("audit", str(tmp_path / "nowhere"))
    assert code == 2
    assert "There is no session" in stderr
    log = session / "session.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    code, stdout, stderr = typed("audit", str(session))
    assert code == 1
    assert stdout == ""
    assert f"salon brainstorm --resume {session}" in stderr
    assert len(stderr.strip().splitlines()) == 1
