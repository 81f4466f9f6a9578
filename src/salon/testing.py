"""Test salon programs, and your own, against a chat server on this machine instead of a model.

`LoopbackServer` speaks OpenAI's chat protocol over real HTTP on 127.0.0.1. By itself it answers any DSPy
request with plausible values that depend on the messages and the seed alone; a test can script its replies
and have it fail in every way a provider fails. It runs in a thread of the test::

    with LoopbackServer(reply=lambda request: {**default_reply(request), "title": "Bread"}) as server:
        with dspy.context(lm=server.lm()):
            ...
    assert server.count == 1

or as a process of its own, which leaves the interpreter to the program that is measured::

    with LoopbackProcess(delay=0.2, seed=1) as server: ...
    $ python -m salon.testing --delay 0.2 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from salon._loopback import Core, Faults, Reply, Settings
from salon._loopback_reply import DEFAULT_WORDS, default_reply
from salon._loopback_request import ChatRequest, Fault, Weighed
from salon.errors import RunFailure, UserError

__all__ = ["DEFAULT_WORDS", "ChatRequest", "Fault", "LoopbackProcess", "LoopbackServer", "Weighed", "default_reply"]

_SUPPORTS = ("json_schema", "json_object", "logprobs")
_START_SECONDS = 30.0


class _Endpoint:
    """What a running loopback server is to its users: an address, and a `dspy.LM` for it."""

    def __init__(self, model: str | None) -> None:
        self.model = model or f"loopback-{uuid.uuid4().hex[:12]}"
        self._port: int | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._port is None:
            raise UserError("the loopback server is not running", todo="Use it in a with statement.")
        return self._port

    @property
    def base_url(self) -> str:
        """The address to give as ``api_base``."""
        return f"http://127.0.0.1:{self.port}/v1"

    def lm(self, **settings: Any) -> Any:
        """A `dspy.LM` for this server.

        Its model name is this server's own, so that answers in DSPy's cache are never another server's.

        Args:
            settings: Anything `dspy.LM` takes, such as ``num_retries``, ``timeout`` or ``cache``.
        """
        import dspy

        reach = {"api_base": self.base_url, "api_key": "loopback"}
        return dspy.LM(f"openai/{self.model}", **{**reach, **settings})


class LoopbackServer(_Endpoint):
    """A chat server in a thread of this process.

    Args:
        reply: What the model says: called with each `ChatRequest`, one at a time, in order of arrival. A dict
            of output fields is written in whatever form the request wants, and so is a `Weighed`, whose
            values have probabilities; a str is sent as it is, a `Fault` happens; None, or no ``reply``, stands
            for `default_reply`. May be async. An exception is answered with status 400, kept in `errors`, and
            raised where the ``with`` statement ends.
        delay: Seconds until each answer, or a function of the request.
        seed: Seed of the default replies.
        words: Words per text field, by field name; see `DEFAULT_WORDS`.
        faults: What goes wrong, by running request number (from 1), or as a function of the request.
        context_tokens: The model's context length. A request whose prompt and ``max_tokens`` pass it is
            refused as OpenAI does. A prompt is taken to have a quarter of its UTF-8 bytes in tokens, rounded
            up.
        supports: The kinds of ``response_format`` it takes, and ``logprobs`` if it takes requests for
            log-probabilities, which it tells of `Weighed` replies alone; others are refused with status 400.
        keep: Whether `requests` keeps the requests.
        record: A file that gets a JSON line with each request's prompt and times, once it is answered.
        model: Name of the model; a name of its own for each server by default.
        port: Port to listen on; a free one by default.
    """

    def __init__(
        self,
        *,
        reply: Reply | None = None,
        delay: float | Callable[[ChatRequest], float] = 0.0,
        seed: int = 0,
        words: Mapping[str, int] | None = None,
        faults: Faults | None = None,
        context_tokens: int | None = None,
        supports: Collection[str] = _SUPPORTS,
        keep: bool = True,
        record: str | Path | None = None,
        model: str | None = None,
        port: int = 0,
    ) -> None:
        super().__init__(model)
        self.settings = Settings(
            reply, delay, seed, words or {}, faults or {}, context_tokens, frozenset(supports), keep,
            Path(record) if record else None, self.model, port,
        )  # fmt: skip
        self._core: Core | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def core(self) -> Core:
        """The server's state; stays readable after the server has stopped."""
        if self._core is None:
            raise UserError("the loopback server was never started", todo="Use it in a with statement.")
        return self._core

    @property
    def requests(self) -> list[ChatRequest]:
        """The requests so far, in order of arrival."""
        with self.core.lock:
            return list(self.core.requests)

    @property
    def count(self) -> int:
        """How many chat requests came."""
        return self.core.count

    @property
    def max_in_flight(self) -> int:
        """How many requests were being answered at once, at most."""
        return self.core.max_in_flight

    @property
    def context_errors(self) -> int:
        """How many requests were refused for their length."""
        return self.core.context_errors

    @property
    def errors(self) -> list[Exception]:
        """What ``reply``, ``delay`` and ``faults`` raised."""
        return self.core.errors

    def stats(self) -> dict[str, Any]:
        """The counts: ``count``, ``max_in_flight``, ``in_flight``, ``context_errors``."""
        return self.core.stats()

    def reset(self) -> None:
        """Forget all requests and counts; request numbers start at 1 again."""
        self.core.reset()

    def start(self) -> Self:
        """Start serving."""
        if self._thread is not None:
            raise UserError("the loopback server is running already")
        ready = threading.Event()
        failure: list[Exception] = []

        def run() -> None:
            try:
                asyncio.run(self._serve(ready))
            except Exception as error:
                failure.append(error)
            finally:
                ready.set()

        self._core = Core(self.settings)
        self._thread = threading.Thread(target=run, name="loopback", daemon=True)
        self._thread.start()
        if not ready.wait(_START_SECONDS) or failure:
            self._thread = None
            raise RunFailure("the loopback server did not start", str(failure[0]) if failure else "no answer")
        return self

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._port = await self.core.start()
        ready.set()
        await self._stopping.wait()
        await self.core.stop()

    def stop(self) -> None:
        """Stop serving: requests in flight are dropped, the counts stay."""
        if self._thread is None or self._loop is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_START_SECONDS)
        self._thread = self._loop = self._port = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if kind is None and self.errors:
            raise self.errors[0]


class LoopbackProcess(_Endpoint):
    """A chat server in a process of its own, which ends with this one however this one ends.

    It takes the settings of `LoopbackServer` that are data: replies are `default_reply`'s, ``delay`` is a
    number, ``faults`` a mapping. Requests are not kept unless ``keep`` is set; `prompts` then returns them.
    """

    def __init__(
        self,
        *,
        delay: float = 0.0,
        seed: int = 0,
        words: Mapping[str, int] | None = None,
        faults: Mapping[int, Fault] | None = None,
        context_tokens: int | None = None,
        supports: Collection[str] = _SUPPORTS,
        keep: bool = False,
        record: str | Path | None = None,
        model: str | None = None,
        port: int = 0,
    ) -> None:
        super().__init__(model)
        told = {str(number): asdict(fault) for number, fault in (faults or {}).items()}
        self._flags = [
            f"--delay={delay}", f"--seed={seed}", f"--words={json.dumps(dict(words or {}))}",
            f"--faults={json.dumps(told)}", f"--supports={','.join(supports)}", f"--model={self.model}",
            f"--port={port}", "--until-eof",
        ]  # fmt: skip
        self._flags += [f"--context-tokens={context_tokens}"] if context_tokens is not None else []
        self._flags += ["--keep"] if keep else []
        self._flags += [f"--record={record}"] if record else []
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process else None

    @property
    def count(self) -> int:
        """How many chat requests came."""
        return int(self.stats()["count"])

    @property
    def max_in_flight(self) -> int:
        """How many requests were being answered at once, at most."""
        return int(self.stats()["max_in_flight"])

    @property
    def context_errors(self) -> int:
        """How many requests were refused for their length."""
        return int(self.stats()["context_errors"])

    def stats(self) -> dict[str, Any]:
        """The counts: ``count``, ``max_in_flight``, ``in_flight``, ``context_errors``."""
        return self._ask("GET", "/stats")

    def prompts(self) -> list[str]:
        """The prompts so far, where they are kept."""
        return list(self._ask("GET", "/stats?prompts=1")["prompts"])

    def reset(self) -> None:
        """Forget all requests and counts; request numbers start at 1 again."""
        self._ask("POST", "/reset")

    def start(self) -> Self:
        """Start the process and wait until it serves."""
        if self._process is not None:
            raise UserError("the loopback server is running already")
        command = [sys.executable, "-m", "salon.testing", *self._flags]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        try:
            self._port = int(json.loads(self._process.stdout.readline())["port"])
        except ValueError as error:
            self.stop()
            raise RunFailure("the loopback server did not start", "see its message above") from error
        return self

    def stop(self) -> None:
        """End the process."""
        process, self._process, self._port = self._process, None, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()

    def _ask(self, method: str, path: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_START_SECONDS)
        try:
            connection.request(method, path)
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m salon.testing",
        description="Serve OpenAI's chat protocol on 127.0.0.1 with made-up answers. "
        "Prints one JSON line with its base_url; GET /stats tells the counts, POST /reset clears them.",
    )
    parser.add_argument("--delay", type=float, default=0.0, metavar="S", help="seconds until each answer")
    parser.add_argument("--seed", type=int, default=0, help="seed of the answers")
    parser.add_argument("--words", type=json.loads, default={}, metavar="JSON", help='like {"comment": 30}')
    parser.add_argument(
        "--faults", type=json.loads, default={}, metavar="JSON",
        help='by request number, such as {"1": {"status": 429, "retry_after": 0.1}, "2": {"kind": "drop"}}',
    )  # fmt: skip
    parser.add_argument("--context-tokens", type=int, metavar="N", help="refuse longer prompts")
    parser.add_argument("--supports", default=",".join(_SUPPORTS), help="kinds of response_format; logprobs")
    parser.add_argument("--keep", action="store_true", help="keep the prompts for GET /stats?prompts=1")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write each prompt as a JSON line")
    parser.add_argument("--model", help="name of the model")
    parser.add_argument("--port", type=int, default=0, help="port; a free one by default")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input closes")
    return parser


async def _run(core: Core, model: str, until_eof: bool) -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, done.set)
    port = await core.start()

    def watch() -> None:
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(done.set)

    if until_eof:
        threading.Thread(target=watch, daemon=True).start()
    told = {"base_url": f"http://127.0.0.1:{port}/v1", "model": model, "port": port, "pid": os.getpid()}
    print(json.dumps(told), flush=True)
    await done.wait()
    await core.stop()


def main(arguments: list[str] | None = None) -> int:
    """Run a loopback server until it is told to end; the exit status is returned."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        faults = {int(number): Fault(**told) for number, told in given.faults.items()}
    except (AttributeError, TypeError, ValueError) as error:
        parser.error(f"--faults: {error}")
    model = given.model or f"loopback-{uuid.uuid4().hex[:12]}"
    settings = Settings(
        delay=given.delay, seed=given.seed, words=given.words, faults=faults, keep=given.keep,
        context_tokens=given.context_tokens, supports=frozenset(filter(None, given.supports.split(","))),
        record=given.record, model=model, port=given.port,
    )  # fmt: skip
    try:
        asyncio.run(_run(Core(settings), model, given.until_eof))
    except OSError as error:
        print(f"the loopback server did not start: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
