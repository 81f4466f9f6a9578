"""The tuning of prompts within a compile: from which program, on which tasks, and what came of it.

From which program prompts are tuned, and what comes of it, is decided once and written down: what is measured later
must not change the one, nor the order in which an optimizer's threads are answered the other. Until it is decided,
a tuning that is run again takes sessions, ratings and proposals from the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from salon.errors import LMSetupError, OutputError, UserError

from ..data.benchmarks import Task
from ..evals.judges import RubricJudge
from ..modules.budget import Usage
from ..modules.program import SessionProgram
from .bench import Bench
from .compile_folder import CompileFolder
from .compile_plan import Plan, halves, most_groups, weights
from .objectives import Objective
from .optimizers import Prompts
from .prompts import PromptsTuned, tune_prompts
from .rated_once import RatedOnce
from .space import with_values

__all__ = ["PromptStage", "spent_before"]

MOST_FAILED = 0.5  # of the sessions; bad prompts may fail some, an outage fails more
_NOTED = "prompts"


def _trouble(tuned: PromptsTuned) -> str:
    """Return why a tuning says nothing of the prompts; empty if it does."""
    if tuned.failed >= MOST_FAILED * max(tuned.sessions, 1):
        return f"{tuned.failed} of {tuned.sessions} sessions failed"
    if tuned.score_before is None:
        return "The program was not measured"
    written = tuned.details.get(tuned.how, {})
    asked, failed = written.get("proposals", 0), len(written.get("proposals_without_answer", ()))
    return f"{failed} of {asked} new prompts were not written" if failed and failed >= MOST_FAILED * asked else ""


def spent_before(folder: CompileFolder) -> Usage:
    """Return what a tuning of prompts in earlier calls cost, its ratings included, as far as that was written down."""
    noted = folder.noted(_NOTED) or {}
    return Usage.total(Usage(**noted[part]) for part in ("spent", "judging", "interrupted") if part in noted)


@dataclass
class PromptStage:
    """Tunes the prompts of a compile.

    Attributes:
        folder: Where its course is noted.
        place: Folder of its sessions.
        plan: How the search goes.
        train: Tasks to tune on.
        goals: What to reach.
        judge: Rates answers; None for no judge.
        groups: Sessions on each task.
        seed: Decides the seeds of sessions and the optimizer's draws.
        bench: Whose account and limit are shared.
        tell: Told what is done.
        spent: What it cost, its sessions included, its ratings not.
        judging: What rating its sessions cost.
        stopped: Why it ended before its time.
        unrated: That judges rated too few answers to go by.
    """

    folder: CompileFolder
    place: Path
    plan: Plan
    train: list[Task]
    goals: list[Objective]
    judge: RubricJudge | None
    groups: int
    seed: int
    bench: Bench
    tell: Callable[[str], None]
    spent: Usage = field(default_factory=Usage)
    judging: Usage = field(default_factory=Usage)
    stopped: str = ""
    unrated: str = ""

    async def run(self, program: SessionProgram, how: Prompts, numbers: Mapping[str, float]) -> SessionProgram | None:
        """Return a program with better prompts, or None if none were found.

        Args:
            program: The untuned program.
            how: The optimizer.
            numbers: Numbers of the program to tune from, unless that was decided before.
        """
        noted = self.folder.noted(_NOTED)
        if noted is None:
            noted = {"numbers": dict(numbers)}
            self.folder.note(_NOTED, noted)
        base = with_values(program, noted["numbers"])
        if "spent" in noted:
            self.tell(f"Prompts were tuned with {how} before")
            self.spent, self.judging = Usage(**noted["spent"]), Usage(**noted["judging"])
        elif self.bench.closed:
            self.stopped = f"Prompts were not tuned: {self.bench.closed}"
            return None
        elif (concluded := await self._concluded(base, how, noted)) is not None:
            noted |= concluded
        else:
            return None
        if noted["state"] is None:
            return None
        better = base.changed()
        better.load_state(noted["state"])
        return better

    async def _concluded(self, base: SessionProgram, how: Prompts, noted: dict[str, Any]) -> dict[str, Any] | None:
        """Return what came of tuning, written down; None if it was cut short, in which case its cost is."""
        self.tell(f"Tuning prompts with {how}, from the program picked so far")
        if "interrupted" in noted:  # sessions that are taken from the folder are booked again
            self.bench.purse.spent = self.bench.spent.minus(Usage(**noted["interrupted"]))
        before, found = replace(self.bench.spent), None
        try:
            tuned = await self._tuned(base, how)
            trouble = self.unrated or _trouble(tuned)
            if tuned.reason != "complete":
                self.stopped = tuned.reason
            elif trouble:
                self.stopped = f"{trouble} while prompts were tuned: nothing was learnt. The same command tries again."
            else:
                found = {
                    "state": tuned.program.dump_state() if tuned.improved else None,
                    "scores": [tuned.score_before, tuned.score_after],
                    "spent": asdict(self.spent),
                    "judging": asdict(self.judging),
                }
        except (OutputError, LMSetupError):
            raise
        except UserError as error:  # the one predictor to tune is never asked with these numbers
            self.stopped = str(error)
            self.spent = self.bench.spent.minus(before).minus(self.judging)
        finally:
            cost = replace(self.bench.spent.minus(before), seconds=0.0)
            kept = {"numbers": noted["numbers"], **(found or {"interrupted": asdict(cost)})}
            self.folder.note(_NOTED, kept)
        return found

    async def _tuned(self, base: SessionProgram, how: Prompts) -> PromptsTuned:
        learnt, chosen_by = halves(self.train)
        purse, limit = self.bench.purse, self.bench.limit
        authors = {str(model.get("model")) for model in base.described_lms().values()}
        wanted, gate = weights(self.goals, self.judge is not None)
        with RatedOnce(self.judge, self.place / "judge", self.seed, limit, purse, authors) as rate:
            try:
                tuned = await tune_prompts(
                    base,
                    how,
                    learnt,
                    chosen_by,
                    rate=rate,
                    groups=self.groups,
                    objectives=wanted,
                    gate=gate,
                    seed=self.seed,
                    purse=purse,
                    limit=limit,
                    reflection_lm=self.plan.reflection_lm,
                    only=self.plan.only,
                    max_metric_calls=most_groups(how, self.plan.trials, len(self.train)),
                    out=self.place,
                    tell=self.tell,
                )
                self.spent = tuned.spent
            finally:
                self.judging = rate.spent
            answers, unrated = rate.answers
            if self.judge is not None and unrated and unrated >= MOST_FAILED * answers:
                self.unrated = f"{unrated} of {answers} answers were not rated"
        return tuned
