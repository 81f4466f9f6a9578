"""Read ids of entities from lists and from prose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from .unwrapping import DEPTH, SCAN, ascii_signs, lower_keys, opened_json, unwrapped

__all__ = ["read_ids"]

_KINDS = {
    "thought": "T",
    "comment": "C",
    "idea": "I",
    "vote": "V",
    "facilitator": "F",
    "facilitation": "F",
    "human": "U",
    "summary": "S",
}
_DIGITS = r"\d{1,9}(?![^\W_]|_\w|\.\d)"
_ID = re.compile(
    rf"""
    (?<![^\W_]) (?:
      (?P<word>(?:thought|comment|idea|vote|facilitator|facilitation|human|summary|summarie)s?)
      (?:\s+id)? [\s_*\[(\-]* (?:no\.?|nr\.?|number)? [\s\#]*
      (?P<many>{_DIGITS} (?:\s*(?:,\s*and\b|,|;|&|\band\b|\bor\b)\s*\#?{_DIGITS})*)
    | (?P<letter>[TCIVFUS]) (?P<digits>{_DIGITS})
    | (?-i: (?P<spaced>[TCVFUS][ \#_\-]{{1,2}}|I[\#_\-]) (?P<far>{_DIGITS}) )
    )
    """,
    re.I | re.X,
)
_LONE_I = re.compile(rf"\W*[Ii]\s+#?({_DIGITS})\W*")
_BARE_NUMBER = re.compile(rf"\W*({_DIGITS})\W*")
_BETWEEN = re.compile(r"[,;/&\n|]|\band\b", re.I)
_ID_KEYS = ("id", "ids", "idea_id", "idea_ids", "citations", "cites", "ballot", "votes", "ref", "refs")


def read_ids(value: object, bare: str = "") -> list[str]:
    """Read entity ids: a kind letter (T C I V F U S) and digits, written in any of the usual ways.

    Args:
        value: A list, dicts with an `id`, a JSON text or prose.
        bare: The kind letter that bare numbers get (`[3, 5]` is `I3`, `I5` for "I"); by default they are no
            ids.

    Returns:
        The ids as `I1`, `C12` in the order they were written, with repetitions; an empty list where there is
        nothing to read. An id is not checked to exist: `U2's` is read as `U2`. `C3PO`, `T1000x` and `V1.2`
        are not ids.
    """
    return [kind + (digits.lstrip("0") or "0") for kind, digits in _ids(value, bare, 0)]


def _ids(value: object, bare: str, depth: int) -> Iterable[tuple[str, str]]:
    if depth > DEPTH or value is None or isinstance(value, bool):
        return []
    if isinstance(value, str):
        return _ids_in_text(value, bare, depth)
    if isinstance(value, int):
        return [(bare, str(value))] if bare and 0 <= value < 10**9 else []
    if isinstance(value, Mapping):
        return _ids_in_dict(value, bare, depth)
    if isinstance(value, list | tuple):
        return [found for item in value for found in _ids(item, bare, depth + 1)]
    return []


def _ids_in_dict(value: Mapping[object, object], bare: str, depth: int) -> list[tuple[str, str]]:
    """Ids of a dict: those under a key that says so, else ids used as keys, else all values."""
    keyed = lower_keys(value)
    for key in _ID_KEYS:
        if key in keyed:
            return list(_ids(keyed[key], bare, depth + 1))
    for key, item in keyed.items():
        kind = _KINDS.get(key.removesuffix("s"))
        if kind and (found := list(_ids(item, kind, depth + 1))):
            return found
    used = [found for key in keyed for found in _ids_in_text(key, "", depth + 1)]
    return used or [found for item in keyed.values() for found in _ids(item, bare, depth + 1)]


def _ids_in_text(text: str, bare: str, depth: int) -> list[tuple[str, str]]:
    text = ascii_signs(unwrapped(text))
    opened = opened_json(text)
    if opened is not None:
        return list(_ids(opened, bare, depth + 1))
    text = text[: 5 * SCAN]
    return _ids_alone(text, bare) or _ids_in_prose(text)


def _ids_alone(text: str, bare: str) -> list[tuple[str, str]]:
    """Ids of a text that is nothing but ids: there `I 2` is an id, and a bare number may be one."""
    found: list[tuple[str, str]] = []
    for segment in _BETWEEN.split(text):
        if not segment.strip(" \t*-[](){}.\"'"):
            continue
        match = _LONE_I.fullmatch(segment)
        number = _BARE_NUMBER.fullmatch(segment) if bare else None
        inner = _ids_in_prose(segment)
        if match:
            found.append(("I", match[1]))
        elif number:
            found.append((bare, number[1]))
        elif inner and not re.search(r"\w", _ID.sub("", segment)):
            found.extend(inner)
        else:
            return []
    return found


def _ids_in_prose(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for match in _ID.finditer(text):
        if match["word"]:
            many = re.findall(r"\d+", match["many"])
            named = many if match["word"].lower().endswith("s") else many[:1]
            found.extend((_kind(match["word"]), digits) for digits in named)
        elif match["letter"]:
            found.append((match["letter"].upper(), match["digits"]))
        else:
            found.append((match["spaced"][0], match["far"]))
    return found


def _kind(word: str) -> str:
    word = word.lower()
    return next(letter for name, letter in _KINDS.items() if word.startswith(name[:6]))
