"""Inventing the people of a session: first the cast in one call, then each sketch on its own."""

from __future__ import annotations

from typing import Annotated

import dspy
from pydantic import BaseModel, ConfigDict, StringConstraints

from .fields import Long, Name, OptionalShort

__all__ = ["CastExperts", "CastPersonas", "Persona", "Seat", "SketchPersona"]


Filled = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Persona(BaseModel):
    """A participant, as invented or as read from a pool.

    Attributes:
        name: What the others call it; need not be unique.
        sketch: Who it is, in a paragraph.
        role: Its role in a few words; may be empty.
        extra: Other columns of the pool, kept as they were.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Filled
    sketch: Filled
    role: Annotated[str, StringConstraints(strip_whitespace=True)] = ""
    extra: dict[str, str] = {}


class Seat(BaseModel):
    """A person in one line."""

    name: Name
    role: OptionalShort


class CastPersonas(dspy.Signature):
    """Cast the people for a brainstorming session on the topic.

    Pick people who would disagree: differ in age, work, income, place, temper and in what they want from
    the topic; include someone who doubts it. Each gets a plausible full name, all different, and a role
    of at most ten words.
    """

    topic: str = dspy.InputField(desc="what the session is about")
    request: str = dspy.InputField(desc="how many people are needed")
    people: list[Seat] = dspy.OutputField(desc="the cast")


class SketchPersona(dspy.Signature):
    """Write the sketch of one person of the cast, in 60 to 80 words, in the third person.

    Say what this person does all day, one thing that happened to them which bears on the topic, what they
    want, what they fear, and how they talk. Be concrete and unlike the rest of the cast. Propose nothing.
    """

    topic: str = dspy.InputField(desc="what the session is about")
    cast: str = dspy.InputField(desc="names and roles of everyone in the session")
    persona: str = dspy.InputField(desc="whom to sketch")
    sketch: Long = dspy.OutputField(desc="60 to 80 words")


class CastExperts(dspy.Signature):
    """Cast the experts for a conversation with a person about the problem.

    Pick fields that touch the problem from sides that seldom meet, one of them far away. Each gets a plausible
    full name, all different, and a role of at most six words that names the field.
    """

    topic: str = dspy.InputField(desc="the person's problem")
    request: str = dspy.InputField(desc="how many experts are needed")
    people: list[Seat] = dspy.OutputField(desc="the cast")
