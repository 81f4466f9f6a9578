"""The course of a compile, stage by stage (see ``compile``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from salon.errors import BudgetSpent, CallFailure, LogError, RunFailure

from ..data.benchmarks import Task
from ..evals.jobs import JobRow
from ..evals.judges import RubricJudge
from ..modules.budget import Budget, Usage
from ..modules.embedding import Embedder
from ..modules.program import SessionProgram
from .bench import Bench, Measuring, cost_of
from .compile_folder import CompileFolder
from .compile_plan import Plan
from .front import pick
from .objectives import Objective, needs_ratings, values_of
from .optimizers import Prompts
from .prompt_stage import PromptStage, spent_before
from .space import program_key, space_of
from .study import EXHAUSTED, lacking, too_many_failed, tune
from .trials import Progress, TrialRecord, Tuned
from .verify import Verdict, verdict_of

__all__ = ["Compiling", "Found", "Tell"]

Tell: TypeAlias = Callable[[Progress | Measuring | str], None]
"""Told of each trial, of each session, and in a line of what is done."""
UNTUNED = "untuned"
DEFAULT = "default"
_ASIDE = "The rest is set aside for the last comparison."


@dataclass(frozen=True)
class Found:
    """A program that was measured in some stage.

    Attributes:
        record: Its trial.
        program: The program.
        prompts: Which prompts it has: ``default``, or how they were tuned.
    """

    record: TrialRecord
    program: SessionProgram
    prompts: str


@dataclass
class Compiling:
    """The state of a compile.

    Attributes:
        program: The untuned program.
        train: Tasks to tune on.
        held_out: Tasks for the last comparison.
        goals: What to reach.
        judge: Rates answers; None for no judge.
        groups: Sessions on each task.
        seed: Decides the seeds of sessions and the search.
        budget: Hard limits of all of it.
        folder: Folder of the compiled program.
        plan: How the search goes.
        max_concurrency: Most calls in flight at once.
        embedder: Embeds answers.
        tell: Told what is done.
        stages: What the studies found, each with the prompts that its programs have.
        tuning: The tuning of prompts; None if it was not come to.
        stopped: Why the search ended before its time.
    """

    program: SessionProgram
    train: list[Task]
    held_out: list[Task]
    goals: list[Objective]
    judge: RubricJudge | None
    groups: int
    seed: int
    budget: Budget
    folder: CompileFolder
    plan: Plan
    max_concurrency: int
    embedder: Embedder
    tell: Tell
    stages: list[tuple[Tuned, str]] = field(default_factory=list)
    tuning: PromptStage | None = None
    stopped: str = ""

    def __post_init__(self) -> None:
        self.verifying, self.bench = self._bench("held-out"), self._bench("training")

    def _bench(self, name: str) -> Bench:
        place, clock = self.folder.root / "sessions" / name, lambda: self.folder.seconds
        given = (self.judge, self.groups, self.seed, self.budget, self.max_concurrency, self.embedder)
        cached = all(goal.kind != "cost" for goal in self.goals)
        return Bench(place, *given, clock, self._measured, cached)

    def _measured(self, measuring: Measuring) -> None:
        """Tell of a session, with the cost of all of it."""
        self.tell(replace(measuring, spent=Usage.total([self.verifying.spent, self.bench.spent])))

    # ---------------------------------------------------------------- the untuned program

    async def untuned(self) -> None:
        """Measure the untuned program on the held-out tasks.

        Raises:
            BudgetSpent: If the budget ends before that.
            RunFailure: If it fails there, or has no value of an objective; nothing could be held against it.
        """
        tasks = f"{len(self.held_out)} held-out task{'' if len(self.held_out) == 1 else 's'}"
        self.tell(f"The untuned program answers {tasks}, {self.groups} times each")
        async with self.folder.alone(self.tell):
            self.before = await self.verifying.measure(self.program, self.held_out, UNTUNED, enough=self._enough)
            if self.folder.noted(UNTUNED) is None:
                self.folder.note(UNTUNED, round(self.folder.seconds, 1))
        values = await asyncio.to_thread(values_of, self.before, self.goals, self.embedder)
        if why := self._faulty(self.before) or lacking(values):
            raise RunFailure("The untuned program cannot be measured", why, "Run it again once it can.")

    def _faulty(self, rows: Sequence[JobRow]) -> str:
        return too_many_failed(rows, needs_ratings(self.goals))

    def _enough(self, rows: Sequence[JobRow]) -> bool:
        return not self._faulty(rows)

    def _open(self, bench: Bench, elsewhere: Usage, where: str) -> None:
        """Let a bench spend what is left of the budget; if nothing is, only what is on disk can be had from it."""
        left = self.budget.minus(elsewhere)
        bench.closed = f"the budget is used up, {where}" if left is None else ""
        bench.purse.budget = left or Budget()

    def _open_search(self) -> None:
        """Let the search spend all but what comparisons have cost, and twice what the untuned program took.

        That is set aside: the picked program may take twice as much.
        """
        aside = Usage.total([self.verifying.spent, *([cost_of(*self.before)] * 2)])
        aside.seconds = 2 * float(self.folder.noted(UNTUNED))  # what it took is on the clock, which runs on
        self.bench.spent.add(spent_before(self.folder))
        self._open(self.bench, aside, "but for what is set aside for the last comparison.")

    # ---------------------------------------------------------------- the search

    async def search(self) -> None:
        """Tune numbers, then prompts, then numbers around them.

        A budget that is used up ends it; so does a failure, once a program was measured.

        Raises:
            CallFailure: If no call can succeed (model name, key).
            RunFailure: If no variant succeeds.
        """
        try:
            self._open_search()
            await self._searched()
        except (CallFailure, LogError):
            raise
        except BudgetSpent as error:
            self.stopped = str(error)
        except RunFailure as error:
            if not self.able():
                raise
            self.stopped = str(error)

    async def _searched(self) -> None:
        trials, how = self.plan.trials, self.plan.prompts
        first = trials if how is None else (trials + 1) // 2
        await self._numbers(self.program, DEFAULT, first)
        if how is None or self.stopped:
            return
        async with self.folder.alone(self.tell):
            program = await self._prompted(how)
        if self.stopped:
            return
        if program is None:
            await self._numbers(self.program, DEFAULT, trials)
        else:
            await self._numbers(program, how, max(1, trials - first))

    async def _prompted(self, how: Prompts) -> SessionProgram | None:
        """Return a program with better prompts than the one picked so far; None if none was found."""
        picked, place = self._picked(), self.folder.root / "sessions" / "prompts"
        if picked is None:
            return None
        self.tuning = PromptStage(
            self.folder, place, self.plan, self.train, self.goals, self.judge, self.groups, self.seed, self.bench,
            self.tell,
        )  # fmt: skip
        better = await self.tuning.run(self.program, how, picked.record.numbers)
        self.stopped = self.tuning.stopped
        return better

    async def _numbers(self, program: SessionProgram, label: str, trials: int) -> None:
        """Tune the numbers of a program; the study's name is its own, for many may share a storage."""
        found = await tune(
            program,
            self.bench,
            self.train,
            self.goals,
            out=self.folder.root,
            trials=trials,
            space=space_of(program, include=self.plan.include, ranges=self.plan.ranges),
            sampler=self.plan.sampler,
            seed=self.seed,
            storage=self.plan.storage,
            name=f"{type(program).__name__} {label} {self.folder.key[:6]}-{program_key(program)[:6]}",
            workers=self.plan.workers,
            limits=self.plan.limits,
            tell=lambda progress: self._told(progress, label),
        )
        if found.stopped == EXHAUSTED:
            self.tell(f"The numbers make {len({record.key for record in found.trials})} programs, and all were tried")
        elif found.stopped:
            self.stopped = self.stopped or f"{found.stopped} {_ASIDE}"
        self.stopped = self.stopped or found.unfinished
        self.stages = [stage for stage in self.stages if stage[1] != label] + [(found, label)]

    def _told(self, progress: Progress, label: str) -> None:
        """Tell of a trial, counted over all studies."""
        self.folder.note()
        before = sum(found.prompts != label for found in self.everything())
        done = before + progress.done
        self.tell(replace(progress, before=before, done=done, trials=max(self.plan.trials, done)))

    # ---------------------------------------------------------------- the result

    def everything(self) -> list[Found]:
        """Return all programs that were tried, the untuned one first; of those tried again, the last trial."""
        found = {
            (label, record.key): Found(record, tuned.program_of(record), label)
            for tuned, label in self.stages
            for record in tuned.trials
            if record.copy_of is None and record.state != "running"
        }
        return sorted(found.values(), key=lambda one: not self.is_untuned(one))

    def is_untuned(self, found: Found) -> bool:
        """Return whether a program is the untuned one."""
        return found.record.untuned and found.prompts == DEFAULT

    def able(self) -> list[Found]:
        """Return the programs that may win: those measured again, unless the search ended before it came to that."""
        able = [found for found in self.everything() if found.record.state == "complete" and found.record.feasible]
        sure = [found for found in able if found.record.measured > 1]
        cut_off = self.stopped and all(found.record.untuned for found in sure)
        return able if cut_off or not sure else sure

    def _picked(self) -> Found | None:
        able = self.able()
        at = pick([found.record.means for found in able], self.goals, self.plan.rule)
        return None if at is None else able[at]

    async def concluded(self) -> tuple[Found | None, Verdict, SessionProgram]:
        """Hold the picked program against the untuned one; return it, the verdict, and the program to return."""
        picked = self._picked()
        async with self.folder.alone(self.tell):
            verdict = await self._verified(picked)
        kept = picked.program if picked is not None and verdict.better else self.program.changed()
        return picked, verdict, kept

    def _none_able(self) -> str:
        """Return why no program may win."""
        passing = [found.record for found in self.everything() if found.record.state == "complete"]
        reasons = "; ".join(dict.fromkeys(record.reason for record in passing[:3]))
        return f"no variant keeps the limits: {reasons}" if passing else "no variant has all values"

    async def _verified(self, picked: Found | None) -> Verdict:
        if picked is None:
            return Verdict({}, False, f"Nothing was tuned: {self.stopped or self._none_able()}")
        if self.is_untuned(picked):
            why = f" ({self.stopped})" if self.stopped else ""
            return Verdict({}, False, f"No variant was better than the untuned program, which is kept{why}.")
        self.tell("The picked program answers the held-out tasks")
        self._open(self.verifying, replace(self.bench.spent, seconds=0.0), "the search took it.")
        try:
            place = picked.record.place
            after = await self.verifying.measure(picked.program, self.held_out, place, enough=self._enough)
        except BudgetSpent as error:
            return _undecided(str(error))
        if why := self._faulty(after):
            return _undecided(why)
        return await asyncio.to_thread(verdict_of, self.before, after, self.goals, self.embedder, self.seed)


def _undecided(why: str) -> Verdict:
    text = f"The picked program could not be held against the untuned one, which is kept: {why}"
    return Verdict({}, False, text)
