"""What a compile is given, checked before anything is spent, and what of it its folder must not mix up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import Any

from salon.errors import LMSetupError, UserError

from ..data.benchmarks import Benchmark, Task, tasks_digest
from ..data.splits import normalised
from ..evals.answering import inputs_of
from ..evals.conditions import check_whole
from ..evals.judges import RubricJudge
from ..modules.checks import check_arguments
from ..modules.program import SessionProgram
from ..modules.roundtable import Roundtable
from ..modules.text import excerpt
from .compile_folder import digest
from .compile_plan import halves, weights
from .objectives import OF_ROUNDTABLES, Objective
from .prompts import check_prompts
from .space import Dimension, program_key

__all__ = ["check_answerable", "check_apart", "check_kinds", "check_process", "check_tuning", "facts_of", "tasks_of"]


def tasks_of(given: Any, name: str = "tasks") -> list[Task]:
    """Return tasks for a benchmark, texts, examples with a ``task``, or tasks.

    Raises:
        UserError: If there is none, or one is nothing of these.
    """
    if isinstance(given, Benchmark):
        return list(given.tasks)
    one = isinstance(given, str | Mapping | Task) or not isinstance(given, Iterable)
    found: list[Task] = []
    for item in [given] if one else given:
        text = item.text if isinstance(item, Task) else item if isinstance(item, str) else getattr(item, "task", None)
        if not isinstance(text, str) or not text.strip():
            what = "An empty text" if isinstance(text, str) else type(item).__name__
            raise UserError(f"{what} in the {name} is no task", "a text is needed, or an example with a task")
        own = getattr(item, "id", None)
        named = str(own) if own else blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
        found.append(item if isinstance(item, Task) else Task(named, text, text))
    if not found:
        raise UserError(f"The {name} is empty", "at least one task is needed")
    if len({task.id for task in found}) < len(found) or len({normalised(t.text) for t in found}) < len(found):
        raise UserError(f"A task of the {name} is there twice", "two have one text or one id", "Give each task once.")
    return found


def check_kinds(program: object, budget: object, **numbers: int) -> None:
    """Refuse settings of the wrong kind.

    Raises:
        UserError: If there are any.
    """
    if not isinstance(program, SessionProgram):
        raise UserError(f"{type(program).__name__} cannot be compiled", "a session program is needed")
    program.check_savable()
    check_arguments(budget=budget)
    for name, value in numbers.items():
        check_whole(name, value, 1)


def check_process(program: SessionProgram, goals: Sequence[Objective]) -> None:
    """Refuse objectives that only sessions of a Roundtable have.

    Raises:
        UserError: If there is one, and the program is none.
    """
    named = [goal.name for goal in goals if goal.name in OF_ROUNDTABLES]
    if named and not isinstance(program, Roundtable):
        raise UserError(f"{named[0]} cannot be reached", f"a {type(program).__name__} has none, only a Roundtable has")


def check_apart(train: Sequence[Task], held_out: Sequence[Task]) -> None:
    """Refuse held-out tasks that are trained on."""
    texts = {normalised(task.text) for task in train}
    if both := [task.text for task in held_out if normalised(task.text) in texts]:
        why = f"{both[0][:60]!r} is in both, so it says nothing on new tasks"
        raise UserError("Training and held-out tasks overlap", why, "Give different tasks.")


def check_answerable(program: SessionProgram, tasks: Sequence[Task]) -> None:
    """Refuse tasks that no session can be held on, such as those that are too long.

    Raises:
        UserError: If there is one.
    """
    for task in tasks:
        try:
            program.checked(inputs_of(program, task.text))
        except UserError as error:
            told = f"No session can be held on the task {excerpt(task.id, 40)}"
            raise UserError(told, f"{error.what}: {error.why}", "Leave it out.") from error


def check_tuning(
    program: SessionProgram,
    how: str,
    train: Sequence[Task],
    goals: Sequence[Objective],
    judged: bool,
    only: str | None,
    writer: Any,
) -> None:
    """Refuse what prompts cannot be tuned with.

    Raises:
        UserError: If it cannot work.
    """
    if len(train) < 2:
        raise UserError("One task is too few to tune prompts", "some are learnt from, others are chosen by")
    check_prompts(how, *halves(train), program, only)
    if not weights(goals, judged)[0]:
        why = "they are tuned for quality or diversity, and there is neither a judge nor such an objective"
        raise UserError("Prompts cannot be tuned for these objectives", why, "Give a judge, or tune numbers alone.")
    if how != "bootstrap" and writer is None:
        todo = "Give reflection_lm, or set an LM with dspy.context."
        raise LMSetupError("No language model is set", f"{how} needs one that writes prompts", todo)


def facts_of(
    program: SessionProgram,
    train: Sequence[Task],
    held_out: Sequence[Task],
    goals: Sequence[Objective],
    judge: RubricJudge | None,
    groups: int,
    seed: int,
    prompts: str | None,
    only: str | None,
    space: Mapping[str, Dimension],
) -> dict[str, Any]:
    """Return what the sessions of a compile rest on, by what it is called."""
    return {
        "program": f"{type(program).__name__} {program_key(program)}",
        "models": {role: str(model.get("model")) for role, model in program.described_lms().items()},
        "training tasks": tasks_digest(train),
        "held-out tasks": tasks_digest(held_out),
        "objectives": [f"{goal.direction} {goal.name} ({goal.unit})" for goal in goals],
        "judges": [str(lm.model) for lm in judge.lms.values()] if judge is not None else [],
        "rubric": digest(asdict(judge.rubric)) if judge is not None else None,
        "number of sessions on a task": groups,
        "seed": seed,
        "way of tuning prompts": [prompts, only] if prompts is not None else None,
        "search space": [str(dimension) for dimension in space.values()],
        "embedder": program.embedder.model,
    }
