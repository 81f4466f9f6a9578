"""Calls a second of the local engine and of Ray workers on this machine, against a server that answers at once.

The server is a process of its own and takes its share of the CPUs, as do Ray's own processes. Needs the extra ``ray``:
``python -m benchmarks.run cluster_speed``.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
from salon.evals.cluster import ray_engine
from salon.evals.runner import Progress, evaluate

from salon.testing import LoopbackProcess

from .material import warm_embedder

QUERIES, RUNS, IN_FLIGHT = 20, 30, 32
JOBS = QUERIES * RUNS


def _rate(server: LoopbackProcess, out: Path, engine: Callable[..., Any] | None) -> float:
    """Return calls a second between a quarter of the jobs and the last one, when all workers are warm."""
    times: dict[int, float] = {}

    def tell(progress: Progress) -> None:
        times[progress.done] = time.perf_counter()

    with dspy.context(lm=server.lm(cache=False)):
        given: Any = {"queries": QUERIES, "runs": RUNS, "compare": 0, "max_concurrency": IN_FLIGHT, "tell": tell}
        evaluate("direct", out=out, engine=engine, **given)
    return 2 * (JOBS - JOBS // 4) / (times[JOBS] - times[JOBS // 4])


def measure() -> dict[str, str]:
    """Return the figures by name."""
    warm_embedder()
    figures = {"CPUs": str(os.cpu_count())}
    engines = {"local engine": None, "1 Ray worker": ray_engine(workers=1), "2 Ray workers": ray_engine(workers=2)}
    with tempfile.TemporaryDirectory() as place, LoopbackProcess() as server:
        for name, engine in engines.items():
            rate = _rate(server, Path(place) / name.replace(" ", "-"), engine)
            figures[f"{name}, calls a second"] = f"{rate:.0f}"
    return figures
