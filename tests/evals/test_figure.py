from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from salon.evals.figure import FIGURE_NAMES, study_figure
from salon.evals.statistics import Interval
from salon.evals.study import STUDIED, Cell, Study
from salon.modules.budget import Usage

from salon.errors import OutputError

UNDEFINED = Interval(None, None, None, 0)


def a_study(means: Callable[[str, float], Interval]) -> Study:
    cells = [
        Cell(minutes, kind, {m: means(m, minutes) for m in STUDIED}, 0, 0)
        for kind in ("required", "optional")
        for minutes in (0, 5)
    ]
    rows = [{"minutes": c.minutes, "citations": c.citations, **{m: c.means[m].value for m in STUDIED}} for c in cells]
    return Study("Tea", ["Ann"], [0, 5], [0], cells, {"required": {}, "optional": {}}, {}, Usage(), rows)


def test_the_figure_has_a_panel_for_each_measure_that_is_defined(tmp_path: Path) -> None:
    study = a_study(lambda m, x: UNDEFINED if m == "quality" else Interval(x + 1.0, x, x + 2.0, 3))
    files = study_figure(study, tmp_path)
    assert [file.name for file in files] == list(FIGURE_NAMES)
    drawn = (tmp_path / "figure.svg").read_text()
    assert all(f"<!-- {measure} -->" in drawn for measure in STUDIED if measure != "quality")
    assert "<!-- quality -->" not in drawn
    assert "<!-- citations optional -->" in drawn
    assert ElementTree.parse(tmp_path / "figure.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("value", [UNDEFINED, Interval(2.0, None, None, 1)])
def test_means_without_an_interval_or_a_value_are_no_error(tmp_path: Path, value: Interval) -> None:
    study_figure(a_study(lambda *_: value), tmp_path)
    assert "nan" not in (tmp_path / "figure.svg").read_text().lower()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"figure\.svg cannot be written"):
        study_figure(a_study(lambda *_: UNDEFINED), tmp_path / "nowhere")
