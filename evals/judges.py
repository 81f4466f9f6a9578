"""Judges: how good an answer is by a rubric, which of two is better, and how alike two are.

**Ratings.** A judge gives a reason and then a rating from 1 to 10 for each dimension of the rubric. Where its LM
tells log-probabilities, a dimension's score is the expected value over the ratings it might have given, which is
finer than the one it gave; else, or where one dimension lacks them, it is the plain rating. ``how`` says which.

**Panel.** Where there are several judges, some can be drawn for each answer: which ones follows from the seed and
the answer's name. A judge whose model wrote the answer is left out as long as another is there.

**Pairs.** Each pair is shown in both orders to one judge of the panel. With log-probabilities the log odds of the
two answers are averaged over the orders, so that what the place alone does cancels out; their sign decides. Else a
win counts if both orders agree, and is a tie if not.

Absolute scores depend on the judge more than on the answer: compare them within one judge, don't quote levels.
A judge that gives no answer gives no score: nothing takes its place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from salon.errors import UserError

from ..data.rubrics import Rubric
from ..modules.answers import Answer
from ..modules.odds import expected, log_odds
from ..modules.streams import stream
from ..modules.text import fitted, neutral
from ..signatures.judging import ComparePair, GradeLikeness, rating_fields, rating_of
from .ledger import Ledger, together

__all__ = ["GRADES", "Alike", "Preference", "Rated", "RubricJudge"]

GRADES = {"A": 10.0, "B": 7.0, "C": 4.0, "D": 1.0}
"""The score of each grade of likeness in LiveIdeaBench's fluency: the less alike, the higher."""

_LONGEST = 1200  # tokens of a task or an answer that a judge is shown
_NOTHING = "there is no answer to judge"


@dataclass(frozen=True)
class Rated:
    """One judge's ratings of one answer.

    Attributes:
        scores: Score 1 to 10 by name of dimension; empty if the judge gave no answer.
        value: Mean of the scored dimensions; None if there are no scores.
        reason: The judge's reason.
        judge: Its model.
        how: ``logprobs`` where the scores are expected values, ``integers`` where they are plain ratings.
        error: Why there are no scores.
    """

    scores: dict[str, float] = field(default_factory=dict)
    value: float | None = None
    reason: str = ""
    judge: str = ""
    how: str = ""
    error: str = ""


@dataclass(frozen=True)
class Preference:
    """One judge's choice between two answers, a and b.

    Attributes:
        score: 1 if a is better, 0 if b is, 0.5 for a tie; None if the judge gave no answer to one of the orders.
        forward: Preference for a when a stood first: its probability, or 1 or 0 without log-probabilities.
        backward: Preference for a when a stood second.
        log_odds: Mean log odds of a against b over both orders, -20 to 20; None without log-probabilities.
        judge: The judge's model.
        error: Why there is no score.
    """

    score: float | None
    forward: float | None
    backward: float | None
    log_odds: float | None
    judge: str
    error: str = ""


@dataclass(frozen=True)
class Alike:
    """One judge's grade of how alike two answers are.

    Attributes:
        grade: A (different problems) to D (the same idea); empty if the judge gave no answer.
        score: 10, 7, 4 or 1; None without a grade.
        judge: The judge's model.
        error: Why there is no grade.
    """

    grade: str
    score: float | None
    judge: str
    error: str = ""


class RubricJudge:
    """One LM or a panel of several that judges answers.

    Args:
        rubric: What answers are rated on.
        lms: The LMs; several of one model are several judges.
        drawn: How many are drawn for each answer; all by default.
        seed: Decides who is drawn.

    Attributes:
        lms: The LMs by role, to make a ledger with: ``judge``, or ``judge1``, ``judge2`` and so on.

    Raises:
        UserError: If there is no LM, or more are to be drawn than there are.
    """

    def __init__(self, rubric: Rubric, lms: Sequence[Any], drawn: int | None = None, seed: int = 0) -> None:
        if not lms:
            raise UserError("A panel without judges is not possible", todo="Give at least one LM.")
        if drawn is not None and (isinstance(drawn, bool) or not 1 <= drawn <= len(lms)):
            why = f"it must be from 1 to {len(lms)}, as many as there are judges"
            raise UserError(f"drawn={drawn!r} is not possible", why)
        self.rubric, self.drawn, self.seed = rubric, drawn, seed
        roles = [f"judge{n}" for n in range(1, len(lms) + 1)] if len(lms) > 1 else ["judge"]
        self.lms: dict[str, Any] = dict(zip(roles, lms, strict=True))
        told = [(dimension.name, dimension.description) for dimension in rubric.dimensions]
        self._fields = rating_fields(name for name, _ in told)
        self._rate = dspy.Predict(rating_of(told))
        self._compare, self._grade = dspy.Predict(ComparePair), dspy.Predict(GradeLikeness)

    async def rate(
        self, ledger: Ledger, name: str, task: str, answer: str, authors: Collection[str] = ()
    ) -> list[Rated]:
        """Have an answer rated.

        Args:
            ledger: Makes the calls; it must know the LMs of this panel.
            name: Unique name of the answer.
            task: What was asked.
            answer: The answer.
            authors: Models that wrote it.

        Returns:
            One rating of each judge drawn, in the order of the panel.
        """
        shown, fields = _shown(answer), tuple(self._fields.values())

        async def one(role: str) -> Rated:
            judge = self._model(role)
            if not shown:
                return Rated(judge=judge, error=_NOTHING)
            key = f"{name}/rate/{role.removeprefix('judge') or 1}"
            said = await ledger.ask(self._rate, key, role, weighed=fields, request=_shown(task), answer=shown)
            return self._rated(said, judge)

        return await together(one(role) for role in self._panel(name, authors, self.drawn))

    def _rated(self, said: Answer, judge: str) -> Rated:
        lacking = [name for name, output in self._fields.items() if output not in said.outputs]
        if said.error:
            return Rated(judge=judge, error=said.error)
        if lacking:
            return Rated(judge=judge, error=f"the answer on record is by another rubric: {lacking[0]} is not in it")
        weighed = all(said.odds.get(output) for output in self._fields.values())
        scores = {
            name: expected(said.odds[output]) if weighed else float(said.outputs[output])
            for name, output in self._fields.items()
        }
        value = sum(scores[dimension.name] for dimension in self.rubric.scored) / len(self.rubric.scored)
        return Rated(scores, value, str(said.reason), judge, "logprobs" if weighed else "integers")

    async def prefer(
        self, ledger: Ledger, name: str, task: str, a: str, b: str, authors: Collection[str] = ()
    ) -> Preference:
        """Have two answers compared, in both orders, by one judge of the panel.

        Args:
            ledger: Makes the calls.
            name: Unique name of the pair.
            task: What was asked.
            a: One answer.
            b: The other.
            authors: Models that wrote them.
        """
        (role,) = self._panel(name, authors, 1)
        one, other = _shown(a), _shown(b)
        if not one or not other:
            return Preference(None, None, None, None, self._model(role), _NOTHING)

        async def asked(order: int, first: str, second: str) -> Answer:
            pair = f"First answer: {first}\n\nSecond answer: {second}"
            key, asking = f"{name}/prefer/{order}", _shown(task)
            return await ledger.ask(self._compare, key, role, weighed=("better",), request=asking, answers=pair)

        forward, backward = await together([asked(1, one, other), asked(2, other, one)])
        return _preference(forward, backward, self._model(role))

    async def alike(self, ledger: Ledger, name: str, task: str, a: str, b: str, authors: Collection[str] = ()) -> Alike:
        """Have it graded how alike two answers are, by one judge of the panel; arguments as of ``prefer``."""
        (role,) = self._panel(name, authors, 1)
        one, other = _shown(a), _shown(b)
        if not one or not other:
            return Alike("", None, self._model(role), _NOTHING)
        pair = f"First idea: {one}\n\nSecond idea: {other}"
        said = await ledger.ask(self._grade, f"{name}/alike/1", role, request=_shown(task), ideas=pair)
        if said.error:
            return Alike("", None, self._model(role), said.error)
        return Alike(str(said.grade), GRADES[str(said.grade)], self._model(role))

    def _model(self, role: str) -> str:
        return str(self.lms[role].model)

    def _panel(self, name: str, authors: Collection[str], drawn: int | None) -> list[str]:
        """Return the judges of an answer, in the order of the panel."""
        order = list(self.lms)
        stream(self.seed, name, "panel").shuffle(order)
        others = [role for role in order if self._model(role) not in authors]
        panel = (others or order)[:drawn]
        return [role for role in self.lms if role in panel]


def _shown(text: str) -> str:
    """Return a text as judges see it: on one line, without force, and no longer than they can read."""
    return fitted(neutral(text), _LONGEST)


def _preference(forward: Answer, backward: Answer, judge: str) -> Preference:
    """Put both orders of a pair together; in the first a stands first."""
    ways = {"first": forward, "second": backward}
    picks = {place: float(said.better == place) for place, said in ways.items() if not said.error}
    if len(picks) < 2:
        error = forward.error or backward.error
        return Preference(None, picks.get("first"), picks.get("second"), None, judge, error)
    odds = {place: known for place, said in ways.items() if (known := said.odds.get("better"))}
    if len(odds) < 2:
        score = picks["first"] if picks["first"] == picks["second"] else 0.5
        return Preference(score, picks["first"], picks["second"], None, judge)
    found = (log_odds(odds["first"], "first", "second") + log_odds(odds["second"], "second", "first")) / 2
    score = 0.5 if not found else float(found > 0)
    share = {place: known.get(place, 0.0) / sum(known.values()) for place, known in odds.items()}
    return Preference(score, share["first"], share["second"], found, judge)
