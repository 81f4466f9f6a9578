"""The answers of an evaluation by their quality, to be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .evaluation_folder import Evaluation
from .jobs import JobRow
from .result_groups import answered

__all__ = ["Judged", "ranked"]


@dataclass(frozen=True)
class Judged:
    """An answer with what the judges said of it.

    Attributes:
        score: Its quality, 1 to 10.
        method: Name of the method.
        query: Id of the query.
        task: Its text.
        run: Number of the run.
        answer: The answer.
        ratings: (judge, value, reason) of each rating that has a value.
    """

    score: float
    method: str
    query: str
    task: str
    run: int
    answer: str
    ratings: list[tuple[str, float, str]]

    @property
    def reason(self) -> str:
        """What the judges gave as reasons, one after the other."""
        return " ".join(reason for _, _, reason in self.ratings if reason)


def ranked(about: Evaluation, rows: Sequence[JobRow], best: bool = True) -> list[Judged]:
    """Return the answers that have a quality, best or worst first; equal ones in the order of the rows."""
    known = [(row.quality, row) for row in rows if answered(row) and row.quality is not None]
    known.sort(key=lambda item: -item[0] if best else item[0])
    return [
        Judged(
            score=quality,
            method=row.method,
            query=row.query,
            task=about.tasks[row.query],
            run=row.run,
            answer=row.answer,
            ratings=[(r["judge"], r["value"], r["reason"]) for r in row.ratings if r["value"] is not None],
        )
        for quality, row in known
    ]
