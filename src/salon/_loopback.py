"""The inside of the loopback server: reading a request, inventing an answer, speaking HTTP.

A request is read for its output fields, each with a JSON schema. They come from the request's
``response_format``, else from the system message of DSPy's JSON or chat adapter, else from the task in a
prompt of salon's own; a request with none is plain text. Inventing an answer is filling those schemas from a
random generator seeded by the messages and the server's seed alone, so that equal requests get equal answers
in any process. HTTP is one ``asyncio.Protocol`` per connection: requests of a connection are answered in
order, and a client that hangs up cancels the work on its request.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import json
import random
import re
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import urlsplit

Schema = dict[str, Any]
DEFAULT_WORDS: Mapping[str, int] = {"sketch": 70, "comment": 50, "thought": 40, "title": 6, "description": 60}
"""Words per answer for fields of these names; every other text field gets 20."""

_MAX_BODY = 64 * 2**20


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong with one request.

    Args:
        status: HTTP status of the error answer.
        retry_after: Seconds for the Retry-After header.
        message: Text of the error answer.
        kind: What goes wrong; see the class methods for all but ``status``.
        seconds: How long a hang lasts.
    """

    status: int = 500
    retry_after: float | None = None
    message: str = "scripted failure"
    kind: Literal["status", "hang", "drop", "truncated", "malformed"] = "status"
    seconds: float = 0.0

    @property
    def speaks(self) -> bool:
        """Whether the model answers, in part at least."""
        return self.kind in ("truncated", "malformed")

    @classmethod
    def hang(cls, seconds: float) -> Fault:
        """Say nothing for so long, then close the connection."""
        return cls(kind="hang", seconds=seconds)

    @classmethod
    def drop(cls) -> Fault:
        """Close the connection without an answer."""
        return cls(kind="drop")

    @classmethod
    def truncated(cls) -> Fault:
        """Answer with the first half of the model's text and ``finish_reason`` "length"."""
        return cls(kind="truncated")

    @classmethod
    def malformed(cls) -> Fault:
        """Answer 200 with a body that is no complete JSON."""
        return cls(kind="malformed")


@dataclass(eq=False)
class ChatRequest:
    """One chat request as the server saw it.

    Attributes:
        body: The JSON body as sent.
        number: Running number of the request, from 1.
        started: Monotonic time of arrival.
        ended: Monotonic time of the answer; None while in flight, or when the client hung up.
        seed: The server's seed, for `default_reply`.
        words: The server's words per text field, for `default_reply`.
    """

    body: dict[str, Any]
    number: int = 1
    started: float = 0.0
    ended: float | None = None
    seed: int = 0
    words: Mapping[str, int] = field(default_factory=dict)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The chat messages as sent."""
        return [message for message in self.body.get("messages", []) if isinstance(message, dict)]

    @cached_property
    def text(self) -> str:
        """The text of all messages, in order, with a blank line between."""
        return "\n\n".join(_content(message) for message in self.messages)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the output fields the request asks for; none in a plain text request."""
        return tuple(self.schemas)

    @property
    def style(self) -> Literal["json", "chat", "plain"]:
        """The form the answer must have."""
        return self._plan[0]

    @property
    def schemas(self) -> dict[str, Schema]:
        """A JSON schema for each output field, with the ``$defs`` it refers to."""
        return self._plan[1]

    @cached_property
    def _plan(self) -> tuple[Literal["json", "chat", "plain"], dict[str, Schema]]:
        system = "\n\n".join(_content(m) for m in self.messages if m.get("role") in ("system", "developer"))
        style, described = read_system(system)
        if style == "plain":
            asked = [_content(m) for m in self.messages if m.get("role") == "user"]
            style, described = read_task(asked[-1] if asked else "")
        wanted = self.body.get("response_format")
        if not isinstance(wanted, dict) or wanted.get("type") not in ("json_schema", "json_object"):
            return style, described
        inner = wanted.get("json_schema")
        schema = inner.get("schema") if isinstance(inner, dict) else None
        return "json", (properties(schema) if isinstance(schema, dict) else {}) or described


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def properties(schema: Schema) -> dict[str, Schema]:
    """The properties of an object schema, each carrying the definitions of the whole."""
    root: Schema = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    top = _resolve(schema, root)
    parts = top.get("properties", {})
    return {name: {**part, **root} for name, part in parts.items() if isinstance(part, dict)}


@lru_cache(maxsize=256)
def read_system(system: str) -> tuple[Literal["json", "chat", "plain"], dict[str, Schema]]:
    """Find the style and the output fields in the system message of a DSPy adapter."""
    listed = re.search(r"Your output fields are:\n(.*?)\nAll interactions will be structured", system, re.S)
    limits: dict[str, str] = {}
    for part in re.split(r"\n(?=\d+\. `)", listed[1]) if listed else ():
        if match := re.match(r"\d+\. `(\w+)`", part):
            limits[match[1]] = part.rpartition("\nConstraints: ")[2] if "\nConstraints: " in part else ""
    marker = "Outputs will be a JSON object with the following fields."
    if marker in system:
        template = system.partition(marker)[2]
        try:
            notes, _ = json.JSONDecoder().raw_decode(template, template.index("{"))
        except ValueError:
            return "plain", {}
        return "json", {name: _noted(str(note), limits.get(name, "")) for name, note in notes.items()}
    structure = system.partition("All interactions will be structured in the following way")[2]
    if "[[ ## completed ## ]]" not in structure:
        return "plain", {}
    notes = dict(re.findall(r"^\[\[ ## (\w+) ## \]\]\n(.*)$", structure, re.M))
    return "chat", {name: _noted(notes.get(name, ""), text) for name, text in limits.items()}


_TASK = re.compile(r"^\[\[ ## task ## \]\]\n(.*?)(?=\n\n\[\[ ## |\n\nRespond with |\Z)", re.M | re.S)
_HEADINGS: dict[Literal["json", "chat"], str] = {
    "json": "\nOutputs will be a JSON object with the following fields:\n",
    "chat": "\nAnswer in sections headed like these, and end with [[ ## completed ## ]]:\n",
}


def read_task(asked: str) -> tuple[Literal["json", "chat", "plain"], dict[str, Schema]]:
    """Find the style and the output fields in the task of salon's own prompts, which is in a user message."""
    task = _TASK.search(asked)
    for style, heading in _HEADINGS.items():
        if task and heading in task[1]:
            listed = re.findall(r"^- (\w+): (.*)$", task[1].partition(heading)[2], re.M)
            return style, {name: _noted(_note_of(text), "") for name, text in listed}
    return "plain", {}


def _note_of(text: str) -> str:
    note = re.search(r"(?:^|; )(must (?:adhere to the JSON schema: |be |exactly match ).*)$", text)
    return f"# note: the value you produce {note[1]}" if note else ""


_KINDS = {
    "be True or False": "boolean",
    "be a single int value": "integer",
    "be a single float value": "number",
}
_LIMITS = {
    "greater than or equal to": "minimum",
    "greater than": "exclusiveMinimum",
    "less than or equal to": "maximum",
    "less than": "exclusiveMaximum",
    "minimum length": "minLength",
    "maximum length": "maxLength",
}


def _noted(note: str, limits: str) -> Schema:
    """The schema told by an adapter's note on one field."""
    _, _, told = note.partition("# note: the value you produce must ")
    if told.startswith("adhere to the JSON schema: "):
        try:
            return json.JSONDecoder().raw_decode(told.partition(": ")[2])[0]
        except ValueError:
            return {"type": "string"}
    if " one of: " in told:
        return {"enum": told.partition(" one of: ")[2].split("; ")}
    schema: Schema = {"type": _KINDS.get(told.strip(), "string")}
    for name, number in re.findall(r"([a-z ]+): (-?\d+(?:\.\d+)?)", limits):
        if name.strip() in _LIMITS:
            schema[_LIMITS[name.strip()]] = json.loads(number)
    return schema


# Inventing values -----------------------------------------------------------------------------------------

_POOLS = {
    kind: text.split()
    for kind, text in {
        "nouns": """
            lantern orchard glacier notebook harbor compass violin bakery drone greenhouse subway
            telescope quilt kettle bicycle library aquarium balloon passport theater windmill mushroom
            satellite puzzle hammock elevator volcano mirror keyboard sailboat courtyard recipe museum
            beehive staircase umbrella magnet tunnel playground radio ferry blanket backpack calendar
            canyon carousel choir comet desert diary engine festival fountain garage hospital igloo jacket
            kite laboratory market needle oven pencil quarry river scooter tractor vineyard wallet
        """,
        "verbs": """
            maps repairs whispers sorts translates gathers paints measures trades protects warms records
            folds teaches rewards predicts hides filters mixes lifts charts rescues borrows grows edits
            cools delivers plays
        """,
        "adjectives": """
            silent seasonal edible portable shared magnetic forgotten playful solar fragile anonymous
            musical underwater recycled nocturnal modular scented invisible handmade rotating frozen
            generous reversible tiny floating rural electric ancient breathable patient transparent
            stubborn velvet wireless bitter curious
        """,
        "people": """
            commuters nurses grandparents beekeepers teenagers pilots gardeners translators cyclists cooks
            students divers neighbors tailors refugees carpenters athletes librarians parents farmers
            actors dentists
        """,
    }.items()
}
_FRAMES = (
    "A {a} {n} {v} the {b} {m} for {p}",
    "Let {p} keep a {n} that {v} every {m}",
    "What if the {m} {v} a {a} {n} while {p} sleep",
    "{p} could swap one {n} for a {b} {m}",
    "The {a} {n} {v} whatever {p} leave near the {m}",
    "Instead of a {m}, {p} get a {a} {n} that {v} back",
    "It {v} the {n} first and leaves the {b} {m} to {p}",
)
_CITING = re.compile(
    r"(?:^|_)(?:cite[sd]?|citations?|refs?|references?|sources?|basis|builds_on|parents?|ballot|votes?|picks?"
    r"|winners?|chosen|best|ids?)(?:_|$)"
)
_NOT_TEXT = {"enum", "const", "anyOf", "oneOf", "properties"}
_IDS = re.compile(r"[CIUFS](?<!\w.)\d+\b")  # as \b[CIUFS]\d+\b, ten times faster on long prompts


def sentences(rng: random.Random, count: int) -> str:
    """About so many words of varied English, in whole sentences; fewer than eight are a fragment."""
    words: list[str] = []
    while not words or len(words) < count - 4:
        frame = rng.choice(_FRAMES).format(
            a=rng.choice(_POOLS["adjectives"]),
            b=rng.choice(_POOLS["adjectives"]),
            n=rng.choice(_POOLS["nouns"]),
            m=rng.choice(_POOLS["nouns"]),
            v=rng.choice(_POOLS["verbs"]),
            p=rng.choice(_POOLS["people"]),
        )
        frame = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", frame)
        words += f"{frame[0].upper()}{frame[1:]}.".split()
    return " ".join(words if count > 7 else words[:count]).rstrip(".") + "."


def title(rng: random.Random, count: int) -> str:
    """So many words that read like a title."""
    words = [rng.choice(_POOLS["nouns"])]
    if count > 3:
        words += ["for", rng.choice(_POOLS["people"])]
    while len(words) < count:
        words.insert(0, rng.choice(_POOLS["adjectives"]))
    return " ".join(word if word == "for" else word.capitalize() for word in words)


def _resolve(schema: Schema, root: Schema) -> Schema:
    """A schema with its ``$ref`` followed and its ``allOf`` merged."""
    for _ in range(32):
        if "$ref" not in schema:
            break
        target: Any = root
        for key in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
            target = target.get(key, {}) if key else target
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    for part in schema.get("allOf", ()):
        schema = {**_resolve(part, root), **{key: value for key, value in schema.items() if key != "allOf"}}
    return schema


class _Filler:
    """Fills the schemas of one request."""

    def __init__(self, request: ChatRequest, seed: int, words: Mapping[str, int]) -> None:
        key = json.dumps([seed, request.body.get("seed"), request.body.get("messages")], sort_keys=True)
        self.rng = random.Random(hashlib.blake2b(key.encode(), digest_size=8).digest())
        self.words = {**DEFAULT_WORDS, **words}
        self.request = request
        self.root: Schema = {}

    @cached_property
    def ids(self) -> list[str]:
        """The ids in the last user message; those of the whole prompt where it has none."""
        asked = [_content(message) for message in self.request.messages if message.get("role") == "user"]
        found = _IDS.findall(asked[-1]) if asked else []
        return list(dict.fromkeys(found or _IDS.findall(self.request.text)))

    def field(self, name: str, schema: Schema) -> Any:
        """A value for one output field."""
        self.root = schema
        return self.fill(schema, name, 0)

    def fill(self, schema: Schema, name: str, depth: int) -> Any:
        """A value for one place of a schema; ``name`` is the property it belongs to."""
        schema = _resolve(schema, self.root)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self.rng.choice(schema["enum"])
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self.fill(self._choose(options, depth), name, depth)
        kind = schema.get("type") or ("object" if "properties" in schema else "string")
        if isinstance(kind, list):
            return self.fill(self._choose([{**schema, "type": one} for one in kind], depth), name, depth)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, name, depth)
        if kind in ("integer", "number"):
            return self._number(schema, kind)
        if kind == "boolean":
            return self.rng.random() < 0.5
        return None if kind == "null" else self._string(schema, name)

    def _choose(self, options: list[Schema], depth: int) -> Schema:
        """One of the options: null once in eight times, and always where schemas nest too deep."""
        real = [option for option in options if option.get("type") != "null"]
        if len(real) < len(options) and (not real or depth > 4 or self.rng.random() < 1 / 8):
            return {"type": "null"}
        return self.rng.choice(real)

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        parts = schema.get("properties")
        if parts:
            return {name: self.fill(part, name, depth + 1) for name, part in parts.items()}
        value = schema.get("additionalProperties")
        if not isinstance(value, dict):
            return {}
        names = self.ids or _POOLS["nouns"]
        keys = self.rng.sample(names, min(3, len(names)))
        return {key: self.fill(value, key, depth + 1) for key in keys}

    def _array(self, schema: Schema, name: str, depth: int) -> list[Any]:
        if "prefixItems" in schema:
            return [self.fill(part, name, depth + 1) for part in schema["prefixItems"]]
        item = _resolve(schema.get("items") or {"type": "string"}, self.root)
        low, top = int(schema.get("minItems", 0)), int(schema.get("maxItems", 10**6))
        known = item["enum"] if item.get("enum") else self._known(item, name)
        if known is not None and len(known) >= low:
            return self.rng.sample(known, min(len(known), top, self.rng.randint(max(low, 1), max(low, 3))))
        if (known is not None and low == 0) or (depth > 4 and low == 0):
            return []
        count = min(top, self.rng.randint(max(low, 1), max(low, 4)))
        return [self.fill(item, name, depth + 1) for _ in range(count)]

    def _known(self, schema: Schema, name: str) -> list[str] | None:
        """The prompt's ids that fit here; None where no ids belong."""
        if schema.get("type", "string") != "string" or _NOT_TEXT & schema.keys():
            return None
        if pattern := schema.get("pattern"):
            fitting = [key for key in self.ids if re.search(pattern, key)]
            return fitting or ([] if re.search(pattern, "C1") or re.search(pattern, "I1") else None)
        return self.ids if _CITING.search(name.lower()) else None

    def _number(self, schema: Schema, kind: str) -> int | float:
        whole = kind == "integer"
        low = schema.get("minimum", schema.get("exclusiveMinimum"))
        top = schema.get("maximum", schema.get("exclusiveMaximum"))
        span = 9 if whole else 1
        low = low if low is not None else (top - span if top is not None else int(whole))
        top = top if top is not None else low + span
        if whole:
            first = int(low) + ("exclusiveMinimum" in schema)
            return self.rng.randint(first, max(first, int(top) - ("exclusiveMaximum" in schema)))
        return round(low + (top - low) * self.rng.uniform(0.01, 0.99), 3)

    def _string(self, schema: Schema, name: str) -> str:
        known = self._known(schema, name)
        if known:
            return self.rng.choice(known)
        if pattern := schema.get("pattern"):
            made = matching(pattern, self.rng)
            if made is not None:
                return made
        short = name.lower()
        count = self.words.get(short) or self.words.get(short.removesuffix("s")) or 20
        made = title(self.rng, count) if short in ("title", "titles", "name") else sentences(self.rng, count)
        while len(made) < schema.get("minLength", 0):
            made += " " + sentences(self.rng, 12)
        return made[: schema.get("maxLength", len(made))]


def matching(pattern: str, rng: random.Random) -> str | None:
    """A short text that a simple pattern matches, or None where the pattern is not simple."""
    try:
        made = _unparse(importlib.import_module("re._parser").parse(pattern), rng)
        return made if re.search(pattern, made) else None
    except (ImportError, ValueError, re.error):
        return None


def _unparse(tokens: Any, rng: random.Random) -> str:
    made = ""
    for op, arg in tokens:
        name = str(op)
        if name == "LITERAL":
            made += chr(arg)
        elif name == "IN":
            made += _member(rng.choice(arg), rng)
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, top, part = arg
            count = rng.randint(low, min(int(top), low + 2))
            made += "".join(_unparse(part, rng) for _ in range(count))
        elif name == "SUBPATTERN":
            made += _unparse(arg[3], rng)
        elif name == "BRANCH":
            made += _unparse(rng.choice(arg[1]), rng)
        elif name == "ANY":
            made += "x"
        elif name != "AT":
            raise ValueError(name)
    return made


def _member(token: Any, rng: random.Random) -> str:
    op, arg = str(token[0]), token[1]
    if op == "LITERAL":
        return chr(arg)
    if op == "RANGE":
        return chr(rng.randint(*arg))
    if op == "CATEGORY":
        pool = {"CATEGORY_DIGIT": "123456789", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "abcxyz"}.get(str(arg))
        if pool:
            return rng.choice(pool)
    raise ValueError(op)


def default_reply(request: ChatRequest) -> dict[str, Any]:
    """What the server itself would answer, by output field.

    A pure function of the request's messages, its ``seed`` parameter where it has one, and the server's seed.
    A plain text request has the single field ``text``.
    """
    filler = _Filler(request, request.seed, request.words)
    schemas = request.schemas or {"text": {"type": "string"}}
    return {name: filler.field(name, schema) for name, schema in schemas.items()}


def render(request: ChatRequest, values: dict[str, Any]) -> str:
    """Write field values in the form the request wants."""
    if request.style == "json":
        return json.dumps(values, ensure_ascii=False)
    if request.style == "plain":
        return str(values["text"]) if set(values) == {"text"} else json.dumps(values, ensure_ascii=False)
    parts = [f"[[ ## {name} ## ]]\n{_plain(value)}" for name, value in values.items() if value is not None]
    return "\n\n".join([*parts, "[[ ## completed ## ]]\n"])


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


# Speaking HTTP --------------------------------------------------------------------------------------------

Reply = Callable[[ChatRequest], "str | dict[str, Any] | Fault | Awaitable[Any] | None"]
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
    supports: frozenset[str] = frozenset({"json_schema", "json_object"})
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
        text = reply if isinstance(reply, str) else render(request, reply)
        delay = self.settings.delay
        wait = delay(request) if callable(delay) else delay
        if fault and fault.kind == "hang":
            wait += fault.seconds
        wait -= time.monotonic() - request.started  # answers are made while the client waits anyway
        if wait > 0:
            await asyncio.sleep(wait)
        request.ended = time.monotonic()
        return self._completion(request, text, fault)

    def _refusal(self, request: ChatRequest) -> _Answer | None:
        """The error answer for what this server does not take: too long a prompt, an unknown format."""
        wanted = request.body.get("response_format")
        kind = wanted.get("type") if isinstance(wanted, dict) else None
        if kind not in (None, "text") and kind not in self.settings.supports:
            message = f"'response_format' of type '{kind}' is not supported with this model."
            return _error(400, f"Invalid parameter: {message}", param="response_format")
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

    async def _reply(self, request: ChatRequest) -> str | dict[str, Any] | Fault | None:
        reply: Any = self.settings.reply(request) if self.settings.reply else None
        return await reply if inspect.isawaitable(reply) else reply

    def _completion(self, request: ChatRequest, text: str, fault: Fault | None) -> _Answer | None:
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
        choice = {"index": 0, "message": message, "finish_reason": finish}
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
