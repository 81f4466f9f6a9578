"""The plots of a compiled program, for print: front, importance of parameters, history; drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

from salon.errors import OutputError

from ..modules.text import clean
from .compile_report import CompileReport, Goal, Trial
from .importance import history, importance

__all__ = ["PLOTS", "PLOTS_FOLDER", "marked", "plots", "shown_pairs"]

PLOTS_FOLDER = "plots"
PLOTS = ("front", "importance", "history")
_PAIRS = 3  # pairs of objectives that are drawn
_STYLES = {  # what stands out is drawn last, and no kind is told by its colour alone
    "other trial": {"marker": "o", "color": "#8a9099", "s": 16},
    "front": {"marker": "s", "color": "#1f5fc4", "s": 30},
    "untuned": {"marker": "D", "color": "#b3500b", "s": 44},
    "picked": {"marker": "*", "color": "#1c7a4b", "s": 120},
}


def shown_pairs(report: CompileReport) -> list[tuple[Goal, Goal]]:
    """Return the pairs of objectives that a front is drawn for: the first three."""
    return list(combinations(report.objectives, 2))[:_PAIRS]


def marked(report: CompileReport) -> list[tuple[Trial, str]]:
    """Return the complete trials with what each is: picked, untuned, front or other trial; what stands out last."""
    front = set(report.front)

    def kind(trial: Trial) -> str:
        if trial.number == report.picked:
            return "picked"
        if trial.number == 0:
            return "untuned"
        return "front" if trial.number in front else "other trial"

    order = list(_STYLES)
    return sorted(((trial, kind(trial)) for trial in report.of_state("complete")), key=lambda p: order.index(p[1]))


def plots(report: CompileReport, folder: str | Path) -> list[Path]:
    """Draw the plots of a report into the folder ``plots``; return the files.

    Raises:
        OutputError: If they cannot be written.
    """
    import matplotlib as mpl

    place = Path(folder) / PLOTS_FOLDER
    drawings: dict[str, Callable[[Any, CompileReport], None]] = {
        "front": _front,
        "importance": _importance,
        "history": _history,
    }
    files = []
    with mpl.rc_context({"text.parse_math": False, "svg.hashsalt": "salon", "axes.unicode_minus": False}):
        for name in PLOTS:
            figure = _figure()
            drawings[name](figure, report)
            if not figure.axes:
                _say(figure, "No data: no trial was complete.")
            files += _save(figure, place, name)
    return files


def _figure() -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, place: Path, name: str) -> list[Path]:
    files = [place / f"{name}.svg", place / f"{name}.png"]
    try:
        place.mkdir(parents=True, exist_ok=True)
        figure.savefig(files[0], metadata={"Date": None})
        figure.savefig(files[1], dpi=160)
    except OSError as error:
        raise OutputError(f"{place / name} cannot be drawn", error.strerror or str(error)) from error
    return files


def _say(figure: Any, text: str) -> None:
    """Let a figure say why it shows nothing."""
    figure.add_subplot().set_axis_off()
    figure.text(0.5, 0.5, text, ha="center", va="center", color="gray")


def _label(objective: Goal) -> str:
    arrow = "more is better" if objective.direction == "maximize" else "less is better"
    unit = f", {clean(objective.unit)}" if objective.unit else ""
    return f"{clean(objective.name)[:40]}{unit[:30]} ({arrow})"


def _front(figure: Any, report: CompileReport) -> None:
    """Draw each pair of objectives: trials with the standard error of those that stand out."""
    pairs = shown_pairs(report)
    known = marked(report)
    if not known or not pairs:
        if known:
            _say(figure, "One objective has no front: see the history.")
        return
    figure.set_size_inches(4.6 * len(pairs), 3.8)
    for at, (across, up) in enumerate(pairs, 1):
        axes = figure.add_subplot(1, len(pairs), at, xlabel=_label(across), ylabel=_label(up))
        for kind, style in _STYLES.items():
            drawn = [trial for trial, own in known if own == kind and _point(trial, across, up) is not None]
            points = [p for trial in drawn if (p := _point(trial, across, up)) is not None]
            if not points:
                continue
            x, y, x_error, y_error = zip(*points, strict=True)
            axes.scatter(x, y, label=kind, zorder=3, **style)
            if kind != "other trial":
                axes.errorbar(x, y, y_error, x_error, fmt="none", ecolor=style["color"], elinewidth=0.9, alpha=0.7)
            for trial, px, py in zip(drawn, x, y, strict=True):
                if kind != "other trial":
                    axes.annotate(str(trial.number), (px, py), (5, 5), textcoords="offset points", fontsize="x-small")
        if axes.collections:
            axes.legend(frameon=False, fontsize="x-small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
        axes.grid(visible=True, linewidth=0.4, alpha=0.5)


def _point(trial: Trial, across: Goal, up: Goal) -> tuple[float, float, float, float] | None:
    x, y = trial.objectives.get(across.name), trial.objectives.get(up.name)
    if x is None or y is None or x.value is None or y.value is None:
        return None
    return x.value, y.value, x.se or 0.0, y.se or 0.0


def _importance(figure: Any, report: CompileReport) -> None:
    """Draw the rank correlations of each objective as bars with their intervals."""
    found = {name: {k: c for k, c in rows.items() if c.r is not None} for name, rows in importance(report).items()}
    found = {name: rows for name, rows in found.items() if rows}
    if not found:
        _say(figure, "Too few trials, or no number was varied.")
        return
    figure.set_size_inches(4.0 * len(found), 1.2 + 0.28 * max(map(len, found.values())))
    for at, (objective, rows) in enumerate(found.items(), 1):
        axes = figure.add_subplot(
            1, len(found), at, title=clean(objective)[:40], xlabel="Spearman's rho, 95 % interval", xlim=(-1, 1)
        )
        names = list(rows)[::-1]
        values = [rows[name].r or 0.0 for name in names]
        ends = [(rows[name].low, rows[name].high) for name in names]
        below = [0.0 if low is None else max(0.0, v - low) for v, (low, _) in zip(values, ends, strict=True)]
        above = [0.0 if high is None else max(0.0, high - v) for v, (_, high) in zip(values, ends, strict=True)]
        axes.barh(range(len(names)), values, xerr=[below, above], color="#1f5fc4", alpha=0.8, capsize=2, height=0.6)
        counts = [f"{clean(name)[:30]} (n={rows[name].n})" for name in names]
        axes.set_yticks(range(len(names)), counts, fontsize="small")
        axes.axvline(0, color="black", linewidth=0.8)


def _history(figure: Any, report: CompileReport) -> None:
    """Draw each objective over the trials, with the best so far."""
    courses = [(objective, history(report, objective)) for objective in report.objectives]
    courses = [(objective, course) for objective, course in courses if course.points]
    if courses:
        figure.set_size_inches(4.2 * len(courses), 3.4)
    for at, (objective, course) in enumerate(courses, 1):
        axes = figure.add_subplot(1, len(courses), at, xlabel="trial", ylabel=_label(objective))
        axes.scatter(*zip(*course.points, strict=True), s=14, color="#8a9099", label="trial")
        axes.step(*zip(*course.best, strict=True), where="post", color="#1f5fc4", label="best so far")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(frameon=False, fontsize="x-small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        axes.grid(visible=True, linewidth=0.4, alpha=0.5)
