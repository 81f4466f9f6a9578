"""How the numbers of an evaluation are named and written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .scales import MISSING
from .statistics import Interval

__all__ = ["DIGITS", "NAMES", "count", "interval", "p_value", "table", "usd"]

NAMES = {
    "quality": "quality",
    "vendi": "Vendi score",
    "distance": "distance",
    "div_bleu": "Div-BLEU",
    "gated": "gated Vendi",
    "win_rate": "win rate",
}
DIGITS = {"quality": 2, "vendi": 2, "distance": 3, "div_bleu": 1, "gated": 2, "win_rate": 2}


def interval(found: Interval, digits: int = 2) -> str:
    """Write a mean with its interval and, in brackets, the number of values it rests on."""
    if found.value is None:
        return MISSING
    ends = (
        f" [{found.low:.{digits}f}, {found.high:.{digits}f}]"
        if found.low is not None and found.high is not None
        else ""
    )
    return f"{found.value:.{digits}f}{ends} ({found.n})"


def usd(value: float | None) -> str:
    """Write an amount of money."""
    if value is None:
        return "unknown"
    return f"${value:.4f}" if value < 1 else f"${value:,.2f}"


def p_value(p: float | None) -> str:
    """Write a p value."""
    return MISSING if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return a Markdown table, its first column to the left and all others to the right; then an empty line."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return [f"| {' | '.join(str(cell) for cell in line)} |" for line in lines] + [""]


def count(n: int, one: str, many: str = "") -> str:
    """Write a number of things."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
