"""How far an objective follows each number that was tuned, and how the best value grew from trial to trial.

Importance is Spearman's rank correlation of a tunable's values with an objective over the complete trials: its
sign tells the direction, its interval how sure that is. It is as plain as it looks: it sees what rises or falls
steadily and nothing else, it does not part numbers that were changed together, and a search that goes where the
values are good does not sample evenly. Under eight trials it is not told at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..evals.statistics import FEW, Correlation, correlation
from .compile_report import CompileReport, Goal

__all__ = ["History", "history", "importance"]


@dataclass(frozen=True)
class History:
    """An objective over the trials.

    Attributes:
        points: (number of the trial, value) of each complete trial that has a value.
        best: (number of the trial, best value so far).
    """

    points: list[tuple[int, float]]
    best: list[tuple[int, float]]


def importance(report: CompileReport) -> dict[str, dict[str, Correlation]]:
    """Return Spearman's correlation of each tunable with each objective: objective, then tunable, strongest first.

    A tunable that no trial changed, and one with fewer than eight trials, has no coefficient and the reason why.
    """
    found: dict[str, dict[str, Correlation]] = {}
    for objective in report.objectives:
        rows = {name: _correlated(report, name, objective.name) for name in report.space}
        found[objective.name] = dict(sorted(rows.items(), key=lambda row: -abs(row[1].r or 0.0)))
    return found


def _correlated(report: CompileReport, tunable: str, objective: str) -> Correlation:
    pairs = []
    for trial in report.of_state("complete"):
        measured, value = trial.value(objective), trial.values.get(tunable)
        if measured is not None and value is not None:
            pairs.append((float(value), measured))
    if len(pairs) < FEW:
        return Correlation(None, None, None, None, len(pairs), f"fewer than {FEW} trials")
    ranked = zip(*(_ranks([pair[at] for pair in pairs]) for at in (0, 1)), strict=True)
    return correlation(list(ranked))


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal ones share the mean of theirs."""
    from scipy.stats import rankdata

    return [float(rank) for rank in rankdata(values)]


def history(report: CompileReport, objective: Goal) -> History:
    """Return an objective over the complete trials, and the best of it so far."""
    points = []
    for trial in sorted(report.of_state("complete"), key=lambda trial: trial.number):
        if (value := trial.value(objective.name)) is not None:
            points.append((trial.number, value))
    best: list[tuple[int, float]] = []
    for number, value in points:
        last = best[-1][1] if best else value
        best.append((number, max(last, value) if objective.direction == "maximize" else min(last, value)))
    return History(points, best)
