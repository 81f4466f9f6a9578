"""What may be shown of models and their keys.

Keys never show: mask them in any text before it is printed, logged or raised.

Three kinds of text are masked: the secrets a caller names, the values of environment variables that
hold keys (``*_API_KEY``, ``*_TOKEN``), and whatever looks like a key (``sk-...``, a bearer token, the
user and password of a URL, ``api_key=...``), so that a provider that echoes a key cannot leak it either.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlsplit

__all__ = ["MASK", "describe", "redact"]

MASK = "***"

_KEY_VARIABLES = ("_API_KEY", "_TOKEN")
_SHORTEST_KEY = 6  # a shorter value ("none", "local") is a placeholder, and masking it would garble text

_LOOKS_LIKE_A_KEY = (
    # OpenAI, Anthropic, OpenRouter, Groq, xAI, Hugging Face and their kin: prefix, then a long tail.
    (re.compile(r"(?<![A-Za-z0-9])(?:sk|pk|rk|gsk|xai|hf|nvapi|pplx|r8|fw|csk)[-_][A-Za-z0-9_\-]{6,}"), MASK),
    (re.compile(r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_\-]{16,}"), MASK),
    (re.compile(r"(?i)\b(bearer\s+)[^\s\"',;]+"), rf"\1{MASK}"),
    (re.compile(r"(://)[^/\s@]+@"), rf"\1{MASK}@"),
    (re.compile(r"(?i)\b((?:x[-_])?api[-_]?key[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&)}]+"), rf"\1{MASK}"),
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Mask every key in a text.

    Args:
        text: Any text, such as an error message or a URL.
        secrets: Further values to mask wherever they stand, in any length; blank ones are ignored.

    Returns:
        The text with each key replaced by ``***``.
    """
    known = {value for value in (*secrets, *_keys_in_environment()) if value.strip()}
    spellings = known | {quote(value, safe="") for value in known}
    if spellings:
        # Longest first: a key that contains another one is masked as a whole.
        ordered = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))
        text = re.sub("|".join(map(re.escape, ordered)), lambda _: MASK, text)
    for pattern, masked in _LOOKS_LIKE_A_KEY:
        text = pattern.sub(masked, text)
    return text


def _keys_in_environment() -> list[str]:
    return [
        value
        for name, value in os.environ.items()
        if name.upper().endswith(_KEY_VARIABLES) and len(value) >= _SHORTEST_KEY
    ]


def describe(lm: Any) -> dict[str, Any]:
    """What a session's header says of an LM: model, address, temperature and token limit; never a key."""
    settings = getattr(lm, "kwargs", None) or {}
    base = settings.get("api_base") or settings.get("base_url")
    return {
        "model": redact(str(getattr(lm, "model", type(lm).__name__))),
        "api_base": _address(str(base)) if base else None,
        "temperature": settings.get("temperature"),
        "max_tokens": settings.get("max_tokens", settings.get("max_completion_tokens")),
    }


def _address(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
