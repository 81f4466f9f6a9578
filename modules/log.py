"""The session log: an append-only file of JSON objects, one a line, written as things happen.

Record kinds, told by ``kind``:

- ``header``: program, settings, inputs, seed, models, package versions. Always the first line.
- ``call``: the outputs of one LM call under its key, or its failure; with usage, cost and seconds.
- ``reading``: anything else a session took from outside (clock, similarity, a person, Ctrl-C) under its key.
- ``event``: one event of the session.
- ``end``: status and totals.

A session is a pure function of its header, calls and readings; events are derived from them. Running
a program over a log therefore makes only the calls that are missing. While it runs, each derived event
is held against the one on file; a difference means that the log belongs to another program.

A process killed in the middle of a write leaves a torn last line, which is cut off on opening.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from salon.errors import LogError, OutputError

__all__ = ["LOG_NAME", "VERSION", "Recorded", "SessionLog", "read_log"]

VERSION = 1
LOG_NAME = "session.jsonl"
_UNEQUAL = {"started", "seconds"}  # what may differ between two runs of the same session


@dataclass
class Recorded:
    """The content of a session log.

    Attributes:
        header: The first record.
        calls: Call records by key.
        readings: Values taken from outside, by key.
        events: Event records in order.
        end: The last record, or None if the session was interrupted.
    """

    header: dict[str, Any]
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    readings: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None

    def add(self, record: dict[str, Any]) -> None:
        """Take in one record that follows the header."""
        match record.get("kind"):
            case "call":
                self.calls[record["key"]] = record
            case "reading":
                self.readings[record["key"]] = record["value"]
            case "event":
                self.events.append({k: v for k, v in record.items() if k != "kind"})
            case "end":
                self.end = record
            case kind:
                raise LogError("The session log cannot be read", f"it has a record of unknown kind {kind!r}")

    def canonical(self) -> dict[str, Any]:
        """Return the log without what time and order of arrival decide; equal for equal sessions."""

        def timeless(value: Any) -> Any:
            if not isinstance(value, dict):
                return value
            return {k: timeless(v) for k, v in value.items() if k not in _UNEQUAL}

        return {
            "header": timeless(self.header),
            "calls": {key: timeless(self.calls[key]) for key in sorted(self.calls)},
            "events": self.events,
            "end": timeless(self.end),
        }

    def reopened(self) -> Recorded:
        """Return what a continuation may reuse of an ended session.

        Failed calls are dropped, so that they are tried again; the signal to wrap up and the
        clock's readings are dropped, so that the session goes on; events are derived anew.
        """
        calls = {key: call for key, call in self.calls.items() if call["status"] == "ok"}
        readings = {k: v for k, v in self.readings.items() if not k.endswith(("/wrap_up", "/clock"))}
        return Recorded(self.header, calls, readings)


def _lines(path: Path) -> Iterator[tuple[int, str, bool]]:
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                yield number, raw.decode("utf-8", "replace"), raw.endswith(b"\n")
    except FileNotFoundError:
        raise OutputError(
            f"There is no session in {path.parent}", f"it has no {path.name}", "Give the folder of a session."
        ) from None
    except OSError as error:
        raise OutputError(f"{path} cannot be read", error.strerror or str(error)) from error


def read_log(folder: Path) -> Recorded:
    """Read the log of a session's folder.

    Raises:
        OutputError: If there is no log, or it cannot be opened.
        LogError: If a line other than a torn last one is damaged, or the version is unknown.
    """
    path = folder / LOG_NAME
    recorded: Recorded | None = None
    for number, text, whole in _lines(path):
        try:
            record = json.loads(text)
            if not isinstance(record, dict):
                raise ValueError("not an object")
        except ValueError as error:
            if not whole:
                break
            raise LogError(f"{path} is damaged", f"line {number} is not a JSON object ({error})") from error
        if not whole:
            break
        if recorded is None:
            recorded = Recorded(_checked_header(record, path))
        else:
            recorded.add(record)
    if recorded is None:
        raise LogError(f"{path} holds no session", "its first line is missing", "Start the session anew.")
    return recorded


def _checked_header(record: dict[str, Any], path: Path) -> dict[str, Any]:
    if record.get("kind") != "header":
        raise LogError(f"{path} is no session log", "its first line is not a header")
    if record.get("version") != VERSION:
        raise LogError(
            f"{path} has log version {record.get('version')!r}",
            f"this salon reads version {VERSION}",
            "Use the salon that wrote it.",
        )
    return record


class SessionLog:
    """Writes a session's records, to a file or to memory alone.

    Args:
        folder: Where ``session.jsonl`` goes; None keeps the log in memory.
        recorded: What an earlier run left; its calls and readings are reused.
        rewrite: Start the file anew from ``recorded`` (needed when events on file no longer hold).
    """

    def __init__(self, folder: Path | None, recorded: Recorded, rewrite: bool = True) -> None:
        self.recorded = recorded
        self.path = folder / LOG_NAME if folder is not None else None
        self._checked = 0
        self._file: TextIO | None = None
        if self.path is not None:
            self._file = self._rewritten(self.path) if rewrite else self._continued(self.path)

    def _rewritten(self, path: Path) -> TextIO:
        fresh = path.with_suffix(".tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("w", encoding="utf-8") as file:
                for record in self._records():
                    file.write(_line(record))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
            return path.open("a", encoding="utf-8")
        except OSError as error:
            raise _unwritable(path, error) from error

    def _continued(self, path: Path) -> TextIO:
        try:
            content = path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                os.truncate(path, whole)
            return path.open("a", encoding="utf-8")
        except OSError as error:
            raise _unwritable(path, error) from error

    def _records(self) -> Iterator[dict[str, Any]]:
        yield self.recorded.header
        yield from self.recorded.calls.values()
        for key, value in self.recorded.readings.items():
            yield {"kind": "reading", "key": key, "value": value}

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(_line(record))
            self._file.flush()
        except OSError as error:
            raise _unwritable(Path(self._file.name), error) from error

    def call(self, record: dict[str, Any]) -> None:
        """Record an LM call's outputs or its failure."""
        record = {"kind": "call", **record}
        self.recorded.calls[record["key"]] = record
        self._write(record)

    def reading(self, key: str, value: Any) -> None:
        """Record a value taken from outside."""
        self.recorded.readings[key] = value
        self._write({"kind": "reading", "key": key, "value": value})

    def event(self, event: dict[str, Any]) -> None:
        """Record an event, or hold it against the one on file.

        Raises:
            LogError: If the file has another event in this place.
        """
        if self._checked < len(self.recorded.events):
            on_file = self.recorded.events[self._checked]
            if on_file != event:
                raise LogError(
                    "The session cannot be run over its log",
                    f"event {self._checked} was {on_file.get('type')!r} and is now {event.get('type')!r}"
                    if on_file.get("type") != event.get("type")
                    else f"event {self._checked} ({event.get('type')}) differs from the one on file",
                    "It was written by another version of salon or of the program; start anew.",
                )
        else:
            self.recorded.events.append(event)
            self._write({"kind": "event", **event})
        self._checked += 1

    def end(self, record: dict[str, Any]) -> None:
        """Record the end and close the file."""
        if self.recorded.end is None:
            self.recorded.end = {"kind": "end", **record}
            self._write(self.recorded.end)
        self.close()

    def close(self) -> None:
        """Close the file; records in memory stay."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=True, separators=(",", ":"), allow_nan=False) + "\n"


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{path} cannot be written",
        error.strerror or str(error),
        "Free some space or give another folder with --out; what was written before is kept.",
    )
