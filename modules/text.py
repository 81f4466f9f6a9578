"""Texts of people and models on their way into prompts: data, never instructions."""

from __future__ import annotations

import re

__all__ = ["clean", "excerpt", "fitted", "neutral", "restated", "tokens", "words"]

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_MARKER = re.compile(r"\[\[(?=\s*##)|(?<=##)(\s*)\]\]")
_SPECIAL = re.compile(
    r"<(?=[|｜]|/?think|/?(?:s|bos|eos|start_of_turn|end_of_turn)>|</?SYS|<CUSTOM-TYPE)|\[(?=/?INST\])",
    re.IGNORECASE,
)
_RESTATED = 1200  # characters of a task that stand beside the request
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")


def clean(text: str) -> str:
    """Replace what no text should hold (control characters, lone surrogates) by U+FFFD."""
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def neutral(text: str) -> str:
    """Make a text inert inside a prompt: field markers, model tags and ids at line starts lose their force.

    Line breaks become spaces, so that a text cannot pretend to be another entry of the transcript.
    """
    text = " ".join(clean(text).split())
    text = _MARKER.sub(lambda m: "[ [" if m.group().startswith("[") else f"{m.group(1)}] ]", text)
    return _SPECIAL.sub(r"\g<0> ", text)


def excerpt(text: str, limit: int) -> str:
    """Return the text on one line, cut at a word to at most ``limit`` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else _cut(text, limit - 1)


def _cut(text: str, at: int) -> str:
    """Cut a text at a word, no later than ``at``, and say so by an ellipsis."""
    cut = text[:at]
    space = cut.rfind(" ")
    return (cut[:space] if space > at // 2 else cut).rstrip(" ,;:.") + "…"


def fitted(text: str, limit: int) -> str:
    """Return the text on one line, cut at a word to at most ``limit`` tokens."""
    text = " ".join(text.split())
    if tokens(text) <= limit:
        return text
    head = text.encode("utf-8", "replace")[: 3 * limit - 3].decode("utf-8", "ignore")
    return _cut(text, len(head))


def words(text: str) -> int:
    """Count spoken words; in scripts without spaces two characters count as one word."""
    dense = len(_CJK.findall(text))
    return len(_CJK.sub(" ", text).split()) + (dense + 1) // 2


def tokens(text: str) -> int:
    """Estimate how many tokens a text costs, on the safe side: a token per 3 bytes of UTF-8."""
    return (len(text.encode("utf-8", "replace")) + 2) // 3


def restated(task: str, now: str) -> str:
    """Return the request: the task's constraints once more, then what to do."""
    if len(task) > _RESTATED:
        half = _RESTATED // 2
        task = f"{task[:half]} […] {task[-half:]}"
    return f"Keep to the task and all its constraints: {task}\n{now}"
