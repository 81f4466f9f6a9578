"""What changed between two texts, by words: for a reader who wants to see what tuning did to a prompt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

__all__ = ["Piece", "changed_words"]

_WORDS = re.compile(r"\s+|[^\s]+")
_MOST = 3000  # words of both texts beyond which they are not compared
_ALIKE = 0.4  # share of common words below which a comparison is harder to read than the two texts


@dataclass(frozen=True)
class Piece:
    """A stretch of text that was kept, removed or added."""

    kind: Literal["kept", "removed", "added"]
    text: str


def changed_words(before: str, after: str) -> list[Piece] | None:
    """Return the pieces of both texts, in order; None where they have too little in common, or are too long.

    Joined, the kept and removed pieces are the text before, the kept and added ones the text after.
    """
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if len(old) + len(new) > 2 * _MOST:
        return None
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    if matcher.quick_ratio() < _ALIKE or matcher.ratio() < _ALIKE:
        return None
    pieces: list[Piece] = []
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            pieces.append(Piece("kept", "".join(old[a:b])))
            continue
        pieces += [Piece("removed", "".join(old[a:b]))] if a < b else []
        pieces += [Piece("added", "".join(new[c:d]))] if c < d else []
    return pieces
