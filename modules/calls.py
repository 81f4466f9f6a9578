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
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import dspy
from dspy.utils import exceptions as dspy_errors

from salon.errors import CallFailure, LMSetupError, LogError
from salon.redact import redact

from .adapters import adapter_for, format_of, lower_format, refuse_odds, refuses_odds, shape_of
from .answers import Answer, answer_of, digest_of, odds_in, plain_outputs, usage_of
from .budget import Account, Budget, Usage
from .limits import Limit, place
from .log import SessionLog
from .streams import rollout_id
from .text import tokens

__all__ = ["CallProgress", "Desk", "LMs"]

_FATAL = (
    dspy_errors.LMAuthError,
    dspy_errors.LMBillingError,
    dspy_errors.LMConfigurationError,
    dspy_errors.LMUnsupportedModelError,
)
_ABOUT_FORMAT = re.compile(r"response_format|json_schema|json_object|schema|structured output|grammar", re.I)
_ABOUT_ODDS = re.compile(r"log_?prob", re.I)
_ODDS = {"logprobs": True, "top_logprobs": 20}  # the most alternatives that OpenAI's protocol tells
_LONGEST_ANSWER = 400  # tokens expected of an answer at most, where the LM has no max_tokens
_FORMAT_TOKENS = 250  # what a provider may count for the JSON schema and the chat's frame


@dataclass(frozen=True)
class CallProgress:
    """A call began or ended; for live views, not part of the log.

    Attributes:
        key: The call's key.
        speaker: Whom it speaks for.
        purpose: What it is for, e.g. ``think``.
        ended: Whether it ended.
        spent: What the session has spent by now.
        inputs: What the call is given.
        predict: The predictor that is asked.
    """

    key: str
    speaker: str
    purpose: str
    ended: bool
    spent: Usage
    inputs: Mapping[str, Any] = field(default_factory=dict, repr=False)
    predict: Any = field(default=None, repr=False)


@dataclass
class LMs:
    """Which LM plays whom.

    Attributes:
        default: Used where nothing else is set; None takes DSPy's current LM.
        named: LMs by role (``participant``, ``facilitator``...), persona id or persona name.
    """

    default: Any = None
    named: dict[str, Any] = field(default_factory=dict)

    def of(self, role: str, *speaker: str, own: Any = None) -> Any:
        """Return the LM of a speaker, else of the role, else the predictor's ``own``, else the default.

        Raises:
            LMSetupError: If there is none.
        """
        for name in (*speaker, role):
            if name in self.named:
                return self.named[name]
        lm = own or self.default or dspy.settings.lm
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
        purse: An account that many sessions share, with limits of its own.
    """

    log: SessionLog
    lms: LMs
    seed: int
    budget: Budget
    limit: Limit
    temperature: float = 1.0
    notify: Callable[[CallProgress], None] = lambda _: None
    offline: bool = False
    elapsed: Callable[[], float] = lambda: 0.0
    purse: Account | None = None

    def __post_init__(self) -> None:
        self.account = Account(self.budget, self.elapsed)
        self._accounts = [self.account] if self.purse is None else [self.account, self.purse]
        self._asking: set[asyncio.Task[Any]] = set()
        for record in (*self.log.recorded.past, *self.log.recorded.calls.values()):
            self._book(record)

    @property
    def spent(self) -> Usage:
        """What the session has spent so far."""
        return self.account.spent

    async def ask(
        self,
        predict: Any,
        key: str,
        role: str,
        speaker: str,
        names: tuple[str, ...] = (),
        weighed: tuple[str, ...] = (),
        **inputs: Any,
    ) -> Answer:
        """Return the answer to a call, from the log or from the LM.

        Args:
            predict: The ``dspy.Predict`` to call.
            key: Unique name of this call in the session: turn, purpose, speaker.
            role: LM role.
            speaker: Persona id, or a role, that the call speaks for.
            names: Further names by which an LM may be set for this speaker.
            weighed: Output fields, each a choice or a number on a scale, of which the answer is to have the
                ``odds`` where the LM tells log-probabilities.
            inputs: The signature's inputs.

        Raises:
            CallFailure: If a failure concerns the whole session.
            LogError: If an offline session lacks this call.
        """
        digest = digest_of(inputs)
        recorded = self.log.recorded.calls.get(key)
        if recorded is not None and recorded["digest"] == digest:
            self._tell(predict, key, speaker, inputs, ended=True)
            return answer_of(predict.signature, recorded)
        if self.offline or (recorded is not None and self.log.behind):
            raise LogError(
                "The session cannot be run over its log",
                f"it lacks the call {key}" if recorded is None else f"its call {key} had other inputs",
                "Resume the session to make missing calls; one that was changed has to be started anew.",
            )
        lm = self.lms.of(role, speaker, *names, own=getattr(predict, "lm", None))
        task = asyncio.current_task()
        assert task is not None
        self._asking.add(task)
        try:
            record = await self._paid(predict, lm, key, speaker, inputs, weighed)
        finally:
            self._asking.discard(task)
        self.log.call(
            {
                "key": key,
                "role": role,
                "speaker": speaker,
                "digest": digest,
                **record,
                "elapsed": round(self.elapsed(), 3),
            }
        )
        return answer_of(predict.signature, record)

    async def close(self) -> None:
        """Give up all calls still in flight: nobody waits for them any more."""
        left = self._asking - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _paid(
        self, predict: Any, lm: Any, key: str, speaker: str, inputs: dict[str, Any], weighed: tuple[str, ...]
    ) -> dict[str, Any]:
        """Make a call within the budget and book what it cost; return what to record."""
        costs: list[Usage] = []  # set aside in each account
        try:
            for account in self._accounts:
                cost = self._expected(predict, lm, inputs)
                if refusal := await account.reserve(lm.model, cost):
                    return _nothing("refused", lm, refusal)
                costs.append(cost)
            async with place(self.limit, lm):
                self._tell(predict, key, speaker, inputs, ended=False)
                record = await self._made(predict, lm, key, inputs, weighed, costs)
            self._book(record)
        finally:
            for account, cost in zip(self._accounts, costs, strict=False):
                account.release(lm.model, cost)
            self._tell(predict, key, speaker, inputs, ended=True)
        return record

    def _tell(self, predict: Any, key: str, speaker: str, inputs: Mapping[str, Any], *, ended: bool) -> None:
        self.notify(CallProgress(key, speaker, key.split("/")[-2], ended, self.spent, inputs, predict))

    async def _made(
        self, predict: Any, lm: Any, key: str, inputs: dict[str, Any], weighed: tuple[str, ...], costs: list[Usage]
    ) -> dict[str, Any]:
        """Make a call, with one repair if its answer cannot be read; return what to record."""
        start, usage = time.perf_counter(), Usage()
        record = _nothing("failed", lm, "")
        earlier = 2 * sum(r.get("key") == key and r["status"] == "failed" for r in self.log.recorded.past)
        for attempt in range(2):
            if attempt and (refusal := await self._extended(costs, usage)):
                record["error"] += f"; it was not asked for again: {refusal}"
                break
            rollout = rollout_id(self.seed, key, earlier + attempt)
            try:
                outputs, odds = await self._predicted(predict, lm, rollout, inputs, weighed, usage)
            except dspy.AdapterParseError as error:
                record |= {"repairs": attempt, "error": f"the answer could not be read: {_told(error, lm)}"}
                continue
            except _FATAL as error:
                raise CallFailure(
                    f"The model {lm.model} cannot be used",
                    _told(error, lm),
                    "Check its name, key and --api-base with `salon doctor`, then resume.",
                ) from None
            except TimeoutError:
                limit = f"the budget of {self.budget.seconds:g} seconds is used up"
                record |= {"status": "refused", "error": limit}
            except dspy_errors.DSPyError as error:
                record["error"] = f"{type(error).__name__}: {_told(error, lm)}"
            else:
                clamped = sum(bool(getattr(value, "clamped", False)) for value in outputs.values())
                plain = plain_outputs(predict.signature, outputs)
                record |= {
                    "status": "ok",
                    "repairs": attempt,
                    "error": "",
                    "clamped": clamped,
                    "outputs": plain,
                    **({"odds": odds} if weighed else {}),
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
        self, predict: Any, lm: Any, rollout: int, inputs: dict[str, Any], weighed: tuple[str, ...], usage: Usage
    ) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
        """Call the predictor, asking for less as often as the LM refuses: for no odds, for a lower answer format."""
        config = {"temperature": self.temperature, "rollout_id": rollout}
        while True:
            used, odds = format_of(lm), self._odds(lm) if weighed else {}
            account = SimpleNamespace(history=[])
            callers = [*(dspy.settings.caller_modules or []), account]
            try:
                with dspy.context(
                    lm=lm,
                    adapter=dspy.settings.adapter or adapter_for(lm),
                    caller_modules=callers,
                    disable_history=False,
                ):
                    prediction = await self._in_time(partial(predict.acall, **inputs, lm=lm, config=config | odds))
                outputs = {name: prediction[name] for name in shape_of(predict.signature).outputs}
                return outputs, odds_in(predict.signature, outputs, weighed, prediction.get("logprobs"))
            except dspy_errors.ContextWindowExceededError:
                raise
            except (dspy_errors.LMInvalidRequestError, dspy_errors.LMUnsupportedFeatureError) as error:
                if odds and _ABOUT_ODDS.search(str(error)):
                    refuse_odds(lm)
                elif dspy.settings.adapter or not _ABOUT_FORMAT.search(str(error)) or not lower_format(lm, used):
                    raise
            finally:
                for entry in account.history:
                    usage.add(usage_of(entry))
                    if odds:
                        _lighten(entry)

    def _odds(self, lm: Any) -> dict[str, Any]:
        """Return the settings of a call that wants log-probabilities; none for an LM that refuses them.

        An answer with them takes a megabyte in DSPy's cache. Where the log is on disk it keeps all that is
        needed of it, so the cache is left out.
        """
        if refuses_odds(lm):
            return {}
        return _ODDS if self.log.path is None else _ODDS | {"cache": False}

    async def _extended(self, costs: list[Usage], usage: Usage) -> str:
        """Have what is set aside hold for one more attempt; return why it cannot."""
        for account, cost in zip(self._accounts, costs, strict=True):
            if refusal := await account.extend(cost, replace(usage)):
                return refusal
        return ""

    async def _in_time(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call that may take no longer than the budget of seconds lasts."""
        if self.budget.seconds is None:
            return await call()
        left = self.budget.seconds - self.elapsed()
        if left <= 0:
            raise TimeoutError
        return await asyncio.wait_for(call(), left)

    def _book(self, record: Mapping[str, Any]) -> None:
        for account in self._accounts:
            account.book(str(record.get("model")), Usage.of(record), record.get("seconds", 0.0))

    def _expected(self, predict: Any, lm: Any, inputs: dict[str, Any]) -> Usage:
        """Return what a call will cost at most, as far as its budget is limited."""
        if all(account.budget.tokens is None and account.budget.usd is None for account in self._accounts):
            return Usage(calls=1)
        adapter = dspy.settings.adapter or adapter_for(lm)
        messages = adapter.format(predict.signature, predict.demos, inputs)
        given = {**(getattr(lm, "kwargs", None) or {}), **predict.config}
        longest = given.get("max_tokens") or given.get("max_completion_tokens")
        return Usage(
            calls=1,
            prompt_tokens=_FORMAT_TOKENS + sum(tokens(str(message["content"])) for message in messages),
            completion_tokens=longest or max(_LONGEST_ANSWER, self.account.longest),
        )


def _lighten(entry: dict[str, Any]) -> None:
    """Keep the text alone of an answer in DSPy's history, without its log-probabilities."""
    entry["outputs"] = [out.get("text") if isinstance(out, Mapping) else out for out in entry.get("outputs") or []]
    entry["response"] = None


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


def _told(error: BaseException, lm: Any) -> str:
    """Return an error's message on one line, without keys (masked before it is cut, or half a key shows)."""
    return " ".join(redact(str(error), _secrets(lm)).split())[:300]


def _secrets(lm: Any) -> list[str]:
    key = (getattr(lm, "kwargs", None) or {}).get("api_key")
    return [key] if isinstance(key, str) and key else []


def _format_name(lm: Any) -> str:
    return type(dspy.settings.adapter).__name__ if dspy.settings.adapter else format_of(lm)
