"""What a search tries to reach: numbers that say how good, how different and how costly a program's answers are.

An objective is measured query by query, on the set of the G answers that a program gave to one query, and is the
mean over the queries, with its standard error over them. Since all variants of a program answer the same queries
with the same seeds, two variants are compared by the differences on the queries that both have, which are less
noisy than the two means.

A query that cannot be measured (a session failed, no judge rated it) has no value; it is left out of the mean,
never filled in. A set in which an answer is missing has no diversity, for fewer answers are less diverse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, sqrt
from statistics import fmean, stdev
from typing import Literal, NamedTuple, TypeAlias

from salon.errors import SalonError, UserError

from ..evals.jobs import JobRow
from ..modules.diversity import div_bleu, pairwise_distance, vendi
from ..modules.embedding import Embedder, Vectors

__all__ = [
    "DEFAULT_THRESHOLD",
    "OBJECTIVES",
    "OF_ROUNDTABLES",
    "Difference",
    "Direction",
    "Kind",
    "Objective",
    "Value",
    "gated",
    "lead_over",
    "needs_ratings",
    "objectives_of",
    "pooled",
    "value_of",
    "values_of",
]

Direction: TypeAlias = Literal["maximize", "minimize"]
Kind: TypeAlias = Literal["quality", "diversity", "cost", "process"]
Rows: TypeAlias = Sequence[JobRow]
DEFAULT_THRESHOLD = 6.0


@dataclass(frozen=True)
class Objective:
    """A number to be made large or small.

    Attributes:
        name: Its name.
        direction: Whether more or less of it is better.
        low: Lowest value possible.
        high: Highest value possible; None if there is none, or if it is the number of answers per query (G).
        unit: What it counts.
        of: Returns its value from the rows of ONE query and an embedder; None where it is undefined.
        kind: What it says: ``quality``, ``diversity``, ``cost`` or the ``process`` of a session.
        needs: What a query must have for a value.
        threshold: Quality that an answer must reach to count, where one must.
        step: What the values of single sessions are rounded to at most, such as whole points; 0 where they are not.
    """

    name: str
    direction: Direction
    low: float
    high: float | None
    unit: str
    of: Callable[[Rows, Embedder], float | None] = field(repr=False)
    kind: Kind = "process"
    needs: str = "a session that says it"
    threshold: float | None = None
    step: float = 0.0

    @property
    def sign(self) -> int:
        """1 where more is better, -1 where less is."""
        return 1 if self.direction == "maximize" else -1


@dataclass(frozen=True)
class Value:
    """What was measured of an objective.

    Attributes:
        value: Mean over the queries that have a value; None if none has.
        se: Standard error of the mean, over queries; None for fewer than two.
        n: Queries that have a value.
        by_query: Value of each query; None where it is undefined.
        reason: Why queries have none; empty if all have.
    """

    value: float | None
    se: float | None
    n: int
    by_query: Mapping[str, float | None] = field(repr=False)
    reason: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return f"none ({self.reason})"
        return f"{self.value:.3g}" + (f" ± {self.se:.2g}" if self.se is not None else "") + f" (n={self.n})"


class Difference(NamedTuple):
    """A difference of two values on the queries that both have.

    Attributes:
        mean: Mean difference, positive where the first is better; None if they share no query.
        se: Its standard error; None for fewer than two queries.
        n: Queries.
    """

    mean: float | None
    se: float | None
    n: int


def _complete(rows: Rows) -> bool:
    return len(rows) > 1 and all(row.status == "ok" for row in rows)


def _bleu(rows: Rows, _: Embedder) -> float | None:
    return div_bleu([row.answer for row in rows])


def _diversity(measure: Callable[[Rows, Embedder], float | None]) -> Callable[[Rows, Embedder], float | None]:
    return lambda rows, embedder: measure(rows, embedder) if _complete(rows) else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _quality(rows: Rows, _: Embedder) -> float | None:
    return _mean(row.quality for row in rows if row.status == "ok")


def _tokens(rows: Rows, _: Embedder) -> float | None:
    return _mean(row.prompt_tokens + row.completion_tokens for row in rows if row.status == "ok")


def _usd(rows: Rows, _: Embedder) -> float | None:
    held = [row.usd for row in rows if row.status == "ok"]
    return None if None in held else _mean(held)


def _of_session(name: str) -> Callable[[Rows, Embedder], float | None]:
    return lambda rows, _: _mean(getattr(row, name) for row in rows if row.status == "ok")


def _spread(measure: Callable[[Vectors], float | None]) -> Callable[[Rows, Embedder], float | None]:
    return _diversity(lambda rows, embedder: measure(embedder.embed([row.answer for row in rows])))


def gated(threshold: float = DEFAULT_THRESHOLD) -> Objective:
    """Return the number of different GOOD answers of a query: the Vendi score of those that are good enough.

    None is 0 and one is 1 (its Vendi score), unlike in a report, where fewer than two have no diversity: a search
    that left such queries out would reward a program for answers so poor that only its luckiest queries count.

    Args:
        threshold: Quality that an answer must reach, 1 to 10.

    Raises:
        UserError: If the threshold is not on the scale of quality.
    """
    if isinstance(threshold, bool) or not 1 <= threshold <= 10:
        raise UserError(f"A quality of {threshold!r} cannot be asked for", "judges rate from 1 to 10")

    def of(rows: Rows, embedder: Embedder) -> float | None:
        if not _complete(rows) or any(row.quality is None for row in rows):
            return None
        good = [row for row in rows if row.quality is not None and row.quality >= threshold]
        return vendi(embedder.embed([row.answer for row in good])) if len(good) > 1 else float(len(good))

    unit = f"different answers of quality {threshold:g} or more"
    return Objective("gated", "maximize", 0, None, unit, of, "diversity", "all its answers, each rated", threshold)


_SET = "all its answers, two or more"
_PRICED = "a session of known price"
_TABLE = "a roundtable that says it"
OBJECTIVES: dict[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective("quality", "maximize", 1, 10, "points", _quality, "quality", "a rated answer", step=1),
        Objective("vendi", "maximize", 1, None, "different answers", _spread(vendi), "diversity", _SET),
        Objective("distance", "maximize", 0, 2, "1 - cosine", _spread(pairwise_distance), "diversity", _SET),
        Objective("div_bleu", "maximize", 0, 100, "100 - self-BLEU", _diversity(_bleu), "diversity", _SET),
        gated(),
        Objective("tokens", "minimize", 0, None, "tokens a session", _tokens, "cost", "a session"),
        Objective("usd", "minimize", 0, None, "USD a session", _usd, "cost", _PRICED),
        Objective(
            "depth", "maximize", 0, None, "citations in a chain", _of_session("depth"), "process", _TABLE, step=1
        ),
        Objective("absorption", "maximize", 0, 1, "share", _of_session("absorption"), needs=_TABLE),
        Objective("balance", "maximize", 0, 1, "evenness", _of_session("balance"), needs=_TABLE),
    )
}
OF_ROUNDTABLES = frozenset({"depth", "absorption", "balance"})
"""Objectives that only sessions of a Roundtable have."""
_GATED = re.compile(r"gated(?::(\d+(?:\.\d+)?))?")


def objectives_of(names: Iterable[str | Objective], groups: int) -> list[Objective]:
    """Return objectives by name, with the highest value of those that count different answers.

    Args:
        names: Names of ``OBJECTIVES``, ``gated:QUALITY`` (e.g. ``gated:7``), or objectives of one's own.
        groups: Answers per query (G).

    Raises:
        UserError: If one is not known, comes twice, or measures diversity of a single answer.
    """
    found = [name if isinstance(name, Objective) else _named(name) for name in names]
    if not found or len({objective.name for objective in found}) < len(found):
        raise UserError(f"The objectives {[o.name for o in found]} are not possible", "give one or more, none twice")
    single = [objective.name for objective in found if objective.kind == "diversity"] if groups < 2 else []
    if single:
        raise UserError(f"{single[0]} cannot be measured", "one answer per query has no diversity", "Ask for more.")
    counting = ("vendi", "gated")
    return [replace(o, high=float(groups)) if o.name in counting and o.high is None else o for o in found]


def _named(name: str) -> Objective:
    if match := _GATED.fullmatch(name):
        return gated(float(match[1])) if match[1] else OBJECTIVES["gated"]
    if name not in OBJECTIVES:
        raise UserError(f"There is no objective {name!r}", todo=f"Give some of {', '.join(OBJECTIVES)}.")
    return OBJECTIVES[name]


def value_of(by_query: Mapping[str, float | None], needs: str = "") -> Value:
    """Return the mean of values by query; ``needs`` tells what those without a value lack."""
    known = [value for value in by_query.values() if value is not None]
    lacking = len(by_query) - len(known)
    reason = f"{lacking} of {len(by_query)} queries lack {needs or 'a value'}" if lacking else ""
    if not by_query:
        reason = "no query was measured"
    se = stdev(known) / sqrt(len(known)) if len(known) > 1 else None
    return Value(fmean(known) if known else None, se, len(known), dict(by_query), reason)


def values_of(rows: Rows, objectives: Iterable[Objective], embedder: Embedder) -> dict[str, Value]:
    """Return what the rows of one measurement say of each objective.

    Args:
        rows: All rows of each query: one for each of its G sessions, failed ones included.
        objectives: What to measure.
        embedder: Embeds the answers.

    Raises:
        UserError: If an objective of one's own fails, or gives something that is no finite number.
    """
    sets: dict[str, list[JobRow]] = {}
    for row in rows:
        sets.setdefault(row.query, []).append(row)
    return {
        o.name: value_of({query: _of(o, part, embedder) for query, part in sets.items()}, o.needs) for o in objectives
    }


def _of(objective: Objective, rows: Rows, embedder: Embedder) -> float | None:
    """Return the value of one query.

    Raises:
        UserError: If an objective of one's own fails, or gives something that is no finite number.
    """
    try:
        found = objective.of(rows, embedder)
        value = None if found is None else float(found)
    except SalonError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise UserError(f"The objective {objective.name} cannot be computed", why[:200]) from error
    if isinstance(found, str | bool) or (value is not None and not isfinite(value)):
        raise UserError(f"The objective {objective.name} cannot be computed", f"it gave {found!r}"[:200])
    return value


def needs_ratings(objectives: Iterable[Objective]) -> bool:
    """Return whether one of some objectives is nothing without the ratings of answers."""
    return any(objective.kind == "quality" or objective.threshold is not None for objective in objectives)


def pooled(values: Sequence[Value]) -> Value:
    """Return the value of several measurements of one program: for each query the mean of its values."""
    if len(values) == 1:
        return values[0]
    queries = dict.fromkeys(query for value in values for query in value.by_query)
    by_query = {query: _mean(value.by_query.get(query) for value in values) for query in queries}
    reason = next((value.reason for value in values if value.reason), "")
    return value_of(by_query, reason.partition(" lack ")[2])


def lead_over(first: Value, second: Value, objective: Objective) -> Difference:
    """Return by how much the first is better than the second, on the queries that both have."""
    both = [
        objective.sign * (a - b)
        for query, a in first.by_query.items()
        if a is not None and (b := second.by_query.get(query)) is not None
    ]
    if not both:
        return Difference(None, None, 0)
    return Difference(fmean(both), stdev(both) / sqrt(len(both)) if len(both) > 1 else None, len(both))
