"""How a method answers a task: a session program holds a session, a callable is called.

All have one interface: ``answer`` takes a job and returns a row with the answer and what it cost.

A program's session is kept in the job's folder, so that an interrupted job goes on where it stopped. A callable
is run as a whole; its LM calls are counted through DSPy, and each run has a rollout id of its own, so that runs
differ and yet come from DSPy's cache the second time.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy

from salon.errors import CallFailure, RunFailure, SalonError, UserError
from salon.redact import describe, redact

from ..modules.answers import usage_of
from ..modules.archive import finished, read_session
from ..modules.budget import Account, Usage
from ..modules.limits import Limit, place
from ..modules.program import SessionProgram
from ..modules.roundtable import Roundtable
from ..modules.session import Session
from .conditions import earlier
from .jobs import Job, JobRow

__all__ = ["CallableMethod", "Method", "ProgramMethod", "inputs_of", "outcome_of"]

_MOST_THREADS = 256
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BY_PLACE = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)

_PERSON = (
    "Somebody who has to solve this, wants something concrete and unusual, and says briefly what is still missing."
)


class Method(ABC):
    """A way of answering tasks.

    Attributes:
        name: Its name in tables.
    """

    name: str

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """Return what makes it this method, as JSON values."""

    @abstractmethod
    def models(self) -> dict[str, dict[str, Any]]:
        """Return what may be told of its LMs, by role."""

    @abstractmethod
    def expected_calls(self) -> int | None:
        """Return about how many calls an answer takes; None if that is not known."""

    @abstractmethod
    async def answer(self, job: Job, root: Path, limit: Limit, purse: Account | None = None) -> JobRow:
        """Answer a job's task.

        Args:
            job: The job.
            root: Folder of the evaluation.
            limit: Bounds calls in flight.
            purse: The account of the whole evaluation.

        Raises:
            CallFailure: If no call can succeed (model name, key).
            OutputError: If the job's folder holds something else.
        """

    def authors(self) -> Collection[str]:
        """Return the names of the models that write the answers."""
        return {str(model.get("model")) for model in self.models().values()}


def inputs_of(program: SessionProgram, task: str) -> dict[str, Any]:
    """Return what a program is given to answer a task: the task, and a simulated person where one takes part."""
    return {program.inputs[0]: task, **({"person": _PERSON} if "person" in program.inputs else {})}


def outcome_of(program: SessionProgram, session: Session) -> tuple[str, str]:
    """Return the answer of a session that came to its end, or else nothing and why there is none."""
    answer = program.answer(session) if session.status == "complete" else ""
    if answer:
        return answer, ""
    return "", f"{session.status}: {session.reason}" if session.reason else "it has no answer"


class ProgramMethod(Method):
    """A session program."""

    def __init__(self, name: str, program: SessionProgram) -> None:
        self.name, self.program = name, program

    def described(self) -> dict[str, Any]:
        """Return the program with its settings, prompts, demos and tunables."""
        return self.program.described()

    def models(self) -> dict[str, dict[str, Any]]:
        """Return what may be told of its LMs, by role."""
        return self.program.described_lms()

    def expected_calls(self) -> int | None:
        """Return about how many calls a session takes."""
        counted = getattr(self.program, "calls", None)
        return int(counted()) if counted is not None else None

    async def answer(self, job: Job, root: Path, limit: Limit, purse: Account | None = None) -> JobRow:
        """Hold, go on with, or read the session of a job."""
        row = JobRow(job.method, job.query, job.run, job.seed)
        inputs = inputs_of(self.program, job.task)
        try:
            checked = self.program.checked(inputs)
        except UserError as error:  # of the task, which only this job has
            row.reason = str(error)
            return row
        try:
            session = await self._session(job, inputs, checked, root, limit, purse)
        except CallFailure:
            raise
        except RunFailure as error:
            row.reason = str(error)
            return row
        _account(row, session.usage)
        row.answer, row.reason = outcome_of(self.program, session)
        if row.answer:
            row.status, row.reason = "ok", session.reason
            await self._measure(row, session)
        return row

    async def _session(
        self,
        job: Job,
        inputs: dict[str, Any],
        checked: dict[str, Any],
        root: Path,
        limit: Limit,
        purse: Account | None,
    ) -> Session:
        folder = job.folder(root)
        recorded = earlier(self.program, checked, job.seed, folder)
        if recorded is None or not finished(recorded):
            again: dict[str, Any] = {"recorded": recorded, "limit": limit, "purse": purse, "results": False}
            return await self.program.hold(**inputs, seed=job.seed, out=folder, **again)
        session = read_session(folder)
        if purse is not None:
            purse.book("", replace(session.usage, seconds=0.0), 0.0)
        return session

    async def _measure(self, row: JobRow, session: Session) -> None:
        if isinstance(self.program, Roundtable):
            measures = await asyncio.to_thread(session.measures, self.program.embedder)
            row.depth, row.absorption, row.balance = measures.depth, measures.absorption, measures.balance


class CallableMethod(Method):
    """A function of the user's, or a DSPy module, that takes a task and returns an answer.

    Args:
        name: Its name in tables.
        call: Called with the task, a DSPy module with ``task=...``, and if it takes one with a ``seed``. May be
            async. What it returns is the answer: a text, or something with the attribute ``answer``.
        lm: Its LM; None for DSPy's current one.
        place: Where it comes from, e.g. ``module:callable``.

    Raises:
        UserError: If it takes no task.
    """

    def __init__(self, name: str, call: Callable[..., Any], lm: Any = None, place: str = "") -> None:
        if not _takes_task(call):
            raise UserError(f"{name} cannot be evaluated", "it takes no task", "It is called with the text of a task.")
        self.name, self._call, self.lm = name, call, lm
        self._place = (
            place or f"{getattr(call, '__module__', '?')}:{getattr(call, '__qualname__', type(call).__name__)}"
        )

    def described(self) -> dict[str, Any]:
        """Return where the callable is from; what it does is not known."""
        return {"callable": self._place}

    def models(self) -> dict[str, dict[str, Any]]:
        """Return what may be told of the LM that it finds as DSPy's current one."""
        lm = self.lm or dspy.settings.lm
        return {"participant": describe(lm)} if lm is not None else {}

    def expected_calls(self) -> int | None:
        """Return None: it is not known."""
        return None

    async def answer(self, job: Job, root: Path, limit: Limit, purse: Account | None = None) -> JobRow:
        """Call the callable with the job's task; its calls are booked when it is done."""
        row = JobRow(job.method, job.query, job.run, job.seed)
        lm, cost = self.lm or dspy.settings.lm, Usage(calls=1)
        model = str(getattr(lm, "model", "?"))
        if purse is not None and (refusal := await purse.reserve(model, cost)):
            row.reason = refusal
            return row
        try:
            spent = await self._answered(row, job, lm, limit)
            if purse is not None:
                purse.book(model, replace(spent, seconds=0.0), spent.seconds)
        finally:
            if purse is not None:
                purse.release(model, cost)
        _account(row, spent)
        if not row.reason:
            row.status, row.reason = ("ok", "answered") if row.answer else ("failed", "it has no answer")
        return row

    async def _answered(self, row: JobRow, job: Job, lm: Any, limit: Limit) -> Usage:
        """Get the answer, or the reason why there is none, into a row; return what that cost."""
        account = SimpleNamespace(history=[])
        started = time.perf_counter()
        try:
            async with place(limit, lm):
                with dspy.context(
                    lm=None if lm is None else lm.copy(rollout_id=job.seed, temperature=1.0),
                    caller_modules=[*(dspy.settings.caller_modules or []), account],
                    disable_history=False,
                ):
                    row.answer = _text_of(await self._called(job))
        except SalonError:
            raise
        except Exception as error:  # whatever a user's code raises is why its job failed
            row.reason = f"{type(error).__name__}: {redact(' '.join(str(error).split()))}"[:300]
        spent = Usage(seconds=time.perf_counter() - started)
        for entry in account.history:
            spent.add(usage_of(entry))
        return spent

    async def _called(self, job: Job) -> Any:
        given: dict[str, Any] = {"seed": job.seed} if _takes_seed(self._call) else {}
        if isinstance(self._call, dspy.Module):
            if hasattr(self._call, "aforward"):
                return await self._call.acall(task=job.task, **given)
            return await _in_thread(self._call, task=job.task, **given)
        if inspect.iscoroutinefunction(self._call):
            return await self._call(job.task, **given)
        result = await _in_thread(self._call, job.task, **given)
        return await result if inspect.isawaitable(result) else result


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Return threads enough for what may wait at once: those of asyncio are but a few more than there are CPUs."""
    return ThreadPoolExecutor(_MOST_THREADS, "salon-callable")


async def _in_thread(call: Callable[..., Any], *task: str, **given: Any) -> Any:
    work = functools.partial(contextvars.copy_context().run, call, *task, **given)
    return await asyncio.get_running_loop().run_in_executor(_threads(), work)


def _parameters(call: Any) -> Mapping[str, inspect.Parameter] | None:
    """Return the parameters of a callable; None if they cannot be told."""
    try:
        return inspect.signature(call.forward if isinstance(call, dspy.Module) else call).parameters
    except (TypeError, ValueError, AttributeError):
        return None


def _takes_seed(call: Any) -> bool:
    return "seed" in (_parameters(call) or {})


def _takes_task(call: Any) -> bool:
    """Say whether a callable can be called with a task, as far as can be told."""
    known = _parameters(call)
    if known is None:
        return not isinstance(call, dspy.Module)
    if not isinstance(call, dspy.Module):
        needed = [p for p in known.values() if p.default is p.empty and p.name != "seed" and p.kind not in _VARIABLE]
        places = [p for p in known.values() if p.kind in _BY_PLACE]
        return bool(places) and needed in ([], places[:1])
    if "task" in known or not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        return "task" in known
    predictors = call.predictors()
    return len(predictors) != 1 or "task" in predictors[0].signature.input_fields


def _text_of(result: Any) -> str:
    """Return an answer as text."""
    text = result if isinstance(result, str) else getattr(result, "answer", None)
    if not isinstance(text, str):
        raise TypeError(f"it returned {type(result).__name__}, which is no text and has no answer")
    return text.strip()


def _account(row: JobRow, usage: Usage) -> None:
    row.calls, row.seconds = usage.calls, round(usage.seconds, 3)
    row.prompt_tokens, row.completion_tokens = usage.prompt_tokens, usage.completion_tokens
    row.usd = None if usage.unpriced else round(usage.usd, 9)
