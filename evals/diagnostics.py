"""What gives a bad judge away.

Of each judge: how often it fails; whether its values spread (a judge that always says 7 tells nothing); whether it
gives the same answer the same value again; whether it agrees with the other judges, and with labels where there
are some (a random judge agrees with nobody); and of its choices between two answers, whether the first place wins
more often than the second and whether a choice survives the change of places. Of a panel: Krippendorff's alpha.

Every number has its n and, where one can be had, its 95 % interval. That two judges disagree does not say which of
them is wrong: that takes a third, repeated ratings or labels. At temperature 0 a judge repeats itself whatever it
is worth, so repeats should be asked for under other conditions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import sqrt
from typing import Any, TypeAlias

import numpy as np

from .agreement import Agreement, alpha_of, alpha_sums, rank_agreement
from .resampling import Drawn, bootstrap
from .statistics import Interval, share_interval

__all__ = ["Diagnosis", "JudgeCheck", "PlaceCheck", "diagnose"]

Values: TypeAlias = Mapping[str, Sequence[float]]  # a judge's values by answer


@dataclass(frozen=True)
class PlaceCheck:
    """A judge's choices between two answers.

    Attributes:
        first: Share of choices that went to the answer that stood first; 0.5 without a bias. A probability of
            exactly 0.5 is no choice.
        kept: Share of pairs for which both orders chose the same answer; 0.5 is chance.
        failed: Share of pairs without a choice in one of the orders.
    """

    first: Interval
    kept: Interval
    failed: Interval


@dataclass(frozen=True)
class JudgeCheck:
    """One judge's ratings and choices.

    Attributes:
        judge: Its model.
        failed: Share of ratings that failed.
        how: Ratings by where their scores come from: ``logprobs`` or ``integers``.
        commonest: The whole number that its values round to most often; None without values.
        share: Share of values that round to it.
        deviation: Standard deviation of its values over answers; 0 for a judge that always says the same.
        entropy: Entropy of its values, rounded to whole numbers, in bits: 0 for one value, 3.3 for ten equally
            frequent ones.
        consistency: Of answers rated more than once, the share of variance that lies between answers and not
            between ratings of one (intraclass correlation, one-way, Shrout and Fleiss 1979); None without any.
        gap: Mean absolute difference between two ratings of one answer, in points.
        others: Rank agreement with the mean of the other judges.
        labels: Rank agreement with labels.
        places: Its choices between two answers; None if there were none.
    """

    judge: str
    failed: Interval
    how: dict[str, int]
    commonest: int | None
    share: Interval
    deviation: Interval
    entropy: Interval
    consistency: Interval
    gap: Interval
    others: Agreement
    labels: Agreement
    places: PlaceCheck | None = None


@dataclass(frozen=True)
class Diagnosis:
    """What is known of the judges of an evaluation.

    Attributes:
        judges: Each judge.
        alpha: Krippendorff's alpha over answers that several judges rated: 1 for perfect agreement, 0 for chance.
            Judges of different strictness have a low one even where they rank alike.
        pairs: Every two judges with their rank agreement.
    """

    judges: list[JudgeCheck]
    alpha: Interval
    pairs: list[tuple[str, str, Agreement]] = field(default_factory=list)


def diagnose(
    jobs: Sequence[Mapping[str, Any]],
    pairs: Sequence[Mapping[str, Any]] = (),
    labels: Mapping[tuple[str, str, int], float] | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Return what is known of the judges.

    Args:
        jobs: Rows with method, query, run and ratings; a judge that rated one answer again has several of them.
        pairs: Rows with judge, forward, backward and error.
        labels: Labels of answers, by method, query and run.
        seed: Of the resamples.
    """
    ratings: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for row in jobs:
        for rating in row["ratings"]:
            answer = _name(row["method"], row["query"], row["run"])
            ratings.setdefault(str(rating["judge"]), []).append((answer, rating))
    values = {judge: _values(given) for judge, given in ratings.items()}
    choices: dict[str, list[Mapping[str, Any]]] = {}
    for pair in pairs:
        choices.setdefault(str(pair["judge"]), []).append(pair)
    known = {_name(*answer): label for answer, label in (labels or {}).items()}
    checks = [
        _check(judge, ratings.get(judge, []), values, choices.get(judge, []), known, seed)
        for judge in dict.fromkeys([*ratings, *choices])
    ]
    between = [(a, b, _ranks(values[a], _means(values[b]), seed)) for a, b in combinations(values, 2)]
    return Diagnosis(checks, _alpha(values, seed), between)


def _name(method: str, query: str, run: int) -> str:
    return f"{method}\n{query}\n{run}"


def _values(given: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for answer, rating in given:
        if rating["value"] is not None:
            values.setdefault(answer, []).append(float(rating["value"]))
    return values


def _means(values: Values) -> dict[str, float]:
    return {answer: sum(of) / len(of) for answer, of in values.items()}


def _check(
    judge: str,
    given: Sequence[tuple[str, Mapping[str, Any]]],
    values: Mapping[str, Values],
    choices: Sequence[Mapping[str, Any]],
    labels: Mapping[str, float],
    seed: int,
) -> JudgeCheck:
    own = values.get(judge, {})
    answers = list(own.values())
    said = [round(value) for of in answers for value in of]
    commonest, hits = Counter(said).most_common(1)[0] if said else (None, 0)
    repeated = [of for of in answers if len(of) > 1]
    others: dict[str, list[float]] = {}
    for other in values.keys() - {judge}:
        for answer, mean in _means(values[other]).items():
            others.setdefault(answer, []).append(mean)
    return JudgeCheck(
        judge=judge,
        failed=share_interval(sum(rating["value"] is None for _, rating in given), len(given)),
        how=dict(Counter(str(rating["how"]) for _, rating in given if rating["value"] is not None)),
        commonest=commonest,
        share=share_interval(hits, len(said)),
        deviation=_deviation(answers, seed),
        entropy=_entropy(answers, seed),
        consistency=_over(repeated, _intraclass, seed),
        gap=_over(repeated, _gap, seed),
        others=_ranks(own, _means(others), seed),
        labels=_ranks(own, labels, seed),
        places=_places(choices) if choices else None,
    )


def _over(
    answers: Sequence[Sequence[float]], statistic: Callable[[list[Sequence[float]]], float | None], seed: int
) -> Interval:
    """Return a statistic of the values of answers; answers are what the interval draws anew."""

    def of(drawn: Drawn) -> float | None:
        return statistic([answers[at] for at in drawn]) if len(drawn) else None

    return bootstrap(len(answers), of, sum(len(values) for values in answers), seed)


def _deviation(answers: Sequence[Sequence[float]], seed: int) -> Interval:
    """Return the standard deviation of all values, from sums by answer, so that a draw costs next to nothing."""
    values = [value for of in answers for value in of]
    centre = sum(values) / len(values) if values else 0.0
    sums = np.asarray([(len(of), sum(v - centre for v in of), sum((v - centre) ** 2 for v in of)) for of in answers])

    def of(drawn: Drawn) -> float | None:
        n, total, squares = sums[drawn].sum(axis=0) if len(drawn) else (0, 0.0, 0.0)
        return sqrt(max(0.0, squares - total**2 / n) / (n - 1)) if n > 1 else None

    return bootstrap(len(answers), of, len(values), seed)


def _entropy(answers: Sequence[Sequence[float]], seed: int) -> Interval:
    """Return the entropy of all values, rounded, from how often each answer has each of them."""
    said = sorted({round(value) for of in answers for value in of})
    counts = np.asarray([[sum(round(value) == one for value in of) for one in said] for of in answers])

    def of(drawn: Drawn) -> float | None:
        if not len(drawn):
            return None
        shares = counts[drawn].sum(axis=0)
        shares = shares[shares > 0] / shares.sum()
        return float(abs(np.sum(shares * np.log2(shares))))

    return bootstrap(len(answers), of, sum(len(values) for values in answers), seed)


def _intraclass(answers: Sequence[Sequence[float]]) -> float | None:
    """Return ICC(1,1); None for fewer than two answers, or where nothing varies."""
    n, total = len(answers), sum(len(values) for values in answers)
    if n < 2:
        return None
    means = [sum(values) / len(values) for values in answers]
    grand = sum(sum(values) for values in answers) / total
    between = sum(len(of) * (mean - grand) ** 2 for of, mean in zip(answers, means, strict=True)) / (n - 1)
    within = sum((v - mean) ** 2 for of, mean in zip(answers, means, strict=True) for v in of) / (total - n)
    size = (total - sum(len(values) ** 2 for values in answers) / total) / (n - 1)
    whole = between + (size - 1) * within
    return (between - within) / whole if whole > 1e-12 else None


def _gap(answers: Sequence[Sequence[float]]) -> float | None:
    gaps = [abs(a - b) for values in answers for a, b in combinations(values, 2)]
    return sum(gaps) / len(gaps) if gaps else None


def _ranks(values: Values, other: Mapping[str, float], seed: int) -> Agreement:
    """Return the rank agreement of a judge with other values of the same answers."""
    shared = [(mean, other[answer]) for answer, mean in _means(values).items() if answer in other]
    return rank_agreement([a for a, _ in shared], [b for _, b in shared], seed)


def _alpha(values: Mapping[str, Values], seed: int) -> Interval:
    """Return Krippendorff's alpha of all judges, over answers that at least two of them rated."""
    means = [_means(of) for of in values.values()]
    answers = dict.fromkeys(answer for of in means for answer in of)
    units = [unit for a in answers if len(unit := [of[a] for of in means if a in of]) > 1]
    sums = alpha_sums(units)
    return bootstrap(len(units), lambda drawn: alpha_of(sums[drawn]), seed=seed)


def _places(choices: Sequence[Mapping[str, Any]]) -> PlaceCheck:
    """Return what the place of an answer does; forward and backward are preferences for a, first and second."""
    both = [(p["forward"], p["backward"]) for p in choices if p["forward"] is not None and p["backward"] is not None]
    first = [forward > 0.5 for forward, _ in both if forward != 0.5]
    first += [backward < 0.5 for _, backward in both if backward != 0.5]
    decided = [(f, b) for f, b in both if 0.5 not in (f, b)]
    kept = sum((f > 0.5) == (b > 0.5) for f, b in decided)
    return PlaceCheck(
        first=share_interval(sum(first), len(first)),
        kept=share_interval(kept, len(decided)),
        failed=share_interval(len(choices) - len(both), len(choices)),
    )
