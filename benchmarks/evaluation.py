"""An evaluation of 1,000 jobs: wall time against its floor, memory, and calls repeated after kill -9.

Each job is a call for an answer and a call for its rating, against a loopback server in a process of its own that
answers each request after two seconds, with 32 calls in flight. The floor is calls x delay / calls in flight: what no
evaluation can beat. DSPy's client takes some 10 ms of CPU time for a call, so that a process which keeps 32 calls of
two seconds in flight is busy with it for a sixth of the time. DSPy's response cache is off.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dspy
from salon.evals.jobs import read_rows
from salon.evals.runner import Progress, evaluate

from salon.testing import LoopbackProcess

from .material import warm_embedder

DELAY, IN_FLIGHT = 2.0, 32
QUERIES, RUNS = 50, 20
JOBS, CALLS = QUERIES * RUNS, 2 * QUERIES * RUNS


def hold(api_base: str, model: str, out: str | Path, **settings: Any) -> Any:
    """Evaluate, or go on with an evaluation."""
    given = {"queries": QUERIES, "runs": RUNS, "compare": 0, "max_concurrency": IN_FLIGHT, **settings}
    lm = dspy.LM(f"openai/{model}", api_base=api_base, api_key="loopback", cache=False)
    with dspy.context(lm=lm):
        return evaluate("direct", out=out, **given)


def resident() -> float:
    """Return the memory this process has now, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def _killed(server: LoopbackProcess, out: Path) -> tuple[int, int]:
    """Kill an evaluation halfway and go on with it; return calls in flight at the kill, and calls in all."""
    code = f"from benchmarks.evaluation import hold; hold({server.base_url!r}, {server.model!r}, {str(out)!r})"
    child = subprocess.Popen([sys.executable, "-c", code])
    while (stats := server.stats())["count"] < CALLS // 2 and child.poll() is None:
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    hold(server.base_url, server.model, out)
    return int(stats["in_flight"]), server.count


def measure() -> dict[str, str]:
    """Return the figures by name."""
    memory: dict[int, float] = {}
    started, ended = 0.0, 0.0

    def tell(progress: Progress) -> None:
        nonlocal ended
        if progress.done in (JOBS // 4, JOBS):
            memory[progress.done], ended = resident(), time.perf_counter()

    warm_embedder()
    with tempfile.TemporaryDirectory() as place, LoopbackProcess(delay=DELAY) as server:
        hold(server.base_url, server.model, Path(place) / "warm", queries=1, runs=1)
        server.reset()
        started, busy = time.perf_counter(), time.process_time()
        hold(server.base_url, server.model, Path(place) / "whole", tell=tell)
        wall, busy = ended - started, time.process_time() - busy
        tables = time.perf_counter() - ended
        calls, most = server.count, server.max_in_flight
        server.reset()
        in_flight, again = _killed(server, Path(place) / "cut")
        rows = [{key: row.answer for key, row in read_rows(Path(place) / name).items()} for name in ("whole", "cut")]
    floor = CALLS * DELAY / IN_FLIGHT
    return {
        f"{JOBS} jobs, wall / floor (at most 1.15)": f"{wall / floor:.3f}  ({wall:.1f} s / {floor:.1f} s)",
        "calls made, calls in flight at most": f"{calls}, {most}",
        "own CPU time for each call, tables included": f"{1000 * busy / calls:.1f} ms",
        "tables and diversity, after the last row": f"{tables:.1f} s",
        "memory at a quarter of the jobs, at the end": f"{memory[JOBS // 4]:.0f} MiB, {memory[JOBS]:.0f} MiB",
        "killed halfway: calls in all, in flight at the kill": f"{again} of {CALLS}, {in_flight}",
        "answers as without a kill": "the same" if rows[0] == rows[1] else "others",
    }
