"""Our measures as metrics of ``dspy.Evaluate`` and DSPy's optimizers: each gives a number from 0 to 1, or fails.

``dspy.Evaluate`` and the optimizers call a metric in threads. A metric that cannot be had, because the judge gave no
answer or there is nothing to measure, raises a ``RunFailure``; it never makes a number up. What DSPy does then is its
own: it counts the example as ``failure_score`` (0 unless told otherwise) and goes on, until ``max_errors`` of them
stop it. So look at ``failures`` before you trust a score, or set ``max_errors=1``.

DSPy's threads submit an example once more if it is among the last three and takes longer than 120 seconds, which a
session may; it is then held and paid for twice. For long sessions use ``salon.evals.evaluate``; with ``dspy.Evaluate``
set ``num_threads=1``, which does without this.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from salon.errors import RunFailure, UserError

from ..data.rubrics import Rubric, load_rubric
from ..modules.budget import Usage
from ..modules.embedding import Embedder
from ..modules.measures import text_diversity
from ..modules.program import run_sync
from .judges import Rated, RubricJudge
from .ledger import Ledger

__all__ = ["DiversityMetric", "Metric", "QualityMetric", "diversity_metric", "quality_metric", "rate_one"]

_RANGES = {"vendi": None, "distance": (0.0, 2.0), "div_bleu": (0.0, 100.0)}


class Metric(ABC):
    """A metric of ``dspy.Evaluate``.

    Attributes:
        failures: Why examples have no value, in order.
    """

    def __init__(self) -> None:
        self.failures: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, example: Any, prediction: Any, trace: Any = None, *_: Any) -> float:
        """Return the value of a prediction, 0 to 1.

        Raises:
            RunFailure: If it has none.
            UserError: If the example or the prediction lacks what is measured.
        """
        try:
            return self._value(example, prediction)
        except RunFailure as failure:
            with self._lock:
                self.failures.append(str(failure))
            raise

    @abstractmethod
    def _value(self, example: Any, prediction: Any) -> float: ...


class QualityMetric(Metric):
    """How good the answer of a prediction is, by a judge; see ``quality_metric``.

    Attributes:
        judge: The judge.
        spent: What it has cost.
    """

    def __init__(self, judge: RubricJudge, task: str | None, answer: str) -> None:
        super().__init__()
        self.judge, self._task, self._answer, self.spent = judge, task, answer, Usage()

    def _value(self, example: Any, prediction: Any) -> float:
        task, answer = self._asked(example), _field(prediction, self._answer)
        if not isinstance(answer, str):
            raise UserError(f"The prediction's {self._answer} cannot be rated", f"it is {type(answer).__name__}")
        session = getattr(prediction, "session", None)
        authors = {str(model.get("model")) for model in session.header["models"].values()} if session else set()
        rated, spent = run_sync(rate_one(self.judge, task, answer, authors))
        with self._lock:
            self.spent.add(spent)
        values = [rating.value for rating in rated if rating.value is not None]
        if not values:
            raise RunFailure("The answer has no rating", "; ".join(dict.fromkeys(rating.error for rating in rated)))
        return (sum(values) / len(values) - 1) / 9

    def _asked(self, example: Any) -> str:
        """Return the task of an example: the field that is named, else its only input."""
        names = [self._task] if self._task else list(example.inputs().keys())
        if len(names) != 1:
            told = f"An example has the inputs {', '.join(names)}" if names else "An example has no inputs"
            raise UserError(told, "which is the task is not said", "Name its field: task=...")
        return str(_field(example, names[0]))


class DiversityMetric(Metric):
    """How different the answers of a prediction are from each other; see ``diversity_metric``."""

    def __init__(self, measure: str, embedder: Embedder, answers: str) -> None:
        super().__init__()
        self._measure, self._embedder, self._answers = measure, embedder, answers

    def _value(self, example: Any, prediction: Any) -> float:
        answers = _field(prediction, self._answers)
        if isinstance(answers, str) or not all(isinstance(text, str) for text in answers):
            raise UserError(f"The prediction's {self._answers} cannot be measured", "a list of texts is needed")
        told = text_diversity(list(answers), self._embedder)
        value: float | None = getattr(told, self._measure)
        if value is None:
            raise RunFailure("The answers have no diversity", told.undefined[self._measure])
        low, high = _RANGES[self._measure] or (1.0, float(told.n))
        return min(1.0, max(0.0, (value - low) / (high - low)))


def quality_metric(
    judge: Any = None, rubric: Rubric | str | Path = "ideas", *, task: str | None = None, answer: str = "answer"
) -> QualityMetric:
    """Return a metric: the mean rating of the answer by a judge, 1 to 10, as a number from 0 to 1.

    Args:
        judge: An LM, several for a panel, or a ``RubricJudge``; None for DSPy's current LM.
        rubric: What is rated: a rubric, its name, or its file. A ``RubricJudge`` has its own.
        task: The example's field that holds the task; by default its only input.
        answer: The prediction's field that is rated.

    Raises:
        UserError: If there is no LM to judge with, or no such rubric.
    """
    return QualityMetric(panel_of(judge, rubric), task, answer)


def diversity_metric(
    measure: Literal["vendi", "distance", "div_bleu"] = "vendi",
    embedder: str | Embedder | None = None,
    *,
    answers: str = "answers",
) -> DiversityMetric:
    """Return a metric for predictions with several answers, e.g. those of ``salon.sessions``.

    Args:
        measure: The Vendi score of n answers as (v - 1) / (n - 1), the mean pairwise distance as d / 2, or Div-BLEU
            as b / 100.
        embedder: Embeds the answers; the packaged model if not given.
        answers: The prediction's field with the list of answers.

    Raises:
        UserError: If there is no such measure.
    """
    if measure not in _RANGES:
        raise UserError(f"There is no measure {measure!r}", todo=f"Give one of {', '.join(_RANGES)}.")
    return DiversityMetric(measure, embedder if isinstance(embedder, Embedder) else Embedder(embedder), answers)


def panel_of(judge: Any, rubric: Rubric | str | Path) -> RubricJudge:
    """Return a judge for what a caller gives.

    Raises:
        UserError: If there is no LM to judge with, or no such rubric.
    """
    from .runner import judge_with

    panel = judge_with(rubric if isinstance(rubric, Rubric) else load_rubric(rubric), judge, None, 0)
    if panel is None:
        raise UserError("There is no judge", "judge=False leaves answers unrated", "Give an LM.")
    return panel


async def rate_one(
    judge: RubricJudge, task: str, answer: str, authors: Collection[str] = ()
) -> tuple[list[Rated], Usage]:
    """Have one answer rated outside of an evaluation; return the ratings and what they cost.

    Raises:
        CallFailure: If no call can succeed (model name, key).
    """
    name = blake2b(f"{task}\0{answer}".encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    with Ledger(None, "rating", judge.lms, judge.seed, temperature=0.0) as ledger:
        return await judge.rate(ledger, name, task, answer, authors), ledger.spent


def _field(of: Any, name: str) -> Any:
    try:
        return getattr(of, name)
    except (AttributeError, KeyError) as error:
        raise UserError(f"The {type(of).__name__.lower()} has no {name}", todo="Name the field that it has.") from error
