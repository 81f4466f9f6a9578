"""Who influenced what: the citation graph of a session, as pure functions of its entities.

An entity cites earlier entities, so the graph has no cycle and ids in order of creation are a
topological order. Everything here walks that order or an explicit stack: linear time, no recursion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Checked", "Lineage", "check_citations"]


@dataclass(frozen=True)
class Checked:
    """Citations that hold, and those that do not, counted by reason."""

    kept: list[str]
    dropped: dict[str, int]


def check_citations(cited: Iterable[str], visible: Collection[str], existing: Collection[str], own_id: str) -> Checked:
    """Keep the citations of entities that exist and that the author can see.

    Args:
        cited: Ids as the author wrote them.
        visible: Ids the author can see.
        existing: All ids of the session so far.
        own_id: The id of the citing entity.

    Returns:
        The ids kept, in order and without repetition. Reasons for the others: ``itself``,
        ``unknown`` (which includes ids of the future), ``invisible``, ``repeated``.
    """
    kept: dict[str, None] = {}
    dropped: Counter[str] = Counter()
    for name in cited:
        if name == own_id:
            dropped["itself"] += 1
        elif name in kept:
            dropped["repeated"] += 1
        elif name in visible:
            kept[name] = None
        else:
            dropped["invisible" if name in existing else "unknown"] += 1
    return Checked(list(kept), dict(dropped))


@dataclass
class Lineage:
    """The citation graph of a session.

    Attributes:
        cites: For each entity, in order of creation, the earlier entities it cites.
        authors: Author of each entity.
    """

    cites: dict[str, tuple[str, ...]] = field(default_factory=dict)
    authors: dict[str, str] = field(default_factory=dict)
    _depths: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, entities: Iterable[tuple[str, str, Sequence[str]]]) -> Lineage:
        """Build the graph from (id, author, cites), in order of creation.

        Raises:
            ValueError: If an entity cites one that does not come before it.
        """
        graph = cls()
        for name, author, cites in entities:
            graph.add(name, author, cites)
        return graph

    def add(self, name: str, author: str, cites: Sequence[str]) -> None:
        """Add the next entity.

        Raises:
            ValueError: If it is there already, or cites one that is not there.
        """
        if name in self.cites:
            raise ValueError(f"{name} is there already")
        for cited in cites:
            if cited not in self.cites:
                raise ValueError(f"{name} cites {cited}, which does not come before it")
        self.cites[name] = tuple(cites)
        self.authors[name] = author
        self._depths[name] = max((self._depths[c] + 1 for c in cites), default=0)

    def _known(self, name: str) -> str:
        if name not in self.cites:
            raise KeyError(f"there is no entity {name} in this session")
        return name

    def ancestors(self, name: str) -> set[str]:
        """Return all entities that influenced ``name``, directly or through others."""
        return _reach(self.cites, self._known(name))

    def descendants(self, name: str) -> set[str]:
        """Return all entities that ``name`` influenced, directly or through others."""
        return _reach(self.cited_by(), self._known(name))

    def cited_by(self) -> dict[str, tuple[str, ...]]:
        """Return for each entity the later ones that cite it directly."""
        inverse: dict[str, list[str]] = {name: [] for name in self.cites}
        for name, cites in self.cites.items():
            for cited in cites:
                inverse[cited].append(name)
        return {name: tuple(names) for name, names in inverse.items()}

    def depths(self) -> dict[str, int]:
        """Return for each entity the edges on the longest citation chain that ends in it."""
        return dict(self._depths)

    def depth(self, name: str) -> int:
        """Return the influence depth of one entity (reference: idea influence depth)."""
        return self._depths[self._known(name)]

    def longest_chain(self, name: str) -> list[str]:
        """Return a longest citation chain that ends in ``name``, oldest entity first."""
        chain = [self._known(name)]
        while cites := self.cites[chain[-1]]:
            chain.append(max(cites, key=self._depths.__getitem__))
        return chain[::-1]

    def absorption(self, name: str, discussion: Iterable[str]) -> float | None:
        """Return the cross-persona absorption of an idea.

        Of the discussion's public entities by OTHER authors, the share among the idea's ancestors.

        Args:
            name: The idea.
            discussion: Ids of the public entities of the discussion phase.

        Returns:
            A share in [0, 1]; None if others said nothing in the discussion.
        """
        author = self.authors[self._known(name)]
        others = [d for d in discussion if self.authors[d] != author]
        if not others:
            return None
        ancestors = self.ancestors(name)
        return sum(d in ancestors for d in others) / len(others)

    def influence(self, ideas: Iterable[str]) -> dict[str, float | None]:
        """Return how much of what led to the others' ideas each author wrote.

        For one idea, an author's share is that author's part of the idea's ancestors; it is 0 where the idea
        has none. An author's influence is the mean share over the ideas by other authors. Each idea's
        ancestors are walked once, so the cost grows with the ideas times the size of the graph.

        Args:
            ideas: Ids of the ideas.

        Returns:
            For each author of the graph, in order of appearance, a share in [0, 1]; None if no idea is by
            another author.
        """
        proposed: Counter[str] = Counter()
        shares = dict.fromkeys(self.authors.values(), 0.0)
        for idea in ideas:
            proposed[self.authors[self._known(idea)]] += 1
            ancestors = self.ancestors(idea)
            for author, written in Counter(self.authors[name] for name in ancestors).items():
                if author != self.authors[idea]:
                    shares[author] += written / len(ancestors)
        by_others = {author: proposed.total() - proposed[author] for author in shares}
        return {author: shares[author] / others if others else None for author, others in by_others.items()}


def _reach(edges: Mapping[str, Sequence[str]], start: str) -> set[str]:
    found: set[str] = set()
    stack = list(edges[start])
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack.extend(edges[name])
    return found
