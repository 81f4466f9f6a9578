"""The lineage of a session as a drawing: order of creation from left to right, a lane for each author.

Every entity is a node whose shape tells its kind; a citation is a curve from the cited entity to the one that
cites it. The names of the lanes stay where they are while the drawing is scrolled. Ideas can be reached with
the keyboard. ``page.js`` lights the ancestors of the one that is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .drawing import CHARACTER, Key, legend, mark
from .markup import element, scroll_box

__all__ = ["Node", "lineage_chart"]

_LANE = 30.0
_TOP = 14.0
_LONGEST = 22  # characters of a lane's name that are shown
_ROOM = 860.0  # what the drawing fills where there are few nodes
_STEPS = (7.0, 48.0)  # least and greatest distance of two nodes
_CROPPED = {"preserveaspectratio": "xMinYMin slice"}  # on a narrow screen names are cut, not shrunk


@dataclass(frozen=True)
class Node:
    """An entity of a session.

    Attributes:
        id: Its id.
        lane: Its lane: its author.
        kind: What it is: decides its shape and colour.
        tip: What is shown of it when it is pointed at.
        cites: Ids of the nodes before it that it cites.
        choosable: Whether its ancestors can be shown from the drawing.
    """

    id: str
    lane: str
    kind: str
    tip: str
    cites: Sequence[str] = ()
    choosable: bool = False


def lineage_chart(title: str, lanes: Mapping[str, str], nodes: Sequence[Node], kinds: Sequence[str]) -> Markup:
    """Return the drawing with its legend.

    Args:
        title: What it shows.
        lanes: Names of the lanes by what nodes call them, from the top down.
        nodes: The entities in order of creation.
        kinds: All kinds, in the order of their shapes.
    """
    left = 20 + CHARACTER * min(_LONGEST, max(map(len, lanes.values()), default=0))
    step = min(_STEPS[1], max(_STEPS[0], (_ROOM - left) / max(len(nodes), 1)))
    lane_at = {lane: _TOP + _LANE * (row + 0.5) for row, lane in enumerate(lanes)}
    place = {node.id: (left + step * (n + 0.7), lane_at[node.lane]) for n, node in enumerate(nodes)}
    width, height = left + step * (len(nodes) + 1) + 10, _TOP + _LANE * len(lanes) + 10
    edges = [_edge(cited, node.id, place) for node in nodes for cited in node.cites if cited in place]
    names = element("g", *(_lane(lanes[lane], y, left, width) for lane, y in lane_at.items()), aria_hidden="true")
    drawing = element(
        "svg",
        element("title", title),
        element("desc", f"{len(nodes)} contributions of {len(lanes)} authors with {len(edges)} citations."),
        names,
        element("g", *edges, class_="edges", aria_hidden="true"),
        element("g", *(_node(node, kinds.index(node.kind), place[node.id]) for node in nodes), class_="nodes"),
        viewbox=f"0 0 {width:.0f} {height:.0f}",
        width=width,
        height=height,
        role="group",
        aria_label=title,
        class_="lineage",
    )
    kept = element("svg", names, viewbox=f"0 0 {left:.0f} {height:.0f}", width=left, height=height, **_CROPPED)
    lanes_drawn = element("div", element("div", kept, class_="lane-names", aria_hidden="true"), drawing, class_="lanes")
    used = {node.kind for node in nodes}
    keys = legend([Key(kind, place) for place, kind in enumerate(kinds) if kind in used])
    return element("figure", element("figcaption", title), keys, scroll_box(title, lanes_drawn), class_="chart wide")


def _lane(name: str, y: float, left: float, width: float) -> Markup:
    shown = name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
    line = element("path", d=f"M{left:g} {y:g}H{width:g}", class_="grid")
    return element("g", line, element("text", element("title", name), shown, x=6, y=y + 4))


def _edge(cited: str, citing: str, place: dict[str, tuple[float, float]]) -> Markup:
    (x0, y0), (x1, y1) = place[cited], place[citing]
    lift = min(12.0, 3 + (x1 - x0) / 14) if y0 == y1 else 0.0  # within a lane the curve leaves the lane
    middle = (x0 + x1) / 2
    path = f"M{x0:.0f} {y0:.0f}C{middle:.0f} {y0 - lift:.0f} {middle:.0f} {y1 - lift:.0f} {x1:.0f} {y1:.0f}"
    return element("path", d=path, data_edge=f"{cited} {citing}")


def _node(node: Node, kind: int, at: tuple[float, float]) -> Markup:
    shape = mark(kind, *at, 5.5 if node.choosable else 4.0)
    tip = element("title", node.tip)
    if not node.choosable:
        return element("path", tip, d=shape, class_=f"node s{kind}", data_id=node.id)
    label = f"Show the lineage of {node.tip}"
    return element(
        "path", tip, d=shape, class_=f"node s{kind}", data_id=node.id, role="button", tabindex="0", aria_label=label
    )
