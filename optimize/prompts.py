"""Tuning the prompts of a session program: instructions and demonstrations, for quality and diversity at once.

One of DSPy's optimizers looks for better prompts, on training tasks, and tries them on validation tasks. Whatever
the optimizer, every variant is a whole program that holds G sessions on a task, with the same seeds as all others;
every group of sessions is held once, under one account, and rated once. Of all variants that were tried on all
validation tasks, the untuned one among them, the one with the best mean score is returned: the result is never
worse on these tasks than what was there. Only steps that are asked at all are tuned, or one alone.

A budget that runs out ends the tuning with the best so far. A model that cannot be used ends it with an error, and
what was made until then stays on disk: run again with the same folder, nothing is asked for twice.

Demonstrations are calls of training sessions that were good, those of the best-rated session of a group. Each is
held to ``demo_tokens`` by cutting its inputs, and a predictor gets at most ``demos``: so many tokens a prompt may
grow, on top of what a program allows itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy

from salon.errors import BudgetSpent, RunFailure, UserError

from ..data.benchmarks import Task
from ..data.splits import normalised
from ..evals.conditions import check_whole
from ..evals.ledger import Ledger, together
from ..modules.budget import Account, Budget, Usage
from ..modules.calls import LMs
from ..modules.events import PERSON
from ..modules.program import SessionProgram
from .group_module import GroupModule
from .groups import Asked, Groups, Rate
from .metric import Aim
from .optimizer_thread import run_in_thread
from .optimizers import HOW, Course, least_calls
from .proposer import ROLE, Proposer
from .scoreboard import Candidate, Scoreboard

__all__ = ["Candidate", "PromptsTuned", "check_prompts", "tune_prompts"]

QUALITY_AND_VENDI: Mapping[str, float] = {"quality": 1.0, "vendi": 1.0}


@dataclass(frozen=True)
class PromptsTuned:
    """What came of tuning prompts.

    Attributes:
        program: The best program on the validation tasks; the untuned one if none was better.
        how: The optimizer.
        score_before: Mean score of the untuned program, 0 to 1; None if the budget ended before that was known.
        score_after: Mean score of ``program``.
        candidates: All programs that were tried on all validation tasks, the untuned one first.
        reason: How it ended: ``complete``, or why it was cut short.
        sessions: Sessions held, those found on disk included.
        failed: Sessions of these that have no answer.
        metric_calls: Groups of sessions that were asked for, those known already included.
        spent: What sessions and proposals cost; what the judges cost is on the account of who made ``rate``.
        seconds: Wall time.
        details: More on its course, as JSON values.
    """

    program: SessionProgram
    how: str
    score_before: float | None
    score_after: float | None
    candidates: tuple[Candidate, ...] = field(repr=False)
    reason: str
    sessions: int
    failed: int
    metric_calls: int
    spent: Usage
    seconds: float
    details: dict[str, Any] = field(repr=False)

    @property
    def improved(self) -> bool:
        """Whether a program better than the untuned one was found."""
        return None not in (self.score_before, self.score_after) and self.score_after > self.score_before  # type: ignore[operator]


async def tune_prompts(
    program: SessionProgram,
    how: str,
    trainset: Sequence[Task],
    valset: Sequence[Task],
    *,
    rate: Rate,
    groups: int = 3,
    objectives: Mapping[str, float] = QUALITY_AND_VENDI,
    gate: float = 6.0,
    seed: int = 0,
    max_metric_calls: int = 60,
    max_sessions: int | None = None,
    purse: Account | None = None,
    limit: asyncio.Semaphore | None = None,
    reflection_lm: Any = None,
    only: str | None = None,
    demos: int = 2,
    demo_tokens: int = 600,
    candidates: int = 4,
    out: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> PromptsTuned:
    """Tune the prompts of a program; the program itself stays as it is.

    Args:
        program: A session program with its LMs.
        how: ``gepa``, ``mipro`` or ``bootstrap``.
        trainset: Tasks to learn from.
        valset: Other tasks, to choose by.
        rate: Rates the answers to a task; called once for each group, on the event loop of the caller.
        groups: Sessions on each task (G).
        objectives: Weights of ``quality`` and of one diversity: ``vendi``, ``distance``, ``div_bleu`` or ``gated``.
        gate: Quality from which an answer counts for ``gated``.
        seed: Decides the seeds of sessions (as ``Bench`` does) and the draws of the optimizer.
        max_metric_calls: Groups of sessions the optimizer may ask for; one of known sessions counts as well.
        max_sessions: Sessions to hold at most; None for as many as it takes.
        purse: An account with limits, shared with others; None for no limits.
        limit: Bounds calls in flight, shared with others.
        reflection_lm: Writes new instructions; None for DSPy's current LM.
        only: Name of the one predictor to tune; None for all that are asked in the sessions.
        demos: Demonstrations for each predictor at most (``mipro``, ``bootstrap``).
        demo_tokens: Tokens of a demonstration at most.
        candidates: Instructions and sets of demonstrations for each predictor (``mipro``).
        out: Folder for sessions, proposals and the optimizer's log; None keeps nothing.
        tell: Told in a line what is done.

    Raises:
        UserError: If something cannot work; said before anything is spent, except that ``only`` is never asked.
        CallFailure: If no call can succeed (model name, key); what was made is kept in ``out``.
        RunFailure: If no session of the program has an answer.
    """
    check_prompts(how, trainset, valset, program, only)
    for name, value, least in (
        ("groups", groups, 1), ("demos", demos, 1), ("demo_tokens", demo_tokens, 50), ("candidates", candidates, 2),
        ("max_metric_calls", max_metric_calls, least_calls(how, len(trainset), len(valset))),
    ):  # fmt: skip
        check_whole(name, value, least)
    aim = Aim.of(objectives, groups, gate)
    lms = {ROLE: reflection_lm} if reflection_lm is not None else {}
    if how != "bootstrap":
        LMs(named=lms).of(ROLE)
    started = time.monotonic()
    with dspy.context(trace=None, caller_modules=[]):
        context = contextvars.copy_context()
    board = Scoreboard(program, [task.id for task in valset], aim, tell)
    shared = limit or asyncio.Semaphore(program.max_concurrency)
    account = purse or Account(Budget(), lambda: time.monotonic() - started)
    held = Groups(
        rate=rate, aim=aim, size=groups, seed=seed, limit=shared, purse=account, most=max_sessions, out=out,
        context=context, done=board.add,
    )  # fmt: skip
    details: dict[str, Any] = {"objectives": dict(objectives), "groups": groups, "seed": seed, "only": only}
    spent, reason = Usage(), "complete"
    with ExitStack() as open_:
        try:
            tell(f"Measuring the program on {len(valset)} validation tasks with {groups} sessions each")
            first = await together(held.of(program, task) for task in valset)
            if not any(group.answers for group in first):
                why = next(iter(first[0].failures.values()), "")
                raise RunFailure("No session of the program has an answer", why)
            tuned = _tuned(program, only, [call for group in first for call in group.asked])
            details |= {"tuned": tuned, "threshold": board.candidates[0].score if board.candidates else 0.0}
            tasks = {task.text: task for task in (*trainset, *valset)}
            traced: Any = "all" if how == "gepa" else "best"
            module = GroupModule(program.changed(), held, tasks, tuned, demo_tokens, traced)
            proposer = None
            if how != "bootstrap":
                place = None if out is None else out / ROLE
                ledger = open_.enter_context(Ledger(place, ROLE, lms, seed, limit=shared, purse=account))
                proposer, spent = Proposer(ledger, module, how), ledger.spent
            course = Course(
                how, module, trainset, valset, held, proposer, program.embedder, details["threshold"], seed,
                max_metric_calls, demos, candidates,
            )  # fmt: skip
            log = None if out is None else out / "optimizer.log"
            tell(f"Tuning {', '.join(tuned)} with {how}, {max_metric_calls} groups of sessions at most")
            details[how] = await run_in_thread(course, log)
        except BudgetSpent as error:
            reason = str(error)
            tell(f"{reason} The best so far is kept.")
        finally:
            await held.close()
    total = replace(Usage.total([held.spent, spent]), seconds=round(time.monotonic() - started, 3))
    best = board.best
    result = PromptsTuned(
        program=best.program if best is not None else program.changed(),
        how=how,
        score_before=board.untuned.score if board.untuned is not None else None,
        score_after=best.score if best is not None else None,
        candidates=tuple(board.candidates),
        reason=reason,
        sessions=held.held,
        failed=held.failed,
        metric_calls=held.asked_for,
        spent=total,
        seconds=total.seconds,
        details=details,
    )
    tell(_outcome(result))
    return result


def check_prompts(
    how: str, trainset: Sequence[Task], valset: Sequence[Task], program: SessionProgram, only: str | None
) -> None:
    """Refuse what cannot work, whatever the model; asks nothing.

    Raises:
        UserError: If it cannot.
    """
    if how not in HOW:
        raise UserError(f"how={how!r} is not known", f"it is one of {', '.join(HOW)}")
    for name, tasks in (("trainset", trainset), ("valset", valset)):
        if not tasks:
            raise UserError(f"The {name} is empty", "prompts are learnt from some tasks and chosen by others")
    seen: dict[str, str] = {}
    for name, tasks in (("trainset", trainset), ("valset", valset)):
        for task in tasks:
            earlier = seen.setdefault(normalised(task.text), name)
            if earlier != name:
                why = f"the task {task.text[:60]!r} is in both, so a prompt could be chosen for what it has seen"
                raise UserError("Training and validation tasks overlap", why, "Give different tasks.")
    ids = [task.id for task in (*trainset, *valset)]
    if len(set(ids)) < len(ids) or len(seen) < len(ids):
        raise UserError("A task is there twice", "two tasks have one id or one text", "Give each task once.")
    known = [name for name, _ in program.named_predictors()]
    if only is not None and only not in known:
        raise UserError(f"There is no predictor {only!r}", f"{type(program).__name__} has {', '.join(known)}")


def _tuned(program: SessionProgram, only: str | None, calls: Sequence[Asked]) -> list[str]:
    """Return the predictors to tune: those that are asked in sessions, or one of them.

    A simulated person is no part of the program: better answers must not come from an easier person.

    Raises:
        UserError: If the one is never asked.
    """
    asked = {call.predictor for call in calls if call.role != PERSON or call.predictor == only}
    used = [name for name, _ in program.named_predictors() if name in asked]
    if only is not None and only not in used:
        why = f"its sessions ask {', '.join(used)}"
        raise UserError(f"Tuning {only!r} would change nothing", why, "Name one of these, or change the settings.")
    return used if only is None else [only]


def _outcome(result: PromptsTuned) -> str:
    if result.score_before is None:
        return "The program was not measured to the end: its prompts stay as they are."
    if not result.improved:
        return f"No better prompts were found: they stay as they are (score {result.score_before:.3f} of 1)."
    return f"Better prompts were found: the score went from {result.score_before:.3f} to {result.score_after:.3f} of 1."
