"""The citation graph of a session as text: GraphML, DOT, Mermaid and node-link JSON.

Nodes are the entities of the session, without votes: a vote is counted at its idea. Each node has its
``id`` and the ``kind`` of entity, its ``author`` (label), ``turn``, ``minute`` and ``text``; ideas have their
``votes`` too. Edges lead from cause to effect, from the cited entity to the one that cites it.

What people and models wrote is inert in all four. Characters that XML forbids are dropped everywhere. DOT
texts are quoted, with backslashes and entities undone, and nothing is written as an HTML-like label or a link.
In Mermaid every character but letters, digits, space, comma, full stop and hyphen is an entity code, so that no
directive, callback, Markdown or HTML can come of it. Texts are cut in Mermaid, and very long ones in DOT.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from xml.etree import ElementTree as ET

from salon.errors import UserError

from .events import Idea, Vote, wording
from .session import Session
from .text import excerpt

__all__ = ["GRAPHS", "Graph", "Node", "dot", "graph_json", "graph_of", "graphml", "mermaid"]

_FORBIDDEN = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAME = 40  # characters of a name on a drawn node
_LABEL = 80  # characters of a text on a drawn node
_LONGEST = 3000  # characters of a text in DOT: Graphviz may refuse strings over 16 KiB, and one takes up to 5 bytes
_GRAPHML = "http://graphml.graphdrawing.org/xmlns"
_TYPES = {"kind": "string", "author": "string", "turn": "int", "minute": "double", "text": "string", "votes": "int"}


@dataclass(frozen=True)
class Node:
    """An entity in the graph.

    Attributes:
        id: Its id in the session.
        kind: Its type, e.g. ``idea``.
        author: Label of its author.
        turn: Turn in which it came up.
        minute: Session clock in minutes.
        text: What it says; title and description of an idea.
        votes: Votes for an idea; None for other entities.
    """

    id: str
    kind: str
    author: str
    turn: int
    minute: float
    text: str
    votes: int | None

    def attributes(self) -> dict[str, str | int | float]:
        """Return what it has beside its id."""
        return {name: value for name, value in asdict(self).items() if name != "id" and value is not None}

    def head(self) -> str:
        """Return id, author and votes, as a drawn node shows them."""
        votes = "" if self.votes is None else f", {self.votes} vote{'' if self.votes == 1 else 's'}"
        return f"{self.id} {excerpt(self.author, _NAME)}{votes}"


@dataclass(frozen=True)
class Graph:
    """Nodes in order of creation, and edges (cause, effect) in order of the effect."""

    nodes: list[Node]
    edges: list[tuple[str, str]]


def graph_of(session: Session, idea: str | None = None) -> Graph:
    """Return the citation graph of a session.

    Args:
        session: The session.
        idea: Id of an idea; the graph then is this idea with all its ancestors.

    Raises:
        UserError: If the session has no such idea.
    """
    votes, cites = session.votes, session.lineage.cites
    if idea is not None and idea not in votes:
        known = ", ".join(votes) or "none"
        raise UserError(f"The session has no idea {idea!r}", f"its ideas are: {known}")
    kept = {*session.lineage.ancestors(idea), idea} if idea is not None else cites.keys()
    entities = [e for e in session.entities.values() if e.id in kept and not isinstance(e, Vote)]
    nodes = [
        Node(
            id=entity.id,
            kind=type(entity).__name__.lower(),
            author=_clean(session.label(entity.author)),
            turn=entity.turn,
            minute=entity.minute,
            text=_clean(wording(entity)),
            votes=len(votes[entity.id]) if isinstance(entity, Idea) else None,
        )
        for entity in entities
    ]
    return Graph(nodes, [(cited, entity.id) for entity in entities for cited in cites[entity.id]])


def graph_json(session: Session, idea: str | None = None) -> str:
    """Return the graph as node-link JSON: ``networkx.node_link_graph(json.loads(...), edges="edges")``.

    Args:
        session: The session.
        idea: See ``graph_of``.

    Raises:
        UserError: If the session has no such idea.
    """
    graph = graph_of(session, idea)
    document = {
        "directed": True,
        "multigraph": False,
        "graph": {"program": session.name, "topic": _clean(session.topic)},
        "nodes": [{"id": node.id, **node.attributes()} for node in graph.nodes],
        "edges": [{"source": cause, "target": effect} for cause, effect in graph.edges],
    }
    return json.dumps(document, indent=1) + "\n"


def graphml(session: Session, idea: str | None = None) -> str:
    """Return the graph as GraphML.

    Args:
        session: The session.
        idea: See ``graph_of``.

    Raises:
        UserError: If the session has no such idea.
    """
    graph = graph_of(session, idea)
    root = ET.Element("graphml", xmlns=_GRAPHML)
    for name, kind in _TYPES.items():
        ET.SubElement(root, "key", {"id": name, "for": "node", "attr.name": name, "attr.type": kind})
    drawn = ET.SubElement(root, "graph", id="lineage", edgedefault="directed")
    for node in graph.nodes:
        element = ET.SubElement(drawn, "node", id=node.id)
        for name, value in node.attributes().items():
            ET.SubElement(element, "data", key=name).text = str(value)
    for cause, effect in graph.edges:
        ET.SubElement(drawn, "edge", source=cause, target=effect)
    ET.indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def dot(session: Session, idea: str | None = None) -> str:
    """Return the graph in the DOT language of Graphviz.

    Args:
        session: The session.
        idea: See ``graph_of``.

    Raises:
        UserError: If the session has no such idea.
    """
    graph = graph_of(session, idea)
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [shape=box, style=rounded, fontname="sans-serif"];']
    for node in graph.nodes:
        label = f"{_quotable(node.head())}\\n{_quotable(excerpt(node.text, _LABEL))}"
        own = {name: _quotable(str(value)) for name, value in node.attributes().items()}
        told = ", ".join(f'{name}="{value}"' for name, value in {**own, "label": label}.items())
        lines.append(f'  "{node.id}" [{told}];')
    lines += [f'  "{cause}" -> "{effect}";' for cause, effect in graph.edges]
    return "\n".join([*lines, "}", ""])


def mermaid(session: Session, idea: str | None = None) -> str:
    """Return the graph as a Mermaid flowchart; viewers refuse very large ones, so give an idea then.

    Args:
        session: The session.
        idea: See ``graph_of``.

    Raises:
        UserError: If the session has no such idea.
    """
    graph = graph_of(session, idea)
    lines = ["flowchart LR"]
    lines += [f'  {node.id}["{_coded(node.head())} - {_coded(excerpt(node.text, _LABEL))}"]' for node in graph.nodes]
    lines += [f"  {cause} --> {effect}" for cause, effect in graph.edges]
    return "\n".join([*lines, ""])


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def _quotable(text: str) -> str:
    """Return a text for a quoted string of DOT, where Graphviz reads backslash escapes and HTML entities."""
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _coded(text: str) -> str:
    """Return a text for a quoted label of Mermaid."""
    return "".join(c if c.isalnum() or c in " ,.-" else f"#{ord(c)};" for c in " ".join(text.split()))


GRAPHS: dict[str, Callable[..., str]] = {
    "lineage.graphml": graphml,
    "lineage.dot": dot,
    "lineage.mmd": mermaid,
    "lineage.json": graph_json,
}
