"""What YesAnd asks its experts, its Sage, and a simulated person."""

from __future__ import annotations

import dspy

from .fields import (
    Citations,
    Confidence,
    Long,
    OptionalName,
    OptionalPassage,
    OptionalShort,
    Passage,
    Short,
    Title,
)

__all__ = ["Contribute", "PlayPerson", "RateConfidence", "SumUp"]

_PROBLEM = "what the person wants to think about"
_TALK = "the conversation so far, oldest first; each entry starts with its id"
_EXPERT = "who you are"
_CITES = "ids of the entries you build on, e.g. U1, C3"


class RateConfidence(dspy.Signature):
    """Rate how sure you are, as this expert, that you can add something to what was said last.

    Mind the topic and what the person is after. 0: outside your field. 1 or 2: you would state what all know or
    repeat what was said. 5: a useful detail. 8: a new angle that changes the picture and that only you bring.
    10: the talk goes wrong without it. Most of the time an expert has little to add.
    """

    problem: str = dspy.InputField(desc=_PROBLEM)
    conversation: str = dspy.InputField(desc=_TALK)
    persona: str = dspy.InputField(desc=_EXPERT)
    would_add: Short = dspy.OutputField(desc="what you would add, in at most 15 words")
    confidence: Confidence = dspy.OutputField(desc="0 to 10")


class Contribute(dspy.Signature):
    """You have the floor. Say yes to what is there, and add one thing as this expert, in at most 70 words.

    Build on the words of the person and of the others; never lecture and never repeat. You may ask the person
    one question that you need answered, or hand over to another expert by name. If you were handed the floor
    and have nothing to add, leave the text empty.
    """

    problem: str = dspy.InputField(desc=_PROBLEM)
    conversation: str = dspy.InputField(desc=_TALK)
    persona: str = dspy.InputField(desc=_EXPERT)
    request: str = dspy.InputField(desc="how you came by the floor, and what you meant to add")
    text: OptionalPassage = dspy.OutputField(desc="what you say, in at most 70 words; empty to decline", default="")
    cites: Citations = dspy.OutputField(desc=_CITES, default=[])
    question: OptionalShort = dspy.OutputField(desc="a question to the person; empty for none", default="")
    nominates: OptionalName = dspy.OutputField(desc="an expert to speak next, by name; empty for nobody", default="")


class SumUp(dspy.Signature):
    """You are the Sage. Sum up where the conversation stands as the seed of an approach.

    A seed names the direction, what it rests on and what is still open; it is no full solution. Use what the
    person and the experts said, with the ids of the entries that carry it. At most 90 words.
    """

    problem: str = dspy.InputField(desc=_PROBLEM)
    conversation: str = dspy.InputField(desc=_TALK)
    request: str = dspy.InputField(desc="why you were called")
    title: Title = dspy.OutputField(desc="the seed in three to eight words")
    seed: Long = dspy.OutputField(desc="at most 90 words")
    cites: Citations = dspy.OutputField(desc=_CITES, default=[])
    open_question: OptionalShort = dspy.OutputField(desc="what to find out next", default="")


class PlayPerson(dspy.Signature):
    """Play the person who brought the problem, from the brief, in a chat with experts.

    Answer what you were asked, say what appeals to you and what does not, and add a thought of your own. Write
    one or two short sentences, as a person types.
    """

    problem: str = dspy.InputField(desc=_PROBLEM)
    conversation: str = dspy.InputField(desc=_TALK)
    persona: str = dspy.InputField(desc="the brief: who the person is and what it wants")
    message: Passage = dspy.OutputField(desc="the person's next message")
