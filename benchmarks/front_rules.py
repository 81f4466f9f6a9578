"""Loopback models whose answers are as good and as far apart as a rule says, for fronts that are known.

A rule sees what an LM would see: the prompt and the temperature. Each answer carries its quality, how far it leaves
the common direction (its spread) and whose direction it goes, and ``Directions`` embeds it by that.

**Debate** (rounds, k, agents, temperature)

- Quality falls away from temperature 0.8; it rises with each revision, less each time, most with two answers shown;
  the judge takes the best, so more agents are better.
- Spread rises with temperature; each revision and each answer shown costs a share of it; lucky answers are the
  conventional ones, so more agents cost spread too.

**YesAnd** (threshold, turns of experts, temperature)

- An expert's confidence is drawn from 2 to 10 for each turn; what it adds is the better, and the more conventional,
  the surer it is. Quality falls away from temperature 0.8, and spread rises with it.
- The Sage's summary is as good as what it rests on, and a little better with each contribution, less each time; each
  contribution after the first costs a share of its spread. A low threshold lets in what is odd but poor; a high one
  leaves little to sum up.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from statistics import fmean
from typing import Any

import numpy as np
from salon.modules import Embedder
from salon.signatures.debate import LENSES

from salon.testing import ChatRequest

__all__ = ["EXPERTS", "Directions", "chat_reply", "debate_reply", "quality_of"]

EXPERTS = [{"name": name, "sketch": f"{name} knows sheets of kind {name}."} for name in ("Ada", "Bo", "Cy", "Di")]
_ANSWER = re.compile(r"spread (\S+) author (\S+) quality (\S+) step (\d+)")
_GAIN = {0: 0.0, 1: 0.6, 2: 1.0, 3: 0.85, 4: 0.7}


class Directions(Embedder):
    """Reads an answer of a rule: the common direction, plus so much of one of its author's own."""

    def __init__(self) -> None:
        super().__init__("directions")

    def _encoder(self) -> Callable[[list[str]], Any]:
        return lambda texts: np.stack([_vector(*_read(text)[:2]) for text in texts])


def quality_of(answer: str) -> float:
    """Return the quality that an answer carries."""
    return _read(answer)[2]


def _read(text: str) -> tuple[float, str, float, int]:
    found = _ANSWER.search(text)
    if found is None:
        raise ValueError(f"no answer in {text!r}")
    return float(found[1]), found[2], float(found[3]), int(found[4])


def _written(spread: float, author: str, quality: float, step: int) -> str:
    return f"spread {spread:.4f} author {author} quality {quality:.4f} step {step}"


def _draw(name: str) -> np.random.Generator:
    digest = hashlib.sha256(name.encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def _vector(spread: float, author: str) -> Any:
    own = _draw(author).normal(size=64)
    vector = spread * own / np.linalg.norm(own)
    vector[0] += 1.0
    return vector


def _sheet(text: str) -> str:
    """Return which sheet a prompt is about: the task and the session, which seeds tell apart for no LM."""
    found = re.search(r"for sheet (\S+)\.", text)
    return found[1] if found else ""


def debate_reply(request: ChatRequest) -> dict[str, Any]:
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
    lens = next(name for name, told in LENSES.items() if told in text)
    author = f"{_sheet(text)}-{lens}"
    luck = float(_draw(author).normal())
    quality = 5 + 0.5 * luck - 6 * (temperature - 0.8) ** 2
    spread = max((0.1 + 1.3 * temperature) * (1 - 0.2 * luck), 0.05)
    return {"answer": _written(spread, author, quality, 0)}


def chat_reply(request: ChatRequest) -> dict[str, Any]:
    """Answer a prompt of a YesAnd by the rule."""
    text, temperature = request.text, float(request.body["temperature"])
    said = [_read(found[0]) for found in _ANSWER.finditer(text)]
    if "seed" in request.fields:
        return {"title": "A sheet", "seed": _summed_up(said, _sheet(text)), "cites": [], "open_question": ""}
    expert = next(expert["name"] for expert in EXPERTS if expert["sketch"] in text.rpartition("[[ ## persona ## ]]")[2])
    if "confidence" in request.fields:
        confidence = round(float(_draw(f"{_sheet(text)}-{expert}-{len(said)}").uniform(2, 10)), 2)
        return {"would_add": f"sureness {confidence}", "confidence": confidence}
    sure = float(re.findall(r"sureness (\S+)", text)[-1])
    quality = 2 + 0.5 * sure - 6 * (temperature - 0.8) ** 2
    spread = (0.1 + 1.3 * temperature) * (1.4 - 0.1 * sure)
    return {"text": _written(spread, f"{_sheet(text)}-{expert}", quality, 0), "cites": []}


def _summed_up(said: list[tuple[float, str, float, int]], sheet: str) -> str:
    """Return the summary of what was said."""
    if not said:
        return _written(0.05, f"{sheet}-nobody", 2.0, 0)
    later = len(said) - 1
    quality = fmean(quality for _, _, quality, _ in said) + 1.5 * (1 - 0.6**later)
    spread = fmean(spread for spread, _, _, _ in said) * 0.9**later
    return _written(spread, said[0][1], quality, later)
