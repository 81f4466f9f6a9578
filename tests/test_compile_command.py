"""``salon compile`` as users type it, and as they kill it."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import dspy
import pytest

import salon
from salon.cli import main
from salon.testing import ChatRequest, LoopbackServer, default_reply

KEY = "sk-my-own-key-123"
SMALL = ("--queries", "2", "--held-out", "2", "--groups", "2", "--concurrency", "4")
STEPS = ("debate(agents=2,rounds=0)", "--objectives", "quality", "--pick", "quality", "--tune", "rounds=0:2")
STEPS = (*STEPS, "--sampler", "grid", *SMALL)
PLAIN = ("debate(agents=2,rounds=0)", "--objectives", "div_bleu,tokens", "--no-judged", "--tune", "temperature", *SMALL)
Typed = Callable[..., tuple[int, str, str]]


def by_steps(request: ChatRequest) -> Any:
    """Write answers that get better with each revision, up to the second."""
    if "originality" in request.fields:
        value = 3 + 3 * min(request.text.count("again"), 2)
        return {name: "so" if name == "reason" else value for name in request.fields}
    if "critique" in request.fields:
        own = request.text.rpartition("[[ ## own ## ]]")[2].split("[[ ##")[0]
        return {"critique": "", "answer": f"Corks {'again ' * (own.count('again') + 1)}"}
    return {"answer": "Corks"} if "answer" in request.fields else default_reply(request)


@pytest.fixture
def stepped() -> Iterator[LoopbackServer]:
    """A model whose answers get better with each revision."""
    with LoopbackServer(reply=by_steps) as server:
        yield server


def reach(server: LoopbackServer) -> list[str]:
    return ["--lm", f"openai/{server.model}", "--api-base", server.base_url, "--api-key", KEY]


@pytest.fixture
def typed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_embeddings: None
) -> Typed:
    """Type ``salon compile``, with no cache; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(server: LoopbackServer, *words: str, command: str = "compile") -> tuple[int, str, str]:
        dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
        try:
            code = main([command, *words, *reach(server)])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return (code, *capsys.readouterr())

    return run


def told(folder: Path) -> dict[str, Any]:
    """Return the report in a folder without its times."""
    content = json.loads((folder / "compile.json").read_text())
    for usage in (*content["usage"].values(), *(trial["usage"] for trial in content["trials"])):
        del usage["seconds"]
    return {name: value for name, value in content.items() if name not in ("seconds", "started")}


# ---------------------------------------------------------------- what it prints


def test_the_card_goes_to_stdout_and_the_program_can_be_used(
    typed: Typed, stepped: LoopbackServer, tmp_path: Path
) -> None:
    out = tmp_path / "compiled"
    code, stdout, stderr = typed(stepped, *STEPS, "--trials", "3", "--out", str(out))
    assert code == 0, stderr
    assert stdout == (out / "card.md").read_text().replace("'FOLDER'", repr(str(out))) + "\n"
    assert "the tuned program is better" in stdout
    assert "| rounds | 0 | 2 |" in stdout
    assert "The judge is the model that answers" in stderr
    assert re.search(r"Trial \d: complete, quality .*; \d of 3 done", stderr)
    assert f"Page: {out / 'report.html'}" in stderr
    assert KEY not in stdout + stderr + "".join(p.read_text() for p in out.glob("*.json"))
    calls = stepped.count
    code, stdout, stderr = typed(stepped, *STEPS, "--trials", "3", "--out", str(out), "--json")
    assert (code, stepped.count) == (0, calls)
    assert json.loads(stdout)["better"] is True
    assert json.loads(stdout)["program"]["numbers"]["rounds"] == 2
    code, stdout, _ = typed(stepped, "a use for hats", "--program", str(out), command="debate")
    assert code == 0
    assert "Corks again again" in stdout
    (out / "report.html").unlink()
    assert main(["report", str(out)]) == 0
    assert (out / "report.html").exists()


def test_without_a_folder_the_same_command_finds_its_own(
    typed: Typed, loopback: LoopbackServer, tmp_path: Path
) -> None:
    code, _, stderr = typed(loopback, *PLAIN, "--trials", "1")
    assert code == 0
    calls, folders = loopback.count, list((tmp_path / "salon-runs").iterdir())
    assert [folder.name.startswith("compiled-debate-") for folder in folders] == [True]
    assert f"The compile is in {folders[0].relative_to(tmp_path)}" in stderr
    assert typed(loopback, *PLAIN, "--trials", "1")[0] == 0
    assert loopback.count == calls
    typed(loopback, *PLAIN, "--trials", "1", "--seed", "2")
    assert len(list((tmp_path / "salon-runs").iterdir())) == 2


def test_a_dry_run_spends_nothing(typed: Typed, loopback: LoopbackServer, tmp_path: Path) -> None:
    code, stdout, _ = typed(loopback, *STEPS, "--dry-run", "--trials", "20", "--prompts", "gepa")
    assert code == 0
    # 3 programs x 2 tasks + 2 x 2 held-out tasks + 20 x 1 sets for prompts, 2 sessions each
    assert "3 variants of Debate (rounds 0 to 2), 60 sessions" in stdout
    assert "40 of them are for prompts" in stdout
    assert "Nothing was spent." in stdout
    assert loopback.count == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("nothing",), 2, "There is no method 'nothing'"),
        (("json:dumps",), 2, "json:dumps cannot be compiled: it is no session program"),
        (("json:nothing",), 2, "json:nothing cannot be imported"),
        (("debate(agents=2)", "--objectives", "beauty"), 2, "There is no objective 'beauty'"),
        (("debate", "--objectives", ""), 2, "are not possible"),
        (("debate", "--pick", "cheapest"), 2, "'cheapest' picks by cost"),
        (("debate", "--pick", "best"), 2, "invalid choice"),
        (("debate", "--sampler", "oracle"), 2, "invalid choice"),
        (("debate", "--tune", "luck"), 2, "There is no number 'luck'"),
        (("debate", "--tune", "rounds=a:b"), 2, "--tune 'rounds=a:b' cannot be read"),
        (("debate", "--tune", "rounds=3:1"), 2, "rounds cannot be searched"),
        (("debate", "--limit", "vendi"), 2, "--limit 'vendi' cannot be read"),
        (("debate", "--limit", "tokens=9"), 2, "There is no limit of 'tokens'"),
        (("debate", "--objectives", "quality,depth", "--pick", "quality"), 2, "depth cannot be reached"),
        (("debate", "--only", "draft"), 2, "The prompt of 'draft' is not tuned"),
        (("debate", "--reflection", "openai/x"), 2, "--reflection would do nothing"),
        (("debate", "--reflection", "openai/x", "--prompts", "bootstrap"), 2, "--reflection would do nothing"),
        (("debate", "--no-judged"), 2, "Quality cannot be reached without a judge"),
        (("debate", "--groups", "1"), 2, "vendi cannot be measured"),
        (("debate", "--queries", "0"), 2, "--queries 0 is not possible"),
        (("debate", "--held-out", "0"), 2, "--held-out 0 is not possible"),
        (("debate", "--bench", "nowhere.csv"), 2, "nowhere.csv"),
        (("debate", "--trials", "0"), 2, "trials=0"),
        (("debate", "--max-calls", "0"), 2, "0 calls"),
        (("debate", "--storage", "oracle://x"), 2, "cannot be opened"),
        (("debate", "--prompts", "gepa", "--queries", "1"), 2, "One task is too few"),
        (("debate", "--out", "/proc/no"), 2, "cannot be written"),
        (("debate(agents=2,rounds=0)", "--max-calls", "5", *SMALL), 1, "the budget of 5 calls is used up"),
    ],
)
def test_mistakes_are_one_line(
    words: Sequence[str], code: int, why: str, typed: Typed, loopback: LoopbackServer
) -> None:
    found, stdout, stderr = typed(loopback, *words)
    lines = [line for line in stderr.splitlines() if line.startswith("salon: ")]
    assert (found, stdout, len(lines)) == (code, "", 1)
    assert why in lines[0]
    assert "Traceback" not in stderr
    assert loopback.count <= (5 if code == 1 else 0)


def test_a_budget_leaves_an_artifact_that_tells_and_more_goes_on(
    typed: Typed, stepped: LoopbackServer, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = (*STEPS, "--trials", "3", "--out", str(out))
    code, stdout, stderr = typed(stepped, *words, "--max-calls", "60")
    assert code == 1
    assert stepped.count <= 60
    assert "Nothing was tuned" in stdout
    assert "Cut short: " in stderr
    assert "larger limits goes on" in stderr
    assert salon.load(out).described()["state"]
    code, stdout, stderr = typed(stepped, *words)
    assert (code, "Cut short" in stderr) == (0, False)
    assert json.loads((out / "compile.json").read_text())["usage"]
    assert sum(usage["calls"] for usage in told(out)["usage"].values()) == stepped.count


@pytest.mark.parametrize(
    ("program", "number", "command", "text"),
    [
        ("roundtable(personas=2,turns=1,ideas=1,votes=1,facilitator=False)", "memory", "brainstorm", "a use for hats"),
        ("yes-and(experts=2,messages=1)", "temperature", "chat", "How might hats be used?"),
    ],
)
def test_each_program_is_compiled_and_then_used(
    program: str, number: str, command: str, text: str, typed: Typed, loopback: LoopbackServer, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    out, small = tmp_path / "compiled", ("--queries", "1", "--held-out", "1", "--groups", "2", "--trials", "2")
    words = (program, "--tune", number, *small, "--judge", f"openai/{loopback.model}", "--max-usd", "3")
    code, stdout, stderr = typed(loopback, *words, "--out", str(out))
    assert code == 0, stderr
    assert f"salon.load({str(out)!r})" in stdout
    assert "The judge is the model that answers" not in stderr
    calls = loopback.count
    assert typed(loopback, *words, "--out", str(out))[0] == 0
    assert loopback.count == calls
    monkeypatch.setattr(sys, "stdin", io.StringIO("They keep the sun off\n/quit\n"))
    code, stdout, stderr = typed(loopback, text, "--program", str(out), command=command)
    assert code == 0, stderr
    assert stdout.strip()
    assert loopback.count > calls
    code, _, stderr = typed(loopback, "x", "--program", str(out), command="debate")  # it is no debate
    assert code == 2
    assert str(out) in stderr


def test_on_a_terminal_the_front_is_shown_as_it_grows(tmp_path: Path) -> None:
    """In a real terminal of 100 columns, what is written to it without the moves of its cursor."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    env = {**os.environ, "TERM": "xterm"}
    with LoopbackServer(reply=by_steps, delay=0.2) as server, (tmp_path / "stdout").open("w") as output:
        words = [*STEPS, "--trials", "3", "--out", str(tmp_path / "out"), *reach(server)]
        process = subprocess.Popen(
            [sys.executable, "-c", _UNCACHED, "compile", *words], stdout=output, stderr=slave, env=env, cwd=tmp_path
        )
        os.close(slave)
        seen = b""
        with suppress(OSError):  # the end of a terminal
            while chunk := os.read(master, 65536):
                seen += chunk
        assert process.wait() == 0
    os.close(master)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert "Front after 1 of 3 trials" in text
    assert "Front after 3 of 3 trials" in text
    assert re.search(r"\d of 4 sessions; \d+ calls", text)
    assert re.search(r"trial\W+quality\W+numbers", text)
    assert re.search(r"9 ± 0 \(n=2\)\W+rounds 2", text)
    assert KEY not in text


# ---------------------------------------------------------------- processes


_UNCACHED = """
import hashlib, runpy
import dspy
import numpy as np
from salon.modules import Embedder

def spread(texts):
    seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts]
    return np.stack([np.random.default_rng(seed).normal(size=64) for seed in seeds])

Embedder._encoder = lambda _: spread  # as the fixture quick_embeddings does: no process loads a model
dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
runpy.run_module("salon", run_name="__main__")
"""


class Process:
    """``salon compile`` in a process of its own, where nothing but its folder helps it."""

    def __init__(self, server: LoopbackServer, words: Sequence[str], place: Path) -> None:
        place.mkdir(parents=True)
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-c", _UNCACHED, "compile", *words, *reach(server)]
        self.output, self.errors = (place / name for name in ("stdout", "stderr"))
        with self.output.open("w") as output, self.errors.open("w") as errors:
            self.process = subprocess.Popen(command, stdout=output, stderr=errors, env=env, cwd=place)

    def until(self, reached: Callable[[], bool], signalled: signal.Signals) -> None:
        """Wait for something, send a signal, and wait for the end."""
        while not reached():
            assert self.process.poll() is None, self.errors.read_text()
            time.sleep(0.005)
        self.process.send_signal(signalled)
        self.process.wait()

    def ended(self) -> int:
        return self.process.wait()


PHASES = {
    "untuned": "sessions/held-out/untuned/*",
    "trials": "sessions/training/*/seeds-0",
    "confirmation": "sessions/training/*/seeds-1",
    "prompts": "sessions/prompts/sessions/*",
    "verification": "sessions/held-out/trial-*",
}


def test_killed_wherever_it_is_it_goes_on_and_repeats_nothing(
    typed: Typed, stepped: LoopbackServer, tmp_path: Path
) -> None:
    words = (*STEPS, "--trials", "3", "--prompts", "gepa", "--only", "draft")
    code, _, errors = typed(stepped, *words, "--out", str(tmp_path / "whole"))
    assert code == 0, errors
    whole = stepped.count
    stepped.reset()
    out = tmp_path / "killed"
    for number, phase in enumerate(PHASES):
        seen: list[int] = []

        def reached(phase: str = phase, seen: list[int] = seen) -> bool:
            if not seen and any(out.glob(PHASES[phase])):
                seen.append(stepped.count)
            return bool(seen) and stepped.count >= seen[0] + 3

        Process(stepped, (*words, "--out", str(out)), tmp_path / f"run{number}").until(reached, signal.SIGKILL)
        assert not (out / "program.json").exists()
    last = Process(stepped, (*words, "--out", str(out)), tmp_path / "last")
    assert last.ended() == 0, last.errors.read_text()
    assert stepped.count <= whole + 4 * len(PHASES)  # what was in flight when it was killed
    assert told(out) == told(tmp_path / "whole")
    count = stepped.count
    assert Process(stepped, (*words, "--out", str(out)), tmp_path / "finished").ended() == 0
    assert stepped.count == count
    assert told(out) == told(tmp_path / "whole")


def test_two_processes_share_the_work(typed: Typed, stepped: LoopbackServer, tmp_path: Path) -> None:
    words = (*STEPS, "--trials", "3")
    assert typed(stepped, *words, "--out", str(tmp_path / "whole"))[0] == 0
    whole = stepped.count
    stepped.reset()
    out = tmp_path / "shared"
    both = [Process(stepped, (*words, "--out", str(out)), tmp_path / f"run{n}") for n in range(2)]
    for process in both:
        assert process.ended() == 0, process.errors.read_text()
    assert stepped.count == whole
    mine, alone = told(out), told(tmp_path / "whole")
    for name in ("held_out", "better", "verdict", "front", "usage", "program"):
        assert mine[name] == alone[name]
    cards = [re.sub(r"\d+ s$", "", process.output.read_text(), flags=re.M) for process in both]
    assert cards[0] == cards[1]


def test_ctrl_c_leaves_a_folder_and_the_command_to_go_on(
    typed: Typed, stepped: LoopbackServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    process = Process(stepped, (*STEPS, "--trials", "3", "--out", str(out)), tmp_path / "run")
    process.until(lambda: any(out.glob(PHASES["trials"])) and stepped.count > 18, signal.SIGINT)
    assert process.ended() == 130
    assert main(["report", str(out)]) == 2
    assert "has a compile that is not finished" in capsys.readouterr().err
    last = process.errors.read_text().splitlines()[-1]
    assert last.startswith(f"Stopped. What is done is in {out}. Go on with: salon compile ")
    assert KEY not in last
    assert "Traceback" not in process.errors.read_text()
    assert process.output.read_text() == ""
    before, again = stepped.count, shlex.split(last.partition("Go on with: salon compile ")[2])
    code, stdout, _ = typed(stepped, *again)  # with the key added, which it does not tell
    assert code == 0
    assert "the tuned program is better" in stdout
    assert stepped.count > before
    assert sum(usage["calls"] for usage in told(out)["usage"].values()) >= stepped.count - 4
