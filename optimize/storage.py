"""Where a study is kept: Optuna's journal file in its folder, or a database."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from salon.errors import OutputError, UserError

__all__ = ["STUDY_NAME", "open_storage", "quiet_optuna", "storage_name"]

STUDY_NAME = "study.log"


def storage_name(storage: str | Path | None, out: Path) -> str:
    """Return where a study is: the URL of a database, or the path of a journal file, in its folder by default."""
    return str(out / STUDY_NAME) if storage is None else str(storage)


def open_storage(name: str) -> Any:
    """Open a journal file, or the database of a URL.

    Raises:
        OutputError: If it cannot be opened.
        UserError: If the driver of the database is not installed.
    """
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    try:
        if "://" in name:
            return _database(name)
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _JournalLock(path)
        _mend(path, lock)
        return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
    except ImportError as error:
        raise UserError(f"The storage {_plain(name)} cannot be opened", str(error), "Install its driver.") from error
    except Exception as error:  # drivers raise errors of their own
        raise OutputError(f"The storage {_plain(name)} cannot be opened", str(error).split("\n")[0]) from error


def _database(url: str) -> Any:
    """Open a database; machines that make its tables at the same moment get in each other's way, and look again."""
    import optuna

    for wait in (0.3, 1.0):
        try:
            return optuna.storages.RDBStorage(url)
        except ImportError:
            raise
        except Exception as error:
            if "exist" not in str(error) and "locked" not in str(error):
                raise
            time.sleep(wait)
    return optuna.storages.RDBStorage(url)


def _plain(url: str) -> str:
    """Return a URL without its password."""
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://...@{tail}" if at and "://" in head else url


class _JournalLock:
    """Optuna's lock of a journal file, kept by the operating system: one that dies leaves no lock behind."""

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(f"{path}.lock", thread_local=False)

    def acquire(self) -> bool:
        self._lock.acquire()
        return True

    def release(self) -> None:
        self._lock.release()


def _mend(path: Path, lock: _JournalLock) -> None:
    """Cut off a last line that was not written to its end."""
    if not path.exists():
        return
    lock.acquire()
    try:
        with path.open("rb+") as file:
            content = file.read()
            if content and not content.endswith(b"\n"):
                file.truncate(content.rfind(b"\n") + 1)
                os.fsync(file.fileno())
    finally:
        lock.release()


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Have Optuna say nothing but warnings, and none of its being experimental."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
