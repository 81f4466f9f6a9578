"""What a reader of an evaluation must know: what is missing, what rests on little, what numbers cannot tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..modules.text import excerpt
from .result_format import count
from .result_groups import answered
from .statistics import FEW

if TYPE_CHECKING:
    from .results import Results

__all__ = ["notes"]

_REASONS = 5  # reasons of failures that are told


def notes(results: Results) -> list[str]:
    """Return in sentences what is missing, what rests on little, and what the numbers cannot tell."""
    return [*_gaps(results), *_failures(results), *_judging(results), *_limits(results)]


def _gaps(results: Results) -> Iterator[str]:
    about, size = results.about, results.about.size
    expected = about.runs * len(about.tasks) * len(about.methods)
    if results.left:
        yield f"Jobs were left undone: {results.left}."
    if missing := expected - len(results.rows):
        yield f"The evaluation is not finished: {missing:,} of {count(expected, 'job')} not done."
    if results.strange:
        yield (
            f"{count(results.strange, 'line')} left out, on methods, queries or runs that the evaluation does not name."
        )
    if size < 2:
        yield "Diversity is undefined: a group of one answer has none."
    elif not about.groups:
        yield f"Diversity is undefined: a group takes {size} runs, and there are {about.runs}."
    elif about.leftover:
        yield (
            f"{count(about.leftover, 'run')} of each method and query fill no group of {size} and count for quality "
            "alone."
        )
    lost = sum(bool(group.reason) for group in results.group_rows) if size > 1 else 0
    if lost:
        yield (
            f"{lost:,} of {count(len(results.group_rows), 'group')} lack answers and have no diversity: that of fewer "
            "answers could not be compared."
        )
    ungated = sum(bool(g.gated_reason) and not g.reason for g in results.group_rows) if about.judges else 0
    if ungated:
        yield (
            f"Gated diversity is undefined in {ungated:,} of {count(len(results.group_rows), 'group')} in which fewer "
            f"than two answers reach {about.threshold:g} or some are not rated."
        )


def _failures(results: Results) -> Iterator[str]:
    failed = [row for row in results.rows if not answered(row)]
    if failed:
        by_method = Counter(row.method for row in failed)
        told = ", ".join(f"{method} {n}" for method, n in by_method.items())
        yield f"{count(len(failed), 'job')} failed ({told}); no quality is put in their place."
        reasons = Counter(excerpt(row.reason or "no reason is known", 120) for row in failed)
        for reason, n in reasons.most_common(_REASONS):
            yield f"Failed {n}x: {reason}"
        if len(reasons) > _REASONS:
            yield f"And {len(reasons) - _REASONS} other reasons, in jobs.csv."
    errors = [r for row in results.rows for r in row.ratings if r["error"]]
    if errors:
        total = sum(len(row.ratings) for row in results.rows)
        yield f"{len(errors):,} of {count(total, 'rating')} failed, most often: {_commonest(errors)}"
    undecided = [pair for pair in results.pair_lines if pair["score"] is None]
    if undecided:
        yield f"{len(undecided):,} of {count(len(results.pair_lines), 'comparison')} failed and count for nothing."


def _commonest(errors: Sequence[dict[str, Any]]) -> str:
    return Counter(excerpt(str(r["error"]), 120) for r in errors).most_common(1)[0][0]


def _judging(results: Results) -> Iterator[str]:
    about = results.about
    if not about.judges:
        yield "Answers were not rated, so nothing is known of their quality."
        return
    models = about.told.get("models") or {}
    own = [m for m, roles in models.items() if {str(lm.get("model")) for lm in roles.values()} & set(about.judges)]
    if own and len(about.judges) == 1:
        yield f"The judge is also an author of {', '.join(own)}; models tend to prefer what they wrote themselves."
    elif own:
        yield (
            f"Some judges are authors of {', '.join(own)}; an answer is rated by others where there are any, but "
            "comparisons of methods may be judged by an author."
        )


def _limits(results: Results) -> Iterator[str]:
    queries = len(results.about.tasks)
    if queries < 2:
        yield "All rests on one query: there are no intervals and no tests, and nothing can be said of other queries."
    elif queries < FEW:
        yield f"Intervals and tests rest on {queries} queries, which are few: take differences as signs, not findings."
    if results.about.judges:
        yield "Judged quality compares methods under one judge; as a level it means little and should not be quoted."
