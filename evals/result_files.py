"""The result of an evaluation as files: tables in CSV, and all but the single jobs in JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..modules.files import csv_table, write_file
from .result_summary import MEASURES, Spent

if TYPE_CHECKING:
    import pandas as pd

    from .results import Results

__all__ = ["CSV_NAMES", "as_json", "write_csv"]

CSV_NAMES = ("methods.csv", "queries.csv", "jobs.csv")


def write_csv(results: Results, folder: Path) -> list[Path]:
    """Write the tables of methods, queries and jobs; return their paths."""
    paths = []
    for name, content in zip(CSV_NAMES, (results.methods, results.queries, results.jobs), strict=True):
        write_file(folder / name, csv_table(list(content.columns), _cells(content)))
        paths.append(folder / name)
    return paths


def _cells(content: pd.DataFrame) -> Iterator[list[object]]:
    """Yield the rows of a table, with nothing where a number is undefined."""
    for row in content.itertuples(index=False, name=None):
        yield ["" if isinstance(cell, float) and cell != cell else cell for cell in row]


def as_json(results: Results) -> dict[str, Any]:
    """Return the result as plain JSON values."""
    about, front = results.about, set(results.front)
    names = list(about.methods)
    return {
        "benchmark": about.benchmark,
        "licence": about.licence,
        "source": dict(about.source),
        "queries": len(about.tasks),
        "runs": about.runs,
        "group": about.size,
        "threshold": about.threshold,
        "seed": about.seed,
        "judges": list(about.judges),
        "baseline": about.baseline or None,
        "left": results.left,
        "methods": [
            {
                **{name: value for name, value in vars(row).items() if name not in ("means", "spent", "each")},
                **{name: asdict(row.means[name]) for name in MEASURES},
                "front": row.method in front,
                "spent": asdict(row.spent),
                "each": _each(row.each),
            }
            for row in results.method_rows
        ],
        "by_query": [
            {
                **{name: value for name, value in vars(row).items() if name not in ("means", "spent")},
                **row.means,
                **asdict(row.spent),
            }
            for row in results.query_rows
        ],
        "wins": {a: {b: _known(results.wins.loc[a, b]) for b in names if a != b} for a in names},
        "tests": [
            {
                "measure": test.measure,
                "method": test.method,
                "baseline": test.baseline,
                "difference": asdict(test.found.difference),
                "p": test.found.p,
                "p_holm": test.p_holm,
            }
            for test in results.test_rows
        ],
        "front": list(results.front),
        "judge": asdict(results.judge_spent),
        "notes": list(results.notes),
    }


def _each(spent: Spent | None) -> dict[str, Any] | None:
    return None if spent is None else asdict(spent)


def _known(value: Any) -> float | None:
    return None if value != value else float(value)
