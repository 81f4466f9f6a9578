"""Line charts with borders and thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .drawing import (
    BOTTOM,
    COLOURS,
    HEIGHT,
    LEFT,
    RIGHT,
    ROW,
    WIDTH,
    Key,
    borders_of,
    empty,
    figure,
    frame,
    legend,
    mark,
    svg,
)
from .markup import element
from .scales import Scale, finite, number

__all__ = ["Level", "Series", "lines"]

_MOST_MARKED = 40  # points of a line up to which each gets a mark


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes:
        name: What it shows.
        points: (x, y) in order of x; a y of None leaves a gap.
        step: Whether y holds until the next point, as for counts.
        planned: Whether it is a plan or a limit, drawn thinner and dashed.
        colour: Which colour it takes; by default its place among the series.
    """

    name: str
    points: Sequence[tuple[float, float | None]]
    step: bool = False
    planned: bool = False
    colour: int | None = None


@dataclass(frozen=True)
class Level:
    """A line across a chart with a label: a border on the x axis, or a threshold on the y axis."""

    at: float
    label: str


def lines(
    title: str,
    series: Sequence[Series],
    *,
    x: str = "",
    y: str = "",
    borders: Sequence[Level] = (),
    levels: Sequence[Level] = (),
    low: float | None = 0.0,
    high: float | None = None,
    whole: str = "",
    note: str = "",
) -> Markup:
    """Return a line chart.

    Args:
        title: What it shows.
        series: Its lines.
        x: Label of the x axis.
        y: Label of the y axis.
        borders: Labelled vertical lines, such as the begin of phases.
        levels: Labelled horizontal lines, such as thresholds.
        low: What the y axis reaches down to at least; None for the data's own minimum.
        high: What the y axis reaches up to at least.
        whole: Axes whose ticks are whole numbers: ``x``, ``y`` or ``xy``.
        note: A sentence under the title.
    """
    drawn = [[(px, py) for px, py in line.points if finite(px) is not None] for line in series]
    xs = [px for points in drawn for px, _ in points] + [b.at for b in borders]
    ys = [py for points in drawn for _, py in points]
    if all(finite(v) is None for v in ys):
        return empty(title)
    across = Scale.over(xs, LEFT, WIDTH - RIGHT, exact=True, whole="x" in whole)
    marked, rows = borders_of([(across.at(border.at), border.label) for border in borders], 28.0, HEIGHT - BOTTOM)
    top = 24.0 + ROW * rows
    up = Scale.over([*ys, *(v.at for v in levels)], HEIGHT - BOTTOM, top, low=low, high=high, whole="y" in whole)
    parts = [frame(across, up, x, y)]
    parts += marked
    parts += [_level(up.at(v.at), v.label) for v in levels]
    for place, (line, points) in enumerate(zip(series, drawn, strict=True)):
        parts.append(_line(line, points, place, across, up))
    told = "; ".join(_told(line, points) for line, points in zip(series, drawn, strict=True))
    keys = [
        Key(s.name, place if s.colour is None else s.colour, line=True, planned=s.planned)
        for place, s in enumerate(series)
    ]
    return figure(title, svg(title, told, parts), note, legend(keys))


def _level(py: float, label: str) -> Markup:
    line = element("path", d=f"M{LEFT:g} {py:.1f}H{WIDTH - RIGHT:g}", class_="level")
    return element("g", line, element("text", label, x=WIDTH - RIGHT, y=py - 4, text_anchor="end", class_="border"))


def _line(line: Series, points: Sequence[tuple[float, float | None]], place: int, across: Scale, up: Scale) -> Markup:
    colour = (place if line.colour is None else line.colour) % COLOURS
    path, pen = [], False
    marks = []
    few = sum(y is not None for _, y in points) <= _MOST_MARKED
    for px, py in points:
        value = finite(py)
        if value is None:
            pen = False
            continue
        x, y = across.at(px), up.at(value)
        path.append((f"H{x:.1f}V{y:.1f}" if line.step else f"L{x:.1f} {y:.1f}") if pen else f"M{x:.1f} {y:.1f}")
        pen = True
        if few and not line.planned and (not line.step or len(points) == 1):
            tip = element("title", f"{line.name}: {number(value)} at {number(px)}")
            marks.append(element("path", tip, d=mark(colour, x, y), class_=f"mark s{colour}"))
    kind = "planned" if line.planned else f"d{colour}"
    return element("g", element("path", d="".join(path), class_=f"line s{colour} {kind}"), *marks)


def _told(line: Series, points: Sequence[tuple[float, float | None]]) -> str:
    known = [(x, y) for x, y in points if finite(y) is not None]
    if not known:
        return f"{line.name}: no data"
    (x0, y0), (x1, y1) = known[0], known[-1]
    return f"{line.name}: from {number(y0)} at {number(x0)} to {number(y1)} at {number(x1)}"
