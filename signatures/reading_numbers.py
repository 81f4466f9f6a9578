"""Read the one number that a model meant."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import NamedTuple

from .unwrapping import DEPTH, SCAN, ascii_signs, finite, lower_keys, opened_json, shown, unwrapped

__all__ = ["Reading", "read_number"]


class Reading(NamedTuple):
    """A number that was read, and whether it had to be brought back into its scale."""

    value: float
    clamped: bool


_NUMBER_KEYS = ("score", "value", "rating", "confidence")
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_WORD = "(?:" + "|".join(_WORDS) + ")"
_LABEL = (
    r"(?:\b(?:score|rating|rate|value|confidence|eagerness|grade|result|answer|points?)"
    r"(?:[\s\"'*_`]{1,8}(?:is|of|as|at|would be|it|this|that|the idea)){0,4}"
    r"|\b(?:give|gives|gave|rate|rated|score|scored|gets?)\s+(?:it|this|that|the idea)(?:\s+(?:as|at))?"
    r"|\b(?:i would|i'd|i’d|i)\s+say|\b(?:is|would be|gets|at|as|a solid|a strong))"
    r"(?:[\s\"'*_`:=(]{1,8}(?:an?\b)?[\s\"'*_`]{0,8})"
)
_STRONG = re.compile(_LABEL + r"\Z", re.I)
_FINAL = re.compile(r"\b(?:final|overall|total)\b\W*(?:\w+\W+){0,2}\Z", re.I)
_NUM = r"(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:[.,]\d+)?|\.\d+)"
_SIGNED = r"(?<![\w.])(?<!\w[-'/.])[-+]?" + _NUM
_TAIL = r"(?![\w]|[.,]\d|-\w)"
_UNIT = r"(?:\s*(?:points?|pts|stars?)\b)?"
_TOKEN = re.compile(
    rf"""
    (?P<range> (?<![\w.]) (?<!\w-) (?:between\s+|from\s+)?
               (?P<low>{_NUM}) \s*(?:-|\bto\b|\bor\b|\band\b)\s* (?P<high>{_NUM}) )
      (?P<per>\s*/\s*{_NUM})? {_TAIL}
    | (?P<part>{_SIGNED}) \s*(?:/|\b(?:out\s+)?of\b)\s*(?:an?\s+)? (?P<whole>{_NUM}) (?!\s*/) {_UNIT} {_TAIL}
    | (?P<percent>{_SIGNED}) \s*(?:%|per\s?cent\b)
    | (?P<plain>{_SIGNED}) {_UNIT} {_TAIL}
    """,
    re.I | re.X,
)
_AND = re.compile(r"\band\b", re.I)
_OPENING = re.compile(r"\s*(?:\Z|\n|[-.:;,(!*|]|\b(?:because|since|as|for|given|due)\b)", re.I)


class _Found(NamedTuple):
    start: int
    end: int
    value: float
    fraction: bool


def read_number(value: object, low: float, high: float) -> Reading:
    """Read one number on the scale from `low` to `high`.

    Args:
        value: What the model wrote: a number, a text, a list with exactly one number, or a dict with one of
            `score`, `value`, `rating` and `confidence`.
        low: The lowest value of the scale; anything below becomes it, and counts as clamped.
        high: The highest value of the scale.

    Returns:
        The number, within the scale, and whether it was clamped. "between 7 and 8" is 7.5.

    Raises:
        ValueError: There is no number, or several that could be meant.
    """
    number = _number(value, high, 0)
    if number is None:
        raise ValueError(f"no number from {low:g} to {high:g} could be read in {shown(value)}")
    if number < low:
        return Reading(float(low), True)
    if number > high:
        return Reading(float(high), True)
    return Reading(number, False)


def _number(value: object, high: float, depth: int) -> float | None:
    if depth > DEPTH or value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _number_in_text(value, high, depth)
    if isinstance(value, Real | Decimal):
        return finite(value)
    if isinstance(value, Mapping):
        keyed = lower_keys(value)
        values = [_number(keyed[key], high, depth + 1) for key in _NUMBER_KEYS if key in keyed]
        return values[0] if len(values) == 1 else None
    if isinstance(value, list | tuple):
        numbers = [v for v in value if isinstance(v, Real | Decimal) and not isinstance(v, bool)]
        only = value if len(value) == 1 else numbers
        return _number(only[0], high, depth + 1) if len(only) == 1 else None
    return None


def _number_in_text(text: str, high: float, depth: int) -> float | None:
    text = unwrapped(text)[:SCAN]
    opened = opened_json(text)
    if opened is not None:
        return _number(opened, high, depth + 1)
    text = _digits_for_words(ascii_signs(text))
    if re.fullmatch(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?", text):
        return finite(text)
    found = _numbers(text, high)
    if len({f.value for f in found}) == 1:
        return found[0].value
    return _the_one(text, found) if re.search(r"[^\W\d_]", text) else None


def _digits_for_words(text: str) -> str:
    """Write "eight" as 8, but only where it must be the number: in prose "one" is mostly just a word."""

    def digit(match: re.Match[str]) -> str:
        return re.sub(_WORD, lambda word: str(_WORDS.index(word.group().lower())), match.group(), flags=re.I)

    n = rf"(?:{_WORD}|\d+)\b"
    spots = (
        rf"\A\W*{_WORD}\W*\Z",
        rf"\b{n}\s+out\s+of\s+{n}",
        rf"\bbetween\s+{n}\s+and\s+{n}|\A\W*{n}\s*(?:to|or|-)\s*{n}\W*\Z",
        rf"\A{_WORD}\b(?=\s*(?:[-:;,.(\n]|because\b|points?\b|stars?\b|per\s?cent))",
        rf"{_LABEL}{_WORD}\b(?!\s+(?:of|or)\b)",
    )
    for spot in spots:
        text = re.sub(spot, digit, text, flags=re.I)
    return text


def _plain(number: str) -> float | None:
    """A written number: 1,000 is a thousand, 8,5 is eight and a half."""
    grouped = re.fullmatch(r"([-+]?\d{1,3}(?:,\d{3})+)((?:\.\d+)?)", number)
    return finite(number.replace(",", "" if grouped else "."))


def _numbers(text: str, high: float) -> list[_Found]:
    """All numbers of the text in the order they stand, without mentions of the scale itself."""
    found = []
    position = 0
    while match := _TOKEN.search(text, position):
        value, fraction, position = _token(match, high)
        if value is not None:
            found.append(_Found(match.start(), position, value, fraction))
    return found


def _token(match: re.Match[str], high: float) -> tuple[float | None, bool, int]:
    """A match's value (None for a mention of the scale), whether it is a fraction, and where to go on."""
    if match["range"]:
        return _range(match, high)
    if match["part"]:
        part, whole = _plain(match["part"]), _plain(match["whole"])
        ok = part is not None and whole is not None and whole > 0
        return (_share(part, whole, high) if ok else None), True, match.end()
    if match["percent"]:
        return _share(_plain(match["percent"]), 100.0, high), False, match.end()
    return _plain(match["plain"]), False, match.end()


def _share(part: float | None, whole: float | None, high: float) -> float | None:
    if part is None or not whole:
        return None
    return part if whole == high else finite(Decimal(part) * Decimal(high) / Decimal(whole))


def _range(match: re.Match[str], high: float) -> tuple[float | None, bool, int]:
    first, last = _plain(match["low"]), _plain(match["high"])
    between = match["range"][:1].lower() in "bf" and not match["range"][:1].isdigit()
    loose = bool(_AND.search(match["range"])) and not between
    if first is None or last is None or loose or not first < last:
        return first, False, match.end("low")
    if first in (0.0, 1.0) and last == high:
        return None, False, match.end()
    middle = (first + last) / 2
    if match["per"]:
        return _share(middle, _plain(match["per"].replace("/", "").strip()), high), True, match.end()
    return middle, False, match.end()


def _the_one(text: str, found: Sequence[_Found]) -> float | None:
    """The one of several numbers that is meant, or None where that cannot be told."""
    if not found:
        return None
    labelled = [f for f in found if _STRONG.search(text[max(0, f.start - 60) : f.start])]
    final = [f for f in found if _FINAL.search(text[max(0, f.start - 60) : f.start])]
    fractions = [f for f in found if f.fraction]
    for group in (final, labelled, fractions):
        if group:
            if len({f.value for f in group}) == 1:
                return group[0].value
            return None
    first, last = found[0], found[-1]
    if not text[: first.start].strip("*_#>~\"'( \n\t-") and _OPENING.match(text, first.end):
        return first.value
    if not text[last.end :].strip("*_\"'.!) \n\t"):
        return last.value
    return None
