"""What the Debate asks its agents and its judge, and the lenses through which agents think.

The answers of peers come before an agent's own answer and its lens: the peers of several agents overlap, so
this order lengthens the part of the prompt that calls share.
"""

from __future__ import annotations

import dspy

from .fields import Long, OptionalLong, Place, Short

__all__ = ["LENSES", "ChooseAnswer", "Draft", "Revise"]

LENSES: dict[str, str] = {
    "analytical": "You think analytically: you look for structure, evidence and logic, take the task apart into its "
    "pieces, and trust what follows from something.",
    "emotional": "You think through feelings: you look for what people live through, what moves, hurts or delights "
    "them, and imagine one particular person.",
    "critical": "You think critically: you look for assumptions, contradictions and what everyone overlooks, and "
    "start where the usual answer breaks.",
    "analogical": "You think in analogies: you look for the same pattern in a far domain, nature, craft, history or "
    "play, and carry its mechanism over.",
    "practical": "You think practically: you look for what can be done with what is there, the mechanism, the steps "
    "and the constraints.",
}

_TASK = "the task, with its constraints"
_REQUEST = "the task's constraints once more, and what to do now"


class Draft(dspy.Signature):
    """Answer the task with one highly original answer that keeps every constraint of the task.

    Think in the way you are given. Skip the answers that come to everyone's mind first. Write only the answer.
    """

    task: str = dspy.InputField(desc=_TASK)
    persona: str = dspy.InputField(desc="how you think")
    request: str = dspy.InputField(desc=_REQUEST)
    answer: Long = dspy.OutputField(desc="your answer to the task, and nothing else")


class Revise(dspy.Signature):
    """Write a better answer to the task.

    First criticise the answers of others: which parts are cliches to drop, which element is worth keeping. Then
    write an improved and highly original answer in the way of thinking you are given. It must stand on its own:
    never mention other answers, a discussion or this instruction.
    """

    task: str = dspy.InputField(desc=_TASK)
    others: str = dspy.InputField(desc="answers that others gave")
    persona: str = dspy.InputField(desc="how you think")
    own: str = dspy.InputField(desc="your answer so far")
    request: str = dspy.InputField(desc=_REQUEST)
    critique: OptionalLong = dspy.OutputField(desc="what to drop and what to keep, in at most 40 words", default="")
    answer: Long = dspy.OutputField(desc="your improved answer to the task, and nothing else")


class ChooseAnswer(dspy.Signature):
    """Choose the best answer to the task: creative, coherent, and true to every constraint of the task.

    An answer that is empty, talks about answers or a discussion, or leaves the task cannot win. The order of
    the answers means nothing.
    """

    task: str = dspy.InputField(desc=_TASK)
    answers: str = dspy.InputField(desc="the answers, numbered")
    request: str = dspy.InputField(desc=_REQUEST)
    reason: Short = dspy.OutputField(desc="what decides it, in one sentence")
    choice: Place = dspy.OutputField(desc="the number of the best answer")
