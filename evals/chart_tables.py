"""Bars and matrices as tables: their numbers can be read, copied and heard."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .drawing import empty
from .markup import element, scroll_box
from .scales import MISSING, Scale, finite, number

__all__ = ["Bar", "bars", "heat"]

_MANY = 6  # columns of a matrix from which on it takes the whole width of the page


@dataclass(frozen=True)
class Bar:
    """A bar of a chart; ``low`` and ``high`` are the ends of its interval."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""


def bars(
    title: str, items: Sequence[Bar], *, head: str = "", unit: str = "value", note: str = "", digits: int = 3
) -> Markup:
    """Return horizontal bars as a table whose cells hold the numbers, with intervals where there are any.

    Args:
        title: Its caption.
        items: The bars, from the top down.
        head: What the labels are.
        unit: What the numbers are.
        note: A sentence under the title.
        digits: Digits of the numbers.
    """
    if not items:
        return empty(title)
    ends = [v for item in items for v in (item.value, item.low, item.high)]
    scale = Scale.over(ends, 0.0, 100.0, low=0.0)
    top = element("tr", *(element("th", text, scope="col") for text in (head, unit)), element("td", aria_hidden="true"))
    rows = []
    for item in items:
        told = number(item.value, digits)
        if finite(item.low) is not None and finite(item.high) is not None:
            told += f" [{number(item.low, digits)}, {number(item.high, digits)}]"
        label = element("th", element("bdi", item.label), scope="row", title=item.note or None)
        drawn = element("td", _bar(item, scale), class_="bar", aria_hidden="true")
        rows.append(element("tr", label, element("td", told, class_="num"), drawn))
    return _figure(title, note, element("thead", top), element("tbody", *rows), "bars")


def heat(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    matrix: Sequence[Sequence[float | None]],
    *,
    low: float = 0.0,
    high: float = 1.0,
    digits: int = 2,
    flagged: Collection[tuple[int, int]] = (),
    flag: str = "flagged",
    note: str = "",
) -> Markup:
    """Return a matrix as a table whose cells are shaded by their numbers.

    Args:
        title: Its caption.
        rows: Label of each row.
        columns: Label of each column, short.
        matrix: The numbers; None is shown as a dash.
        low: The number of the faintest shade.
        high: The number of the strongest shade.
        digits: Decimals.
        flagged: Cells (row, column) that are marked.
        flag: What the mark means.
        note: A sentence under the title.
    """
    if not rows or not columns:
        return empty(title)
    head = element("tr", element("td"), *(element("th", element("bdi", name), scope="col") for name in columns))
    body = []
    for i, (name, values) in enumerate(zip(rows, matrix, strict=True)):
        cells = []
        for j, value in enumerate(values):
            known = finite(value)
            shade = f"h{_shade(known, low, high)}" if known is not None else "none"
            marked = (i, j) in flagged
            sign = (element("span", "●", title=flag), element("span", f" {flag}", class_="hidden")) if marked else ()
            text = MISSING if known is None else f"{known:.{digits}f}"
            cells.append(element("td", text, *sign, class_=f"{shade} flagged" if marked else shade))
        body.append(element("tr", element("th", element("bdi", name), scope="row"), *cells))
    wide = len(columns) > _MANY
    return _figure(title, note, element("thead", head), element("tbody", *body), "heat", wide)


def _figure(title: str, note: str, head: Markup, body: Markup, kind: str, wide: bool = False) -> Markup:
    """Return a table in a box of its own, with a caption that stays where it is while the table is scrolled."""
    shown = element("figcaption", title, element("small", note) if note else "", aria_hidden="true")
    table = element("table", element("caption", f"{title}. {note}".strip(), class_="hidden"), head, body, class_=kind)
    return element("figure", shown, scroll_box(title, table), class_="chart wide" if wide else "chart")


def _bar(item: Bar, scale: Scale) -> Markup:
    """Return the drawing of one bar, stretched to the width of its cell."""
    value = finite(item.value)
    parts = []
    if value is not None:
        zero, end = scale.at(0.0), scale.at(value)
        parts.append(element("rect", x=min(zero, end), y=2, width=abs(end - zero), height=10, class_="bar"))
    if (low := finite(item.low)) is not None and (high := finite(item.high)) is not None:
        a, b = scale.at(low), scale.at(high)
        parts.append(element("path", d=f"M{a:.1f} 7H{b:.1f}M{a:.1f} 4v6M{b:.1f} 4v6", class_="interval"))
    return element("svg", *parts, viewbox="0 0 100 14", preserveaspectratio="none", aria_hidden="true")


def _shade(value: float, low: float, high: float) -> int:
    """Return the shade of a number, 0 to 9."""
    span = high - low
    return min(9, max(0, math.floor((value - low) / span * 10))) if span > 0 else 0
