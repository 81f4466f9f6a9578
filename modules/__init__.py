"""The session programs and what they stand on: log, turn-taking, lineage, whiteboard, embeddings."""

from .baselines import BASELINES, Direct, SelfRefine, VerbalizedSampling, Voting
from .budget import Budget, Usage
from .chat import Chat
from .control import Control
from .debate import Debate
from .embedding import Embedder
from .lineage import Lineage
from .measures import Diversity, Measures, text_diversity
from .narrator import Narrator
from .roundtable import Roundtable
from .session import RankedIdea, Session
from .sets import SessionSet, asessions, sessions
from .tunable import Tunable
from .yes_and import YesAnd

__all__ = [
    "BASELINES",
    "Budget",
    "Chat",
    "Control",
    "Debate",
    "Direct",
    "Diversity",
    "Embedder",
    "Lineage",
    "Measures",
    "Narrator",
    "RankedIdea",
    "Roundtable",
    "SelfRefine",
    "Session",
    "SessionSet",
    "Tunable",
    "Usage",
    "VerbalizedSampling",
    "Voting",
    "YesAnd",
    "asessions",
    "sessions",
    "text_diversity",
]
