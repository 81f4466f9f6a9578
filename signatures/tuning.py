"""What a model is asked when instructions are tuned: a better instruction for one step of a program."""

from __future__ import annotations

import dspy

from .fields import Text

__all__ = ["ImproveInstruction", "Instruction"]


class Instruction(Text):
    """An instruction, at most 2000 characters."""

    limit = 2000


class ImproveInstruction(dspy.Signature):
    """Write a better instruction for one step of a brainstorming program.

    A language model follows the instruction in every session, on any topic, so never write about one topic, name
    or answer of the material. Keep what the step has to do and the fields it answers in. Look at what went wrong,
    at what the best answers did that others did not, and at what made answers of different sessions alike. Then
    say in plain sentences what to do, how, and what to avoid. Write the whole instruction, in at most 150 words.
    """

    step: str = dspy.InputField(desc="what the step is called, what it is given and what it answers")
    instruction: str = dspy.InputField(desc="the instruction in use")
    material: str = dspy.InputField(desc="what the step was given and what it answered, and how good the sessions were")
    request: str = dspy.InputField(desc="what to see to this time")
    better: Instruction = dspy.OutputField(desc="the new instruction, and nothing else")
