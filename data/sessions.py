"""Recorded sessions as one data set, for analysis with ``datasets`` and pandas.

A session that is held in memory is asked for its table; one that lies in a folder is read from its
``session.json``. Both give the same rows, under the same features, also where there are none.

Columns, after ``session`` (name of the folder, or place in the list):

- ``ideas``: rank, id, title, description, author, votes, voters, cites, depth, program, topic, seed, status.
- ``transcript``: n, turn, minute, kind, id, author, private, cites, text.
- ``votes``: id, turn, minute, voter, idea, title, origin, reason.

The seed is a text, since it may be of any size.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from salon.errors import UserError

if TYPE_CHECKING:
    import datasets
    import pandas as pd

__all__ = ["SESSION_FEATURES", "Framed", "sessions_to_dataset"]

_FILE = "session.json"
_FITS: dict[str, type | tuple[type, ...]] = {"string": str, "int64": int, "float64": (int, float), "bool": bool}
_Row: TypeAlias = dict[str, Any]
SESSION_FEATURES: dict[str, dict[str, str | list[str]]] = {
    "ideas": {
        "session": "string",
        "rank": "int64",
        "id": "string",
        "title": "string",
        "description": "string",
        "author": "string",
        "votes": "int64",
        "voters": ["string"],
        "cites": ["string"],
        "depth": "int64",
        "program": "string",
        "topic": "string",
        "seed": "string",
        "status": "string",
    },
    "transcript": {
        "session": "string",
        "n": "int64",
        "turn": "int64",
        "minute": "float64",
        "kind": "string",
        "id": "string",
        "author": "string",
        "private": "bool",
        "cites": ["string"],
        "text": "string",
    },
    "votes": {
        "session": "string",
        "id": "string",
        "turn": "int64",
        "minute": "float64",
        "voter": "string",
        "idea": "string",
        "title": "string",
        "origin": "string",
        "reason": "string",
    },
}
"""Types of the columns, by table."""


class Framed(Protocol):
    """A session that gives itself as a table."""

    def to_frame(self, what: str = "ideas") -> pd.DataFrame:
        """Return one of its tables."""


def sessions_to_dataset(sessions: Iterable[Framed | str | Path], what: str = "ideas") -> datasets.Dataset:
    """Return the rows of many sessions as one data set.

    Args:
        sessions: Sessions, and folders of sessions.
        what: ``ideas``, ``transcript`` or ``votes``.

    Raises:
        UserError: If there is no such table, a folder has no ``session.json``, or one is damaged.
    """
    import datasets

    if what not in SESSION_FEATURES:
        known = ", ".join(SESSION_FEATURES)
        raise UserError(f"There is no table {what!r}", "sessions have other ones", f"Ask for {known}.")
    if isinstance(sessions, str | Path):
        raise UserError(f"{str(sessions)!r} is one folder", "a list is needed", "Give [folder].")
    given = list(sessions)
    features = datasets.Features({name: _feature(kind) for name, kind in SESSION_FEATURES[what].items()})
    parts = [datasets.Dataset.from_dict({name: [] for name in features}, features=features)]
    for name, session in zip(_names(given), given, strict=True):
        try:
            rows = _folder_rows(Path(session), what) if isinstance(session, str | Path) else _frame_rows(session, what)
            named = [{**row, "session": name} for row in rows]
            kinds = SESSION_FEATURES[what].items()
            columns = {column: [_checked(column, kind, row[column]) for row in named] for column, kind in kinds}
            parts.append(datasets.Dataset.from_dict(columns, features=features))
        except UserError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise _damaged(session, f"{type(error).__name__}: {error}") from error
    return datasets.concatenate_datasets(parts)


def _feature(kind: str | list[str]) -> Any:
    import datasets

    return [datasets.Value(kind[0])] if isinstance(kind, list) else datasets.Value(kind)


def _checked(column: str, kind: str | list[str], value: Any) -> Any:
    """Return a value as Arrow takes it: of its column's type, and without lone surrogates."""
    if column == "seed":
        return str(value)
    if isinstance(kind, list) and isinstance(value, list):
        return [_checked(column, kind[0], item) for item in value]
    if isinstance(kind, list) or not isinstance(value, _FITS[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise TypeError(f"{column} is {value!r}")
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def _names(given: list[Framed | str | Path]) -> list[str]:
    """Name sessions by place, and folders by their own name, or by their path where that is not unique."""
    folders = [Path(item).resolve() if isinstance(item, str | Path) else None for item in given]
    count = Counter(folder.name for folder in set(folders) if folder)
    return [(str(f) if count[f.name] > 1 else f.name) if f else str(n) for n, f in enumerate(folders)]


def _frame_rows(session: Framed, what: str) -> list[_Row]:
    rows: list[_Row] = session.to_frame(what).to_dict("records")  # type: ignore[assignment]
    return rows


def _folder_rows(folder: Path, what: str) -> list[_Row]:
    path = folder / _FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        todo = f"Make one: salon export {folder} {_FILE} --out {folder}"
        raise UserError(f"There is no {_FILE} in {folder}", "a session is read from it", todo) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read", error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(folder, f"it is not JSON ({error})") from error
    if not isinstance(document, dict) or document.get("version") != 1:
        raise _damaged(folder, "it is no session of version 1")
    return list(_READERS[what](document))


def _damaged(session: object, why: str) -> UserError:
    where = f"{_FILE} in {session}" if isinstance(session, str | Path) else "A session"
    return UserError(f"{where} cannot be used", " ".join(why.split())[:300], "Write it anew with `salon export`.")


def _ideas(document: _Row) -> Iterator[_Row]:
    common = {name: document[name] for name in ("program", "seed", "status")}
    topic, *_ = document["inputs"].values()
    return ({**idea, **common, "topic": str(topic)} for idea in document["ideas"])


def _transcript(document: _Row) -> Iterator[_Row]:
    for event in document["events"]:
        if "id" in event:
            told = {"kind": event["type"], "author": _label(document, event["author"])}
            yield {**event, **told, "private": _private(event), "text": _wording(event)}


def _votes(document: _Row) -> Iterator[_Row]:
    titles = {idea["id"]: idea["title"] for idea in document["ideas"]}
    for event in document["events"]:
        if event["type"] == "vote":
            yield {**event, "voter": _label(document, event["author"]), "title": titles[event["idea"]]}


def _label(document: _Row, author: str) -> str:
    labels = (persona["label"] for persona in document["personas"] if persona["persona"] == author)
    return str(next(labels, author.capitalize()))


def _private(event: _Row) -> bool:
    return event["type"] == "thought" or bool(
        event["type"] == "facilitation" and (event["target"] or not event["accepted"])
    )


def _wording(event: _Row) -> str:
    """Return what an entity says, as its session does."""
    if event["type"] == "idea":
        title, description = event["title"], event["description"]
        return str(description if description.startswith(title.rstrip("…")) else f"{title}. {description}")
    text, question = event.get("text", event.get("reason")), event.get("question")
    return str(text) if question in (None, "", text) else f"{text} {question}"


_READERS: dict[str, Callable[[_Row], Iterator[_Row]]] = {"ideas": _ideas, "transcript": _transcript, "votes": _votes}
