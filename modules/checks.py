"""Checks of what callers give to session programs, each with one clear line."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from salon.errors import PersonaError, UserError

from ..signatures.personas import Persona
from .budget import Budget
from .control import Control
from .limits import CallLimits
from .text import clean, excerpt, tokens

__all__ = ["MOST_INVENTED", "check_arguments", "check_sketches", "checked_personas", "checked_text"]

MOST_INVENTED = 100


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "out": ((str, Path), "the path of a folder"),
    "budget": ((Budget,), "a salon.Budget"),
    "control": ((Control,), "a salon.Control"),
    "limit": ((asyncio.Semaphore, CallLimits), "an asyncio.Semaphore"),
}


def check_arguments(**given: Any) -> None:
    """Make sure that the arguments of a session are of the kind they should be, or None.

    Raises:
        UserError: If one is not.
    """
    for name, value in given.items():
        kinds, needed = _KINDS[name]
        if value is not None and not isinstance(value, kinds):
            raise UserError(f"{name}={excerpt(repr(value), 80)} is not possible", f"{needed} is needed")


def checked_text(kind: str, inputs: Mapping[str, Any], name: str, budget: float = 6000) -> dict[str, Any]:
    """Return the one text a session is about, cleaned.

    Args:
        kind: The program whose inputs they are, e.g. "Roundtable".
        inputs: The inputs given.
        name: The input that is needed.
        budget: Tokens of a prompt; a quarter is kept for the text.

    Raises:
        UserError: If there are other inputs, or the text is missing, empty or too long.
    """
    unknown = inputs.keys() - {name}
    if unknown:
        raise UserError(f"A {kind} takes no {', '.join(sorted(unknown))}", f"it takes a {name}")
    text = inputs.get(name)
    if not isinstance(text, str) or not clean(text):
        raise UserError(f"There is no {name}", "a session needs a text to be about", f'Give one: {name}="..."')
    text, room = clean(text), int(budget) // 4
    if tokens(text) > room:
        raise UserError(
            f"The {name} is too long (about {tokens(text)} tokens)",
            f"a quarter of the prompt budget, {room} tokens, is kept for it",
            "Shorten it, or raise the program's prompt_tokens if the model can read more.",
        )
    return {name: text}


def checked_personas(
    personas: int | Sequence[Persona | Mapping[str, Any]], least: int, where: str
) -> int | list[Persona]:
    """Return how many personas to invent, or the personas.

    Args:
        personas: A number, or personas, or mappings with their fields.
        least: The fewest that are possible.
        where: What they take part in, e.g. "a roundtable".

    Raises:
        PersonaError: If they are none of these, or too few or too many.
    """
    if isinstance(personas, int) and not isinstance(personas, bool):
        count = personas
    elif isinstance(personas, Sequence) and not isinstance(personas, str):
        count = len(personas)
    else:
        raise PersonaError(
            f"{personas!r} are no personas",
            "a number or a list of personas is needed",
            "Read a pool with salon.load_personas(path).",
        )
    if count < least:
        raise PersonaError(f"{where.capitalize()} cannot be held with {count} personas", f"it takes at least {least}")
    if isinstance(personas, int):
        if count > MOST_INVENTED:
            raise PersonaError(
                f"{count} personas cannot be invented", f"{MOST_INVENTED} is the most", "Give a pool of your own."
            )
        return count
    return [p if isinstance(p, Persona) else _persona(p) for p in personas]


def check_sketches(personas: Sequence[Persona], budget: float) -> None:
    """Make sure that every sketch fits a prompt: an eighth of its budget is kept for one.

    Raises:
        PersonaError: If one does not.
    """
    room = int(budget) // 8
    for persona in personas:
        if tokens(persona.sketch) > room:
            raise PersonaError(
                f"The sketch of {persona.name!r} is too long (about {tokens(persona.sketch)} tokens)",
                f"at most {room} fit the prompt budget",
                "Shorten it, or raise the program's prompt_tokens if the model can read more.",
            )


def _persona(data: Mapping[str, Any]) -> Persona:
    try:
        return Persona.model_validate(dict(data) if isinstance(data, Mapping) else data)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise PersonaError(
            f"{excerpt(repr(data), 100)} is no persona",
            ": ".join([*map(str, wrong["loc"]), wrong["msg"]]),
            "A persona has a name and a sketch, both not empty; what else there is goes into extra.",
        ) from error
