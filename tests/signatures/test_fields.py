from __future__ import annotations

import copy
import json
import pickle
from itertools import count
from pathlib import Path
from typing import Any

import dspy
import pydantic
import pytest
from dspy.adapters.utils import get_annotation_name, parse_value, translate_field_type
from dspy.lm15 import Message, Request, Response, TextPart, Usage
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from salon.signatures import fields
from salon.signatures.fields import (
    Action,
    BallotIds,
    Citations,
    Confidence,
    Long,
    Name,
    OptionalName,
    OptionalShort,
    Passage,
    Rating,
    Short,
    Title,
    Want,
)

TYPES: tuple[Any, ...] = (
    Rating,
    Confidence,
    Title,
    Short,
    OptionalShort,
    Passage,
    Long,
    Name,
    OptionalName,
    Want,
    Action,
    Citations,
    BallotIds,
)
BAD: dict[str, tuple[Any, ...]] = {
    "rating": (None, True, "", "no idea", [7, 8], {"a": 1}, [[[[[[[[8]]]]]]]]),
    "remark": (None, "", [], {}, "null", False),
    "want": (None, "", "idea or pass", 3, []),
}
SAMPLES: dict[type, Any] = {
    Rating: 8,
    Confidence: 0,
    Name: "Ann",
    OptionalName: "",
    Want: "pass",
    Action: "move_on",
}
SAMPLES |= {OptionalShort: "", Citations: ["I1", "C2"], BallotIds: ["I3", "I1", "I3"]}
SAMPLES |= {kind: "Lamps that [dim] at {dusk}" for kind in (Title, Short, Passage, Long)}
_names = count()


class Turn(dspy.Signature):
    """Take a turn."""

    topic: str = dspy.InputField()
    remark: Passage = dspy.OutputField(desc="what you say")
    rating: Rating = dspy.OutputField()
    cites: Citations = dspy.OutputField()
    nominee: OptionalName = dspy.OutputField()
    want: Want = dspy.OutputField()


class Vote(dspy.Signature):
    """Vote."""

    topic: str = dspy.InputField()
    ballot: BallotIds = dspy.OutputField(default_factory=BallotIds)


class Engine:
    """Gives scripted replies, and keeps the requests."""

    supports_response_schema = True
    supported_params = frozenset({"response_format", "temperature", "max_tokens"})

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.requests: list[Request] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        return self

    def complete(self, request: Request) -> Response:
        self.requests.append(request)
        text = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        usage = Usage(input_tokens=1, output_tokens=1, total_tokens=2)
        message = Message.assistant([TextPart(text)])
        return Response(id=None, model="test", message=message, finish_reason="stop", usage=usage)


def ask(adapter: dspy.Adapter, reply: str, signature: Any = Turn) -> tuple[dspy.Prediction, Engine]:
    engine = Engine(reply)
    lm = dspy.LM(f"test/fields-{next(_names)}", engine=engine, cache=False)
    with dspy.context(lm=lm, adapter=adapter):
        return dspy.Predict(signature)(topic="lamps"), engine


def chat(**values: str) -> str:
    return "\n\n".join(f"[[ ## {k} ## ]]\n{v}" for k, v in values.items()) + "\n\n[[ ## completed ## ]]"


WRITTEN = {
    "remark": 'Building on [I3](x), "dim" the {lamp} [slowly]',
    "rating": "８",
    "cites": "IDEA-1 and I2",
    "nominee": "nobody",
    "want": "I would choose: idea",
}
READ = {"remark": WRITTEN["remark"], "rating": 8, "cites": ["I1", "I2"], "nominee": "", "want": "idea"}
TYPED = {"remark": "Dim it", "rating": 15, "cites": [{"id": "i1"}, "C 2"], "nominee": None, "want": "idea"}


def values(prediction: dspy.Prediction) -> dict[str, Any]:
    return {name: prediction[name] for name in READ}


@pytest.mark.parametrize(
    ("adapter", "reply"),
    [
        (dspy.ChatAdapter(use_json_adapter_fallback=False), chat(**WRITTEN)),
        (dspy.ChatAdapter(use_json_adapter_fallback=False), "Sure!\n\n" + chat(**WRITTEN)),
        (dspy.ChatAdapter(), json.dumps(WRITTEN)),
        (dspy.JSONAdapter(), json.dumps(WRITTEN)),
        (dspy.JSONAdapter(), json.dumps(WRITTEN, ensure_ascii=False, indent=2)),
        (dspy.JSONAdapter(), f"```json\n{json.dumps(WRITTEN)}\n```"),
        (dspy.JSONAdapter(), f"Here is my answer:\n```json\n{json.dumps(WRITTEN)}\n```\nI hope it helps."),
        (dspy.JSONAdapter(), json.dumps(WRITTEN)[:-2]),  # cut within the last field
    ],
)
def test_both_adapters_read_what_was_written(adapter: dspy.Adapter, reply: str) -> None:
    prediction, engine = ask(adapter, reply)
    assert values(prediction) == READ
    assert [type(value) for value in values(prediction).values()] == [
        Passage,
        Rating,
        Citations,
        OptionalName,
        Want,
    ]
    assert len(engine.requests) <= 2


@pytest.mark.parametrize("adapter", [dspy.JSONAdapter(), dspy.ChatAdapter()])
def test_json_values_are_read_and_clamping_is_told(adapter: dspy.Adapter) -> None:
    prediction, _ = ask(adapter, json.dumps(TYPED))
    assert values(prediction) == {**READ, "remark": "Dim it", "rating": 10, "cites": ["I1", "C2"]}
    assert [value.clamped for value in values(prediction).values()] == [False, True, False, False, False]


@pytest.mark.parametrize(
    "rating", ["8/10", "80%", "eight", '"8"', "**8**", " 8 ", "Score: 8", "4/5", "٨", "8 - because [x]"]
)
@pytest.mark.parametrize("adapter", [dspy.JSONAdapter(), dspy.ChatAdapter(use_json_adapter_fallback=False)])
def test_ratings_get_through_both_adapters(adapter: dspy.Adapter, rating: str) -> None:
    written = {**WRITTEN, "rating": rating}
    reply = json.dumps(written) if isinstance(adapter, dspy.JSONAdapter) else chat(**written)
    assert ask(adapter, reply)[0].rating == 8


@pytest.mark.parametrize("adapter", [dspy.JSONAdapter(), dspy.ChatAdapter()])
@pytest.mark.parametrize(
    "reply",
    [
        "",
        "null",
        "[]",
        "{}",
        "no idea",
        "I would rather not say.",
        '{"rating": 8}',
        '{"turn": {"rating": 8}}',
        "[" * 50,
    ]
    + [json.dumps({**WRITTEN, name: bad}) for name, values in BAD.items() for bad in values]
    + [json.dumps(WRITTEN)[:60], chat(**{**WRITTEN, "rating": "no idea"}), chat(remark="hi")],
)
def test_what_cannot_be_read_is_a_parse_error(adapter: dspy.Adapter, reply: str) -> None:
    with pytest.raises(dspy.AdapterParseError):
        ask(adapter, reply)


def test_ballots_keep_order_and_repetitions() -> None:
    prediction, _ = ask(dspy.JSONAdapter(), '{"ballot": ["I3", 1, "Idea 3", "C2", "I3"]}', Vote)
    assert prediction.ballot == ["I3", "I1", "I3", "I3"]
    assert (prediction.ballot.dropped, prediction.ballot.clamped) == (1, True)
    prediction, _ = ask(dspy.ChatAdapter(), chat(ballot="I3, then I1 [both]"), Vote)
    assert prediction.ballot == ["I3", "I1"]
    prediction, _ = ask(dspy.JSONAdapter(), "{}", Vote)
    assert (prediction.ballot, prediction.ballot.clamped) == ([], False)


SCHEMAS: dict[type, dict[str, Any]] = {
    Rating: {"type": "integer", "minimum": 1, "maximum": 10},
    Confidence: {"type": "integer", "minimum": 0, "maximum": 10},
    Title: {"type": "string", "minLength": 1, "maxLength": 90},
    Short: {"type": "string", "minLength": 1, "maxLength": 200},
    OptionalShort: {"type": "string", "maxLength": 200},
    Passage: {"type": "string", "minLength": 1, "maxLength": 600},
    Long: {"type": "string", "minLength": 1, "maxLength": 1200},
    Name: {"type": "string", "minLength": 1, "maxLength": 60},
    OptionalName: {"type": "string", "maxLength": 60},
    Want: {"type": "string", "enum": ["comment", "idea", "pass"]},
    Action: {"type": "string", "enum": ["no_action", "invite", "redirect", "challenge", "move_on"]},
    Citations: {
        "type": "array",
        "items": {"type": "string", "pattern": "^[TCIVFUS][0-9]{1,5}$"},
        "maxItems": 8,
    },
    BallotIds: {"type": "array", "items": {"type": "string", "pattern": "^I[0-9]{1,5}$"}, "maxItems": 20},
}


@pytest.mark.parametrize("kind", TYPES)
def test_schemas_are_bounded_and_short_in_prompts(kind: type) -> None:
    assert TypeAdapter(kind).json_schema() == SCHEMAS[kind]
    field = pydantic.fields.FieldInfo(annotation=kind, json_schema_extra={"__dspy_field_type": "output"})
    shown = {"integer": "int", "string": "str", "array": "list[str]"}[SCHEMAS[kind]["type"]]
    assert get_annotation_name(kind) == shown
    assert kind.__qualname__ in fields.__all__
    assert len(translate_field_type("field", field)) < 180


def test_the_schema_is_sent_to_the_provider() -> None:
    _, engine = ask(dspy.JSONAdapter(), json.dumps(WRITTEN))
    sent = engine.requests[0].config.response_format
    assert sent is not None
    text = json.dumps(sent, default=lambda value: getattr(value, "__dict__", str(value)))
    schema = find_schema(json.loads(text))
    assert schema["required"] == list(READ)
    assert schema["additionalProperties"] is False
    for name, kind in zip(READ, (Passage, Rating, Citations, OptionalName, Want), strict=True):
        own = {key: value for key, value in schema["properties"][name].items() if key not in ("title", "desc")}
        assert own.items() >= SCHEMAS[kind].items()
        assert "$ref" not in own


def find_schema(part: Any) -> dict[str, Any]:
    """The object schema somewhere in a response format."""
    if isinstance(part, dict):
        if "properties" in part:
            return part
        part = list(part.values())
    found = [find_schema(inner) for inner in part] if isinstance(part, list) else []
    return next((one for one in found if one), {})


@pytest.mark.parametrize("kind", TYPES)
def test_values_are_plain(kind: Any) -> None:
    value = kind.read(SAMPLES[kind])
    assert type(value) is kind
    assert value == SAMPLES[kind]
    assert json.loads(json.dumps(value)) == SAMPLES[kind]
    dumped = TypeAdapter(kind).dump_python(value, mode="json")
    assert type(dumped) in (int, str, list)
    assert dumped == SAMPLES[kind]
    assert kind.read(value) == value
    assert parse_value(value, kind) == value
    assert TypeAdapter(kind).validate_python(value) is value
    for twin in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert type(twin) is kind
        assert twin == value
        assert twin.clamped is value.clamped
    assert pickle.loads(pickle.dumps(kind)) is kind
    assert copy.deepcopy(kind) is kind


def test_what_was_forced_into_bounds_is_clamped() -> None:
    assert (Rating.read("15"), Rating.read("15").clamped) == (10, True)
    assert (Rating.read("8.5"), Rating.read("8.5").clamped) == (9, False)
    assert (Confidence.read(-3), Confidence.read(-3).clamped) == (0, True)
    assert Short.read("word " * 100).clamped
    assert len(Short.read("word " * 100)) <= 200
    assert not Short.read("word").clamped
    assert (Citations.read([f"C{n}" for n in range(10)]).dropped, len(Citations.read(["C1"] * 9))) == (2, 8)
    assert pickle.loads(pickle.dumps(Rating.read(15))).clamped
    assert copy.deepcopy(Citations.read(["C1"] * 9)).dropped == 1


def test_titles_and_names_are_one_line() -> None:
    assert Title.read("Lamps\nthat dim") == "Lamps that dim"
    assert Name.read("Ann Lee\nA nurse") == "Ann Lee"
    with pytest.raises(ValueError, match="no name"):
        Name.read("none")


@pytest.mark.parametrize(
    "value", ["", None, "none", "None.", "nobody", "No one", "(none)", "-", "n/a", [], {"name": None}]
)
def test_nobody_is_nominated(value: object) -> None:
    assert OptionalName.read(value) == ""
    assert type(OptionalName.read(value)) is OptionalName


class Program(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.turn = dspy.Predict(Turn)


def test_programs_are_rebuilt_copied_saved_and_loaded(tmp_path: Path) -> None:
    program = Program()
    program.turn.signature = program.turn.signature.with_instructions("Speak up.").append(
        "sure", dspy.OutputField(desc="how sure"), type_=Confidence
    )
    told, _ = ask(dspy.JSONAdapter(), json.dumps({**TYPED, "sure": "7/10"}), program.turn.signature)
    assert told.sure == 7
    program.turn.demos = [dspy.Example(topic="lamps", **{**values(told), "sure": told.sure}).with_inputs("topic")]
    program.save(tmp_path / "program.json")

    loaded = Program()
    loaded.turn.signature = program.turn.signature
    loaded.load(tmp_path / "program.json")
    assert loaded.turn.signature.instructions == "Speak up."
    kinds = [field.annotation for field in loaded.turn.signature.output_fields.values()]
    assert kinds == [Passage, Rating, Citations, OptionalName, Want, Confidence]
    demo = dict(loaded.turn.demos[0])
    expected = {**READ, "remark": "Dim it", "rating": 10, "cites": ["I1", "C2"]}
    assert {name: demo[name] for name in READ} == expected

    reply = json.dumps({**WRITTEN, "sure": "eight"})
    for twin in (loaded, loaded.deepcopy(), loaded.reset_copy()):
        engine = Engine(reply)
        with dspy.context(lm=dspy.LM(f"test/fields-{next(_names)}", engine=engine), adapter=dspy.JSONAdapter()):
            answer = twin.turn(topic="lamps")
        assert values(answer) == READ
        assert answer.sure == 8


def test_a_whole_program_is_saved(tmp_path: Path) -> None:
    Program().save(tmp_path / "whole", save_program=True)
    loaded = dspy.load(str(tmp_path / "whole"), allow_pickle=True)
    assert loaded.turn.signature.output_fields["rating"].annotation.read("8/10") == 8


def test_demos_are_shown_as_plain_values() -> None:
    demo = dspy.Example(
        topic="lamps", **{name: Turn.output_fields[name].annotation.read(v) for name, v in TYPED.items()}
    )
    for adapter in (dspy.ChatAdapter(), dspy.JSONAdapter()):
        messages = adapter.format(Turn, [demo], {"topic": "lamps"})
        shown = "\n".join(str(message["content"]) for message in messages if message["role"] == "assistant")
        assert "Dim it" in shown
        assert "10" in shown
        assert '"I1"' in shown
        assert "Rating(" not in shown


def test_nested_and_optional_types_are_read_by_pydantic() -> None:
    class Idea(pydantic.BaseModel):
        title: Title
        rating: Rating | None = None

    idea = Idea.model_validate({"title": '"Lamps"', "rating": "8/10"})
    assert (idea.title, idea.rating) == ("Lamps", 8)
    assert idea.model_dump_json() == '{"title":"Lamps","rating":8}'
    assert parse_value('[{"title": "Lamps", "rating": "eight"}]', list[Idea])[0].rating == 8
    assert parse_value("8/10", Rating | None) == 8


def test_all_types_are_exported() -> None:
    assert set(TYPES) <= {getattr(fields, name) for name in fields.__all__}
    assert sorted(fields.__all__) == fields.__all__


@settings(deadline=None)
@given(st.recursive(st.text() | st.none() | st.booleans() | st.integers() | st.floats(), st.lists, max_leaves=4))
def test_any_value_is_within_bounds_or_refused(value: object) -> None:
    for kind in TYPES:
        try:
            found = parse_value(value, kind)
        except ValueError:
            continue
        assert type(found) is kind
        schema = SCHEMAS[kind]
        if schema["type"] == "integer":
            assert schema["minimum"] <= found <= schema["maximum"]
        elif schema["type"] == "array":
            assert len(found) <= schema["maxItems"]
        else:
            assert len(found) <= schema.get("maxLength", 99)
            assert found in schema.get("enum", [found])
        json.dumps(found)
