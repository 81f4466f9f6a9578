"""salon: brainstorming with AI that can be called, compiled and measured.

Names are imported on first use, so that ``import salon`` costs nothing of dspy or torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from salon.errors import (
    BudgetSpent,
    CallFailure,
    EmbeddedModelError,
    LMSetupError,
    LogError,
    OutputError,
    PersonaError,
    RunFailure,
    SalonError,
    UserError,
)

if TYPE_CHECKING:
    from salon.data.benchmarks import load_benchmark
    from salon.data.personas import load_personas
    from salon.models import lm
    from salon.modules import (
        BASELINES,
        Budget,
        Chat,
        Control,
        Debate,
        Direct,
        Diversity,
        Embedder,
        Lineage,
        Measures,
        Narrator,
        RankedIdea,
        Roundtable,
        SelfRefine,
        Session,
        SessionSet,
        Tunable,
        Usage,
        VerbalizedSampling,
        Voting,
        YesAnd,
        asessions,
        sessions,
        text_diversity,
    )
    from salon.modules.archive import load, replay, resume
    from salon.optimize.compile import acompile, compile
    from salon.signatures import Persona

_HOME = {
    "acompile": "salon.optimize.compile",
    "compile": "salon.optimize.compile",
    "Usage": "salon.modules",
    "RankedIdea": "salon.modules",
    "Measures": "salon.modules",
    "Narrator": "salon.modules",
    "Lineage": "salon.modules",
    "Voting": "salon.modules",
    "VerbalizedSampling": "salon.modules",
    "SelfRefine": "salon.modules",
    "Direct": "salon.modules",
    "Diversity": "salon.modules",
    "text_diversity": "salon.modules",
    "sessions": "salon.modules",
    "asessions": "salon.modules",
    "YesAnd": "salon.modules",
    "SessionSet": "salon.modules",
    "Debate": "salon.modules",
    "Chat": "salon.modules",
    "BASELINES": "salon.modules",
    "Budget": "salon.modules",
    "Control": "salon.modules",
    "Embedder": "salon.modules",
    "Persona": "salon.signatures",
    "Roundtable": "salon.modules",
    "Session": "salon.modules",
    "Tunable": "salon.modules",
    "lm": "salon.models",
    "load": "salon.modules.archive",
    "load_benchmark": "salon.data.benchmarks",
    "load_personas": "salon.data.personas",
    "replay": "salon.modules.archive",
    "resume": "salon.modules.archive",
}
_FOLDERS = ("data", "evals", "modules", "optimize", "signatures")

__all__ = [
    "BASELINES",
    "Budget",
    "BudgetSpent",
    "CallFailure",
    "Chat",
    "Control",
    "Debate",
    "Direct",
    "Diversity",
    "EmbeddedModelError",
    "Embedder",
    "LMSetupError",
    "Lineage",
    "LogError",
    "Measures",
    "Narrator",
    "OutputError",
    "Persona",
    "PersonaError",
    "RankedIdea",
    "Roundtable",
    "RunFailure",
    "SalonError",
    "SelfRefine",
    "Session",
    "SessionSet",
    "Tunable",
    "Usage",
    "UserError",
    "VerbalizedSampling",
    "Voting",
    "YesAnd",
    "acompile",
    "asessions",
    "compile",
    "lm",
    "load",
    "load_benchmark",
    "load_personas",
    "replay",
    "resume",
    "sessions",
    "text_diversity",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _FOLDERS:
        return import_module(f"salon.{name}")
    raise AttributeError(f"module 'salon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
