"""How different texts are from each other, as pure functions of the texts or of their unit vectors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import exp, log

import numpy as np

from .embedding import Vectors

__all__ = ["cosines", "distinct", "div_bleu", "order", "pairwise_distance", "too_close", "vendi"]


def cosines(vectors: Vectors) -> list[list[float]]:
    """Return the symmetric matrix of cosines, shape (n, n), each in [-1, 1], rounded to 4 digits."""
    if not len(vectors):
        return []
    return [[round(float(c), 4) for c in row] for row in np.clip(vectors @ vectors.T, -1, 1)]


def pairwise_distance(vectors: Vectors) -> float | None:
    """Return the mean of 1 - cosine over all pairs, in [0, 2]; None for fewer than two vectors."""
    n = len(vectors)
    if n < 2:
        return None
    matrix = np.clip(vectors.astype(np.float64) @ vectors.T.astype(np.float64), -1, 1)
    upper = matrix[np.triu_indices(n, k=1)]
    return max(0.0, float(np.mean(1 - upper)))


def too_close(matrix: list[list[float]], limit: float) -> list[tuple[int, int]]:
    """Return the index pairs (i < j) whose cosine is above ``limit``."""
    return [(i, j) for i, row in enumerate(matrix) for j in range(i + 1, len(row)) if row[j] > limit]


def vendi(vectors: Vectors) -> float | None:
    """Return the Vendi score: the effective number of different texts, in [1, n]; None for fewer than two.

    ``exp`` of the entropy of the eigenvalues of the cosine kernel divided by n (Friedman and Dieng, 2023).
    Identical texts give 1, orthogonal ones n.
    """
    n = len(vectors)
    if n < 2:
        return None
    kernel = np.clip(vectors.astype(np.float64) @ vectors.T.astype(np.float64), -1, 1) / n
    values = np.linalg.eigvalsh(kernel)
    positive = values[values > 1e-12]
    positive = positive / positive.sum()
    return float(np.exp(-np.sum(positive * np.log(positive))))


def div_bleu(texts: Sequence[str]) -> float | None:
    """Return 100 * (1 - self-BLEU): each text against all others, 4-grams; None for fewer than two texts.

    BLEU with uniform weights, brevity penalty and smoothing method 1 (an n-gram order without a match counts
    0.1 matches), as in NLTK. Words are runs of letters and digits, in lower case.
    """
    tokens = [_WORD.findall(text.lower()) for text in texts]
    if len(tokens) < 2:
        return None
    scores = [_bleu(tokens[i], tokens[:i] + tokens[i + 1 :]) for i in range(len(tokens))]
    return 100 * (1 - sum(scores) / len(scores))


def distinct(texts: Sequence[str], n: int) -> float | None:
    """Return the share of different n-grams among all n-grams of the texts, in (0, 1]; None if there are none.

    Distinct-n of Li et al. (2016), over all texts together; words as for ``div_bleu``.
    """
    grams: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        grams.update(_ngrams(_WORD.findall(text.lower()), n))
    return len(grams) / grams.total() if grams else None


def order(vectors: Vectors) -> float | None:
    """Return the order parameter: mean dot product of the vectors with their normalised mean, in [0, 1].

    1 where all point the same way, 0 where they cancel out, about 1/sqrt(n) for n orthogonal ones. None for
    fewer than two vectors.
    """
    if len(vectors) < 2:
        return None
    data = vectors.astype(np.float64)
    mean = data.mean(axis=0)
    length = float(np.linalg.norm(mean))
    return min(1.0, float(np.mean(data @ (mean / length)))) if length > 1e-12 else 0.0


_WORD = re.compile(r"\w+", re.UNICODE)
_ORDERS = (1, 2, 3, 4)


def _ngrams(tokens: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))


def _bleu(text: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return the sentence BLEU of a text against references, with smoothing method 1."""
    logs = []
    for order in _ORDERS:
        own = _ngrams(text, order)
        most: Counter[tuple[str, ...]] = Counter()
        for reference in references:
            most |= _ngrams(reference, order)
        hits = sum(min(count, most[gram]) for gram, count in own.items())
        if order == 1 and not hits:
            return 0.0
        logs.append(log((hits or 0.1) / max(sum(own.values()), 1)))
    nearest = min((abs(len(r) - len(text)), len(r)) for r in references)[1]
    brevity = 1.0 if len(text) > nearest else exp(1 - nearest / max(len(text), 1))
    return brevity * exp(sum(logs) / len(_ORDERS))
