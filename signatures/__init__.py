"""What every LM call is asked and must return: typed DSPy signatures and the field types they use."""

from .personas import CastPersonas, Persona, Seat, SketchPersona
from .roundtable import CastVotes, Facilitate, Propose, Speak, Summarise, Think

__all__ = [
    "CastPersonas",
    "CastVotes",
    "Facilitate",
    "Persona",
    "Propose",
    "Seat",
    "SketchPersona",
    "Speak",
    "Summarise",
    "Think",
]
