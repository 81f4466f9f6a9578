"""What the diagnostics of judges come to, in sentences: only what an interval excludes, and what rests on little."""

from __future__ import annotations

from collections.abc import Iterator

from .agreement import Agreement
from .diagnostics import Diagnosis, JudgeCheck, PlaceCheck
from .statistics import FEW, Interval

__all__ = ["judge_findings"]

_MOSTLY = 2 / 3  # share of values from which on a judge says nearly always the same
_FAILING = 0.05  # share of failures that is told


def judge_findings(diagnosis: Diagnosis) -> list[str]:
    """Return what is wrong with the judges, a sentence each; nothing where nothing is."""
    told = [sentence for check in diagnosis.judges for sentence in _of(check, len(diagnosis.pairs))]
    alpha = diagnosis.alpha
    if alpha.n >= FEW and alpha.low is not None and alpha.low <= 0:
        told.append(f"The panel agrees no more than chance would: Krippendorff's alpha {_shown(alpha)}.")
    for a, b, agreement in diagnosis.pairs:
        if len(diagnosis.pairs) == 1 and _chance(agreement):
            told.append(
                f"{a} and {b} do not rank answers alike ({_shown(agreement)}): at least one of them tells nothing, "
                "and a third judge, repeated ratings or labels would say which."
            )
    return told


def _of(check: JudgeCheck, pairs: int) -> Iterator[str]:
    judge = check.judge
    if check.failed.value is not None and check.failed.value > _FAILING:
        yield f"{judge} failed to rate: share {_shown(check.failed)}."
    if check.share.n and check.share.n < FEW:
        yield f"{judge} rated {check.share.n} answers: too few to know it."
    elif check.share.low is not None and check.share.low > _MOSTLY:
        spread = "" if not check.deviation.value else f"; standard deviation {_shown(check.deviation)}"
        yield f"{judge} says nearly always {check.commonest}: share {_shown(check.share)}{spread}."
    consistency = check.consistency
    if consistency.n >= FEW and consistency.low is not None and consistency.low <= 0:
        yield (
            f"{judge} rates the same answer again as differently as it rates different answers: share of variance "
            f"between answers {_shown(consistency)}, {_shown(check.gap)} points apart."
        )
    if pairs > 1 and _chance(check.others):
        yield f"{judge} ranks answers unlike the other judges: {_shown(check.others)}."
    if _chance(check.labels):
        yield f"{judge} ranks answers unlike the labels: {_shown(check.labels)}."
    if check.places is not None:
        yield from _placing(judge, check.places)


def _placing(judge: str, places: PlaceCheck) -> Iterator[str]:
    first, kept = places.first, places.kept
    if places.failed.value is not None and places.failed.value > _FAILING:
        yield f"{judge} failed to choose: share of pairs {_shown(places.failed)}."
    if first.low is not None and first.low > 0.5:
        yield f"{judge} prefers what stands first: share of choices {_shown(first)}."
    elif first.high is not None and first.high < 0.5:
        yield f"{judge} prefers what stands second: share of choices for the first {_shown(first)}."
    if kept.n >= FEW and kept.low is not None and kept.low <= 0.5:
        yield f"{judge} keeps a choice no more often than chance when the answers change places: {_shown(kept)}."


def _chance(agreement: Agreement) -> bool:
    """Whether an agreement cannot be told from none, though there are values enough to tell."""
    return agreement.n >= FEW and agreement.low is not None and agreement.low <= 0


def _shown(found: Interval | Agreement) -> str:
    if found.low is None or found.high is None:
        return f"{found.value:.2f} (n={found.n})"
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}] (n={found.n})"
