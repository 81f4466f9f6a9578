"""The session programs and what they stand on: log, turn-taking, lineage, whiteboard, embeddings."""

from .budget import Budget, Usage
from .embedding import Embedder
from .lineage import Lineage
from .roundtable import Roundtable
from .run import Control
from .session import Measures, RankedIdea, Session
from .tunable import Tunable

__all__ = [
    "Budget",
    "Control",
    "Embedder",
    "Lineage",
    "Measures",
    "RankedIdea",
    "Roundtable",
    "Session",
    "Tunable",
    "Usage",
]
