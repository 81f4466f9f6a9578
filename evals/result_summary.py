"""From jobs to what is said of methods: means of queries, intervals over queries, tests, wins, the Pareto front.

Runs of one query are alike, so they are no independent values: a method's quality is the mean over queries of the
mean over a query's rated answers, and its interval is a bootstrap over queries. The same holds for diversity (mean
over a query's whole groups), for the share of wins (mean over a query's comparisons), and for the paired tests
against a baseline. All p values of the tests are corrected together (Holm).

Failures count as failures and nowhere else: no quality is put in their place. Cost is what all jobs took, failed
ones included, also where it is told for each answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .comparing import Paired, bradley_terry, holm, paired
from .evaluation_folder import Evaluation
from .jobs import JobRow
from .result_groups import Group, answered
from .statistics import Interval, mean_interval

__all__ = ["MEASURES", "MethodRow", "QueryRow", "Spent", "Tested", "method_rows", "pareto", "query_rows", "tested"]

MEASURES = ("quality", "vendi", "distance", "div_bleu", "gated", "win_rate")
TESTED = ("quality", "vendi")
Pair = Mapping[str, Any]


@dataclass(frozen=True)
class Spent:
    """What jobs took; a value is for all of them, or for each answer.

    Attributes:
        calls: LM calls.
        tokens: Tokens read and written.
        usd: US dollars; None if the price of any call is unknown.
        seconds: Wall time of the sessions, each counted by itself.
    """

    calls: float
    tokens: float
    usd: float | None
    seconds: float

    @classmethod
    def of(cls, rows: Iterable[JobRow]) -> Spent:
        """Return what jobs took together."""
        held = list(rows)
        prices = [row.usd for row in held]
        return cls(
            sum(row.calls for row in held),
            sum(row.prompt_tokens + row.completion_tokens for row in held),
            None if None in prices else sum(price for price in prices if price is not None),
            sum(row.seconds for row in held),
        )

    def each(self, answers: int) -> Spent | None:
        """Return the same for each answer; None if there are none."""
        if not answers:
            return None
        usd = None if self.usd is None else self.usd / answers
        return Spent(self.calls / answers, self.tokens / answers, usd, self.seconds / answers)


@dataclass(frozen=True)
class QueryRow:
    """One method on one query.

    Attributes:
        method: Name of the method.
        query: Id of the query.
        answers: Answers there are.
        failed: Jobs that failed.
        missing: Jobs that are not done.
        judged: Answers with a quality.
        groups: Groups whose diversity is known.
        comparisons: Comparisons with other methods that were decided, ties included.
        means: The mean of each of ``MEASURES``; None where there is nothing to take it of.
        spent: What all jobs took.
    """

    method: str
    query: str
    answers: int
    failed: int
    missing: int
    judged: int
    groups: int
    comparisons: int
    means: Mapping[str, float | None]
    spent: Spent


@dataclass(frozen=True)
class MethodRow:
    """One method over all queries.

    Attributes:
        method: Its name.
        jobs: Jobs that are done.
        missing: Jobs that are not.
        answers: Answers there are.
        failed: Jobs that failed.
        judged: Answers with a quality.
        passed: Share of the judged answers that reach the threshold; None if none is judged.
        groups: Groups whose diversity is known.
        comparisons: Comparisons with other methods that were decided.
        means: For each of ``MEASURES`` the mean over queries, its interval over queries, and how many those are.
        strength: Bradley-Terry strength, a log odds with mean 0 over methods; None if it was never compared.
        spent: What all jobs took.
        each: The same for each answer; None if there are none.
    """

    method: str
    jobs: int
    missing: int
    answers: int
    failed: int
    judged: int
    passed: float | None
    groups: int
    comparisons: int
    means: Mapping[str, Interval]
    strength: float | None
    spent: Spent
    each: Spent | None


@dataclass(frozen=True)
class Tested:
    """A method against the baseline on one measure, and its p value corrected for all tests made."""

    measure: str
    method: str
    baseline: str
    found: Paired
    p_holm: float | None


def query_rows(
    about: Evaluation, rows: Sequence[JobRow], groups: Sequence[Group], pairs: Sequence[Pair]
) -> list[QueryRow]:
    """Return a row for each method and query, in this order."""
    by_job = _grouped(rows, lambda row: (row.method, row.query))
    by_group = _grouped(groups, lambda group: (group.method, group.query))
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    for a, b, query, score in decided(pairs):
        scores[a, query].append(score)
        scores[b, query].append(1 - score)
    made = []
    for method in about.methods:
        for query in about.tasks:
            place = (method, query)
            made.append(_query_row(about, place, by_job[place], by_group[place], scores[place]))
    return made


def _query_row(
    about: Evaluation,
    place: tuple[str, str],
    jobs: Sequence[JobRow],
    groups: Sequence[Group],
    scores: Sequence[float],
) -> QueryRow:
    there = [row for row in jobs if answered(row)]
    known = [row.quality for row in there if row.quality is not None]
    means = {"quality": mean(known)}
    for name in ("vendi", "distance", "div_bleu", "gated"):
        means[name] = mean([value for group in groups if (value := getattr(group, name)) is not None])
    means["win_rate"] = mean(scores)
    return QueryRow(
        *place,
        answers=len(there),
        failed=len(jobs) - len(there),
        missing=about.runs - len(jobs),
        judged=len(known),
        groups=sum(group.vendi is not None for group in groups),
        comparisons=len(scores),
        means=means,
        spent=Spent.of(jobs),
    )


def method_rows(
    about: Evaluation, rows: Sequence[JobRow], queries: Sequence[QueryRow], pairs: Sequence[Pair]
) -> list[MethodRow]:
    """Return a row for each method."""
    by_job, by_query = _grouped(rows, lambda row: row.method), _grouped(queries, lambda row: row.method)
    won = [(a, b, score) for a, b, _, score in decided(pairs)]
    strengths = bradley_terry(won) if won else {}
    return [_method_row(about, m, by_job[m], by_query[m], strengths.get(m)) for m in about.methods]


def _method_row(
    about: Evaluation, method: str, jobs: Sequence[JobRow], queries: Sequence[QueryRow], strength: float | None
) -> MethodRow:
    answers, spent = sum(row.answers for row in queries), Spent.of(jobs)
    reached = [row.quality >= about.threshold for row in jobs if answered(row) and row.quality is not None]
    return MethodRow(
        method,
        jobs=len(jobs),
        missing=sum(row.missing for row in queries),
        answers=answers,
        failed=sum(row.failed for row in queries),
        judged=len(reached),
        passed=mean([float(hit) for hit in reached]),
        groups=sum(row.groups for row in queries),
        comparisons=sum(row.comparisons for row in queries),
        means={
            name: mean_interval([value for row in queries if (value := row.means[name]) is not None])
            for name in MEASURES
        },
        strength=strength,
        spent=spent,
        each=spent.each(answers),
    )


def decided(pairs: Iterable[Pair]) -> list[tuple[str, str, str, float]]:
    """Return (a, b, query, score) of the comparisons that were decided, ties included."""
    return [(p["a"], p["b"], p["query"], float(p["score"])) for p in pairs if p["score"] is not None]


def tested(queries: Sequence[QueryRow], baseline: str) -> list[Tested]:
    """Test every method against a baseline on quality and diversity, query by query; all p values are corrected."""
    values: dict[tuple[str, str], dict[str, float | None]] = defaultdict(dict)
    for row in queries:
        for measure in TESTED:
            values[measure, row.method][row.query] = row.means[measure]
    others = [(measure, method) for measure, method in values if method != baseline]
    others.sort(key=lambda place: TESTED.index(place[0]))
    found = {place: paired(values[place], values[place[0], baseline]) for place in others}
    corrected = holm({f"{measure} {method}": found[measure, method].p for measure, method in others})
    return [Tested(m, method, baseline, found[m, method], corrected[f"{m} {method}"]) for m, method in others]


def pareto(rows: Sequence[MethodRow], x: str = "vendi", y: str = "quality") -> list[str]:
    """Return the methods that no other one beats in one measure without being beaten by it in the other."""
    known = [
        (r.method, a, b) for r in rows if (a := r.means[x].value) is not None and (b := r.means[y].value) is not None
    ]
    return [name for name, a, b in known if not any(c >= a and d >= b and (c, d) != (a, b) for _, c, d in known)]


def mean(values: Sequence[float]) -> float | None:
    """Return the mean; None of nothing."""
    return sum(values) / len(values) if values else None


def _grouped(items: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return found
