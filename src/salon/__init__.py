"""salon: brainstorming with AI that can be called, compiled and measured.

Names are imported on first use, so that ``import salon`` costs nothing of dspy or torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from salon.errors import SalonError

if TYPE_CHECKING:
    from salon.lm import lm

_HOME = {
    "lm": "salon.lm",
}

__all__ = ["SalonError", *sorted(_HOME)]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'salon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
