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
_STOP = re.compile(r"[.!?…。！？؟]")
_ID = re.compile(r"(?<!\w)p\d+(?!\w)")


def _key(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def labels(names: Sequence[str], ids: Sequence[str]) -> dict[str, str]:
    """Return a unique label for each persona id: the name, with the id where the name alone is not clear."""
    plain = {i: excerpt(neutral(name), 60) or i for i, name in zip(ids, names, strict=True)}
    counts = Counter(_key(name) for name in plain.values())

    def clear(i: str, key: str) -> bool:
        return counts[key] == 1 and key not in _RESERVED and (not _ID.search(key) or key == _key(i))

    return {i: name if clear(i, _key(name)) else f"{name} ({i})" for i, name in plain.items()}


def named(text: str, labelled: Mapping[str, str]) -> list[str]:
    """Return the ids of the personas whose whole name, label or id occurs in a text, in any script.

    ``Ann`` is not found in ``Anna``; in scripts that set no spaces a name may touch other letters.
    Where one name is part of another that also matches at the same place (Alex, Alex Kim), the longer
    one wins. A text that names an id names that persona alone, even if others share the name. A name
    without any letter, digit or symbol is found by its id alone.
    """
    text = _key(text)
    certain = {_key(i): [i] for i in labelled}
    certain |= {_key(label): [i] for i, label in labelled.items() if label.endswith(f"({i})")}
    found = _found(text, certain) or _found(text, _plain(labelled))
    return [i for i in labelled if i in found]


def _plain(labelled: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the ids by name, for all names that can be looked for."""
    names: dict[str, list[str]] = {}
    for i, label in labelled.items():
        name = _key(label.removesuffix(f" ({i})"))
        if name not in _RESERVED and any(unicodedata.category(char)[0] in "LNS" for char in name):
            names.setdefault(name, []).append(i)
    return names


def _found(text: str, names: Mapping[str, list[str]]) -> set[str]:
    """Return the ids of all names in a text, the longest names first; what one matched no other can."""
    found: set[str] = set()
    for name in sorted(names, key=len, reverse=True):
        text, times = _whole(name).subn(" ", text)
        if times:
            found.update(names[name])
    return found


def _whole(name: str) -> re.Pattern[str]:
    """Match a name as a whole word, where its script separates words."""
    before = r"(?<!\w)" if _spaced(name[:1]) else ""
    after = r"(?!\w)" if _spaced(name[-1:]) else ""
    return re.compile(before + re.escape(name) + after)


def _spaced(char: str) -> bool:
    return not re.match(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]", char) and (
        char.isalnum() or char == "_"
    )


def _questions(said: str, labelled: Mapping[str, str]) -> list[str]:
    """Return the questions in a text; a full stop inside a name (Dr. Kim) does not end a sentence."""
    text = masked = _key(said)
    for name in _plain(labelled):
        masked = _whole(name).sub(lambda match: _STOP.sub("_", match.group()), masked)
    return [text[match.start() : match.end()] for match in _QUESTION.finditer(masked)]


def addressed(nomination: str, said: str, labelled: Mapping[str, str], speaker: str) -> list[str]:
    """Return whom a speaker addressed: by nomination, else by name inside a question.

    Args:
        nomination: What the model wrote into its nomination field; may be empty.
        said: The words spoken.
        labelled: Labels by persona id.
        speaker: Id of the speaker, who cannot address himself.
    """
    for text in (nomination, *_questions(said, labelled)):
        found = [i for i in named(text, labelled) if i != speaker]
        if found:
            return found
    return []
