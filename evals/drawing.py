"""What all charts are made of: their frame, marks, legend and figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .markup import element, scroll_box
from .scales import Scale, tick_label

__all__ = [
    "BOTTOM",
    "CHARACTER",
    "COLOURS",
    "HEIGHT",
    "LEFT",
    "RIGHT",
    "ROW",
    "WIDTH",
    "Key",
    "borders_of",
    "empty",
    "figure",
    "frame",
    "legend",
    "mark",
    "svg",
]

COLOURS = 8
WIDTH, HEIGHT = 560.0, 250.0
LEFT, RIGHT, BOTTOM = 46.0, 14.0, 40.0
ROW = 14.0  # between two rows of labels
CHARACTER = 6.4  # width of a character of the charts' small text, in pixels
_SHAPES = 6  # marks with a shape of their own; more groups use them again


@dataclass(frozen=True)
class Key:
    """An entry of a legend: a name with the line or the mark it explains."""

    name: str
    colour: int
    line: bool = False
    planned: bool = False


def empty(title: str) -> Markup:
    """Return the figure of a chart that has nothing to show."""
    return element("figure", element("figcaption", title), element("p", "No data.", class_="empty"), class_="chart")


def figure(title: str, drawing: Markup, note: str, keys: Markup, wide: bool = False) -> Markup:
    """Return a drawing with its caption and legend; a wide one takes the whole width of the page."""
    caption = element("figcaption", title, element("small", note) if note else "")
    return element("figure", caption, keys, scroll_box(title, drawing), class_="chart wide" if wide else "chart")


def svg(title: str, told: str, parts: Iterable[Markup], height: float = HEIGHT, width: float = WIDTH) -> Markup:
    """Return the drawing; ``told`` is what a screen reader says of it."""
    return element(
        "svg",
        element("title", title),
        element("desc", told[:2000]),
        *parts,
        viewbox=f"0 0 {width:g} {height:g}",
        role="img",
        class_="plot",
    )


def frame(across: Scale, up: Scale, x: str, y: str, height: float = HEIGHT) -> Markup:
    """Return grid, ticks and axis labels."""
    base = height - BOTTOM
    parts = [element("text", y, x=2, y=11, class_="axis")] if y else []
    for value in up.ticks:
        py = up.at(value)
        parts.append(element("path", d=f"M{LEFT:g} {py:.1f}H{WIDTH - RIGHT:g}", class_="grid"))
        parts.append(element("text", tick_label(value), x=LEFT - 6, y=py + 4, text_anchor="end"))
    for value in across.ticks:
        px = across.at(value)
        parts.append(element("path", d=f"M{px:.1f} {base:g}v4", class_="axis"))
        parts.append(element("text", tick_label(value), x=px, y=base + 16, text_anchor="middle"))
    parts.append(element("path", d=f"M{LEFT:g} {base:g}H{WIDTH - RIGHT:g}", class_="axis"))
    if x:
        parts.append(element("text", x, x=(LEFT + WIDTH) / 2, y=height - 6, text_anchor="middle", class_="axis"))
    return element("g", *parts)


def mark(shape: int, x: float, y: float, r: float = 4.0) -> str:
    """Return the outline of a mark: circle, square, triangle, diamond, cross or triangle upside down."""
    match shape % _SHAPES:
        case 0:
            return f"M{x - r:.1f} {y:.1f}a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0z"
        case 1:
            return f"M{x - r:.1f} {y - r:.1f}h{2 * r:g}v{2 * r:g}h{-2 * r:g}z"
        case 2:
            return f"M{x:.1f} {y - 1.2 * r:.1f}l{1.2 * r:g} {2.1 * r:g}h{-2.4 * r:g}z"
        case 3:
            a = 1.4 * r
            return f"M{x:.1f} {y - a:.1f}l{a:g} {a:g}l{-a:g} {a:g}l{-a:g} {-a:g}z"
        case 4:
            a, b = 0.45 * r, 1.2 * r
            arm = b - a
            return (
                f"M{x - a:.1f} {y - b:.1f}h{2 * a:g}v{arm:g}h{arm:g}v{2 * a:g}h{-arm:g}v{arm:g}h{-2 * a:g}"
                f"v{-arm:g}h{-arm:g}v{-2 * a:g}h{arm:g}z"
            )
        case _:
            return f"M{x:.1f} {y + 1.2 * r:.1f}l{1.2 * r:g} {-2.1 * r:g}h{-2.4 * r:g}z"


def legend(keys: Sequence[Key]) -> Markup:
    """Return the legend."""
    return element("ul", *map(_entry, keys), class_="legend") if keys else Markup("")


def _entry(key: Key) -> Markup:
    colour = key.colour % COLOURS
    parts, width = [], 28 if key.line else 12
    if key.line:
        style = "planned" if key.planned else f"d{colour}"
        parts.append(element("path", d="M1 7H27", class_=f"line s{colour} {style}"))
    if not key.planned:
        parts.append(element("path", d=mark(key.colour, width / 2, 7), class_=f"mark s{colour}"))
    swatch = element("svg", *parts, viewbox=f"0 0 {width} 14", width=width, height=14, aria_hidden="true")
    return element("li", swatch, element("bdi", key.name))


def borders_of(
    places: Sequence[tuple[float, str]], y: float, base: float, right: float = WIDTH
) -> tuple[list[Markup], int]:
    """Return vertical lines with their labels, so that no two overlap, and how many rows the labels take.

    A label stands to the left of its line where there is no room to its right.

    Args:
        places: Pixel and label of each.
        y: Where the first row of labels stands.
        base: Where the lines end.
        right: The right end of the drawing.
    """
    taken: list[list[tuple[float, float]]] = []
    drawn = []
    for x, label in places:
        width = 8 + CHARACTER * len(label)
        turned = x + width - 4 > right
        start, end = (x - width, x) if turned else (x, x + width)
        row = next((n for n, spans in enumerate(taken) if all(end < a or b < start for a, b in spans)), len(taken))
        taken[row : row + 1] = [[*(taken[row] if row < len(taken) else []), (start, end)]]
        below = y + ROW * row
        line = element("path", d=f"M{x:.1f} {below - 9:g}V{base:g}", class_="border")
        at, anchor = (x - 4, "end") if turned else (x + 4, None)
        text = element("text", label, x=at, y=below, text_anchor=anchor, class_="border")
        drawn.append(element("g", line, text))
    return drawn, len(taken)
