"""What every LM call is asked and must return: typed DSPy signatures and the field types they use."""

from .baselines import Refine, SampleAnswers, WeightedAnswer
from .debate import LENSES, ChooseAnswer, Draft, Revise
from .lineage import TellHistory
from .personas import CastExperts, CastPersonas, Persona, Seat, SketchPersona
from .roundtable import CastVotes, Facilitate, Propose, Speak, Summarise, Think
from .yes_and import Contribute, PlayPerson, RateConfidence, SumUp

__all__ = [
    "LENSES",
    "CastExperts",
    "CastPersonas",
    "CastVotes",
    "ChooseAnswer",
    "Contribute",
    "Draft",
    "Facilitate",
    "Persona",
    "PlayPerson",
    "Propose",
    "RateConfidence",
    "Refine",
    "Revise",
    "SampleAnswers",
    "Seat",
    "SketchPersona",
    "Speak",
    "SumUp",
    "Summarise",
    "TellHistory",
    "Think",
    "WeightedAnswer",
]
