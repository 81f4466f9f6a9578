"""Judges, statistics, evaluations, studies and reports.

Names are imported on first use, so that what needs one of them does not pay for all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster import ray_engine
    from .inspect_bridge import inspect_scorer, inspect_solver
    from .jobs import JobRow
    from .judges import RubricJudge
    from .methods import Method, method_of
    from .metrics import diversity_metric, quality_metric
    from .results import Results
    from .runner import Progress, aevaluate, evaluate

_HOME = {
    "JobRow": "jobs",
    "Method": "methods",
    "Progress": "runner",
    "Results": "results",
    "RubricJudge": "judges",
    "aevaluate": "runner",
    "diversity_metric": "metrics",
    "evaluate": "runner",
    "inspect_scorer": "inspect_bridge",
    "inspect_solver": "inspect_bridge",
    "method_of": "methods",
    "quality_metric": "metrics",
    "ray_engine": "cluster",
}

__all__ = [
    "JobRow",
    "Method",
    "Progress",
    "Results",
    "RubricJudge",
    "aevaluate",
    "diversity_metric",
    "evaluate",
    "inspect_scorer",
    "inspect_solver",
    "method_of",
    "quality_metric",
    "ray_engine",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
