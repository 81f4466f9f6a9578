"""What a recorded, budgeted call of a session costs beyond a bare ``Predict.acall`` with the same inputs."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

import dspy
from salon.modules.adapters import adapter_for
from salon.modules.budget import Budget
from salon.modules.calls import Desk, LMs
from salon.modules.log import Recorded, SessionLog
from salon.signatures import Think

from salon.testing import LoopbackProcess

from .material import people

CALLS = 300


async def _compare(lm: object, desk: Desk) -> tuple[float, float]:
    predict = dspy.Predict(Think)
    inputs = {
        "topic": "AI smart glasses",
        "rules": "Everyone speaks for themselves.",
        "transcript": "\n".join(f"C{n} Person: " + "what was said here and there " * 10 for n in range(20)),
        "whiteboard": "I1 Glasses for the blind",
        "persona": people(1)[0].sketch,
        "notes": "T1 You: a thought",
    }
    bare: list[float] = []
    ours: list[float] = []
    for n in range(CALLS):
        start = time.perf_counter()
        with dspy.context(lm=lm, adapter=adapter_for(lm)):
            await predict.acall(**inputs, config={"temperature": 1.0, "rollout_id": 10_000_000 + n})
        bare.append(time.perf_counter() - start)
        start = time.perf_counter()
        await desk.ask(predict, f"t{n:04}/think/P1", "participant", "P1", **inputs)
        ours.append(time.perf_counter() - start)
    return median(bare[20:]), median(ours[20:])


def measure() -> dict[str, str]:
    """Return the overhead in milliseconds and as a ratio."""
    with tempfile.TemporaryDirectory() as place, LoopbackProcess() as server:
        lm = server.lm()
        log = SessionLog(Path(place), Recorded({"kind": "header", "version": 1}))

        async def run() -> tuple[float, float]:
            desk = Desk(log, LMs(default=lm), seed=1, budget=Budget(tokens=10**9), limit=asyncio.Semaphore(16))
            return await _compare(lm, desk)

        bare, ours = asyncio.run(run())
        log.close()
    return {
        "own overhead per call (at most 1 ms)": f"{(ours - bare) * 1000:.2f} ms  "
        f"(ratio {ours / bare:.2f}; bare Predict.acall {bare * 1000:.2f} ms)"
    }
