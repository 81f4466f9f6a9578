"""A session as pandas tables.

Columns of ``ideas``, best idea first:
    rank, id, title, description, author (label), votes (number), voters (list of labels), cites (list of ids),
    depth (edges on the longest citation chain), program, topic, seed, status of the session.
Columns of ``transcript``, one row for each entity in order (see ``Entry``):
    n, turn, minute, kind, id, author (label), private, cites (list of ids), text.
Columns of ``votes``, in order:
    id, turn, minute, voter (label), idea (id), title, origin (``ballot`` or ``duplicate``), reason.

Counts are ``int64``, ``minute`` is ``float64``, ``private`` is ``bool``; texts, lists and the seed, which may
be of any size, are ``object``. Lone surrogates, which Arrow cannot hold, become ``?`` in texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from salon.errors import UserError

from .entries import entries
from .events import Vote
from .session import Session

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FRAMES", "to_frame"]

_IDEAS = "rank id title description author votes voters cites depth program topic seed status"
_TRANSCRIPT = "n turn minute kind id author private cites text"
_VOTES = "id turn minute voter idea title origin reason"
_TYPES = {name: "int64" for name in ("rank", "votes", "depth", "n", "turn")} | {"minute": "float64", "private": "bool"}


def to_frame(session: Session, what: str = "ideas") -> pd.DataFrame:
    """Return a session as a table.

    Args:
        session: The session.
        what: ``ideas``, ``transcript`` or ``votes``.

    Raises:
        UserError: If there is no such table.
    """
    import pandas as pd

    if what not in FRAMES:
        raise UserError(f"There is no table {what!r}", "a session has other ones", f"Ask for {', '.join(FRAMES)}.")
    columns, rows_of = FRAMES[what]
    rows = list(rows_of(session))
    return pd.DataFrame(
        {
            name: pd.Series([_plain(row[name]) for row in rows], dtype=_TYPES.get(name, "object"))
            for name in columns.split()
        }
    )


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _ideas(session: Session) -> Iterator[dict[str, Any]]:
    depths = session.lineage.depths()
    common = {
        "program": session.name,
        "topic": session.topic,
        "seed": session.header["seed"],
        "status": session.status,
    }
    for idea in session.ideas:
        yield {**asdict(idea), "depth": depths[idea.id], **common}


def _transcript(session: Session) -> Iterator[dict[str, Any]]:
    return (asdict(entry) for entry in entries(session, course=False))


def _votes(session: Session) -> Iterator[dict[str, Any]]:
    titles = {idea.id: idea.title for idea in session.board}
    for vote in session.entities.values():
        if isinstance(vote, Vote):
            yield {**vote.model_dump(), "voter": session.label(vote.author), "title": titles[vote.idea]}


FRAMES: dict[str, tuple[str, Callable[[Session], Iterator[dict[str, Any]]]]] = {
    "ideas": (_IDEAS, _ideas),
    "transcript": (_TRANSCRIPT, _transcript),
    "votes": (_VOTES, _votes),
}
