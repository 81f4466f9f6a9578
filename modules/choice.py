"""Choosing one of several answers: by a judge that sees them shuffled and without names.

Answers that are empty or mostly talk about answers and discussions are kept from the judge. A choice that
names no answer is not replaced by an invented one: then the first admissible answer stands, marked as undecided.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .events import JUDGE, Consensus, Failure, Idea, Vote
from .run import Run
from .streams import stream
from .text import excerpt, neutral, restated

__all__ = ["choose_answer", "inadmissible"]

_TITLE = 70
_META = re.compile(
    r"\b(other|previous|earlier|peer|above|their|these|first|second|both)\s+(agents?|answers?|responses?|debaters?|"
    r"participants?)\b|\b(the|this|our)\s+(debate|discussion|critique|revision)\b|\bmy\s+(earlier|previous|revised|"
    r"improved)\s+answer\b|\bas an? (AI|language model)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[^.!?。！？\n]+")


def inadmissible(answer: str) -> str:
    """Return why an answer cannot win, or an empty string."""
    sentences = [s for s in _SENTENCE.findall(answer) if re.search(r"\w", s)]
    if not sentences:
        return "it is empty"
    about = sum(bool(_META.search(sentence)) for sentence in sentences)
    return "it talks about answers instead of giving one" if 2 * about >= len(sentences) else ""


async def choose_answer(run: Run, choose: Any, task: str, finals: Mapping[str, tuple[str, str]]) -> str:
    """Put the final answers up as ideas and have one chosen.

    Args:
        run: The running session.
        choose: Predictor for ``ChooseAnswer``; None lets the first admissible answer stand.
        task: The task, safe for prompts.
        finals: By author: the answer and the id of the draft it was, or an empty id.

    Returns:
        The id of the chosen idea; empty if there was no answer.
    """
    rejected = {author: why for author, (text, _) in finals.items() if (why := inadmissible(text))}
    if len(rejected) == len(finals):
        admitted = {author: pair for author, pair in finals.items() if pair[0].strip()}
    else:
        admitted = {author: pair for author, pair in finals.items() if author not in rejected}
    ideas = [
        run.entity(Idea, author, [draft] if draft else [], title=excerpt(text, _TITLE), description=text)
        for author, (text, draft) in admitted.items()
    ]
    if not ideas:
        run.emit(Consensus, idea="", order=[], rejected=rejected, decided=False, reason="there is no answer")
        return ""
    if choose is None:
        reason = "there was nothing to choose"
        run.emit(Consensus, idea=ideas[0].id, order=[], rejected=rejected, decided=False, reason=reason)
        return str(ideas[0].id)
    order = list(ideas)
    stream(run.seed, "consensus").shuffle(order)
    answer = await run.ask(
        choose,
        "choose",
        JUDGE,
        JUDGE,
        task=task,
        answers="\n\n".join(f"{n}. {neutral(idea.description)}" for n, idea in enumerate(order, 1)),
        request=restated(task, f"Choose one of the answers 1 to {len(order)}."),
    )
    shown = [idea.id for idea in order]
    trouble = answer.error
    if not trouble and not 1 <= int(answer.choice) <= len(order):
        trouble = f"the judge named answer {int(answer.choice)} of {len(order)}"
    if trouble:
        run.emit(Failure, key=f"t{run.turn:04}/choose/{JUDGE}", speaker=JUDGE, error=trouble)
        run.emit(Consensus, idea=ideas[0].id, order=shown, rejected=rejected, decided=False, reason=trouble)
        return str(ideas[0].id)
    winner = order[int(answer.choice) - 1]
    run.emit(Consensus, idea=winner.id, order=shown, rejected=rejected, decided=True, reason=str(answer.reason))
    run.entity(Vote, JUDGE, [winner.id], idea=winner.id, origin="ballot", reason=str(answer.reason))
    return str(winner.id)
