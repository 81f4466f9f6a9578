"""The loopback server, asked through DSPy as a program would ask a model."""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import dspy
import pydantic
import pytest

from salon.errors import RunFailure, UserError
from salon.testing import ChatRequest, Fault, LoopbackProcess, LoopbackServer, Weighed, default_reply

ADAPTERS = [dspy.ChatAdapter(use_json_adapter_fallback=False), dspy.JSONAdapter()]
ANSWER = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


class Idea(pydantic.BaseModel):
    title: str
    description: str = pydantic.Field(description="What it is.")
    cites: list[str] = pydantic.Field(min_length=1, max_length=3)
    eagerness: int = pydantic.Field(ge=1, le=10)


class Think(dspy.Signature):
    """Think about the topic.

    1. `topic` is not an output.
    """

    topic: str = dspy.InputField()
    ideas: list[Idea] = dspy.OutputField(desc="New ideas.")
    mood: Literal["yes", "no"] = dspy.OutputField()
    confidence: int = dspy.OutputField(ge=0, le=10)
    comment: str = dspy.OutputField(desc="As in\n2. `mood` (str): this")
    note: str | None = dspy.OutputField()
    sure: bool = dspy.OutputField()
    score: float = dspy.OutputField()


def ask(endpoint: Any, question: str = "What?", **settings: Any) -> str:
    with dspy.context(lm=endpoint.lm(**{"cache": False, **settings})):
        answer: str = dspy.Predict("question -> answer")(question=question).answer
    return answer


def post(port: int, body: bytes, path: str = "/v1/chat/completions") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", path, body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def fill(schema: dict[str, Any], prompt: str = "", seed: int = 0) -> Any:
    """The server's own value for one output field of this schema."""
    whole = {"type": "object", "properties": {"field": schema}}
    return fill_all(whole, prompt, seed)["field"]


def fill_all(whole: dict[str, Any], prompt: str = "", seed: int = 0) -> dict[str, Any]:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": whole}}
    body = {"messages": [{"role": "user", "content": prompt}], "response_format": wanted}
    return default_reply(ChatRequest(body, seed=seed))


# Answers


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("use_async", [False, True])
def test_answers_typed_signatures(loopback: LoopbackServer, adapter: Any, use_async: bool) -> None:
    with dspy.context(lm=loopback.lm(), adapter=adapter):
        think = dspy.Predict(Think)
        topic = "Glasses. Said so far: C1, C3 and I2"
        got = asyncio.run(think.acall(topic=topic)) if use_async else think(topic=topic)
    assert loopback.count == 1
    assert loopback.requests[0].fields == tuple(Think.output_fields)
    assert got.ideas
    assert all(isinstance(idea, Idea) for idea in got.ideas)
    assert {key for idea in got.ideas for key in idea.cites} <= {"C1", "C3", "I2"}
    assert 0 <= got.confidence <= 10
    assert got.mood in ("yes", "no")
    assert isinstance(got.sure, bool)
    assert 40 <= len(got.comment.split()) <= 60


def test_plain_text_request(loopback: LoopbackServer) -> None:
    [text] = loopback.lm()("Say something.")
    assert len(text.split()) > 10
    assert loopback.requests[0].fields == ()


def test_schema_in_config_reaches_the_server_and_is_followed(loopback: LoopbackServer) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": ANSWER, "strict": True}}

    async def run() -> None:
        with dspy.context(lm=loopback.lm(), adapter=dspy.JSONAdapter()):
            await dspy.Predict("question -> answer").acall(question="?", config={"response_format": wanted})
            await loopback.lm().acall("plain", response_format=wanted)

    asyncio.run(run())
    assert [request.body["response_format"] for request in loopback.requests] == [wanted, wanted]


def test_json_adapter_sends_no_response_format_by_itself(loopback: LoopbackServer) -> None:
    with dspy.context(lm=loopback.lm(), adapter=dspy.JSONAdapter()):
        dspy.Predict("question -> answer")(question="?")
    assert "response_format" not in loopback.requests[0].body


def test_streams(loopback: LoopbackServer) -> None:
    async def run() -> list[Any]:
        listener = dspy.streaming.StreamListener("answer")
        program = dspy.streamify(dspy.Predict("question -> answer"), stream_listeners=[listener])
        return [item async for item in program(question="?")]

    with dspy.context(lm=loopback.lm()):
        items = asyncio.run(run())
    assert len(items) > 2
    streamed = "".join(item.chunk for item in items if isinstance(item, dspy.streaming.StreamResponse))
    assert streamed.strip() == items[-1].answer


def test_usage_is_counted(loopback: LoopbackServer) -> None:
    with dspy.track_usage() as usage:
        ask(loopback)
    [total] = usage.get_total_tokens().values()
    assert total["prompt_tokens"] == -(-len(loopback.requests[0].text.encode()) // 4)
    assert total["completion_tokens"] > 0


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_scripted_replies(adapter: Any) -> None:
    def reply(request: ChatRequest) -> Any:
        if request.number == 1:
            return {"answer": "von Hand 👓"}
        return {**default_reply(request), "answer": "other"} if request.number == 2 else None

    with LoopbackServer(reply=reply) as server, dspy.context(adapter=adapter):
        assert [ask(server), ask(server)] == ["von Hand 👓", "other"]
        assert len(ask(server)) > 20
        assert "What?" in server.requests[0].text


def test_async_reply_waits_for_others() -> None:
    waiting = 0

    async def reply(request: ChatRequest) -> dict[str, Any]:
        nonlocal waiting
        waiting += 1
        while waiting < 3:
            await asyncio.sleep(0.001)
        return {"answer": str(request.number)}

    async def run() -> list[str]:
        predict = dspy.Predict("question -> answer")
        got = await asyncio.gather(*(predict.acall(question=str(i)) for i in range(3)))
        return sorted(prediction.answer for prediction in got)

    with LoopbackServer(reply=reply) as server, dspy.context(lm=server.lm()):
        assert asyncio.run(run()) == ["1", "2", "3"]


def test_error_in_a_reply_is_told_to_both_sides() -> None:
    def reply(request: ChatRequest) -> str:
        raise ZeroDivisionError(request.text)

    def run() -> None:
        with LoopbackServer(reply=reply) as server:
            with pytest.raises(dspy.LMInvalidRequestError, match="ZeroDivisionError"):
                ask(server)
            assert server.count == 1

    with pytest.raises(ZeroDivisionError):
        run()


# Determinism


def test_same_messages_and_seed_same_answer_in_any_process(tmp_path: Path) -> None:
    with LoopbackServer(seed=4) as one, LoopbackServer(seed=4) as two, LoopbackServer(seed=5) as other:
        ask(one, "something first")
        answers = [ask(server) for server in (one, one, two, other)]
    with LoopbackProcess(seed=4) as process:
        answers.append(ask(process))
    assert answers[0] == answers[1] == answers[2] == answers[4]
    assert answers[3] != answers[0]


def test_messages_and_openai_seed_change_the_answer(loopback: LoopbackServer) -> None:
    answers = {ask(loopback, f"Question {i}") for i in range(20)}
    assert len(answers) == 20
    body = {"messages": [{"role": "user", "content": "hi"}]}
    texts = {default_reply(ChatRequest({**body, "seed": seed}))["text"] for seed in range(20)}
    assert len(texts) == 20


def test_servers_do_not_share_cached_answers() -> None:
    with LoopbackServer(seed=1) as one, LoopbackServer(seed=2) as two:
        assert ask(one, cache=True) != ask(two, cache=True)
        ask(one, cache=True)
        assert one.count == 1


# Schemas


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"const": 7}, {7}),
        ({"enum": ["a", "b", None]}, {"a", "b", None}),
        ({"type": "integer", "minimum": 3, "maximum": 5}, {3, 4, 5}),
        ({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6}, {4, 5}),
        ({"anyOf": [{"const": 1}, {"type": "null"}]}, {1, None}),
        ({"allOf": [{"type": "integer"}, {"minimum": 1, "maximum": 2}]}, {1, 2}),
        ({"type": ["boolean", "null"]}, {True, False, None}),
        ({"$ref": "#/$defs/Level", "$defs": {"Level": {"enum": ["low", "high"]}}}, {"low", "high"}),
        ({"type": "string", "pattern": "^I\\d+$"}, {"I1", "I12"}),
    ],
)
def test_values_cover_the_schema(schema: dict[str, Any], expected: set[Any]) -> None:
    assert {fill(schema, "C3 I1 I12 and AI1x", seed) for seed in range(200)} == expected


def test_integers_spread_over_the_scale() -> None:
    schema = {"type": "integer", "minimum": 1, "maximum": 10}
    counts = Counter(fill(schema, "", seed) for seed in range(1000))
    assert set(counts) == set(range(1, 11))
    assert max(counts.values()) < 160


@pytest.mark.parametrize("pattern", ["^[A-Z]{2}-\\d{3}$", "^(C|I)\\d+$", "^user_[a-z]+$", "^\\w{5}$"])
def test_patterns_without_ids_in_the_prompt(pattern: str) -> None:
    for seed in range(50):
        assert re.search(pattern, fill({"type": "string", "pattern": pattern}, "", seed))


@pytest.mark.parametrize(("low", "top"), [(0, 0), (2, 2), (3, 9), (6, 6)])
def test_arrays_keep_their_length(low: int, top: int) -> None:
    for items in ({"type": "string"}, {"type": "integer"}, {"enum": ["a", "b", "c"]}):
        schema = {"type": "array", "items": items, "minItems": low, "maxItems": top}
        assert all(low <= len(fill(schema, "", seed)) <= top for seed in range(50))


def test_citations_are_real_and_distinct() -> None:
    schema = {"type": "object", "properties": {"cites": {"type": "array", "items": {"type": "string"}}}}
    for seed in range(50):
        cites = fill_all(schema, "C1 said, U22 agreed, F3", seed)["cites"]
        assert set(cites) <= {"C1", "U22", "F3"}
        assert len(set(cites)) == len(cites) >= 1
    assert fill_all(schema, "nobody said a thing")["cites"] == []


def test_text_lengths() -> None:
    for seed in range(50):
        assert len(fill({"type": "string", "minLength": 400}, "", seed)) >= 400
        assert len(fill({"type": "string", "maxLength": 15}, "", seed)) <= 15
    names = {"type": "object", "properties": {"title": {"type": "string"}, "sketch": {"type": "string"}}}
    got = fill_all(names)
    assert len(got["title"].split()) == 6
    assert 60 <= len(got["sketch"].split()) <= 80


def test_recursive_schema_ends() -> None:
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/T"}}}}
    for seed in range(20):
        assert fill({"$ref": "#/$defs/T", "$defs": {"T": tree}}, "", seed)["kids"]


# Concurrency and recording


def test_sixteen_calls_at_once() -> None:
    async def run() -> None:
        predict = dspy.Predict("question -> answer")
        await asyncio.gather(*(predict.acall(question=str(i)) for i in range(16)))

    with LoopbackServer(delay=0.2) as server, dspy.context(lm=server.lm()):
        asyncio.run(run())
        assert (server.count, server.max_in_flight) == (16, 16)
        first, last = server.requests[0], server.requests[-1]
        assert first.ended is not None
        assert last.started < first.ended
        assert first.ended - first.started >= 0.2


def test_calls_in_a_row_are_never_at_once(loopback: LoopbackServer) -> None:
    for i in range(5):
        ask(loopback, str(i))
    assert (loopback.count, loopback.max_in_flight) == (5, 1)
    assert [request.number for request in loopback.requests] == [1, 2, 3, 4, 5]
    loopback.reset()
    assert (loopback.count, loopback.max_in_flight, loopback.requests) == (0, 0, [])


def test_record_and_stats(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    with LoopbackProcess(record=path, keep=True, words={"answer": 3}) as server:
        assert len(ask(server, "Wie? 👓").split()) == 3
        assert (server.count, server.max_in_flight, server.context_errors) == (1, 1, 0)
        [prompt] = server.prompts()
        server.reset()
        assert server.count == 0
    [line] = [json.loads(line) for line in path.read_text().splitlines()]
    assert line["prompt"] == prompt
    assert "Wie? 👓" in prompt
    assert line["ended"] >= line["started"]


# Faults


def test_rate_limit_is_retried_after_the_time_told() -> None:
    with LoopbackServer(faults={1: Fault(status=429, retry_after=0.1)}) as server:
        assert ask(server)
        one, two = server.requests
    assert one.ended is not None
    assert 0.1 <= two.started - one.ended < 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(status=429, retry_after=0.01), "LMRateLimitError"),
        (Fault(status=500), "LMServerError"),
        (Fault(status=503), "LMServerError"),
        (Fault(status=401), "LMAuthError"),
        (Fault.drop(), "LMTransportError"),
        (Fault.hang(30), "LMTransportError"),
        (Fault.malformed(), "LMProviderError"),
    ],
)
def test_each_fault_is_seen_as_its_error(fault: Fault, error: str) -> None:
    with LoopbackServer(faults=lambda request: fault) as server:
        with pytest.raises(dspy.utils.exceptions.LMError) as caught:
            ask(server, num_retries=0, timeout=0.2 if fault.kind == "hang" else 10)
        assert type(caught.value).__name__ == error
        assert server.count == 1


def test_a_reply_can_be_a_fault() -> None:
    with LoopbackServer(reply=lambda request: Fault(status=500) if "bad" in request.text else None) as server:
        assert ask(server, "good")
        with pytest.raises(dspy.LMServerError):
            ask(server, "bad", num_retries=0)


def test_truncated_json() -> None:
    server = LoopbackServer(reply=lambda request: {"answer": "x" * 100}, faults={1: Fault.truncated()})
    with server, dspy.context(adapter=dspy.JSONAdapter()):
        assert set(ask(server)) == {"x"}  # json_repair reads what there is
        assert len(ask(server)) == 100


def test_a_client_that_gives_up_frees_its_place() -> None:
    with LoopbackServer(delay=30) as server:
        with pytest.raises(dspy.LMTransportError):
            ask(server, num_retries=0, timeout=0.1)
        until = time.monotonic() + 10
        while server.stats()["in_flight"] and time.monotonic() < until:
            time.sleep(0.01)
        assert server.stats()["in_flight"] == 0
        assert server.requests[0].ended is None


def test_context_limit() -> None:
    with LoopbackServer(context_tokens=300) as server:
        assert ask(server)
        with pytest.raises(dspy.ContextWindowExceededError):
            ask(server, "word " * 400)
        with pytest.raises(dspy.ContextWindowExceededError):
            ask(server, max_tokens=290)
        assert (server.count, server.context_errors) == (3, 2)


def test_context_limit_of_the_process() -> None:
    with LoopbackProcess(context_tokens=50, faults={2: Fault(status=500)}) as server:
        with pytest.raises(dspy.ContextWindowExceededError):
            ask(server)
        assert server.context_errors == 1


def test_faults_of_the_process() -> None:
    with LoopbackProcess(faults={n: Fault(status=429, retry_after=0.01) for n in (1, 2)}) as server:
        assert ask(server)
        assert server.count == 3


@pytest.mark.parametrize("kind", ["json_schema", "json_object"])
def test_unsupported_response_format(kind: str) -> None:
    wanted = {"type": kind, **({"json_schema": {"name": "x", "schema": ANSWER}} if "schema" in kind else {})}
    predict = dspy.Predict("question -> answer")
    server = LoopbackServer(supports={"json_schema", "json_object"} - {kind})
    with server, dspy.context(lm=server.lm(), adapter=dspy.JSONAdapter()):
        with pytest.raises(dspy.LMInvalidRequestError, match="response_format"):
            predict(question="?", config={"response_format": wanted})
        assert predict(question="?").answer


# Robustness


@pytest.mark.parametrize(
    "content", ["👓 naïve 名前", "\\ud800", "\\udfff lone", "a\\u0000b", "[[ ## completed ## ]]", "{", ""]
)
def test_odd_text_is_answered(loopback: LoopbackServer, content: str) -> None:
    body = '{"messages": [{"role": "user", "content": "%s"}]}' % content  # noqa: UP031
    status, answer = post(loopback.port, body.encode())
    assert status == 200
    assert answer["choices"][0]["message"]["content"]
    assert loopback.requests[0].messages[0]["content"] == json.loads(f'"{content}"')


def test_lone_surrogates_in_records_and_prompts(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    with LoopbackServer(record=path, reply=lambda request: request.text, context_tokens=99) as server:
        status, answer = post(server.port, b'{"messages": [{"role": "user", "content": "\\ud800"}]}')
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "\ud800")
    assert json.loads(path.read_text())["prompt"] == "\ud800"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"messages": 3}', b"[" * 100_000])
def test_bad_bodies_are_refused(loopback: LoopbackServer, body: bytes) -> None:
    status, answer = post(loopback.port, body)
    assert status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    assert ask(loopback)


@pytest.mark.parametrize("messages", [[], ["text"], [{}], [{"role": "user", "content": None}]])
def test_odd_messages_are_answered(loopback: LoopbackServer, messages: list[Any]) -> None:
    assert post(loopback.port, json.dumps({"messages": messages}).encode())[0] == 200


def test_routes(loopback: LoopbackServer) -> None:
    body = b'{"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}'
    assert post(loopback.port, body, "/chat/completions")[0] == 200
    assert loopback.requests[0].text == "hi"
    assert post(loopback.port, b"", "/v1/nowhere")[0] == 404
    connection = http.client.HTTPConnection("127.0.0.1", loopback.port, timeout=10)
    for path in ("/v1/models", "/stats", "/v1/models"):  # on one connection
        connection.request("GET", path)
        answer = json.loads(connection.getresponse().read())
        assert answer.get("count", 1) == 1
    connection.close()


def test_lifetime() -> None:
    server = LoopbackServer()
    with pytest.raises(UserError, match="not running"):
        _ = server.base_url
    with server:
        port = server.port
        with pytest.raises(UserError, match="already"):
            server.start()
        with pytest.raises(RunFailure, match="did not start"):
            LoopbackServer(port=port).start()
        ask(server)
    assert server.count == 1
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        post(port, b"{}")


def test_process_that_cannot_start(loopback: LoopbackServer) -> None:
    with pytest.raises(RunFailure, match="did not start"):
        LoopbackProcess(port=loopback.port).start()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_process_ends_with_its_parent() -> None:
    code = (
        "import time\nfrom salon.testing import LoopbackProcess\n"
        "with LoopbackProcess(delay=30) as server:\n    print(server.pid, flush=True)\n    time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert _runs(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 10
    while _runs(pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _runs(pid)


def test_command_line_prints_its_address() -> None:
    command = [sys.executable, "-m", "salon.testing", "--seed=1", "--until-eof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        told = json.loads(process.stdout.readline())
        assert told["base_url"] == f"http://127.0.0.1:{told['port']}/v1"
        assert post(told["port"], b'{"messages": []}')[0] == 200
        process.stdin.close()
        assert process.wait(10) == 0


def test_command_line_refuses_bad_faults() -> None:
    command = [sys.executable, "-m", "salon.testing", '--faults={"1": {"colour": 3}}']
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30)
    assert done.returncode == 2
    assert "--faults" in done.stderr


# The fixtures


def test_users_keys_and_cache_are_out_of_reach() -> None:
    assert not [name for name in os.environ if name.endswith("_API_KEY") or name.startswith("SALON_")]
    assert dspy.settings.lm is None
    assert "salon-tests-" in os.environ["DSPY_CACHEDIR"]
    assert not dspy.cache.enable_disk_cache
    dspy.configure(lm="left behind")


def test_settings_are_restored() -> None:
    assert dspy.settings.lm is None


# ---------------------------------------------------------------- log-probabilities

WEIGHED = {"score": {"10": 0.25, "9": 0.75}}


def _asked(server: LoopbackServer, **settings: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"reason": {"type": "string"}, "score": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    body = {"messages": [{"role": "user", "content": "Rate it."}], "response_format": wanted, **settings}
    request = urllib.request.Request(
        f"{server.base_url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        choice: dict[str, Any] = json.loads(answer.read())["choices"][0]
    return choice


@pytest.mark.parametrize("digits", [False, True])
def test_a_weighed_reply_tells_the_odds_of_its_values_where_they_are_asked_for(digits: bool) -> None:
    with LoopbackServer(reply=lambda request: Weighed({"score": 10}, WEIGHED, digits)) as server:
        plain, told = _asked(server), _asked(server, logprobs=True, top_logprobs=20)
    assert "logprobs" not in plain
    content = told["logprobs"]["content"]
    assert "".join(token["token"] for token in content) == told["message"]["content"]
    assert json.loads(told["message"]["content"])["score"] == 10
    (weighed, *after) = [token for token in content if len(token["top_logprobs"]) > 1 or token["token"] == "0"]
    odds = {top["token"]: math.exp(top["logprob"]) for top in weighed["top_logprobs"]}
    assert odds == pytest.approx({"1": 0.25, "9": 0.75} if digits else {"10": 0.25, "9": 0.75})
    assert math.exp(weighed["logprob"]) == pytest.approx(0.25)
    assert [token["token"] for token in after] == (["0"] if digits else [])
    assert all(token["logprob"] == 0 for token in content if token is not weighed)


def test_log_probabilities_are_refused_where_they_are_not_supported() -> None:
    with LoopbackServer(supports=["json_schema"]) as server:
        _asked(server)
        with pytest.raises(urllib.error.HTTPError, match="400") as refused:
            _asked(server, logprobs=True)
        assert "logprobs" in json.loads(refused.value.read())["error"]["message"]


def test_plain_replies_have_no_log_probabilities() -> None:
    with LoopbackServer() as server:
        assert "logprobs" not in _asked(server, logprobs=True, top_logprobs=5)
