"""Tuning of session programs: numbers and prompts, for quality, diversity and cost at once.

A map, by what belongs where:

- what is measured of a program, and which differences count: ``objectives``, ``bench``, ``verify``
- one Optuna study: ``space``, ``samplers``, ``storage``, ``search``, ``study``, ``racing``, ``front``, ``trials``
- DSPy's optimizers on whole sessions: ``prompts``, ``groups``, ``metric``, ``feedback``, ``optimizers``, ``proposer``
- the stages of a compile, in one folder: ``compile``, ``compile_stages``, ``compile_checks``, ``prompt_stage``
- what came of it: ``compile_report``, ``reporting``, ``card``, ``compiled_page``, ``plots``, ``artifact``

Names are imported on first use, so that what needs one of them does not pay for all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .artifact import read_report, write_artifact
    from .bench import Bench
    from .compile import acompile
    from .compile_report import CompileReport
    from .objectives import OBJECTIVES, Objective, objectives_of
    from .prompts import tune_prompts
    from .space import space_of
    from .study import tune

_HOME = {
    "Bench": "bench",
    "CompileReport": "compile_report",
    "OBJECTIVES": "objectives",
    "Objective": "objectives",
    "acompile": "compile",
    "objectives_of": "objectives",
    "read_report": "artifact",
    "space_of": "space",
    "tune": "study",
    "tune_prompts": "prompts",
    "write_artifact": "artifact",
}

__all__ = [
    "OBJECTIVES",
    "Bench",
    "CompileReport",
    "Objective",
    "acompile",
    "objectives_of",
    "read_report",
    "space_of",
    "tune",
    "tune_prompts",
    "write_artifact",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
