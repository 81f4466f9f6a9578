"""The inside of the loopback server: speaking HTTP.

One ``asyncio.Protocol`` per connection: requests of a connection are answered in order, and a client that hangs
up cancels the work on its request.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from salon._loopback_reply import default_reply, logprobs, render
from salon._loopback_request import ChatRequest, Fault, Weighed

_MAX_BODY = 64 * 2**20
Reply = Callable[[ChatRequest], "str | dict[str, Any] | Weighed | Fault | Awaitable[Any] | None"]
Faults = Mapping[int, Fault] | Callable[[ChatRequest], Fault | None]
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many Requests"}
_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def tokens(text: str) -> int:
    """The server's estimate of a text's tokens: a quarter of its UTF-8 bytes, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


@dataclass
class Settings:
    """Everything a loopback server can be told; see `salon.testing.LoopbackServer`."""

    reply: Reply | None = None
    delay: float | Callable[[ChatRequest], float] = 0.0
    seed: int = 0
    words: Mapping[str, int] = field(default_factory=dict)
    faults: Faults = field(default_factory=dict)
    context_tokens: int | None = None
    supports: frozenset[str] = frozenset({"json_schema", "json_object", "logprobs"})
    keep: bool = True
    record: Path | None = None
    model: str = "loopback"
    port: int = 0


@dataclass(frozen=True)
class _Answer:
    status: int
    body: bytes
    headers: str = ""
    kind: str = "application/json"


class Core:
    """A server's state, and its answer to each request; lives on one event loop, read from any thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.lock = threading.Lock()
        self.errors: list[Exception] = []
        self.in_flight = 0
        self.reset()
        self._record: IO[str] | None = None
        if settings.record:
            self._record = Path(settings.record).open("w", encoding="utf-8")  # noqa: SIM115
        self._server: asyncio.Server | None = None
        self.connections: set[_Connection] = set()

    def reset(self) -> None:
        """Forget all requests and counts."""
        with self.lock:
            self.requests: list[ChatRequest] = []
            self.count = self.context_errors = 0
            self.max_in_flight = self.in_flight

    async def start(self) -> int:
        """Listen; the port is returned."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.settings.port, backlog=512)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Close the listener, every connection and the record."""
        if self._server:
            self._server.close()
        tasks = [connection.task for connection in self.connections if connection.task]
        for connection in list(self.connections):
            connection.close()
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        if self._record:
            self._record.close()
            self._record = None

    def stats(self, prompts: bool = False) -> dict[str, Any]:
        """The counts so far, and the kept prompts where asked for."""
        with self.lock:
            told: dict[str, Any] = {
                "count": self.count, "max_in_flight": self.max_in_flight, "in_flight": self.in_flight,
                "context_errors": self.context_errors,
            }  # fmt: skip
            return told | ({"prompts": [request.text for request in self.requests]} if prompts else {})

    async def answer(self, method: str, target: str, body: bytes) -> _Answer | None:
        """Answer one HTTP request; None closes the connection."""
        url = urlsplit(target)
        route = method, url.path.removeprefix("/v1").rstrip("/")
        if route == ("POST", "/chat/completions"):
            return await self._chat(body)
        if route == ("GET", "/models"):
            return _json(200, {"object": "list", "data": [{"id": self.settings.model, "object": "model"}]})
        if route == ("GET", "/stats"):
            return _json(200, self.stats(prompts="prompts=1" in url.query.split("&")))
        if route == ("POST", "/reset"):
            self.reset()
            return _json(200, {})
        return _error(404, f"no such route: {method} {url.path}")

    async def _chat(self, raw: bytes) -> _Answer | None:
        started = time.monotonic()
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError) as error:
            return _error(400, f"the body is no JSON: {error}")
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            return _error(400, "'messages' must be a list", param="messages")
        request = self._arrive(body, started)
        try:
            return await self._serve(request)
        except Exception as error:
            self.errors.append(error)
            return _error(400, f"the scripted reply raised {type(error).__name__}: {error}")
        finally:
            self._leave(request)

    def _arrive(self, body: dict[str, Any], started: float) -> ChatRequest:
        with self.lock:
            self.count += 1
            self.in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self.in_flight)
            request = ChatRequest(body, self.count, started, seed=self.settings.seed, words=self.settings.words)
            if self.settings.keep:
                self.requests.append(request)
        return request

    def _leave(self, request: ChatRequest) -> None:
        with self.lock:
            self.in_flight -= 1
        if self._record:
            line = {"number": request.number, "started": request.started, "ended": request.ended}
            self._record.write(json.dumps(line | {"prompt": request.text}) + "\n")
            self._record.flush()

    async def _serve(self, request: ChatRequest) -> _Answer | None:
        refused = self._refusal(request)
        if refused:
            request.ended = time.monotonic()
            return refused
        faults = self.settings.faults
        fault = faults.get(request.number) if isinstance(faults, Mapping) else faults(request)
        reply = None if fault and not fault.speaks else await self._reply(request)
        if isinstance(reply, Fault):
            fault, reply = reply, None
        if reply is None:
            reply = {} if fault and not fault.speaks else default_reply(request)
        weighed = reply if isinstance(reply, Weighed) else None
        if isinstance(reply, Weighed):
            reply = {**default_reply(request), **reply.values}
        text = reply if isinstance(reply, str) else render(request, reply)
        delay = self.settings.delay
        wait = delay(request) if callable(delay) else delay
        if fault and fault.kind == "hang":
            wait += fault.seconds
        wait -= time.monotonic() - request.started  # answers are made while the client waits anyway
        if wait > 0:
            await asyncio.sleep(wait)
        request.ended = time.monotonic()
        return self._completion(request, text, fault, weighed)

    def _refusal(self, request: ChatRequest) -> _Answer | None:
        """The error answer for what this server does not take: too long a prompt, a format, log-probabilities."""
        wanted = request.body.get("response_format")
        kind = wanted.get("type") if isinstance(wanted, dict) else None
        if kind not in (None, "text") and kind not in self.settings.supports:
            message = f"'response_format' of type '{kind}' is not supported with this model."
            return _error(400, f"Invalid parameter: {message}", param="response_format")
        if request.body.get("logprobs") and "logprobs" not in self.settings.supports:
            return _error(400, "'logprobs' are not supported with this model.", param="logprobs")
        limit = self.settings.context_tokens
        if limit is None:
            return None
        prompt = tokens(request.text)
        room = int(request.body.get("max_completion_tokens") or request.body.get("max_tokens") or 0)
        if prompt + room <= limit:
            return None
        with self.lock:
            self.context_errors += 1
        message = (
            f"This model's maximum context length is {limit} tokens. However, you requested {prompt + room} "
            f"tokens ({prompt} in the messages, {room} in the completion). Please reduce the length of the "
            "messages or completion."
        )
        return _error(400, message, param="messages", code="context_length_exceeded")

    async def _reply(self, request: ChatRequest) -> str | dict[str, Any] | Weighed | Fault | None:
        reply: Any = self.settings.reply(request) if self.settings.reply else None
        return await reply if inspect.isawaitable(reply) else reply

    def _completion(
        self, request: ChatRequest, text: str, fault: Fault | None, weighed: Weighed | None = None
    ) -> _Answer | None:
        kind = fault.kind if fault else None
        if kind in ("hang", "drop"):
            return None
        if fault and kind == "status":
            after = "" if fault.retry_after is None else f"Retry-After: {fault.retry_after:g}\r\n"
            return _error(fault.status, fault.message, headers=after)
        if kind == "truncated":
            text = text[: len(text) // 2]
        finish = "length" if kind == "truncated" else "stop"
        prompt, completion = tokens(request.text), tokens(text)
        usage = {"prompt_tokens": prompt, "completion_tokens": completion}
        usage["total_tokens"] = prompt + completion
        head = {"id": f"chatcmpl-{request.number}", "created": int(time.time())}
        head["model"] = request.body.get("model") or self.settings.model
        if request.body.get("stream"):
            return _stream(head, text, finish, usage)
        message = {"role": "assistant", "content": text}
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish}
        if weighed and request.body.get("logprobs"):
            choice["logprobs"] = logprobs(text, weighed)
        whole = _json(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        return _Answer(200, whole.body[: len(whole.body) // 2]) if kind == "malformed" else whole


def _json(status: int, value: Any, headers: str = "") -> _Answer:
    return _Answer(status, json.dumps(value).encode(), headers)


def _error(
    status: int, message: str, *, param: str | None = None, code: str | None = None, headers: str = ""
) -> _Answer:
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return _json(status, {"error": {"message": message, "type": kind, "param": param, "code": code}}, headers)


def _stream(head: dict[str, Any], text: str, finish: str, usage: dict[str, int]) -> _Answer:
    """The answer as server-sent events, a few words each."""
    pieces = re.findall(r"(?:\S+\s*|\s+){1,4}", text)
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [*(({"content": piece}, None) for piece in pieces), ({}, finish)]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in deltas
    ]
    chunks.append({"choices": [], "usage": usage})
    lines = [json.dumps({**head, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    body = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
    return _Answer(200, body.encode(), kind="text/event-stream")


class _Connection(asyncio.Protocol):
    """One client connection."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.buffer = bytearray()
        self.head: tuple[str, str, dict[str, str]] | None = None
        self.task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.core.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.core.connections.discard(self)
        if self.task:
            self.task.cancel()

    def close(self) -> None:
        """Hang up, whatever is going on."""
        if self.task:
            self.task.cancel()
        if self.transport:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self._advance()

    def _advance(self) -> None:
        """Start on the next request as soon as it is there in full and the one before is answered."""
        if self.task or not self.transport or self.transport.is_closing():
            return
        try:
            if self.head is None and not self._read_head():
                return
            assert self.head is not None
            method, target, headers = self.head
            length = int(headers.get("content-length", 0))
            if length < 0 or "transfer-encoding" in headers:
                raise ValueError("a body needs a Content-Length")
        except ValueError as error:
            return self._send(_error(400, f"bad request: {error}"), keep=False)
        if length > _MAX_BODY:
            return self._send(_error(413, "the body is too large"), keep=False)
        if len(self.buffer) < length:
            return None
        body = bytes(self.buffer[:length])
        del self.buffer[:length]
        self.head = None
        keep = headers.get("connection", "").lower() != "close"
        self.task = asyncio.get_running_loop().create_task(self._respond(method, target, body, keep))
        return None

    def _read_head(self) -> bool:
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self.buffer) > 2**16:
                raise ValueError("the header is too large")
            return False
        first, *lines = self.buffer[:end].decode("latin-1").split("\r\n")
        del self.buffer[: end + 4]
        method, target, _ = first.split(" ", 2)
        parts = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in parts}
        self.head = method, target, headers
        if headers.get("expect", "").lower() == "100-continue" and self.transport:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    async def _respond(self, method: str, target: str, body: bytes, keep: bool) -> None:
        answer = await self.core.answer(method, target, body)
        self.task = None
        self._send(answer, keep=keep)
        self._advance()

    def _send(self, answer: _Answer | None, *, keep: bool) -> None:
        if not self.transport:
            return
        if answer is None:
            self.transport.abort()
            return
        head = (
            f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Status')}\r\n"
            f"Content-Type: {answer.kind}\r\nContent-Length: {len(answer.body)}\r\n{answer.headers}"
            f"Connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
        )
        self.transport.write(head.encode("latin-1") + answer.body)
        if not keep:
            self.transport.close()
