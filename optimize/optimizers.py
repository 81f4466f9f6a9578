"""DSPy's prompt optimizers, run on a module that holds groups of sessions.

- ``gepa``: takes the program, or a variant that is best at some task or in one objective, holds sessions on a few
  training tasks, and lets a model mend the instruction of one step from their feedback. A variant that does
  better on those tasks is tried on all validation tasks.
- ``mipro``: gathers sets of demonstrations from good training sessions, has other instructions written for each
  step, and searches combinations of both (MIPROv2's TPE), each trial on all validation tasks.
- ``bootstrap``: takes demonstrations from good training sessions, and no more.

Each runs in a thread of its own and returns what it found; what is taken of it is decided by the validation scores
that all of them leave behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import dspy

from ..data.benchmarks import Task
from ..evals.ledger import together
from ..modules.embedding import Embedder
from .feedback import feedback
from .group_module import GroupModule, example_of
from .groups import Group, Groups
from .metric import Aim
from .proposer import Proposer

__all__ = ["HOW", "Course", "Prompts", "least_calls", "run_optimizer"]

Prompts: TypeAlias = Literal["gepa", "mipro", "bootstrap"]
HOW: tuple[Prompts, ...] = get_args(Prompts)
_MINIBATCH = 3
_THREADS = 8


@dataclass(frozen=True)
class Course:
    """What an optimizer is run with.

    Attributes:
        how: Its name.
        module: The program as a module, whose predictors may be changed.
        trainset: Tasks to learn from.
        valset: Tasks to choose by.
        groups: Holds the sessions.
        proposer: Writes instructions; None for ``bootstrap``.
        embedder: Compares answers for the feedback.
        threshold: Score from which training sessions give demonstrations.
        seed: Decides the optimizer's draws.
        max_metric_calls: Groups it may ask for.
        demos: Demonstrations for each predictor at most.
        candidates: Instructions, and sets of demonstrations, for each predictor (``mipro``).
    """

    how: str
    module: GroupModule
    trainset: Sequence[Task]
    valset: Sequence[Task]
    groups: Groups
    proposer: Proposer | None
    embedder: Embedder
    threshold: float
    seed: int
    max_metric_calls: int
    demos: int
    candidates: int

    @property
    def examples(self) -> tuple[list[dspy.Example], list[dspy.Example]]:
        """Training and validation tasks as examples."""
        return [example_of(task) for task in self.trainset], [example_of(task) for task in self.valset]

    @property
    def threads(self) -> int:
        """Groups that are asked for at once."""
        return min(_THREADS, max(len(self.trainset), len(self.valset)))


def least_calls(how: str, train: int, val: int) -> int:
    """Return how many groups an optimizer asks for until it has tried one change."""
    if how == "gepa":
        return 2 * val + 2 * min(_MINIBATCH, train)
    return 2 * val + train


def run_optimizer(course: Course) -> dict[str, Any]:
    """Run an optimizer to its end; return what is to be told of its course.

    Raises:
        Halt: If the tuning is over before.
    """
    return {"gepa": _gepa, "mipro": _mipro, "bootstrap": _bootstrap}[course.how](course)


def gepa_metric(aim: Aim, embedder: Embedder) -> Callable[..., dspy.Prediction]:
    """Return the metric for GEPA: score, feedback (on one predictor if it is named), and the objectives alone."""

    def metric(
        gold: dspy.Example, pred: dspy.Prediction, trace: Any = None, pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> dspy.Prediction:  # fmt: skip
        group: Group = pred.group
        objectives = {"quality": group.score.quality or 0.0}
        if aim.diversity:
            objectives["diversity"] = group.score.diversity or 0.0
        told = feedback(group, aim, embedder, pred_name or "")
        return dspy.Prediction(score=group.value, feedback=told, objective_scores=objectives)

    return metric


def scalar_metric(threshold: float) -> Callable[..., float | bool]:
    """Return the metric for the others: the score; with a trace, whether it reaches the threshold."""

    def metric(example: dspy.Example, pred: dspy.Prediction, trace: Any = None) -> float | bool:
        value = float(pred.group.value)
        return value if trace is None else value >= threshold

    return metric


def _gepa(course: Course) -> dict[str, Any]:
    proposer, groups = course.proposer, course.groups
    assert proposer is not None

    def propose(
        candidate: dict[str, str], reflective_dataset: dict[str, Any], components_to_update: list[str]
    ) -> dict[str, str]:
        return {
            name: groups.await_here(proposer.mended(name, candidate[name], reflective_dataset[name]))
            for name in components_to_update
            if name in reflective_dataset
        }

    trainset, valset = course.examples
    several = len(course.module.named_parameters()) > 1
    optimizer = dspy.GEPA(
        metric=gepa_metric(groups.aim, course.embedder),
        max_metric_calls=course.max_metric_calls,
        reflection_minibatch_size=min(_MINIBATCH, len(trainset)),
        instruction_proposer=propose,
        use_merge=several,
        num_threads=course.threads,
        track_stats=True,
        warn_on_score_mismatch=False,
        seed=course.seed,
        gepa_kwargs={"frontier_type": "hybrid", "merge_val_overlap_floor": min(5, len(valset))},
    )
    found = optimizer.compile(course.module, trainset=trainset, valset=valset).detailed_results
    return {
        "candidates": len(found.candidates),
        "parents": found.parents,
        "best_by_objective": found.objective_pareto_front,
        "metric_calls": found.total_metric_calls,
        "proposals": proposer.asked,
        "proposals_without_answer": proposer.failed,
    }


def _mipro(course: Course) -> dict[str, Any]:
    proposer, groups = course.proposer, course.groups
    assert proposer is not None
    trainset, valset = course.examples
    names = [name for name, _ in course.module.named_parameters()]

    class OwnInstructions(dspy.MIPROv2):
        """MIPROv2 with instructions from the proposer, whose calls are recorded and whose prompts are bounded."""

        def _propose_instructions(
            self, program: Any, trainset: Any, demo_candidates: Any, *_: Any, num_instruct_candidates: int, **__: Any
        ) -> dict[int, list[str]]:
            texts = [task.text for task in course.trainset]
            found: dict[int, list[str]] = {}
            assert proposer is not None
            for i, predictor in enumerate(program.predictors()):
                sets = (demo_candidates or {}).get(i, [])
                demos = list({str(demo): demo for one in sets for demo in one}.values())
                now = predictor.signature.instructions
                fresh = proposer.fresh(names[i], now, demos, texts, num_instruct_candidates - 1)
                found[i] = [now, *groups.await_here(fresh)]
            return found

    lm = dspy.settings.lm or "unused"  # sessions and proposals have their own
    optimizer = OwnInstructions(
        metric=scalar_metric(course.threshold),
        prompt_model=lm,
        task_model=lm,
        max_bootstrapped_demos=course.demos,
        max_labeled_demos=0,
        auto=None,
        num_candidates=course.candidates,
        num_threads=course.threads,
        seed=course.seed,
        track_stats=False,
    )
    trials = max((course.max_metric_calls - len(valset) - len(trainset)) // len(valset), 1)
    optimizer.compile(course.module, trainset=trainset, valset=valset, num_trials=trials, minibatch=False)
    return {"trials": trials, "proposals": proposer.asked, "proposals_without_answer": proposer.failed}


def _bootstrap(course: Course) -> dict[str, Any]:
    trainset, _ = course.examples
    optimizer = dspy.BootstrapFewShot(
        metric=scalar_metric(course.threshold),
        max_bootstrapped_demos=course.demos,
        max_labeled_demos=0,
        max_rounds=1,
    )
    student = optimizer.compile(course.module, trainset=trainset)
    course.groups.await_here(together(course.groups.of(student.program, task) for task in course.valset))
    return {"demonstrations": {name: len(predictor.demos) for name, predictor in student.named_parameters()}}
