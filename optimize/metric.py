"""How good a group of answers to one task is: one number for optimizers, from quality and diversity.

G sessions answer the same task. Quality is what judges say of each answer, 1 to 10; diversity is how different
the answers are. Both are brought to a scale of 0 to 1 and their weighted mean is the score:

- quality: the mean over all sessions of (value - 1) / 9;
- ``vendi``: (v - 1) / (G - 1) for v effectively different answers; ``gated`` counts only those good enough;
- ``distance``: mean 1 - cosine over all pairs of sessions, at most 1; ``div_bleu``: a hundredth of it.

A session without an answer has quality 0 and adds nothing to diversity. An answer that no judge could rate is
left out of the mean; where none could be rated there is no score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from salon.errors import UserError

from ..modules.diversity import div_bleu, pairwise_distance, vendi
from ..modules.embedding import Embedder

__all__ = ["DIVERSITIES", "Aim", "Rating", "Score", "read_rating"]

DIVERSITIES = ("vendi", "distance", "div_bleu", "gated")


@dataclass(frozen=True)
class Rating:
    """What the judges say of one answer.

    Attributes:
        value: Mean of their values, 1 to 10; None if none could rate it.
        reasons: Their reasons.
    """

    value: float | None
    reasons: tuple[str, ...] = ()


def read_rating(given: Any) -> Rating:
    """Return the rating of an answer from one or several objects with ``value`` and ``reason``."""
    panel = list(given) if isinstance(given, Sequence) else [given]
    values = [float(one.value) for one in panel if one.value is not None]
    reasons = tuple(str(one.reason) for one in panel if one.reason)
    return Rating(sum(values) / len(values) if values else None, reasons)


@dataclass(frozen=True)
class Score:
    """The score of a group of answers.

    Attributes:
        value: Weighted mean of quality and diversity, 0 to 1; None if no answer could be rated.
        quality: Quality, 0 to 1.
        diversity: Diversity, 0 to 1; None if it does not count.
        rated: Mean value of the rated answers, 1 to 10; None if there are none.
        measured: Diversity as it is measured, e.g. the Vendi score; None where it is undefined.
    """

    value: float | None
    quality: float | None
    diversity: float | None
    rated: float | None
    measured: float | None


@dataclass(frozen=True)
class Aim:
    """What prompts are tuned for.

    Attributes:
        quality: Weight of quality; weights add up to 1.
        diversity: Weight of diversity.
        measure: How diversity is measured, see ``DIVERSITIES``.
        gate: Value from which an answer counts for ``gated``.
    """

    quality: float = 0.5
    diversity: float = 0.5
    measure: str = "vendi"
    gate: float = 6.0

    @classmethod
    def of(cls, weights: Mapping[str, float], groups: int, gate: float) -> Aim:
        """Read weights by name, e.g. ``{"quality": 1, "vendi": 1}``.

        Raises:
            UserError: If a name is unknown, more than one is a diversity, or weights or groups cannot work.
        """
        known = f"quality and one of {', '.join(DIVERSITIES)} can be weighed"
        names = [name for name in weights if name != "quality"]
        if len(names) > 1 or any(name not in DIVERSITIES for name in names):
            raise UserError(f"objectives={dict(weights)!r} is not possible", known)
        numbers = list(weights.values())
        if any(isinstance(w, bool) or not isinstance(w, int | float) or w < 0 for w in numbers) or sum(numbers) <= 0:
            raise UserError(f"objectives={dict(weights)!r} is not possible", "weights are numbers of 0 or more")
        total = float(sum(numbers))
        measure = names[0] if names else "vendi"
        diversity = weights.get(measure, 0) / total
        if diversity and groups < 2:
            raise UserError(f"groups={groups} leaves no diversity to measure", "it takes 2 sessions on each task")
        return cls(weights.get("quality", 0) / total, diversity, measure, gate)

    def score(self, answers: Sequence[str], ratings: Sequence[Rating], groups: int, embedder: Embedder) -> Score:
        """Return the score of a group.

        Args:
            answers: The answers there are.
            ratings: The rating of each.
            groups: How many sessions were held (G).
            embedder: Embeds the answers.
        """
        values = [r.value for r in ratings if r.value is not None]
        counted = len(values) + groups - len(answers)
        quality = sum((value - 1) / 9 for value in values) / counted if counted else None
        rated = sum(values) / len(values) if values else None
        measured, diversity = self._diversity(answers, ratings, groups, embedder) if self.diversity else (None, None)
        if quality is None and self.quality:
            return Score(None, None, diversity, rated, measured)
        value = self.quality * (quality or 0) + self.diversity * (diversity or 0)
        return Score(value, quality, diversity, rated, measured)

    def _diversity(
        self, answers: Sequence[str], ratings: Sequence[Rating], groups: int, embedder: Embedder
    ) -> tuple[float | None, float]:
        """Return diversity as measured, and on a scale of 0 to 1."""
        chosen = list(answers)
        if self.measure == "gated":
            good = [rating.value is not None and rating.value >= self.gate for rating in ratings]
            chosen = [answer for answer, passes in zip(answers, good, strict=True) if passes]
        if len(chosen) < 2:
            return None, 0.0
        if self.measure == "div_bleu":
            bleu = div_bleu(chosen) or 0.0
            return bleu, bleu / 100 * _pairs(len(chosen)) / _pairs(groups)
        vectors = embedder.embed(chosen)
        if self.measure == "distance":
            distance = pairwise_distance(vectors) or 0.0
            return distance, min(distance, 1.0) * _pairs(len(chosen)) / _pairs(groups)
        different = vendi(vectors) or 1.0
        return different, (different - 1) / (groups - 1)


def _pairs(n: int) -> int:
    return n * (n - 1) // 2
