"""Ablations of a debate: what each of its parts and numbers does to quality and diversity.

Each ablation is a set of methods that differ in one thing; evaluated on the same queries and seeds, they print as
tables in the layout of the paper on Creative-MAD (arXiv 2609.00683): methods by benchmarks as Vendi score and ten
times the quality (its table 1), ways to select peers (table 2), and the numbers k, N and R (table 3). Here every
mean has its 95 % interval over queries and the number of queries.

| name | what differs |
|---|---|
| ``components`` | direct; a debate without lenses and selection, with one of the two, with both |
| ``lenses`` | no lenses, the five lenses, five professions in their place |
| ``peers`` | which answers an agent is shown: the farthest, random ones, the closest, all |
| ``k`` | how many answers an agent is shown, 1 to N - 1 |
| ``agents`` | how many agents debate (N); k stays as it is |
| ``rounds`` | how often they revise (R); without a round the answers are only voted on |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from salon.errors import UserError

from ..modules.baselines import Direct
from ..modules.debate import PROFESSIONS, Debate
from ..modules.files import markdown as inert
from ..modules.program import SessionProgram
from .result_format import count, interval, table
from .result_summary import MethodRow
from .results import Results
from .scales import MISSING
from .statistics import FEW, Interval

__all__ = ["ABLATIONS", "Ablation", "ablation", "ablation_table"]

_SHARED = ("lms", "embedder", "max_concurrency")  # settings that a baseline has too
Methods = dict[str, SessionProgram]


@dataclass(frozen=True)
class Ablation:
    """A set of methods that differ in one thing.

    Attributes:
        name: Its name.
        title: What it shows.
        head: What its rows are.
        varied: Settings of a debate that it varies, which cannot be given.
        make: Makes for the settings they share, by name, what each method is called in a table, and the method.
    """

    name: str
    title: str
    head: str
    varied: Collection[str]
    make: Callable[[dict[str, Any]], dict[str, tuple[str, SessionProgram]]]

    def methods(self, **settings: Any) -> Methods:
        """Return its methods by name, in order.

        Args:
            settings: Settings of ``Debate`` that all of them share.

        Raises:
            UserError: If a setting is one that the ablation varies, or cannot work.
        """
        return {name: program for name, (_, program) in self._made(settings).items()}

    def labels(self, **settings: Any) -> dict[str, str]:
        """Return what each method is called in a table; arguments as for ``methods``."""
        return {name: label for name, (label, _) in self._made(settings).items()}

    def _made(self, settings: dict[str, Any]) -> dict[str, tuple[str, SessionProgram]]:
        if given := [name for name in settings if name in self.varied]:
            raise UserError(f"{given[0]} cannot be set", f"the ablation {self.name!r} varies it", "Leave it out.")
        return self.make(settings)


def _debates(
    vary: Callable[[dict[str, Any]], Iterable[tuple[str, str, dict[str, Any]]]],
) -> Callable[[dict[str, Any]], dict[str, tuple[str, SessionProgram]]]:
    """Make debates from (name, label, settings) of each."""
    return lambda settings: {
        name: (label, Debate(**{**settings, **changes})) for name, label, changes in vary(settings)
    }


def _components(settings: dict[str, Any]) -> dict[str, tuple[str, SessionProgram]]:
    shared = {name: value for name, value in settings.items() if name in _SHARED}
    return {
        "direct": ("Direct", Direct(**shared)),
        "homogeneous": ("Homogeneous debate", Debate.homogeneous(**settings)),
        "lens-only": ("Lenses only", Debate.lens_only(**settings)),
        "selection-only": ("Selection only", Debate.selection_only(**settings)),
        "debate": ("Lenses and selection", Debate(**settings)),
    }


def _lenses(settings: dict[str, Any]) -> Iterable[tuple[str, str, dict[str, Any]]]:
    people = [f"You are a {name}, and think as one." for name in PROFESSIONS]
    yield "no-lenses", "No lenses", {"lenses": None}
    yield "lenses", "Lenses", {"lenses": True}
    yield "professions", "Professions", {"lenses": None, "personas": people}


def _ks(settings: dict[str, Any]) -> Iterable[tuple[str, str, dict[str, Any]]]:
    agents = int(Debate(**settings).agents)
    if agents < 2:
        raise UserError(f"agents={agents} is not possible", "an agent alone is shown no answer", "Give at least 2.")
    return ((f"k{k}", f"k = {k}", {"k": k}) for k in range(1, agents))


ABLATIONS: dict[str, Ablation] = {
    a.name: a
    for a in (
        Ablation("components", "What lenses and selection do", "method", ("lenses", "peers"), _components),
        Ablation("lenses", "How agents think", "agents", ("lenses", "personas"), _debates(_lenses)),
        Ablation(
            "peers",
            "Which answers agents are shown",
            "peers",
            ("peers",),
            _debates(lambda _: ((p, p.capitalize(), {"peers": p}) for p in ("farthest", "random", "closest", "all"))),
        ),
        Ablation("k", "How many answers agents are shown", "k", ("k",), _debates(_ks)),
        Ablation(
            "agents",
            "How many agents debate",
            "N",
            ("agents",),
            _debates(lambda _: ((f"n{n}", f"N = {n}", {"agents": n}) for n in (3, 5, 7))),
        ),
        Ablation(
            "rounds",
            "How often agents revise",
            "R",
            ("rounds",),
            _debates(lambda _: ((f"r{r}", f"R = {r}", {"rounds": r}) for r in (0, 1, 2, 3))),
        ),
    )
}
"""The ablations by name."""


def ablation(name: str, **settings: Any) -> Methods:
    """Return the methods of an ablation by name, in order.

    Args:
        name: Name of the ablation.
        settings: Settings of ``Debate`` that all of them share.

    Raises:
        UserError: If there is no such ablation, or a setting is one that it varies or cannot work.
    """
    return _ablation(name).methods(**settings)


def _ablation(name: str) -> Ablation:
    if name not in ABLATIONS:
        raise UserError(f"There is no ablation {name!r}", todo=f"Give one of {', '.join(ABLATIONS)}.")
    return ABLATIONS[name]


def ablation_table(results: Results | Sequence[Results], name: str) -> str:
    """Return an ablation's table in Markdown, with what must be known to read it.

    Args:
        results: Its result on one benchmark, or on several, each of which becomes a column.
        name: Name of the ablation.

    Raises:
        UserError: If there is no such ablation, or no result has a method of it.
    """
    one, given = _ablation(name), [results] if isinstance(results, Results) else list(results)
    labels = _labels(one, given)
    if not labels:
        known = ", ".join(one.labels())
        raise UserError(f"There is nothing of the ablation {name!r} in the result", f"its methods are {known}")
    lines = [f"{one.title}.", "", *(_by_benchmark if len(given) > 1 else _by_measure)(one, labels, given)]
    return "\n".join([*lines, *_told(given), ""])


def _labels(of: Ablation, given: Sequence[Results]) -> dict[str, str]:
    """Return the labels of the methods that any result has, in order; k is not bounded by the default N."""
    there = [method for one in given for method in one.about.methods]
    most = max((int(m[1:]) + 1 for m in there if m[:1] == "k" and m[1:].isdigit()), default=2)
    known = of.labels(**({"agents": min(max(most, 2), 50)} if of.name == "k" else {}))
    return known if set(known) & set(there) else {}


def _by_measure(of: Ablation, labels: Mapping[str, str], given: Sequence[Results]) -> list[str]:
    """Return the table of one benchmark: a row for each method, a column for each measure (tables 2 and 3)."""
    rows = {row.method: row for row in given[0].method_rows}
    head = [of.head, "Vendi score", "quality x10", "tokens each", "failed"]
    cells = []
    for name, label in labels.items():
        row = rows.get(name)
        if row is None:
            cells.append([label, *[MISSING] * 4])
            continue
        tokens = f"{row.each.tokens:,.0f}" if row.each else MISSING
        cells.append([label, interval(row.means["vendi"]), interval(_tenfold(row), 1), tokens, str(row.failed)])
    return table(head, cells)


def _by_benchmark(of: Ablation, labels: Mapping[str, str], given: Sequence[Results]) -> list[str]:
    """Return the table of several benchmarks: Vendi score / ten times the quality (table 1)."""
    columns = [{row.method: row for row in one.method_rows} for one in given]
    cells = [[label, *(_pair(column.get(name)) for column in columns)] for name, label in labels.items()]
    return table([of.head, *(inert(one.about.benchmark) for one in given)], cells)


def _pair(row: MethodRow | None) -> str:
    return MISSING if row is None else f"{interval(row.means['vendi'])} / {interval(_tenfold(row), 1)}"


def _tenfold(row: MethodRow) -> Interval:
    """Return ten times the quality, as papers print it."""
    found = row.means["quality"]
    value, low, high = (None if end is None else 10 * end for end in (found.value, found.low, found.high))
    return Interval(value, low, high, found.n)


def _told(given: Sequence[Results]) -> list[str]:
    vendi = " / ".join(f"{one.about.size} answers" for one in given)
    lines = [f"- Vendi score of {vendi}; 95 % intervals over queries, in brackets the number of queries."]
    for one in given:
        about = one.about
        where = f"{inert(about.benchmark)}: " if len(given) > 1 else ""
        judges = f"judged by {', '.join(map(inert, about.judges))}" if about.judges else "not judged"
        queries = count(len(about.tasks), "query", "queries")
        few = ", which is few: take differences as signs" if len(about.tasks) < FEW else ""
        lines.append(f"- {where}{queries} x {count(about.runs, 'run')}, {judges}{few}.")
        if failed := sum(row.failed for row in one.method_rows):
            lines.append(f"- {where}{count(failed, 'job')} failed; no quality is put in their place.")
    return [*lines, "- Quality compares methods under one judge; as a level it means little."]
