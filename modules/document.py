"""The document ``session.json``: one session in full, in a published form.

``SessionDocument`` is its only definition: the file is written from it, and its JSON schema, shipped as
``docs/session.schema.json``, is derived from it. ``version`` rises when a field changes its meaning or goes.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from .budget import Usage
from .events import AnyEvent, Event
from .session import Session, Status
from .story import story

__all__ = ["IdeaRecord", "PersonaRecord", "SessionDocument", "document_of", "document_schema"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLACE = set(Event.model_fields) | {"type"}  # what a seat's event says of the event, not of the persona


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PersonaRecord(_Record):
    """Someone who took part."""

    persona: str
    """Id in the session."""
    name: str
    """Name; need not be unique."""
    label: str
    """How the persona is called in prompts and results; unique."""
    role: str
    """Profession or part; may be empty."""
    sketch: str
    """Who the persona is."""
    extra: dict[str, str]
    """Further columns of the pool."""
    regenerated: bool
    """Whether the sketch was written anew because it was too close to another one."""


class IdeaRecord(_Record):
    """An idea with its place in the ranking."""

    rank: int
    """1 for the best."""
    id: str
    """Id in the session."""
    title: str
    """What it is called."""
    description: str
    """What it is."""
    author: str
    """Label of who proposed it."""
    votes: int
    """Number of votes."""
    voters: list[str]
    """Labels of those who voted for it."""
    cites: list[str]
    """Ids of the earlier entities it grew out of."""
    depth: int
    """Edges on the longest citation chain that ends in it."""
    history: str
    """How it came about, in prose; told from the citations alone."""


class SessionDocument(_Record):
    """A session of salon: how it was made, what happened, and the ideas it ended with."""

    model_config = ConfigDict(title="Session")

    version: Literal[1]
    """Version of this form."""
    program: str
    """Name of the program that held the session."""
    inputs: dict[str, Any]
    """What the program was given; the first is what the session was about."""
    seed: int
    """Decides every random choice."""
    settings: dict[str, Any]
    """Constructor arguments of the program."""
    models: dict[str, dict[str, Any]]
    """Language models by role or persona."""
    packages: dict[str, str]
    """Versions of the packages that decide what a session does."""
    started: str
    """When the session began; ISO 8601, UTC."""
    status: Status
    """How it ended; running if it has not ended, or was interrupted."""
    reason: str
    """Why it ended so."""
    usage: Usage
    """What it cost."""
    personas: list[PersonaRecord]
    """Who took part, in seat order."""
    ideas: list[IdeaRecord]
    """The ideas, best first."""
    lineage: dict[str, list[str]]
    """For each entity, in order of creation, the earlier entities it cites."""
    events: list[AnyEvent]
    """Everything that happened, in order."""


def document_of(session: Session) -> SessionDocument:
    """Return a session as a document.

    Raises:
        ValueError: If its header or its events do not fit (pydantic's ``ValidationError``).
    """
    header, depths = session.header, session.lineage.depths()
    personas = [joined.model_dump(exclude=_PLACE) for joined in session.personas.values()]
    ideas = [{**asdict(i), "depth": depths[i.id], "history": story(session, i.id)} for i in session.ideas]
    return SessionDocument(
        version=1,
        program=session.name,
        inputs=header["inputs"],
        seed=header["seed"],
        settings=header["settings"],
        models=header["models"],
        packages=header["packages"],
        started=header["started"],
        status=session.status,
        reason=session.reason,
        usage=session.usage,
        personas=[PersonaRecord(**persona) for persona in personas],
        ideas=[IdeaRecord(**{**idea, "voters": list(idea["voters"]), "cites": list(idea["cites"])}) for idea in ideas],
        lineage={name: list(cites) for name, cites in session.lineage.cites.items()},
        events=session.events,  # type: ignore[arg-type]
    )


def document_schema() -> str:
    """Return the JSON schema of ``session.json``."""
    return json.dumps({"$schema": _DIALECT, **SessionDocument.model_json_schema(mode="serialization")}, indent=1) + "\n"
