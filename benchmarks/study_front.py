"""How close a search comes to a front that is known, and what it costs beside the measuring.

A loopback model stands in for an LM. Its answers are as good and as far apart as a rule says, from what it can see
in the prompts of a Debate alone: the temperature, the lens, how many answers are shown, how often an answer was
revised, and how many there are to choose from.

- Quality: falls away from temperature 0.8; rises with each revision, less each time, most with two answers shown;
  the judge takes the best, so more agents are better.
- Spread (how far an answer leaves the common direction): rises with temperature; each revision and each answer
  shown costs a share of it; lucky answers are the conventional ones, so more agents cost spread too.

All programs of the space are measured once, under the same seeds, so the true front is known, and studies look
their programs up in that table. Each of 10 seeds gives TPE, random search, TPE with two workers and NSGA-II 60
trials; the area that a front dominates is given as a share of that of the true front.

Then a study of 12 trials (8 queries, 3 sessions each, 200 ms a call) tells what is spent beside the measuring.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from .material import warm_embedder  # sets the environment before DSPy is imported

import dspy  # isort: skip
import numpy as np
from salon.data.benchmarks import Task
from salon.evals.jobs import JobRow
from salon.evals.ledger import together
from salon.evals.statistics import mean_interval
from salon.modules import Debate, Embedder
from salon.modules.streams import rollout_id
from salon.optimize.front import hypervolume
from salon.optimize.objectives import objectives_of, values_of
from salon.optimize.space import points, program_key, size, space_of, with_values
from salon.optimize.study import tune
from salon.signatures.debate import LENSES

from salon.testing import ChatRequest, LoopbackProcess, LoopbackServer

SEEDS, TRIALS, GROUPS = 10, 60, 2
RANGES = {"agents": (2, 5), "temperature": (0.5, 1.3, 0.025)}
TASKS = [Task(f"q{n}", f"Name an idea for sheet q{n}.", f"q{n}") for n in range(2)]
_ANSWER = re.compile(r"spread (\S+) author (\S+) quality (\S+) step (\d+)")
_GAIN = {0: 0.0, 1: 0.6, 2: 1.0, 3: 0.85, 4: 0.7}


class Directions(Embedder):
    """Reads an answer of the loopback model: the common direction, plus so much of one of its author's own."""

    def __init__(self) -> None:
        super().__init__("directions")

    def _encoder(self) -> Callable[[list[str]], Any]:
        return lambda texts: np.stack([_vector(*_read(text)[:2]) for text in texts])


def _read(text: str) -> tuple[float, str, float, int]:
    found = _ANSWER.search(text)
    if found is None:
        raise ValueError(f"no answer in {text!r}")
    return float(found[1]), found[2], float(found[3]), int(found[4])


def _luck(name: str) -> float:
    digest = hashlib.sha256(name.encode()).digest()
    return float(np.random.default_rng(int.from_bytes(digest[:8], "big")).normal())


def _vector(spread: float, author: str) -> Any:
    digest = hashlib.sha256(author.encode()).digest()
    own = np.random.default_rng(int.from_bytes(digest[:8], "big")).normal(size=64)
    vector = spread * own / np.linalg.norm(own)
    vector[0] += 1.0
    return vector


def reply(request: ChatRequest) -> dict[str, Any]:
    """Answer a prompt of a Debate by the rule."""
    text = request.text
    if "choice" in request.fields:
        told = {int(n): float(q) for n, q in re.findall(r"^(\d+)\. spread \S+ author \S+ quality (\S+)", text, re.M)}
        return {"reason": "It is the best.", "choice": max(told, key=lambda n: told[n])}
    if "critique" in request.fields:
        others, own = text.split("[[ ## own ## ]]")
        shown = len(re.findall(r"^Answer \d+:", others, re.M))
        spread, author, quality, step = _read(own)
        quality += 1.2 * _GAIN[shown] / (step + 1)
        spread *= 0.94 - 0.07 * shown
        return {"critique": "", "answer": _written(spread, author, quality, step + 1)}
    temperature = float(request.body["temperature"])
    sheet = re.search(r"for sheet (\S+)\.", text)
    lens = next(name for name, told in LENSES.items() if told in text)
    author = f"{sheet[1] if sheet else ''}-{lens}"
    luck = _luck(author)
    quality = 5 + 0.5 * luck - 6 * (temperature - 0.8) ** 2
    spread = max((0.1 + 1.3 * temperature) * (1 - 0.2 * luck), 0.05)
    return {"answer": _written(spread, author, quality, 0)}


def _written(spread: float, author: str, quality: float, step: int) -> str:
    return f"spread {spread:.4f} author {author} quality {quality:.4f} step {step}"


async def _row(program: Debate, task: Task, run: int, seed: int, said: bool) -> JobRow:
    """Hold a session; each run is asked on a sheet of its own, as rollout ids never reach a model."""
    text = task.text.replace(task.id, f"{task.id}-{run}") if said else task.text
    session = await program.hold(task=text, seed=seed)
    answer = program.answer(session)
    value = _read(answer)[2] if said else 5.0
    rating = {"judge": "rule", "scores": {}, "value": value, "how": "", "reason": "", "error": ""}
    return JobRow(
        "program", task.id, run, seed, status="ok", answer=answer, ratings=[rating], calls=session.usage.calls
    )


async def _rows(program: Debate, tasks: Sequence[Task], groups: int, said: bool = True) -> list[JobRow]:
    return await together(
        _row(program, task, run, rollout_id(0, task.id, run), said) for task in tasks for run in range(1, groups + 1)
    )


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

    def __init__(self, embedder: Embedder) -> None:
        self.embedder, self.groups, self.seconds = embedder, 3, 0.0

    async def measure(self, program: Any, tasks: Sequence[Task], place: str, fresh: int = 0) -> list[JobRow]:
        """Hold the sessions of a program."""
        start = time.perf_counter()
        rows = await _rows(program, tasks, self.groups, said=False)
        self.seconds += time.perf_counter() - start
        return rows


async def _enumerated(program: Debate) -> dict[str, list[JobRow]]:
    """Measure every program of the space once."""
    space = space_of(program, ranges=RANGES)
    known: dict[str, list[JobRow]] = {}
    for at in range(size(space) or 0):
        variant = with_values(program, points(space, at))
        key = program_key(variant)
        if key not in known:
            known[key] = await _rows(variant, TASKS, GROUPS)
    return known


def _share(points_found: Sequence[dict[str, float | None]], known: Sequence[dict[str, float | None]]) -> float:
    worst = {name: min(point[name] or 0 for point in known) for name in ("quality", "vendi")}
    objectives = objectives_of(["quality", "vendi"], GROUPS)
    return hypervolume(points_found, objectives, worst) / hypervolume(known, objectives, worst)


async def _studied(program: Debate, table: Table, seed: int, **settings: Any) -> list[dict[str, float | None]]:
    with tempfile.TemporaryDirectory() as place:
        found = await tune(
            program, table, TASKS, objectives_of(["quality", "vendi"], GROUPS), out=Path(place), trials=TRIALS,
            space=space_of(program, ranges=RANGES), seed=seed, race=1, confirm=0, **settings,
        )  # fmt: skip
    return [record.means for record in found.front]


def measure() -> dict[str, str]:
    """Run the studies and return figures by name."""
    embedder = Directions()
    program = Debate(embedder=embedder)
    objectives = objectives_of(["quality", "vendi"], GROUPS)
    start = time.perf_counter()
    with LoopbackServer(reply=reply, keep=False) as server, dspy.context(lm=server.lm()):
        known = asyncio.run(_enumerated(program))
        calls, taken = server.count, time.perf_counter() - start
    values = [{n: v.value for n, v in values_of(rows, objectives, embedder).items()} for rows in known.values()]
    table = Table(known, embedder)
    kinds: dict[str, dict[str, Any]] = {
        "TPE": {"sampler": "tpe"},
        "random": {"sampler": "random"},
        "TPE, two workers": {"sampler": "tpe", "workers": 2},
        "NSGA-II": {"sampler": "nsga2"},
    }
    shares = {
        name: [_share(asyncio.run(_studied(program, table, seed, **kind)), values) for seed in range(SEEDS)]
        for name, kind in kinds.items()
    }
    figures = {
        "programs measured one by one for the true front": f"{len(known)} of {size(space_of(program, ranges=RANGES))} "
        f"combinations, {calls} calls, {taken:.0f} s",
        **{
            f"share of the true front's area after {TRIALS} trials, {name}": f"{fmean(found):.1%}  "
            f"(worst {min(found):.1%}, {sum(s >= 0.95 for s in found)} of {SEEDS} seeds at 95 %)"
            for name, found in shares.items()
        },
    }
    for name, against in (("TPE", "random"), ("TPE, two workers", "TPE")):
        lead = [a - b for a, b in zip(shares[name], shares[against], strict=True)]
        figures[f"lead of {name} over {against}, paired over seeds"] = f"{mean_interval(lead)}"
    return figures | _overhead()


def _overhead() -> dict[str, str]:
    bench = Timed(warm_embedder())
    program = Debate(embedder=bench.embedder)
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
