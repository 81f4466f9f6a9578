"""What judges are asked: how good an idea is, and whether a text really uses another one.

A judge gives its reason first, so that the verdict follows from it. Judges see no names of authors or models.
"""

from __future__ import annotations

import dspy

from .fields import Choice, Rating, Short

__all__ = ["JudgeUse", "Judgement", "RateIdea"]


class Judgement(Choice):
    """A plain yes or no."""

    options = ("yes", "no")


class RateIdea(dspy.Signature):
    """Rate an idea for a topic as a strict critic who has seen thousands.

    1: wrong or empty. 3: what anybody says at once. 5: sound and ordinary. 7: better than most, with a point of
    its own. 9: rare, you would tell others. 10: once in a year. Most ideas are between 3 and 6. Rate each
    dimension for itself.
    """

    topic: str = dspy.InputField(desc="what the idea is for")
    idea: str = dspy.InputField(desc="the idea")
    reason: Short = dspy.OutputField(desc="its main strength and its main weakness, in at most 30 words")
    relevance: Rating = dspy.OutputField(desc="how well it answers the topic, 1 to 10")
    originality: Rating = dspy.OutputField(desc="how far it is from what comes to everybody's mind, 1 to 10")
    feasibility: Rating = dspy.OutputField(desc="how likely it could be made to work, 1 to 10")
    clarity: Rating = dspy.OutputField(desc="how clear it is what would be done, 1 to 10")


class JudgeUse(dspy.Signature):
    """Say whether the later text really uses the earlier one.

    It does if it takes up, answers, doubts or develops something specific that the earlier text says and that
    the topic alone would not bring about. The same topic, the same mood or a common word is no use.
    """

    topic: str = dspy.InputField(desc="what both talk about")
    earlier: str = dspy.InputField(desc="the earlier text")
    later: str = dspy.InputField(desc="the later text")
    reason: Short = dspy.OutputField(desc="what specific content is taken up, or that none is, in at most 20 words")
    used: Judgement = dspy.OutputField(desc="yes or no")
