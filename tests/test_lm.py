"""``salon.lm``: mistakes told early in one line, servers of one's own reached, and keys that never show."""

from __future__ import annotations

import copy
import json
import os
import string
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from salon import lm as make
from salon.errors import LMSetupError
from salon.redact import MASK, describe, redact

ANSWER = '{"answer": "blue"}'
REPLIES = {
    "/v1/chat/completions": {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "x",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
    },
    "/v1/messages": {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "x",
        "content": [{"type": "text", "text": ANSWER}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 5, "output_tokens": 3},
    },
    "/v1beta/models/x:generateContent": {
        "candidates": [{"content": {"role": "model", "parts": [{"text": ANSWER}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 3, "totalTokenCount": 8},
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
RESPONSE_FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": SCHEMA}}


class Question(dspy.Signature):
    """Answer in one word."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class Server(ThreadingHTTPServer):
    """A loopback server of three wire formats that records what it is asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.root = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.path, headers, body))
        reply = json.dumps(REPLIES.get(self.path, {"error": {"message": "no such path"}})).encode()
        self.send_response(200 if self.path in REPLIES else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "true")
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_API_BASE", "_BASE_URL")) or name.startswith("SALON_"):
            monkeypatch.delenv(name)


def ask(lm: Any, **config: Any) -> str:
    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
        return dspy.Predict(Question)(question="What colour is the sky?", config=config).answer


# ---- servers of one's own -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "path", "key_header"),
    [
        ("openai/x", "/v1", "authorization"),
        ("hosted_vllm/x", "/v1", "authorization"),
        ("hosted_vllm/x", "", "authorization"),
        ("vllm/x", "/", "authorization"),
        ("ollama_chat/x", "", "authorization"),
        ("ollama/x:1b", "/v1", "authorization"),
        ("lm_studio/x", "/v1", "authorization"),
        ("anthropic/x", "", "x-api-key"),
        ("anthropic/x", "/v1", "x-api-key"),
        ("gemini/x", "", "x-goog-api-key"),
    ],
)
def test_each_kind_of_server_is_reached_without_a_key(server: Server, model: str, path: str, key_header: str) -> None:
    assert ask(make(model, api_base=server.root + path, cache=False, num_retries=0)) == "blue"
    [(_, headers, _)] = server.asked
    assert headers[key_header].endswith("no-key")


def test_a_given_key_is_sent_and_else_that_of_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    base = server.root + "/v1"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    ask(make("openai/x", api_base=base, api_key="sk-of-the-caller", cache=False))
    ask(make("openai/x", api_base=base, cache=False))
    sent = [headers["authorization"] for _, headers, _ in server.asked]
    assert sent == ["Bearer sk-of-the-caller", "Bearer sk-of-the-environment"]


@pytest.mark.parametrize("model", ["hosted_vllm/x", "vllm/x", "ollama_chat/x", "lm_studio/x"])
def test_the_json_adapter_sends_its_schema_where_it_is_followed(server: Server, model: str) -> None:
    ask(make(model, api_base=server.root + "/v1", cache=False))
    assert server.asked[0][2]["response_format"]["type"] == "json_schema"


def test_other_servers_get_a_schema_when_told_to(server: Server) -> None:
    base = server.root + "/v1"
    ask(make("openai/x", api_base=base, cache=False))
    ask(make("openai/x", api_base=base, cache=False, response_schema=True))
    ask(make("hosted_vllm/x", api_base=base, cache=False, response_schema=False))
    sent = [body.get("response_format", {}).get("type") for _, _, body in server.asked]
    assert sent == [None, "json_schema", None]


@pytest.mark.parametrize("model", ["openai/x", "hosted_vllm/x", "ollama_chat/x", "groq/x"])
def test_a_format_of_the_caller_reaches_an_unknown_model(server: Server, model: str) -> None:
    lm = make(model, api_base=server.root + "/v1", cache=False)
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
        dspy.Predict(Question)(question="What colour?", config={"response_format": RESPONSE_FORMAT})
    assert server.asked[0][2]["response_format"]["json_schema"]["schema"] == SCHEMA


def test_a_schema_lm_copies_and_saves_like_any_other(server: Server) -> None:
    lm = make("vllm/x", api_base=server.root, api_key="sk-mine-alone", cache=False)
    twin = copy.deepcopy(lm).copy(temperature=0.5)
    ask(twin)
    assert server.asked[0][2]["temperature"] == 0.5
    assert "response_format" in server.asked[0][2]
    state = lm.dump_state()
    assert "sk-mine-alone" not in str(state)
    assert type(dspy.BaseLM.load_state(state)) is dspy.LM


def test_the_environment_names_model_and_address(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SALON_LM", "openai/from-environment")
    monkeypatch.setenv("SALON_API_BASE", server.root + "/v1")
    ask(make(cache=False))
    assert server.asked[0][2]["model"] == "from-environment"


def test_settings_are_passed_on() -> None:
    lm = make("openai/gpt-4o", api_key="sk-whatever", temperature=0.7, max_tokens=50, cache=False)
    assert (lm.kwargs["temperature"], lm.kwargs["max_tokens"], lm.cache) == (0.7, 50, False)
    assert lm.kwargs["timeout"] == 120
    assert make("openai/gpt-4o", api_key="sk-whatever", timeout=7).kwargs["timeout"] == 7


def test_a_provider_registered_with_dspy_is_known() -> None:
    from dspy import lm15

    access = lm15.AccessPolicy(provider="my-lab", base_url="http://127.0.0.1:9/v1")
    compat = lm15.OpenAIChatCompat.preset("vllm")
    lm15.register_provider(lm15.ProviderDefinition.chat(access, compat=compat, placeholder_key="local"))
    try:
        assert make("my-lab/x").model == "my-lab/x"
    finally:
        lm15.unregister_provider("my-lab")


# ---- mistakes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("gpt-4o", "Try openai/gpt-4o"),
        ("claude-sonnet-5", "Try anthropic/claude-sonnet-5"),
        ("llama3.2:1b", "Try ollama_chat/llama3.2:1b"),
        ("openai", "openai/<model>"),
        ("openai/", "openai/<model>"),
        ("/gpt-4o", "openai/gpt-4o"),
        ("my model", "openai/<model>"),
        ("embeded", "Did you mean embedded?"),
        ("embedded/llama", "There is one such model: embedded"),
        ("opnai/gpt-4o", "Did you mean openai/gpt-4o?"),
        ("google/gemini-3", "Did you mean gemini/gemini-3?"),
        ("no-such-provider/x", "Known are anthropic"),
        ("openai/gpt-4o", "OPENAI_API_KEY is not set"),
        ("anthropic/claude-x", "ANTHROPIC_API_KEY is not set"),
        ("mistral/x", "MISTRAL_API_KEY is not set"),
    ],
)
def test_a_wrong_model_is_told_in_one_line(model: str, told: str) -> None:
    with pytest.raises(LMSetupError) as caught:
        make(model)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "base",
    [
        "localhost:8000",
        "ftp://host/v1",
        "http://",
        "http://host:99999/v1",
        "http://host:port/v1",
        "http://ho st/v1",
        "http://[::1/v1",
        "http://host/v1/chat/completions",
        "http://host/v1?key=1",
    ],
)
def test_a_malformed_address_is_told(base: str) -> None:
    with pytest.raises(LMSetupError, match="is not an address"):
        make("openai/x", api_base=base)


def test_credentials_in_an_address_are_refused_and_not_repeated() -> None:
    with pytest.raises(LMSetupError, match="api_key=") as caught:
        make("openai/x", api_base="http://user:hunter2@host/v1")
    assert "hunter2" not in str(caught.value)


def test_an_address_without_a_model_is_told() -> None:
    with pytest.raises(LMSetupError, match="embedded model has no api_base"):
        make(api_base="http://127.0.0.1:1/v1")


def test_what_dspy_refuses_is_told_without_the_key() -> None:
    with pytest.raises(LMSetupError, match="max_tokens") as caught:
        make("openai/gpt-5-mini", api_key="sk-quite-secret-1", max_tokens=10)
    assert "sk-quite-secret-1" not in str(caught.value)


# ---- what it leaves behind ------------------------------------------------------------------------------


def test_importing_it_is_cheap() -> None:
    code = "import salon.models, sys; print(sorted({'dspy', 'litellm', 'torch', 'numpy'} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize(("before", "after"), [(None, "true"), ("false", "false")])
def test_no_price_table_is_fetched_unless_wanted(
    monkeypatch: pytest.MonkeyPatch, before: str | None, after: str
) -> None:
    monkeypatch.delenv("LITELLM_LOCAL_MODEL_COST_MAP")
    if before:
        monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", before)
    make("openai/gpt-4o", api_key="sk-whatever")
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == after
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "true")


def test_describe_names_the_model_and_never_the_key() -> None:
    lm = make("openai/x", api_base="http://lab.example:8000/v1", api_key="sk-quite-secret-1", temperature=0.2)
    assert describe(lm) == {
        "model": "openai/x",
        "api_base": "http://lab.example:8000/v1",
        "temperature": 0.2,
        "max_tokens": None,
    }
    assert describe(dspy.LM("openai/gpt-5", max_tokens=20000, api_base="http://u:p@h/v1")) == {
        "model": "openai/gpt-5",
        "api_base": "http://h/v1",
        "temperature": None,
        "max_tokens": 20000,
    }
    assert describe(None)["model"] == "NoneType"


KEYS = st.text(string.ascii_letters + string.digits + "-_.+/=%$^()[]\\|?é ", min_size=1).filter(str.strip)


@given(before=st.text(), keys=st.lists(KEYS, min_size=1, max_size=3), after=st.text())
def test_given_secrets_never_survive(before: str, keys: list[str], after: str) -> None:
    text = before + "".join(f"{key}{after}" for key in keys)
    masked = redact(text, keys)
    assert not any(key in masked for key in keys)


@given(tail=st.text(string.ascii_letters + string.digits, min_size=20, max_size=60), around=st.text("ab :'\"\n"))
def test_what_looks_like_a_key_never_survives(tail: str, around: str) -> None:
    for secret in (
        f"sk-{tail}",
        f"sk-ant-{tail}",
        f"Bearer {tail}",
        f"api_key={tail}",
        f"https://me:{tail}@h/",
    ):
        assert tail not in redact(f"{around} {secret} {around}")


def test_keys_of_the_environment_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_LAB_API_KEY", "plain words as a key")
    monkeypatch.setenv("LOCAL_API_KEY", "none")
    assert redact("refused: plain words as a key, none") == f"refused: {MASK}, none"


def test_other_text_is_left_alone() -> None:
    text = "A risk-free task: desk-bound people ask-and-answer at https://host/v1 (max_tokens=400)."
    assert redact(text) == text
    assert redact(text, ["", "  "]) == text
