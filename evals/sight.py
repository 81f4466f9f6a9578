"""What a persona had before its eyes when it wrote something, and the same with one entity hidden.

The inputs of each call are not in the log, but they follow from it: the session is run over its log, without
any LM, and the inputs of its calls are kept. In them each entity is a line that starts with its id, which is
how one is hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..modules.archive import ahold_again
from ..modules.calls import CallProgress
from ..modules.events import Comment, Entity, Event, Idea, Thought, Vote
from ..modules.session import Session

__all__ = ["Prompt", "control_for", "hidden", "prompts"]

_SEEN = ("transcript", "whiteboard", "notes")
_PURPOSES: dict[type[Entity], str] = {Thought: "think", Comment: "speak", Idea: "propose"}


@dataclass(frozen=True)
class Prompt:
    """What a thought, comment or idea was written from.

    Attributes:
        inputs: Inputs of the call.
        sight: Ids of the entities that the inputs show, in order of creation.
    """

    inputs: dict[str, str]
    sight: tuple[str, ...]


async def prompts(folder: Path) -> tuple[Session, dict[str, Prompt]]:
    """Return a roundtable and what each of its thoughts, comments and ideas was written from, by id.

    Raises:
        OutputError: If the folder has no session.
        LogError: If the log is damaged, or the session was interrupted.
    """
    asked: dict[str, Mapping[str, Any]] = {}

    def listen(item: Event | CallProgress) -> None:
        if isinstance(item, CallProgress) and item.purpose in _PURPOSES.values():
            asked[item.key] = item.inputs

    @cache
    def heads(text: str) -> frozenset[str]:
        return frozenset(line.partition(" ")[0] for line in text.splitlines())

    session = await ahold_again(folder, listen=listen, offline=True)
    found = {}
    for entity in session.entities.values():
        inputs = asked.get(f"t{entity.turn:04}/{_PURPOSES.get(type(entity))}/{entity.author}")
        if inputs is not None:
            kept = {name: str(value) for name, value in inputs.items()}
            shown = frozenset[str]().union(*(heads(kept.get(name, "")) for name in _SEEN))
            found[entity.id] = Prompt(kept, tuple(name for name in session.entities if name in shown))
    return session, found


def hidden(inputs: Mapping[str, str], entity: str) -> dict[str, str]:
    """Return the inputs without the lines of an entity.

    Raises:
        ValueError: If no line shows it.
    """
    changed = dict(inputs)
    for name in _SEEN:
        lines = inputs.get(name, "").splitlines()
        kept = [line for line in lines if line.partition(" ")[0] != entity]
        if len(kept) < len(lines):
            changed[name] = "\n".join(kept) or "(nothing yet)"
    if changed == dict(inputs):
        raise ValueError(f"{entity} is not in sight")
    return changed


def control_for(session: Session, citing: Entity, cited: str, sight: tuple[str, ...]) -> str | None:
    """Return the entity that stands against a cited one: in sight, not cited, and else as alike as can be.

    One of the same kind goes before one of another, then one that did not lead to the citing entity through
    others either, then the one nearest to the cited entity in time. None if all in sight is cited.
    """
    against = session.entities[cited]
    ancestors = session.lineage.ancestors(citing.id)
    others = [n for n in sight if n not in citing.cites and not isinstance(session.entities[n], Vote)]

    def unlike(name: str) -> tuple[bool, bool, int]:
        entity = session.entities[name]
        return type(entity) is not type(against), name in ancestors, abs(entity.n - against.n)

    return min(others, key=unlike, default=None)
