"""Strips of ticks: when each of several people did something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .chart_lines import Level
from .drawing import CHARACTER, ROW, Key, borders_of, empty, figure, legend, mark, svg
from .markup import element
from .scales import Scale, tick_label

__all__ = ["Strip", "Tick", "strips"]

_LANE = 22.0
_WIDTH = 900.0
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
    across = Scale.over([*places, *(b.at for b in borders)], left + 10, _WIDTH - 14, low=0.0, exact=True, whole=True)
    labels = [(across.at(border.at), border.label) for border in borders]
    top = 8.0 + ROW * borders_of(labels, 0, 0, _WIDTH)[1]
    base = top + _LANE * len(rows)
    parts, _ = borders_of(labels, 12.0, base, _WIDTH)
    for place, row in enumerate(rows):
        parts.append(_row(row, kinds, across, left, top + _LANE * (place + 0.5)))
    parts.append(element("path", d=f"M{left:g} {base:g}H{_WIDTH - 14:g}", class_="axis"))
    for value in across.ticks:
        parts.append(element("text", tick_label(value), x=across.at(value), y=base + 15, text_anchor="middle"))
    if x:
        parts.append(element("text", x, x=left - 6, y=base + 15, text_anchor="end", class_="axis"))
    told = "; ".join(f"{row.label}: {len(row.ticks)}" for row in rows)
    keys = legend([Key(kind, place) for place, kind in enumerate(kinds)])
    return figure(title, svg(title, told, parts, base + 22, _WIDTH), note, keys, wide=True)


def _row(row: Strip, kinds: Sequence[str], across: Scale, left: float, y: float) -> Markup:
    label = row.label if len(row.label) <= _LONGEST else row.label[: _LONGEST - 1] + "…"
    marks = []
    for tick in row.ticks:
        kind = kinds.index(tick.kind)
        tip = element("title", tick.note) if tick.note else ""
        marks.append(element("path", tip, d=mark(kind, across.at(tick.at), y, 3.6), class_=f"mark s{kind}"))
    name = element("text", element("title", row.label), label, x=left - 6, y=y + 4, text_anchor="end")
    return element("g", name, element("path", d=f"M{left:g} {y:g}H{_WIDTH - 14:g}", class_="grid"), *marks)
