"""The only place where a session calls an LM.

A call has a key (turn, purpose, speaker). If the log holds an answer under the key, that answer is used
and nothing is called. Else the call is made under the session's concurrency limit and budget, with a
rollout id derived from the seed and the key, so that DSPy's cache keeps sessions apart and yet answers
a repeated session for free. An answer that cannot be read is asked for once more. A call that fails
after DSPy's own retries is recorded as failed, one that does not fit the budget as refused; neither is
ever replaced by an invented answer.

Failures that no later call could escape (no such model, a refused key, no credit) end the session
instead and are not recorded, so that it can be resumed once they are mended.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

import dspy
from dspy.utils import exceptions as dspy_errors
from pydantic import TypeAdapter

from salon.errors import CallFailure, LMSetupError, LogError
from salon.redact import redact

from .adapters import adapter_for, format_of, lower_format
from .budget import Budget, Usage
from .log import SessionLog
from .streams import rollout_id
from .text import tokens

__all__ = ["Answer", "CallProgress", "Desk", "LMs"]

_FATAL = (
    dspy_errors.LMAuthError,
    dspy_errors.LMBillingError,
    dspy_errors.LMConfigurationError,
    dspy_errors.LMUnsupportedModelError,
)
_ABOUT_FORMAT = re.compile(r"response_format|json_schema|json_object|schema|structured output|grammar", re.I)
_LONGEST_ANSWER = 600  # tokens expected of an answer at most, where the LM has no max_tokens
_TASK_TOKENS = 350  # the task and its output format around the inputs, on the safe side


@dataclass(frozen=True)
class CallProgress:
    """A call began or ended; for live views, not part of the log."""

    key: str
    speaker: str
    purpose: str
    ended: bool
    recorded: bool = False


@dataclass(frozen=True)
class Answer:
    """The typed outputs of a call, or the error it failed with.

    Attributes:
        outputs: Field values, typed by the signature; empty after a failure.
        error: Why there is no answer; empty if there is one.
        refused: Whether the call was not made for want of budget.
        clamped: Numbers that were outside their scale.
    """

    outputs: Mapping[str, Any]
    error: str = ""
    refused: bool = False
    clamped: int = 0

    def __getattr__(self, name: str) -> Any:
        try:
            return self.outputs[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class LMs:
    """Which LM plays whom.

    Attributes:
        default: Used where nothing else is set; None takes DSPy's current LM.
        named: LMs by role (``participant``, ``facilitator``...), persona id or persona name.
    """

    default: Any = None
    named: dict[str, Any] = field(default_factory=dict)

    def of(self, role: str, *speaker: str) -> Any:
        """Return the LM of a speaker, else of the role, else the default.

        Raises:
            LMSetupError: If there is none.
        """
        for name in (*speaker, role):
            if name in self.named:
                return self.named[name]
        lm = self.default or dspy.settings.lm
        if lm is None:
            raise LMSetupError(
                "No language model is set",
                "the session needs one",
                "Use `with dspy.context(lm=salon.lm()):`, or pass lms={...}.",
            )
        return lm


@dataclass
class Desk:
    """Makes and records the calls of one session.

    Args:
        log: Where answers are found and kept.
        lms: Who speaks through which LM.
        seed: The session's seed.
        budget: Hard limits.
        limit: Bounds how many calls are in flight; may be shared by several sessions.
        temperature: Sampling temperature of all calls.
        notify: Told when calls begin and end.
        offline: Refuse to call anything (replay).
        elapsed: Returns the seconds the session has run.
    """

    log: SessionLog
    lms: LMs
    seed: int
    budget: Budget
    limit: asyncio.Semaphore
    temperature: float = 1.0
    notify: Callable[[CallProgress], None] = lambda _: None
    offline: bool = False
    elapsed: Callable[[], float] = lambda: 0.0

    def __post_init__(self) -> None:
        self.spent = Usage()
        self._pending = Usage()
        self._settled = asyncio.Event()
        for record in self.log.recorded.calls.values():
            self._account(record)

    async def ask(
        self, predict: Any, key: str, role: str, speaker: str, names: tuple[str, ...] = (), **inputs: Any
    ) -> Answer:
        """Return the answer to a call, from the log or from the LM.

        Args:
            predict: The ``dspy.Predict`` to call.
            key: Unique name of this call in the session: turn, purpose, speaker.
            role: LM role.
            speaker: Persona id, or a role, that the call speaks for.
            names: Further names by which an LM may be set for this speaker.
            inputs: The signature's inputs.

        Raises:
            CallFailure: If a failure concerns the whole session.
            LogError: If an offline session lacks this call.
        """
        digest, purpose = _digest(inputs), key.split("/")[-2]
        recorded = self.log.recorded.calls.get(key)
        if recorded is not None and recorded["digest"] == digest:
            self.notify(CallProgress(key, speaker, purpose, True, recorded=True))
            return _answer(predict.signature, recorded)
        if self.offline:
            raise LogError(
                "The session cannot be replayed",
                f"its log lacks the call {key}" if recorded is None else f"the call {key} had other inputs",
                "Resume it to make the missing calls.",
            )
        lm = self.lms.of(role, speaker, *names)
        cost = self._expected(lm, inputs)
        refusal = await self._reserve(cost)
        if refusal:
            record = _nothing("refused", lm, refusal)
        else:
            try:
                async with self.limit:
                    self.notify(CallProgress(key, speaker, purpose, False))
                    record = await self._made(predict, lm, key, inputs)
            finally:
                self._release(cost)
                self.notify(CallProgress(key, speaker, purpose, True))
        record = {"key": key, "role": role, "speaker": speaker, "digest": digest, **record}
        self._account(record)
        self.log.call(record)
        return _answer(predict.signature, record)

    def mean_call(self) -> Usage:
        """Return what a call of this session has cost on average."""
        calls = max(self.spent.calls, 1)
        return Usage(
            calls=1,
            prompt_tokens=round(self.spent.prompt_tokens / calls),
            completion_tokens=round(self.spent.completion_tokens / calls),
            usd=self.spent.usd / calls,
        )

    async def _reserve(self, cost: Usage) -> str:
        """Set a call's expected cost aside; wait while only calls in flight stand in its way."""
        while refusal := self.budget.refusal(self.spent, _sum(self._pending, cost)):
            if not self._pending.calls or self.budget.refusal(self.spent, cost):
                return refusal
            self._settled.clear()
            await self._settled.wait()
        self._pending = _sum(self._pending, cost)
        return ""

    def _release(self, cost: Usage) -> None:
        self._pending = _sum(self._pending, cost, -1)
        self._settled.set()

    async def _made(self, predict: Any, lm: Any, key: str, inputs: dict[str, Any]) -> dict[str, Any]:
        """Make a call, with one repair if its answer cannot be read; return what to record."""
        start, usage = time.perf_counter(), Usage()
        record = _nothing("failed", lm, "")
        for attempt in range(2):
            try:
                outputs = await self._predicted(
                    predict, lm, rollout_id(self.seed, key, attempt), inputs, usage
                )
            except dspy.AdapterParseError as error:
                record |= {"repairs": attempt, "error": f"the answer could not be read: {_one_line(error)}"}
                continue
            except _FATAL as error:
                raise CallFailure(
                    f"The model {lm.model} cannot be used",
                    redact(_one_line(error), _secrets(lm)),
                    "Check its name, key and --api-base with `salon doctor`, then resume.",
                ) from error
            except TimeoutError:
                record |= {"status": "refused", "error": "the budget of seconds is used up"}
            except dspy_errors.DSPyError as error:
                record["error"] = redact(f"{type(error).__name__}: {_one_line(error)}", _secrets(lm))
            else:
                clamped = sum(bool(getattr(value, "clamped", False)) for value in outputs.values())
                plain = _plain(predict.signature, outputs)
                record |= {
                    "status": "ok",
                    "repairs": attempt,
                    "error": "",
                    "clamped": clamped,
                    "outputs": plain,
                }
            break
        return record | {
            "format": _format_name(lm),
            "calls": usage.calls,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "usd": None if usage.unpriced else round(usage.usd, 9),
            "seconds": round(time.perf_counter() - start, 4),
        }

    async def _predicted(
        self, predict: Any, lm: Any, rollout: int, inputs: dict[str, Any], usage: Usage
    ) -> dict[str, Any]:
        """Call the predictor, lowering the answer format as often as the LM refuses it."""
        while True:
            used = format_of(lm)
            account = SimpleNamespace(history=[])
            callers = [*(dspy.settings.caller_modules or []), account]
            try:
                with dspy.context(
                    lm=lm,
                    adapter=dspy.settings.adapter or adapter_for(lm),
                    caller_modules=callers,
                    disable_history=False,
                ):
                    prediction = await self._in_time(
                        predict.acall(
                            **inputs, config={"temperature": self.temperature, "rollout_id": rollout}
                        )
                    )
                return {name: prediction[name] for name in predict.signature.output_fields}
            except dspy_errors.ContextWindowExceededError:
                raise
            except (dspy_errors.LMInvalidRequestError, dspy_errors.LMUnsupportedFeatureError) as error:
                if (
                    dspy.settings.adapter
                    or not _ABOUT_FORMAT.search(str(error))
                    or not lower_format(lm, used)
                ):
                    raise
            finally:
                for entry in account.history:
                    usage.add(_usage(entry))

    async def _in_time(self, call: Any) -> Any:
        """Await a call no longer than the budget of seconds lasts."""
        if self.budget.seconds is None:
            return await call
        left = self.budget.seconds - self.elapsed()
        return await asyncio.wait_for(call, max(left, 0.001))

    def _account(self, record: Mapping[str, Any]) -> None:
        usd = record["usd"]
        self.spent.add(
            Usage(
                calls=record["calls"],
                prompt_tokens=record["prompt_tokens"],
                completion_tokens=record["completion_tokens"],
                usd=usd or 0.0,
                unpriced=record["calls"] if usd is None else 0,
            )
        )

    def _expected(self, lm: Any, inputs: dict[str, Any]) -> Usage:
        """Estimate a call's cost on the safe side; its price by what tokens have cost so far."""
        prompt = _TASK_TOKENS + sum(tokens(str(value)) for value in inputs.values())
        answer = (getattr(lm, "kwargs", None) or {}).get("max_tokens") or _LONGEST_ANSWER
        price = self.spent.usd / self.spent.tokens if self.spent.tokens else 0.0
        return Usage(calls=1, prompt_tokens=prompt, completion_tokens=answer, usd=price * (prompt + answer))


def _nothing(status: str, lm: Any, error: str) -> dict[str, Any]:
    """Return the record of a call that brought no answer and cost nothing."""
    return {
        "status": status,
        "model": lm.model,
        "format": _format_name(lm),
        "repairs": 0,
        "error": error,
        "clamped": 0,
        "calls": 0,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "usd": 0.0,
        "seconds": 0.0,
    }


def _digest(inputs: Mapping[str, Any]) -> str:
    """Return a digest of a call's inputs; long shared ones are hashed once for all calls of a cycle."""
    parts = [f"{name}={_text_digest(str(value))}" for name, value in sorted(inputs.items())]
    return _text_digest(";".join(parts))


@lru_cache(maxsize=512)
def _text_digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _sum(first: Usage, second: Usage, sign: int = 1) -> Usage:
    return Usage(
        calls=first.calls + sign * second.calls,
        prompt_tokens=first.prompt_tokens + sign * second.prompt_tokens,
        completion_tokens=first.completion_tokens + sign * second.completion_tokens,
        usd=first.usd + sign * second.usd,
    )


def _usage(entry: Mapping[str, Any]) -> Usage:
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


def _plain(signature: Any, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs as JSON values."""
    fields = signature.output_fields
    return {k: _adapter(fields[k].annotation).dump_python(v, mode="json") for k, v in outputs.items()}


def _answer(signature: Any, record: Mapping[str, Any]) -> Answer:
    if record["status"] != "ok":
        return Answer({}, record["error"], refused=record["status"] == "refused")
    fields, outputs = signature.output_fields, record["outputs"]
    typed = {k: _adapter(fields[k].annotation).validate_python(v) for k, v in outputs.items() if k in fields}
    return Answer(typed, clamped=record["clamped"])


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _secrets(lm: Any) -> list[str]:
    key = (getattr(lm, "kwargs", None) or {}).get("api_key")
    return [key] if isinstance(key, str) and key else []


def _format_name(lm: Any) -> str:
    return type(dspy.settings.adapter).__name__ if dspy.settings.adapter else format_of(lm)
