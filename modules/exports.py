"""Everything a session can be written as, by file name."""

from __future__ import annotations

from collections.abc import Callable

from .document import document_schema
from .entries import transcript_csv, transcript_markdown
from .files import ideas_csv, ideas_markdown, session_json
from .graphs import GRAPHS
from .session import Session

__all__ = ["FORMATS", "export"]

FORMATS: dict[str, Callable[[Session], str]] = {
    "ideas.md": ideas_markdown,
    "ideas.csv": ideas_csv,
    "transcript.md": transcript_markdown,
    "transcript.csv": transcript_csv,
    "session.json": session_json,
    "session.schema.json": lambda _: document_schema(),
    **GRAPHS,
}


def export(session: Session, name: str, idea: str | None = None) -> str:
    """Return a session in one of its forms.

    Args:
        session: The session.
        name: A name of ``FORMATS``.
        idea: Id of an idea to which the graphs are restricted; other forms are always whole.

    Raises:
        KeyError: If there is no such form.
        UserError: If the session has no such idea.
    """
    return GRAPHS[name](session, idea) if name in GRAPHS else FORMATS[name](session)
