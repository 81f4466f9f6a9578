"""Charts as self-contained SVG or HTML: pure functions of typed data, without styles and without scripts.

Colours, dashes and fonts come from the classes in ``page.css``, so that a chart follows the page into dark
mode and onto paper. No series is told by its colour alone: lines differ in their dashes, marks in their shape.
All texts are escaped. Values that are missing or infinite leave a gap; a chart without any value says so.
"""

from __future__ import annotations

from .chart_lines import Level, Series, lines
from .chart_scatter import Dot, End, scatter
from .chart_strips import Strip, Tick, strips
from .chart_tables import Bar, bars, heat

__all__ = ["Bar", "Dot", "End", "Level", "Series", "Strip", "Tick", "bars", "heat", "lines", "scatter", "strips"]
