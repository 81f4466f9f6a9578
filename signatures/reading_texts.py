"""Read texts, names and choices."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from .unwrapping import (
    DEPTH,
    EDGE,
    NOTHING,
    SCAN,
    ascii_signs,
    finite,
    lower_keys,
    mended,
    opened_json,
    shown,
    unwrapped,
)

__all__ = ["read_choice", "read_name", "read_text", "shorten"]

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
        raise ValueError(f"no text could be read in {shown(value)}")
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
        raise ValueError(f"no name could be read in {shown(value)}")
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
    return text[:cut].rstrip(EDGE + ",;:-–—") + "…"


def _whole_character(text: str, cut: int) -> int:
    """Move a cut back so that it does not part a character from its marks."""
    start = cut
    while cut > 0 and start - cut < 16 and _joined(text[cut - 1], text[cut]):
        cut -= 1
    return cut if start - cut < 16 else start


def _joined(before: str, after: str) -> bool:
    return after in _JOINERS or before == "\u200d" or unicodedata.combining(after) > 0


def _text(value: object, depth: int) -> str:
    if depth > DEPTH or value is None or isinstance(value, bool):
        return ""
    if isinstance(value, str):
        return _text_in_text(value, depth)
    if isinstance(value, int | float):
        return mended(shown(value)) if finite(value) is not None else ""
    if isinstance(value, Mapping):
        keyed = lower_keys(value)
        texts = [keyed[key] for key in _TEXT_KEYS if key in keyed] or _only_text(keyed.values())
        return _text(texts[0], depth + 1) if texts else ""
    if isinstance(value, list | tuple):
        return "\n".join(part for item in value if (part := _text(item, depth + 1)))
    return ""


def _only_text(values: Iterable[object]) -> list[object]:
    texts: list[object] = [v for v in values if isinstance(v, str)]
    return texts if len(texts) == 1 else []


def _text_in_text(text: str, depth: int) -> str:
    text = unwrapped(text)
    opened = opened_json(text)
    if isinstance(opened, dict) or (isinstance(opened, list) and all(isinstance(v, str) for v in opened)):
        inner = _text(opened, depth + 1)
        if inner or not opened:
            return inner
    for _ in range(DEPTH):
        inner = unwrapped(_TEXT_CALL.sub(r"\2", _TEXT_LABEL.sub("", text, count=1)))
        if inner == text:
            break
        text = inner
    nothing = text.casefold().rstrip(".!") in NOTHING or not text.strip(EDGE + "\ufffd")
    return "" if nothing else text


def _name(value: object, depth: int) -> str:
    if depth > DEPTH:
        return ""
    if isinstance(value, Mapping):
        keyed = lower_keys(value)
        return next((_name(keyed[key], depth + 1) for key in _NAME_KEYS if key in keyed), "")
    if isinstance(value, list | tuple):
        return next((name for item in value if (name := _name(item, depth + 1))), "")
    opened = opened_json(unwrapped(value)) if isinstance(value, str) else None
    if opened is not None:
        return _name(opened, depth + 1)
    lines = _text(value, 0).splitlines()
    line = next((found for line in lines if (found := _BULLET.sub("", line.strip(EDGE)).strip(EDGE))), "")
    name = " ".join(unwrapped(_TEXT_LABEL.sub("", line)).split()).rstrip(",;:!?* ")
    if name.endswith(".") and len(name.split()[-1]) > 3:
        name = name.rstrip(". ")
    return "" if name.strip(".").casefold() in NOTHING else name


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
    named = _named(" ".join(ascii_signs(text).casefold().replace("_", " ").split()), spoken)
    if len(named) == 1:
        return named[0]
    several = "several of" if named else "none of"
    raise ValueError(f"{several} {', '.join(options)} could be read in {shown(value)}")


def _choice_text(value: object, depth: int) -> str:
    if depth > DEPTH:
        return ""
    if isinstance(value, Mapping):
        keyed = lower_keys(value)
        return next((_choice_text(keyed[key], depth + 1) for key in _CHOICE_KEYS if key in keyed), "")
    if isinstance(value, list | tuple):
        return _choice_text(value[0], depth + 1) if len(value) == 1 else ""
    if isinstance(value, str):
        text = unwrapped(value)[:SCAN]
        opened = opened_json(text)
        return text if opened is None else _choice_text(opened, depth + 1)
    return ""


def _spoken(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", ascii_signs(text).casefold()))


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
