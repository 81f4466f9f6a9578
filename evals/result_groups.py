"""How different the answers of a method to one query are, group by group.

Diversity depends on how many answers it is measured over, so it is measured over groups of G runs each: group g
of a method and query holds the runs (g - 1) * G + 1 to g * G. A group that lacks an answer has no diversity, since
that of four answers cannot be held against that of five; runs that fill no group count for quality alone.

Gated diversity is the Vendi score of those answers of a whole group that reach the threshold of quality. It is
undefined where fewer than two do, or where one answer has no rating, so that it is not known whether it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..modules.diversity import vendi
from ..modules.embedding import Embedder, Vectors
from ..modules.measures import diversity_of
from .evaluation_folder import Evaluation
from .jobs import JobKey, JobRow

__all__ = ["Group", "answered", "groups_of"]


@dataclass(frozen=True)
class Group:
    """The answers of one method to one query in G runs.

    Attributes:
        method: Name of the method.
        query: Id of the query.
        group: Number of the group, from 1.
        n: Answers there are.
        vendi: Vendi score, 1 to G; None if the group is not whole, as are all values of diversity.
        distance: Mean pairwise distance (1 - cosine), 0 to 2.
        div_bleu: 100 * (1 - self-BLEU), 0 to 100.
        gated: Vendi score of the answers that reach the threshold.
        passed: Answers known to reach it.
        quality: Mean quality of the rated answers, 1 to 10; None if none is rated.
        rated: Answers with a quality.
        reason: Why there is no diversity; empty if there is.
        gated_reason: Why there is no gated diversity; empty if there is.
    """

    method: str
    query: str
    group: int
    n: int
    vendi: float | None
    distance: float | None
    div_bleu: float | None
    gated: float | None
    passed: int
    quality: float | None
    rated: int
    reason: str
    gated_reason: str


def answered(row: JobRow) -> bool:
    """Say whether a job has an answer."""
    return row.status == "ok" and bool(row.answer.strip())


def groups_of(rows: Sequence[JobRow], about: Evaluation, embedder: Embedder) -> list[Group]:
    """Return all groups, in the order methods, queries, groups; each text is embedded once.

    Raises:
        UserError: If the embedding model cannot be loaded.
    """
    size, held = about.size, {row.key: row for row in rows}
    numbers = [(m, q, g) for m in about.methods for q in about.tasks for g in range(1, about.groups + 1)]
    sets = {
        (m, q, g): [row for n in range((g - 1) * size, g * size) if (row := held.get(JobKey(m, q, n + 1)))]
        for m, q, g in numbers
    }
    whole = [[r.answer for r in part] for part in sets.values() if size > 1 and sum(map(answered, part)) == size]
    texts = list(dict.fromkeys(text for answers in whole for text in answers))
    vectors = dict(zip(texts, embedder.embed(texts), strict=True)) if texts else {}
    return [_group(place, part, about, vectors) for place, part in sets.items()]


def _group(
    place: tuple[str, str, int], part: Sequence[JobRow], about: Evaluation, vectors: Mapping[str, Vectors]
) -> Group:
    there = [row for row in part if answered(row)]
    known = [row.quality for row in there if row.quality is not None]
    passed = [row.quality is not None and row.quality >= about.threshold for row in there]
    reason = _lacking(part, len(there), about.size)
    spread, gated, gated_reason = None, None, reason
    if not reason:
        embedded = np.stack([vectors[row.answer] for row in there])
        spread = diversity_of([row.answer for row in there], embedded)
        gated_reason = _not_gated(len(known), sum(passed), about)
        gated = None if gated_reason else vendi(embedded[passed])
    return Group(
        *place,
        n=len(there),
        vendi=spread.vendi if spread else None,
        distance=spread.distance if spread else None,
        div_bleu=spread.div_bleu if spread else None,
        gated=gated,
        passed=sum(passed),
        quality=sum(known) / len(known) if known else None,
        rated=len(known),
        reason=reason,
        gated_reason=gated_reason,
    )


def _lacking(part: Sequence[JobRow], answers: int, size: int) -> str:
    """Say why a group has no diversity."""
    if size < 2:
        return "one answer alone has no diversity"
    if answers == size:
        return ""
    failed, missing = len(part) - answers, size - len(part)
    told = ", ".join([*([f"{failed} failed"] if failed else []), *([f"{missing} not run"] if missing else [])])
    return f"{answers} of {size} answers ({told})"


def _not_gated(rated: int, passed: int, about: Evaluation) -> str:
    if not rated:
        return "not rated"
    if rated < about.size:
        return f"{about.size - rated} of {about.size} answers not rated"
    return "" if passed > 1 else f"{passed} of {about.size} answers reach {about.threshold:g}"
