"""The child process that serves the embedded model: ``python -m salon.embedded_server``.

The parent (`salon.embedded`) writes one JSON line to this process's stdin::

    {"model": "/path.gguf", "parent": 123, "slots": 4, "context": 8192, "port": 0, "api_key": null}

and reads one JSON line from its stdout once the server answers on its loopback port::

    {"url": "http://127.0.0.1:40123", "port": 40123, "api_key": "..."}    or    {"error": "..."}

The key never stands on a command line, where other users could read it. Whatever llama.cpp prints goes
to stderr, which the parent has pointed at a log file.

The process ends when its parent ends, however that dies: stdin reaches its end of file, and on Linux the
kernel sends SIGKILL besides. Nothing outlives the session.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

__all__ = ["cores", "main"]

_PR_SET_PDEATHSIG = 1
_PROMPT_CACHE_MIB = 1024  # prompts kept in memory beside the slots; llama.cpp's own default is 8 GiB
_HEALTH_WAIT = 120.0


def main() -> None:
    """Read the request from stdin, serve until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the session's to handle; it may still need us
    reply = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    request = json.loads(sys.stdin.buffer.readline())
    _die_with(request["parent"])
    try:
        server, answer = _serve(request)
    except Exception as error:
        server, answer = None, {"error": f"{type(error).__name__}: {error}"}
    # A parent that is gone cannot be told.
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(answer), file=reply, flush=True)
    if server is None:
        os._exit(1)
    threading.Event().wait()


def _serve(request: dict[str, Any]) -> tuple[object, dict[str, Any]]:
    import xllamacpp

    key = request.get("api_key") or secrets.token_urlsafe(24)
    params = xllamacpp.CommonParams()
    params.model.path = request["model"]
    params.hostnames = ["127.0.0.1"]
    params.port = request.get("port") or 0
    params.api_keys = [key]
    params.n_parallel = request["slots"]
    params.n_ctx = request["slots"] * request["context"]
    params.kv_unified = False
    params.ui = False
    params.endpoint_slots = False
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = cores()
    server = xllamacpp.Server(params)
    url = str(server.listening_address)
    _wait_healthy(url)
    return server, {"url": url, "port": int(url.rsplit(":", 1)[1]), "api_key": key}


def _wait_healthy(url: str) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + _HEALTH_WAIT
    while True:
        try:
            with direct.open(f"{url}/health", timeout=10):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _die_with(parent: int) -> None:
    """Arrange that this process ends when its parent does."""
    threading.Thread(target=_watch_stdin, name="watch-stdin", daemon=True).start()
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(0)


def _watch_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def cores() -> int:
    """Threads to compute with: ``SALON_THREADS``, else every core this process may use.

    That is its affinity, or the quota of its container. Where other programs keep the cores busy, fewer
    threads are faster: each waits for the slowest at every layer of the model.
    """
    with contextlib.suppress(KeyError, ValueError):
        return max(1, int(os.environ["SALON_THREADS"]))
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        count = min(count, max(1, round(int(quota) / int(period))))
    return count


if __name__ == "__main__":
    main()
