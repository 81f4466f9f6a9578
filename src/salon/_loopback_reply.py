"""Inventing an answer: schemas filled from a random generator.

It is seeded by the messages and the server's seed alone, so that equal requests get equal answers in any process.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import random
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from salon._loopback_request import ChatRequest, Schema, Weighed, content_of, resolved

DEFAULT_WORDS: Mapping[str, int] = {"sketch": 70, "comment": 50, "thought": 40, "title": 6, "description": 60}
"""Words per answer for fields of these names; every other text field gets 20."""

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
        asked = [content_of(message) for message in self.request.messages if message.get("role") == "user"]
        found = _IDS.findall(asked[-1]) if asked else []
        return list(dict.fromkeys(found or _IDS.findall(self.request.text)))

    def field(self, name: str, schema: Schema) -> Any:
        """A value for one output field."""
        self.root = schema
        return self.fill(schema, name, 0)

    def fill(self, schema: Schema, name: str, depth: int) -> Any:
        """A value for one place of a schema; ``name`` is the property it belongs to."""
        schema = resolved(schema, self.root)
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
        item = resolved(schema.get("items") or {"type": "string"}, self.root)
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


_PIECES = re.compile(r"\w+|\s+|.", re.DOTALL)
_CERTAIN = 0.0
_NEVER = -9999.0  # what OpenAI says of a token that cannot be


def logprobs(text: str, reply: Weighed) -> dict[str, Any]:
    """The log-probabilities of a text's tokens: those of weighed values as scripted, all others certain."""
    content: list[dict[str, Any]] = []
    at = 0
    for start, value, odds in sorted(_weighed(text, reply)):
        content += [_token(piece, {piece: 1.0}) for piece in _PIECES.findall(text[at:start])]
        tokens = {option: list(option) if reply.digits else [option] for option in odds}
        own = tokens.get(value, [value])
        for n, piece in enumerate(own):
            likely: dict[str, float] = {}
            for option, parts in tokens.items():
                if parts[:n] == own[:n]:
                    token = parts[n] if len(parts) > n else ","
                    likely[token] = likely.get(token, 0.0) + odds[option]
            whole = sum(likely.values()) or 1.0
            content.append(_token(piece, {token: p / whole for token, p in likely.items()}))
        at = start + len(value)
    content += [_token(piece, {piece: 1.0}) for piece in _PIECES.findall(text[at:])]
    return {"content": content, "refusal": None}


def _weighed(text: str, reply: Weighed) -> list[tuple[int, str, Mapping[str, float]]]:
    """Where weighed values stand in a text, and what they are."""
    found = []
    for name, odds in reply.odds.items():
        place = re.search(rf'(?:"{name}": "?|\[\[ ## {name} ## \]\]\n)(\w+)', text)
        if place:
            found.append((place.start(1), place[1], odds))
    return found


def _token(token: str, likely: Mapping[str, float]) -> dict[str, Any]:
    def told(text: str, p: float) -> dict[str, Any]:
        logprob = math.log(p) if p else _NEVER
        return {"token": text, "logprob": logprob or _CERTAIN, "bytes": list(text.encode("utf-8", "replace"))}

    listed = [told(text, p) for text, p in sorted(likely.items(), key=lambda item: -item[1])]
    return {**told(token, likely.get(token, 0.0)), "top_logprobs": listed[:20]}
