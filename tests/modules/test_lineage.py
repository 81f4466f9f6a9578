"""The citation graph, against networkx and a naive count, and at sizes where recursion would fail."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from salon.modules.lineage import Lineage, check_citations

nx: Any = pytest.importorskip("networkx")
Entities = list[tuple[str, str, list[str]]]


@st.composite
def sessions(draw: st.DrawFn) -> Entities:
    entities: Entities = []
    for n in range(draw(st.integers(0, 14))):
        earlier = [name for name, _, _ in entities]
        cites = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=4)) if earlier else []
        entities.append((f"E{n}", draw(st.sampled_from("xyz")), cites))
    return entities


def graph_of(entities: Entities) -> Any:
    graph = nx.DiGraph()
    graph.add_nodes_from(name for name, _, _ in entities)
    graph.add_edges_from((cited, name) for name, _, cites in entities for cited in cites)
    return graph


def chain(length: int) -> Lineage:
    return Lineage.of((f"C{n}", f"P{n % 3}", [f"C{n - 1}"] if n else []) for n in range(length))


@given(sessions())
def test_reach_and_depth_agree_with_networkx(entities: Entities) -> None:
    lineage, graph = Lineage.of(entities), graph_of(entities)
    for name in graph:
        ancestors = nx.ancestors(graph, name)
        assert lineage.ancestors(name) == ancestors
        assert lineage.descendants(name) == nx.descendants(graph, name)
        depth = nx.dag_longest_path_length(graph.subgraph({*ancestors, name}))
        assert lineage.depth(name) == lineage.depths()[name] == depth
        longest = lineage.longest_chain(name)
        assert len(longest) - 1 == depth
        assert longest[-1] == name
        assert all(graph.has_edge(a, b) for a, b in itertools.pairwise(longest))
        assert set(lineage.cited_by()[name]) == set(graph.successors(name))


@given(sessions(), st.sets(st.integers(0, 13)))
def test_absorption_is_the_share_of_what_others_said(entities: Entities, said: set[int]) -> None:
    lineage = Lineage.of(entities)
    discussion = [name for n, (name, _, _) in enumerate(entities) if n in said]
    for name, author, _ in entities:
        others = {d for d in discussion if lineage.authors[d] != author}
        share = lineage.absorption(name, discussion)
        if others:
            assert share == len(others & lineage.ancestors(name)) / len(others)
        else:
            assert share is None


def test_influence_by_hand() -> None:
    """I1 (Ann) has ancestors C1 (Bo), C2 (Bo), C3 (Cy); I2 (Bo) has I1 and hers: 1 of Ann, 2 of Bo, 1 of Cy."""
    lineage = Lineage.of(
        [
            ("C1", "Bo", []), ("C2", "Bo", ["C1"]), ("C3", "Cy", []), ("C4", "Di", []),
            ("I1", "Ann", ["C2", "C3"]), ("I2", "Bo", ["I1"]), ("I3", "Bo", []),
        ]
    )  # fmt: skip
    influence = lineage.influence(["I1", "I2", "I3"])
    assert influence == {
        "Bo": pytest.approx(2 / 3),  # of I1 alone: the other ideas are Bo's own
        "Cy": pytest.approx((1 / 3 + 1 / 4 + 0) / 3),
        "Di": 0.0,
        "Ann": pytest.approx((1 / 4 + 0) / 2),
    }
    assert list(influence) == ["Bo", "Cy", "Di", "Ann"]
    assert lineage.influence(["I2", "I3"])["Bo"] is None
    assert set(lineage.influence([]).values()) == {None}
    assert Lineage().influence([]) == {}
    with pytest.raises(KeyError, match="no entity I9"):
        lineage.influence(["I9"])


@given(sessions(), st.sets(st.integers(0, 13)))
def test_influence_agrees_with_networkx(entities: Entities, proposed: set[int]) -> None:
    lineage, graph = Lineage.of(entities), graph_of(entities)
    ideas = [name for n, (name, _, _) in enumerate(entities) if n in proposed]
    influence = lineage.influence(ideas)
    assert influence.keys() == set(lineage.authors.values())
    for author, value in influence.items():
        by_others = [nx.ancestors(graph, i) for i in ideas if lineage.authors[i] != author]
        shares = [sum(lineage.authors[a] == author for a in led) / len(led) if led else 0.0 for led in by_others]
        assert value == (pytest.approx(sum(shares) / len(shares)) if shares else None)
        assert value is None or 0 <= value <= 1 + 1e-12


def test_influence_walks_each_idea_once() -> None:
    """Looked up are, for each idea, its ancestors and itself; more personas cost nothing more."""

    class Counted(dict[str, tuple[str, ...]]):
        looked = 0

        def __getitem__(self, name: str) -> tuple[str, ...]:
            Counted.looked += 1
            return super().__getitem__(name)

    for personas in (2, 200):
        lineage = Lineage.of(
            (f"C{n}", f"P{n % personas}", [f"C{m}" for m in (n - 1, n - 2) if m >= 0]) for n in range(2000)
        )
        lineage.cites, Counted.looked = Counted(lineage.cites), 0
        lineage.influence(["C1999", "C1000", "C500"])
        assert Counted.looked == 2000 + 1001 + 501


def test_a_chain_of_ten_thousand() -> None:
    lineage = chain(10_000)
    assert lineage.depth("C9999") == 9999
    assert len(lineage.ancestors("C9999")) == 9999
    assert len(lineage.descendants("C0")) == 9999
    assert lineage.longest_chain("C9999") == [f"C{n}" for n in range(10_000)]
    share = lineage.absorption("C9999", lineage.cites)
    assert share == 1.0


def test_a_diamond_of_ten_thousand_is_walked_once() -> None:
    """Every entity cites the two before it: as many paths as Fibonacci numbers, and as many steps as edges."""
    lineage = Lineage.of((f"C{n}", "P1", [f"C{m}" for m in (n - 1, n - 2) if m >= 0]) for n in range(10_000))
    assert lineage.depth("C9999") == 9999
    assert len(lineage.ancestors("C9999")) == 9999


def test_the_empty_session_and_unknown_ids() -> None:
    assert Lineage.of([]).depths() == {}
    for ask in (Lineage().ancestors, Lineage().descendants, Lineage().depth, Lineage().longest_chain):
        with pytest.raises(KeyError, match="no entity I1"):
            ask("I1")


def test_what_does_not_come_before_cannot_be_cited() -> None:
    with pytest.raises(ValueError, match="C1 cites C2"):
        Lineage.of([("C1", "P1", ["C2"]), ("C2", "P1", [])])
    with pytest.raises(ValueError, match="C1 cites C1"):
        Lineage.of([("C1", "P1", ["C1"])])
    with pytest.raises(ValueError, match="C1 is there already"):
        Lineage.of([("C1", "P1", []), ("C1", "P1", ["C1"])])


# ---------------------------------------------------------------- citations that hold


def test_why_citations_are_dropped() -> None:
    cited = ["C1", "T1", "T2", "C9", "C3", "C1", "C1", "banana"]
    checked = check_citations(cited, visible={"C1", "T1"}, existing={"C1", "C2", "T1", "T2"}, own_id="C3")
    assert checked.kept == ["C1", "T1"]
    assert checked.dropped == {"invisible": 1, "unknown": 2, "itself": 1, "repeated": 2}


IDS = st.sampled_from([f"C{n}" for n in range(9)])


@given(st.lists(IDS), st.sets(IDS), st.sets(IDS), IDS)
def test_kept_citations_are_visible_and_all_others_counted(
    cited: list[str], visible: set[str], hidden: set[str], own: str
) -> None:
    checked = check_citations(cited, visible, visible | hidden, own)
    assert len(checked.kept) == len(set(checked.kept))
    assert set(checked.kept) == (set(cited) & visible) - {own}
    assert len(checked.kept) + sum(checked.dropped.values()) == len(cited)
