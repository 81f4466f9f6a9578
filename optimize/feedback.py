"""What a reflecting model is told about a group of sessions: how good, why, what was alike, what failed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from ..modules.diversity import cosines
from ..modules.embedding import Embedder
from ..modules.text import excerpt, neutral
from .groups import Asked, Group
from .metric import Aim

__all__ = ["feedback", "most_alike", "shared_words"]

_QUOTED = 160  # characters of an answer
_REASON = 220  # characters of a judge's reason
_SHARED = 8  # words
_FAILURES = 3
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """about above after again against along among another around because been before being below between both
        could does doing during each every first from have having here into itself just made make makes many might
        more most much must never only other others over people same should since some something such than that
        their them then there these they thing things this those through under until upon using very what when
        where which while whole whose will with within without would your yours""",
    )
)

_CALLED = {
    "vendi": "Effectively different answers",
    "gated": "Effectively different good answers",
    "distance": "Mean distance of the answers",
    "div_bleu": "Difference of wording",
}


def feedback(group: Group, aim: Aim, embedder: Embedder, predictor: str = "") -> str:
    """Return what can be learnt from a group, in a few lines.

    Args:
        group: The group.
        aim: What makes it good.
        embedder: Compares texts.
        predictor: The step that is to be improved, which is then told what it did; empty for the whole program.
    """
    lines = [_scored(group, aim), *_reasons(group)]
    if aim.diversity:
        lines.append(_alike("The answers of sessions", group.answers, group.task.text, embedder))
    lines += _failed(group.failures)
    if predictor:
        lines += _step([call for call in group.asked if call.predictor == predictor], group, embedder)
    return "\n".join(line for line in lines if line)


def most_alike(texts: Sequence[str], embedder: Embedder) -> tuple[int, int, float]:
    """Return the indices (i < j) of the two texts with the highest cosine, and the cosine; two texts are needed."""
    matrix = np.array(cosines(embedder.embed(texts)))
    matrix[np.tril_indices(len(texts))] = -2
    i, j = np.unravel_index(int(np.argmax(matrix)), matrix.shape)
    return int(i), int(j), float(matrix[i, j])


def shared_words(a: str, b: str, besides: str) -> list[str]:
    """Return the words that two texts have in common and a third has not, in the order of the first."""
    other, left_out = set(_words(b)), set(_words(besides)) | _COMMON
    return [w for w in dict.fromkeys(_words(a)) if w in other and w not in left_out][:_SHARED]


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text.lower()) if len(word) > 3]


def _scored(group: Group, aim: Aim) -> str:
    score = group.score
    parts = [f"Score {group.value:.2f} of 1."]
    if score.rated is not None:
        parts.append(f"Judges gave {score.rated:.1f} of 10 on average.")
    if aim.diversity:
        n = len(group.answers) + len(group.failures)
        of = f" of {n}" if aim.measure in ("vendi", "gated") else ""
        parts.append(f"{_CALLED[aim.measure]}: {'none' if score.measured is None else f'{score.measured:.2f}{of}'}.")
    return " ".join(parts)


def _reasons(group: Group) -> list[str]:
    return [
        f"Session {n}: {'not rated' if rating.value is None else f'{rating.value:.1f} of 10'}"
        + "".join(f"; {excerpt(neutral(reason), _REASON)}" for reason in rating.reasons[:2]).rstrip(".")
        + "."
        for n, rating in group.ratings.items()
    ]


def _alike(what: str, texts: Mapping[int, str], task: str, embedder: Embedder) -> str:
    """Say which two texts are most alike and what they share."""
    if len(texts) < 2:
        return ""
    numbers, chosen = list(texts), list(texts.values())
    i, j, cosine = most_alike(chosen, embedder)
    quoted = " and ".join(f'"{excerpt(neutral(chosen[at]), _QUOTED)}"' for at in (i, j))
    shared = shared_words(chosen[i], chosen[j], task)
    told = f" Both say: {', '.join(shared)}." if shared else ""
    return f"{what} {numbers[i]} and {numbers[j]} are most alike (cosine {cosine:.2f}): {quoted}.{told}"


def _failed(failures: Mapping[int, str]) -> list[str]:
    return [f"Session {n} has no answer: {_sentence(why)}" for n, why in failures.items()]


def _sentence(text: str) -> str:
    return excerpt(neutral(text), _REASON).rstrip(".") + "."


def _step(calls: Sequence[Asked], group: Group, embedder: Embedder) -> list[str]:
    """Say what one step did in the sessions: what it wrote alike, and where it failed."""
    failed = [call for call in calls if call.error]
    lines = [f"This step was asked {len(calls)} times in {len(group.answers) + len(group.failures)} sessions."]
    lines += [f"It failed: {_sentence(call.error)}" for call in failed[:_FAILURES]]
    written = {call.session: _longest(call) for call in calls if _longest(call)}  # the last one of each session
    return [*lines, _alike("Its texts in sessions", written, group.task.text, embedder)]


def _longest(call: Asked) -> str:
    """Return the longest text that a call answered with."""
    return max((v for v in call.outputs.values() if isinstance(v, str)), key=len, default="")
