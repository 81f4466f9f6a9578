"""``session.json`` against its published schema, for every program."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from salon.modules.document import SessionDocument, document_of, document_schema
from salon.modules.files import session_json

from salon import Debate, Roundtable, Session, YesAnd
from salon.testing import Fault, LoopbackServer

jsonschema: Any = pytest.importorskip("jsonschema")
PUBLISHED = Path(__file__).parents[2] / "docs" / "session.schema.json"
PEOPLE = [{"name": "Ada", "sketch": "Ada mends bicycles."}, {"name": "Bo", "sketch": "Bo nurses at night."}]
PROGRAMS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "Roundtable": (lambda: Roundtable(personas=PEOPLE, turns=2, ideas=1, votes=2), {"topic": "Bicycles"}),
    "Debate": (lambda: Debate(agents=3, rounds=1, k=1), {"task": "Bicycles"}),
    "YesAnd": (
        lambda: YesAnd(experts=PEOPLE, threshold=3, max_agent_turns=2),
        {"problem": "Bicycles", "person": ["Where do we begin?", "/sage"]},
    ),
}


@pytest.fixture
def validator() -> Any:
    schema = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture(params=sorted(PROGRAMS))
def session(request: pytest.FixtureRequest, quick_embeddings: None) -> Session:
    """A session of each program, in which the third request fails."""
    make, inputs = PROGRAMS[request.param]
    with LoopbackServer(faults={3: Fault(status=400)}) as server:
        with dspy.context(lm=server.lm(num_retries=0)):
            held: Session = asyncio.run(make().hold(**inputs, seed=7))
    return held


def test_the_published_schema_is_the_generated_one() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == document_schema(), (
        "write docs/session.schema.json anew: salon export SESSION session.schema.json --out docs"
    )
    schema = json.loads(document_schema())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == "Session"
    assert "$id" not in schema
    assert all("description" in field for field in schema["properties"].values() if "$ref" not in field)


def test_a_session_of_each_program_is_valid(session: Session, validator: Any) -> None:
    document = json.loads(session_json(session))
    validator.validate(document)
    assert list(document) == list(SessionDocument.model_fields)
    assert document["ideas"]
    assert "failure" in {event["type"] for event in document["events"]}
    assert len(document["events"]) == len(session.events)
    assert SessionDocument.model_validate(document) == document_of(session)


def test_a_document_that_is_not_as_published_is_refused(session: Session, validator: Any) -> None:
    document = json.loads(session_json(session))
    for name in document:
        assert not validator.is_valid({k: v for k, v in document.items() if k != name}), name
    changes: list[Callable[[Any], Any]] = [
        lambda d: d.update(version=2),
        lambda d: d.update(status="over"),
        lambda d: d.update(more=1),
        lambda d: d["ideas"][0].update(votes="many"),
        lambda d: d["events"][0].update(type="rain"),
        lambda d: d["events"][0].update(turn="first"),
        lambda d: d["events"][0].pop("n"),
        lambda d: next(e for e in d["events"] if "id" in e).update(id="I1<script>"),
        lambda d: d["usage"].update(calls="three"),
        lambda d: d["lineage"].update(I1="C1"),
    ]
    for number, change in enumerate(changes):
        changed = copy.deepcopy(document)
        change(changed)
        assert not validator.is_valid(changed), number


def test_hostile_texts_are_valid_and_kept(hostile: Session, validator: Any) -> None:
    document = json.loads(session_json(hostile))
    validator.validate(document)
    assert [e["text"] for e in document["events"] if e["type"] == "comment"] == [
        e.text for e in hostile.entities.values() if e.prefix == "C"  # type: ignore[attr-defined]
    ]  # fmt: skip
