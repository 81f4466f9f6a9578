"""What all readers do first: mend the text, take off what a model wrapped it in, open what is JSON."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

__all__ = [
    "DEPTH",
    "EDGE",
    "NOTHING",
    "SCAN",
    "ascii_signs",
    "finite",
    "lower_keys",
    "mended",
    "opened_json",
    "shown",
    "unwrapped",
]

DEPTH = 6  # values within values that are opened
SCAN = 4000  # characters of a long text that are looked through
_FOLD = str.maketrans("％／．：－＋＃［］｛｝（），＂＊٪٫−‒–—", '%/.:-+#[]{}(),"*%.----')
_BROKEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_THINK = re.compile(r"<(/?)think(?:ing)?>", re.I)
_MARKER = re.compile(r"\[\[ ?## ?\w+ ?## ?\]\]")
_FENCE = re.compile(r"\A```[\w+-]*[ \t]*\n?(.*?)\n?[ \t]*(?:```)?\Z", re.S)
EDGE = "".join(map(chr, (*range(9, 14), 32, 133, 160, 0x1680, *range(0x2000, 0x200D), 0x200E, 0x200F))) + (
    "\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
)
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»", "„": "“", "「": "」", "『": "』"}
NOTHING = frozenset({"", "null", "none", "n/a", "na", "undefined", "nil"})


def mended(text: str) -> str:
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
        text = text[match.end() :].strip(EDGE)
    for match in _MARKER.finditer(text):
        if "completed" in match.group():
            return text[: match.start()].strip(EDGE)
    return text


def _unwrap(text: str) -> str:
    """Take one fence, pair of quotes or pair of stars off the whole text, if it is wrapped in one."""
    fence = _FENCE.match(text)
    if fence and "```" not in fence.group(1):
        return fence.group(1).strip(EDGE)
    for mark in ("**", "__", "*"):
        inner = text[len(mark) : -len(mark)]
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark) and mark not in inner:
            return inner.strip(EDGE)
    close = _QUOTES.get(text[:1])
    inner = text[1:-1]
    if close and len(text) > 1 and text.endswith(close) and close not in inner and text[0] not in inner:
        return inner.strip(EDGE)
    return text


def unwrapped(text: str) -> str:
    """The text without broken characters, thinking, markers, fences and quotes round the whole."""
    text = _without_markers(_without_thinking(mended(text)).strip(EDGE))
    for _ in range(DEPTH):
        inner = _unwrap(text)
        if inner == text:
            break
        text = inner
    return text


def opened_json(text: str) -> object:
    """The JSON object or array that the whole text is, else None."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def ascii_signs(text: str) -> str:
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


def shown(value: object) -> str:
    """A short, one-line picture of a value for error messages."""
    try:
        text = " ".join(mended(repr(value)).split())
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def lower_keys(value: Mapping[object, object]) -> dict[str, object]:
    """Return a mapping with its keys as plain lower-case texts."""
    return {str(key).strip().casefold(): item for key, item in value.items()}


def finite(value: Any) -> float | None:
    """The value as a float; an integer too large for one is a very large number, not an error."""
    try:
        number = float(value)
    except OverflowError:
        return math.copysign(1e308, 1 if value > 0 else -1)
    except (ValueError, TypeError):
        return None
    return number if math.isfinite(number) else None
