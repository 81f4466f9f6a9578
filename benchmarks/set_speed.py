"""Five debates at once against one, and what the order of a prompt's parts does to its shared head."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import dspy
from salon.modules.debate import Debate
from salon.modules.sets import sessions

from salon.testing import LoopbackProcess

from .material import warm_embedder
from .session_speed import DELAY, shared_head

TASK = {"task": "Propose one idea about the keyword 'umbrella', in at most 60 words."}
PARTS = ("task", "others", "persona", "own", "request")


def _lens_first(prompt: str) -> str:
    """Return a revision's prompt with lens and own answer before the answers of others."""
    parts = {}
    for part in prompt.split("\n\n[[ ## ")[1:]:
        name, _, body = part.partition(" ## ]]\n")
        parts.setdefault(name, body)
    if "others" not in parts:
        return prompt
    moved = prompt
    for name in ("persona", "own"):
        section = f"\n\n[[ ## {name} ## ]]\n{parts[name]}"
        moved = moved.replace(section, "", 1)
    head, others, rest = moved.partition("\n\n[[ ## others ## ]]\n")
    own = "".join(f"\n\n[[ ## {name} ## ]]\n{parts[name]}" for name in ("persona", "own"))
    return head + own + others + rest


def measure() -> dict[str, str]:
    """Return the ratio of wall times, and the shared heads of both orders."""
    embedder = warm_embedder()
    with tempfile.TemporaryDirectory() as place:
        record = Path(place) / "prompts.jsonl"
        with LoopbackProcess(delay=DELAY, record=str(record)) as server, dspy.context(lm=server.lm(cache=False)):
            program = Debate(embedder=embedder)
            sessions(Debate(agents=2, rounds=0, embedder=embedder), TASK, g=1)
            start = time.perf_counter()
            sessions(program, TASK, g=1, seed=1)
            one = time.perf_counter() - start
            before = len(record.read_text().splitlines())
            start = time.perf_counter()
            sessions(program, TASK, g=5, seed=2)
            five = time.perf_counter() - start
        prompts = [json.loads(line)["prompt"] for line in record.read_text().splitlines()[before:]]
    return {
        "5 debates at once / 1 debate, wall (at most 1.3)": f"{five / one:.2f}  ({five:.2f} s / {one:.2f} s)",
        "shared head of debate prompts, peers before lens": f"{shared_head(prompts):.1%}",
        "the same prompts, lens and own answer before peers": f"{shared_head(map(_lens_first, prompts)):.1%}",
    }
