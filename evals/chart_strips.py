"""Strips of ticks: when each of several people did something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .chart_lines import Level
from .drawing import CHARACTER, WIDTH, Key, empty, figure, legend, mark, svg
from .markup import element
from .scales import Scale, tick_label

__all__ = ["Strip", "Tick", "strips"]

_ROW = 22.0
_LONGEST = 24  # characters of a label that are shown


@dataclass(frozen=True)
class Tick:
    """Something that happened at a place of a strip; its kind decides colour and shape."""

    at: float
    kind: str
    note: str = ""


@dataclass(frozen=True)
class Strip:
    """One row: its label and its ticks."""

    label: str
    ticks: Sequence[Tick]


def strips(title: str, rows: Sequence[Strip], *, x: str = "", borders: Sequence[Level] = (), note: str = "") -> Markup:
    """Return a row of ticks for each strip.

    Args:
        title: What it shows.
        rows: The strips, from the top down.
        x: Label of the x axis.
        borders: Labelled vertical lines.
        note: A sentence under the title.
    """
    places = [tick.at for row in rows for tick in row.ticks]
    if not places:
        return empty(title)
    kinds = list(dict.fromkeys(tick.kind for row in rows for tick in row.ticks))
    left = 14 + CHARACTER * min(_LONGEST, max(len(row.label) for row in rows))
    top, base = 20.0, 20.0 + _ROW * len(rows)
    across = Scale.over([*places, *(b.at for b in borders)], left + 10, WIDTH - 14, low=0.0, exact=True, whole=True)
    parts = [_border(across.at(border.at), border.label, base) for border in borders]
    for place, row in enumerate(rows):
        parts.append(_row(row, kinds, across, left, top + _ROW * (place + 0.5)))
    parts.append(element("path", d=f"M{left:g} {base:g}H{WIDTH - 14:g}", class_="axis"))
    for value in across.ticks:
        parts.append(element("text", tick_label(value), x=across.at(value), y=base + 15, text_anchor="middle"))
    if x:
        parts.append(element("text", x, x=left - 6, y=base + 15, text_anchor="end", class_="axis"))
    told = "; ".join(f"{row.label}: {len(row.ticks)}" for row in rows)
    keys = legend([Key(kind, place) for place, kind in enumerate(kinds)])
    return figure(title, svg(title, told, parts, base + 22), note, keys)


def _row(row: Strip, kinds: Sequence[str], across: Scale, left: float, y: float) -> Markup:
    label = row.label if len(row.label) <= _LONGEST else row.label[: _LONGEST - 1] + "…"
    marks = []
    for tick in row.ticks:
        kind = kinds.index(tick.kind)
        tip = element("title", tick.note) if tick.note else ""
        marks.append(element("path", tip, d=mark(kind, across.at(tick.at), y, 3.6), class_=f"mark s{kind}"))
    name = element("text", element("title", row.label), label, x=left - 6, y=y + 4, text_anchor="end")
    return element("g", name, element("path", d=f"M{left:g} {y:g}H{WIDTH - 14:g}", class_="grid"), *marks)


def _border(px: float, label: str, base: float) -> Markup:
    line = element("path", d=f"M{px:.1f} 4V{base:g}", class_="border")
    at_end = px + CHARACTER * len(label) > WIDTH
    text = element(
        "text", label, x=px - 4 if at_end else px + 4, y=12, text_anchor="end" if at_end else None, class_="border"
    )
    return element("g", line, text)
