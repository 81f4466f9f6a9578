"""What an evaluation found: tables of jobs, ratings, groups, queries and methods, tests, wins, the best answers.

A result is read off the folder of an evaluation, finished or not, and everything is computed from what is there;
see ``result_groups`` and ``result_summary`` for how, ``result_frames`` for the columns of the tables. Diversity is
measured when it is first asked for, and each text is embedded once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from salon.errors import UserError

from ..modules.budget import Usage
from ..modules.embedding import Embedder
from . import result_frames as frames
from .comparing import win_rates
from .diagnostics import Diagnosis, diagnose
from .evaluation_folder import Evaluation, judge_usage, kept_lines, kept_rows
from .jobs import JobRow
from .liveideabench import LiveIdeaScores, liveidea_scores
from .matches import PAIRS_NAME, SIMILAR_NAME
from .result_answers import Judged, ranked
from .result_files import as_json, write_csv
from .result_groups import Group, answered, groups_of
from .result_notes import notes
from .result_summary import MethodRow, QueryRow, Tested, decided, method_rows, pareto, query_rows, tested
from .result_text import markdown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Results"]


class Results:
    """The result of an evaluation; make one with ``Results.load``.

    Args:
        about: What was evaluated.
        rows: The jobs that are done.
        pairs: Comparisons of methods, as in ``pairs.jsonl``.
        similar: Graded pairs of answers, as in ``similar.jsonl``.
        embedder: Embeds the answers; by default the model that the evaluation names.
        strange: Lines left out because they name what the evaluation does not.

    Attributes:
        about: What was evaluated.
        rows: The jobs that are done, in the order methods, queries, runs.
        pair_lines: Comparisons of methods.
        similar_lines: Graded pairs of answers.
        strange: Lines that were left out.
        left: Why jobs were left undone in the run that made this result; empty if none was.
    """

    def __init__(
        self,
        about: Evaluation,
        rows: Sequence[JobRow],
        pairs: Sequence[Mapping[str, Any]] = (),
        similar: Sequence[Mapping[str, Any]] = (),
        embedder: Embedder | None = None,
        strange: int = 0,
    ) -> None:
        self.about, self.rows, self.strange, self.left = about, list(rows), strange, ""
        self.pair_lines, self.similar_lines, self._embedder = list(pairs), list(similar), embedder

    @classmethod
    def load(cls, folder: str | Path, embedder: Embedder | None = None) -> Results:
        """Read the result of an evaluation, finished or not.

        Args:
            folder: Folder of the evaluation.
            embedder: Embeds the answers; by default the model that the evaluation names.

        Raises:
            OutputError: If there is no evaluation, or a file cannot be opened.
            LogError: If a file is damaged.
        """
        about = Evaluation.read(folder)
        jobs = kept_rows(about)
        numbers = ("score", "forward", "backward", "log_odds")
        pairs = kept_lines(about, PAIRS_NAME, ("query", "run", "a", "b"), numbers)
        similar = kept_lines(about, SIMILAR_NAME, ("method", "query", "run_a", "run_b"), ("score",))
        strange = jobs.strange + pairs.strange + similar.strange
        return cls(about, jobs.rows, pairs.rows, similar.rows, embedder, strange)

    # ---------------------------------------------------------------- tables

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """One row for each job that is done."""
        return frames.frame("jobs", frames.job_cells(self.about, self.rows))

    @cached_property
    def ratings(self) -> pd.DataFrame:
        """One row for each rating of an answer."""
        return frames.frame("ratings", frames.rating_cells(self.about, self.rows), frames.score_columns(self.about))

    @cached_property
    def groups(self) -> pd.DataFrame:
        """One row for each method, query and group of runs, with its diversity or why it has none."""
        return frames.frame("groups", frames.group_cells(self.group_rows))

    @cached_property
    def queries(self) -> pd.DataFrame:
        """One row for each method and query."""
        return frames.frame("queries", frames.query_cells(self.about, self.query_rows))

    @cached_property
    def methods(self) -> pd.DataFrame:
        """One row for each method: the summary."""
        return frames.frame("methods", frames.method_cells(self.method_rows, self.front))

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """One row for each comparison of two methods on one query."""
        return frames.frame("pairs", self.pair_lines)

    @cached_property
    def similar(self) -> pd.DataFrame:
        """One row for each pair of answers of one method to one query that was graded."""
        return frames.frame("similar", self.similar_lines)

    @cached_property
    def tests(self) -> pd.DataFrame:
        """Paired tests of every method against the baseline; empty if there is no baseline."""
        return frames.frame("tests", frames.test_cells(self.test_rows))

    def against(self, baseline: str) -> pd.DataFrame:
        """Return the paired tests of every method against another baseline.

        Raises:
            UserError: If there is no such method.
        """
        if baseline not in self.about.methods:
            todo = f"Give one of {', '.join(self.about.methods)}."
            raise UserError(f"The baseline {baseline!r} is none of the methods", todo=todo)
        return frames.frame("tests", frames.test_cells(tested(self.query_rows, baseline)))

    @cached_property
    def wins(self) -> pd.DataFrame:
        """How often the method of a row beat that of a column, a tie counting half; NaN if they never met."""
        return self._matrix(win_rates([(a, b, score) for a, b, _, score in decided(self.pair_lines)]))

    @cached_property
    def comparisons(self) -> pd.DataFrame:
        """On how many decided comparisons each cell of ``wins`` rests."""
        met = Counter(pair for a, b, _, _ in decided(self.pair_lines) for pair in ((a, b), (b, a)))
        counts = {a: {b: float(met[a, b]) for b in self.about.methods} for a in self.about.methods}
        return self._matrix(counts).astype("int64")

    def _matrix(self, values: Mapping[str, Mapping[str, float]]) -> pd.DataFrame:
        import pandas as pd

        names = list(self.about.methods)
        cells = [[values.get(a, {}).get(b) for b in names] for a in names]
        return pd.DataFrame(cells, index=names, columns=names, dtype="float64")

    # ---------------------------------------------------------------- the same as typed rows

    @cached_property
    def group_rows(self) -> list[Group]:
        """The groups."""
        return groups_of(self.rows, self.about, self._embedder or Embedder(self.about.embedder))

    @cached_property
    def query_rows(self) -> list[QueryRow]:
        """Methods by queries."""
        return query_rows(self.about, self.rows, self.group_rows, self.pair_lines)

    @cached_property
    def method_rows(self) -> list[MethodRow]:
        """The methods."""
        return method_rows(self.about, self.rows, self.query_rows, self.pair_lines)

    @cached_property
    def test_rows(self) -> list[Tested]:
        """The paired tests."""
        return tested(self.query_rows, self.about.baseline) if self.about.baseline in self.about.methods else []

    # ---------------------------------------------------------------- what else is asked of it

    @cached_property
    def front(self) -> list[str]:
        """Methods on the Pareto front: none has a higher quality and Vendi score, or one higher and the other equal."""
        return pareto(self.method_rows)

    @property
    def answered(self) -> int:
        """How many answers there are."""
        return sum(map(answered, self.rows))

    @cached_property
    def judge_spent(self) -> Usage:
        """What the judges cost."""
        return judge_usage(self.about, self.rows)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """What is known of the judges (see ``diagnostics``)."""
        return diagnose([vars(row) for row in self.rows], self.pair_lines)

    @cached_property
    def liveidea(self) -> dict[str, LiveIdeaScores]:
        """LiveIdeaBench's five scores by method; empty where the rubric is another, or nothing was judged."""
        if self.about.rubric.name != "liveideabench" or not self.about.judges:
            return {}
        found = liveidea_scores([vars(row) for row in self.rows], self.similar_lines)
        return {name: found[name] for name in self.about.methods if name in found}

    @cached_property
    def notes(self) -> list[str]:
        """What a reader must know of gaps and limits, in sentences."""
        return notes(self)

    def best(self, n: int = 5) -> list[Judged]:
        """Return the answers rated best, best first."""
        return ranked(self.about, self.rows)[:n]

    def worst(self, n: int = 5) -> list[Judged]:
        """Return the answers rated worst, worst first."""
        return ranked(self.about, self.rows, best=False)[:n]

    def markdown(self) -> str:
        """Return the tables with what must be known to read them, for a terminal or a document."""
        return markdown(self)

    def to_csv(self, folder: str | Path) -> list[Path]:
        """Write ``methods.csv``, ``queries.csv`` and ``jobs.csv``, safe to open in a spreadsheet; return their paths.

        Raises:
            OutputError: If one cannot be written.
        """
        return write_csv(self, Path(folder))

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain JSON values, without the single jobs; what is undefined is null."""
        return as_json(self)
