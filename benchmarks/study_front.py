"""How close a search comes to a front that is known, and what it costs beside the measuring.

Loopback models stand in for an LM: ``front_rules`` says how the quality and the diversity of their answers follow from
the numbers of a program. Two programs are searched: a Debate by rounds, k, agents and temperature, and a YesAnd by
threshold, turns of experts and temperature.

All programs of a space are measured once, under the same seeds, so the true front is known, and studies look their
programs up in that table. Each of 10 seeds gives TPE, random search, TPE with two workers and NSGA-II 60 trials; the
area that a front dominates is given as a share of that of the true front.

Then a study of 12 trials (8 queries, 3 sessions each, 200 ms a call) tells what is spent beside the measuring.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from .material import warm_embedder  # sets the environment before DSPy is imported

import dspy  # isort: skip
from salon.data.benchmarks import Task
from salon.evals.jobs import JobRow
from salon.evals.ledger import together
from salon.evals.statistics import mean_interval
from salon.modules import Debate, Embedder, YesAnd
from salon.modules.program import SessionProgram
from salon.modules.streams import rollout_id
from salon.optimize.front import hypervolume, pareto
from salon.optimize.objectives import objectives_of, values_of
from salon.optimize.space import Dimension, points, program_key, size, space_of, with_values
from salon.optimize.study import tune

from salon.testing import ChatRequest, LoopbackProcess, LoopbackServer

from .front_rules import EXPERTS, Directions, chat_reply, debate_reply, quality_of

SEEDS, TRIALS, GROUPS = 10, 60, 2
TASKS = [Task(f"q{n}", f"Name an idea for sheet q{n}.", f"q{n}") for n in range(2)]
KINDS: dict[str, dict[str, Any]] = {
    "TPE": {"sampler": "tpe"},
    "random": {"sampler": "random"},
    "TPE, two workers": {"sampler": "tpe", "workers": 2},
    "NSGA-II": {"sampler": "nsga2"},
}


@dataclass(frozen=True)
class World:
    """A program, the model that answers it by a rule, and what is searched.

    Attributes:
        program: The untuned program.
        reply: The rule.
        space: What is searched.
        inputs: What a session is given beside the task.
    """

    program: SessionProgram
    reply: Callable[[ChatRequest], dict[str, Any]]
    space: dict[str, Dimension]
    inputs: Mapping[str, Any]


def worlds() -> dict[str, World]:
    """Return the programs with their rules, by name."""
    debate = Debate(embedder=Directions())
    chat = YesAnd(EXPERTS, embedder=Directions())
    numbers = space_of(debate, ranges={"agents": (2, 5), "temperature": (0.5, 1.3, 0.025)})
    floor = space_of(chat, ["threshold", "max_agent_turns", "temperature"], {"temperature": (0.6, 1.2, 0.1)})
    return {
        "Debate": World(debate, debate_reply, numbers, {}),
        "YesAnd": World(chat, chat_reply, floor, {"person": ["What comes to your mind?"]}),
    }


async def _row(world: World, program: SessionProgram, task: Task, run: int, said: bool) -> JobRow:
    """Hold a session; each run is asked on a sheet of its own, as rollout ids never reach a model."""
    text = task.text.replace(task.id, f"{task.id}-{run}") if said else task.text
    seed = rollout_id(0, task.id, run)
    session = await program.hold(**{program.inputs[0]: text}, **world.inputs, seed=seed)
    answer = program.answer(session)
    value = quality_of(answer) if said else 5.0
    rating = {"judge": "rule", "scores": {}, "value": value, "how": "", "reason": "", "error": ""}
    return JobRow(
        "program", task.id, run, seed, status="ok", answer=answer, ratings=[rating], calls=session.usage.calls
    )


async def _rows(
    world: World, program: SessionProgram, tasks: Sequence[Task], groups: int, said: bool = True
) -> list[JobRow]:
    return await together(_row(world, program, task, run, said) for task in tasks for run in range(1, groups + 1))


class Table:
    """A bench that looks up what was measured before."""

    def __init__(self, known: dict[str, list[JobRow]], embedder: Embedder) -> None:
        self.known, self.embedder, self.groups = known, embedder, GROUPS

    async def measure(self, program: Any, tasks: Sequence[Task], place: str, fresh: int = 0) -> list[JobRow]:
        """Return the rows of a program."""
        await asyncio.sleep(0.01)  # lets another worker in
        return self.known[program_key(program)]


class Timed:
    """A bench that holds its sessions, and knows how long that takes."""

    def __init__(self, world: World) -> None:
        self.world, self.embedder, self.groups, self.seconds = world, world.program.embedder, 3, 0.0

    async def measure(self, program: Any, tasks: Sequence[Task], place: str, fresh: int = 0) -> list[JobRow]:
        """Hold the sessions of a program."""
        start = time.perf_counter()
        rows = await _rows(self.world, program, tasks, self.groups, said=False)
        self.seconds += time.perf_counter() - start
        return rows


async def _enumerated(world: World) -> dict[str, list[JobRow]]:
    """Measure every program of a space once."""
    known: dict[str, list[JobRow]] = {}
    for at in range(size(world.space) or 0):
        variant = with_values(world.program, points(world.space, at))
        key = program_key(variant)
        if key not in known:
            known[key] = await _rows(world, variant, TASKS, GROUPS)
    return known


def _share(points_found: Sequence[dict[str, float | None]], known: Sequence[dict[str, float | None]]) -> float:
    worst = {name: min(point[name] or 0 for point in known) for name in ("quality", "vendi")}
    objectives = objectives_of(["quality", "vendi"], GROUPS)
    return hypervolume(points_found, objectives, worst) / hypervolume(known, objectives, worst)


async def _studied(world: World, table: Table, seed: int, **settings: Any) -> list[dict[str, float | None]]:
    with tempfile.TemporaryDirectory() as place:
        found = await tune(
            world.program, table, TASKS, objectives_of(["quality", "vendi"], GROUPS), out=Path(place), trials=TRIALS,
            space=world.space, seed=seed, race=1, confirm=0, **settings,
        )  # fmt: skip
    return [record.means for record in found.front]


def measure() -> dict[str, str]:
    """Run the studies and return figures by name."""
    figures = {}
    for name, world in worlds().items():
        figures |= {f"{name}, {what}": value for what, value in _measured(world).items()}
    return figures | _overhead()


def _measured(world: World) -> dict[str, str]:
    """Return how close searches come to the front of one program."""
    start, embedder = time.perf_counter(), world.program.embedder
    with LoopbackServer(reply=world.reply, keep=False) as server, dspy.context(lm=server.lm()):
        known = asyncio.run(_enumerated(world))
        calls, taken = server.count, time.perf_counter() - start
    objectives = objectives_of(["quality", "vendi"], GROUPS)
    values = [{n: v.value for n, v in values_of(rows, objectives, embedder).items()} for rows in known.values()]
    table = Table(known, embedder)
    shares = {
        name: [_share(asyncio.run(_studied(world, table, seed, **kind)), values) for seed in range(SEEDS)]
        for name, kind in KINDS.items()
    }
    figures = {
        "programs measured one by one for the true front": f"{len(known)} of {size(world.space)} combinations, "
        f"{len(pareto(values, objectives))} on the front, {calls} calls, {taken:.0f} s",
        **{
            f"share of its area after {TRIALS} trials, {name}": f"{fmean(found):.1%}  "
            f"(worst {min(found):.1%}, {sum(s >= 0.95 for s in found)} of {SEEDS} seeds at 95 %)"
            for name, found in shares.items()
        },
    }
    for name, against in (("TPE", "random"), ("TPE, two workers", "TPE")):
        lead = [a - b for a, b in zip(shares[name], shares[against], strict=True)]
        figures[f"lead of {name} over {against}, paired over seeds"] = f"{mean_interval(lead)}"
    return figures


def _overhead() -> dict[str, str]:
    program = Debate(embedder=warm_embedder())
    bench = Timed(World(program, debate_reply, space_of(program), {}))
    tasks = [Task(f"q{n}", f"Name an idea for a garden, number {n}.", f"q{n}") for n in range(8)]
    objectives = objectives_of(["quality", "vendi"], bench.groups)
    with (
        tempfile.TemporaryDirectory() as place,
        LoopbackProcess(delay=0.2) as server,
        dspy.context(lm=server.lm(cache=False)),
    ):
        start = time.perf_counter()
        found = asyncio.run(tune(program, bench, tasks, objectives, out=Path(place), trials=12, confirm=0))
        wall = time.perf_counter() - start
    own = wall - bench.seconds
    return {
        "own time of a trial / its measuring (at most 5 %)": f"{own / bench.seconds:.1%}  "
        f"({own / len(found.trials) * 1000:.0f} ms of {wall / len(found.trials):.2f} s)"
    }
