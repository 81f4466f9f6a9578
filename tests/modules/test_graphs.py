"""The citation graph as text, read back by networkx, Graphviz and a strict grammar; hostile texts stay texts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from salon.modules.events import Vote
from salon.modules.graphs import GRAPHS, dot, graph_json, graph_of, graphml, mermaid

from salon import Session, UserError

nx: Any = pytest.importorskip("networkx")
Made = Callable[..., Session]
SVG = "{http://www.w3.org/2000/svg}"
MERMAID = (
    re.compile(r"flowchart LR"),
    re.compile(r'  [A-Z][0-9]+\["(?:[^\W_]|[ ,.-]|#[0-9]+;)+"\]'),
    re.compile(r"  [A-Z][0-9]+ --> [A-Z][0-9]+"),
)
QUOTED = re.compile(r'"(?:[^"\\\n]|\\[\\"n])*"')
DOT = (
    re.compile(r'  "" \[(?:[a-z]+="", )+label=""\];'),
    re.compile(r'  "" -> "";'),
)


@pytest.fixture
def small(made: Made) -> Session:
    said = [
        ("thought", 1, "rain", []),
        ("comment", 1, "wet hands", ["T1"]),
        ("comment", 2, "aside", []),
        ("idea", 2, "Gloves", ["C1", "T1"]),
        ("idea", 1, "Hat", ["I1"]),
        ("vote", 1, "good", ["I1"]),
        ("vote", 2, "fine", ["I1"]),
    ]
    return made(["Ann", "Bo"], said)


def networks(session: Session, idea: str | None = None) -> list[Any]:
    return [
        nx.parse_graphml(graphml(session, idea)),
        nx.node_link_graph(json.loads(graph_json(session, idea)), edges="edges"),
    ]


def test_nodes_carry_what_was_said_and_edges_lead_from_cause_to_effect(small: Session) -> None:
    for graph in networks(small):
        assert graph.is_directed()
        assert not graph.is_multigraph()
        assert list(graph) == ["T1", "C1", "C2", "I1", "I2"]
        assert set(graph.edges) == {("T1", "C1"), ("C1", "I1"), ("T1", "I1"), ("I1", "I2")}
        assert graph.nodes["I1"] == {
            "kind": "idea", "author": "Bo", "turn": 1, "minute": 0.5, "text": "Gloves. That is: Gloves", "votes": 2,
        }  # fmt: skip
        assert graph.nodes["T1"] == {"kind": "thought", "author": "Ann", "turn": 1, "minute": 0.5, "text": "rain"}
        assert graph.nodes["I2"]["votes"] == 0
        assert nx.ancestors(graph, "I2") == small.lineage.ancestors("I2")


def test_one_idea_with_its_ancestors(small: Session) -> None:
    for graph in networks(small, "I1"):
        assert set(graph) == {"T1", "C1", "I1"}
        assert set(graph.edges) == {("T1", "C1"), ("C1", "I1"), ("T1", "I1")}
    assert "C2" not in mermaid(small, "I1") + dot(small, "I1")


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("idea", ["I9", "C1", "", "nonsense"])
def test_what_is_no_idea_is_refused(small: Session, name: str, idea: str) -> None:
    with pytest.raises(UserError, match=r"has no idea .*its ideas are: I1, I2"):
        GRAPHS[name](small, idea)


def test_an_empty_session_is_an_empty_graph(made: Made) -> None:
    session = made(["Ann"], [])
    assert [len(graph) for graph in networks(session)] == [0, 0]
    assert mermaid(session) == "flowchart LR\n"
    assert dot(session).endswith("];\n}\n")
    with pytest.raises(UserError, match="its ideas are: none"):
        dot(session, "I1")


def entities(session: Session) -> dict[str, Any]:
    return {name: entity for name, entity in session.entities.items() if not isinstance(entity, Vote)}


def test_hostile_texts_come_back_as_they_were_from_graphml_and_json(hostile: Session) -> None:
    for graph in networks(hostile):
        assert set(graph) == entities(hostile).keys()
        assert set(graph.edges) == {(c, e.id) for e in entities(hostile).values() for c in e.cites}
        texts = {entity.text for entity in entities(hostile).values() if entity.prefix == "C"}
        legal = {re.sub("[^\t\n\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", t) for t in texts}
        read = {data["text"] for name, data in graph.nodes(data=True) if name.startswith("C")}
        plain = {text for text in legal if "line" not in text and "=1" not in text}  # \r is a line break
        assert plain <= read
        assert "line\nbreak\nmore\nand" in read
        assert graph.nodes["C1"]["text"] == graph.nodes["C1"]["author"] == "<script>alert(1)</script>"


def mermaid_forms(text: str) -> list[int]:
    """The form of each line; None of the three is an error."""
    assert text.endswith("\n")
    lines = text[:-1].split("\n")
    found = [[n for n, form in enumerate(MERMAID) if form.fullmatch(line)] for line in lines]
    assert all(len(forms) == 1 for forms in found), [a for a, b in zip(lines, found, strict=True) if not b]
    return [forms[0] for forms in found]


def dot_forms(text: str) -> list[int]:
    head, *lines = text.split("\n")
    assert head == "digraph lineage {"
    assert lines[:2] == ["  rankdir=LR;", '  node [shape=box, style=rounded, fontname="sans-serif"];']
    assert lines[-2:] == ["}", ""]
    found = [[n for n, form in enumerate(DOT) if form.fullmatch(QUOTED.sub('""', line))] for line in lines[2:-2]]
    assert all(len(forms) == 1 for forms in found), [a for a, b in zip(lines[2:-2], found, strict=True) if not b]
    return [forms[0] for forms in found]


def test_hostile_texts_stay_in_their_labels(hostile: Session) -> None:
    nodes, edges = len(entities(hostile)), sum(len(e.cites) for e in entities(hostile).values())
    forms = mermaid_forms(mermaid(hostile))
    assert (forms[0], forms.count(0), forms.count(1), forms.count(2)) == (0, 1, nodes, edges)
    assert max(map(len, mermaid(hostile).splitlines())) < 1500
    forms = dot_forms(dot(hostile))
    assert (forms.count(0), forms.count(1)) == (nodes, edges)


TEXTS = st.text(st.characters(), max_size=60) | st.sampled_from(["\\", '"', '\\"', "#", "\n", "\r", "`", "\ud800"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=TEXTS, text=TEXTS)
def test_no_text_breaks_a_graph(made: Made, name: str, text: str) -> None:
    session = made([name], [("comment", 1, text, []), ("idea", 1, text, ["C1"])])
    assert mermaid_forms(mermaid(session)) == [0, 1, 1, 2]
    assert dot_forms(dot(session)) == [0, 0, 1]
    for graph in networks(session):
        assert list(graph.edges) == [("C1", "I1")]
        assert graph.nodes["C1"]["text"] == graph_of(session).nodes[0].text


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not on this machine")
def test_graphviz_draws_hostile_texts_as_texts(hostile: Session) -> None:
    done = subprocess.run(["dot", "-Tsvg"], input=dot(hostile).encode(), capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    root = ET.fromstring(done.stdout)
    groups = [group.get("class") for group in root.iter(f"{SVG}g")]
    assert groups.count("node") == len(entities(hostile))
    assert groups.count("edge") == sum(len(e.cites) for e in entities(hostile).values())
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "g", "title", "polygon", "path", "text", "polyline",
    }  # fmt: skip
    shown = "\n".join(element.text or "" for element in root.iter(f"{SVG}text"))
    for text in ("<script>alert(1)</script>", "\\N \\G \\", 'a" -> "b', "&lt;b&gt; &amp; &#60;i&#62;", "<b>html</b>"):
        assert text in shown.replace("\xa0", " ")
