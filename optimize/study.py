"""Tuning the numbers of a program: a search over several objectives at once.

**The search.** The untuned program is trial 0. Each further trial takes the numbers that the sampler suggests
(Optuna's TPE by default), and its program answers the same queries with the same seeds as all others, in blocks of
queries; a trial that has become hopeless is pruned (see ``racing``). Limits, such as a budget of tokens a session,
are constraints: a trial that passes one is known to the sampler as not feasible and cannot win. A trial of which
more than a fifth of the sessions failed, or which has no value of some objective, is recorded as failed with its
reason, and the study goes on. If ``HOPELESS`` programs in a row fail, or the last ones do, it may be an outage rather
than their fault: the untuned program is then asked one query with fresh seeds. If it fails as well, the study ends,
with an error if nothing has succeeded, and the next call tries the failed programs again before it goes on.

**The confirmation.** A trial that looks best among many is partly lucky. Before it may win, a trial is therefore
measured again on all queries with other seeds, and the mean of its measurements decides: the untuned program first,
then every trial on the front, until each trial on the front has been measured again. ``confirm`` says how often.
One that fails then is left as it was, unconfirmed, and the next call measures it again.

**Going on.** All is in the storage and in the bench's folders: the same call goes on where it was stopped, repeats
no finished trial and no call, and continues trials that were running. Processes that share a folder share one
study; processes on several machines, each with its own folder, share one through a database.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from salon.errors import (
    BudgetSpent,
    CallFailure,
    LMSetupError,
    LogError,
    OutputError,
    RunFailure,
    SalonError,
    UserError,
)

from ..data.benchmarks import Task, tasks_digest
from ..evals.conditions import check_whole
from ..evals.jobs import JobRow
from ..evals.ledger import together
from ..modules.program import SessionProgram
from ..modules.text import excerpt
from .locks import WAIT, alone
from .objectives import Objective, Value, needs_ratings, values_of
from .racing import blocks, hopeless, over_limit
from .samplers import Sampler
from .search import Search, Taken
from .space import Dimension, space_of, with_values
from .storage import storage_name
from .trials import Measures, Progress, State, TrialRecord, Tuned, front_of, winners_of

__all__ = ["EXHAUSTED", "HOPELESS", "MOST_FAILED", "check_limits", "lacking", "too_many_failed", "tune"]

MOST_FAILED = 0.2
HOPELESS = 3
EXHAUSTED = "every program of the space was tried"
_LARGEST = 1e300
_FATAL = (CallFailure, LMSetupError, LogError, OutputError)  # no other trial would fare better
T = TypeVar("T")


async def tune(
    program: SessionProgram,
    bench: Measures,
    tasks: Sequence[Task],
    objectives: Sequence[Objective],
    *,
    out: str | Path,
    trials: int = 30,
    space: Mapping[str, Dimension] | None = None,
    sampler: Sampler = "tpe",
    seed: int = 0,
    storage: str | Path | None = None,
    name: str = "numbers",
    workers: int = 1,
    limits: Mapping[str, float] | None = None,
    race: int = 3,
    confirm: int = 1,
    tell: Callable[[Progress], None] = lambda _: None,
) -> Tuned:
    """Tune the numbers of a program, or go on with it.

    Args:
        program: The untuned program; it stays as it is.
        bench: Measures programs.
        tasks: The queries that all trials answer.
        objectives: What to reach; see ``objectives_of``.
        out: Folder of the study.
        trials: How many programs to try in all, the untuned one included; of all processes together.
        space: What to search; see ``space_of``.
        sampler: Who suggests: ``tpe``, ``nsga2``, ``gp``, ``random`` or ``grid``.
        seed: Decides the suggestions.
        storage: A journal file, or the URL of a database; ``study.log`` in the folder by default.
        name: Name of the study in the storage.
        workers: Trials measured at once by this process.
        limits: By name of an objective, the most of a cost, or the least of a gain, that a winner may have.
        race: Blocks of queries after which a hopeless trial is pruned; 1 measures every trial on all queries.
        confirm: How often a trial is measured again, with other seeds, before it may win.
        tell: Told of each trial that ends and of each that was measured again.

    Returns:
        All trials and the front. A budget that is used up ends the study before its time and is told in
        ``stopped``; with a larger one the same call goes on. What failed and is tried again by the same call is told
        in ``unfinished``.

    Raises:
        UserError: If a setting is impossible.
        OutputError: If the folder or the storage holds another study, or cannot be used.
        CallFailure: If no call can succeed (model name, key).
        RunFailure: If no trial succeeds.
    """
    _check(tasks, objectives, trials, workers, race, confirm, seed)
    check_limits(limits or {}, objectives)
    root, facts = Path(out), {"queries": tasks_digest(tasks), "answers a query": bench.groups}
    chosen = dict(space if space is not None else space_of(program))
    store = storage_name(storage, root)
    bounds = dict(limits or {})
    search = await asyncio.to_thread(
        Search, program, chosen, objectives, sampler, seed, bounds, root, store, name, facts
    )
    with search:
        tuning = _Tuning(search, bench, tasks, trials, race, tell)
        stopped, unfinished = "", ""
        try:
            await tuning.search_on(workers)
            await tuning.check_failures(1)
            if confirm:
                async with alone(root / "confirm.lock"):  # the others find it done
                    await tuning.confirm(confirm)
        except BudgetSpent as error:
            stopped = str(error)
        except RunFailure as error:
            if not any(record.state == "complete" for record in search.records()):
                raise
            unfinished = str(error)
        records = search.records()
        stopped = stopped or (EXHAUSTED if search.exhausted else "")
        front = winners_of(records, objectives, confirm)
        unfinished = " ".join([*([unfinished] if unfinished else []), *tuning.unsure.values()])
        return Tuned(records, front, list(objectives), chosen, program, stopped, name, store, unfinished)


def _check(
    tasks: Sequence[Task],
    objectives: Sequence[Objective],
    trials: int,
    workers: int,
    race: int,
    confirm: int,
    seed: int,
) -> None:
    """Refuse settings that cannot work.

    Raises:
        UserError: If there are any.
    """
    for what, value, low in (
        ("trials", trials, 1),
        ("workers", workers, 1),
        ("race", race, 1),
        ("confirm", confirm, 0),
    ):
        check_whole(what, value, low)
    check_whole("seed", seed)
    if not tasks or len({task.id for task in tasks}) < len(tasks):
        raise UserError("These queries cannot be used", "at least one is needed, and none twice")
    if not objectives:
        raise UserError("There is no objective", todo="Give some, e.g. quality and vendi.")


def check_limits(limits: Mapping[str, float], objectives: Sequence[Objective]) -> None:
    """Refuse limits of what is no objective, and those that are no numbers.

    Raises:
        UserError: If there are any.
    """
    names = [objective.name for objective in objectives]
    for name, bound in limits.items():
        if name not in names:
            why = f"only objectives can be limited, and they are {', '.join(names)}"
            raise UserError(f"There is no limit of {name!r}", why, "Add it to the objectives.")
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            raise UserError(f"A limit of {bound!r} for {name} is not possible", "a number is needed")
        if not abs(bound) < _LARGEST:
            raise UserError(f"A limit of {excerpt(repr(bound), 30)} for {name} is not possible", "it must be finite")


class _Tuning:
    """The work of one process on a study."""

    def __init__(
        self,
        search: Search,
        bench: Measures,
        tasks: Sequence[Task],
        trials: int,
        race: int,
        tell: Callable[[Progress], None],
    ) -> None:
        self.search, self.bench, self.trials, self.tell = search, bench, trials, tell
        self.objectives = search.objectives
        self.parts = blocks(list(tasks), race)
        self.tasks = list(tasks)
        self._turn = asyncio.Lock()
        self._checking = asyncio.Lock()
        self.rated = needs_ratings(self.objectives)
        self.unsure: dict[int, str] = {}  # trials that could not be measured again, and why

    async def _alone(self, work: Callable[..., T], *given: object) -> T:
        """Do what waits for files in a thread, one thing at a time; also where it is cancelled, to its end."""
        async with self._turn:
            doing = asyncio.ensure_future(asyncio.to_thread(work, *given))
            try:
                return await asyncio.shield(doing)
            except asyncio.CancelledError:
                await asyncio.wait([doing])
                raise

    async def search_on(self, workers: int) -> None:
        """Measure trials until all have ended, those of other processes with the folder too, should they die."""
        await together(self.work() for _ in range(workers))
        while await self._alone(self.search.others_running):
            await asyncio.sleep(WAIT)
            await together(self.work() for _ in range(workers))

    async def work(self) -> None:
        """Measure trials until there have been enough."""
        while (taken := await self._alone(self.search.take, self.trials)) is not None:
            await self._try(taken)
            records = await self._alone(self.search.records)
            self._told(taken.number, records)
            if any(record.number == taken.number and record.state == "failed" for record in records):
                await self.check_failures(HOPELESS)

    async def check_failures(self, many: int) -> None:
        """End the study if so many programs failed since one succeeded, and the untuned one fails now as well.

        Raises:
            RunFailure: If it is so.
        """
        async with self._checking:
            failed = await self._alone(self.search.unsettled)
            if len(failed) < many:
                return
            records = await self._alone(self.search.records)
            good = any(record.state == "complete" for record in records)
            if good and await self._works():
                await self._alone(self.search.settle)
                return
            reason = next(record.reason for record in records if record.number == failed[-1])
            what = f"The last {len(failed)} trials failed" if good else f"None of {len(failed)} trials succeeded"
            raise RunFailure(what, reason, "Run it again once it can: they are tried again.")

    async def _works(self) -> bool:
        """Return whether the untuned program answers a query, with seeds that it never had."""
        number = await self._alone(self.search.probe)
        try:
            rows = await self.bench.measure(self.search.program, self.tasks[:1], f"probe-{number}", fresh=number)
        except (BudgetSpent, *_FATAL):
            raise
        except SalonError:
            return False
        return not too_many_failed(rows, self.rated)

    def _told(self, number: int, records: list[TrialRecord]) -> None:
        done = len({record.key for record in records if record.state != "running"})
        record = next(record for record in records if record.number == number)
        self.tell(Progress(record, done, self.trials, front_of(records, self.objectives)))

    async def _try(self, taken: Taken) -> None:
        """Measure a trial block by block and write down what came of it."""
        start, rows, values = time.monotonic(), list[JobRow](), dict[str, Value]()
        state: State = "complete"
        reason, limit = "", ""
        try:
            for number, part in enumerate(self.parts, 1):
                rows += await self.bench.measure(taken.program, part, f"trial-{taken.key}")
                values = await asyncio.to_thread(values_of, rows, self.objectives, self.bench.embedder)
                state, reason, limit = await self._judged(taken, rows, values, last=number == len(self.parts))
                if state != "complete":
                    break
        except (BudgetSpent, *_FATAL):
            raise
        except SalonError as error:
            state, reason = "failed", str(error)
        failed = sum(row.status != "ok" for row in rows)
        seconds = time.monotonic() - start
        await self._alone(self.search.end, taken, state, values, reason, len(rows), failed, seconds, limit)

    async def _judged(
        self, taken: Taken, rows: Sequence[JobRow], values: Mapping[str, Value], last: bool
    ) -> tuple[State, str, str]:
        """Return what a trial is after a block, why, and the objective whose limit decided it."""
        if why := too_many_failed(rows, self.rated) or (lacking(values) if last else ""):
            return "failed", why, ""
        if last:
            return "complete", "", ""
        records = await self._alone(self.search.records)
        if next(record for record in records if record.number == taken.number).untuned:
            return "complete", "", ""
        looks = len(self.parts) - 1
        front = front_of(records, self.objectives)
        queries = len({row.query for row in rows})
        if hopeless(values, [record.values for record in front], self.objectives, looks):
            return "pruned", f"dominated even at its best, after {queries} queries", ""
        for objective in self.objectives:
            bound = self.search.limits.get(objective.name)
            if bound is not None and over_limit(values[objective.name], bound, objective, looks):
                why = f"sure to pass the limit of {bound:g} {objective.name} after {queries} queries"
                return "pruned", why, objective.name
        return "complete", "", ""

    # ---------------------------------------------------------------- measuring again

    async def confirm(self, times: int) -> None:
        """Measure again what may win."""
        while (record := self._doubtful(await self._alone(self.search.records), times)) is not None:
            program = with_values(self.search.program, record.numbers)
            rows = await self.bench.measure(program, self.tasks, record.place, fresh=record.measured)
            values = await asyncio.to_thread(values_of, rows, self.objectives, self.bench.embedder)
            if why := too_many_failed(rows, self.rated) or lacking(values):
                self.unsure[record.number] = f"Trial {record.number} could not be measured again: {why}"
                continue
            await self._alone(self.search.again, record, values)
            self._told(record.number, await self._alone(self.search.records))

    def _doubtful(self, records: Sequence[TrialRecord], times: int) -> TrialRecord | None:
        """Return the next trial to measure again: the untuned one, then one on the front; None if all are sure."""
        first = [r for r in records if r.untuned and r.state == "complete" and r.copy_of is None]
        able = [r for r in (*first, *front_of(records, self.objectives)) if r.number not in self.unsure]
        return next((record for record in able if record.measured <= times), None)


def too_many_failed(rows: Sequence[JobRow], rated: bool) -> str:
    """Return why rows say nothing of a program: more than ``MOST_FAILED`` of them lack something; empty if they do.

    Args:
        rows: The rows.
        rated: Whether answers must have a rating.
    """
    failed = [row.reason for row in rows if row.status != "ok"]
    unrated = [_unrated(row) for row in rows if rated and row.status == "ok" and row.quality is None]
    if len(failed) + len(unrated) <= MOST_FAILED * len(rows):
        return ""
    if failed:
        return f"{len(failed)} of {len(rows)} sessions failed: {failed[0]}"
    return f"{len(unrated)} of {len(rows)} answers have no rating: {unrated[0]}"


def _unrated(row: JobRow) -> str:
    return next((str(rating["error"]) for rating in row.ratings if rating["error"]), "no judge was asked")


def lacking(values: Mapping[str, Value]) -> str:
    """Return which objective has no value at all, and why; empty if each has one."""
    return next((f"no {name}: {value.reason}" for name, value in values.items() if value.value is None), "")
