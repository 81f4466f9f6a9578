"""Every test starts with DSPy as freshly imported, no key of the user's, and no way to a model hub."""

from __future__ import annotations

import atexit
import copy
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

_CACHE = tempfile.mkdtemp(prefix="salon-tests-")
atexit.register(shutil.rmtree, _CACHE, ignore_errors=True)
# Read when dspy and the hub clients are imported, so set before anything can import them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "true"
os.environ["DSPY_CACHEDIR"] = _CACHE

import dspy  # noqa: E402
import pytest  # noqa: E402
from dspy.clients import base_lm  # noqa: E402

from salon.testing import LoopbackServer  # noqa: E402

dspy_settings: Any = import_module("dspy.dsp.utils.settings")  # the package gives the instance this name


def _forget_dspy() -> None:
    dspy_settings.main_thread_config.clear()
    dspy_settings.main_thread_config.update(copy.deepcopy(dspy_settings.DEFAULT_CONFIG))
    dspy_settings.config_owner_thread_id = dspy_settings.config_owner_async_task = None
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    base_lm.GLOBAL_HISTORY.clear()


@pytest.fixture(autouse=True)
def clean_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore DSPy's settings and cache, and hide the user's keys and salon settings."""
    for name in list(os.environ):
        if name.startswith("SALON_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    _forget_dspy()
    yield
    _forget_dspy()


@pytest.fixture
def loopback() -> Iterator[LoopbackServer]:
    """A chat server that answers at once."""
    with LoopbackServer() as server:
        yield server


@pytest.fixture
def quick_embeddings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every ``Embedder`` vectors that cost nothing, where no two texts are alike."""
    import numpy as np
    from salon.modules import Embedder

    def spread(texts: list[str]) -> Any:
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts]
        return np.stack([np.random.default_rng(seed).normal(size=64) for seed in seeds])

    monkeypatch.setattr(Embedder, "_encoder", lambda _: spread)


@pytest.fixture
def roundtable(quick_embeddings: None) -> Callable[..., Any]:
    """Make a Roundtable of so many people, of two turns and one idea each unless told otherwise."""
    from salon import Roundtable

    people = [
        {"name": "Ada", "sketch": "Ada repairs bicycles and hates waste."},
        {"name": "Bo", "sketch": "Bo nurses at night and sleeps by day."},
        {"name": "Cy", "sketch": "Cy teaches maths to adults in a village."},
    ]

    def make(count: int = 3, **settings: Any) -> Any:
        return Roundtable(**{"personas": people[:count], "turns": 2, "ideas": 1, "votes": 2, **settings})

    return make
