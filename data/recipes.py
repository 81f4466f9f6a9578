"""How each benchmark is made from its table: which columns, in which words, which rows, and where it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["OWN", "RECIPES", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """What is known of a benchmark.

    Attributes:
        about: What its data set is called where it is found.
        columns: The names that the column of its tasks may have.
        rubric: The name of its rubric.
        licence: The licence of its data.
        home: Where it is read from unless a file is given: a file, or a data set on the hub at a revision.
        text: Makes a task from what the column says.
        ids: The names that the column of its ids may have.
        conditions: The value that a column must have for a row to count.
        keep: The other columns that are read from the hub; all of them if not given.
    """

    about: str
    columns: tuple[str, ...]
    rubric: str
    licence: str
    home: str | Path | None = None
    text: Callable[[str], str] = str
    ids: tuple[str, ...] = ("id",)
    conditions: Mapping[str, str] = field(default_factory=dict)
    keep: tuple[str, ...] | None = None


def _idea(keyword: str) -> str:
    return (
        f"Think up one original scientific idea around this keyword: {_line(keyword)}\n"
        "Say in at most 100 words what would be done or found out, and why it could work."
    )


def _case(topic: str) -> str:
    return (
        f"Take a side on this topic: {_line(topic)}\n"
        "Argue for it in at most 100 words, so that somebody undecided is won over by a point seldom heard."
    )


def _line(text: str) -> str:
    return " ".join(text.split())


OWN = Recipe("", ("task", "prompt", "topic"), "ideas", "not stated")
"""How tasks of one's own are read."""

RECIPES: dict[str, Recipe] = {
    "topics": Recipe("the package", ("task",), "ideas", "MIT", home=Path(__file__).with_name("topics.csv")),
    "liveideabench": Recipe(
        "6cf/liveideabench",
        ("keyword", "keywords"),
        "liveideabench",
        "MIT",
        text=_idea,
        keep=("category",),
    ),
    "macgyver": Recipe(
        "allenai/MacGyver",
        ("problem",),
        "macgyver",
        "Apache-2.0",
        conditions={"solvable?": "yes"},
    ),
    "argument-topics": Recipe(
        "Argument Annotated Essays",
        ("topic", "prompt"),
        "argument-topics",
        "as stated by the publisher of the corpus, who does not allow it to be passed on",
        text=_case,
    ),
    "arena-hard-creative": Recipe(
        "lmarena-ai/arena-hard-auto",
        ("prompt",),
        "creative-writing",
        "Apache-2.0",
        home=(
            "hub:lmarena-ai/arena-hard-auto/data/arena-hard-v2.0/question.jsonl"
            "@15f3746e21432264ce9b453999bde4f3c946d2e6"
        ),
        ids=("uid", "id"),
        conditions={"category": "creative_writing"},
    ),
}
"""How the named benchmarks are read."""
