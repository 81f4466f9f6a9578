"""Wall time of a session against its critical path, calls in flight, and the shared head of its prompts.

13 personas, 26 turns, facilitator on, against a loopback server that answers each request after 200 ms.
The critical path is the sum of the latencies that must follow each other, as the session's log has them: 200 ms
of the server and what DSPy's client adds, which for 14 calls at once on 2 cores is not little. The second ratio
leaves the client out. DSPy's response cache is off.
"""

from __future__ import annotations

import bisect
import json
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import dspy
from salon.modules.log import Recorded, read_log
from salon.modules.roundtable import Roundtable

from salon.testing import LoopbackProcess

from .material import people, warm_embedder

DELAY = 0.2


def steps(recorded: Recorded) -> list[float]:
    """Return the latencies that had to follow each other: the longest call of each round of calls.

    A round is all calls of a turn for one purpose: thoughts, then the floor; proposals; ballots. The
    facilitator looks on while the others think.
    """
    rounds: dict[tuple[str, str], float] = {}
    for key, call in recorded.calls.items():
        turn, purpose, _ = key.split("/")
        if purpose != "facilitate":
            rounds[turn, purpose] = max(rounds.get((turn, purpose), 0.0), call["seconds"])
    return list(rounds.values())


def calls_per_turn(recorded: Recorded) -> int:
    """Return the most sequential calls of any discussion turn."""
    turns: dict[str, set[str]] = {}
    for key in recorded.calls:
        turn, purpose, _ = key.split("/")
        if purpose in ("think", "speak", "propose"):
            turns.setdefault(turn, set()).add(purpose)
    return max(len(purposes) for purposes in turns.values())


def shared_head(prompts: Iterable[str]) -> float:
    """Return the share of prompt characters that are a prefix of an earlier prompt of the session."""
    seen: list[str] = []
    total = shared = 0
    for prompt in prompts:
        at = bisect.bisect(seen, prompt)
        shared += max((_common(prompt, seen[i]) for i in (at - 1, at) if 0 <= i < len(seen)), default=0)
        total += len(prompt)
        bisect.insort(seen, prompt)
    return shared / total


def _common(first: str, second: str) -> int:
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def measure() -> dict[str, str]:
    """Run the session and return figures by name."""
    embedder = warm_embedder()
    with tempfile.TemporaryDirectory() as place:
        record, out = Path(place) / "prompts.jsonl", Path(place) / "session"
        with LoopbackProcess(delay=DELAY, record=str(record)) as server, dspy.context(lm=server.lm(cache=False)):
            Roundtable(personas=people(2), turns=1, ideas=0, embedder=embedder)(topic="a warm-up")
            server.reset()
            warm_up = len(record.read_text().splitlines())
            program = Roundtable(personas=people(13), turns=26, embedder=embedder)
            program.move_on_after.value = 1.0  # all 26 turns, whatever the server's facilitator says
            start = time.perf_counter()
            program(topic="AI smart glasses for everyday consumers", seed=3, out=out)
            wall = time.perf_counter() - start
            stats = server.stats()
        recorded = read_log(out)
        prompts = [json.loads(line)["prompt"] for line in record.read_text().splitlines()[warm_up:]]
    latencies = steps(recorded)
    measured, floor = sum(latencies), len(latencies) * DELAY
    return {
        "session wall / critical path, latencies as measured (at most 1.15)": f"{wall / measured:.3f}  "
        f"({wall:.2f} s / {measured:.2f} s)",
        "session wall / calls in sequence x 200 ms, client time left out": f"{wall / floor:.3f}  "
        f"({wall:.2f} s / {floor:.1f} s)",
        "calls in flight at most (at least 13)": str(stats["max_in_flight"]),
        "sequential calls per turn (at most 2)": str(calls_per_turn(recorded)),
        "prompt characters that are a shared head (at least 85 %)": f"{shared_head(prompts):.1%}  "
        f"({len(prompts)} prompts)",
    }
