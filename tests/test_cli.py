"""The command line as users type it: whole commands against a loopback server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from salon.cli import main, parser
from salon.testing import LoopbackServer

POOL = "name,sketch\nAnn,A retired nurse who reads labels with a magnifier.\nBo,A courier who rides in the rain.\n"
Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def pool(tmp_path: Path) -> str:
    path = tmp_path / "pool.csv"
    path.write_text(POOL)
    return str(path)


@pytest.fixture
def typed(loopback: LoopbackServer, capsys: pytest.CaptureFixture[str], quick: None) -> Typed:
    """Type a command; return exit code, stdout and stderr."""

    def run(*words: str, model: bool = True) -> tuple[int, str, str]:
        lm = ["--lm", f"openai/{loopback.model}", "--api-base", loopback.base_url] if model else []
        try:
            code = main([*words, *lm])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Embed without loading a model: these tests look at commands, not at distances."""
    import numpy as np
    from salon.modules import Embedder

    def spread(texts: list[str]) -> object:
        return np.stack([np.random.default_rng(abs(hash(text)) % 2**32).normal(size=64) for text in texts])

    monkeypatch.setattr(Embedder, "_encoder", lambda _: spread)


def test_help_names_every_command_and_loads_nothing_heavy() -> None:
    code = (
        "import sys, salon.cli\n"
        "try: salon.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'dspy', 'torch', 'pandas', 'litellm', 'numpy', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in ("brainstorm", "chat", "debate", "replay", "export", "doctor"):
        assert name in done.stdout
    assert parser().prog == "salon"


def test_a_session_ends_in_ideas_and_a_folder(typed: Typed, pool: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, stdout, stderr = typed("brainstorm", "smart glasses", "--personas", pool, "--turns", "1", "--out", str(out))
    assert code == 0
    assert stdout.startswith("1. ")
    assert "votes" in stdout
    assert "Ann" in stderr
    assert "discussion" in stderr
    assert "voting" in stderr
    assert str(out) in stderr
    assert {path.name for path in out.iterdir()} == {"session.jsonl", "session.json", "ideas.md", "ideas.csv"}
    code, stdout, _ = typed("replay", str(out), "--json", model=False)
    assert code == 0
    assert json.loads(stdout)["ideas"] == json.loads((out / "session.json").read_text())["ideas"]


def test_the_folder_has_a_default(typed: Typed, pool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, _ = typed("brainstorm", "Ünusual: topic / here?", "--personas", pool, "--turns", "0", "--ideas", "1")
    assert code == 0
    (folder,) = (tmp_path / "salon-runs").iterdir()
    assert folder.name.endswith("-ünusual-topic-here")


def test_json_is_all_of_stdout(typed: Typed, pool: str, tmp_path: Path) -> None:
    words = ("brainstorm", "glasses", "--personas", pool, "--turns", "1", "--json", "--out", str(tmp_path / "run"))
    code, stdout, _ = typed(*words)
    document = json.loads(stdout)
    assert code == 0
    assert document["status"] == "complete"
    assert [idea["rank"] for idea in document["ideas"]] == list(range(1, len(document["ideas"]) + 1))
    assert all(idea["history"].startswith("Proposed by") for idea in document["ideas"])


def test_a_session_is_never_overwritten_without_force(
    typed: Typed, pool: str, tmp_path: Path, loopback: LoopbackServer
) -> None:
    words = (
        "brainstorm",
        "glasses",
        "--personas",
        pool,
        "--turns",
        "0",
        "--ideas",
        "1",
        "--out",
        str(tmp_path / "run"),
    )
    assert typed(*words)[0] == 0
    before, count = (tmp_path / "run" / "session.jsonl").read_bytes(), loopback.count
    code, _, stderr = typed(*words)
    assert code == 2
    assert "--resume" in stderr
    assert "--force" in stderr
    assert len(stderr.splitlines()) == 1
    assert (tmp_path / "run" / "session.jsonl").read_bytes() == before
    assert loopback.count == count
    assert typed(*words, "--force", "--seed", "5")[0] == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "diary.txt").write_text("mine")
    code, _, stderr = typed(*words[:-1], str(tmp_path / "other"), "--force")
    assert code == 2
    assert "not empty" in stderr
    assert (tmp_path / "other" / "diary.txt").read_text() == "mine"


def test_a_dry_run_spends_nothing(typed: Typed, pool: str, loopback: LoopbackServer, tmp_path: Path) -> None:
    words = ("brainstorm", "glasses", "--personas", pool, "--turns", "2", "--dry-run", "--out", str(tmp_path / "run"))
    code, stdout, _ = typed(*words)
    assert code == 0
    assert "Nothing was spent" in stdout
    assert loopback.count == 0
    assert not (tmp_path / "run").exists()
    priced = json.loads(typed(*words, "--json", "--lm", "openai/gpt-4o-mini", model=False)[1])
    assert priced["usd"] > 0
    assert priced["calls"] == 2 * 2 + 2 + 2 + 1 + 4 + 2  # thoughts, floor, looks, summary, ideas, ballots


def test_a_dry_run_comes_near_the_real_thing(typed: Typed, pool: str, loopback: LoopbackServer, tmp_path: Path) -> None:
    words = ("brainstorm", "glasses", "--personas", pool, "--turns", "4", "--json")
    expected = json.loads(typed(*words, "--dry-run")[1])
    usage = json.loads(typed(*words, "--out", str(tmp_path / "run"))[1])["usage"]
    assert usage["calls"] == pytest.approx(expected["calls"], rel=0.35)
    assert usage["prompt_tokens"] == pytest.approx(expected["prompt_tokens"], rel=0.5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["brainstorm"], "no topic"),
        (["brainstorm", "  "], "no topic"),
        (["brainstorm", "x", "--personas", "1"], "at least 2"),
        (["brainstorm", "x", "--personas", "-3"], "at least 2"),
        (["brainstorm", "x", "--personas", "missing.csv"], "missing.csv"),
        (["brainstorm", "x", "--minutes", "-1"], "-1"),
        (["brainstorm", "x", "--max-tokens", "0"], "0"),
        (["brainstorm", "x", "--concurrency", "0"], "max_concurrency"),
        (["brainstorm", "x", "--turns", "many"], "many"),
        (["brainstorm", "x" * 100_000], "too long"),
        (["brainstorm", "--resume", "nowhere"], "nowhere"),
        (["brainstorm", "x", "--program", "nowhere"], "nowhere"),
        (["brainstorm", "x", "--lm", "gpt"], "provider/model"),
        (["brainstorm", "x", "--out", "/proc/nothing/here"], "/proc/nothing/here"),
        (["debate"], "no task"),
        (["debate", "x", "--peers", "nearest"], "nearest"),
        (["chat"], "no problem"),
        (["chat", "x", "--threshold", "11"], "11"),
        (["replay", "nowhere"], "nowhere"),
        (["sing"], "sing"),
    ],
)
def test_a_mistake_gets_one_line_and_costs_nothing(
    typed: Typed, loopback: LoopbackServer, words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, stdout, stderr = typed(*words, model="--lm" not in words and words[0] not in ("replay", "sing"))
    assert code == 2
    assert stdout == ""
    assert said in stderr
    assert len(stderr.strip().splitlines()) == 1
    assert stderr.startswith("salon: ")
    assert loopback.count == 0


def command_in_a_process(server: LoopbackServer, out: Path, *words: str, **env: str) -> subprocess.Popen[str]:
    model = ["--lm", f"openai/{server.model}", "--api-base", server.base_url, "--out", str(out)]
    command = [sys.executable, "-c", "from salon.cli import main; raise SystemExit(main())", *words, *model]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}
    )


def wait_for(log: Path, text: str) -> None:
    for _ in range(600):
        if log.exists() and text in log.read_text():
            return
        time.sleep(0.05)
    raise AssertionError(f"{text} never came up in {log}")


def test_ctrl_c_once_votes_on_what_is_there(pool: str, tmp_path: Path, typed: Typed) -> None:
    with LoopbackServer(delay=0.05) as server:
        process = command_in_a_process(
            server, tmp_path / "run", "brainstorm", "glasses", "--personas", pool, "--turns", "500"
        )
        wait_for(tmp_path / "run" / "session.jsonl", '"type":"idea"')
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert "1. " in stdout
    assert "Cut short: asked to wrap up" in stderr
    assert "--resume" in stderr
    end = json.loads((tmp_path / "run" / "session.jsonl").read_text().splitlines()[-1])
    assert end["status"] == "cut short"


def test_ctrl_c_twice_stops_and_the_folder_can_be_resumed(pool: str, tmp_path: Path) -> None:
    log = tmp_path / "run" / "session.jsonl"
    with LoopbackServer(delay=0.3) as server:
        words = ("brainstorm", "glasses", "--personas", pool, "--turns", "2", "--no-facilitator")
        process = command_in_a_process(server, tmp_path / "run", *words)
        wait_for(log, '"type":"comment"')
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 130, stderr
        assert f"salon brainstorm --resume {tmp_path / 'run'}" in stderr
        assert '"kind":"end"' not in log.read_text()
        lm = ["--lm", f"openai/{server.model}", "--api-base", server.base_url]
        assert main(["brainstorm", "--resume", str(tmp_path / "run"), *lm]) in (0, 1)
    assert '"kind":"end"' in log.read_text()


def test_a_plain_locale_does_not_break_it(pool: str, tmp_path: Path) -> None:
    with LoopbackServer() as server:
        process = command_in_a_process(
            server,
            tmp_path / "run",
            "brainstorm",
            "Brillen für ältere Leute 👓",
            "--personas",
            pool,
            "--turns",
            "0",
            LANG="C",
            LC_ALL="C",
            PYTHONUTF8="0",
            PYTHONCOERCECLOCALE="0",
        )
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert "1. " in stdout
    assert "Traceback" not in stderr


def test_a_debate_prints_its_answer_and_how_diversity_moved(typed: Typed, tmp_path: Path) -> None:
    words = ("debate", "A use for old umbrellas", "--agents", "3", "--rounds", "1", "--k", "1")
    code, stdout, stderr = typed(*words, "--out", str(tmp_path / "run"))
    assert code == 0
    assert "Mean distance of the answers by round" in stdout
    assert "round 1 is written" in stderr
    assert "How different the answers were" in (tmp_path / "run" / "ideas.md").read_text()
    code, stdout, _ = typed(*words, "--preset", "homogeneous", "--json", "--out", str(tmp_path / "other"))
    document = json.loads(stdout)
    assert document["settings"]["lenses"] == []
    assert document["settings"]["peers"] == "all"


def test_a_chat_works_in_a_pipe(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    said = "I send mail too early\n\n/threshold 0\n/ask Engineer\n/ask Nobody\n/dance\n/threshold high\nbye\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(said))
    code, stdout, stderr = typed("chat", "How might people recall mail?", "--out", str(tmp_path / "run"))
    assert code == 0
    assert "█" in stdout
    assert "Designer" in stdout
    assert "Sage:" in stdout
    assert "There is no expert 'Nobody'" in stdout
    assert "There is no command /dance" in stdout
    assert "'high' is no threshold" in stdout
    assert "Saved in" in stderr
    log = [json.loads(line) for line in (tmp_path / "run" / "session.jsonl").read_text().splitlines()]
    messages = [record["text"] for record in log if record.get("type") == "message"]
    assert messages == ["I send mail too early", "bye"]
    assert any(record.get("key", "").endswith("/person") and record["value"].get("threshold") == 0 for record in log)


def test_a_chat_is_resumed_where_it_stopped(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loopback: LoopbackServer
) -> None:
    import io

    out = str(tmp_path / "run")
    monkeypatch.setattr(sys, "stdin", io.StringIO("first\n/quit\n"))
    assert typed("chat", "a problem", "--out", out)[0] == 0
    count = loopback.count
    monkeypatch.setattr(sys, "stdin", io.StringIO("second\n/quit\n"))
    code, _, _ = typed("chat", "--resume", out)
    assert code == 0
    assert loopback.count > count
    log = [json.loads(line) for line in Path(out, "session.jsonl").read_text().splitlines()]
    assert [record["text"] for record in log if record.get("type") == "message"] == ["first", "second"]


def test_a_resumed_session_keeps_the_models_that_are_not_named(
    pool: str, quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever names one role's model must not turn the others to another model or address."""
    out = str(tmp_path / "run")
    words = ["--personas", pool, "--turns", "3", "--ideas", "1", "--out", out, "--max-calls", "8", "--api-key", "k"]
    with LoopbackServer(model="first") as first, LoopbackServer(model="second") as second:
        assert main(["brainstorm", "Tea", *words, "--lm", "openai/first", "--api-base", first.base_url]) == 0
        before = len(first.requests)
        again = ["brainstorm", "--resume", out, "--lm", "facilitator=openai/second", "--api-base", second.base_url]
        assert main([*again, "--api-key", "k"]) == 0
        assert len(first.requests) > before
        assert {request.body["model"] for request in first.requests} == {"first"}
        assert second.requests
        assert all("action" in r.fields or "summary" in r.fields for r in second.requests)
    assert "Complete" in capsys.readouterr().err
