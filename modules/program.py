"""What all session programs share: how a session starts, resumes, streams, ends, is saved and loaded.

A session program is a DSPy module. Subclasses say what happens in a session (``_session``); everything
around it is here, once: the log's header, resuming over recorded calls, the end status, the sync edge.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import json
import sys
import threading
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, Self, TypeVar

import dspy

from salon.errors import OutputError, UserError
from salon.redact import describe

from .budget import Account, Budget, Usage
from .calls import CallProgress, Desk, LMs
from .checks import check_arguments
from .embedding import Embedder
from .events import Event
from .files import write_results
from .limits import Limit
from .log import BUDGET, LOG_NAME, VERSION, Recorded, SessionLog
from .run import Control, Run
from .saving import (
    PROGRAM_NAME,
    check_contracts,
    contract_of,
    read_program,
    restore,
    same_prompts,
    saved_state,
    version_of,
    write_program,
)
from .session import Session, Status
from .text import excerpt

__all__ = ["PROGRAM_NAME", "SessionProgram", "read_program", "run_sync", "synchronous"]

T = TypeVar("T")
P = ParamSpec("P")


class SessionProgram(dspy.Module):
    """Base of the session programs.

    Args:
        lms: LMs by role (``participant``, ``facilitator``), persona id or persona name; what is not named
            uses DSPy's current LM.
        embedder: Embedding model (see ``Embedder``), or an ``Embedder`` to share.
        max_concurrency: Most calls in flight at once.
    """

    inputs: ClassVar[tuple[str, ...]] = ("topic",)
    roles: ClassVar[tuple[str, ...]] = ("participant",)

    def __init__(
        self,
        lms: dict[str, Any] | None = None,
        embedder: str | Embedder | None = None,
        max_concurrency: int = 32,
    ) -> None:
        super().__init__()
        if lms is not None and not isinstance(lms, Mapping):
            raise UserError(f"lms={lms!r} is not possible", 'a mapping is needed, e.g. {"facilitator": salon.lm(...)}')
        if isinstance(max_concurrency, bool) or not isinstance(max_concurrency, int) or max_concurrency < 1:
            raise UserError(f"max_concurrency={max_concurrency} is not possible", "at least 1 call must be in flight")
        if embedder is not None and not isinstance(embedder, str | Embedder):
            raise UserError(f"embedder={embedder!r} is not possible", "the name of a model or an Embedder is needed")
        self.lms = dict(lms or {})
        self.embedder = embedder if isinstance(embedder, Embedder) else Embedder(embedder)
        self.max_concurrency = max_concurrency

    # ---------------------------------------------------------------- what a program defines

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the constructor arguments that make this program again, as JSON values."""

    @abstractmethod
    def checked(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the inputs of a session, checked and cleaned.

        Raises:
            UserError: If an input is missing or unusable.
        """

    def answer(self, session: Session) -> str:
        """Return the session's answer as one text, the best idea; empty if there is none."""
        ideas = session.ideas
        return f"{ideas[0].title}: {ideas[0].description}" if ideas else ""

    def carried(self) -> dict[str, Any]:
        """Return constructor arguments that are no JSON values and that a changed program takes along."""
        return {"lms": self.lms, "embedder": self.embedder}

    def named_lms(self) -> dict[str, Any]:
        """Return the LMs by role, persona id or persona name."""
        return dict(self.lms)

    @abstractmethod
    async def _session(self, run: Run) -> tuple[Status, str]:
        """Hold the session; return how it ended and why."""

    # ---------------------------------------------------------------- calling it

    async def hold(
        self,
        *,
        seed: int = 0,
        out: str | Path | None = None,
        budget: Budget | None = None,
        control: Control | None = None,
        listen: Callable[[Event | CallProgress], None] | None = None,
        limit: Limit | None = None,
        recorded: Recorded | None = None,
        offline: bool = False,
        purse: Account | None = None,
        results: bool = True,
        **inputs: Any,
    ) -> Session:
        """Hold one session and return it.

        Args:
            seed: Decides every random choice and keeps cached answers of sessions apart.
            out: Folder for the log and the results; None keeps everything in memory.
            budget: Hard limits. Where none are set, an interrupted session keeps those it had.
            control: Lets the caller wrap the session up.
            listen: Told of each event as it happens, and of calls that begin and end.
            limit: Bounds calls in flight; share one between sessions that run together.
            recorded: Records of an earlier run to continue (see ``salon.resume``).
            offline: Call no LM; a call that is not recorded is an error.
            purse: An account with limits of its own that this session shares with others.
            results: Whether to write ideas, transcript and graph beside the log.
            inputs: The program's inputs, e.g. ``topic``.

        Raises:
            UserError: If inputs or settings cannot work. Said before anything is spent.
            CallFailure: If no call can succeed (model name, key); the log stays resumable.
        """
        check_arguments(out=out, budget=budget, control=control, limit=limit)
        checked = self.checked(inputs)
        lms = LMs(named=self.named_lms())
        interrupted = recorded is not None and recorded.end is None
        if recorded is None and out is not None and (Path(out) / LOG_NAME).exists():
            todo = "Go on with it: salon.resume(folder); or give another folder."
            raise OutputError(f"{out} holds a session already", "it would be overwritten", todo)
        if recorded is None:
            recorded = Recorded(self._header(checked, seed))
        elif not (offline or interrupted):
            recorded = recorded.reopened()
        folder = Path(out) if out is not None else None
        log = SessionLog(folder, recorded, rewrite=not interrupted)
        session = Session(recorded.header, folder=folder, log=recorded)
        run = self._run(session, log, lms, budget, control or Control(), listen or _ignore, limit, offline, purse)
        try:
            session.status, session.reason = await self._session(run)
            refused = [call["error"] for call in recorded.calls.values() if call["status"] == "refused"]
            if session.status == "complete" and refused:
                session.status, session.reason = "cut short", refused[0]
        finally:
            await run.desk.close()
            session.usage = run.desk.spent
            session.usage.seconds = round(run.elapsed(), 3)
            if session.status == "running":
                log.close()
        log.end({"status": session.status, "reason": session.reason, "usage": vars(session.usage).copy()})
        if offline and recorded.end is not None:
            session.usage = Usage(**recorded.end["usage"])
        if folder is not None and results and not offline:
            write_results(session, folder)
        return session

    def _run(
        self,
        session: Session,
        log: SessionLog,
        lms: LMs,
        budget: Budget | None,
        control: Control,
        listen: Callable[[Event | CallProgress], None],
        limit: Limit | None,
        offline: bool,
        purse: Account | None,
    ) -> Run:
        limits = budget or Budget()
        if limits == Budget():
            limits = Budget(**log.recorded.readings.get(BUDGET, {}))
        elif not offline:
            log.reading(BUDGET, asdict(limits))
        run = Run(
            session=session,
            log=log,
            desk=None,  # type: ignore[arg-type]
            embedder=self.embedder,
            seed=int(session.header["seed"]),
            budget=limits,
            control=control,
            listen=listen,
        )
        run.desk = Desk(
            log=log,
            lms=lms,
            seed=run.seed,
            budget=limits,
            limit=limit or asyncio.Semaphore(self.max_concurrency),
            temperature=float(getattr(self, "temperature", 1.0)),
            notify=listen,
            offline=offline,
            elapsed=run.elapsed,
            purse=purse,
        )
        return run

    async def aforward(self, **arguments: Any) -> dspy.Prediction:
        """Hold a session; return a prediction with ``ideas``, ``answer`` and ``session``."""
        session = await self.hold(**arguments)
        return dspy.Prediction(ideas=session.ideas, answer=self.answer(session), session=session)

    def forward(self, **arguments: Any) -> dspy.Prediction:
        """Do as ``aforward``, for callers without an event loop and for those inside one."""
        return run_sync(self.acall(**arguments))

    async def stream(self, **arguments: Any) -> AsyncIterator[Event]:
        """Yield the events of a session as they happen; arguments as for ``hold``.

        Leaving the iteration early stops the session.
        """
        queue: asyncio.Queue[Event | None] = asyncio.Queue()

        def listen(item: Event | CallProgress) -> None:
            if isinstance(item, Event):
                queue.put_nowait(item)

        task = asyncio.ensure_future(self.hold(**arguments, listen=listen))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # ---------------------------------------------------------------- its numbers

    def idle_tunables(self, always: bool = False) -> set[str]:
        """Return the names of numbers that have no effect on a session.

        Args:
            always: Only those that have none whatever the other numbers are, because of a setting.
        """
        return set()

    def settle(self) -> None:
        """Put numbers right that others bound."""

    # ---------------------------------------------------------------- saving it

    def described(self) -> dict[str, Any]:
        """Return all that makes this program again: name, settings, prompts, demos and tunables."""
        state = self.dump_state()
        return {"name": type(self).__name__, "settings": self.settings(), "state": state}

    def save(self, path: str | Path, **_: Any) -> None:
        """Save the program into a folder as ``program.json``; ``salon.load`` reads it.

        LMs are not saved: they belong to whoever calls the program.
        """
        content = self.described()
        self.check_savable()
        write_program(path, {**content, "signatures": self.contracts()})

    def contracts(self) -> dict[str, str]:
        """Return the fields of each predictor with their types, which tuning does not change."""
        return {name: contract_of(predictor.signature) for name, predictor in self.named_predictors()}

    def check_savable(self) -> None:
        """Make sure that what ``save`` writes makes this program again.

        Raises:
            UserError: If it would not.
        """
        for name, predictor in self.named_predictors():
            if predictor.config or predictor.fields:
                odd = ", ".join([*predictor.config, *predictor.fields])
                raise UserError(
                    "The program cannot be saved",
                    f"its predictor {name} has settings of its own ({odd}), which a program file does not hold",
                    "Set them on the LM.",
                )
        try:
            read = json.loads(json.dumps(self.described(), allow_nan=False))
            other = type(self)(**read["settings"])
            check_contracts(self.contracts(), other)
            other.load_state(read["state"])
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError("The program cannot be saved", f"it would not come back as it is: {error}") from error
        mine = dict(self.named_predictors())
        for name, predictor in other.named_predictors():
            if not same_prompts(mine[name], predictor):
                raise UserError(
                    "The program cannot be saved",
                    f"the demonstrations of its predictor {name} would not come back as they are",
                    "Give them as texts, numbers, lists and dicts with texts as keys.",
                )

    def changed(self, **settings: Any) -> Self:
        """Return a program like this one with other settings; prompts and other tunables stay as they are."""
        program = type(self)(**{**self.settings(), **self.carried(), **settings})
        for name, predictor in program.named_predictors():
            predictor.lm = dict(self.named_predictors())[name].lm
        state, own = program.dump_state(), dict(self.named_predictors())
        fitting = {
            name: list(predictor.signature.fields) == list(own[name].signature.fields)
            for name, predictor in program.named_predictors()
        }
        kept = {name: s for name, s in self.dump_state().items() if name in state and name not in settings}
        program.load_state({**state, **{name: s for name, s in kept.items() if fitting.get(name, True)}})
        return program

    def load(self, path: str | Path, **_: Any) -> None:
        """Take prompts, demos and tunables from a folder that ``save`` wrote.

        Raises:
            OutputError: If there is no program.
            UserError: If it does not fit this one.
        """
        content, own = read_program(path), type(self).__name__
        if content.get("name") != own:
            raise UserError(f"{path} holds a {excerpt(str(content.get('name')), 60)}", f"this is a {own}")
        check_contracts(content.get("signatures"), self)
        self.load_state(content.get("state"))

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """Return prompts, demos and tunables, without LMs."""
        return {name: saved_state(parameter, json_mode) for name, parameter in self.named_parameters()}

    def load_state(self, state: Any, **_: Any) -> None:
        """Take prompts, demos and tunables from a saved state, all or none.

        Raises:
            UserError: If the state does not fit this program.
        """
        own = dict(self.named_parameters())
        if not isinstance(state, Mapping) or state.keys() != own.keys():
            odd = ", ".join(sorted(map(str, (state if isinstance(state, Mapping) else {}).keys() ^ own.keys())))
            raise UserError("The saved program does not fit this salon", f"it differs in {excerpt(odd, 300)}")
        for name, parameter in own.items():
            restore(name, copy.copy(parameter), state[name])
        for name, parameter in own.items():
            restore(name, parameter, state[name])

    def described_lms(self) -> dict[str, dict[str, Any]]:
        """Return what may be told of the LMs that a session would use now, by role, persona id or persona name.

        Raises:
            LMSetupError: If there is none.
        """
        lms, own = LMs(named=self.named_lms()), [predictor.lm for _, predictor in self.named_predictors()]
        spare = next(iter(own), None) if all(own) else None
        roles = {role: describe(lms.of(role, own=spare)) for role in self.roles}
        return roles | {name: describe(lm) for name, lm in lms.named.items()}

    def _header(self, inputs: dict[str, Any], seed: int) -> dict[str, Any]:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise UserError(f"The seed {seed!r} cannot be used", "it must be a whole number")
        return {
            "kind": "header",
            "version": VERSION,
            "program": self.described(),
            "settings": self.settings(),
            "inputs": inputs,
            "seed": seed,
            "models": self.described_lms(),
            "predictors": {name: describe(p.lm) for name, p in self.named_predictors() if p.lm is not None},
            "packages": {
                "python": sys.version.split()[0],
                **{name: version_of(name) for name in ("salon", "dspy", "litellm", "sentence-transformers")},
            },
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def synchronous(name: str, work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a coroutine function as a function of another name, for callers with and without an event loop."""

    @wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_sync(work(*args, **kwargs))

    run.__name__ = run.__qualname__ = name
    return run


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from synchronous code, also where an event loop is running already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    result: list[T] = []
    failure: list[BaseException] = []
    context = contextvars.copy_context()

    def target() -> None:
        try:
            result.append(context.run(asyncio.run, work))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=target, name="salon")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def _ignore(_: Event | CallProgress) -> None:
    """Listen to nothing."""
