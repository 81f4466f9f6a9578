"""Scatter plots with labels, intervals and the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from .drawing import (
    BOTTOM,
    CHARACTER,
    COLOURS,
    HEIGHT,
    LEFT,
    RIGHT,
    WIDTH,
    Key,
    empty,
    figure,
    frame,
    legend,
    mark,
    svg,
)
from .markup import element
from .scales import Scale, finite, number

__all__ = ["Dot", "End", "scatter"]

End = Literal["high", "low"]
_HEIGHT = HEIGHT + 60


@dataclass(frozen=True)
class Dot:
    """A point of a scatter plot with its intervals; dots of a group share colour and shape.

    The label of one that is not ``named`` shows when it is pointed at.
    """

    label: str
    x: float | None
    y: float | None
    x_interval: tuple[float, float] | None = None
    y_interval: tuple[float, float] | None = None
    group: str = ""
    named: bool = True


def scatter(
    title: str,
    dots: Sequence[Dot],
    *,
    x: str = "",
    y: str = "",
    better: tuple[End, End] | None = None,
    note: str = "",
) -> Markup:
    """Return a scatter plot with labels and intervals.

    Args:
        title: What it shows.
        dots: Its points; those without an x or a y are named under the chart.
        x: Label of the x axis.
        y: Label of the y axis.
        better: Which end of x and of y is better; draws the Pareto front of the dots.
        note: A sentence under the title.
    """
    shown = [dot for dot in dots if finite(dot.x) is not None and finite(dot.y) is not None]
    if not shown:
        return empty(title)
    top = 24.0
    across = Scale.over([v for d in shown for v in (d.x, *(d.x_interval or ()))], LEFT, WIDTH - RIGHT)
    up = Scale.over([v for d in shown for v in (d.y, *(d.y_interval or ()))], _HEIGHT - BOTTOM, top)
    groups = list(dict.fromkeys(dot.group for dot in shown))
    parts = [frame(across, up, x, y, _HEIGHT)]
    if better is not None:
        parts.append(_front(shown, better, across, up))
    labels = _Labels()
    placed = [(across.at(d.x or 0.0), up.at(d.y or 0.0)) for d in shown]
    for dot, (px, py) in zip(shown, placed, strict=True):
        labels.keep_free(
            px,
            py,
            dot.x_interval and [*map(across.at, dot.x_interval)],
            dot.y_interval and [*map(up.at, dot.y_interval)],
        )
    for dot, (px, py) in zip(shown, placed, strict=True):
        parts.append(_dot(dot, px, py, groups.index(dot.group), across, up))
        if dot.named:
            parts.append(labels.put(dot.label, px, py))
    missing = [dot.label for dot in dots if dot not in shown]
    note = " ".join(filter(None, (note, f"Without a value: {', '.join(missing)}." if missing else "")))
    told = "; ".join(f"{d.label}: {number(d.x)}, {number(d.y)}" for d in shown)
    keys = legend([Key(name, place) for place, name in enumerate(groups) if name])
    return figure(title, svg(title, told, parts, _HEIGHT), note, keys)


def _dot(dot: Dot, px: float, py: float, group: int, across: Scale, up: Scale) -> Markup:
    colour = group % COLOURS
    parts = []
    if dot.x_interval is not None:
        a, b = map(across.at, dot.x_interval)
        parts.append(element("path", d=f"M{a:.1f} {py:.1f}H{b:.1f}", class_=f"interval s{colour}"))
    if dot.y_interval is not None:
        a, b = map(up.at, dot.y_interval)
        parts.append(element("path", d=f"M{px:.1f} {a:.1f}V{b:.1f}", class_=f"interval s{colour}"))
    tip = element("title", f"{dot.label}: {number(dot.x)}, {number(dot.y)}")
    return element("g", *parts, element("path", tip, d=mark(group, px, py, 5), class_=f"mark s{colour}"))


def _front(dots: Sequence[Dot], better: tuple[End, End], across: Scale, up: Scale) -> Markup:
    """Return the line through the dots that no other dot beats in both directions."""
    right, upper = (1 if end == "high" else -1 for end in better)
    points = sorted({(right * (d.x or 0.0), upper * (d.y or 0.0)) for d in dots}, reverse=True)
    front: list[tuple[float, float]] = []
    for x, y in points:
        if not front or y > front[-1][1]:
            front.append((x, y))
    path = "L".join(f"{across.at(right * x):.1f} {up.at(upper * y):.1f}" for x, y in front)
    return element("path", element("title", "Pareto front"), d=f"M{path}", class_="front")


class _Labels:
    """Puts labels beside their dots where they cover no dot, interval or other label, if there is room."""

    def __init__(self) -> None:
        self._taken: list[tuple[float, float, float, float]] = []

    def keep_free(self, x: float, y: float, across: Sequence[float] | None, up: Sequence[float] | None) -> None:
        """Reserve the place of a dot and of its intervals."""
        self._taken.append((x - 6, y - 6, x + 6, y + 6))
        if across:
            self._taken.append((min(across), y - 1, max(across), y + 1))
        if up:
            self._taken.append((x - 1, min(up), x + 1, max(up)))

    def put(self, label: str, x: float, y: float) -> Markup:
        """Return the label of a dot."""
        text = label if len(label) <= 28 else label[:27] + "…"
        width = CHARACTER * len(text)
        places = [
            (x + 9, y + 4, "start"),
            (x - 9, y + 4, "end"),
            (x, y - 10, "middle"),
            (x, y + 19, "middle"),
            (x + 9, y - 9, "start"),
            (x + 9, y + 17, "start"),
            (x - 9, y - 9, "end"),
            (x - 9, y + 17, "end"),
        ]
        boxes = [(self._box(px, py, anchor, width), px, py, anchor) for px, py, anchor in places]
        fitting = [place for place in boxes if self._free(place[0])]
        box, px, py, anchor = (fitting or boxes)[0]
        self._taken.append(box)
        return element("text", text, x=px, y=py, text_anchor=anchor, class_="label")

    @staticmethod
    def _box(x: float, y: float, anchor: str, width: float) -> tuple[float, float, float, float]:
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        return left, y - 10, left + width, y + 3

    def _free(self, box: tuple[float, float, float, float]) -> bool:
        left, top, right, bottom = box
        if left < LEFT or right > WIDTH:
            return False
        return not any(left < r and right > le and top < b and bottom > t for le, t, r, b in self._taken)
