"""The masking test, on models whose ideas depend on what they cite, on something else, or on nothing."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from salon.evals.ledger import LEDGER_NAME, Ledger
from salon.evals.masking import Masking, mask
from salon.evals.sight import control_for, hidden, prompts
from salon.evals.verdict import _on_masking as told
from salon.modules import Embedder, Session
from salon.modules.archive import program_of

from salon.testing import Fault, LoopbackServer


def proposer(cites: list[str], depends_on: str = "") -> Callable[[Any], dict[str, Any]]:
    """Propose what depends on whether the text of an entity is in the prompt: half of the words change with it."""

    def propose(call: Any) -> dict[str, Any]:
        shown = call.shown().get(depends_on)
        moved = f"{shown} " * 3 if shown else "nothing else here "
        taken = re.search(r"^You proposed (.*)\. Now", call.text, re.M)
        own = f"{call.who}{len(re.findall(r'I[0-9]+ ', taken[1])) if taken else 0}"
        return {"title": f"idea-{own}", "description": f"{moved} p{own} q{own}", "cites": cites}

    return propose


@pytest.fixture
def masked(
    scripted: Callable[..., Any], talked: Callable[..., Session], tmp_path: Path
) -> Callable[..., tuple[Masking, Session, LoopbackServer]]:
    """Hold a session and the masking test of it; return both with the server, whose requests are the test's alone."""

    def run(
        propose: Any, samples: int = 2, most: int = 2, faults: Any = None, times: int = 1, **settings: Any
    ) -> tuple[Masking, Session, LoopbackServer]:
        with LoopbackServer(reply=scripted(propose=propose, **settings.pop("replies", {})), model="talker") as server:
            lm = server.lm(num_retries=0, cache=False)
            if not (tmp_path / "run").exists():
                talked(lm, tmp_path / "run", **settings)
            server.reset()
            server.settings.faults = faults or {}
            session, found = asyncio.run(prompts(tmp_path / "run"))
            predict = program_of(session.header["program"]).propose  # type: ignore[attr-defined]
            for _ in range(times):
                with dspy.context(lm=lm), Ledger(tmp_path / "masking", "masking") as ledger:
                    done = mask(session, found, predict, ledger, Embedder("words"), samples, most)
                    result = asyncio.run(done)
        return result, session, server

    return run


Masked = Callable[..., tuple[Masking, Session, LoopbackServer]]


def test_ideas_that_need_what_they_cite_move_when_it_is_hidden(masked: Masked) -> None:
    result, session, server = masked(proposer(["C1"], "C1"))
    assert len(session.board) == 9
    assert {idea.id for idea in session.board} == {pair.idea for pair in result.pairs}
    assert all(pair.cited == "C1" and pair.same_kind for pair in result.pairs)
    assert result.unmasked.value == pytest.approx(0, abs=1e-6)
    assert result.without_control.value == pytest.approx(0, abs=1e-6)
    assert result.effect.value is not None
    assert result.effect.value > 0.3
    assert result.effect.sign == 1
    assert (result.effect.n, result.failed, result.skipped) == (9, 0, {})
    assert "the ideas depend on what they cite: citations name causes." in told(result).replace("The", "the")
    assert server.count == 9 * 3 * 2


def test_ideas_that_need_nothing_do_not_move(masked: Masked) -> None:
    result, _, _ = masked(proposer(["C1"]))
    assert result.effect.value == pytest.approx(0, abs=1e-6)
    assert result.effect.sign == 0
    assert "no dependence on what is cited is shown" in told(result)
    assert "causes" not in told(result)


def test_ideas_that_need_what_they_do_not_cite_are_found_out(masked: Masked) -> None:
    result, _, _ = masked(proposer(["C1"], "C2"))
    assert {pair.control for pair in result.pairs} == {"C2"}
    assert result.effect.value is not None
    assert result.effect.value < -0.3
    assert result.effect.sign == -1
    assert "citations do not name causes" in told(result)


def test_few_ideas_are_no_more_than_a_sign(masked: Masked) -> None:
    result, _, _ = masked(proposer(["C1"], "C1"), ideas=1)
    assert result.effect.n == 3
    assert result.effect.sign == 1
    assert "There are signs that the ideas depend on what they cite: citations name causes; but 3 are few." in told(
        result
    )


def test_the_hidden_entity_is_not_in_the_prompt_and_nothing_else_is_missing(masked: Masked) -> None:
    result, session, server = masked(proposer(["C2"]), samples=1)
    said = {c.id: c.text for c in session.entities.values() if c.id in ("C1", "C2", "C3", "C4")}
    lacking = []
    for request in server.requests:
        missing = [name for name, text in said.items() if text not in request.text]
        assert not any(re.search(rf"^{name} ", request.text, re.M) for name in missing)
        lacking.append(tuple(missing))
    control = {pair.control for pair in result.pairs}
    assert control <= {"C1", "C3"}
    count = len(session.board)
    assert lacking.count(()) == count
    assert lacking.count(("C2",)) == count
    assert sum(missing in {(name,) for name in control} for missing in lacking) == count


def test_calls_are_kept_and_not_made_again(masked: Masked) -> None:
    first, _, server = masked(proposer(["C1"], "C1"), times=2)
    assert server.count == 9 * 3 * 2
    again, _, server = masked(proposer(["C1"], "C1"), times=1)
    assert server.count == 0
    assert again == first
    more, _, server = masked(proposer(["C1"], "C1"), samples=3)
    assert server.count == 9 * 3
    assert more.effect.value == pytest.approx(first.effect.value)


def test_calls_that_fail_are_counted_and_nothing_is_put_in_their_place(masked: Masked) -> None:
    def fails(request: Any) -> Fault | None:
        return Fault(500) if "Sketch of seat P1." in request.text.rpartition("persona")[2] else None

    result, session, server = masked(proposer(["C1"], "C1"), faults=fails)
    authors = {idea.id: idea.author for idea in session.board}
    lost = [pair for pair in result.pairs if pair.without_cited is None]
    assert {authors[pair.idea] for pair in lost} == {"P1"}
    assert all(pair.without_control is None for pair in lost)
    assert result.failed == 3 * 3 * 2
    assert result.effect.n == 6
    before = server.count
    assert before == 9 * 3 * 2
    mended, _, server = masked(proposer(["C1"], "C1"))
    assert server.count == result.failed
    assert (mended.failed, mended.effect.n) == (0, 9)


def test_a_run_that_broke_off_midway_goes_on_where_it_stopped(masked: Masked, tmp_path: Path) -> None:
    broken, _, _ = masked(proposer(["C1"], "C1"), faults=lambda r: Fault(500) if r.number > 20 else None)
    assert broken.failed == 54 - 20
    log = tmp_path / "masking" / LEDGER_NAME
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    assert sum(r["kind"] == "call" and r["status"] == "ok" for r in calls) == 20
    whole, _, server = masked(proposer(["C1"], "C1"))
    assert server.count == 34
    assert whole.failed == 0


def test_which_sources_are_tested_depends_on_the_seed_alone(masked: Masked) -> None:
    result, session, _ = masked(proposer(["C1", "C2", "C3"]), samples=1, most=2)
    slow, _, _ = masked(proposer(["C1", "C2", "C3"]), samples=1, most=2, faults=lambda r: None)
    assert [(p.idea, p.cited) for p in result.pairs] == [(p.idea, p.cited) for p in slow.pairs]
    assert len(result.pairs) == 2 * len(session.board)
    assert {pair.control for pair in result.pairs} == {"C4"}
    assert len({pair.cited for pair in result.pairs}) == 3


# ---------------------------------------------------------------- what is left out


def test_ideas_that_cite_nothing_are_left_out(masked: Masked) -> None:
    result, session, server = masked(proposer([]))
    assert result.skipped == {idea.id: "it cites nothing" for idea in session.board}
    assert (server.count, result.pairs, result.effect.value) == (0, [], None)
    assert told(result) == "Masking: nothing to compare (it cites nothing)."


def test_ideas_that_cite_all_they_see_are_left_out(masked: Masked) -> None:
    def propose(call: Any) -> dict[str, Any]:
        seen = re.findall(r"^([A-Z]\d+) ", call.section("transcript") + "\n" + call.section("notes"), re.M)
        return {**proposer([])(call), "cites": seen}

    result, _, server = masked(propose, turns=1, ideas=1)
    assert set(result.skipped.values()) == {"all it could see it cites"}
    assert server.count == 0


def test_a_personas_own_ideas_are_neither_hidden_nor_controls(masked: Masked) -> None:
    """The prompt says twice what a persona proposed before, so hiding one line of it would hide nothing."""

    def propose(call: Any) -> dict[str, Any]:
        own = re.findall(r"(I\d+) idea-", call.text.rpartition("You proposed")[2])
        return {**proposer([])(call), "cites": own[:1]}

    result, session, server = masked(propose)
    reasons = {"it cites nothing", "of what it saw it cites its author's own ideas alone"}
    assert set(result.skipped.values()) == reasons
    assert len(result.skipped) == len(session.board)
    assert server.count == 0
    result, session, _ = masked(proposer(["I1"]))
    for pair in result.pairs:
        assert session.entities[pair.cited].author != session.entities[pair.idea].author
        assert session.entities[pair.control].author != session.entities[pair.idea].author


def test_ideas_whose_sources_were_compacted_away_are_left_out(masked: Masked) -> None:
    long = {"speak": lambda call: {"comment": f"{call.mark} " + "word " * 200}}
    result, session, _ = masked(
        proposer(["C1"]), turns=30, ideas=1, replies=long, facilitator=False, prompt_tokens=1500
    )
    assert "C1" in session.entities
    assert set(result.skipped.values()) == {"its prompt did not show what it cites"}


# ---------------------------------------------------------------- what was in sight


def test_the_sight_of_a_proposal_is_what_its_prompt_showed(
    scripted: Callable[..., Any], talked: Callable[..., Session], tmp_path: Path
) -> None:
    model = scripted(think=lambda call: {"eagerness": 9 if call.who == "P1" else 3})
    with LoopbackServer(reply=model) as server:
        talked(server.lm(), tmp_path / "run")
        count = server.count
        session, found = asyncio.run(prompts(tmp_path / "run"))
        assert server.count == count  # nothing is asked for it
    kinds = {"T": "think", "C": "speak", "I": "propose"}
    assert set(found) == {name for name in session.entities if name[0] in kinds}
    asked = {(call.kind, call.who): call.text for call in model.asked}
    for name, prompt in found.items():
        entity = session.entities[name]
        assert entity.author == "P1" or "P1" not in prompt.inputs["persona"]
        assert not [s for s in prompt.sight if s[0] == "T" and session.entities[s].author != entity.author]
        assert name not in prompt.sight
        same = [i.id for i in session.board if i.turn == entity.turn]
        assert not set(same) & set(prompt.sight) or name[0] != "I"
        text = prompt.inputs["transcript"] + prompt.inputs["whiteboard"] + prompt.inputs["notes"]
        for seen in prompt.sight:
            assert re.search(rf"(^|\n|\)){seen} ", text)
    last = [i for i in session.board if i.author == "P2"][-1]
    assert found[last.id].inputs["transcript"] in asked["propose", "P2"]


def test_hiding_takes_the_lines_of_one_entity_and_no_other() -> None:
    inputs = {
        "topic": "C1 is a topic",
        "transcript": "C1 Ann: about C10\nC10 Bo: C1 was right\nI1 Cy proposes: x",
        "whiteboard": "I1 x (Cy)",
        "notes": "T1 You: C1 is wrong",
    }
    assert hidden(inputs, "C1") == {**inputs, "transcript": "C10 Bo: C1 was right\nI1 Cy proposes: x"}
    assert hidden(inputs, "I1")["whiteboard"] == "(nothing yet)"
    assert "I1" not in hidden(inputs, "I1")["transcript"]
    assert hidden(inputs, "T1")["notes"] == "(nothing yet)"
    with pytest.raises(ValueError, match="C2 is not in sight"):
        hidden(inputs, "C2")


def test_a_control_is_as_alike_as_can_be(made: Callable[..., Session]) -> None:
    session = made(
        ["A", "B"],
        [
            ("comment", 1, "1", []), ("comment", 1, "2", []), ("thought", 2, "t", []), ("comment", 1, "3", ["C1"]),
            ("comment", 1, "4", []), ("idea", 1, "i", ["C3"]), ("vote", 2, "v", ["I1"]), ("idea", 2, "j", ["C3"]),
        ],
    )  # fmt: skip
    citing, sight = session.entities["I2"], tuple(n for n in session.entities if n != "I2")
    assert control_for(session, citing, "C3", sight) == "C4"  # of its kind, no ancestor, nearest
    assert control_for(session, citing, "C3", ("C1", "C2", "T1", "I1", "V1")) == "C2"  # C1 led to C3
    assert control_for(session, citing, "C3", ("C1", "T1", "I1")) == "C1"  # kind goes before descent
    assert control_for(session, citing, "C3", ("T1", "I1", "V1")) == "T1"
    assert control_for(session, citing, "C3", ("C3", "V1")) is None
