"""Measures as a table for readers: what each is called, what it says, and why it is missing where it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from markupsafe import Markup

from .charts import Bar, bars
from .scales import number

__all__ = ["MeasureRow", "measure_rows"]

KNOWN = {
    "ideas": ("Ideas", "ideas on the whiteboard"),
    "depth": ("Influence depth", "citation steps behind an idea, on average over the ideas"),
    "absorption": ("Absorption", "share of what others said in the discussion that led to an idea; 0 to 1"),
    "distance": ("Distance", "how far the ideas are from each other in meaning: mean of 1 − cosine; 0 to 2"),
    "vendi": ("Vendi score", "how many different ideas there are in effect; 1 to the number of ideas"),
    "div_bleu": ("Div-BLEU", "how little the ideas share their wording: 100 − self-BLEU; 0 to 100"),
    "distinct_1": ("Distinct words", "different words among all words of the ideas; 0 to 1"),
    "distinct_2": ("Distinct word pairs", "different pairs of neighbouring words among all; 0 to 1"),
    "order": ("Order parameter", "how much the ideas point the same way; 1 means all alike"),
    "balance": ("Balance of talk", "how evenly the personas spoke; 1 means equally often"),
    "citations": ("Citations", "sources that a contribution names, on average"),
    "uncited": ("Without a source", "share of the contributions that name no source though there was one; 0 to 1"),
    "citations_dropped": ("Citations not kept", "they named something unknown, unseen or themselves, or repeated"),
    "clamped": ("Numbers clamped", "numbers that models wrote outside their scale"),
    "failures": ("Failed calls", "calls that failed after their retries"),
    "influence": ("Influence", "share of a persona's contributions among what led to others' ideas; 0 to 1"),
}


@dataclass(frozen=True)
class MeasureRow:
    """One measure: its name, its value in words, and what it means; ``why`` says why it has no value."""

    key: str
    label: str
    value: str
    meaning: str
    why: str = ""


def measure_rows(measures: Any) -> tuple[list[MeasureRow], list[Markup]]:
    """Return the rows of single numbers, and a chart of each measure that is told by persona.

    Args:
        measures: A dataclass of numbers and of mappings to numbers; ``undefined`` holds reasons by field.
    """
    undefined: Mapping[str, str] = measures.undefined
    rows: list[MeasureRow] = []
    by_persona: list[Markup] = []
    for item in fields(measures):
        value = getattr(measures, item.name)
        label, meaning = KNOWN.get(item.name, (item.name.replace("_", " ").capitalize(), ""))
        if item.name == "undefined":
            continue
        if isinstance(value, Mapping):
            by_persona.append(_by_persona(label, meaning, value))
            continue
        why = "" if value is not None else undefined.get(item.name, "not defined for this session")
        rows.append(MeasureRow(item.name, label, number(value), meaning, why))
    return rows, by_persona


def _by_persona(label: str, meaning: str, values: Mapping[str, float | None]) -> Markup:
    return bars(label, [Bar(who, value) for who, value in values.items()], head="Who", unit=label, note=meaning)
