"""What tuning changed in a program: its settings, its numbers and its prompts, before and after."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..modules.program import SessionProgram
from .space import tunables

__all__ = ["Number", "ProgramChange", "PromptChange", "program_change"]

Number = int | float


@dataclass(frozen=True)
class PromptChange:
    """What became of one predictor's prompt.

    Attributes:
        predictor: Its name in the program.
        before: Its instructions in the untuned program.
        after: Its instructions now.
        fields: Descriptions of fields that were changed, as name: (before, after).
        demos: The demonstrations it has now, each value as a text.
        demos_before: Those it had.
    """

    predictor: str
    before: str
    after: str
    fields: dict[str, tuple[str, str]] = field(default_factory=dict)
    demos: list[dict[str, str]] = field(default_factory=list)
    demos_before: list[dict[str, str]] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether anything is other than before."""
        return self.before != self.after or bool(self.fields) or self.demos != self.demos_before


@dataclass(frozen=True)
class ProgramChange:
    """A program before and after.

    Attributes:
        name: Its class.
        input: What a call of it takes, ``topic``, ``task`` or ``problem``.
        settings_before: Its settings before.
        settings: Its settings now.
        numbers_before: The values of its tunables before, by name.
        numbers: The values now.
        prompts: Each of its predictors.
    """

    name: str
    input: str
    settings_before: dict[str, Any]
    settings: dict[str, Any]
    numbers_before: dict[str, Number]
    numbers: dict[str, Number]
    prompts: list[PromptChange]

    @property
    def changed(self) -> bool:
        """Whether it is another program than before."""
        same = self.settings == self.settings_before and self.numbers == self.numbers_before
        return not same or any(prompt.changed for prompt in self.prompts)


def program_change(before: SessionProgram, after: SessionProgram) -> ProgramChange:
    """Return what differs between an untuned program and what became of it.

    Args:
        before: The untuned program.
        after: A program of the same class.
    """
    told = before.described()["state"], after.described()["state"]
    prompts = [
        _prompt_change(name, list(predictor.signature.fields), *(state.get(name) for state in told))
        for name, predictor in after.named_predictors()
    ]
    return ProgramChange(
        name=type(after).__name__,
        input=after.inputs[0],
        settings_before=before.settings(),
        settings=after.settings(),
        numbers_before=_numbers(before),
        numbers=_numbers(after),
        prompts=prompts,
    )


def _numbers(program: SessionProgram) -> dict[str, Number]:
    return {name: tunable.value for name, tunable in tunables(program).items()}


def _prompt_change(name: str, fields: list[str], before: Any, after: Any) -> PromptChange:
    """Return the change of a predictor from its saved state before, which may be missing, and after."""
    earlier = before or {"demos": [], "signature": {"instructions": "", "fields": []}}
    pairs = zip(fields, earlier["signature"]["fields"], after["signature"]["fields"], strict=False)
    worded = {field: (old["description"], new["description"]) for field, old, new in pairs}
    return PromptChange(
        predictor=name,
        before=earlier["signature"]["instructions"],
        after=after["signature"]["instructions"],
        fields={field: change for field, change in worded.items() if change[0] != change[1]},
        demos=[_texts(demo) for demo in after["demos"]],
        demos_before=[_texts(demo) for demo in earlier["demos"]],
    )


def _texts(demo: Mapping[str, Any]) -> dict[str, str]:
    """Return a demonstration with each value as a text."""
    return {
        str(key): value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for key, value in demo.items()
    }
