"""The files a session leaves behind: ``session.json``, ``ideas.md`` and ``ideas.csv``.

Texts of people and models are data: Markdown and HTML in them are escaped, and CSV cells that a
spreadsheet would take for a formula are quoted with an apostrophe.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from salon.errors import OutputError

from .budget import Usage
from .document import document_of
from .events import Distinctness, Phase, Round
from .session import Session
from .story import story
from .text import clean

__all__ = [
    "RESULT_NAMES",
    "cost_line",
    "csv_table",
    "ideas_csv",
    "ideas_markdown",
    "markdown",
    "safe_cell",
    "session_json",
    "write_file",
    "write_results",
]

RESULT_NAMES = ("session.json", "ideas.md", "ideas.csv")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~])")
_BULLET = re.compile(r"^([-+=])")
_FORMULA = tuple("=+-@＝＋－＠")
_NUMBER = re.compile(r"^(\d+)([.)])(?=\s|$)")


def write_results(session: Session, folder: Path) -> None:
    """Write the three result files into the session's folder.

    Raises:
        OutputError: If a file cannot be written.
    """
    contents = (session_json(session), ideas_markdown(session), ideas_csv(session))
    for name, content in zip(RESULT_NAMES, contents, strict=True):
        write_file(folder / name, content)


def write_file(path: Path, content: str) -> None:
    """Write a text as UTF-8, with the folders above it; lone surrogates, which no file can hold, become ``?``.

    Raises:
        OutputError: If it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", errors="replace", newline="")
    except OSError as error:
        raise OutputError(f"{path} cannot be written", error.strerror or str(error)) from error


def session_json(session: Session) -> str:
    """Return the session as one JSON document (see ``SessionDocument``)."""
    return json.dumps(document_of(session).model_dump(mode="json"), indent=1)


def markdown(text: str) -> str:
    """Make a text inert in Markdown and HTML, on one line."""
    text = " ".join(clean(text).split())
    escaped = _MARKDOWN.sub(r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return _NUMBER.sub(r"\1\\\2", _BULLET.sub(r"\\\1", escaped))


def cost_line(usage: Usage) -> str:
    """Return calls, tokens, cost and time in one line."""
    if usage.unpriced >= usage.calls or (usage.unpriced and not usage.usd):  # what is known is free, as from a cache
        price = "price unknown" if usage.calls else "no cost"
    else:
        price = f"${usage.usd:.4f}" + (f" and {usage.unpriced} calls of unknown price" if usage.unpriced else "")
    return (
        f"{usage.calls} calls, {usage.prompt_tokens} + {usage.completion_tokens} tokens, {price}, {usage.seconds:.0f} s"
    )


def ideas_markdown(session: Session) -> str:
    """Return the ranked ideas with their history as Markdown."""
    lines = [f"# {markdown(session.topic)}", ""]
    lines += [f"{len(session.ideas)} ideas by {len(session.personas)} personas. Status: {session.status}"]
    lines[-1] += f" ({markdown(session.reason)})." if session.reason else "."
    for idea in session.ideas:
        votes = f"{idea.votes} vote{'' if idea.votes == 1 else 's'}"
        by = f", from {', '.join(markdown(v) for v in idea.voters)}" if idea.voters else ""
        lines += ["", f"## {idea.rank}. {markdown(idea.title)}", "", f"**{votes}**{by}. Id {idea.id}.", ""]
        lines += [markdown(idea.description), "", "History:", ""]
        lines += [f"- {markdown(line)}" for line in story(session, idea.id).splitlines()]
    lines += ["", "## Who took part", ""]
    for persona, joined in session.personas.items():
        role = f", {markdown(joined.role)}" if joined.role else ""
        spoke = session.contributions[persona]
        lines.append(f"- **{markdown(joined.label)}**{role} (spoke {spoke}x): {markdown(joined.sketch)}")
    lines += [*_distinctness(session), *_course(session), *_rounds(session), "", "## Cost", ""]
    lines += [f"{cost_line(session.usage)}. Seed {session.header['seed']}. Models: {_models(session)}.", ""]
    return "\n".join(lines)


def _distinctness(session: Session) -> list[str]:
    """Return the matrix of sketch cosines as a table."""
    event = next((e for e in session.events if isinstance(e, Distinctness)), None)
    if event is None:
        return []
    lines = ["", "## How alike the personas are (cosine of their sketches)", ""]
    lines.append("| | " + " | ".join(event.personas) + " |")
    lines.append("|---" * (len(event.personas) + 1) + "|")
    for name, row in zip(event.personas, event.matrix, strict=True):
        lines.append(f"| {name} {markdown(session.label(name))} | " + " | ".join(f"{c:.2f}" for c in row) + " |")
    if event.too_close:
        lines += ["", "Too close: " + ", ".join(f"{a} and {b}" for a, b in event.too_close) + "."]
    return lines


def _course(session: Session) -> list[str]:
    """Return how many ideas and votes there were at the end of each phase, beside the plan."""
    plan = session.plan()
    if plan is None:
        return []
    lines = ["", "## Course", "", "| phase | from minute | ideas | votes | ideas expected |", "|---|---|---|---|---|"]
    phases = [e for e in session.events if isinstance(e, Phase)]
    for phase, following in itertools.pairwise(phases):
        points = [p for p in session.trajectory() if p.at <= following.n]
        last = points[-1]
        expected = plan.ideas_at(following.minute) if phase.phase == "discussion" else float(plan.ideas)
        lines.append(f"| {phase.phase} | {phase.minute:.1f} | {last.ideas:g} | {last.votes:g} | {expected:.0f} |")
    return lines


def _rounds(session: Session) -> list[str]:
    """Return how diversity moved over the rounds of a debate."""
    rounds = [e for e in session.events if isinstance(e, Round)]
    if not rounds:
        return []
    lines = ["", "## How different the answers were", "", "| round | mean distance | Vendi score |", "|---|---|---|"]
    for event in rounds:
        distance, score = (f"{v:.3f}" if v is not None else "-" for v in (event.distance, event.vendi))
        lines.append(f"| {event.round} | {distance} | {score} |")
    return lines


def _models(session: Session) -> str:
    names = {role: model.get("model", "?") for role, model in session.header["models"].items()}
    return ", ".join(f"{markdown(role)} {markdown(str(name))}" for role, name in names.items())


def ideas_csv(session: Session) -> str:
    """Return the ranked ideas as CSV, safe to open in a spreadsheet."""
    depths = session.lineage.depths()
    return csv_table(
        ("rank", "id", "title", "description", "author", "votes", "voters", "cites", "depth"),
        (
            (i.rank, i.id, i.title, i.description, i.author, i.votes, "; ".join(i.voters), " ".join(i.cites), depth)
            for i, depth in ((i, depths[i.id]) for i in session.ideas)
        ),
    )


def csv_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV, safe to open in a spreadsheet."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows([safe_cell(cell) for cell in row] for row in rows)
    return out.getvalue()


def safe_cell(value: object) -> object:
    """Make a text inert in a spreadsheet: one that would be read as a formula is quoted with an apostrophe.

    Control characters, which some readers of CSV stumble over, become U+FFFD.
    """
    if not isinstance(value, str):
        return value
    text = clean(value)
    return "'" + text if value[:1] in ("\t", "\r") or text[:1] in _FORMULA else text
