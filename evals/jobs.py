"""The unit of an evaluation: one method answers one query once, and the answer is rated.

A job's row is written the moment it is finished, one JSON object a line, and never changed: a job that is done
again adds a line, and the last one counts. A process killed in the middle of a write leaves a torn last line,
which is not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from salon.errors import LogError, OutputError

from ..data.benchmarks import Task
from ..modules.streams import rollout_id

__all__ = [
    "JOBS_NAME",
    "Job",
    "JobFile",
    "JobKey",
    "JobRow",
    "jobs_of",
    "read_lines",
    "read_rows",
    "slug",
]

JOBS_NAME = "jobs.jsonl"


class JobKey(NamedTuple):
    """What tells a job from the others of an evaluation."""

    method: str
    query: str
    run: int


@dataclass(frozen=True)
class Job:
    """One answer to get.

    Attributes:
        method: Name of the method.
        query: Id of the task.
        task: Its text.
        run: Number of the run, from 1.
        seed: Seed of the run: the same for all methods, so that what is random alike is shared.
    """

    method: str
    query: str
    task: str
    run: int
    seed: int

    @property
    def key(self) -> JobKey:
        """What tells it from others."""
        return JobKey(self.method, self.query, self.run)

    def folder(self, root: Path) -> Path:
        """Return where its session is."""
        return root / "sessions" / slug(self.method) / slug(self.query) / str(self.run)


@dataclass
class JobRow:
    """What came of a job.

    Attributes:
        method: Name of the method.
        query: Id of the task.
        run: Number of the run, from 1.
        seed: Seed of the run.
        status: ``ok`` or ``failed``.
        reason: Why it failed, or how the session ended.
        answer: The answer; empty if it failed.
        calls: LM calls of the method.
        prompt_tokens: Tokens read; cached answers add none.
        completion_tokens: Tokens written.
        usd: Known cost; None if the price of any call is unknown.
        seconds: Wall time of the session.
        depth: Mean influence depth of a roundtable's ideas.
        absorption: Mean absorption of a roundtable's ideas.
        balance: Evenness of talk of a roundtable.
        ratings: One for each judge: judge, scores by dimension, value, how, reason, error.
        judge_calls: LM calls of the judges.
        judge_tokens: Tokens they read and wrote.
        judge_usd: What they cost; None if unknown.
    """

    method: str
    query: str
    run: int
    seed: int
    status: str = "failed"
    reason: str = ""
    answer: str = ""
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = 0.0
    seconds: float = 0.0
    depth: float | None = None
    absorption: float | None = None
    balance: float | None = None
    ratings: list[dict[str, Any]] = field(default_factory=list)
    judge_calls: int = 0
    judge_tokens: int = 0
    judge_usd: float | None = 0.0

    @property
    def key(self) -> JobKey:
        """What tells it from others."""
        return JobKey(self.method, self.query, self.run)

    @property
    def quality(self) -> float | None:
        """Mean value of its ratings, 1 to 10; None if no judge gave one."""
        known = [r["value"] for r in self.ratings if r["value"] is not None]
        return sum(known) / len(known) if known else None

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do: there is an answer, and no rating of it failed."""
        return self.status == "ok" and all(not rating["error"] for rating in self.ratings)


def jobs_of(methods: Iterable[str], tasks: Sequence[Task], runs: int, seed: int) -> list[Job]:
    """Return all jobs, run by run, so that what is there after a while covers all methods and queries."""
    names = list(methods)
    return [
        Job(name, task.id, task.text, run, rollout_id(seed, "query", task.id, run))
        for run in range(1, runs + 1)
        for task in tasks
        for name in names
    ]


class JobFile:
    """Where rows are added; a context manager.

    Raises:
        OutputError: If it cannot be written.
    """

    def __init__(self, folder: Path, name: str = JOBS_NAME) -> None:
        self._path = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _mend(self._path)
            self._file: TextIO = self._path.open("a", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"{self._path} cannot be written", error.strerror or str(error)) from error

    def __enter__(self) -> JobFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, row: Any) -> None:
        """Add a row: a dataclass, or a dict of JSON values.

        Raises:
            OutputError: If it cannot be written.
        """
        content = row if isinstance(row, dict) else asdict(row)
        try:
            self._file.write(json.dumps(content) + "\n")
            self._file.flush()
        except OSError as error:
            raise OutputError(f"{self._path} cannot be written", error.strerror or str(error)) from error


def _mend(path: Path) -> None:
    """Cut off a last line that was not written to its end."""
    if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a file, without a torn last line; nothing if there is no file.

    Raises:
        LogError: If a line is damaged.
    """
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise OutputError(f"{path} cannot be read", error.strerror or str(error)) from error
    found = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            content = json.loads(line)
            if not isinstance(content, dict):
                raise ValueError("it is no object")
        except ValueError as error:
            why = f"line {number} is no record ({error})"
            raise LogError(f"{path} is damaged", why, "Remove the line; its job is done again.") from None
        found.append(content)
    return found


def read_rows(folder: Path) -> dict[JobKey, JobRow]:
    """Return the rows of an evaluation, the last one of each job.

    Raises:
        LogError: If the file is damaged.
    """
    known = {item.name for item in fields(JobRow)}
    rows: dict[JobKey, JobRow] = {}
    for number, content in enumerate(read_lines(folder / JOBS_NAME), 1):
        try:
            row = JobRow(**{name: value for name, value in content.items() if name in known})
        except TypeError as error:
            why = f"line {number} is no job ({error})"
            raise LogError(f"{folder / JOBS_NAME} is damaged", why, "Remove the line; its job is done again.") from None
        rows[row.key] = row
    return rows


def slug(name: str) -> str:
    """Return a name of a folder for any text: readable, short, and never that of another text."""
    plain = "-".join(re.findall(r"[A-Za-z0-9]+", name))[:40].strip("-").lower()
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return plain if plain and plain == name else f"{plain or 'x'}-{digest}"
