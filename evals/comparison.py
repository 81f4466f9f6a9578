"""Several sessions side by side: what they were about, what came out, how it measures, what it cost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from ..modules.embedding import Embedder
from ..modules.files import cost_line
from ..modules.session import RankedIdea, Session
from . import report_charts as charts
from .report_costs import price
from .report_measures import MeasureRow, measure_rows

__all__ = ["comparison_page"]

_TOP = 5  # ideas shown of each session


@dataclass(frozen=True)
class Column:
    """A session as a column of the comparison and as a section of its page."""

    number: int
    session: Session
    measures: dict[str, MeasureRow]
    top: list[RankedIdea]
    price: str
    cost_line: str
    timeline: list[Markup]
    link: str


def comparison_page(sessions: Sequence[Session], folder: Path, embedder: Embedder | None = None) -> dict[str, Any]:
    """Return what the page of several sessions shows.

    Args:
        sessions: The sessions, in the order of their columns.
        folder: Where the page will lie, for links to the sessions' own reports.
        embedder: Embeds the ideas for the measures; by default each session's own model.
    """
    embedder = embedder or _shared(sessions)
    columns = [_column(number, session, folder, embedder) for number, session in enumerate(sessions, 1)]
    known = dict.fromkeys(key for column in columns for key in column.measures)
    topics = dict.fromkeys(session.topic for session in sessions)
    return {
        "title": next(iter(topics)) if len(topics) == 1 else f"{len(sessions)} sessions",
        "columns": columns,
        "measures": [(*_named(key, columns), [column.measures.get(key) for column in columns]) for key in known],
        "ranks": list(zip_longest(*(column.top for column in columns))),
    }


def _shared(sessions: Sequence[Session]) -> Embedder | None:
    """Return one embedder for all, where all name the same model, so that it is loaded once."""
    models = {session.header["settings"].get("embedder") for session in sessions}
    return Embedder(models.pop()) if len(models) == 1 else None


def _named(key: str, columns: Sequence[Column]) -> tuple[str, str]:
    row = next(column.measures[key] for column in columns if key in column.measures)
    return row.label, row.meaning


def _column(number: int, session: Session, folder: Path, embedder: Embedder | None) -> Column:
    rows, _ = measure_rows(session.measures(embedder))
    return Column(
        number,
        session,
        {row.key: row for row in rows},
        session.ideas[:_TOP],
        price(session.usage),
        cost_line(session.usage),
        charts.timeline(session),
        _link(session, folder),
    )


def _link(session: Session, folder: Path) -> str:
    """Return the way from the page to the session's own report, if it has one."""
    if session.folder is None or not (session.folder / "report.html").exists():
        return ""
    try:
        way = Path(os.path.relpath(session.folder.resolve() / "report.html", folder.resolve())).as_posix()
    except ValueError:  # another drive, on Windows
        return ""
    return f"./{quote(way)}"  # never read as a scheme, whatever the folder is called
