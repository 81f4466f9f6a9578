"""Comparing methods on the same queries: paired differences, correction for many tests, wins and ranking.

Pairs are of one query; a query that lacks a value on either side is left out and not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from .statistics import Interval, mean_interval

__all__ = ["Paired", "bradley_terry", "holm", "paired", "sign_flip_p", "win_rates"]

_EXACT = 16  # pairs up to which all sign changes are tried
_DRAWS = 100_000


@dataclass(frozen=True)
class Paired:
    """A method against a baseline on the same queries.

    Attributes:
        difference: Mean of method minus baseline, with its interval.
        p: Two-sided p value of a sign-flip permutation test of no difference; None for fewer than two pairs.
        n: Pairs.
    """

    difference: Interval
    p: float | None
    n: int


def paired(method: Mapping[str, float | None], baseline: Mapping[str, float | None], seed: int = 0) -> Paired:
    """Compare two methods by query.

    Args:
        method: Value of each query.
        baseline: The same of the baseline.
        seed: Of the resamples.
    """
    gaps = [a - b for query, a in method.items() if a is not None and (b := baseline.get(query)) is not None]
    return Paired(mean_interval(gaps, seed), sign_flip_p(gaps, seed), len(gaps))


def sign_flip_p(gaps: Sequence[float], seed: int) -> float | None:
    """Return the two-sided p value of paired differences being symmetric around 0; None for fewer than two.

    It is how often changed signs give a mean as far from 0; all changes are tried for few pairs.

    Args:
        gaps: The differences.
        seed: Of the changes that are drawn for many pairs.
    """
    n = len(gaps)
    if n < 2:
        return None
    data = np.asarray(gaps, dtype=float)
    if n <= _EXACT:
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    else:
        signs = np.random.default_rng(seed).choice([-1, 1], size=(_DRAWS, n))
    means = np.abs(signs @ data) / n
    far = int(np.sum(means >= abs(data.mean()) - 1e-12))
    return far / len(signs) if n <= _EXACT else (far + 1) / (len(signs) + 1)


def holm(p_values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the p values corrected for how many there are (Holm, 1979); None stays None and does not count."""
    known = sorted((p, name) for name, p in p_values.items() if p is not None)
    corrected: dict[str, float | None] = dict.fromkeys(p_values)
    highest = 0.0
    for rank, (p, name) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        corrected[name] = highest
    return corrected


def win_rates(results: Sequence[tuple[str, str, float]]) -> dict[str, dict[str, float]]:
    """Return how often the first beats the second.

    Args:
        results: (a, b, score): 1 if a won, 0 if b won, 0.5 for a tie.

    Returns:
        For each method and opponent, the mean score, a tie counting half; pairs never compared are absent.
    """
    scores: dict[str, dict[str, list[float]]] = {}
    for a, b, score in results:
        scores.setdefault(a, {}).setdefault(b, []).append(score)
        scores.setdefault(b, {}).setdefault(a, []).append(1 - score)
    return {a: {b: sum(v) / len(v) for b, v in against.items()} for a, against in scores.items()}


def bradley_terry(results: Sequence[tuple[str, str, float]], prior: float = 0.5) -> dict[str, float]:
    """Return the strength of each method as a log odds, with mean 0, best first (Bradley and Terry, 1952).

    Fitted by Hunter's minorise-maximise iteration. ``prior`` ties of each pair that was compared keep a method
    that always won or lost at a finite strength.

    Args:
        results: (a, b, score): 1 if a won, 0 if b won, 0.5 for a tie.
        prior: Ties added to each compared pair.
    """
    names = sorted({name for a, b, _ in results for name in (a, b)})
    if not names:
        return {}
    place = {name: at for at, name in enumerate(names)}
    wins = np.zeros((len(names), len(names)))
    for a, b, score in results:
        wins[place[a], place[b]] += score
        wins[place[b], place[a]] += 1 - score
    games = wins + wins.T
    wins = np.where(games > 0, wins + prior / 2, 0.0)
    games = wins + wins.T
    strength = np.ones(len(names))
    for _ in range(10_000):
        shares = games / (strength[:, None] + strength[None, :])
        fitted = wins.sum(axis=1) / np.maximum(shares.sum(axis=1), 1e-300)
        fitted /= exp(float(np.mean(np.log(fitted))))
        done = float(np.max(np.abs(np.log(fitted / strength)))) < 1e-10
        strength = fitted
        if done:
            break
    logs = {name: log(float(strength[at])) for name, at in place.items()}
    return dict(sorted(logs.items(), key=lambda item: -item[1]))
