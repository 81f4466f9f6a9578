"""The five scores of LiveIdeaBench, as its authors define them (Ruan et al., arXiv 2412.17596).

- **Originality, feasibility, clarity**: means of the critics' ratings over all ideas, 1 to 10.
- **Fluency**: mean grade over pairs of ideas for one keyword, 10 for different problems to 1 for the same idea.
- **Flexibility**: the 30th percentile over keywords of the mean of the three ratings, so that it is high only for
  a method that is good on most keywords.
- **Overall**: the mean of the five.

Intervals come from drawing keywords anew. What was not judged is None and makes the overall score None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from .resampling import Drawn, bootstrap
from .statistics import Interval

__all__ = ["RATED", "LiveIdeaScores", "liveidea_scores"]

RATED = ("originality", "feasibility", "clarity")
_PERCENTILE = 30
_NONE = Interval(None, None, None, 0)


@dataclass(frozen=True)
class LiveIdeaScores:
    """The scores of one method; a score that is undefined has the value None.

    Attributes:
        originality: Over ideas.
        feasibility: Over ideas.
        clarity: Over ideas.
        fluency: Over pairs of ideas.
        flexibility: Over keywords.
        overall: Mean of the five; its n is the keywords.
    """

    originality: Interval = _NONE
    feasibility: Interval = _NONE
    clarity: Interval = _NONE
    fluency: Interval = _NONE
    flexibility: Interval = _NONE
    overall: Interval = _NONE


@dataclass
class _Keyword:
    """What is known of one keyword: each idea's scores, and the grades of its pairs."""

    ideas: list[dict[str, float]] = field(default_factory=list)
    grades: list[float] = field(default_factory=list)


def liveidea_scores(
    jobs: Sequence[Mapping[str, Any]], similar: Sequence[Mapping[str, Any]] = (), seed: int = 0
) -> dict[str, LiveIdeaScores]:
    """Return the scores of each method.

    Args:
        jobs: Rows with method, query (the keyword) and ratings, each with scores by dimension.
        similar: Rows with method, query and score, one for each pair of ideas.
        seed: Of the resamples.
    """
    methods: dict[str, dict[str, _Keyword]] = {}
    for row in jobs:
        keyword = methods.setdefault(row["method"], {}).setdefault(row["query"], _Keyword())
        if idea := _idea(row["ratings"]):
            keyword.ideas.append(idea)
    for row in similar:
        if row["score"] is not None:
            keyword = methods.setdefault(row["method"], {}).setdefault(row["query"], _Keyword())
            keyword.grades.append(float(row["score"]))
    return {method: _scores(list(keywords.values()), seed) for method, keywords in methods.items()}


def _idea(ratings: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return an idea's mean score over its critics, by dimension; only critics that rated all three count."""
    known = [r["scores"] for r in ratings if all(r["scores"].get(name) is not None for name in RATED)]
    return {name: sum(scores[name] for scores in known) / len(known) for name in RATED} if known else {}


def _scores(keywords: Sequence[_Keyword], seed: int) -> LiveIdeaScores:
    sums = {name: np.array([sum(idea[name] for idea in k.ideas) for k in keywords]) for name in RATED}
    sums["fluency"] = np.array([sum(k.grades) for k in keywords])
    ideas = np.array([len(k.ideas) for k in keywords])
    counts = {**dict.fromkeys(RATED, ideas), "fluency": np.array([len(k.grades) for k in keywords])}

    def mean(name: str, at: Drawn) -> float | None:
        n = int(counts[name][at].sum())
        return float(sums[name][at].sum()) / n if n else None

    def flexibility(at: Drawn) -> float | None:
        rated = at[ideas[at] > 0]
        means = sum(sums[name][rated] for name in RATED) / (len(RATED) * ideas[rated])
        return float(np.percentile(means, _PERCENTILE)) if len(rated) else None

    def overall(at: Drawn) -> float | None:
        five = [flexibility(at), *(mean(name, at) for name in counts)]
        known = [value for value in five if value is not None]
        return sum(known) / len(five) if len(known) == len(five) else None

    found = {name: bootstrap(len(keywords), partial(mean, name), int(counts[name].sum()), seed) for name in counts}
    rated = int(np.sum(ideas > 0))
    found["flexibility"] = bootstrap(len(keywords), flexibility, rated, seed)
    found["overall"] = bootstrap(len(keywords), overall, rated, seed)
    return LiveIdeaScores(**found)
