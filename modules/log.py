"""The session log: an append-only file of JSON objects, one a line, written as things happen.

Record kinds, told by ``kind``:

- ``header``: program, settings, inputs, seed, models, package versions. Always the first line.
- ``call``: the outputs of one LM call under its key, or its failure; with usage, cost and seconds.
- ``past``: a call that was paid for and is not used again, because the session was taken up anew.
- ``reading``: anything else a session took from outside (clock, similarity, a person, Ctrl-C) under its key.
- ``event``: one event of the session.
- ``end``: status and totals.

A session is a pure function of its header, calls and readings; events are derived from them. Running
a program over a log therefore makes only the calls that are missing. While it runs, each derived event
is held against the one on file; a difference means that the log belongs to another program.

A process killed in the middle of a write leaves a torn last line, which is cut off on opening.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from errno import ENOSPC
from pathlib import Path
from typing import Any, TextIO

from filelock import FileLock, Timeout

from salon.errors import LogError, OutputError

from .budget import Usage

__all__ = ["BUDGET", "LOG_NAME", "VERSION", "Recorded", "SessionLog", "read_log"]

VERSION = 1
LOG_NAME = "session.jsonl"
BUDGET = "budget"  # key of the reading that holds a session's limits
_UNEQUAL = {"started", "seconds", "elapsed", "max_concurrency"}  # what two runs of a session may differ in
_PERSONAL = ("/person", "/interjection", "/cut_in")  # end the keys of readings that only a person can give
_ELAPSED = "elapsed"
_ROOM = 2**20  # bytes: a session's log and results are smaller, except for very long ones
_COST = {"calls", "prompt_tokens", "completion_tokens", "usd"}
_SHAPE = {  # what a record of each kind has at least
    "call": {"key", "digest", "status", "error", "clamped", *_COST},
    "past": _COST,
    "reading": {"key", "value"},
    "event": {"n", "type"},
    "end": {"status", "reason", "usage"},
}


@dataclass
class Recorded:
    """The content of a session log.

    Attributes:
        header: The first record.
        calls: Call records by key.
        readings: Values taken from outside, by key.
        events: Event records in order.
        end: The last record, or None if the session was interrupted.
        past: Records of calls that cost something and are not used any more.
    """

    header: dict[str, Any]
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    readings: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None
    past: list[dict[str, Any]] = field(default_factory=list)

    def add(self, record: dict[str, Any]) -> None:
        """Take in one record that follows the header.

        Raises:
            ValueError: If it is none.
        """
        kind = str(record.get("kind"))
        if kind not in _SHAPE:
            raise ValueError(f"a record of unknown kind {kind!r}")
        if lacking := _SHAPE[kind] - record.keys():
            raise ValueError(f"a record without {', '.join(sorted(lacking))}")
        match kind:
            case "call":
                self.take(record)
            case "past":
                self.past.append(record)
            case "reading":
                self.readings[record["key"]] = record["value"]
            case "event":
                self.events.append({k: v for k, v in record.items() if k != "kind"})
            case "end":
                self.end = record

    def take(self, call: dict[str, Any]) -> None:
        """Take in a call; one under the same key is kept for the account alone."""
        if call["key"] in self.calls:
            self.past.append(self.calls[call["key"]] | {"kind": "past"})
        self.calls[call["key"]] = call

    @property
    def seconds(self) -> float:
        """How long the session has run, as far as it is known."""
        known = [call.get("elapsed", 0.0) for call in (*self.past, *self.calls.values())]
        known += [v["seconds"] for k, v in self.readings.items() if k.endswith("/clock")]
        known += [self.readings.get(_ELAPSED, 0.0), self.end["usage"]["seconds"] if self.end else 0.0]
        return float(max(known))

    @property
    def usage(self) -> Usage:
        """What the session has cost, as far as it is known."""
        if self.end is not None:
            return Usage(**self.end["usage"])
        total = Usage()
        for call in (*self.past, *self.calls.values()):
            total.add(Usage.of(call))
        total.seconds = self.seconds
        return total

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

        Failed calls are not used again, so that they are made anew, but what they cost stays on the
        account, as does the time. Only readings that a person gave are kept: the wish to wrap up and the
        clock would end the session again, and similarities may belong to texts that come out differently
        now. Events are derived anew.
        """
        calls = {key: call for key, call in self.calls.items() if call["status"] == "ok"}
        failed = [call | {"kind": "past"} for key, call in self.calls.items() if key not in calls]
        kept = {k: v for k, v in self.readings.items() if k.endswith(_PERSONAL)}
        return Recorded(self.header, calls, {**kept, _ELAPSED: self.seconds}, past=[*self.past, *failed])


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines of a log, without a torn last one."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                if raw.endswith(b"\n"):
                    yield number, raw
    except FileNotFoundError:
        raise OutputError(
            f"There is no session in {path.parent}", f"it has no {path.name}", "Give the folder of a session."
        ) from None
    except OSError as error:
        raise OutputError(f"{path} cannot be read", error.strerror or str(error)) from error


def read_log(folder: Path, name: str = LOG_NAME) -> Recorded:
    """Read the log of a session's folder, or another one kept in the same form.

    Raises:
        OutputError: If there is no log, or it cannot be opened.
        LogError: If a line other than a torn last one is damaged, or the version is unknown.
    """
    path = folder / name
    recorded: Recorded | None = None
    for number, raw in _lines(path):
        try:
            record = json.loads(raw.decode("utf-8"))
            if not isinstance(record, dict):
                raise ValueError("not an object")
            if recorded is not None:
                recorded.add(record)
        except (ValueError, RecursionError) as error:
            raise LogError(f"{path} is damaged", f"line {number} is no record of a session ({error})") from error
        if recorded is None:
            recorded = Recorded(_checked_header(record, path))
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
    lacking = {"program", "settings", "inputs", "seed", "models", "started", "packages"} - record.keys()
    if lacking:
        raise LogError(f"{path} is damaged", f"its header lacks {', '.join(sorted(lacking))}")
    return record


class SessionLog:
    """Writes a session's records, to a file or to memory alone.

    Args:
        folder: Where ``session.jsonl`` goes; None keeps the log in memory.
        recorded: What an earlier run left; its calls and readings are reused.
        rewrite: Start the file anew from ``recorded`` (needed when events on file no longer hold).
        name: Name of the file, for a log of calls that belong to no session.

    Raises:
        OutputError: If the file cannot be written, or the disk has no room for it.
    """

    def __init__(self, folder: Path | None, recorded: Recorded, rewrite: bool = True, name: str = LOG_NAME) -> None:
        self.recorded = recorded
        self.path = folder / name if folder is not None else None
        self._checked = 0
        self._file: TextIO | None = None
        self._lock: FileLock | None = None
        if self.path is not None:
            self._lock = _locked(self.path.parent)
            try:
                self._file = self._rewritten(self.path) if rewrite else self._continued(self.path)
            except OutputError:
                self.close()
                raise

    def _rewritten(self, path: Path) -> TextIO:
        fresh = path.with_suffix(".tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _check_room(path)
            with fresh.open("w", encoding="utf-8") as file:
                for record in self._records():
                    file.write(_line(record))
                file.flush()
                if path.exists():  # there is something to lose
                    os.fsync(file.fileno())
            fresh.replace(path)
            return path.open("a", encoding="utf-8")
        except OSError as error:
            raise _unwritable(path, error) from error

    def _continued(self, path: Path) -> TextIO:
        try:
            _check_room(path)
            content = path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                os.truncate(path, whole)
            return path.open("a", encoding="utf-8")
        except OSError as error:
            raise _unwritable(path, error) from error

    def _records(self) -> Iterator[dict[str, Any]]:
        yield self.recorded.header
        yield from self.recorded.past
        yield from self.recorded.calls.values()
        for key, value in self.recorded.readings.items():
            yield {"kind": "reading", "key": key, "value": value}
        for event in self.recorded.events:
            yield {"kind": "event", **event}
        if self.recorded.end is not None:
            yield self.recorded.end

    @property
    def behind(self) -> bool:
        """Whether the session, run again, has still to come to where it was interrupted."""
        return self._checked < len(self.recorded.events)

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
        self.recorded.take(record)
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
        if self.behind:
            on_file = self.recorded.events[self._checked]
            if on_file != event:
                now = "a different one" if on_file["type"] == event["type"] else f"{event['type']!r} now"
                raise _unlike(f"its event {self._checked}, {on_file['type']!r}, is {now}")
        elif self.recorded.end is not None:
            raise _unlike(f"it ended before its event {self._checked}, {event['type']!r}")
        else:
            self.recorded.events.append(event)
            self._write({"kind": "event", **event})
        self._checked += 1

    def end(self, record: dict[str, Any]) -> None:
        """Record the end and close the file.

        Raises:
            LogError: If the file has another end.
        """
        if self.behind:
            raise _unlike(f"it has {len(self.recorded.events)} events, not {self._checked}")
        on_file = self.recorded.end
        if on_file is None:
            self.recorded.end = {"kind": "end", **record}
            self._write(self.recorded.end)
        elif any(on_file[name] != record[name] for name in ("status", "reason")):
            raise _unlike(f"it ended {on_file['status']} ({on_file['reason']})")
        self.close()

    def close(self) -> None:
        """Close the file; records in memory stay."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # a write that failed was told when it did
                self._file.close()
            self._file = None
        if self._lock is not None:
            self._lock.release()
            with contextlib.suppress(OSError):
                Path(self._lock.lock_file).unlink()
            self._lock = None


def _locked(folder: Path) -> FileLock:
    """Take a session's folder for this process alone; the system gives it back if the process dies."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(str(folder / ".lock"), timeout=0)
        lock.acquire()
    except Timeout:
        raise OutputError(
            f"The session in {folder} is under way already", "another run writes to it", "Wait for it, or stop it."
        ) from None
    except OSError as error:
        raise _unwritable(folder / LOG_NAME, error) from error
    return lock


def _unlike(why: str) -> LogError:
    return LogError(
        "The session cannot be run over its log",
        why,
        "The log was changed, or written by another version of salon or of the program; start anew.",
    )


def _check_room(path: Path) -> None:
    """Refuse to start where the log will not fit."""
    disk = shutil.disk_usage(path.parent)
    if disk.total and disk.free < _ROOM:
        raise OSError(ENOSPC, f"the disk has {disk.free // 1024} KiB left, a session takes up to {_ROOM // 1024}")


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=True, separators=(",", ":"), allow_nan=False) + "\n"


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{path} cannot be written",
        error.strerror or str(error),
        "Free some space or give another folder with --out; what was written before is kept.",
    )
