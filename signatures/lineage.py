"""What is asked of a narrator: the history of an idea, told from its citations."""

from __future__ import annotations

import dspy

from .fields import Long

__all__ = ["TellHistory"]


class TellHistory(dspy.Signature):
    """Tell how an idea came about, in at most 120 words, for someone who was not there.

    The path lists what led to the idea, oldest first, and the idea itself last. Follow it in its order: who
    brought what, and how the next one used it. Put the id of each entry you speak of behind it in brackets, as
    in (C4). Stay with what the entries say; name no id and no person that the path does not have.
    """

    topic: str = dspy.InputField(desc="what the session was about")
    path: str = dspy.InputField(desc="one entry a line: number, id, author, kind and what was said")
    request: str = dspy.InputField(desc="whose history to tell")
    history: Long = dspy.OutputField(desc="the history as prose, with ids in brackets")
