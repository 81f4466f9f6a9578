"""Charts: scales with round ticks, and drawings that hold for any numbers and any texts."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup
from salon.evals.charts import Bar, Dot, Level, Series, Strip, Tick, bars, heat, lines, scatter, strips
from salon.evals.lineage_chart import Node, lineage_chart
from salon.evals.scales import Scale, number, tick_label

VALUES = st.one_of(st.none(), st.floats(), st.integers(-(10**6), 10**6).map(float))
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=30
)  # XML has no place for the others


def parsed(chart: Markup) -> ET.Element:
    root = ET.fromstring(chart)
    for element in root.iter():
        for name, value in element.attrib.items():
            if name in ("d", "x", "y", "width", "height", "viewBox"):
                assert not {"nan", "inf"} & {part.lower() for part in value.replace(",", " ").split()}
                assert "nan" not in value
                assert "inf" not in value
    return root


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0, 10], (0, 2, 4, 6, 8, 10)),
        ([3, 17], (0, 5, 10, 15, 20)),
        ([-3, 5], (-4, -2, 0, 2, 4, 6)),
        ([0, 0], (0, 0.2, 0.4, 0.6, 0.8, 1)),
        ([], (0, 0.2, 0.4, 0.6, 0.8, 1)),
        ([0.1, 0.3], (0.1, 0.15, 0.2, 0.25, 0.3)),
    ],
)
def test_ticks_are_round_and_hold_the_data(values: list[float], ticks: tuple[float, ...]) -> None:
    assert Scale.over(values, 0, 100).ticks == pytest.approx(ticks)


def test_ticks_of_counts_are_whole() -> None:
    assert Scale.over([0, 2], 0, 100, whole=True).ticks == (0, 1, 2)
    assert all(tick == int(tick) for tick in Scale.over([0, 13], 0, 100, whole=True).ticks)


@given(st.lists(VALUES, max_size=8), st.booleans(), st.booleans())
def test_a_scale_puts_every_value_between_its_ends(values: list[float | None], exact: bool, whole: bool) -> None:
    scale = Scale.over(values, 10, 90, exact=exact, whole=whole)
    assert scale.low < scale.high
    assert len(scale.ticks) <= 12
    for value in values:
        if value is not None and math.isfinite(value):
            assert 10 <= scale.at(value) <= 90


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        (0, "0"),
        (-0.0, "0"),
        (3, "3"),
        (1234, "1,234"),
        (12345, "12.3 k"),
        (0.12345, "0.123"),
        (2.5, "2.500"),
        (123.456, "123"),
        (-4.25, "-4.250"),
        (1e20, "1.0e+20"),
    ],
)
def test_numbers_are_written_for_readers(value: float | None, written: str) -> None:
    assert number(value) == written


def test_ticks_are_written_short() -> None:
    assert [tick_label(v) for v in (0, 0.25, 5, 1000, 20_000, 3e6)] == ["0", "0.25", "5", "1000", "20 k", "3 M"]


POINTS = st.lists(st.tuples(st.floats(), VALUES), max_size=6)


@settings(max_examples=60)
@given(st.lists(st.tuples(TEXTS, POINTS, st.booleans(), st.booleans()), max_size=4), TEXTS)
def test_lines_hold_for_any_data(
    given: list[tuple[str, list[tuple[float, float | None]], bool, bool]], text: str
) -> None:
    series = [Series(name, points, step, planned) for name, points, step, planned in given]
    chart = lines(text, series, x=text, y=text, borders=[Level(1.0, text), Level(1.1, text)], levels=[Level(3, text)])
    root = parsed(chart)
    assert root.tag == "figure"


@settings(max_examples=60)
@given(st.lists(st.tuples(TEXTS, VALUES, VALUES, VALUES), max_size=6), TEXTS)
def test_bars_hold_for_any_data(given: list[tuple[str, float | None, float | None, float | None]], text: str) -> None:
    parsed(bars(text, [Bar(*item) for item in given], head=text, unit=text))


@settings(max_examples=60)
@given(st.lists(st.tuples(TEXTS, VALUES, VALUES, st.tuples(st.floats(), st.floats()), TEXTS), max_size=6), TEXTS)
def test_scatter_holds_for_any_data(
    given: list[tuple[str, float | None, float | None, tuple[float, float], str]], text: str
) -> None:
    dots = [Dot(label, x, y, span, span, group) for label, x, y, span, group in given]
    parsed(scatter(text, dots, x=text, y=text, better=("high", "low")))


@settings(max_examples=60)
@given(st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=3, max_size=3), TEXTS)
def test_a_heat_table_holds_for_any_data(matrix: list[list[float | None]], text: str) -> None:
    root = parsed(heat(text, [text] * 3, [text] * 3, matrix, flagged={(0, 1)}, flag=text))
    assert len(root.findall(".//tbody//td")) == 9


@settings(max_examples=60)
@given(st.lists(st.tuples(TEXTS, st.lists(st.tuples(st.floats(), TEXTS, TEXTS), max_size=4)), max_size=4), TEXTS)
def test_strips_hold_for_any_data(given: list[tuple[str, list[tuple[float, str, str]]]], text: str) -> None:
    rows = [Strip(label, [Tick(*tick) for tick in ticks]) for label, ticks in given]
    parsed(strips(text, rows, x=text, borders=[Level(2, text)]))


@pytest.mark.parametrize("chart", [lambda: lines("t", []), lambda: bars("t", []), lambda: scatter("t", []),
                                   lambda: strips("t", []), lambda: heat("t", [], [], [])])  # fmt: skip
def test_a_chart_without_data_says_so(chart: Callable[[], Markup]) -> None:
    assert "No data" in chart()


def test_a_gap_breaks_the_line() -> None:
    root = parsed(lines("t", [Series("s", [(0, 1.0), (1, None), (2, 3.0), (3, 4.0)])]))
    plot = next(e for e in root.iter("svg") if e.attrib.get("class") == "plot")
    path = next(e.attrib["d"] for e in plot.iter("path") if "line" in e.attrib.get("class", "").split())
    assert path.count("M") == 2
    assert path.count("L") == 1


def test_the_pareto_front_leaves_out_what_is_beaten() -> None:
    dots = [Dot("a", 1, 1), Dot("b", 2, 2), Dot("c", 3, 1), Dot("d", 1.5, 0.5)]
    root = parsed(scatter("t", dots, better=("high", "high")))
    path = next(e.attrib["d"] for e in root.iter("path") if e.attrib.get("class") == "front")
    assert path.count(" ") == 2  # b and c


def test_labels_of_close_dots_do_not_overlap() -> None:
    root = parsed(scatter("t", [Dot(f"label {n}", 1 + n / 1000, 1) for n in range(3)] + [Dot("far", 9, 9)]))
    places = {(e.attrib["x"], e.attrib["y"]) for e in root.iter("text") if e.attrib.get("class") == "label"}
    assert len(places) == 4


def test_series_differ_without_colour() -> None:
    root = parsed(lines("t", [Series(str(n), [(0, n), (1, n)]) for n in range(3)]))
    styles = [e.attrib["class"] for e in root.iter("path") if e.attrib.get("class", "").startswith("line")]
    assert len({style.split()[-1] for style in styles}) == 3


def test_a_lineage_of_a_long_chain_is_drawn_whole() -> None:
    nodes = [Node(f"C{n}", f"P{n % 3}", "remark", f"C{n}", [f"C{n - 1}"] if n else []) for n in range(2000)]
    chart = lineage_chart("t", {f"P{n}": f"Guest {n}" for n in range(3)}, nodes, ["remark"])
    root = parsed(chart)
    assert sum("data-id" in e.attrib for e in root.iter()) == 2000
    assert sum("data-edge" in e.attrib for e in root.iter()) == 1999
    assert len(chart) < 500_000


@given(TEXTS)
def test_texts_are_escaped_everywhere(text: str) -> None:
    evil = text + '"><script>alert(1)</script>'
    for chart in (
        lines(evil, [Series(evil, [(0, 1)])], borders=[Level(0, evil)]),
        bars(evil, [Bar(evil, 1, note=evil)]),
        scatter(evil, [Dot(evil, 1, 1, group=evil)]),
        strips(evil, [Strip(evil, [Tick(1, evil, evil)])]),
        heat(evil, [evil], [evil], [[1]], flagged={(0, 0)}, flag=evil),
        lineage_chart(evil, {evil: evil}, [Node(evil, evil, evil, evil, [], True)], [evil]),
    ):
        assert "<script" not in chart
        parsed(chart)
