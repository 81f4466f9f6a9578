"""The result of an evaluation in Markdown: summary, costs, wins, tests, and what must be known to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..modules.files import markdown as inert
from .result_format import DIGITS, NAMES, count, interval, p_value, table, usd
from .result_judges import JUDGE_HEAD, LIVEIDEA_HEAD, judge_cells, judge_notes, liveidea_cells
from .result_summary import MethodRow
from .scales import MISSING, number

if TYPE_CHECKING:
    from .results import Results

__all__ = ["markdown"]


def markdown(results: Results) -> str:
    """Return the tables, and what must be known to read them."""
    about = results.about
    licence = f" ({about.licence})" if about.licence else ""
    judges = f"rated by {', '.join(about.judges)}" if about.judges else "not rated"
    lines = [
        f"Benchmark {inert(about.benchmark + licence)}: {count(len(about.tasks), 'query', 'queries')}, "
        f"{count(about.runs, 'run')} of each, groups of {about.size}, seed {about.seed}; {inert(judges)}.",
        "",
        *_summary(results),
        *_costs(results),
        *_wins(results),
        *_tests(results),
        *_liveidea(results),
        *_judges(results),
    ]
    if results.front:
        lines += [f"Best trade-offs of quality and Vendi score: {', '.join(map(inert, results.front))}.", ""]
    return "\n".join([*lines, *(f"- {inert(note)}" for note in results.notes), ""])


def _summary(results: Results) -> list[str]:
    head = ["method", *NAMES.values(), "strength"]
    rows = [
        [
            inert(row.method),
            *(interval(row.means[name], DIGITS[name]) for name in NAMES),
            MISSING if row.strength is None else f"{row.strength:+.2f}",
        ]
        for row in results.method_rows
    ]
    told = (
        "Means over queries with 95 % intervals over queries and, in brackets, the number of queries. Quality from 1 "
        f"to 10; Vendi score from 1 to {results.about.size}; gated: of the answers that reach "
        f"{results.about.threshold:g}; strength: Bradley-Terry."
    )
    return [*table(head, rows), told, ""]


def _costs(results: Results) -> list[str]:
    head = ["method", "jobs", "answers", "failed", "not run", "judged", "calls", "tokens", "USD"]
    head += ["calls each", "tokens each", "USD each", "seconds each"]
    rows = [[inert(row.method), *_counts(row), *_spent(row)] for row in results.method_rows]
    judges = results.judge_spent
    told = "Each: for each answer, failed jobs included."
    if judges.calls:
        price = usd(None if judges.unpriced else judges.usd)
        told += f" The judges took {judges.calls:,} calls, {judges.tokens:,} tokens, {price}."
    return [*table(head, rows), told, ""]


def _counts(row: MethodRow) -> list[str]:
    return [f"{n:,}" for n in (row.jobs, row.answers, row.failed, row.missing, row.judged)]


def _spent(row: MethodRow) -> list[str]:
    """Write what a method took, in all and for each answer."""
    spent, each = row.spent, row.each
    told = [f"{spent.calls:,}", f"{spent.tokens:,}", usd(spent.usd)]
    if each is None:
        return [*told, *[MISSING] * 4]
    return [*told, f"{each.calls:,.1f}", number(each.tokens), usd(each.usd), f"{each.seconds:,.1f}"]


def _wins(results: Results) -> list[str]:
    if not results.wins.notna().any(axis=None):
        return []
    names = [inert(name) for name in results.wins.index]
    cells = zip(names, results.wins.to_numpy(), results.comparisons.to_numpy(), strict=True)
    rows = [[name, *(f"{w:.2f} ({n})" if n else MISSING for w, n in zip(*both, strict=True))] for name, *both in cells]
    told = "How often the method of a row was preferred to that of a column, ties half; in brackets, comparisons."
    return [*table(["wins", *names], rows), told, ""]


def _tests(results: Results) -> list[str]:
    if not results.test_rows:
        return []
    rows = [
        [
            inert(test.method),
            NAMES[test.measure],
            interval(test.found.difference, DIGITS[test.measure]),
            p_value(test.found.p),
            p_value(test.p_holm),
        ]
        for test in results.test_rows
    ]
    head = ["method", "measure", f"difference from {inert(results.about.baseline)}", "p", "p (Holm)"]
    told = "Paired by query, sign-flip permutation test; p values corrected for all tests of this table."
    return [*table(head, rows), told, ""]


def _liveidea(results: Results) -> list[str]:
    if not results.liveidea:
        return []
    rows = ([inert(name), *cells] for name, *cells in liveidea_cells(results.liveidea))
    return [*table(LIVEIDEA_HEAD, rows), "LiveIdeaBench's scores as its authors define them; in brackets, n.", ""]


def _judges(results: Results) -> list[str]:
    if not results.diagnosis.judges:
        return []
    rows = ([inert(judge), *cells] for judge, *cells in judge_cells(results.diagnosis))
    told = (
        "Commonest: the value given most often; spread: standard deviation; with others: rank agreement with the mean "
        "of the other judges; first place: share of choices for the answer that stood first; kept: share of pairs "
        "whose choice survived the change of places."
    )
    return [*table(JUDGE_HEAD, rows), told, "", *(f"- {inert(note)}" for note in judge_notes(results.diagnosis)), ""]
