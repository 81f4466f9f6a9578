"""What a roundtable is expected to cost, computed before anything is spent.

Calls follow from the settings; prompt sizes from the real prompts with texts of typical length in them;
a token is taken as four characters. Prices are those that DSPy ships; a model without one has no estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from salon.modules.adapters import ADAPTERS, FORMATS
from salon.modules.roundtable import Roundtable
from salon.modules.run import WORDS_PER_MINUTE

__all__ = ["Estimate", "estimate"]

_COMMENT_WORDS = 45
_TOKENS = {"cast": 15, "sketch": 100, "think": 75, "speak": 90, "propose": 110, "vote": 45, "facilitate": 50}
_SUMMARY = 170
_LINE = 70  # tokens of a comment in the transcript
_IDEA_LINE = 95


@dataclass(frozen=True)
class Estimate:
    """Expected calls, tokens and cost; ``usd`` is None where a price is unknown."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None

    def __str__(self) -> str:
        price = "price unknown" if self.usd is None else f"about ${self.usd:.4f}"
        return (
            f"about {self.calls} calls, {self.prompt_tokens:,} prompt and {self.completion_tokens:,} "
            f"answer tokens, {price}"
        )


def estimate(program: Roundtable, topic: str, models: Mapping[str, str]) -> Estimate:
    """Return what one session of a roundtable is expected to take.

    Args:
        program: The roundtable.
        topic: Its topic.
        models: Model names by role (``participant``, ``facilitator``).
    """
    personas = program.personas if isinstance(program.personas, int) else len(program.personas)
    turns = _turns(program)
    room = int(program.prompt_tokens) * 2 // 3
    talk = min(room, turns * _LINE)
    ideas = personas * int(program.ideas)
    invented = isinstance(program.personas, int)
    plan: list[tuple[str, str, int, float, int]] = [
        ("cast", "participant", int(invented), 0, _TOKENS["cast"] * personas),
        ("sketch", "participant", personas if invented else 0, 10 * personas, _TOKENS["sketch"]),
        ("think", "participant", personas * turns, talk / 2 + 300, _TOKENS["think"]),
        ("speak", "participant", turns, talk / 2 + 300, _TOKENS["speak"]),
        ("facilitate", "facilitator", turns if program.facilitator else 0, talk / 2, _TOKENS["facilitate"]),
        ("summarise", "facilitator", int(program.facilitator and turns > 0), talk, _SUMMARY),
        ("propose", "participant", ideas, min(room, talk + ideas * _IDEA_LINE / 2) + 300, _TOKENS["propose"]),
        (
            "vote",
            "participant",
            personas if ideas and int(program.votes) else 0,
            ideas * _IDEA_LINE + 100,
            _TOKENS["vote"],
        ),
    ]
    calls = prompt = answer = 0
    usd: float | None = 0.0
    for name, role, count, material, length in plan:
        if not count:
            continue
        size = round(_task_tokens(getattr(program, name), topic) + material)
        calls, prompt, answer = calls + count, prompt + count * size, answer + count * length
        price = _price(models[role], count * size, count * length)
        usd = None if usd is None or price is None else usd + price
    return Estimate(calls, prompt, answer, usd)


def _turns(program: Roundtable) -> int:
    bounds = []
    if program.turns is not None:
        bounds.append(int(program.turns))
    if program.minutes is not None:
        bounds.append(round(float(program.minutes) * WORDS_PER_MINUTE / _COMMENT_WORDS))
    return min(bounds)


def _task_tokens(predict: Any, topic: str) -> int:
    """Return the tokens of a prompt that holds no material yet."""
    inputs = {name: topic if name == "topic" else "" for name in predict.signature.input_fields}
    messages = ADAPTERS[FORMATS[0]].format(predict.signature, predict.demos, inputs)
    return sum(len(str(message["content"])) for message in messages) // 4


def _price(model: str, prompt: int, answer: int) -> float | None:
    """Return the price of so many tokens in USD, None where it is unknown."""
    from dspy.clients.model_metadata import model_info, rate

    provider, _, name = model.partition("/")
    if provider == "embedded":
        return 0.0
    info = model_info(provider, name)
    prices = [rate(info, key) if info else None for key in ("input_cost_per_token", "output_cost_per_token")]
    if prices[0] is None or prices[1] is None:
        return None
    return float(prompt * prices[0] + answer * prices[1])
