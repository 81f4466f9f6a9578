"""The page of a compiled program: the verdict first, then what speaks for it, and what it was made from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ..evals import charts
from ..evals.pages import write_page
from ..evals.report_costs import price
from ..evals.scales import number
from ..evals.statistics import FEW
from ..modules.budget import Usage
from ..modules.text import excerpt
from .artifact import read_report
from .card import call_of, goal_text, intervals_note, outcome, parts_of, told, told_measured
from .compile_report import CompileReport, Goal, HeldOut, Measured, Trial
from .importance import history, importance
from .plots import marked, shown_pairs
from .program_change import PromptChange
from .word_changes import Piece, changed_words

__all__ = ["PAGE_NAME", "compiled_page", "write_compiled_page"]

PAGE_NAME = "report.html"
_UNFOLDED = 20  # rows of a table that are shown at once
_LABELLED = {"picked", "untuned", "front"}
_REACHING = {"picked", "untuned"}


@dataclass(frozen=True)
class PromptCard:
    """A prompt as it is shown: its pieces where it was changed a little, else before and after."""

    prompt: PromptChange
    pieces: list[Piece] | None


@dataclass(frozen=True)
class TrialRow:
    """A trial as it is shown."""

    trial: Trial
    marks: list[str]
    measured: list[str]
    numbers: str


def write_compiled_page(folder: str | Path, path: Path | None = None) -> Path:
    """Write the page of a compiled program; return its file.

    Args:
        folder: The compiled program.
        path: The file; by default ``report.html`` in the folder.

    Raises:
        OutputError: If there is no compiled program, or the page cannot be written.
    """
    place = path or Path(folder) / PAGE_NAME
    write_page(place, "compiled.html.j2", **compiled_page(read_report(folder), str(folder)))
    return place


def compiled_page(report: CompileReport, folder: str = "FOLDER") -> dict[str, Any]:
    """Return what the page shows."""
    program = report.program
    rows = [_row(report, trial) for trial in report.trials]
    special = [row for row in rows if _LABELLED & set(row.marks)]
    return {
        "title": f"A compiled {program.name}",
        "report": report,
        "outcome": outcome(report),
        "glance": _glance(report),
        "goals": [goal_text(goal) for goal in report.objectives],
        "names": [goal.name for goal in report.objectives],
        "held_out": [(name, held, *_held(held)) for name, held in report.held_out.items()],
        "intervals": intervals_note(report),
        "held_out_few": any(held.n < FEW for held in report.held_out.values()),
        "differences": _differences(report),
        "fronts": [_front(report, *pair) for pair in shown_pairs(report)],
        "special": special,
        "rows": rows,
        "unfolded": len(rows) <= _UNFOLDED,
        "prompts": [_prompt(prompt) for prompt in program.prompts if prompt.changed],
        "unchanged": [prompt.predictor for prompt in program.prompts if not prompt.changed],
        "numbers": [(name, program.numbers_before.get(name), value) for name, value in program.numbers.items()],
        "settings": [(name, program.settings_before.get(name), value) for name, value in program.settings.items()],
        "space": list(report.space.items()),
        "importance": _importance(report),
        "histories": [_history(report, goal) for goal in report.objectives],
        "reasons": Counter((t.state, excerpt(t.reason, 300)) for t in report.trials if t.reason).most_common(),
        "parts": parts_of(report),
        "source": [(name, value) for name, value in report.benchmark.source.items() if value not in (None, "")],
        "costs": [(name, usage, price(usage)) for name, usage in [*report.usage.items(), ("all of it", report.total)]],
        "python": "\n".join(call_of(report, folder)),
    }


def _glance(report: CompileReport) -> list[tuple[str, str]]:
    total: Usage = report.total
    return [
        (str(len(report.trials)), "trials"),
        (str(len(report.front)), "on the front"),
        (str(len(report.test)), "tasks held out"),
        (str(report.groups), "answers to a task"),
        (f"{total.calls:,}", "model calls"),
        (number(total.tokens), "tokens"),
        _cost(total),
        (f"{report.seconds:,.0f} s", "in all"),
    ]


def _cost(total: Usage) -> tuple[str, str]:
    """Return the cost as a figure, and what it counts."""
    if total.unpriced >= total.calls or (total.unpriced and not total.usd):
        return "unknown" if total.calls else "none", "cost"
    left_out = f", {total.unpriced:,} calls of unknown price left out" if total.unpriced else ""
    return f"${total.usd:.2f}", f"cost{left_out}"


def _held(held: HeldOut) -> tuple[str, str, str, str]:
    p = "–" if held.p is None else number(held.p)
    return told(held.tuned), told(held.untuned), told(held.difference), p


def _differences(report: CompileReport) -> list[Markup]:
    """Return a chart of tuned and untuned for each objective, as their scales differ."""
    drawn = []
    for goal in report.objectives:
        held = report.held_out.get(goal.name)
        if held is not None and held.tuned.value is not None:
            pairs = (("tuned", held.tuned), ("untuned", held.untuned))
            items = [charts.Bar(name, i.value, i.low, i.high) for name, i in pairs]
            drawn.append(charts.bars(goal_text(goal), items, head="program", unit=goal.unit or "mean"))
    return drawn


def _front(report: CompileReport, across: Goal, up: Goal) -> Markup:
    """Return the trials by two objectives; those that stand out have their number, two their standard error."""
    dots, missing = [], 0
    for trial, kind in marked(report):
        x, y = trial.objectives.get(across.name), trial.objectives.get(up.name)
        if x is None or y is None or x.value is None or y.value is None:
            missing += 1
            continue
        left, low = (_reach(m) if kind in _REACHING else None for m in (x, y))
        dots.append(charts.Dot(f"{kind} {trial.number}", x.value, y.value, left, low, kind, kind in _LABELLED))
    note = "Each mark is a trial, its mean over tasks; the bars of picked and untuned are one standard error."
    if missing:
        note += f" {missing} complete trials lack a value."
    title = f"{up.name} against {across.name}"
    return charts.scatter(title, dots, x=goal_text(across), y=goal_text(up), note=note)


def _reach(measured: Measured) -> tuple[float, float] | None:
    """Return one standard error to both sides."""
    if not measured.se or measured.value is None:
        return None
    return measured.value - measured.se, measured.value + measured.se


def _importance(report: CompileReport) -> list[Markup]:
    note = "Spearman's rank correlation over the complete trials, with its 95 % interval"
    drawn = []
    for name, rows in importance(report).items():
        known = {tunable: c for tunable, c in rows.items() if c.r is not None}
        if known:
            bars = [charts.Bar(tunable, c.r, c.low, c.high, f"n = {c.n}") for tunable, c in known.items()]
            counts = sorted({c.n for c in known.values()})
            trials = f"{note}; n = {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} trials."
            drawn.append(charts.bars(name, bars, head="number", unit="rho", note=trials, digits=2))
    return drawn


def _history(report: CompileReport, goal: Goal) -> Markup:
    course = history(report, goal)
    best = charts.Series("best so far", course.best, step=True, colour=0)
    each = charts.Series("each trial", course.points, planned=True, colour=7)
    return charts.lines(goal_text(goal), [best, each], x="trial", low=None, whole="x")


def _prompt(prompt: PromptChange) -> PromptCard:
    changed = prompt.before != prompt.after
    return PromptCard(prompt, changed_words(prompt.before, prompt.after) if changed else [])


def _row(report: CompileReport, trial: Trial) -> TrialRow:
    measured = [told_measured(trial.objectives.get(goal.name)) for goal in report.objectives]
    numbers = ", ".join(f"{name} {number(value)}" for name, value in trial.values.items())
    return TrialRow(trial, report.marks(trial), measured, numbers)
