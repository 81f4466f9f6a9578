"""Citations required, optional and off: what is asked, what comes of it, and that nothing else differs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from salon.modules import Roundtable
from salon.modules.archive import load, replay, resume
from salon.modules.roundtable_session import RULES
from salon.signatures.roundtable import Propose, Speak, Think, citing

from salon import UserError
from salon.testing import LoopbackServer

Hold = Callable[..., Any]
MODES = ("required", "optional", "off")
SENTENCES = {
    "required": "Build on what others said and name what you build on by its id.",
    "optional": "Build on what others said; where you do, you may name it by its id.",
    "off": "Build on what others said.",
}
CITING = ("think", "speak", "propose")


def talk(call: Any) -> dict[str, Any]:
    """Cite the first thing in sight, whether asked or not."""
    return {"cites": re.findall(r"^([CI]\d+) ", call.text, re.M)[:1]}


@pytest.fixture
def sessions(hold: Hold) -> dict[str, Any]:
    replies = dict.fromkeys(CITING, talk)
    return {mode: hold(replies=replies, citations=mode, turns=3, ideas=1) for mode in MODES}


def plain(text: str, mode: str) -> list[str]:
    """Return a prompt without the sentence on citing, the description of the field, and its name in the last line."""
    text = text.replace(SENTENCES[mode], "").replace("thought, cites, eagerness", "thought, eagerness")
    return [line for line in text.splitlines() if not line.startswith("- cites: ")]


def test_prompts_differ_in_what_they_say_of_citing_alone(sessions: dict[str, Any]) -> None:
    first = {mode: held.asked("think", "P1")[0].text for mode, held in sessions.items()}
    for mode, text in first.items():
        assert SENTENCES[mode] in text
        assert not any(SENTENCES[other] + " Defer" in text for other in MODES if other != mode)
        assert plain(text, mode) == plain(first["off"], "off")
    asked = {mode: [line for line in text.splitlines() if line.startswith("- cites")] for mode, text in first.items()}
    assert "that led you to this" in asked["required"][0]
    assert "only if one really led you to this" in asked["optional"][0]
    assert asked["off"] == []
    assert RULES.count("{build}") == 1


def test_without_citations_neither_prompt_nor_schema_has_the_field(sessions: dict[str, Any]) -> None:
    for mode, held in sessions.items():
        for request in held.server.requests:
            if set(request.fields) & {"thought", "comment", "title"}:
                assert ("cites" in request.fields) == (mode != "off")
                assert ("cites" in str(request.body)) == (mode != "off")


def test_a_session_in_each_mode(sessions: dict[str, Any]) -> None:
    for mode, held in sessions.items():
        assert held.session.status == "complete"
        assert held.session.header["settings"]["citations"] == mode
        measures = held.session.measures(held.program.embedder)
        assert (measures.citations is None) == (mode == "off")
        assert any(e.cites for e in held.events("comment")) == (mode != "off")
        assert (measures.depth == 0) == (mode == "off")
        assert len(held.session.board) == 3


@pytest.mark.parametrize("mode", MODES)
def test_the_mode_is_saved_loaded_replayed_and_resumed(
    hold: Hold, mode: str, tmp_path: Path, quick_embeddings: None
) -> None:
    held = hold(replies=dict.fromkeys(CITING, talk), citations=mode, turns=1, ideas=1, hold={"out": tmp_path / "run"})
    held.program.save(tmp_path / "program")
    loaded = load(tmp_path / "program")
    assert isinstance(loaded, Roundtable)
    assert loaded.citations == mode
    assert loaded.described() == held.program.described()
    again = replay(tmp_path / "run")
    assert again.header["settings"]["citations"] == mode
    assert again.events == held.session.events
    log = tmp_path / "run" / "session.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[: len(lines) // 2]))
    with LoopbackServer() as server, dspy.context(lm=server.lm()):
        resume(tmp_path / "run")
        asked = [r for r in server.requests if "title" in r.fields]
    assert all(("cites" in r.fields) == (mode != "off") for r in asked)


@pytest.mark.parametrize("value", ["never", "", None, True, ["off"], "Required"])
def test_another_way_of_citing_is_a_mistake(value: Any) -> None:
    with pytest.raises(UserError, match="required, optional, off"):
        Roundtable(personas=2, citations=value)


# ---------------------------------------------------------------- changing it


def described(program: Roundtable, name: str) -> dict[str, str]:
    fields = getattr(program, name).signature.output_fields
    return {field: info.json_schema_extra["desc"] for field, info in fields.items()}


@pytest.mark.parametrize("before", MODES)
@pytest.mark.parametrize("after", MODES)
def test_a_changed_program_asks_as_one_that_was_made_so(before: str, after: str) -> None:
    changed = Roundtable(personas=2, citations=before).changed(citations=after)
    fresh = Roundtable(personas=2, citations=after)
    for name in CITING:
        assert described(changed, name) == described(fresh, name)
        assert list(getattr(changed, name).signature.fields) == list(getattr(fresh, name).signature.fields)
    assert changed.described() == fresh.described()


@pytest.mark.parametrize("after", ["optional", "off"])
def test_tuned_prompts_and_numbers_stay_when_citing_changes(after: str) -> None:
    program = Roundtable(personas=2)
    program.threshold.value = 3.5
    tuned = program.think.signature.with_instructions("Think hard.")
    program.think.signature = tuned.with_updated_fields("eagerness", desc="your eagerness")
    program.think.demos = [dspy.Example(topic="x", thought="y", cites=["C1"], eagerness=5, wants="pass")]
    changed = program.changed(citations=after)
    assert changed.think.signature.instructions == "Think hard."
    assert described(changed, "think")["eagerness"] == "your eagerness"
    fresh = Roundtable(personas=2, citations=after)
    assert described(changed, "think").get("cites") == described(fresh, "think").get("cites")
    assert [dict(demo) for demo in changed.think.demos] == [dict(demo) for demo in program.think.demos]
    assert changed.threshold.value == 3.5
    assert program.think.signature.instructions == "Think hard."
    assert "that led you to this" in described(program, "think")["cites"]


@pytest.mark.parametrize("kind", [Think, Speak, Propose])
def test_signatures_keep_their_fields_in_order(kind: Any) -> None:
    names = list(kind.fields)
    assert citing(kind, "required") is kind
    assert list(citing(kind, "optional").fields) == names
    assert list(citing(kind, "off").fields) == [name for name in names if name != "cites"]
    assert citing(kind, "optional").instructions == citing(kind, "off").instructions == kind.instructions
