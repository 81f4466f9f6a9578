"""Every test starts with DSPy as freshly imported, no key of the user's, and no way to a model hub."""

from __future__ import annotations

import atexit
import copy
import os
import shutil
import tempfile
from collections.abc import Iterator
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
