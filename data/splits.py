"""Which part of a benchmark a text belongs to, for ever.

A text is normalised (NFKC, without case, white space collapsed) and hashed; the hash alone decides. So neither
the order of a file nor what else is in it moves a task, and a task that two data sets share is in the same part
of both: what a program was compiled on never turns up in its test. Three of five texts are for training, one is
for validation, one for the test.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Final, Literal, TypeAlias

__all__ = ["SPLITS", "Split", "normalised", "rank_of", "split_of"]

Split: TypeAlias = Literal["train", "validation", "test"]
SPLITS: Final[tuple[Split, ...]] = ("train", "validation", "test")
_FIFTHS: Final[tuple[Split, ...]] = ("train", "train", "train", "validation", "test")


def normalised(text: str) -> str:
    """Return what two texts have in common that differ in case, white space and compatible characters alone."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def split_of(text: str) -> Split:
    """Return the part that a text belongs to."""
    return _FIFTHS[rank_of(text, "salon benchmark split") % len(_FIFTHS)]


def rank_of(text: str, salt: str) -> int:
    """Return a number that is as good as drawn at random, and always the same for one text and salt."""
    digest = hashlib.sha256(f"{salt}\n{normalised(text)}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")
