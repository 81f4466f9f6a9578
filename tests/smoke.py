"""Run by .ci/run with the installed wheel, away from the source tree: session, evaluation and compile over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import salon
from salon.testing import LoopbackProcess

assert "site-packages" in str(salon.__file__), salon.__file__
for name in salon.__all__:
    assert getattr(salon, name) is not None
assert len(salon.load_benchmark("topics")) == 60
with tempfile.TemporaryDirectory() as place, LoopbackProcess() as server:
    out = Path(place) / "session"
    command = [str(Path(sys.executable).parent / "salon"), "brainstorm", "a topic", "--personas", "2"]
    options = ["--turns", "1", "--lm", f"openai/{server.model}", "--api-base", server.base_url]
    done = subprocess.run([*command, *options, "--out", str(out), "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["status"] == "complete"
    assert document["ideas"]
    assert {f.name for f in out.iterdir()} == {"session.jsonl", "session.json", "ideas.md", "ideas.csv"}
    report = subprocess.run([command[0], "report", str(out)], capture_output=True, text=True)
    assert report.returncode == 0, report.stderr
    assert Path(report.stdout.strip()).read_text(encoding="utf-8").startswith("<!doctype html>")
    model = ["--lm", f"openai/{server.model}", "--api-base", server.base_url]
    size = ["--queries", "1", "--groups", "2", "--out"]
    for arguments in (
        ["eval", "--methods", "direct,voting", "--runs", "2", *size, f"{place}/evaluation"],
        ["compile", "debate(agents=2,rounds=1)", "--held-out", "1", "--trials", "2", *size, f"{place}/compiled"],
    ):
        done = subprocess.run([command[0], *arguments, *model, "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
    assert (Path(place) / "evaluation" / "report.html").exists()
    assert type(salon.load(f"{place}/compiled")).__name__ == "Debate"
print("the wheel works")
