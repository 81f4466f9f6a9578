"""What a duration study allows to say, in sentences; and its page with the figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ..modules.files import cost_line
from .chart_lines import Series, lines
from .pages import write_page
from .scales import number
from .statistics import FEW, Correlation
from .study import STUDIED, Study

__all__ = ["findings", "study_markdown", "study_page"]

_NAMES = {
    "depth": "Influence depth",
    "absorption": "Absorption",
    "distance": "Distance of ideas",
    "vendi": "Vendi score of ideas",
    "quality": "Judged quality",
}
_SURE = 0.05
_FEWEST = 3  # pairs that a correlation needs


def findings(study: Study) -> list[str]:
    """Return a sentence for each measure and way of citing, and what may be concluded about influence."""
    said = []
    for kind, found in study.correlations.items():
        for measure in STUDIED:
            if found[measure].r is not None or found[measure].n:
                said.append(f"Citations {kind}: {_sentence(_NAMES[measure], found[measure])}")
    return [*said, _on_influence(study), *_on_the_rest(study)]


def _sentence(name: str, c: Correlation) -> str:
    if c.r is None:
        return f"{name} against minutes is undefined ({c.undefined})."
    ends = f", 95 % {c.low:.2f} to {c.high:.2f}" if c.low is not None and c.high is not None else ""
    told = f"r = {c.r:+.2f}{ends}, p = {c.p:.3g}, {c.n} sessions"
    if c.p is None or c.p >= _SURE:
        return f"{name} shows no clear trend with minutes ({told})."
    trend = f"{'rises' if c.r > 0 else 'falls'} with minutes ({told})"
    if c.n < FEW:
        return f"There are signs that {name[0].lower()}{name[1:]} {trend}; but {c.n} are few."
    return f"{name} {trend}."


def _on_influence(study: Study) -> str:
    """Say how much of the trend in depth is left where citing is not demanded."""
    required, optional = (study.correlations.get(kind, {}).get("depth") for kind in ("required", "optional"))
    if required is None or optional is None:
        return (
            "Depth was not studied both with and without the demand for citations: its growth cannot be told from "
            "obedience to the prompt."
        )
    if min(required.n, optional.n) < _FEWEST:
        return "Too few sessions to compare growth of depth with and without the demand for citations."
    fewest = min(required.n, optional.n)
    return _compared(required, optional) + (f" But {fewest} sessions are few." if fewest < FEW else "")


def _compared(required: Correlation, optional: Correlation) -> str:
    match _grows(required), _grows(optional):
        case True, True:
            return (
                "Depth grows also where citing is optional, so the demand alone does not explain it; that a longer "
                "talk has more to cite still might. The audit's masking test tells whether citations are causes."
            )
        case True, False:
            return (
                "Depth grows where citing is demanded, and no growth is shown where it is optional: the growth may be "
                "made by the prompt."
            )
        case False, True:
            return "Depth grows where citing is optional, and no growth is shown where it is demanded."
    return "No growth of depth is shown, so there is nothing to explain."


def _grows(c: Correlation) -> bool:
    return c.r is not None and c.r > 0 and c.p is not None and c.p < _SURE


def _on_the_rest(study: Study) -> list[str]:
    """Tell of sessions that are not what their row says."""
    early, failed = (sum(counts) for counts in zip(*((c.early, c.failed) for c in study.cells), strict=True))
    told = [f"{early} of {len(study.rows)} sessions ended before their time and count all the same."] if early else []
    return told + ([f"{failed} of {len(study.rows)} sessions have no result and are left out."] if failed else [])


def study_markdown(study: Study) -> str:
    """Return the study as Markdown: means by duration, correlations, findings, cost."""
    lines_ = [f"{len(study.personas)} personas, seeds {', '.join(map(str, study.seeds))}.", ""]
    lines_ += [f"| citations | minutes | {' | '.join(STUDIED)} | early | failed |", "|---" * (len(STUDIED) + 4) + "|"]
    for cell in study.cells:
        means = " | ".join(str(cell.means[m]) for m in STUDIED)
        lines_.append(f"| {cell.citations} | {cell.minutes:g} | {means} | {cell.early} | {cell.failed} |")
    lines_ += ["", *(f"- {sentence}" for sentence in findings(study)), "", f"Cost: {cost_line(study.usage)}.", ""]
    return "\n".join(lines_)


def figures(study: Study) -> list[Markup]:
    """Return a chart for each measure: its mean against minutes, one line for each way of citing."""
    return [
        lines(
            f"{_NAMES[measure]} against minutes of discussion",
            [
                Series(
                    f"citations {kind}",
                    [(c.minutes, c.means[measure].value) for c in study.cells if c.citations == kind],
                )
                for kind in study.correlations
            ],
            x="minutes of discussion",
            y=_NAMES[measure].lower(),
            note=_note(study, measure),
        )
        for measure in STUDIED
        if any(cell.means[measure].value is not None for cell in study.cells)
    ]


def _note(study: Study, measure: str) -> str:
    told = []
    for kind, found in study.correlations.items():
        c = found[measure]
        told.append(
            f"{kind}: r = {c.r:+.2f}, p = {c.p:.3g}, n = {c.n}" if c.r is not None else f"{kind}: {c.undefined}"
        )
    return "Means over sessions. " + "; ".join(told) + "."


def study_page(study: Study, folder: Path) -> Path:
    """Write the study's page, ``report.html``, into a folder and return its path.

    Raises:
        OutputError: If it cannot be written.
    """
    path = folder / "report.html"
    write_page(
        path,
        "study.html.j2",
        title=f"Duration study: {study.topic}",
        sections=[
            ("findings", "Findings"),
            ("figures", "Figures"),
            ("means", "Means"),
            ("sessions", "Sessions"),
            ("settings", "Settings"),
        ],
        study=study,
        names=_NAMES,
        measures=STUDIED,
        findings=findings(study),
        figures=figures(study),
        cost=cost_line(study.usage),
        table=_table(study.rows),
    )
    return path


def _table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the sessions as cells of text, with a head."""
    names = list(rows[0])

    def cell(value: Any) -> str:
        return "–" if value is None else number(value) if isinstance(value, float) else str(value)

    return [[name.replace("_", " ") for name in names], *([cell(row[name]) for name in names] for row in rows)]
