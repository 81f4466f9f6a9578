"""The result of an evaluation as pandas tables.

Columns of ``jobs``, one row for each job that is done:
    method, query (id), run (from 1), group (of which its diversity is a part; 0 if its run fills none), seed, status
    (``ok`` or ``failed``), reason, answer, quality (mean of its ratings, 1 to 10), judged (ratings with a value),
    ratings (all of them), calls, prompt_tokens, completion_tokens, usd, seconds, depth, absorption, balance (of
    roundtables), judge_calls, judge_tokens, judge_usd.
Columns of ``ratings``, one row for each rating:
    method, query, run, judge (model), value (1 to 10), how (``logprobs`` or ``integers``), reason, error, and the
    score of each dimension of the rubric under ``score <dimension>``.
Columns of ``groups``, one row for each method, query and group of G runs:
    those of ``Group``.
Columns of ``queries``, one row for each method and query:
    method, query, task, answers, failed, missing, judged, groups, comparisons, then the mean over the query's answers
    or groups: quality, vendi, distance, div_bleu, gated, win_rate; then calls, tokens, usd, seconds of all its jobs.
Columns of ``methods``, one row for each method:
    method, jobs, missing, answers, failed, judged, passed (share of the judged answers that reach the threshold),
    groups, comparisons; for each of quality, vendi, distance, div_bleu, gated and win_rate the mean over queries, the
    ends of its 95 % interval (``_low``, ``_high``) and the number of queries (``_n``); strength (Bradley-Terry), front
    (whether it is on the Pareto front of quality and Vendi score); calls, tokens, usd, seconds in all and, under
    ``<name>_each``, for each answer.
Columns of ``pairs``, one row for each comparison:
    query, run, a, b, judge, forward, backward, score (1: a won; 0.5: a tie), log_odds, error.
Columns of ``similar``, one row for each graded pair of answers of one method to one query:
    method, query, run_a, run_b, judge, grade, score, error.
Columns of ``tests``, one row for each method and measure:
    measure, method, baseline, difference (method minus baseline, mean over queries), low, high, p, p_holm, n (queries).

Counts are ``int64``, other numbers ``float64`` in which NaN stands for what is undefined, as it does in pandas;
texts and seeds are ``object``. Lone surrogates, which Arrow cannot hold, become ``?``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .evaluation_folder import Evaluation
from .jobs import JobRow
from .result_groups import Group
from .result_summary import MEASURES, MethodRow, QueryRow, Spent, Tested

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COLUMNS",
    "frame",
    "group_cells",
    "job_cells",
    "method_cells",
    "query_cells",
    "rating_cells",
    "test_cells",
]

Cells = dict[str, Any]
_SPENT = ("calls", "tokens", "usd", "seconds")
_MEANS = " ".join(f"{m} {m}_low {m}_high {m}_n" for m in MEASURES)
_TABLES = {
    "jobs": "method query run group seed status reason answer quality judged ratings calls prompt_tokens "
    "completion_tokens usd seconds depth absorption balance judge_calls judge_tokens judge_usd",
    "ratings": "method query run judge value how reason error",
    "groups": " ".join(Group.__dataclass_fields__),
    "queries": f"method query task answers failed missing judged groups comparisons {' '.join(MEASURES)} "
    f"{' '.join(_SPENT)}",
    "methods": f"method jobs missing answers failed judged passed groups comparisons {_MEANS} strength front "
    f"{' '.join(_SPENT)} {' '.join(f'{name}_each' for name in _SPENT)}",
    "pairs": "query run a b judge forward backward score log_odds error",
    "similar": "method query run_a run_b judge grade score error",
    "tests": "measure method baseline difference low high p p_holm n",
}
COLUMNS: dict[str, list[str]] = {name: columns.split() for name, columns in _TABLES.items()}
"""The columns of each table."""
_WHOLE = {
    "run", "run_a", "run_b", "group", "ratings", "prompt_tokens", "completion_tokens", "judge_calls", "judge_tokens",
    "answers", "failed", "missing", "judged", "groups", "comparisons", "jobs", "n", "passed", "rated", "calls",
    "tokens", *(f"{name}_n" for name in MEASURES),
}  # fmt: skip
_TEXTS = {
    "method", "query", "task", "status", "reason", "answer", "judge", "how", "error", "a", "b", "grade", "measure",
    "baseline", "gated_reason", "seed",
}  # fmt: skip


def frame(name: str, rows: Sequence[Mapping[str, Any]], extra: Sequence[str] = ()) -> pd.DataFrame:
    """Return a table of ``COLUMNS``.

    Args:
        name: Its name.
        rows: A value for each column.
        extra: More columns, of numbers.
    """
    import pandas as pd

    columns = [*COLUMNS[name], *extra]
    return pd.DataFrame({c: pd.Series([_plain(row[c]) for row in rows], dtype=_type(name, c)) for c in columns})


def _type(table: str, column: str) -> str:
    if column == "front":
        return "bool"
    if column in _TEXTS:
        return "object"
    share = table == "methods" and column == "passed"
    return "int64" if column in _WHOLE and not share else "float64"


def _plain(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def job_cells(about: Evaluation, rows: Sequence[JobRow]) -> list[Cells]:
    """Return the cells of ``jobs``."""
    return [
        {
            **{name: getattr(row, name, None) for name in COLUMNS["jobs"]},
            "group": (row.run - 1) // about.size + 1 if row.run <= about.groups * about.size else 0,
            "judged": sum(rating["value"] is not None for rating in row.ratings),
            "ratings": len(row.ratings),
        }
        for row in rows
    ]


def score_columns(about: Evaluation) -> list[str]:
    """Return the columns of ``ratings`` that hold the scores of dimensions."""
    return [f"score {dimension.name}" for dimension in about.rubric.dimensions]


def rating_cells(about: Evaluation, rows: Sequence[JobRow]) -> list[Cells]:
    """Return the cells of ``ratings``."""
    return list(_ratings(about, rows))


def _ratings(about: Evaluation, rows: Sequence[JobRow]) -> Iterator[Cells]:
    for row in rows:
        for rating in row.ratings:
            told = {name: rating[name] for name in ("judge", "value", "how", "reason", "error")}
            scores = {f"score {d.name}": rating["scores"].get(d.name) for d in about.rubric.dimensions}
            yield {
                "method": row.method,
                "query": row.query,
                "run": row.run,
                **told,
                **scores,
            }


def group_cells(groups: Sequence[Group]) -> list[Cells]:
    """Return the cells of ``groups``."""
    return [asdict(group) for group in groups]


def query_cells(about: Evaluation, rows: Sequence[QueryRow]) -> list[Cells]:
    """Return the cells of ``queries``."""
    return [{**vars(row), "task": about.tasks[row.query], **row.means, **_spent(row.spent)} for row in rows]


def method_cells(rows: Sequence[MethodRow], front: Sequence[str]) -> list[Cells]:
    """Return the cells of ``methods``."""
    made = []
    for row in rows:
        cells = {**vars(row), "front": row.method in front, **_spent(row.spent), **_spent(row.each, "_each")}
        for name, found in row.means.items():
            cells |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high, f"{name}_n": found.n}
        made.append({name: cells[name] for name in COLUMNS["methods"]})
    return made


def _spent(spent: Spent | None, end: str = "") -> Cells:
    return {f"{name}{end}": getattr(spent, name) if spent else None for name in _SPENT}


def test_cells(tests: Sequence[Tested]) -> list[Cells]:
    """Return the cells of ``tests``."""
    return [
        {
            "measure": test.measure,
            "method": test.method,
            "baseline": test.baseline,
            "difference": test.found.difference.value,
            "low": test.found.difference.low,
            "high": test.found.difference.high,
            "p": test.found.p,
            "p_holm": test.p_holm,
            "n": test.found.n,
        }
        for test in tests
    ]
