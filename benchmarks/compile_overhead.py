"""What a compile takes beside its sessions and ratings, which wait for models.

A Debate of two agents is compiled for quality and Vendi on 8 tasks, 3 sessions each, against a server that takes
half a second for a call, eight calls at once. The time in which sessions are held and rated is taken out of the
wall time of the whole search: what is left is suggesting, embedding, measuring and writing down. Then the programs
that were tried hold the same sessions once more with the evaluation's engine alone, without a search around them.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from .material import warm_embedder  # sets the environment before DSPy is imported

import dspy  # isort: skip
from salon.data.benchmarks import Task
from salon.data.rubrics import RUBRICS
from salon.evals.engine import LocalEngine, Todo
from salon.evals.jobs import jobs_of
from salon.evals.judges import RubricJudge
from salon.evals.methods import ProgramMethod
from salon.modules import Debate
from salon.modules.budget import Account, Budget
from salon.optimize import bench as benches
from salon.optimize.objectives import objectives_of
from salon.optimize.study import tune
from salon.optimize.trials import Tuned

from salon.testing import LoopbackProcess

DELAY, TRIALS, GROUPS, AT_ONCE = 0.5, 5, 3, 8
TASKS = [Task(f"q{n}", f"Name an idea for a garden, number {n}.", f"q{n}") for n in range(8)]


class Clocked(LocalEngine):
    """Does jobs, and knows how long that takes."""

    seconds = 0.0

    async def run(self, todo: Todo, done: Any) -> str:
        """Do all jobs."""
        start = time.perf_counter()
        try:
            return await super().run(todo, done)
        finally:
            Clocked.seconds += time.perf_counter() - start


async def _search(place: Path, program: Debate, judge: RubricJudge) -> tuple[Tuned, float]:
    kept = benches.Bench(place / "sessions", judge, GROUPS, 0, None, AT_ONCE, program.embedder)
    goals = objectives_of(["quality", "vendi"], GROUPS)
    start = time.perf_counter()
    found = await tune(program, kept, TASKS, goals, out=place, trials=TRIALS, race=1, confirm=0)
    return found, time.perf_counter() - start


async def _alone(place: Path, found: Tuned, judge: RubricJudge) -> float:
    """Hold and rate the sessions of all programs that were tried, one program after the other."""
    start = time.perf_counter()
    for record in found.trials:
        if record.copy_of is None:
            methods = {"program": ProgramMethod("program", found.program_of(record))}
            limit, purse = asyncio.Semaphore(AT_ONCE), Account(Budget())
            engine = LocalEngine(methods, judge, place / str(record.number), limit, purse, 2 * AT_ONCE)
            await engine.run([(job, None) for job in jobs_of(["program"], TASKS, GROUPS, 0)], lambda _: None)
    return time.perf_counter() - start


def measure() -> dict[str, str]:
    """Run the search and return figures by name."""
    program = Debate(agents=2, rounds=1, embedder=warm_embedder())
    benches.LocalEngine = Clocked  # type: ignore[misc]
    try:
        with tempfile.TemporaryDirectory() as place, LoopbackProcess(delay=DELAY) as server:
            lm = server.lm(cache=False)
            judge = RubricJudge(RUBRICS["ideas"], [lm])
            with dspy.context(lm=lm):
                program(task="a warm-up")
                found, wall = asyncio.run(_search(Path(place) / "search", program, judge))
                held = Clocked.seconds
                alone = asyncio.run(_alone(Path(place) / "alone", found, judge))
    finally:
        benches.LocalEngine = LocalEngine  # type: ignore[misc]
    trials = sum(record.copy_of is None for record in found.trials)
    return {
        "own time of a trial / its sessions and ratings (at most 5 %)": f"{(wall - held) / held:.1%}  "
        f"({(wall - held) / trials * 1000:.0f} ms of {wall / trials:.2f} s)",
        "the same trials / their sessions held by the evaluation alone": f"{wall / alone:.3f}  "
        f"({wall:.1f} s / {alone:.1f} s)",
    }
