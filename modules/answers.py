"""Answers of LM calls: typed values in the program, JSON values in the log, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from pydantic import TypeAdapter

from salon.errors import LogError

from .adapters import shape_of
from .budget import Usage
from .odds import odds_of, values_of

__all__ = ["Answer", "answer_of", "digest_of", "odds_in", "plain_outputs", "usage_of"]


@dataclass(frozen=True)
class Answer:
    """The typed outputs of a call, or the error it failed with.

    Attributes:
        outputs: Field values, typed by the signature; empty after a failure.
        error: Why there is no answer; empty if there is one.
        refused: Whether the call was not made for want of budget.
        clamped: Numbers that were outside their scale.
        odds: How likely each value of a field was, where that was asked for and the LM told it.
    """

    outputs: Mapping[str, Any]
    error: str = ""
    refused: bool = False
    clamped: int = 0
    odds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.outputs[name]
        except KeyError:
            raise AttributeError(name) from None


def digest_of(inputs: Mapping[str, Any]) -> str:
    """Return a digest of a call's inputs; long shared ones are hashed once for all calls of a cycle."""
    parts = [f"{name}={_text_digest(str(value))}" for name, value in sorted(inputs.items())]
    return _text_digest(";".join(parts))


@lru_cache(maxsize=512)
def _text_digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def usage_of(entry: Mapping[str, Any]) -> Usage:
    """Read one entry of DSPy's history; an answer from the cache has no usage and costs nothing."""
    used, cost = entry.get("usage") or {}, entry.get("cost")
    return Usage(
        calls=1,
        prompt_tokens=int(used.get("prompt_tokens") or 0),
        completion_tokens=int(used.get("completion_tokens") or 0),
        usd=float(cost or 0.0) if used else 0.0,
        unpriced=1 if used and cost is None else 0,
    )


@lru_cache(maxsize=256)
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def plain_outputs(signature: Any, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs as JSON values."""
    fields = shape_of(signature).outputs
    return {k: _adapter(fields[k].annotation).dump_python(v, mode="json") for k, v in outputs.items()}


def odds_in(
    signature: Any, outputs: Mapping[str, Any], weighed: Sequence[str], logprobs: Any
) -> dict[str, dict[str, float]]:
    """Return how likely each value of the named outputs was, as far as the log-probabilities tell.

    Raises:
        ValueError: If one of the outputs is no choice and no number on a scale.
    """
    fields = shape_of(signature).outputs
    values = {name: values_of(fields[name].annotation.schema()) for name in weighed}
    written = plain_outputs(signature, {name: outputs[name] for name in weighed})
    return odds_of(logprobs, {name: str(value) for name, value in written.items()}, values)


def answer_of(signature: Any, record: Mapping[str, Any]) -> Answer:
    """Return the answer that a log record holds.

    Raises:
        LogError: If the signature's types cannot read it.
    """
    if record["status"] != "ok":
        return Answer({}, record["error"], refused=record["status"] == "refused")
    fields, outputs = shape_of(signature).outputs, record["outputs"]
    try:
        typed = {k: _adapter(fields[k].annotation).validate_python(v) for k, v in outputs.items() if k in fields}
    except ValueError as error:
        raise LogError("The session log is damaged", f"an answer in it cannot be read ({error})") from error
    return Answer(typed, clamped=record["clamped"], odds=record.get("odds", {}))
