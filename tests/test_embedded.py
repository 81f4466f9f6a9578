"""The embedded model's server: first its life as a child process, with a stand-in for llama.cpp that starts
at once; then (marked ``embedded``) the real server with the real model."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest

from salon import embedded, embedded_server, weights
from salon.errors import EmbeddedModelError

STAND_IN = """
import os, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

class CommonParams(SimpleNamespace):
    def __init__(self):
        super().__init__(**{name: SimpleNamespace() for name in ("model", "cpuparams", "cpuparams_batch")})

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

class Server:
    def __init__(self, params):
        os.write(1, b"noise on stdout\\n")
        content = open(params.model.path, "rb").read()
        if b"BROKEN" in content:
            raise RuntimeError("this model cannot be loaded")
        if b"CRASH" in content:
            os.abort()
        http = ThreadingHTTPServer(("127.0.0.1", params.port), Handler)
        threading.Thread(target=http.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{http.server_port}"
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A model file, and a stand-in for xllamacpp that this process and its children import."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "xllamacpp.py").write_text(STAND_IN)
    model = tmp_path / "tiny.gguf"
    model.write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("SALON_MODEL", str(model))
    monkeypatch.setenv("SALON_CACHE", str(tmp_path / "cache"))
    embedded.close()
    yield model
    embedded.close()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until_silent(port: int, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while answers(port) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not answers(port)


def test_one_server_for_all_threads(stand_in: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        servers = list(pool.map(lambda _: embedded.serve(), range(8)))
    assert len({server.process.pid for server in servers}) == 1
    assert answers(servers[0].port)


def test_it_outlives_the_thread_that_asked_for_it(stand_in: Path) -> None:
    thread = threading.Thread(target=embedded.serve)
    thread.start()
    thread.join()
    time.sleep(0.5)
    server = embedded._server
    assert server is not None
    assert server.alive


def test_the_key_is_neither_shown_nor_on_the_command_line(stand_in: Path) -> None:
    server = embedded.serve()
    assert len(server.api_key) >= 32
    assert server.api_key not in repr(server)
    assert server.api_key not in " ".join(map(str, server.process.args))  # type: ignore[arg-type]
    if sys.platform == "linux":
        assert server.api_key.encode() not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()


def test_what_the_native_library_prints_goes_to_the_log(stand_in: Path, capfd: pytest.CaptureFixture[str]) -> None:
    server = embedded.serve()
    assert "noise on stdout" in server.log.read_text()
    assert capfd.readouterr() == ("", "")


def test_close_ends_it_and_a_later_call_starts_another(stand_in: Path) -> None:
    first = embedded.serve()
    embedded.close()
    assert first.process.wait(5) == 0
    assert not first.log.exists()
    second = embedded.serve()
    assert second.process.pid != first.process.pid
    assert second.api_key != first.api_key


def test_a_dead_server_is_started_again_at_its_address(stand_in: Path) -> None:
    first = embedded.serve()
    first.process.kill()
    first.process.wait(5)
    second = embedded.serve()
    assert second.alive
    assert (second.url, second.api_key) == (first.url, first.api_key)


def test_a_dead_servers_port_may_be_taken(stand_in: Path) -> None:
    first = embedded.serve()
    first.process.kill()
    first.process.wait(5)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", first.port))
        other.listen()
        second = embedded.serve()
        assert second.alive
        assert second.port != first.port


def test_another_model_replaces_it(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = embedded.serve()
    other = stand_in.with_name("other.gguf")
    other.write_bytes(b"GGUF")
    monkeypatch.setenv("SALON_MODEL", str(other))
    second = embedded.serve()
    assert not first.alive
    assert second.model == other
    assert embedded.model_name(first.model) != embedded.model_name(second.model)


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"GGUF BROKEN", "model cannot be loaded"), (b"GGUF CRASH", "ended with code -6")],
)
def test_a_failed_start_names_its_log(stand_in: Path, content: bytes, why: str) -> None:
    stand_in.write_bytes(content)
    with pytest.raises(EmbeddedModelError, match=why) as caught:
        embedded.serve()
    log = weights.cache_dir() / "logs" / f"embedded-{os.getpid()}.log"
    assert str(log) in caught.value.todo
    assert log.exists()


def test_a_start_that_takes_too_long_is_given_up(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "START_WAIT", 0.0)
    with pytest.raises(EmbeddedModelError, match="not ready after 0 seconds"):
        embedded.serve()


def test_it_ends_when_stdin_does(stand_in: Path) -> None:
    server = embedded.serve()
    assert server.process.stdin is not None
    server.process.stdin.close()
    assert server.process.wait(5) == 0


def parent_killed(how: signal.Signals) -> int:
    """Start a server from another process, kill that process, and return the server's port."""
    code = textwrap.dedent("""
        import time
        from salon import embedded
        print(embedded.serve().port, flush=True)
        time.sleep(600)
    """)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        assert answers(port)
        parent.send_signal(how)
    return port


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_its_parent_is_killed(stand_in: Path, how: signal.Signals) -> None:
    assert wait_until_silent(parent_killed(how))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_leaves_the_server_alone(stand_in: Path) -> None:
    server = embedded.serve()
    child = os.fork()
    if child == 0:
        embedded.close()
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(0.3)
    assert server.alive
    assert answers(server.port)


def test_loopback_calls_bypass_a_proxy(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "example.org")
    embedded.serve()
    assert urllib.request.proxy_bypass("127.0.0.1")
    assert urllib.request.proxy_bypass("example.org")


@pytest.mark.parametrize(("setting", "threads"), [("3", 3), ("0", 1)])
def test_the_number_of_threads_can_be_set(monkeypatch: pytest.MonkeyPatch, setting: str, threads: int) -> None:
    monkeypatch.setenv("SALON_THREADS", setting)
    assert embedded_server.cores() == threads


def test_every_core_is_used_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SALON_THREADS", raising=False)
    assert 1 <= embedded_server.cores() <= (os.cpu_count() or 1)


# ---- the real model -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Iterator[Any]:
    """An LM on the real server, which is shared by the tests of this module."""
    pytest.importorskip("xllamacpp")
    from salon.models import lm

    with pytest.MonkeyPatch.context() as environment:
        for name in ("SALON_MODEL", "SALON_CACHE", "SALON_LM"):
            environment.delenv(name, raising=False)
        if weights.look().source in {"nothing", "hub"}:
            pytest.skip("the embedded model's packages are not installed")
        embedded.close()
        yield lm("embedded", cache=False, temperature=0.0)
        embedded.close()


class Idea(pydantic.BaseModel):
    title: Annotated[str, pydantic.Field(max_length=60)]
    kind: Literal["serious", "playful"]
    effort: Annotated[int, pydantic.Field(ge=1, le=5)]


@pytest.mark.embedded
def test_a_schema_is_obeyed(real: Any) -> None:
    import dspy

    class Ideas(dspy.Signature):
        """Give one short idea on the topic."""

        topic: str = dspy.InputField()
        ideas: Annotated[list[Idea], pydantic.Field(min_length=1, max_length=1)] = dspy.OutputField()

    with dspy.context(lm=real, adapter=dspy.JSONAdapter()):
        ideas = dspy.Predict(Ideas)(topic="A picnic in the rain").ideas
    assert all(isinstance(idea, Idea) for idea in ideas)
    raw = json.loads(real.history[-1]["outputs"][0])
    assert list(raw) == ["ideas"]
    assert all(set(idea) == {"title", "kind", "effort"} for idea in raw["ideas"])
    usage = real.history[-1]["usage"]
    assert usage["prompt_tokens"] > 0
    assert usage["completion_tokens"] > 0


@pytest.mark.embedded
def test_a_schema_of_the_caller_overrules_the_prompt(real: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": ["vermilion", "cerulean"]}},
        "required": ["colour"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "c", "strict": True, "schema": schema}}
    answer = json.loads(real("What is two and two? Answer with a number.", response_format=form)[0])
    assert answer["colour"] in {"vermilion", "cerulean"}


@pytest.mark.embedded
def test_token_probabilities_are_there(real: Any) -> None:
    answer = real("Is snow cold? Answer Yes or No.", max_tokens=1, logprobs=True, top_logprobs=5)[0]
    first = answer["logprobs"]["content"][0]
    assert first["top_logprobs"][0]["token"].strip() in {"Yes", "No"}
    assert len(first["top_logprobs"]) == 5


@pytest.mark.embedded
@pytest.mark.parametrize("key", ["wrong", None])
def test_without_its_key_it_refuses(real: Any, key: str | None) -> None:
    server = embedded.serve()
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    body = json.dumps({"messages": [{"role": "user", "content": "Hello"}]}).encode()
    request = urllib.request.Request(f"{server.url}/v1/chat/completions", body, headers)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=30)


@pytest.mark.embedded
def test_its_key_is_in_nothing_dspy_shows_or_saves(real: Any) -> None:
    key = embedded.serve().api_key
    assert key not in f"{real!r} {real.kwargs} {real.dump_state()} {real.history}"


@pytest.mark.embedded
def test_an_lm_made_before_a_crash_works_after_it(real: Any) -> None:
    from salon.models import lm

    server = embedded.serve()
    server.process.kill()
    server.process.wait(10)
    assert lm("embedded").model == real.model
    assert real("Say hello.", max_tokens=4)[0]


@pytest.mark.embedded
def test_the_real_server_ends_when_its_parent_is_killed(real: Any) -> None:
    assert wait_until_silent(parent_killed(signal.SIGKILL))
