"""The card of a compiled program: what a reader should know before using it, as Markdown.

Everything comes from the `CompileReport`. Texts of people, models and data are escaped: they cannot become
headings, links, HTML or table cells.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ..evals.scales import number
from ..evals.statistics import FEW, LEVEL, Interval
from ..modules.archive import PROGRAMS
from ..modules.files import cost_line, markdown
from ..modules.text import excerpt
from .compile_report import CompileReport, Goal, HeldOut, Measured, TaskText, Trial
from .plots import PLOTS_FOLDER
from .verify import gain_level

__all__ = [
    "call_of",
    "card_markdown",
    "goal_text",
    "intervals_note",
    "kinds_of",
    "outcome",
    "parts_of",
    "told",
    "told_measured",
]

_MOST_ROWS = 40  # trials of the front that the card lists
_MOST_TASKS = 60
_LONGEST = 160


def card_markdown(report: CompileReport, folder: str = "FOLDER") -> str:
    """Return the card, with the call of the program in a folder; ``FOLDER`` stands for its own."""
    program = report.program
    lines = [f"# A compiled {markdown(program.name)}", "", markdown(report.verdict) or "No verdict.", ""]
    lines += [_what(report), ""]
    parts = (
        ("How to call it", _calling(report, folder)),
        ("Result on held-out tasks", _held_out(report)),
        ("What was changed", _changes(report)),
        ("How it was found", _search(report)),
        ("The front, and the untuned program", _front(report)),
        ("Data", _data(report)),
        ("Models and versions", _models(report)),
        ("Cost", _cost(report)),
        ("Limits", [f"- {markdown(limit)}" for limit in report.limits] or ["None were recorded."]),
    )
    for head, content in parts:
        lines += [f"## {head}", "", *content, ""]
    return "\n".join(lines)


def told(interval: Interval) -> str:
    """Return a value with its interval, for a reader."""
    if interval.value is None:
        return "–"
    if interval.low is None or interval.high is None:
        return number(interval.value)
    return f"{number(interval.value)} [{number(interval.low)}, {number(interval.high)}]"


def told_measured(measured: Measured | None) -> str:
    """Return what was measured, with its standard error, for a reader."""
    if measured is None or measured.value is None:
        return "–"
    return number(measured.value) + (f" ± {number(measured.se)}" if measured.se is not None else "")


def goal_text(objective: Goal) -> str:
    """Return an objective with its unit and direction."""
    unit = f"{objective.unit}, " if objective.unit not in ("", objective.name) else ""
    return f"{objective.name} ({unit}{'more' if objective.direction == 'maximize' else 'less'} is better)"


def call_of(report: CompileReport, folder: str = "FOLDER") -> list[str]:
    """Return the lines of Python that call the program."""
    name = report.program.name if report.program.name.isidentifier() else "Program"
    own = [f"program = {name}(...)  # your class, with the settings in program.json", f"program.load({folder!r})"]
    return [
        "import dspy, salon",
        "",
        *([f"program = salon.load({folder!r})"] if name in PROGRAMS else own),
        f"with dspy.context(lm={_lm(report)}):  # or an LM for each role: program.lms = {{...}}",
        f'    result = program({report.program.input}="...")',
        "print(result.answer)",
    ]


def intervals_note(report: CompileReport) -> str:
    """Return what the intervals of the comparison are, and by which one an objective gains."""
    several = len(report.objectives) > 1
    level = f"{100 * gain_level(max(len(report.objectives), 1)):.4g} %"
    gains = f" With {len(report.objectives)} objectives one gains by its interval at {level} (Bonferroni)."
    note = f"Means over tasks with {LEVEL:.0%} intervals, by the bootstrap; of paired differences Student's."
    tasks = max((held.n for held in report.held_out.values()), default=0)
    few = f", which cannot be below {2 / 2**tasks:.2g} with {tasks} tasks: the intervals decide"
    return f"{note}{gains if several else ''} p by sign flips{few if 1 < tasks < FEW else ''}."


def _lm(report: CompileReport) -> str:
    """Return the Python of the LM that it was tuned for."""
    name = report.models.get("participant", "")
    return (
        f"salon.lm({name!r})"
        if re.fullmatch(r"[\w./:@-]+", name) and not name.startswith("embedded/")
        else "salon.lm()"
    )


def outcome(report: CompileReport) -> str:
    """Return how the comparison on held-out tasks ended, in a few words."""
    if not report.held_out:
        return "not compared on held-out tasks"
    if report.better:
        return "the tuned program is better"
    return "the tuned program is not better" + ("" if report.program.changed else ": the untuned one is kept")


def kinds_of(report: CompileReport) -> str:
    """Return how many trials ended in which way."""
    counts = Counter(trial.state for trial in report.trials)
    return ", ".join(f"{counts[state]} {state}" for state in ("complete", "pruned", "failed") if counts[state])


def parts_of(report: CompileReport) -> list[tuple[str, list[TaskText]]]:
    """Return the tasks by what they were used for; what none was used for is left out."""
    parts = (
        ("Tuned on", report.validation),
        ("Of these, prompts were learnt from", report.train),
        ("Held out for the last comparison", report.test),
    )
    return [(name, tasks) for name, tasks in parts if tasks]


def _what(report: CompileReport) -> str:
    kind = "a tuned" if report.program.changed else "the untuned"
    return (
        f"This folder holds {kind} {markdown(report.program.name)}, a session program of salon, compiled for "
        f"{_joined(goal_text(objective) for objective in report.objectives) or 'no objective'} "
        f"on {report.groups} answer{'' if report.groups == 1 else 's'} to each task, seed {report.seed}, "
        f"started {markdown(report.started)}."
    )


def _calling(report: CompileReport, folder: str) -> list[str]:
    return [
        "```python",
        *call_of(report, folder),
        "```",
        "",
        "`salon.load` reads `program.json` alone and runs nothing from this folder. No LM and no key is in it.",
    ]


def _held_out(report: CompileReport) -> list[str]:
    if not report.held_out:
        return ["No comparison on held-out tasks was made: nothing here tells whether it is better than untuned."]
    rows = [
        [name, *map(told, (held.tuned, held.untuned, held.difference)), _p(held), str(held.n)]
        for name, held in report.held_out.items()
    ]
    lines = _table(("objective", "tuned", "untuned", "tuned - untuned", "p", "tasks"), rows)
    picked = report.trial(report.picked) if report.picked is not None else None
    values = ", ".join(f"{markdown(name)} {number(value)}" for name, value in picked.values.items()) if picked else ""
    lines += ["", f"Tuned is trial {picked.number} ({values})."] if picked else []
    lines += ["", intervals_note(report)]
    fewest = min(held.n for held in report.held_out.values())
    if fewest < FEW:
        lines += [f"{fewest} tasks are few: only a large difference would show."]
    return [*lines, "", f"By this comparison {outcome(report)}."]


def _p(held: HeldOut) -> str:
    return "–" if held.p is None else number(held.p)


def _changes(report: CompileReport) -> list[str]:
    program = report.program
    rows = [
        [name, number(program.numbers_before.get(name)), number(value)]
        for name, value in program.numbers.items()
        if program.numbers_before.get(name) != value
    ]
    lines = _table(("number", "before", "now"), rows) if rows else ["No number differs from the untuned program."]
    prompts = [prompt for prompt in program.prompts if prompt.changed]
    if not prompts:
        return [*lines, "", "No prompt differs from the untuned program."]
    lines += ["", "Prompts that differ (in full in `program.json`, side by side in the page of `salon report`):", ""]
    for prompt in prompts:
        parts = ["instructions"] if prompt.before != prompt.after else []
        parts += [f"the descriptions of {', '.join(prompt.fields)}"] if prompt.fields else []
        if prompt.demos != prompt.demos_before:
            other = " others" if len(prompt.demos) == len(prompt.demos_before) else ""
            parts += [f"demonstrations: {len(prompt.demos)}{other} instead of {len(prompt.demos_before)}"]
        lines.append(f"- {markdown(prompt.predictor)}: {markdown('; '.join(parts))}")
    return lines


def _search(report: CompileReport) -> list[str]:
    rows = [
        [name, number(d.low), number(d.high), number(d.default), _scale(d.log, d.integer)]
        for name, d in report.space.items()
    ]
    lines = [f"{markdown(report.search)}", ""] if report.search else []
    lines += _table(("number", "from", "to", "untuned", "scale"), rows) if rows else ["No number was searched."]
    lines += ["", f"{len(report.trials)} trials: {kinds_of(report) or 'none'}. Study: {markdown(report.storage)}."]
    reasons = Counter(f"{trial.state}: {trial.reason}" for trial in report.trials if trial.reason)
    told = [f"- {count} × {markdown(excerpt(why, _LONGEST))}" for why, count in reasons.most_common(10)]
    lines += ["", *told] if told else []
    lines += ["", f"Rule of choice: {markdown(report.rule)}."]
    shown = (("importance", "What each number does"),) if len(report.of_state("complete")) >= FEW else ()
    for name, about in (*shown, ("history", "Trial by trial")):
        lines += ["", f"![{about}]({PLOTS_FOLDER}/{name}.png)"]
    return lines


def _scale(log: bool, integer: bool) -> str:
    return ", ".join(["log" if log else "linear", *(["whole numbers"] if integer else [])])


def _front(report: CompileReport) -> list[str]:
    picked = report.trial(report.picked) if report.picked is not None else None
    trials = {trial.number: trial for trial in (picked, report.trial(0)) if trial is not None}
    trials |= {number: trial for number in report.front if (trial := report.trial(number)) is not None}
    if not trials:
        return ["There is none: no trial was complete."]
    shown = sorted(trials.values(), key=lambda trial: trial.number)
    names = [objective.name for objective in report.objectives]
    columns = ("trial", "", "prompts", *names, "numbers")
    lines = _table(columns, (_front_row(report, trial, names) for trial in shown[:_MOST_ROWS]))
    if len(shown) > _MOST_ROWS:
        lines.append(f"\n{len(shown) - _MOST_ROWS} more are in `compile.json`.")
    note = (
        "Means over tasks ± their standard error. All trials are in `compile.json`; each program of the front can be "
        "loaded from `front/`, in the folder with the number of its trial."
    )
    return [*lines, "", note, "", f"![The front]({PLOTS_FOLDER}/front.png)"]


def _front_row(report: CompileReport, trial: Trial, names: Sequence[str]) -> list[str]:
    values = ", ".join(f"{name} {number(value)}" for name, value in trial.values.items())
    measured = [told_measured(trial.objectives.get(name)) for name in names]
    return [str(trial.number), ", ".join(report.marks(trial)), trial.prompts, *measured, values]


def _data(report: CompileReport) -> list[str]:
    data = report.benchmark
    source = ", ".join(f"{name} {value}" for name, value in data.source.items() if value not in (None, ""))
    lines = [
        f"Benchmark {markdown(data.name)} (fingerprint {markdown(data.fingerprint)}), licence "
        f"{markdown(data.licence) or 'unknown'}, source: {markdown(source) or 'unknown'}.",
    ]
    for head, tasks in parts_of(report):
        lines += ["", f"{head}: {len(tasks)} task{'' if len(tasks) == 1 else 's'}.", "", *_tasks(tasks)]
    return lines


def _tasks(tasks: Sequence[TaskText]) -> list[str]:
    lines = [f"- {markdown(task.id)}: {markdown(excerpt(task.text, _LONGEST))}" for task in tasks[:_MOST_TASKS]]
    return [*lines, *([f"- and {len(tasks) - _MOST_TASKS} more"] if len(tasks) > _MOST_TASKS else [])]


def _models(report: CompileReport) -> list[str]:
    lines = [f"- as {markdown(role)} in sessions: {markdown(model)}" for role, model in report.models.items()]
    lines += [f"- answers rated by: {_joined(report.judges) or 'none'}"]
    lines += [f"- by the rubric {markdown(report.rubric)}"] if report.rubric else []
    packages = _joined(f"{name} {version}" for name, version in report.packages.items())
    return [*lines, "", f"Packages: {packages or 'not recorded'}."]


def _cost(report: CompileReport) -> list[str]:
    parts = ((purpose, cost_line(usage).rpartition(", ")[0]) for purpose, usage in report.usage.items())
    lines = [f"- {markdown(purpose)}: {cost}" for purpose, cost in parts]  # without seconds: they ran side by side
    return [*lines, f"- all of it: {cost_line(report.total)}"]


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table; every cell is escaped."""
    lines = ["| " + " | ".join(map(markdown, columns)) + " |", "|---" * len(columns) + "|"]
    return [*lines, *("| " + " | ".join(map(markdown, row)) + " |" for row in rows)]


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(map(markdown, texts))
