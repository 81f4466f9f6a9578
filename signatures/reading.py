"""Read what a model really wrote.

Asked for a number, models answer `8/10`, `**8**`, `８` or "I would give it an eight"; asked for ids, they
answer in prose. The functions here turn such values into plain ones, or raise `ValueError` with one
clear line. They are pure, raise nothing else, and do not guess between two different readings.

Every reader begins the same way: broken characters are replaced; `<think>` blocks, field markers, code fences
and quotes round the whole are taken off; a text that is a JSON value is opened. Then:

* A **number** is looked for among all the numbers of the text, apart from ids (`I3`), names (`GPT-4`) and
  mentions of the scale itself (`1-10`). A fraction or a percentage is a share of the scale's top (`4/5` of 10
  is 8). A range (`7-8`, "between 7 and 8") is read as its middle. One number alone is the answer; of several,
  the final or labelled one (`Score: 8`), the only fraction, the first if the text opens with it, or the last
  if the text ends with it. Otherwise it is ambiguous.
* **Ids** are a kind letter and digits (`I7`), also written `#i7`, `IDEA-7`, `Idea 7`, `ideas 7 and 8`,
  `C 12`. `I 2` in a sentence is the pronoun and is left out; alone, or in a bare list of ids, it is `I2`.
* A **text** loses a leading label (`Comment:`) and is cut at a word boundary.
* A **choice** is the one option that is named, leaving out those that follow a "not".
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

__all__ = ["Reading", "read_choice", "read_ids", "read_name", "read_number", "read_text", "shorten"]

_DEPTH = 6
_SCAN = 4000


class Reading(NamedTuple):
    """A number that was read, and whether it had to be brought back into its scale."""

    value: float
    clamped: bool


# ---------------------------------------------------------------- what all readers share

_FOLD = str.maketrans("％／．：－＋＃［］｛｝（），＂＊٪٫−‒–—", '%/.:-+#[]{}(),"*%.----')
_BROKEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_THINK = re.compile(r"<(/?)think(?:ing)?>", re.I)
_MARKER = re.compile(r"\[\[ ?## ?\w+ ?## ?\]\]")
_FENCE = re.compile(r"\A```[\w+-]*[ \t]*\n?(.*?)\n?[ \t]*(?:```)?\Z", re.S)
_EDGE = "".join(map(chr, (*range(9, 14), 32, 133, 160, 0x1680, *range(0x2000, 0x200D), 0x200E, 0x200F))) + (
    "\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
)
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»", "„": "“", "「": "」", "『": "』"}
_NOTHING = frozenset({"", "null", "none", "n/a", "na", "undefined", "nil"})


def _mend(text: str) -> str:
    """Join surrogate pairs, and replace what is not text (NUL, controls, lone surrogates) by U+FFFD."""
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _BROKEN.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def _without_thinking(text: str) -> str:
    """Drop thinking blocks, also one whose opening or closing tag is missing."""
    kept: list[str] = []
    thinking, position = False, 0
    for tag in _THINK.finditer(text):
        if tag[1] and not thinking:
            kept.clear()
        elif not tag[1] and not thinking:
            kept.append(text[position : tag.start()])
        thinking, position = not tag[1], tag.end()
    return "".join(kept) + ("" if thinking else text[position:])


def _without_markers(text: str) -> str:
    """Drop DSPy's field markers at either end: models put `[[ ## completed ## ]]` on the last line."""
    while match := _MARKER.match(text):
        text = text[match.end() :].strip(_EDGE)
    for match in _MARKER.finditer(text):
        if "completed" in match.group():
            return text[: match.start()].strip(_EDGE)
    return text


def _unwrap(text: str) -> str:
    """Take one fence, pair of quotes or pair of stars off the whole text, if it is wrapped in one."""
    fence = _FENCE.match(text)
    if fence and "```" not in fence.group(1):
        return fence.group(1).strip(_EDGE)
    for mark in ("**", "__", "*"):
        inner = text[len(mark) : -len(mark)]
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark) and mark not in inner:
            return inner.strip(_EDGE)
    close = _QUOTES.get(text[:1])
    inner = text[1:-1]
    if close and len(text) > 1 and text.endswith(close) and close not in inner and text[0] not in inner:
        return inner.strip(_EDGE)
    return text


def _bare(text: str) -> str:
    """The text without broken characters, thinking, markers, fences and quotes round the whole."""
    text = _without_markers(_without_thinking(_mend(text)).strip(_EDGE))
    for _ in range(_DEPTH):
        inner = _unwrap(text)
        if inner == text:
            break
        text = inner
    return text


def _opened(text: str) -> object:
    """The JSON object or array that the whole text is, else None."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _ascii(text: str) -> str:
    """Write the digits of every script, and full-width letters and signs, in ASCII; nothing else changes."""
    folded = []
    for char in text.translate(_FOLD):
        if "\uff01" <= char <= "\uff5e":
            folded.append(chr(ord(char) - 0xFEE0))
        elif not char.isascii() and char.isdecimal():
            folded.append(str(unicodedata.decimal(char)))
        else:
            folded.append(char)
    return "".join(folded)


def _shown(value: object) -> str:
    """A short, one-line picture of a value for error messages."""
    try:
        text = " ".join(_mend(repr(value)).split())
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def _lower_keys(value: Mapping[object, object]) -> dict[str, object]:
    return {str(key).strip().casefold(): item for key, item in value.items()}


# ---------------------------------------------------------------- numbers

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
        raise ValueError(f"no number from {low:g} to {high:g} could be read in {_shown(value)}")
    if number < low:
        return Reading(float(low), True)
    if number > high:
        return Reading(float(high), True)
    return Reading(number, False)


def _number(value: object, high: float, depth: int) -> float | None:
    if depth > _DEPTH or value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _number_in_text(value, high, depth)
    if isinstance(value, Real | Decimal):
        return _finite(value)
    if isinstance(value, Mapping):
        keyed = _lower_keys(value)
        values = [_number(keyed[key], high, depth + 1) for key in _NUMBER_KEYS if key in keyed]
        return values[0] if len(values) == 1 else None
    if isinstance(value, list | tuple):
        numbers = [v for v in value if isinstance(v, Real | Decimal) and not isinstance(v, bool)]
        only = value if len(value) == 1 else numbers
        return _number(only[0], high, depth + 1) if len(only) == 1 else None
    return None


def _finite(value: Any) -> float | None:
    """The value as a float; an integer too large for one is a very large number, not an error."""
    try:
        number = float(value)
    except OverflowError:
        return math.copysign(1e308, 1 if value > 0 else -1)
    except (ValueError, TypeError):
        return None
    return number if math.isfinite(number) else None


def _number_in_text(text: str, high: float, depth: int) -> float | None:
    text = _bare(text)[:_SCAN]
    opened = _opened(text)
    if opened is not None:
        return _number(opened, high, depth + 1)
    text = _digits_for_words(_ascii(text))
    if re.fullmatch(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?", text):
        return _finite(text)
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
    return _finite(number.replace(",", "" if grouped else "."))


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
    return part if whole == high else _finite(Decimal(part) * Decimal(high) / Decimal(whole))


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


# ---------------------------------------------------------------- ids

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
    if depth > _DEPTH or value is None or isinstance(value, bool):
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
    keyed = _lower_keys(value)
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
    text = _ascii(_bare(text))
    opened = _opened(text)
    if opened is not None:
        return list(_ids(opened, bare, depth + 1))
    text = text[: 5 * _SCAN]
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


# ---------------------------------------------------------------- texts and names

_TEXT_KEYS = (
    *("text", "content", "comment", "idea", "answer"),
    *("thought", "description", "title", "name", "summary"),
)
_TEXT_LABEL = re.compile(
    r"""\A (?:\*\*|__|\#+\s*)? (?:my\s+|final\s+)?
    (?:comment|idea|answer|thought|description|title|name|text|content|summary
      |response|reply|output|reason|rationale|persona|nominee)
    (?:\*\*|__)? \s*[:：]\s* (?:\*\*|__)? \s*""",
    re.I | re.X,
)
_TEXT_CALL = re.compile(r"\A[A-Z][A-Za-z]{2,20}\((['\"])(.*)\1\)\Z", re.S)
_JOINERS = frozenset("\u200d\ufe0e\ufe0f\u20e3")
_NAME_KEYS = ("name", "persona", "nominee", "nomination", "id", "text", "value")
_BULLET = re.compile(r"\A(?:[-*•>]+\s+|#+\s+|\d{1,2}[.)]\s+)")


def read_text(value: object, limit: int, *, allow_empty: bool = False) -> str:
    """Read a text of at most `limit` characters.

    Args:
        value: A text, a list of texts (joined by line breaks), or a dict with one text.
        limit: The most characters of the result; a longer one is cut at a word and ends in an ellipsis.
        allow_empty: Return "" where nothing is left, instead of raising.

    Returns:
        The text without thinking, fences, quotes round the whole and a leading label such as "Comment:".

    Raises:
        ValueError: Nothing is left. "null", "none" and "n/a" alone count as nothing.
    """
    text = _text(value, 0)
    if not text and not allow_empty:
        raise ValueError(f"no text could be read in {_shown(value)}")
    return shorten(text, limit)


def read_name(value: object, *, allow_empty: bool = False) -> str:
    """Read a name: the first line of a text or the first of a list, without bullets and closing punctuation.

    Args:
        value: A text, a list, or a dict with a `name`.
        allow_empty: Return "" where no name is given, instead of raising.

    Returns:
        The name, on one line with single spaces, not shortened.

    Raises:
        ValueError: No name is given.
    """
    name = _name(value, 0)
    if not name and not allow_empty:
        raise ValueError(f"no name could be read in {_shown(value)}")
    return name


def shorten(text: str, limit: int) -> str:
    """Cut a text to `limit` characters, at a word boundary where there is one, ending in an ellipsis.

    Args:
        text: Any text.
        limit: The most characters of the result, at least 1.

    Returns:
        The text itself if it is short enough.

    Raises:
        ValueError: `limit` is below 1.
    """
    if limit < 1:
        raise ValueError(f"a text cannot be cut to {limit} characters")
    if len(text) <= limit:
        return text
    cut = limit - 1
    if not text[cut].isspace():
        space = max((i for i in range(cut // 2, cut) if text[i].isspace()), default=-1)
        cut = space if space > 0 else _whole_character(text, cut)
    return text[:cut].rstrip(_EDGE + ",;:-–—") + "…"


def _whole_character(text: str, cut: int) -> int:
    """Move a cut back so that it does not part a character from its marks."""
    start = cut
    while cut > 0 and start - cut < 16 and _joined(text[cut - 1], text[cut]):
        cut -= 1
    return cut if start - cut < 16 else start


def _joined(before: str, after: str) -> bool:
    return after in _JOINERS or before == "\u200d" or unicodedata.combining(after) > 0


def _text(value: object, depth: int) -> str:
    if depth > _DEPTH or value is None or isinstance(value, bool):
        return ""
    if isinstance(value, str):
        return _text_in_text(value, depth)
    if isinstance(value, int | float):
        return _mend(_shown(value)) if _finite(value) is not None else ""
    if isinstance(value, Mapping):
        keyed = _lower_keys(value)
        texts = [keyed[key] for key in _TEXT_KEYS if key in keyed] or _only_text(keyed.values())
        return _text(texts[0], depth + 1) if texts else ""
    if isinstance(value, list | tuple):
        return "\n".join(part for item in value if (part := _text(item, depth + 1)))
    return ""


def _only_text(values: Iterable[object]) -> list[object]:
    texts: list[object] = [v for v in values if isinstance(v, str)]
    return texts if len(texts) == 1 else []


def _text_in_text(text: str, depth: int) -> str:
    text = _bare(text)
    opened = _opened(text)
    if isinstance(opened, dict) or (isinstance(opened, list) and all(isinstance(v, str) for v in opened)):
        inner = _text(opened, depth + 1)
        if inner or not opened:
            return inner
    for _ in range(_DEPTH):
        inner = _bare(_TEXT_CALL.sub(r"\2", _TEXT_LABEL.sub("", text, count=1)))
        if inner == text:
            break
        text = inner
    nothing = text.casefold().rstrip(".!") in _NOTHING or not text.strip(_EDGE + "\ufffd")
    return "" if nothing else text


def _name(value: object, depth: int) -> str:
    if depth > _DEPTH:
        return ""
    if isinstance(value, Mapping):
        keyed = _lower_keys(value)
        return next((_name(keyed[key], depth + 1) for key in _NAME_KEYS if key in keyed), "")
    if isinstance(value, list | tuple):
        return next((name for item in value if (name := _name(item, depth + 1))), "")
    opened = _opened(_bare(value)) if isinstance(value, str) else None
    if opened is not None:
        return _name(opened, depth + 1)
    lines = _text(value, 0).splitlines()
    line = next((found for line in lines if (found := _BULLET.sub("", line.strip(_EDGE)).strip(_EDGE))), "")
    name = " ".join(_bare(_TEXT_LABEL.sub("", line)).split()).rstrip(",;:!?* ")
    if name.endswith(".") and len(name.split()[-1]) > 3:
        name = name.rstrip(". ")
    return "" if name.strip(".").casefold() in _NOTHING else name


# ---------------------------------------------------------------- choices

_CHOICE_KEYS = ("choice", "action", "answer", "decision", "value", "move", "option", "name", "text")
_NOT = re.compile(r"(?:\b(?:not|never|don't|don’t|won't|won’t|cannot|can't|can’t|without)\W+(?:\w+\s+)?)\Z")


def read_choice(value: object, options: Sequence[str]) -> str:
    """Read which of the options was chosen.

    Args:
        value: A text that names one option, a list of one, or a dict with a `choice`, `action`, `answer` ...
        options: The options, told apart without regard to case, spaces, hyphens and underscores.

    Returns:
        The option, as it is written in `options`.

    Raises:
        ValueError: None or several of the options are named. An option after a "not" is not named.
    """
    text = _choice_text(value, 0)
    spoken = {option: _spoken(option) for option in options}
    said = _spoken(text)
    for option, words in spoken.items():
        if words and words == said:
            return option
    named = _named(" ".join(_ascii(text).casefold().replace("_", " ").split()), spoken)
    if len(named) == 1:
        return named[0]
    several = "several of" if named else "none of"
    raise ValueError(f"{several} {', '.join(options)} could be read in {_shown(value)}")


def _choice_text(value: object, depth: int) -> str:
    if depth > _DEPTH:
        return ""
    if isinstance(value, Mapping):
        keyed = _lower_keys(value)
        return next((_choice_text(keyed[key], depth + 1) for key in _CHOICE_KEYS if key in keyed), "")
    if isinstance(value, list | tuple):
        return _choice_text(value[0], depth + 1) if len(value) == 1 else ""
    if isinstance(value, str):
        text = _bare(value)[:_SCAN]
        opened = _opened(text)
        return text if opened is None else _choice_text(opened, depth + 1)
    return ""


def _spoken(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", _ascii(text).casefold()))


def _named(text: str, spoken: Mapping[str, str]) -> list[str]:
    """The options named in a text; one inside a longer one ("move" in "move on") does not count there."""
    named: list[str] = []
    for option, words in sorted(spoken.items(), key=lambda item: -len(item[1])):
        if not words:
            continue
        pattern = re.compile(r"(?<!\w)" + r"[\W_]+".join(map(re.escape, words.split())) + r"(?!\w)")
        before = (text[max(0, m.start() - 40) : m.start()] for m in pattern.finditer(text))
        if any(not _NOT.search(words) for words in before):
            named.append(option)
        text = pattern.sub(lambda m: "\x00" * len(m.group()), text)
    return named
