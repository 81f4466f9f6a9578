"""What a session, an evaluation or a judge is expected to cost, computed before anything is spent.

Calls follow from the settings; prompt sizes from the real prompts with texts of typical length in them;
a token is taken as four characters. Prices are those that DSPy ships; a model without one has no estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from salon.modules.adapters import ADAPTERS, FORMATS
from salon.modules.roundtable import Roundtable

__all__ = ["Estimate", "estimate", "estimate_method", "judging"]

_TOKENS = {
    "cast": 15,
    "sketch": 100,
    "think": 75,
    "speak": 90,
    "propose": 110,
    "vote": 45,
    "facilitate": 50,
    "summarise": 170,
}
_LINE = 70  # tokens of a comment in the transcript
_IDEA_LINE = 95
_ANSWER = 130  # tokens of an answer to a task
_ANSWERS = 260  # tokens of the answers that a prompt shows on average
_JUDGED = (600, 80)  # tokens of a judge's prompt and answer


@dataclass(frozen=True)
class Estimate:
    """Expected calls, tokens and cost; ``usd`` is None where a price is unknown."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None

    def __add__(self, other: Estimate) -> Estimate:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        tokens = self.prompt_tokens + other.prompt_tokens, self.completion_tokens + other.completion_tokens
        return Estimate(self.calls + other.calls, *tokens, usd)

    def __mul__(self, times: int) -> Estimate:
        usd = None if self.usd is None else self.usd * times
        return Estimate(self.calls * times, self.prompt_tokens * times, self.completion_tokens * times, usd)

    def __str__(self) -> str:
        price = "price unknown" if self.usd is None else f"about ${self.usd:.4f}"
        return (
            f"about {self.calls:,} calls, {self.prompt_tokens:,} prompt and {self.completion_tokens:,} "
            f"answer tokens, {price}"
        )


def estimate(program: Roundtable, topic: str, models: Mapping[str, str]) -> Estimate:
    """Return what one session of a roundtable is expected to take.

    Args:
        program: The roundtable.
        topic: Its topic.
        models: Model names by role (``participant``, ``facilitator``).
    """
    counts = program.expected_calls()
    room = int(program.prompt_tokens) * 2 // 3
    talk = min(room, program.expected_turns() * _LINE)
    seats, ideas = program.personas if isinstance(program.personas, int) else len(program.personas), counts["propose"]
    material = {
        "cast": 0.0,
        "sketch": 10.0 * seats,
        "think": talk / 2 + 300,
        "speak": talk / 2 + 300,
        "facilitate": talk / 2,
        "summarise": float(talk),
        "propose": min(room, talk + ideas * _IDEA_LINE / 2) + 300,
        "vote": ideas * _IDEA_LINE + 100.0,
    }
    calls = prompt = answer = 0
    usd: float | None = 0.0
    for name, count in counts.items():
        if not count:
            continue
        role = "facilitator" if name in ("facilitate", "summarise") else "participant"
        length = _TOKENS[name] * (seats if name == "cast" else 1)
        size = round(_task_tokens(getattr(program, name), topic) + material[name])
        calls, prompt, answer = calls + count, prompt + count * size, answer + count * length
        price = _price(models[role], count * size, count * length)
        usd = None if usd is None or price is None else usd + price
    return Estimate(calls, prompt, answer, usd)


def estimate_method(method: Any, task: str, models: Mapping[str, str]) -> Estimate | None:
    """Return what one answer of a method of an evaluation is expected to take; None if nothing is known of it.

    A program other than a roundtable is taken to share its calls evenly among its prompts, each with texts of
    typical length.
    """
    program, calls = getattr(method, "program", None), method.expected_calls()
    if program is None or calls is None:
        return None
    if isinstance(program, Roundtable):
        return estimate(program, task, models)
    sizes = [_task_tokens(predict, task) for predict in program.predictors()]
    prompt, answer = calls * (sum(sizes) // len(sizes) + _ANSWERS), calls * _ANSWER
    return Estimate(calls, prompt, answer, _price(models["participant"], prompt, answer))


def judging(model: str) -> Estimate:
    """Return what one call of a judge is expected to take."""
    prompt, answer = _JUDGED
    return Estimate(1, prompt, answer, _price(model, prompt, answer))


def _task_tokens(predict: Any, topic: str) -> int:
    """Return the tokens of a prompt that holds no material yet."""
    inputs = {name: topic if name in ("topic", "task", "problem") else "" for name in predict.signature.input_fields}
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
