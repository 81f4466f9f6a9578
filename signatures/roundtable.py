"""What the Roundtable asks its participants and its facilitator.

Inputs stand in the order of how often they change: topic and rules never, the transcript only grows, the
whiteboard changes now and then, the persona and what only it can see come last. Prompts of one cycle are
therefore the same up to the persona.
"""

from __future__ import annotations

import dspy

from .fields import (
    Action,
    BallotIds,
    Citations,
    Confidence,
    Long,
    OptionalName,
    OptionalShort,
    Passage,
    Short,
    Title,
    Want,
)

__all__ = ["CastVotes", "Facilitate", "Propose", "Speak", "Summarise", "Think", "citing", "worded_as"]

_TOPIC = "what the session is about"
_RULES = "rules of the session"
_TRANSCRIPT = "what was said in public, oldest first; each entry starts with its id"
_BOARD = "the ideas so far with their ids"
_PERSONA = "who you are"
_NOTES = "your own earlier thoughts and words meant for you alone, with their ids"
_CITING = {
    "required": "ids of the earlier entries that led you to this, e.g. C3, I1, T4; only ids that you see above",
    "optional": "ids of earlier entries, only if one really led you to this, e.g. C3; empty if none did",
}
_CITES = _CITING["required"]


class Think(dspy.Signature):
    """Think to yourself, as the persona, about what was just said. Nobody else will read it.

    React to a point that matters to you and say what is missing. Then rate how eager you are to speak next:
    0 nothing to add, 5 a useful remark, 8 something new that nobody said, 10 it must be said now. Repeating
    a point or stating what all know is at most 2.
    """

    topic: str = dspy.InputField(desc=_TOPIC)
    rules: str = dspy.InputField(desc=_RULES)
    transcript: str = dspy.InputField(desc=_TRANSCRIPT)
    whiteboard: str = dspy.InputField(desc=_BOARD)
    persona: str = dspy.InputField(desc=_PERSONA)
    notes: str = dspy.InputField(desc=_NOTES)
    thought: Passage = dspy.OutputField(desc="your thought in at most 40 words")
    cites: Citations = dspy.OutputField(desc=_CITES, default=[])
    eagerness: Confidence = dspy.OutputField(desc="how eager you are to speak, 0 to 10")
    wants: Want = dspy.OutputField(desc="comment, idea or pass: what you would do with the floor")


class Speak(dspy.Signature):
    """You have the floor. Say one thing, as the persona, that moves the talk on.

    Answer, doubt, extend or combine what others said; bring a fact or a case from your own life. Speak
    plainly, in at most 60 words, without praise, without repeating, without introducing yourself. You may
    put a question to one person by name.
    """

    topic: str = dspy.InputField(desc=_TOPIC)
    rules: str = dspy.InputField(desc=_RULES)
    transcript: str = dspy.InputField(desc=_TRANSCRIPT)
    whiteboard: str = dspy.InputField(desc=_BOARD)
    persona: str = dspy.InputField(desc=_PERSONA)
    notes: str = dspy.InputField(desc=_NOTES)
    comment: Passage = dspy.OutputField(desc="what you say, in at most 60 words")
    cites: Citations = dspy.OutputField(desc=_CITES, default=[])
    nominates: OptionalName = dspy.OutputField(desc="who should speak next, by name; empty for nobody", default="")


class Propose(dspy.Signature):
    """Put one new idea on the whiteboard that belongs to the topic.

    Start from one small moment of the persona's life where the topic could help. Then say what the idea does
    in that moment, as if you saw it work: one thing, named by what it does and not by how good it is. Write
    about the idea, not about the persona. It must differ from everything on the whiteboard.
    """

    topic: str = dspy.InputField(desc=_TOPIC)
    rules: str = dspy.InputField(desc=_RULES)
    transcript: str = dspy.InputField(desc=_TRANSCRIPT)
    whiteboard: str = dspy.InputField(desc=_BOARD)
    persona: str = dspy.InputField(desc=_PERSONA)
    notes: str = dspy.InputField(desc=_NOTES)
    moment: OptionalShort = dspy.OutputField(desc="a moment in the persona's day, in at most 12 words", default="")
    title: Title = dspy.OutputField(desc="the idea in three to eight words")
    description: Passage = dspy.OutputField(desc="what it does in that moment and how, in at most 50 words")
    cites: Citations = dspy.OutputField(desc=_CITES, default=[])


class CastVotes(dspy.Signature):
    """Vote, as the persona, for the ideas you would most want to see made real.

    Judge ideas by their worth to you and people like you, not by who proposed them.
    """

    topic: str = dspy.InputField(desc=_TOPIC)
    whiteboard: str = dspy.InputField(desc="all ideas with their ids")
    persona: str = dspy.InputField(desc=_PERSONA)
    request: str = dspy.InputField(desc="how many votes you have, and for which ideas")
    reason: OptionalShort = dspy.OutputField(desc="one sentence on what decided it", default="")
    votes: BallotIds = dspy.OutputField(desc="ids of the ideas you vote for, best first")


class Facilitate(dspy.Signature):
    """You facilitate. Your first duty is restraint: as long as the talk is alive, take no action.

    Step in only for a loss you can name: some hardly get a word (invite one of them), all agree too soon
    (challenge), the talk leaves the topic (redirect), nothing new comes any more (move_on). Never propose or
    judge an idea. Your message is one sentence.
    """

    topic: str = dspy.InputField(desc=_TOPIC)
    rules: str = dspy.InputField(desc=_RULES)
    transcript: str = dspy.InputField(desc=_TRANSCRIPT)
    whiteboard: str = dspy.InputField(desc=_BOARD)
    state: str = dspy.InputField(desc="who spoke how often, and where the session stands against its plan")
    reason: Short = dspy.OutputField(desc="what you see, in one sentence")
    action: Action = dspy.OutputField(desc="no_action, invite, redirect, challenge or move_on")
    target: OptionalName = dspy.OutputField(desc="whom you address, by name; empty for all", default="")
    message: OptionalShort = dspy.OutputField(desc="what you say; empty for no_action", default="")


class Summarise(dspy.Signature):
    """Sum up the talk for those who go on from here, in at most 120 words.

    Keep claims, doubts, open questions and needs, each with the ids it comes from in brackets, e.g. [C4].
    Add nothing of your own.
    """

    topic: str = dspy.InputField(desc=_TOPIC)
    rules: str = dspy.InputField(desc=_RULES)
    transcript: str = dspy.InputField(desc=_TRANSCRIPT)
    request: str = dspy.InputField(desc="what part to sum up")
    summary: Long = dspy.OutputField(desc="at most 120 words")


def citing(signature: type[dspy.Signature], citations: str) -> type[dspy.Signature]:
    """Return a signature that asks for citations in another way.

    Args:
        signature: One with the field ``cites``.
        citations: ``required``, ``optional``, or ``off``, which leaves the field out.
    """
    if citations == "required":
        return signature
    asked = citations != "off"
    return signature.with_updated_fields("cites", desc=_CITING[citations]) if asked else signature.delete("cites")


def worded_as(signature: type[dspy.Signature], tuned: type[dspy.Signature]) -> type[dspy.Signature]:
    """Return a signature with the wording of a tuned one, except for ``cites``.

    Args:
        signature: One that asks for citations in its own way.
        tuned: The same, asking for them in another way; its instructions and descriptions are taken over.
    """
    made = signature.with_instructions(tuned.instructions)
    for name in made.fields.keys() & tuned.fields.keys() - {"cites"}:
        made = made.with_updated_fields(name, desc=tuned.fields[name].json_schema_extra["desc"])
    return made
