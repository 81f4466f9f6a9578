"""How different texts are from each other, as pure functions of their unit vectors."""

from __future__ import annotations

import numpy as np

from .embedding import Vectors

__all__ = ["cosines", "pairwise_distance", "too_close"]


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
