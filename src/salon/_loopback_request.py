"""Reading a request to the loopback server: which output fields it wants, each with a JSON schema.

They come from the request's ``response_format``, else from the system message of DSPy's JSON or chat adapter,
else from the task in a prompt of salon's own; a request with none is plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

Schema = dict[str, Any]


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


@dataclass(frozen=True)
class Weighed:
    """A scripted reply whose values have probabilities, which a request for log-probabilities is told.

    Args:
        values: The output fields. Those that are missing are `default_reply`'s.
        odds: For each field that has them, the probability of each of its values.
        digits: Whether the model's tokenizer writes values character by character, and not as one token.
    """

    values: Mapping[str, Any]
    odds: Mapping[str, Mapping[str, float]]
    digits: bool = False


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
        return "\n\n".join(content_of(message) for message in self.messages)

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
        system = "\n\n".join(content_of(m) for m in self.messages if m.get("role") in ("system", "developer"))
        style, described = read_system(system)
        if style == "plain":
            asked = [content_of(m) for m in self.messages if m.get("role") == "user"]
            style, described = read_task(asked[-1] if asked else "")
        wanted = self.body.get("response_format")
        if not isinstance(wanted, dict) or wanted.get("type") not in ("json_schema", "json_object"):
            return style, described
        inner = wanted.get("json_schema")
        schema = inner.get("schema") if isinstance(inner, dict) else None
        return "json", (properties(schema) if isinstance(schema, dict) else {}) or described


def content_of(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def properties(schema: Schema) -> dict[str, Schema]:
    """The properties of an object schema, each carrying the definitions of the whole."""
    root: Schema = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    top = resolved(schema, root)
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


def resolved(schema: Schema, root: Schema) -> Schema:
    """A schema with its ``$ref`` followed and its ``allOf`` merged."""
    for _ in range(32):
        if "$ref" not in schema:
            break
        target: Any = root
        for key in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
            target = target.get(key, {}) if key else target
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    for part in schema.get("allOf", ()):
        schema = {**resolved(part, root), **{key: value for key, value in schema.items() if key != "allOf"}}
    return schema
