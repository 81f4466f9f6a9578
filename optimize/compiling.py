"""The course of a compile, stage by stage (see ``compile``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from salon.errors import BudgetSpent, CallFailure, LogError, RunFailure

from ..data.benchmarks import Task
from ..evals.judges import RubricJudge
from ..modules.budget import Budget, Usage
from ..modules.embedding import Embedder
from ..modules.program import SessionProgram
from .bench import Bench, cost_of
from .compile_folder import CompileFolder
from .compile_report import STUDY_NAME
from .front import pick
from .metric import DIVERSITIES
from .objectives import DEFAULT_THRESHOLD, Objective
from .optimizers import least_calls
from .prompts import PromptsTuned, tune_prompts
from .rated_once import RatedOnce
from .samplers import Sampler
from .space import program_key, space_of, with_values
from .study import EXHAUSTED, tune
from .trials import Progress, TrialRecord, Tuned
from .verify import Verdict, verdict_of

__all__ = ["Compiling", "Found", "Plan", "Prompts", "Tell", "halves", "most_groups", "weights"]

Prompts: TypeAlias = Literal["gepa", "mipro", "bootstrap"]
Tell: TypeAlias = Callable[[Progress | str], None]
UNTUNED = "untuned"
DEFAULT = "default"
_ASIDE = "The rest is set aside for the last comparison."
_TUNING = "prompts"  # what the tuning of prompts is noted under


@dataclass(frozen=True)
class Plan:
    """How the search goes.

    Attributes:
        trials: Variants tried in all.
        prompts: How prompts are tuned; None for numbers alone.
        rule: Which program of the front is picked.
        sampler: Who suggests numbers.
        include: Names of the numbers to tune.
        ranges: Ranges of numbers in place of the program's own.
        only: The one predictor whose prompt is tuned.
        reflection_lm: Writes new prompts.
        storage: Optuna storage; None for a journal in the folder.
        workers: Variants measured at once.
    """

    trials: int
    prompts: Prompts | None
    rule: str
    sampler: Sampler
    include: Sequence[str] | None = None
    ranges: Mapping[str, tuple[float, float]] | None = None
    only: str | None = None
    reflection_lm: Any = None
    storage: str | None = None
    workers: int = 1


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
        reflection: What tuning prompts cost, its sessions included.
        judging: What rating those sessions cost.
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
    reflection: Usage = field(default_factory=Usage)
    judging: Usage = field(default_factory=Usage)
    stopped: str = ""

    def __post_init__(self) -> None:
        self.verifying, self.bench = self._bench("held-out"), self._bench("training")

    def _bench(self, name: str) -> Bench:
        place, clock = self.folder.root / "sessions" / name, lambda: self.folder.seconds
        return Bench(
            place, self.judge, self.groups, self.seed, self.budget, self.max_concurrency, self.embedder, clock
        )  # fmt: skip

    # ---------------------------------------------------------------- the untuned program

    async def untuned(self) -> None:
        """Measure the untuned program on the held-out tasks.

        Raises:
            BudgetSpent: If the budget ends before that.
        """
        self.tell(f"The untuned program answers {len(self.held_out)} held-out tasks, {self.groups} times each")
        async with self.folder.alone(self.tell):
            self.before = await self.verifying.measure(self.program, self.held_out, UNTUNED)
            if self.folder.noted(UNTUNED) is None:
                self.folder.note(UNTUNED, round(self.folder.seconds, 1))

    def _for_search(self) -> Budget:
        """Return what the search may spend: all but three times what the untuned program took.

        One third is spent, the rest is set aside: the picked program may take twice as much.

        Raises:
            BudgetSpent: If that leaves nothing.
        """
        first = cost_of(*self.before)
        thrice = Usage()
        for _ in range(3):
            thrice.add(first)
        thrice.seconds = 2 * float(self.folder.noted(UNTUNED))  # the clock, which runs on, has the third one
        return _rest(self.budget, thrice, _ASIDE)

    # ---------------------------------------------------------------- the search

    async def search(self) -> None:
        """Tune numbers, then prompts, then numbers around them.

        A budget that is used up ends it; so does a failure, once a program was measured.

        Raises:
            CallFailure: If no call can succeed (model name, key).
            RunFailure: If no variant succeeds.
        """
        try:
            self.bench.purse.budget = self._for_search()
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
            program = await self._prompts(how)
        if self.stopped:
            return
        if program is None:
            await self._numbers(self.program, DEFAULT, trials)
        else:
            await self._numbers(program, how, max(1, trials - first))

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
            storage=self.plan.storage or self.folder.root / STUDY_NAME,
            name=f"{type(program).__name__} {label} {self.folder.key[:6]}-{program_key(program)[:6]}",
            workers=self.plan.workers,
            tell=self._told,
        )
        if found.stopped and found.stopped != EXHAUSTED:
            self.stopped = self.stopped or f"{found.stopped} {_ASIDE}"
        self.stages = [stage for stage in self.stages if stage[1] != label] + [(found, label)]

    def _told(self, progress: Progress) -> None:
        self.folder.note()
        self.tell(progress)

    # ---------------------------------------------------------------- prompts

    async def _prompts(self, how: Prompts) -> SessionProgram | None:
        """Return the program with better prompts, around which numbers are to be tuned; None if none were found.

        From which program they are tuned, and what comes of it, is decided once: what is measured later must not
        change the one, nor the order in which threads answer the other.
        """
        noted = self.folder.noted(_TUNING) or {}
        if "from" not in noted:
            picked = self._picked()
            if picked is None:
                return None
            noted = {"from": {"trial": picked.record.number, "numbers": dict(picked.record.numbers)}}
            self.folder.note(_TUNING, noted)
        base = with_values(self.program, noted["from"]["numbers"])
        if "spent" not in noted:
            self.tell(f"Tuning prompts with {how}, from trial {noted['from']['trial']}")
            tuned = await self._prompts_tuned(base, how)
            if tuned.reason != "complete":
                self.stopped = f"{tuned.reason} {_ASIDE}"
                return None
            state = tuned.program.dump_state() if tuned.improved else None
            spent = {"spent": asdict(self.reflection), "judging": asdict(self.judging)}
            noted |= {"state": state, "scores": [tuned.score_before, tuned.score_after], **spent}
            self.folder.note(_TUNING, noted)
        else:
            self.tell(f"Prompts were tuned with {how} before")
            self.reflection, self.judging = Usage(**noted["spent"]), Usage(**noted["judging"])
            for usage in (self.reflection, self.judging):
                self.bench.spent.add(usage)
        if noted["state"] is None:
            return None
        better = base.changed()
        better.load_state(noted["state"])
        return better

    async def _prompts_tuned(self, base: SessionProgram, how: Prompts) -> PromptsTuned:
        learnt, chosen_by = halves(self.train)
        place, purse, limit = self.folder.root / "sessions" / "prompts", self.bench.purse, self.bench.limit
        authors = {str(model.get("model")) for model in base.described_lms().values()}
        told, gate = weights(self.goals, self.judge is not None)
        with RatedOnce(self.judge, place / "judge", self.seed, limit, purse, authors) as rate:
            try:
                tuned = await tune_prompts(
                    base,
                    how,
                    learnt,
                    chosen_by,
                    rate=rate,
                    groups=self.groups,
                    objectives=told,
                    gate=gate,
                    seed=self.seed,
                    purse=purse,
                    limit=limit,
                    reflection_lm=self.plan.reflection_lm,
                    only=self.plan.only,
                    max_metric_calls=most_groups(how, self.plan.trials, len(self.train)),
                    out=place,
                    tell=self.tell,
                )
                self.reflection = tuned.spent
            finally:
                self.judging = rate.spent
        return tuned

    # ---------------------------------------------------------------- the result

    def everything(self) -> list[Found]:
        """Return all programs that were tried, copies left out."""
        return [
            Found(record, tuned.program_of(record), label)
            for tuned, label in self.stages
            for record in tuned.trials
            if record.copy_of is None and record.state != "running"
        ]

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

    async def _verified(self, picked: Found | None) -> Verdict:
        if picked is None:
            return Verdict({}, False, f"Nothing was tuned: {self.stopped or 'no variant has all values'}")
        if picked.record.untuned and picked.prompts == DEFAULT:
            why = f" ({self.stopped})" if self.stopped else ""
            return Verdict({}, False, f"No variant was better than the untuned program, which is kept{why}.")
        self.tell(f"The picked program, trial {picked.record.number}, answers the held-out tasks")
        try:
            self.verifying.purse.budget = _rest(
                self.budget, replace(self.bench.spent, seconds=0.0), "The search took it."
            )
            after = await self.verifying.measure(picked.program, self.held_out, picked.record.place)
        except BudgetSpent as error:
            text = f"The picked program could not be held against the untuned one, which is kept: {error}"
            return Verdict({}, False, text)
        return await asyncio.to_thread(verdict_of, self.before, after, self.goals, self.embedder, self.seed)


def _rest(budget: Budget, spent: Usage, where: str) -> Budget:
    """Return what is left of a budget.

    Raises:
        BudgetSpent: If nothing is left.
    """
    if why := budget.refusal(spent, Usage(calls=1)):
        raise BudgetSpent("The search cannot go on", why, where)
    return Budget(
        usd=None if budget.usd is None else budget.usd - spent.usd,
        tokens=None if budget.tokens is None else budget.tokens - spent.tokens,
        seconds=None if budget.seconds is None else budget.seconds - spent.seconds,
        calls=None if budget.calls is None else budget.calls - spent.calls,
    )


def halves(tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """Return the tasks that prompts are learnt from, and those that they are chosen by."""
    half = len(tasks) // 2
    return list(tasks[:half]), list(tasks[half:])


def most_groups(how: str, trials: int, tasks: int) -> int:
    """Return how many groups of sessions the tuning of prompts may ask for: as many as trials on its own tasks take.

    Args:
        how: ``gepa``, ``mipro`` or ``bootstrap``.
        trials: Variants tried in all.
        tasks: Tasks to tune on.
    """
    half = tasks // 2
    return max(least_calls(how, half, tasks - half), trials * (tasks - half))


def weights(goals: Sequence[Objective], judged: bool) -> tuple[dict[str, float], float]:
    """Return what prompts are tuned for, and the quality from which an answer is good enough.

    Quality and the first diversity among the objectives count evenly; quality alone where there is neither.
    Nothing is returned where there is nothing to go by.
    """
    quality = ["quality"] if judged and any(goal.kind == "quality" for goal in goals) else []
    diverse = [goal for goal in goals if goal.name in DIVERSITIES][:1]
    names = [*quality, *(goal.name for goal in diverse)] or (["quality"] if judged else [])
    gate = next((goal.threshold for goal in diverse if goal.threshold is not None), DEFAULT_THRESHOLD)
    return dict.fromkeys(names, 1.0), gate
