"""The duration study's figure for print: a panel for each measure, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from salon.errors import OutputError

from .statistics import Interval
from .study import STUDIED, Study

__all__ = ["FIGURE_NAMES", "study_figure"]

FIGURE_NAMES = ("figure.svg", "figure.png")
_STYLES = (("o", "-"), ("s", "--"), ("^", ":"))  # mark and line of each way of citing


def study_figure(study: Study, folder: Path) -> list[Path]:
    """Draw sessions as points and means with their 95 % intervals against minutes; return the files.

    Raises:
        OutputError: If they cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = [m for m in STUDIED if any(cell.means[m].value is not None for cell in study.cells)]
    figure = Figure(figsize=(3.2 * max(len(drawn), 1), 3), layout="constrained")
    FigureCanvasAgg(figure)
    for at, measure in enumerate(drawn, 1):
        _panel(figure.add_subplot(1, len(drawn), at, title=measure, xlabel="minutes of discussion"), study, measure)
    if drawn:
        figure.axes[0].legend(frameon=False, fontsize="small")
    files = [folder / name for name in FIGURE_NAMES]
    for file in files:
        try:
            figure.savefig(file, dpi=160)
        except OSError as error:
            raise OutputError(f"{file} cannot be written", error.strerror or str(error)) from error
    return files


def _panel(axes: Any, study: Study, measure: str) -> None:
    """Draw one measure: a line for each way of citing, and a grey point for each session."""
    for kind, (mark, line) in zip(study.correlations, _STYLES, strict=False):
        known = [(c.minutes, c.means[measure]) for c in study.cells if c.citations == kind]
        known = [(minutes, mean) for minutes, mean in known if mean.value is not None]
        means = [mean for _, mean in known]
        axes.errorbar(
            [minutes for minutes, _ in known],
            [mean.value for mean in means],
            _reach(means),
            label=f"citations {kind}",
            capsize=3,
            marker=mark,
            linestyle=line,
            linewidth=1.2,
        )
        rows = [row for row in study.rows if row["citations"] == kind and row[measure] is not None]
        axes.scatter([row["minutes"] for row in rows], [row[measure] for row in rows], s=9, alpha=0.5, color="gray")


def _reach(means: Sequence[Interval]) -> list[list[float]]:
    """Return how far the intervals reach below and above their means; 0 where there is none."""
    below = [mean.value - mean.low if mean.value is not None and mean.low is not None else 0.0 for mean in means]
    above = [mean.high - mean.value if mean.value is not None and mean.high is not None else 0.0 for mean in means]
    return [[max(b, 0.0) for b in below], [max(a, 0.0) for a in above]]
