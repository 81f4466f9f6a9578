"""What an evaluation shows of its judges, and LiveIdeaBench's scores, as tables of texts and in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

from .agreement import Agreement
from .diagnostics import Diagnosis, JudgeCheck
from .liveideabench import LiveIdeaScores
from .result_format import interval
from .scales import MISSING
from .statistics import FEW, Interval

__all__ = ["JUDGE_HEAD", "LIVEIDEA_HEAD", "judge_cells", "judge_notes", "liveidea_cells"]

JUDGE_HEAD = ("judge", "ratings", "failed", "from", "commonest", "spread", "with others", "first place", "kept")
LIVEIDEA_HEAD = ("method", *(field.name for field in fields(LiveIdeaScores)))
_HOW = ("logprobs", "integers")
_ALIKE = 0.8  # share of one value from which a judge is said to tell answers badly apart
_OFTEN = 0.1  # share of failed ratings from which it is told


def judge_cells(diagnosis: Diagnosis) -> list[list[str]]:
    """Return a row for each judge, in the columns of ``JUDGE_HEAD``."""
    return [_cells(check) for check in diagnosis.judges]


def _cells(check: JudgeCheck) -> list[str]:
    share, places = check.share.value, check.places
    return [
        check.judge,
        f"{check.failed.n:,}",
        _percent(check.failed),
        ", ".join(how for how in _HOW if check.how.get(how)) or MISSING,
        MISSING if share is None else f"{check.commonest} in {100 * share:.0f} %",
        interval(check.deviation),
        interval(_interval(check.others)),
        interval(places.first) if places else MISSING,
        interval(places.kept) if places else MISSING,
    ]


def _percent(found: Interval) -> str:
    return MISSING if found.value is None else f"{100 * found.value:.0f} %"


def _interval(found: Agreement) -> Interval:
    return Interval(found.value, found.low, found.high, found.n)


def judge_notes(diagnosis: Diagnosis) -> list[str]:
    """Return in sentences how far judges agree, and what gives one away."""
    told = [note for check in diagnosis.judges for note in _suspicions(check)]
    if diagnosis.alpha.n:
        alpha = f"Krippendorff's alpha of the judges: {_told(diagnosis.alpha)}"
        return [f"{alpha}; 1 is perfect agreement in value, 0 that of chance.", *told]
    return told


def _told(found: Interval) -> str:
    """Write a value with its interval in a sentence."""
    if found.value is None or found.low is None or found.high is None:
        return interval(found)
    return f"{found.value:.2f}, 95 % {found.low:.2f} to {found.high:.2f}, n = {found.n:,}"


def _suspicions(check: JudgeCheck) -> Iterator[str]:
    share, failed, others = check.share, check.failed, check.others
    if share.value is not None and share.value >= _ALIKE and share.n >= FEW:
        yield (
            f"{check.judge} gives {check.commonest} in {100 * share.value:.0f} % of {share.n:,} ratings: it hardly "
            "tells answers apart."
        )
    if failed.value is not None and failed.value >= _OFTEN:
        yield f"{check.judge} failed in {100 * failed.value:.0f} % of {failed.n:,} ratings."
    if others.low is not None and others.low <= 0:
        yield (
            f"That {check.judge} ranks answers as the other judges do is not shown "
            f"({_told(_interval(others))}): one of them may rate at random."
        )
    if check.places is not None and (lean := _lean(check.places.first)):
        first = check.places.first
        yield f"{check.judge} prefers the answer that stands {lean} ({_told(first)}; 0.50 is no preference)."


def _lean(first: Interval) -> str:
    """Return the place that a judge prefers, if it clearly does."""
    if first.low is None or first.high is None:
        return ""
    return "first" if first.low > 0.5 else "second" if first.high < 0.5 else ""


def liveidea_cells(scores: Mapping[str, LiveIdeaScores]) -> list[list[str]]:
    """Return a row for each method, in the columns of ``LIVEIDEA_HEAD``."""
    return [
        [method, *(interval(getattr(found, name)) for name in LIVEIDEA_HEAD[1:])] for method, found in scores.items()
    ]
