"""Randomness by name: every draw of a session comes from its seed and the purpose of the draw.

A stream is keyed by (seed, names...), never by the order of draws, so that concurrent calls cannot
change the result of a session.
"""

from __future__ import annotations

import random
from hashlib import blake2b

__all__ = ["rollout_id", "stream"]


def _digest(seed: int, names: tuple[object, ...]) -> int:
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def stream(seed: int, *names: object) -> random.Random:
    """Return the random stream of a purpose, e.g. ``stream(seed, turn, "speaker")``."""
    return random.Random(_digest(seed, names))


def rollout_id(seed: int, *names: object) -> int:
    """Return the DSPy rollout id (1 .. 2^31-1) that keeps the cached answer of this call apart."""
    return 1 + _digest(seed, names) % (2**31 - 1)
