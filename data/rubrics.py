"""What an answer to a task is judged by: a few named dimensions, each rated from 1 to 10.

The score of an answer is the mean of its scored dimensions. A dimension that is shown beside them is rated and
reported, and counts for nothing. Every benchmark comes with its rubric; a rubric of one's own is a JSON or YAML
file:

    name: recipes
    dimensions:
      taste: how much one would want to eat it
      effort:
        description: how little work it is
        scored: false
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from salon.errors import UserError

from .splits import normalised

__all__ = ["RUBRICS", "Dimension", "Rubric", "load_rubric"]

_SHAPE = "It needs a name, and dimensions: a text under the name of each."


@dataclass(frozen=True)
class Dimension:
    """One thing that is rated.

    Attributes:
        name: What it is called.
        description: What is asked about an answer, in a line.
        scored: Whether it counts for the score, or is shown beside it.
    """

    name: str
    description: str
    scored: bool = True


@dataclass(frozen=True)
class Rubric:
    """The dimensions of a benchmark.

    Raises:
        UserError: If none is scored, two have one name, or one lacks a name or a description.
    """

    name: str
    dimensions: tuple[Dimension, ...]

    def __post_init__(self) -> None:
        if not any(dimension.scored for dimension in self.dimensions):
            raise UserError(f"The rubric {self.name!r} cannot be used", "it has no scored dimension", _SHAPE)
        names = [normalised(dimension.name) for dimension in self.dimensions]
        for dimension, name in zip(self.dimensions, names, strict=True):
            if not name or not dimension.description.strip():
                why = f"the dimension {dimension.name!r} lacks a {'description' if name else 'name'}"
                raise UserError(f"The rubric {self.name!r} cannot be used", why, _SHAPE)
            if names.count(name) > 1:
                why = f"the dimension {dimension.name!r} is there twice"
                raise UserError(f"The rubric {self.name!r} cannot be used", why, "Rename or remove one of them.")

    @property
    def scored(self) -> tuple[Dimension, ...]:
        """The dimensions whose mean is the score."""
        return tuple(dimension for dimension in self.dimensions if dimension.scored)


_ORIGINALITY = Dimension("originality", "how far it is from what most people would come up with")
_FEASIBILITY = Dimension("feasibility", "how likely it could be carried out with means that exist or are in sight")
_CLARITY = Dimension("clarity", "how plain it is what would be done, and why")
_RELEVANCE = Dimension("relevance", "how well it answers what was asked")

RUBRICS: dict[str, Rubric] = {
    rubric.name: rubric
    for rubric in (
        Rubric("ideas", (_ORIGINALITY, _FEASIBILITY, _CLARITY, _RELEVANCE)),
        Rubric(
            "liveideabench",
            (
                _ORIGINALITY,
                _FEASIBILITY,
                _CLARITY,
                Dimension("relevance", "how much it has to do with the keyword", scored=False),
            ),
        ),
        Rubric(
            "macgyver",
            (
                Dimension("out-of-the-box thinking", "how far things are put to uses that they were not made for"),
                Dimension("practical feasibility", "how likely the steps would work in the real world, as described"),
                Dimension("use of the constraints", "how well it keeps to the things at hand and to what is ruled out"),
            ),
        ),
        Rubric(
            "argument-topics",
            (
                Dimension("persuasiveness", "how likely it would move a reader who has not made up their mind"),
                Dimension("novelty", "how rarely this case is made about the topic"),
                Dimension("logical coherence", "how well each step follows, without gaps or contradictions"),
            ),
        ),
        Rubric(
            "creative-writing",
            (
                Dimension("creativity", "how much of it is surprising and of its own making"),
                Dimension("relevance", "how well it keeps to every part of the request"),
                Dimension("language quality", "how well it is written: rhythm, choice of words, correctness"),
            ),
        ),
    )
}
"""The rubrics that come with salon, by name."""


def load_rubric(name_or_path: str | Path) -> Rubric:
    """Return a rubric that comes with salon, or read one from a ``.json``, ``.yaml`` or ``.yml`` file.

    Raises:
        UserError: If there is none of this name, or the file is no rubric.
    """
    if str(name_or_path) in RUBRICS:
        return RUBRICS[str(name_or_path)]
    file = Path(name_or_path).expanduser()
    if file.suffix.lower() not in (".json", ".yaml", ".yml"):
        todo = f"Give one of {', '.join(RUBRICS)}, or the path of a JSON or YAML file."
        raise UserError(f"There is no rubric {str(name_or_path)!r}", todo=todo)
    try:
        text = file.read_text(encoding="utf-8-sig")
        content = json.loads(text) if file.suffix.lower() == ".json" else yaml.safe_load(text)
    except OSError as error:
        raise UserError(f"{name_or_path} cannot be read", error.strerror or str(error), "Check the path.") from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        kind = "JSON" if file.suffix.lower() == ".json" else "YAML"
        raise UserError(f"{name_or_path} is no rubric", f"it is not {kind} ({error})"[:300], _SHAPE) from error
    return _rubric(str(name_or_path), file.stem, content)


def _rubric(place: str, stem: str, content: Any) -> Rubric:
    entries = content.get("dimensions") if isinstance(content, Mapping) else None
    if isinstance(entries, Mapping):
        told = [{"name": name, **(e if isinstance(e, Mapping) else {"description": e})} for name, e in entries.items()]
        return Rubric(str(content.get("name", stem)), tuple(_dimension(place, entry) for entry in told))
    if isinstance(entries, list):
        return Rubric(str(content.get("name", stem)), tuple(_dimension(place, entry) for entry in entries))
    raise UserError(f"{place} is no rubric", "there are no dimensions in it", _SHAPE)


def _dimension(place: str, entry: Any) -> Dimension:
    if not isinstance(entry, Mapping):
        raise UserError(f"{place} is no rubric", f"the dimension {str(entry)[:60]!r} has no description", _SHAPE)
    name, description, scored = entry.get("name"), entry.get("description"), entry.get("scored", True)
    if not isinstance(name, str) or not isinstance(description, str) or not isinstance(scored, bool):
        why = f"the dimension {str(name)[:60]!r} is not a text with a description, and scored true or false"
        raise UserError(f"{place} is no rubric", why, _SHAPE)
    return Dimension(" ".join(name.split()), " ".join(description.split()), scored)
