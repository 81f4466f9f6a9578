"""LM calls outside of sessions: judged and regenerated texts, on one account, and never asked twice.

A ledger is a log like a session's, with calls alone: an answer found in it under a call's key costs nothing,
one that is missing is asked for under one limit of calls in flight and one budget. What failed is asked anew
when the ledger is opened again. Answers of different models are never mixed.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import dspy

from salon.errors import OutputError
from salon.redact import describe

from ..modules.answers import Answer
from ..modules.budget import Account, Budget, Usage
from ..modules.calls import CallProgress, Desk, LMs
from ..modules.limits import Limit
from ..modules.log import VERSION, Recorded, SessionLog, read_log

__all__ = ["LEDGER_NAME", "SAME_MODELS", "Ledger", "other_models", "together"]

LEDGER_NAME = "calls.jsonl"
SAME_MODELS = "Name the same models, or give another folder."
T = TypeVar("T")
# DSPy says so of judges, which answer at temperature 0; what the id does for them is to keep calls apart.
warnings.filterwarnings("ignore", "rollout_id has no effect when temperature=0")


class Ledger:
    """Makes calls and keeps them; a context manager.

    Args:
        folder: Where ``calls.jsonl`` is; None keeps it in memory.
        purpose: What the calls are for, e.g. ``masking``.
        lms: LMs by role; roles that are not named use DSPy's current LM.
        seed: Keeps cached answers of runs apart.
        budget: Hard limits of all calls in the ledger, earlier ones included.
        limit: Bounds calls in flight.
        temperature: Sampling temperature.
        listen: Told of calls that begin and end.
        purse: An account with limits of its own that the ledger shares with others.

    Raises:
        OutputError: If the folder holds the calls of something else or of other models, or cannot be written.
        LogError: If the file is damaged.
    """

    def __init__(
        self,
        folder: Path | None,
        purpose: str,
        lms: Mapping[str, Any] | None = None,
        seed: int = 0,
        budget: Budget | None = None,
        limit: Limit | None = None,
        temperature: float = 1.0,
        listen: Callable[[CallProgress], None] = lambda _: None,
        purse: Account | None = None,
    ) -> None:
        recorded = Recorded(_header(purpose, lms or {}, seed))
        if folder is not None and (folder / LEDGER_NAME).exists():
            earlier = read_log(folder, LEDGER_NAME)
            if (earlier.header["program"], earlier.header["seed"]) != (recorded.header["program"], seed):
                raise OutputError(
                    f"{folder / LEDGER_NAME} holds other calls",
                    f"it is of {earlier.header['program'].get('name')} with seed {earlier.header['seed']}",
                    "Give the same seed, or another folder.",
                )
            if told := other_models(earlier.header["models"], recorded.header["models"]):
                raise OutputError(f"{folder / LEDGER_NAME} holds answers of other models", told, SAME_MODELS)
            recorded = earlier.reopened()
        self._log = SessionLog(folder, recorded, name=LEDGER_NAME)
        self._started, self._before = time.monotonic(), recorded.seconds
        self._desk = Desk(
            log=self._log,
            lms=LMs(named=dict(lms or {})),
            seed=seed,
            budget=budget or Budget(),
            limit=limit or asyncio.Semaphore(32),
            temperature=temperature,
            notify=listen,
            elapsed=lambda: self._before + time.monotonic() - self._started,
            purse=purse,
        )

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()

    async def ask(
        self, predict: Any, key: str, role: str, *who: str, weighed: tuple[str, ...] = (), **inputs: Any
    ) -> Answer:
        """Return the answer to a call; one that failed has an ``error``.

        Args:
            predict: The ``dspy.Predict`` to call.
            key: Unique name of the call: what it is about, what it is for, which of several, e.g. ``I3/judge/1``.
            role: LM role.
            who: Id and name of the persona that is asked, where one is: it may have an LM of its own.
            weighed: Output fields whose odds the answer is to have, where the LM tells log-probabilities.
            inputs: The signature's inputs.

        Raises:
            CallFailure: If no call can succeed (model name, key).
        """
        speaker, *names = who or (role,)
        return await self._desk.ask(predict, key, role, speaker, tuple(names), weighed, **inputs)

    @property
    def spent(self) -> Usage:
        """What all calls of the ledger cost."""
        return self._desk.spent


def other_models(earlier: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]) -> str:
    """Say which models are not those of before, by role; nothing where all are."""
    changed = (who for who in now if who in earlier and earlier[who]["model"] != now[who]["model"])
    return ", ".join(f"{who} {earlier[who]['model']} and not {now[who]['model']}" for who in changed)


async def together(work: Iterable[Awaitable[T]]) -> list[T]:
    """Await all at once and return the results in order; where one fails, the others are stopped."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _header(purpose: str, lms: Mapping[str, Any], seed: int) -> dict[str, Any]:
    used = lms or ({"default": dspy.settings.lm} if dspy.settings.lm else {})
    return {
        "kind": "header",
        "version": VERSION,
        "program": {"name": purpose},
        "settings": {},
        "inputs": {},
        "seed": seed,
        "models": {role: describe(lm) for role, lm in used.items()},
        "packages": {},
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
