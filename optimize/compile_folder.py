"""What a compile keeps in its folder, beside sessions and study, so that the same call goes on with it.

``compiling.json`` says what is compiled: the program, the tasks, the objectives and whatever else its sessions rest
on. A folder with something else in it, or with a compile of something else, is refused before anything is spent.
Trials, limits and the rule of choice are not in it: they may change from call to call.

``course.json`` says how far it came: the seconds it has taken, and from which program prompts were tuned with what
result. Both files are replaced as a whole, so a process that dies leaves no half of one.

Several processes may work in one folder. They share the study; what else is to be done, one does while the others
wait and then find it done.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from filelock import FileLock

from salon.errors import OutputError

from ..modules.saving import strict_json
from .locks import alone

__all__ = ["COURSE_NAME", "FOLDER_NAME", "CompileFolder", "digest"]

FOLDER_NAME = "compiling.json"
COURSE_NAME = "course.json"
_VERSION = 1


class CompileFolder:
    """The folder of a compile, open.

    Args:
        root: The folder; it is made if there is none.
        facts: What its sessions rest on, by what it is called, as JSON values.

    Attributes:
        root: The folder.
        started: When the compile began, as an ISO time.
        key: A hash of the facts.

    Raises:
        OutputError: If it holds something else, or cannot be written.
    """

    def __init__(self, root: Path, facts: Mapping[str, Any]) -> None:
        self.root, self.key = root, digest(facts)
        self._noting = FileLock(root / "course.lock", thread_local=False)
        self._begun = time.monotonic()
        try:
            if root.exists() and not root.is_dir():
                raise OutputError(f"{root} is a file", "a folder is needed", "Give another one.")
            if not (root / FOLDER_NAME).exists():
                self._empty()
                root.mkdir(parents=True, exist_ok=True)
            self.started = self._kept(facts)
            self._before = float(self._read_course()["seconds"])
            with self._noting:  # refuses a folder that cannot be written
                self._replace(COURSE_NAME, self._read_course())
        except OSError as error:
            why = error.strerror or str(error)
            raise OutputError(f"{root} cannot be written", why, "Give another folder.") from error

    def _empty(self) -> None:
        """Refuse a folder that is in use for something else.

        Raises:
            OutputError: If it is.
        """
        there = sorted(path.name for path in self.root.iterdir()) if self.root.exists() else []
        others = [name for name in there if not name.startswith(FOLDER_NAME)]
        if others and FOLDER_NAME not in there:  # a process that shares the folder may be a moment ahead
            why = f"it has {', '.join(others[:3])}{' and more' if len(others) > 3 else ''}, and no compile"
            raise OutputError(f"{self.root} is not empty", why, "Give another folder.")

    def _kept(self, facts: Mapping[str, Any]) -> str:
        """Hold the facts against those of earlier calls, write them down, and return when the first began."""
        now = json.loads(json.dumps(facts))
        path = self.root / FOLDER_NAME
        if path.exists():
            before = strict_json(path, f"There is no compile in {self.root}")
            if (
                not isinstance(before, dict)
                or before.get("version") != _VERSION
                or not isinstance(before.get("facts"), dict)
            ):
                raise OutputError(f"{path} cannot be read", "it is damaged or of another version of salon")
            had = before["facts"]
            if odd := [name for name in now if had.get(name) != now[name]]:
                why = f"it has {' and '.join(f'other {n}' if n.endswith('s') else f'another {n}' for n in odd)}"
                raise OutputError(f"{self.root} holds another compile", why, "Give the same, or another folder.")
            return str(before["started"])
        started = datetime.now(UTC).isoformat(timespec="seconds")
        self._replace(FOLDER_NAME, {"version": _VERSION, "started": started, "facts": now})
        return started

    def _read_course(self) -> dict[str, Any]:
        path = self.root / COURSE_NAME
        if not path.exists():
            return {"seconds": 0.0}
        course = strict_json(path, "")
        if not isinstance(course, dict) or not isinstance(course.get("seconds"), int | float):
            raise OutputError(f"{path} cannot be read", "it is damaged", "Remove it, or give another folder.")
        return course

    def _replace(self, name: str, content: Any) -> None:
        """Write a file such that it is there as a whole or not at all."""
        draft = self.root / f"{name}.{os.getpid()}-{threading.get_ident()}"
        draft.write_text(json.dumps(content, indent=1), encoding="utf-8")
        draft.replace(self.root / name)

    # ---------------------------------------------------------------- its course

    @property
    def seconds(self) -> float:
        """How long it has taken, earlier calls included, as far as those came to write it down."""
        return self._before + time.monotonic() - self._begun

    def note(self, name: str = "", value: Any = None) -> None:
        """Write down how far it is: the seconds, and something of a name.

        Raises:
            OutputError: If it cannot be written.
        """
        try:
            with self._noting:
                course = self._read_course()
                seconds = max(course["seconds"], round(self.seconds, 1))  # processes side by side take no longer
                self._replace(COURSE_NAME, {**course, **({name: value} if name else {}), "seconds": seconds})
        except OSError as error:
            raise OutputError(f"{self.root} cannot be written", error.strerror or str(error)) from error

    def noted(self, name: str) -> Any:
        """Return what was written down under a name, by whatever process; None if nothing was."""
        return self._read_course().get(name)

    def alone(self, tell: Callable[[str], None]) -> AbstractAsyncContextManager[None]:
        """Let one process at a time do what follows."""
        return alone(self.root / "compile.lock", lambda: tell("Another process does this for all; waiting for it"))


def digest(content: Any) -> str:
    """Return a hash of JSON values."""
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
