"""The page of an evaluation: what was compared, how methods fare, how sure that is, and answers to read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..modules.text import excerpt
from .evaluation_charts import trade_off, win_matrix
from .pages import write_page
from .report import REPORT_NAME
from .result_answers import Judged
from .result_format import DIGITS, NAMES, p_value, usd
from .result_groups import answered
from .result_judges import JUDGE_HEAD, LIVEIDEA_HEAD, judge_cells, judge_notes, liveidea_cells
from .result_summary import MethodRow, QueryRow
from .results import Results
from .scales import MISSING, number
from .statistics import Interval

__all__ = ["evaluation_page", "write_evaluation_page"]

_ANSWERS = 5  # best answers shown, and worst ones
_LONG = 900  # characters of an answer that are shown unfolded
_QUERIES = 25  # queries shown at once; more are folded away
_FAILURES = 30  # kinds of failure shown


@dataclass(frozen=True)
class Cell:
    """A mean as it is shown: the number, and in small its interval and what it rests on."""

    value: str
    ends: str
    n: int


@dataclass(frozen=True)
class Shown:
    """An answer as it is shown; a long one has its begin, and is folded."""

    judged: Judged
    head: str


def write_evaluation_page(results: Results, folder: Path, name: str = REPORT_NAME) -> Path:
    """Write the page of an evaluation into a folder and return its path.

    Raises:
        OutputError: If the file cannot be written.
        UserError: If the embedding model cannot be loaded.
    """
    write_page(folder / name, "evaluation.html.j2", **evaluation_page(results))
    return folder / name


def evaluation_page(results: Results) -> dict[str, Any]:
    """Return what the page of an evaluation shows."""
    about = results.about
    rows = results.method_rows
    table = _queries(results)
    return {
        "title": f"{about.benchmark}: {len(rows)} method{'' if len(rows) == 1 else 's'} compared",
        "about": about,
        "glance": _glance(results),
        "notes": results.notes,
        "measures": list(NAMES.values()),
        "summary": [(row, [_cell(row.means[name], DIGITS[name]) for name in NAMES], _strength(row)) for row in rows],
        "front": results.front,
        "charts": trade_off(results),
        "wins": win_matrix(results),
        "tests": _tests(results),
        "methods": list(about.methods),
        "queries": table[:_QUERIES],
        "more_queries": table[_QUERIES:],
        "judges": (JUDGE_HEAD, judge_cells(results.diagnosis)),
        "judge_notes": judge_notes(results.diagnosis),
        "liveidea": (LIVEIDEA_HEAD, liveidea_cells(results.liveidea)),
        "costs": [_cost(row) for row in rows],
        "judge_cost": _judge_cost(results),
        "failures": _failures(results),
        "unrated": _unrated(results),
        "best": [_shown(answer) for answer in results.best(_ANSWERS)],
        "worst": [_shown(answer) for answer in results.worst(_ANSWERS)],
        "programs": [_program(results, name) for name in about.methods],
        "facts": _facts(results),
    }


def _glance(results: Results) -> list[tuple[str, str]]:
    about, spent = results.about, results.judge_spent
    rows = results.method_rows
    prices = [row.spent.usd for row in rows]
    known = None if None in prices or spent.unpriced else sum(p for p in prices if p is not None) + spent.usd
    failed = sum(row.failed for row in rows)
    return [
        (f"{len(about.tasks):,}", "query" if len(about.tasks) == 1 else "queries"),
        (f"{about.runs:,}", f"run{'' if about.runs == 1 else 's'} of each"),
        (f"{sum(row.answers for row in rows):,}", "answers"),
        (f"{failed:,}", "failed"),
        (f"{sum(row.judged for row in rows):,}", "judged"),
        (number(sum(row.spent.tokens for row in rows) + spent.tokens), "tokens"),
        (usd(known), "cost, with judges"),
    ]


def _cell(found: Interval, digits: int) -> Cell:
    if found.value is None:
        return Cell(MISSING, "", 0)
    known = found.low is not None and found.high is not None
    ends = f"{found.low:.{digits}f} to {found.high:.{digits}f}" if known else ""
    return Cell(f"{found.value:.{digits}f}", ends, found.n)


def _strength(row: MethodRow) -> str:
    return MISSING if row.strength is None else f"{row.strength:+.2f}"


def _tests(results: Results) -> list[tuple[str, str, Cell, str, str]]:
    """Return (method, measure, difference, p, corrected p) of each test."""
    return [
        (
            test.method,
            NAMES[test.measure],
            _cell(test.found.difference, DIGITS[test.measure]),
            p_value(test.found.p),
            p_value(test.p_holm),
        )
        for test in results.test_rows
    ]


def _queries(results: Results) -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """Return for each query its id, its text, and by method quality, Vendi score and what is lacking."""
    by_query: dict[str, list[QueryRow]] = {}
    for row in results.query_rows:
        by_query.setdefault(row.query, []).append(row)
    return [
        (query, excerpt(text, 160), [_on_query(row, results.about.runs) for row in by_query[query]])
        for query, text in results.about.tasks.items()
    ]


def _on_query(row: QueryRow, runs: int) -> tuple[str, str, str]:
    quality, spread = (
        MISSING if (value := row.means[name]) is None else f"{value:.{DIGITS[name]}f}" for name in ("quality", "vendi")
    )
    if row.answers < runs:
        return quality, spread, f"{row.answers} of {runs} answers"
    return quality, spread, f"{row.judged} of {runs} rated" if 0 < row.judged < runs else ""


def _cost(row: MethodRow) -> list[str]:
    each = row.each
    cells = [f"{row.spent.calls:,}", f"{row.spent.tokens:,}", usd(row.spent.usd)]
    if each is None:
        return [row.method, *cells, *[MISSING] * 4]
    return [
        row.method,
        *cells,
        f"{each.calls:,.1f}",
        number(each.tokens),
        usd(each.usd),
        f"{each.seconds:,.1f}",
    ]


def _judge_cost(results: Results) -> str:
    spent = results.judge_spent
    if not spent.calls:
        return ""
    price = usd(None if spent.unpriced else spent.usd)
    return f"The judges took {spent.calls:,} calls and {spent.tokens:,} tokens; cost {price}."


def _failures(results: Results) -> list[tuple[str, str, int]]:
    """Return (method, reason, how often) of jobs that failed."""
    lost = Counter((r.method, excerpt(r.reason or "no reason is known", 300)) for r in results.rows if not answered(r))
    return [(method, reason, n) for (method, reason), n in lost.most_common(_FAILURES)]


def _unrated(results: Results) -> list[tuple[str, str, int]]:
    """Return (judge, reason, how often) of ratings that failed."""
    errors = [
        (str(r.get("judge") or ""), str(r["error"])) for row in results.rows for r in row.ratings if r.get("error")
    ]
    lost = Counter((judge, excerpt(error, 300)) for judge, error in errors)
    return [(judge, error, n) for (judge, error), n in lost.most_common(_FAILURES)]


def _shown(judged: Judged) -> Shown:
    return Shown(judged, excerpt(judged.answer, 280) if len(judged.answer) > _LONG else "")


def _program(results: Results, name: str) -> tuple[str, str, str]:
    """Return of a method its name, what it is, and its models."""
    told = results.about.told.get("models")
    models = told.get(name) if isinstance(told, Mapping) else None
    return name, _described(results.about.methods[name]), _models(models if isinstance(models, Mapping) else {})


def _described(description: Any) -> str:
    if not isinstance(description, Mapping):
        return str(description or "")
    if "callable" in description:
        return str(description["callable"])
    settings = description.get("settings")
    told = json.dumps(settings, ensure_ascii=False) if settings else ""
    return f"{description.get('name', '')} {excerpt(told, 400)}".strip()


def _models(models: Mapping[str, Any]) -> str:
    names = {role: str(lm.get("model", "?")) if isinstance(lm, Mapping) else str(lm) for role, lm in models.items()}
    if len(set(names.values())) == 1:
        return next(iter(names.values()))
    return "; ".join(f"{role}: {model}" for role, model in names.items())


def _facts(results: Results) -> Sequence[tuple[str, str]]:
    """Return what the evaluation is of, as name and value."""
    about, judge = results.about, results.about.told["judge"] or {}
    source = ", ".join(f"{name} {value}" for name, value in about.source.items() if value)
    drawn = f", {judge['drawn']} drawn for each answer" if judge.get("drawn") else ""
    facts = [
        ("Benchmark", about.benchmark),
        ("Licence", about.licence or "not known"),
        ("Source", source or "not known"),
        ("Rubric", f"{about.rubric.name}: {', '.join(d.name for d in about.rubric.scored)}"),
        ("Judges", ", ".join(about.judges) + drawn if about.judges else "none"),
        ("Baseline", about.baseline or "none"),
        ("Seed", str(about.seed)),
        ("Groups", f"of {about.size} runs; an answer reaches the threshold at {about.threshold:g}"),
        ("Embeddings", about.embedder or "all-MiniLM-L6-v2, as packaged"),
        ("Versions", ", ".join(f"{name} {value}" for name, value in (about.told.get("packages") or {}).items())),
    ]
    return [(name, value) for name, value in facts if value]
