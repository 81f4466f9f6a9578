"""What the baselines ask beyond what the Debate asks."""

from __future__ import annotations

import dspy
from pydantic import BaseModel

from .fields import Long, OptionalLong, Percent

__all__ = ["Refine", "SampleAnswers", "WeightedAnswer"]


class WeightedAnswer(BaseModel):
    """One of several possible answers."""

    answer: Long
    probability: Percent


class Refine(dspy.Signature):
    """Criticise your answer to the task, then write a better one.

    Name what is weak, common or against a constraint of the task. The better answer must stand on its own.
    """

    task: str = dspy.InputField(desc="the task, with its constraints")
    own: str = dspy.InputField(desc="your answer so far")
    request: str = dspy.InputField(desc="the task's constraints once more, and what to do now")
    critique: OptionalLong = dspy.OutputField(desc="what to change, in at most 40 words", default="")
    answer: Long = dspy.OutputField(desc="your better answer to the task, and nothing else")


class SampleAnswers(dspy.Signature):
    """Give several different answers to the task, each with the probability that you would give it.

    Cover the whole range of answers you could give. Each answer keeps every constraint of the task and stands
    on its own.
    """

    task: str = dspy.InputField(desc="the task, with its constraints")
    request: str = dspy.InputField(desc="how many answers, and how likely they may be")
    answers: list[WeightedAnswer] = dspy.OutputField(desc="answers with their probabilities in percent")
