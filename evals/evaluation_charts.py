"""The charts of an evaluation: quality against diversity, each by itself, and who beat whom."""

from __future__ import annotations

from markupsafe import Markup

from .charts import Bar, Dot, bars, heat, scatter
from .result_format import DIGITS
from .results import Results
from .statistics import Interval

__all__ = ["trade_off", "win_matrix"]

_SINGLE = {"quality": "Quality", "vendi": "Vendi score", "gated": "Gated Vendi score"}


def _ends(found: Interval) -> tuple[float, float] | None:
    return None if found.low is None or found.high is None else (found.low, found.high)


def trade_off(results: Results) -> list[Markup]:
    """Return quality against diversity, and each of the two by itself."""
    rows, front = results.method_rows, results.front
    if not any(row.means["quality"].value is not None or row.means["vendi"].value is not None for row in rows):
        return []
    dots = [
        Dot(
            row.method,
            row.means["vendi"].value,
            row.means["quality"].value,
            _ends(row.means["vendi"]),
            _ends(row.means["quality"]),
            "best trade-offs" if row.method in front else "others",
        )
        for row in sorted(rows, key=lambda row: row.method not in front)
    ]
    trade = scatter(
        "Quality against diversity",
        dots,
        x=f"Vendi score of {results.about.size} answers",
        y="quality",
        better=("high", "high"),
        note=" Means over queries with 95 % intervals; the line joins the best trade-offs.",
    )
    single = [
        bars(
            title,
            [Bar(row.method, row.means[name].value, *(_ends(row.means[name]) or (None, None))) for row in rows],
            head="method",
            unit="mean",
            digits=DIGITS[name],
        )
        for name, title in _SINGLE.items()
        if any(row.means[name].value is not None for row in rows)
    ]
    return [trade, *single]


def win_matrix(results: Results) -> Markup | None:
    """Return the matrix of wins; None if nothing was compared."""
    if not results.comparisons.to_numpy().any():
        return None
    names = list(results.about.methods)
    matrix = [[None if cell != cell else float(cell) for cell in line] for line in results.wins.to_numpy()]
    met = [int(n) for line in results.comparisons.to_numpy() for n in line if n]
    rests = f"{min(met)} comparisons" if min(met) == max(met) else f"{min(met)} to {max(met)} comparisons"
    return heat(
        "How often the method of a row was preferred to that of a column",
        names,
        names,
        matrix,
        note=f" A tie counts half; each number rests on {rests}, judged in both orders.",
    )
