"""What judges are asked: how good an answer is, which of two is better, how alike two are, and whether a text is used.

A judge gives its reason first, so that the verdict follows from it. Judges see no names of authors or models.
What all calls about a task share comes first: the task, then the instructions, then the answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import dspy

from .fields import Choice, Rating, Short

__all__ = ["ComparePair", "GradeLikeness", "JudgeUse", "Judgement", "Likeness", "Side", "rating_fields", "rating_of"]

_REQUEST = "the task that was to be answered"
_TAKEN = {"logprobs"}  # what DSPy adds to the fields of an answer


class Judgement(Choice):
    """A plain yes or no."""

    options = ("yes", "no")


class Side(Choice):
    """One of two answers, by where it stands."""

    options = ("first", "second")


class Likeness(Choice):
    """How alike two ideas are, from A (not at all) to D (the same)."""

    options = ("A", "B", "C", "D")


class _Rate(dspy.Signature):
    """Rate an answer to a task as a strict critic who has seen thousands.

    1: wrong or empty. 3: what anybody says at once. 5: sound and ordinary. 7: better than most, with a point of
    its own. 9: rare, you would tell others. 10: once in a year. Most answers are between 3 and 6. Rate each
    dimension for itself.
    """

    request: str = dspy.InputField(desc=_REQUEST)
    answer: str = dspy.InputField(desc="the answer")
    reason: Short = dspy.OutputField(desc="its main strength and its main weakness, in at most 30 words")


def rating_fields(names: Iterable[str]) -> dict[str, str]:
    """Return the output field of each dimension, by the dimension's name: its letters in lower case, ``_`` between."""
    fields: dict[str, str] = {}
    for name in names:
        field = re.sub(r"\W+", "_", name.casefold()).strip("_")
        if not field.isidentifier() or hasattr(_Rate, field) or field in _TAKEN | _Rate.model_fields.keys():
            field = f"rating_{field}"
        while field in fields.values():
            field += "_"
        fields[name] = field
    return fields


def rating_of(dimensions: Iterable[tuple[str, str]]) -> Any:
    """Return the signature that rates an answer to a task on dimensions.

    Args:
        dimensions: Name and description of each.

    Returns:
        A signature with the inputs ``request`` and ``answer`` and the outputs ``reason`` and, in the order given, a
        rating for each dimension (see ``rating_fields``).
    """
    told = dict(dimensions)
    signature: Any = _Rate
    for name, field in rating_fields(told).items():
        output = dspy.OutputField(desc=f"{name}: {told[name]}, 1 to 10")
        signature = signature.append(field, output, type_=Rating)
    return signature


class ComparePair(dspy.Signature):
    """Say which of two answers to a task is the better one, as a strict critic who has seen thousands.

    Better is what is more original and would work, keeps to all of the task, and is said more clearly. Length,
    tone and the order of the answers mean nothing.
    """

    request: str = dspy.InputField(desc=_REQUEST)
    answers: str = dspy.InputField(desc="the two answers")
    reason: Short = dspy.OutputField(desc="what decides it, in at most 30 words")
    better: Side = dspy.OutputField(desc="first or second")


class GradeLikeness(dspy.Signature):
    """Grade how alike two ideas for the same task are.

    A: they address different problems. B: they address similar problems by different ideas. C: they are similar
    ideas. D: they are the same idea, in other words perhaps.
    """

    request: str = dspy.InputField(desc=_REQUEST)
    ideas: str = dspy.InputField(desc="the two ideas")
    reason: Short = dspy.OutputField(desc="what they have in common and what sets them apart, in at most 30 words")
    grade: Likeness = dspy.OutputField(desc="A, B, C or D")


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
