"""Our programs as solvers, and our judges as scorers, of inspect_ai.

A sample is one session: its input is the task, its id and epoch decide the seed, so an evaluation repeated with the
same seed asks the same. LMs are DSPy's, not inspect's: those of the program, or the one that is current where the
solver is made. What a session or a judge costs is in the sample's metadata under ``salon``.

A session without an answer is an error of its sample. An answer that no judge rated is left unscored, with the reason.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

import dspy

from salon.errors import RunFailure, UserError

from ..data.rubrics import Rubric
from ..modules.limits import CallLimits
from ..modules.streams import rollout_id
from .jobs import Job
from .methods import all_methods
from .metrics import panel_of, rate_one

__all__ = ["inspect_scorer", "inspect_solver"]

_ABOUT = "salon"
_TOLD = ("seed", "calls", "prompt_tokens", "completion_tokens", "usd", "seconds", "depth", "absorption", "balance")


class _InspectLimits(CallLimits):
    """Places for calls as inspect gives them out, so that its display shows them."""

    def __init__(self, most: int) -> None:
        self._most = most

    def of(self, lm: Any) -> AbstractAsyncContextManager[Any]:
        """Return a place for a call of an LM."""
        from inspect_ai.util import concurrency

        place: AbstractAsyncContextManager[Any] = concurrency(f"salon {getattr(lm, 'model', 'calls')}", self._most)
        return place


def inspect_solver(program: Any, *, seed: int = 0, out: str | Path | None = None, max_concurrency: int = 32) -> Any:
    """Return a solver of inspect_ai that holds a session of a program on each sample's input.

    Args:
        program: A session program, a DSPy module, a function of a task, or the name of a method.
        seed: Decides the seeds of all samples.
        out: Folder for the sessions; an evaluation run again over it goes on where it stopped. None keeps none.
        max_concurrency: Calls in flight at most, for each LM.

    Raises:
        UserError: If inspect_ai is not installed, or the program cannot be evaluated.
    """
    inspect_ai = _inspect()
    methods = all_methods(program)
    if len(methods) != 1:
        raise UserError("A solver has one program", f"{len(methods)} were given")
    (method,) = methods.values()
    settings = {"lm": dspy.settings.lm, "adapter": dspy.settings.adapter}
    limits = _InspectLimits(max_concurrency)

    async def solve(state: Any, generate: Any) -> Any:
        number = rollout_id(seed, "inspect", state.sample_id, state.epoch)
        job = Job(method.name, str(state.sample_id), state.input_text, state.epoch, number)
        with _folder(out) as root, dspy.context(**settings):
            models = sorted(method.authors())
            row = await method.answer(job, root, limits)
        if row.status != "ok":
            raise RunFailure(f"{method.name} has no answer", row.reason)
        output = inspect_ai.model.ModelOutput.from_content(", ".join(models) or method.name, row.answer)
        output.usage = inspect_ai.model.ModelUsage(
            input_tokens=row.prompt_tokens,
            output_tokens=row.completion_tokens,
            total_tokens=row.prompt_tokens + row.completion_tokens,
        )
        state.output = output
        state.messages.append(output.message)
        told = {name: getattr(row, name) for name in _TOLD}
        state.metadata[_ABOUT] = {"method": method.name, "models": models, **told}
        return state

    def salon_session(method: str, seed: int) -> Any:
        return solve

    return inspect_ai.solver.solver(salon_session)(method=method.name, seed=seed)


def inspect_scorer(judge: Any = None, rubric: Rubric | str | Path = "ideas") -> Any:
    """Return a scorer of inspect_ai: the mean rating of the output by a judge, 1 to 10.

    Args:
        judge: An LM of DSPy, several for a panel, or a ``RubricJudge``; None for DSPy's current LM.
        rubric: What is rated: a rubric, its name, or its file. A ``RubricJudge`` has its own.

    Raises:
        UserError: If inspect_ai is not installed, there is no LM to judge with, or no such rubric.
    """
    inspect_ai = _inspect()
    panel = panel_of(judge, rubric)

    async def score(state: Any, target: Any) -> Any:
        authors = (state.metadata.get(_ABOUT) or {}).get("models", ())
        answer = state.output.completion
        rated, spent = await rate_one(panel, state.input_text, answer, authors)
        values = [rating.value for rating in rated if rating.value is not None]
        told = {
            "ratings": [vars(rating) for rating in rated],
            "calls": spent.calls,
            "tokens": spent.tokens,
            "usd": None if spent.unpriced else spent.usd,
        }
        if not values:
            why = "; ".join(dict.fromkeys(rating.error for rating in rated))
            told["unscored_reason"] = "grader_failed"
            # Not a number is how inspect marks what its metrics leave out.
            return inspect_ai.scorer.Score(value=float("nan"), answer=answer, explanation=why, metadata=told)
        reasons = "\n".join(rating.reason for rating in rated if rating.reason)
        value = sum(values) / len(values)
        return inspect_ai.scorer.Score(value=value, answer=answer, explanation=reasons, metadata=told)

    def salon_quality(rubric: str, judges: list[str]) -> Any:
        return score

    metrics = [inspect_ai.scorer.mean(), inspect_ai.scorer.stderr()]
    judges = [str(lm.model) for lm in panel.lms.values()]
    return inspect_ai.scorer.scorer(metrics=metrics)(salon_quality)(rubric=panel.rubric.name, judges=judges)


def _inspect() -> Any:
    try:
        import inspect_ai
        import inspect_ai.model
        import inspect_ai.scorer
        import inspect_ai.solver
    except ImportError as error:
        raise UserError("inspect_ai is not installed", str(error), "Install it: pip install salon[inspect]") from None
    return inspect_ai


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    """Give the folder of the sessions, or one that is removed afterwards."""
    if out is not None:
        yield Path(out)
        return
    with tempfile.TemporaryDirectory(prefix="salon-inspect-") as place:
        yield Path(place)
