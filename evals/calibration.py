"""A judge held against people: does it rank labelled solutions as their labels do?

A sample of the solutions is drawn, as many of each label as there are to have, so that every step of the scale is
there; with a higher limit and the same seed the sample only grows. Solutions whose label has no score are left
out, and so are those to problems known to have no solution: a rubric rates solutions, and there the right answer is
none. Each solution is rated by every judge of the panel, and its value is the mean over them.

Two numbers say how well the judge does, for each dimension and for the mean: Spearman's rank correlation with the
labels, and the share of pairs with different labels that it puts in the right order (a tie counts half; chance is
0.5), over all pairs and within one problem. Problems are what the interval of that share draws anew. Ratings that
failed are counted and left out.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from salon.errors import UserError

from ..modules.budget import Budget
from ..modules.streams import stream
from .agreement import Agreement
from .judges import Rated, RubricJudge
from .ledger import Ledger, together
from .ordering import Ordering, ordering
from .statistics import FEW, Interval, share_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Calibration", "calibrate", "calibration_markdown", "draw_labels"]


@dataclass(frozen=True)
class Calibration:
    """A judge held against labels.

    Attributes:
        rubric: Name of the rubric.
        models: The judges' models.
        n: Solutions that were rated and have a label.
        labels: How many of them have each label.
        left_out: Solutions of the file that could not be used, by reason.
        failed: Share of ratings that failed.
        errors: Reasons, with how often.
        how: Ratings by where their scores come from: ``logprobs`` or ``integers``.
        mean: The rubric's score, mean over the judges.
        dimensions: Each dimension, mean over the judges.
        judges: The rubric's score of each judge alone, where there are several.
        rows: Each solution: id, task, label, score (of the label), value and ratings.
        usd: What the judges cost, earlier runs in the folder included; None if unknown.
    """

    rubric: str
    models: list[str]
    n: int
    labels: dict[str, int]
    left_out: dict[str, int]
    failed: Interval
    errors: dict[str, int]
    how: dict[str, int]
    mean: Ordering
    dimensions: dict[str, Ordering]
    judges: dict[str, Ordering]
    rows: list[dict[str, Any]]
    usd: float | None


def draw_labels(labels: pd.DataFrame, limit: int | None, seed: int = 0) -> pd.DataFrame:
    """Return a sample of labelled solutions with as many of each label as there are to have, in the file's order.

    Args:
        labels: What ``salon.data.load_labels`` returns.
        limit: Solutions at most; None takes all.
        seed: Of the draw. The sample of a lower limit is part of that of a higher one.

    Raises:
        UserError: If the limit is below 2, or fewer than two usable solutions are there.
    """
    if limit is not None and (isinstance(limit, bool) or limit < 2):
        raise UserError(f"limit={limit!r} is not possible", "two solutions are the least that can be compared")
    usable = labels[_usable(labels)]
    if len(usable) < 2:
        raise UserError("There are no labels to calibrate against", f"{len(usable)} usable solutions are in the file")
    queues = []
    for label in sorted(set(usable["label"])):
        places = list(usable.index[usable["label"] == label])
        stream(seed, "labels", label).shuffle(places)
        queues.append(places)
    order = [place for turn in itertools.zip_longest(*queues) for place in turn if place is not None]
    return usable.loc[sorted(order[:limit])]


def _usable(labels: pd.DataFrame) -> pd.Series[bool]:
    return labels["score"].notna() & labels["solvable"].fillna(True).astype(bool)


async def calibrate(
    labels: pd.DataFrame,
    judge: RubricJudge,
    *,
    out: str | Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    budget: Budget | None = None,
    max_concurrency: int = 32,
    tell: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Have labelled solutions rated, and return how well the ratings go with the labels.

    Args:
        labels: What ``salon.data.load_labels`` returns.
        judge: The judge; all of its LMs rate each solution, unless it draws some.
        out: Folder of the judge's calls; what is there is not asked again. None keeps them in memory.
        limit: Solutions at most; None takes all.
        seed: Decides which are drawn.
        budget: Hard limits.
        max_concurrency: Calls in flight at most.
        tell: Told in a line what is done.

    Raises:
        UserError: If there is nothing to compare, or the folder holds something else.
        CallFailure: If no call can succeed (model name, key).
    """
    drawn = draw_labels(labels, limit, seed)
    limits, folder = asyncio.Semaphore(max_concurrency), Path(out) / "judge" if out is not None else None
    done = 0
    tell(f"Judging {len(drawn)} of {len(labels)} labelled solutions")
    with Ledger(folder, "calibration", judge.lms, seed, budget, limits, temperature=0.0) as ledger:

        async def one(place: Any, task: str, solution: str) -> list[Rated]:
            nonlocal done
            rated = await judge.rate(ledger, f"{place}", task, solution)
            done += 1
            if done % 10 == 0:
                tell(f"{done} of {len(drawn)} solutions judged")
            return rated

        rated = await together(one(at, row["task"], row["solution"]) for at, row in drawn.iterrows())
        spent = ledger.spent
    rows = [_row(row, ratings) for (_, row), ratings in zip(drawn.iterrows(), rated, strict=True)]
    counts = {
        "the label has no score": int(labels["score"].isna().sum()),
        "the problem has no solution": int((labels["score"].notna() & ~_usable(labels)).sum()),
    }
    left_out = {reason: n for reason, n in counts.items() if n}
    return _calibration(judge, rows, left_out, None if spent.unpriced else spent.usd, seed)


def _row(solution: Any, ratings: Sequence[Rated]) -> dict[str, Any]:
    known = [rating.value for rating in ratings if rating.value is not None]
    return {
        **{column: str(solution[column]) for column in ("id", "task", "label")},
        "score": float(solution["score"]),
        "value": sum(known) / len(known) if known else None,
        "ratings": [vars(rating).copy() for rating in ratings],
    }


def _calibration(
    judge: RubricJudge, rows: list[dict[str, Any]], left_out: dict[str, int], usd: float | None, seed: int
) -> Calibration:
    ratings = [rating for row in rows for rating in row["ratings"]]
    rated = [row for row in rows if row["value"] is not None]
    models = list(dict.fromkeys(str(lm.model) for lm in judge.lms.values()))

    def over(read: Callable[[dict[str, Any]], float | None], of: Callable[[str], bool] = lambda _: True) -> Ordering:
        scores = [_mean([read(rating) for rating in row["ratings"] if of(rating["judge"])]) for row in rows]
        return ordering(scores, [row["score"] for row in rows], [row["task"] for row in rows], seed)

    def dimension(name: str) -> Ordering:
        return over(lambda rating: rating["scores"].get(name))

    return Calibration(
        rubric=judge.rubric.name,
        models=models,
        n=len(rated),
        labels=dict(sorted(Counter(row["label"] for row in rated).items())),
        left_out=left_out,
        failed=share_interval(sum(rating["value"] is None for rating in ratings), len(ratings)),
        errors=dict(Counter(rating["error"] for rating in ratings if rating["error"]).most_common()),
        how=dict(Counter(rating["how"] for rating in ratings if rating["how"])),
        mean=over(lambda rating: rating["value"]),
        dimensions={known.name: dimension(known.name) for known in judge.rubric.dimensions},
        judges={m: over(lambda rating: rating["value"], m.__eq__) for m in models} if len(models) > 1 else {},
        rows=rows,
        usd=usd,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def calibration_markdown(found: Calibration) -> str:
    """Return a calibration as Markdown: a table of its numbers and what they come to."""
    judged = ", ".join(f"{n} {label}" for label, n in found.labels.items())
    scored = ", ".join(f"{n} by {how}" for how, n in found.how.items()) or "none"
    lines = [
        f"# {' + '.join(found.models)} against labels",
        "",
        f"Rubric {found.rubric}; {found.n} solutions ({judged or 'none'}); ratings: {scored}; failed {found.failed}.",
        "",
        "| score | rank correlation | pairs in the right order | within one problem |",
        "|---|---|---|---|",
    ]
    named = {"mean": found.mean, **found.dimensions, **{f"mean, {m} alone": o for m, o in found.judges.items()}}
    lines += [f"| {name} | {_ranks(o.ranks)} | {o.pairs} | {o.within} |" for name, o in named.items()]
    lines += ["", verdict(found), ""]
    lines += [f"Left out because {reason}: {n}." for reason, n in found.left_out.items()]
    lines += [f"Failed {n}x: {' '.join(error.split())[:160]}" for error, n in list(found.errors.items())[:5]]
    lines += ["", "95 % intervals: bootstrap, over problems for pairs; Wilson for failures. Chance is 0 and 0.5."]
    return "\n".join(lines) + "\n"


def verdict(found: Calibration) -> str:
    """Return in a sentence what the calibration comes to."""
    ranks, pairs = found.mean.ranks, found.mean.pairs
    if ranks.value is None:
        return f"Nothing can be said of the judge: {ranks.undefined}."
    if found.n < FEW:
        return f"{found.n} solutions are too few to say anything of the judge."
    if ranks.low is not None and ranks.low > 0:
        right = f"; of two solutions it puts {pairs.value:.0%} in the right order" if pairs.value is not None else ""
        return f"The judge goes with the labels: rank correlation {_ranks(ranks)}{right}."
    if ranks.high is not None and ranks.high < 0:
        return f"The judge goes against the labels: rank correlation {_ranks(ranks)}."
    return f"The judge cannot be told from chance: rank correlation {_ranks(ranks)}."


def _ranks(found: Agreement) -> str:
    return str(Interval(found.value, found.low, found.high, found.n))
