"""Groups of sessions on one task, held for an optimizer, each group once.

All sessions run on one event loop under one limit of calls, one account and the settings of whoever began the
tuning; optimizers ask for groups from their own threads. The seeds of a group are those of ``Bench``: the same
for all variants of a program (common random numbers). Groups are kept by the program's prompts, numbers, models
and task: asked for again, also by DSPy's impatient threads, a group costs nothing. With a folder, sessions are on
disk as they happen, and a tuning that is run again takes them from there, call by call.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from salon.errors import BudgetSpent, CallFailure, RunFailure, SalonError, UserError

from ..data.benchmarks import Task
from ..evals.answering import inputs_of, outcome_of
from ..evals.conditions import earlier
from ..evals.ledger import together
from ..modules.archive import finished
from ..modules.budget import Account, Usage
from ..modules.calls import CallProgress
from ..modules.events import Event
from ..modules.program import SessionProgram
from ..modules.streams import rollout_id
from .metric import Aim, Rating, Score, read_rating
from .single_flight import Halt, SingleFlight, wait_from_thread

__all__ = ["Asked", "Group", "Groups", "Rate"]

Rate = Callable[[str, Sequence[str]], Awaitable[Sequence[Any]]]
"""Rates the answers to a task: for each one object, or several, with ``value`` (1 to 10 or None) and ``reason``."""


@dataclass(frozen=True)
class Asked:
    """One call of a session.

    Attributes:
        session: Number of the session, from 1.
        predictor: Name of the predictor in the program.
        role: The role that was asked, e.g. ``participant``.
        inputs: What it was given.
        outputs: What it answered, as JSON values; empty if it failed.
        error: Why it failed.
    """

    session: int
    predictor: str
    role: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    error: str = ""


@dataclass(frozen=True)
class Group:
    """G sessions of one program on one task.

    Attributes:
        task: The task.
        answers: Answers by number of the session.
        failures: Why the others have none, by number.
        ratings: Ratings by number.
        asked: All calls, session by session, in the order of their keys.
        usage: What the sessions cost.
        score: How good the group is.
    """

    task: Task
    answers: Mapping[int, str]
    failures: Mapping[int, str]
    ratings: Mapping[int, Rating]
    asked: tuple[Asked, ...] = field(repr=False)
    usage: Usage
    score: Score

    @property
    def value(self) -> float:
        """The score as a number; 0 where there is none."""
        return self.score.value or 0.0

    @property
    def answered(self) -> list[Asked]:
        """The calls that did not fail."""
        return [call for call in self.asked if not call.error]

    @property
    def best(self) -> int | None:
        """Number of the session whose answer is rated best; None if none is."""
        known = {n: rating.value for n, rating in self.ratings.items() if rating.value is not None}
        return max(known, key=lambda n: (known[n], -n)) if known else None


@dataclass(frozen=True)
class _Held:
    """What came of one session: its answer, or why there is none."""

    answer: str
    why: str
    asked: list[Asked]
    usage: Usage


@dataclass
class Groups:
    """Holds groups of sessions, each once.

    Attributes:
        rate: Rates answers.
        aim: What makes a group good.
        size: Sessions on each task (G).
        seed: Decides the seeds of all sessions.
        limit: Bounds calls in flight.
        purse: The account of everything.
        most: Sessions at most; None for as many as the purse pays.
        out: Folder for the sessions; None keeps them in memory.
        context: The context in which sessions run.
        done: Told of each group that is finished, with the described program.
    """

    rate: Rate
    aim: Aim
    size: int
    seed: int
    limit: asyncio.Semaphore
    purse: Account
    most: int | None
    out: Path | None
    context: Context
    done: Callable[[dict[str, Any], Group], None]
    failure: SalonError | None = None
    held: int = 0
    failed: int = 0
    asked_for: int = 0
    spent: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._flights: SingleFlight[Group] = SingleFlight(self.context)

    # ---------------------------------------------------------------- asking for groups

    async def of(self, program: SessionProgram, task: Task) -> Group:
        """Return the group of a program on a task.

        Raises:
            BudgetSpent: If it does not fit the budget any more.
            CallFailure: If no call can succeed (model name, key).
            UserError: If the program or the task cannot work.
        """
        self.asked_for += 1
        described = program.described()
        models = self.context.copy().run(program.described_lms)
        told = json.dumps([described, models, task.id, task.text, self.seed, self.size])
        key = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:20]
        return await self._flights.get(key, lambda: self._made(program, described, task, key))

    def wait(self, program: SessionProgram, task: Task) -> Group:
        """Return the group of a program on a task, asked for from another thread.

        Raises:
            Halt: If the tuning is over; ``failure`` says why.
        """
        return self.await_here(self.of(program, task))

    def await_here(self, work: Any) -> Any:
        """Run a coroutine on the loop of the sessions, for a thread that waits for it.

        Raises:
            Halt: If the tuning is over; ``failure`` says why.
        """
        try:
            return wait_from_thread(self._loop, work, lambda: self._closed)
        except SalonError as error:
            self.failure = self.failure or error
            raise Halt from error

    async def close(self) -> None:
        """End the tuning: nothing is held any more, and threads that wait are let go."""
        self._closed = True
        await self._flights.close()

    # ---------------------------------------------------------------- holding them

    async def _made(self, program: SessionProgram, described: dict[str, Any], task: Task, key: str) -> Group:
        self._check()
        self.held += self.size
        numbers = range(1, self.size + 1)
        try:
            held = await together(self._session(program, task, number, key) for number in numbers)
        except SalonError as error:
            self.failure = self.failure or error
            raise
        usage = Usage.total(session.usage for session in held)
        answers = {n: session.answer for n, session in enumerate(held, 1) if session.answer}
        failures = {n: session.why for n, session in enumerate(held, 1) if not session.answer}
        self.failed += len(failures)
        ratings = await self._rated(task, answers)
        texts, values = list(answers.values()), [ratings[n] for n in answers]
        score = await asyncio.to_thread(self.aim.score, texts, values, self.size, program.embedder)
        asked = tuple(call for session in held for call in session.asked)
        group = Group(task, answers, failures, ratings, asked, usage, score)
        self.done(described, group)
        return group

    def _check(self) -> None:
        """Refuse a group that does not fit any more.

        Raises:
            BudgetSpent: If it does not.
        """
        if self.most is not None and self.held + self.size > self.most:
            why = f"{self.held} of {self.most} sessions were held, and a task takes {self.size}"
            self.failure = self.failure or BudgetSpent("No more sessions may be held", why)
        self.purse.spent.seconds = self.purse.elapsed()
        if refusal := self.purse.budget.refusal(self.purse.spent, Usage(calls=1)):
            self.failure = self.failure or BudgetSpent("The tuning cannot go on", refusal)
        if self.failure is not None:
            raise self.failure

    async def _session(self, program: SessionProgram, task: Task, number: int, key: str) -> _Held:
        """Hold a session, or take it from disk."""
        heard: dict[str, CallProgress] = {}

        def listen(item: Event | CallProgress) -> None:
            if isinstance(item, CallProgress):
                heard[item.key] = item

        inputs = inputs_of(program, task.text)
        seed = rollout_id(self.seed, "query", task.id, number)
        folder = None if self.out is None else self.out / "sessions" / key / str(number)
        recorded = None if folder is None else earlier(program, program.checked(inputs), seed, folder)
        ended = recorded is not None and finished(recorded)
        try:
            session = await program.hold(
                **inputs, seed=seed, out=None if ended else folder, recorded=recorded, offline=ended,
                limit=self.limit, purse=self.purse, results=False, listen=listen,
            )  # fmt: skip
        except CallFailure:
            raise
        except RunFailure as error:
            return _Held("", str(error), [], Usage())
        self.spent.add(session.usage)
        assert session.log is not None
        records = session.log.calls
        if refused := next((r["error"] for r in records.values() if r["status"] == "refused"), ""):
            raise BudgetSpent("The tuning cannot go on", refused)
        names = {id(predictor): name for name, predictor in program.named_predictors()}
        asked = [
            Asked(number, names[id(heard[at].predict)], r["role"], heard[at].inputs, r.get("outputs") or {}, r["error"])
            for at, r in sorted(records.items())
            if at in heard and id(heard[at].predict) in names
        ]
        return _Held(*outcome_of(program, session), asked, session.usage)

    async def _rated(self, task: Task, answers: Mapping[int, str]) -> dict[int, Rating]:
        if not answers:
            return {}
        given = await self.rate(task.text, list(answers.values()))
        if len(given) != len(answers):
            why = f"it gave {len(given)} ratings for {len(answers)} answers"
            raise UserError("The rating function cannot be used", why)
        ratings = dict(zip(answers, map(read_rating, given), strict=True))
        if any(rating.value is None for rating in ratings.values()):
            self._check()  # a judge that could not be paid
        return ratings
