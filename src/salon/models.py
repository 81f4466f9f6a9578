"""One function that makes any language model ready for DSPy: ``salon.lm()``.

Mistakes are told here, before a session starts, in one line: a name without a provider, an unknown
provider, a missing key, an address that cannot be one. What DSPy 3.4 leaves to the caller is settled too:

* ``vllm/x`` and ``ollama/x`` are spelled as DSPy's client wants them: ``hosted_vllm/x``, ``ollama_chat/x``.
* DSPy appends an endpoint's path to ``api_base``, so the version in it is added where it is left out and
  the server's layout is known: ``http://host:11434`` becomes ``http://host:11434/v1`` for Ollama.
* A key is required only at a provider's own address. At an ``api_base`` the key of the environment is
  used where it is set, else a placeholder: a server of one's own rarely wants one.
* DSPy's `JSONAdapter` sends no schema to a model it does not know. For vLLM and Ollama, which follow
  schemas, it does here; ``response_schema=True`` says the same of any other server. A
  ``config={"response_format": ...}`` of the caller reaches every server as it is.
* DSPy would fetch a table of prices and abilities from the internet on first use.
  ``LITELLM_LOCAL_MODEL_COST_MAP`` is set to ``true`` unless it is set already, so its bundled table serves.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
from typing import Any
from urllib.parse import urlsplit

from salon.errors import LMSetupError
from salon.redact import redact

__all__ = ["EMBEDDED", "lm"]

EMBEDDED = "embedded"
_EMBEDDED_NAMES = {EMBEDDED, "embedded/qwen2.5-1.5b"}
_EMBEDDED_SETTINGS = {"max_tokens": 400, "timeout": 600.0}
_TIMEOUT = 120.0
_PLACEHOLDER_KEY = "no-key"

_KEYS: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "xai": ("XAI_API_KEY",),
    "moonshot": ("MOONSHOT_API_KEY", "MOONSHOTAI_API_KEY"),
    "mistral": ("MISTRAL_API_KEY",),
    "cerebras": ("CEREBRAS_API_KEY",),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY", "TOGETHER_AI_API_KEY"),
    "fireworks_ai": ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY"),
}
_SELF_HOSTED = {"hosted_vllm", "ollama_chat", "lm_studio", "llamafile"}
_FOLLOW_SCHEMAS = {"hosted_vllm", "ollama_chat"}
_SPELLING = {"vllm": "hosted_vllm", "ollama": "ollama_chat"}
_VERSION_PATH = {"hosted_vllm": "/v1", "ollama_chat": "/v1", "anthropic": "/v1", "gemini": "/v1beta"}
_MEANT = {"google": "gemini", "claude": "anthropic", "gpt": "openai", "grok": "xai", "lmstudio": "lm_studio"}
_FAMILIES = (
    (r"gpt-|chatgpt|o[134](-|$)", "openai"),
    (r"claude", "anthropic"),
    (r"gemini", "gemini"),
    (r"deepseek", "deepseek"),
    (r"grok", "xai"),
    (r"mistral|mixtral|magistral", "mistral"),
    (r"llama|qwen|phi|gemma|smollm", "ollama_chat"),
)


def lm(
    model: str | None = None,
    *,
    api_base: str | None = None,
    api_key: str | None = None,
    **settings: Any,
) -> Any:
    """Make a ``dspy.LM``.

    Args:
        model: ``embedded`` (a small model that runs in this machine's memory, without a key), or a name of
            the form ``provider/model``. Without it, ``SALON_LM`` is read; without that it is ``embedded``.
        api_base: The address of a server of one's own. Without it, ``SALON_API_BASE`` is read.
        api_key: The key. Without it, the provider's environment variable is read.
        **settings: Passed on to ``dspy.LM``, such as ``temperature``, ``max_tokens``, ``timeout`` and
            ``cache``. ``response_schema=True`` says that the server follows JSON schemas.

    Returns:
        A ``dspy.LM``.

    Raises:
        LMSetupError: The model cannot be set up; the message says why, and what to do.
        EmbeddedModelError: The embedded model's server does not start.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    name = model or os.environ.get("SALON_LM") or EMBEDDED
    if name in _EMBEDDED_NAMES:
        return _embedded(api_base, settings)
    provider, name = _parse(name)
    base = _checked_base(api_base or os.environ.get("SALON_API_BASE") or None)
    if base and settings.get("engine", "auto") != "litellm":
        base = _with_version(base, provider)
    follows = settings.pop("response_schema", provider in _FOLLOW_SCHEMAS)
    address = {"api_base": base, "api_key": api_key or _key(provider, base), "timeout": _TIMEOUT}
    given = {setting: value for setting, value in address.items() if value is not None}
    return _make(_schema_lm() if follows else _dspy().LM, name, given | settings)


def _embedded(api_base: str | None, settings: dict[str, Any]) -> Any:
    if api_base:
        raise LMSetupError(
            "The embedded model has no api_base",
            todo="Name the model that the server at this address offers, for example openai/<model>.",
        )
    from salon import embedded

    settings.pop("response_schema", None)
    return _make(_dspy().LM, embedded.register(), _EMBEDDED_SETTINGS | settings)


def _make(kind: Any, name: str, settings: dict[str, Any]) -> Any:
    try:
        return kind(name, **settings)
    except (_dspy().DSPyError, TypeError, ValueError) as error:
        why = redact(str(error), _secrets(settings))
        raise LMSetupError(f"{name} cannot be set up", why, "Correct the setting it names.") from None


def _secrets(settings: dict[str, Any]) -> list[str]:
    return [key for key in [settings.get("api_key")] if isinstance(key, str)]


def _parse(name: str) -> tuple[str, str]:
    """The provider, and the name as DSPy's client wants it."""
    provider, slash, rest = name.partition("/")
    if not slash or not provider or not rest or re.search(r"\s", name):
        raise LMSetupError(f"{name!r} is not a model name", "it must read provider/model", _suggestion(name))
    provider = _SPELLING.get(provider, provider)
    if provider == EMBEDDED:
        raise LMSetupError(f"{name!r} is not a model name", todo=f"There is one such model: {EMBEDDED}.")
    meant = _MEANT.get(provider.lower()) or _nearest(provider)
    if provider not in _providers() and (meant or not _known(provider)):
        todo = f"Did you mean {meant}/{rest}?" if meant else f"Known are {', '.join(sorted(_providers()))}."
        raise LMSetupError(f"{name!r} names an unknown provider", f"{provider!r} is not one", todo)
    return provider, f"{provider}/{rest}"


def _suggestion(name: str) -> str:
    word = name.strip().strip("/").lower()
    if word in _providers():
        return f"Name its model too: {word}/<model>."
    if _nearest(word) == EMBEDDED:
        return f"Did you mean {EMBEDDED}?"
    family = next((provider for pattern, provider in _FAMILIES if re.match(pattern, word)), None)
    example = f"{family or 'openai'}/{word}" if re.fullmatch(r"[\w.:\-]+", word) else "openai/<model>"
    return f"Try {example}, or {EMBEDDED}."


def _providers() -> set[str]:
    return {*_KEYS, *_SELF_HOSTED, *_SPELLING, EMBEDDED}


def _nearest(provider: str) -> str | None:
    """The provider a misspelt name stands for; far names are left to LiteLLM, which knows a hundred."""
    return next(iter(difflib.get_close_matches(provider.lower(), sorted(_providers()), 1, 0.85)), None)


def _known(provider: str) -> bool:
    from dspy.lm15 import registered_providers

    if any(provider in known.definition.spellings for known in registered_providers()):
        return True
    import litellm  # takes seconds, so it is asked only about names that are rare

    return provider in {str(getattr(known, "value", known)) for known in litellm.provider_list}


def _key(provider: str, base: str | None) -> str | None:
    """The key to hand over; none where DSPy finds it itself."""
    variables = _KEYS.get(provider, ())
    from_environment = next((os.environ[name] for name in variables if os.environ.get(name)), None)
    if from_environment:
        return from_environment
    if base:
        return _PLACEHOLDER_KEY if provider in _KEYS or provider in _SELF_HOSTED else None
    if variables:
        raise LMSetupError(
            f"{provider} needs a key",
            f"{variables[0]} is not set",
            f"Set it, pass api_key=, or give the api_base of your own server; --lm {EMBEDDED} needs no key.",
        )
    return None


def _checked_base(base: str | None) -> str | None:
    if base is None:
        return None
    what = f"api_base {redact(base)!r} is not an address"
    todo = "It reads like http://127.0.0.1:8000/v1."
    try:
        parts = urlsplit(base)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise LMSetupError(what, str(error), todo) from None
    if not usable or re.search(r"\s", base):
        raise LMSetupError(what, "it must start with http:// or https:// and name a host", todo)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise LMSetupError(what, "it must hold no user, password or query", "Pass the key as api_key=.")
    if parts.path.rstrip("/").endswith(("/completions", "/messages", "/api/chat")):
        raise LMSetupError(what, "it names one endpoint of the server", f"Leave the endpoint out. {todo}")
    return base.rstrip("/")


def _with_version(base: str, provider: str) -> str:
    return base if urlsplit(base).path else base + _VERSION_PATH.get(provider, "")


def _dspy() -> Any:
    import dspy

    return dspy


@functools.cache
def _schema_lm() -> Any:
    """``dspy.LM`` for a model that DSPy does not know, on a server that follows JSON schemas."""
    import dspy
    from dspy.clients.base_lm import LM_CLASS_STATE_KEY

    class SchemaLM(dspy.LM):
        supports_response_schema = True

        @property
        def supported_params(self) -> set[str]:
            return {*super().supported_params, "response_format"}

        def dump_state(self) -> dict[str, Any]:
            # Saved as the plain dspy.LM it is, or loading the program would need a special permission.
            state: dict[str, Any] = super().dump_state()
            return {**state, LM_CLASS_STATE_KEY: "dspy.clients.lm.LM"}

    return SchemaLM
