"""Names of people: unique labels for prompts, and finding whole names in what was said."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

from .text import excerpt, neutral

__all__ = ["addressed", "labels", "named"]

_RESERVED = {
    "facilitator",
    "sage",
    "moderator",
    "human",
    "you",
    "none",
    "nobody",
    "everyone",
    "null",
    "no one",
}
_QUESTION = re.compile(r"[^.!?…。！？؟]*[?？؟]")


def _key(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def labels(names: Sequence[str], ids: Sequence[str]) -> dict[str, str]:
    """Return a unique label for each persona id: the name, with the id where the name alone is not clear."""
    plain = {i: _shown(name) for i, name in zip(ids, names, strict=True)}
    counts = Counter(_key(name) for name in plain.values())
    return {
        i: f"{name} ({i})" if counts[_key(name)] > 1 or _key(name) in _RESERVED else name
        for i, name in plain.items()
    }


def _shown(name: str) -> str:
    return excerpt(neutral(name), 60) or "?"


def named(text: str, labelled: Mapping[str, str]) -> list[str]:
    """Return the ids of the personas whose whole name, label or id occurs in a text, in any script.

    ``Ann`` is not found in ``Anna``; in scripts that set no spaces a name may touch other letters.
    Where one name is part of another that also matches at the same place (Alex, Alex Kim), the longer
    one wins. A text that names an id names that persona alone, even if others share the name.
    """
    text = _key(text)
    by_id = [i for i in labelled if re.search(rf"(?<!\w){i.casefold()}(?!\w)", text)]
    if by_id:
        return by_id
    found: list[str] = []
    plain = {i: _key(re.sub(rf" \({i}\)$", "", label)) for i, label in labelled.items()}
    for name in sorted(set(plain.values()) - _RESERVED, key=len, reverse=True):
        pattern = _whole(name)
        if pattern.search(text):
            found += [i for i, other in plain.items() if other == name]
            text = pattern.sub(" ", text)
    return [i for i in labelled if i in found]


def _whole(name: str) -> re.Pattern[str]:
    """Match a name as a whole word, where its script separates words."""
    before = r"(?<!\w)" if _spaced(name[:1]) else ""
    after = r"(?!\w)" if _spaced(name[-1:]) else ""
    return re.compile(before + re.escape(name) + after)


def _spaced(char: str) -> bool:
    return not re.match(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]", char) and (
        char.isalnum() or char == "_"
    )


def addressed(nomination: str, said: str, labelled: Mapping[str, str], speaker: str) -> list[str]:
    """Return whom a speaker addressed: by nomination, else by name inside a question.

    Args:
        nomination: What the model wrote into its nomination field; may be empty.
        said: The words spoken.
        labelled: Labels by persona id.
        speaker: Id of the speaker, who cannot address himself.
    """
    for text in (nomination, *_QUESTION.findall(said)):
        found = [i for i in named(text, labelled) if i != speaker]
        if found:
            return found
    return []
