"""MLflow and Optuna's dashboard beside a compile, as the docs say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import dspy
import pytest
from salon.modules import Debate

import salon
from salon.testing import LoopbackServer

GOALS: dict[str, Any] = {"objectives": ["div_bleu", "tokens"], "judge": False, "groups": 2}

_SCRIPT = """
import json, sys
import dspy, mlflow, salon
mlflow.set_tracking_uri("sqlite:///mlflow.db")
mlflow.set_experiment("salon")
mlflow.dspy.autolog()
with dspy.context(lm=dspy.LM(sys.argv[1], api_base=sys.argv[2], api_key="x", cache=False)):
    salon.Debate(agents=2, rounds=0)(task="a use for corks", seed=1)
    mlflow.flush_trace_async_logging()
    (trace,) = mlflow.search_traces(return_type="list")
    mlflow.dspy.autolog(log_traces=False)
    with mlflow.start_run(run_name="compile"):
        program = salon.compile(
            salon.Debate(agents=2, rounds=0), ["corks"], ["hats"], ["div_bleu", "tokens"],
            judge=False, trials=1, groups=2, out="compiled",
        )
        report = program.compile_report
        mlflow.log_params(report.program.numbers)
        for name, measured in report.trial(report.picked).objectives.items():
            mlflow.log_metric(name, measured.value)
        for name, held in report.held_out.items():
            mlflow.log_metric(f"{name}_gain", held.difference.value)
        mlflow.log_artifacts("compiled", "compiled")
    mlflow.flush_trace_async_logging()
(run,) = mlflow.search_runs(output_format="list")
print(json.dumps({
    "spans": [span.name for span in trace.data.spans],
    "traces": len(mlflow.search_traces(return_type="list")),
    "params": run.data.params,
    "metrics": run.data.metrics,
    "files": [file.path for file in mlflow.artifacts.list_artifacts(run_id=run.info.run_id, artifact_path="compiled")],
}))
"""


def test_mlflow_traces_a_session_and_keeps_a_compile(loopback: LoopbackServer, tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="needs mlflow (pip install '.[mlflow]')")
    command = [sys.executable, "-c", _SCRIPT, f"openai/{loopback.model}", loopback.base_url]
    env = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["spans"][0] == "Debate.forward"
    assert sum(name == "LM.__call__" for name in found["spans"]) == 3
    assert found["traces"] == 1
    assert (found["params"]["rounds"], found["params"]["agents"]) == ("0", "2")
    assert found["metrics"].keys() == {"div_bleu", "tokens"}
    assert {"compiled/program.json", "compiled/card.md", "compiled/compile.json"} <= set(found["files"])


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_optunas_dashboard_shows_a_compile(loopback: LoopbackServer, tmp_path: Path) -> None:
    dashboard = pytest.importorskip("optuna_dashboard", reason="needs optuna-dashboard (pip install '.[dashboard]')")
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    with dspy.context(lm=loopback.lm()):
        salon.compile(Debate(agents=2, rounds=0), ["corks"], ["hats"], trials=2, out=tmp_path, **GOALS)
    app = dashboard.wsgi(JournalStorage(JournalFileBackend(str(tmp_path / "study.log"))))
    with make_server("127.0.0.1", 0, app, handler_class=_Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/api/studies"
        with urllib.request.urlopen(address) as answer:
            (study,) = json.load(answer)["study_summaries"]
        with urllib.request.urlopen(f"{address}/{study['study_id']}?after=0") as answer:
            shown = json.load(answer)
        server.shutdown()
    assert study["study_name"].startswith("Debate default ")
    assert study["directions"] == ["maximize", "minimize"]
    assert [trial["state"] for trial in shown["trials"]] == ["Complete", "Complete"]
    assert {param["name"] for param in shown["trials"][1]["params"]} == {"k", "rounds", "temperature"}
