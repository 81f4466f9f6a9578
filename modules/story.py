"""The history of an idea in plain prose, from its lineage alone and without an LM."""

from __future__ import annotations

from .events import Comment, Entity, Facilitation, Idea, Summary, Thought
from .session import Session
from .text import excerpt

__all__ = ["story"]

_QUOTE = 160
_ENDS = 6  # steps told at either end of a long chain


def story(session: Session, idea: str) -> str:
    """Tell how an idea came about: who proposed it when, what it cites, and its longest chain.

    Args:
        session: The session.
        idea: Id of the idea.

    Raises:
        KeyError: If the session has no such entity.
    """
    lineage = session.lineage
    ancestors = lineage.ancestors(idea)
    entity = session.entities[idea]
    lines = [f"Proposed by {session.label(entity.author)} in turn {entity.turn}."]
    if not entity.cites:
        lines.append("It names no source.")
    for name in entity.cites:
        lines.append(f"It builds on {_told(session, session.entities[name], entity.author)}")
    chain = lineage.longest_chain(idea)
    if len(chain) > 2:
        steps = [f"{name} ({session.label(session.entities[name].author)})" for name in chain]
        if len(steps) > 2 * _ENDS:
            steps[_ENDS:-_ENDS] = ["…"]
        lines.append(f"Longest chain, {len(chain) - 1} steps: {' → '.join(steps)}.")
    others = {session.label(lineage.authors[a]) for a in ancestors} - {session.label(entity.author)}
    if others:
        lines.append(f"In all, {len(ancestors)} earlier contributions led to it, also by {', '.join(sorted(others))}.")
    return "\n".join(lines)


def _told(session: Session, entity: Entity, reader: str) -> str:
    kind = {
        Thought: "thought",
        Comment: "remark",
        Idea: "idea",
        Facilitation: "word",
        Summary: "summary",
    }.get(type(entity), "entry")
    whose = "their own" if entity.author == reader else f"{session.label(entity.author)}'s"
    text = entity.title if isinstance(entity, Idea) else getattr(entity, "text", "")
    return f"{entity.id}, {whose} {kind} in turn {entity.turn}: “{excerpt(text, _QUOTE)}”"
