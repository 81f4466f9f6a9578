"""A session of 200 turns: own time per turn, prompt size, memory, and an 8k-token context never passed.

Own time is taken from a replay: there no model and no DSPy runs, so what is left is salon's own work.
Memory is what Python holds at a turn of the live session, less what it held at turn 20.
"""

from __future__ import annotations

import json
import tempfile
import time
import tracemalloc
from pathlib import Path
from statistics import median

import dspy
from salon.modules.archive import replay
from salon.modules.calls import CallProgress
from salon.modules.events import Event
from salon.modules.program import run_sync
from salon.modules.roundtable import Roundtable
from salon.modules.text import tokens

from salon.testing import LoopbackProcess

from .material import people, warm_embedder

TURNS = 200
CONTEXT = 8192


def measure() -> dict[str, str]:
    """Run the long session and return figures by name."""
    embedder = warm_embedder()
    memory: dict[int, int] = {}
    times: dict[int, float] = {}

    def weigh(item: Event | CallProgress) -> None:
        if isinstance(item, Event) and item.turn in (20, 65, 110, 155, 200) and item.turn not in memory:
            memory[item.turn] = tracemalloc.get_traced_memory()[0]

    def clock(item: Event | CallProgress) -> None:
        if isinstance(item, Event):
            times.setdefault(item.turn, time.perf_counter())

    with tempfile.TemporaryDirectory() as place:
        record, out = Path(place) / "prompts.jsonl", Path(place) / "session"
        with LoopbackProcess(context_tokens=CONTEXT, record=str(record)) as server:
            program = Roundtable(personas=people(5), turns=TURNS, ideas=1, embedder=embedder)
            program.move_on_after.value = 1.0
            tracemalloc.start()
            with dspy.context(lm=server.lm(max_tokens=1000), max_history_size=0):
                run_sync(program.hold(topic="AI smart glasses", seed=5, out=out, listen=weigh))
            tracemalloc.stop()
            errors = server.stats()["context_errors"]
        longest = max(tokens(json.loads(line)["prompt"]) for line in record.read_text().splitlines())
        replay(out, listen=clock)
    early, late = _per_turn(times, 15, 26), _per_turn(times, TURNS - 11, TURNS)
    first, second = memory[110] - memory[20], memory[200] - memory[110]
    return {
        "own time per turn, turn 200 / turn 20 (at most 1.5)": f"{late / early:.2f}  "
        f"({late * 1000:.2f} ms / {early * 1000:.2f} ms)",
        "context overruns of an 8k server in 200 turns (0)": str(errors),
        "longest prompt, estimated tokens (budget 6000)": str(longest),
        "memory growth, turns 110-200 / turns 20-110 (1 is linear)": f"{second / first:.2f}  "
        f"({first / 90 / 1024:.1f} then {second / 90 / 1024:.1f} KiB a turn)",
    }


def _per_turn(times: dict[int, float], low: int, high: int) -> float:
    return median(times[turn + 1] - times[turn] for turn in range(low, high) if turn + 1 in times)
