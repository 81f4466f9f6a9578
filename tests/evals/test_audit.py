"""The lineage audit as a whole: three tests on one session, kept, and told no louder than they allow."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from salon.evals.audit import Ablation, Audit, audit
from salon.evals.edges import Edges
from salon.evals.masking import Masking
from salon.evals.statistics import Interval
from salon.evals.verdict import audit_markdown, verdict
from salon.modules import Debate, Session
from salon.modules.budget import Budget, Usage

from salon.errors import LogError, OutputError, UserError
from salon.testing import Fault, LoopbackServer

SECRET = "sk-very-secret-key-0123456789"


def obedient(call: Any) -> dict[str, Any]:
    """Cite the newest remark where it is asked for, and nothing where it may be left out."""
    asked = "name what you build on by its id" in call.text
    return {"cites": re.findall(r"^(C\d+) ", call.section("transcript"), re.M)[-1:] if asked else []}


REPLIES = dict.fromkeys(("think", "speak", "propose"), obedient)


@pytest.fixture
def audited(
    scripted: Callable[..., Any], talked: Callable[..., Session], tmp_path: Path
) -> Callable[..., tuple[Audit, LoopbackServer]]:
    """Hold a session, unless there is one, and audit it; the server's requests are the audit's alone."""

    def run(faults: Any = None, replies: Any = REPLIES, **settings: Any) -> tuple[Audit, LoopbackServer]:
        with LoopbackServer(reply=scripted(**replies), model="talker") as server:
            lm = server.lm(num_retries=0, cache=False, api_key=SECRET)
            if not (tmp_path / "run").exists():
                talked(lm, tmp_path / "run", turns=2, ideas=2)
            server.reset()
            server.settings.faults = faults or {}
            lms = dict.fromkeys(("participant", "facilitator", "judge"), lm)
            given = {"seeds": 2, "samples": 1, "sources": 1, "edges": 6, "lms": lms, **settings}
            return asyncio.run(audit(tmp_path / "run", **given)), server

    return run


Audited = Callable[..., tuple[Audit, LoopbackServer]]


def test_all_three_tests_are_held_and_kept(audited: Audited, tmp_path: Path) -> None:
    lines: list[str] = []
    result, server = audited(tell=lines.append)
    ablation = result.ablation
    assert ablation is not None
    assert ablation.seeds == [0, 1]
    assert ablation.failures == []
    assert {kind: m["depth"].n for kind, m in ablation.means.items()} == {"required": 2, "optional": 2, "off": 2}
    assert ablation.means["required"]["depth"].value is not None
    assert ablation.means["required"]["depth"].value > 0
    assert ablation.means["optional"]["depth"].value == 0  # the model cites on demand alone
    assert ablation.means["off"]["citations"] == Interval(None, None, None, 0)
    assert ablation.lost["depth"].value == ablation.means["required"]["depth"].value
    assert ablation.means["required"]["quality"].value == pytest.approx(6)
    assert len(result.masking.pairs) == result.masking.effect.n == 6
    assert len(result.edges.edges) == 6
    assert result.models == dict.fromkeys(("participant", "facilitator", "judge"), "openai/talker")
    assert result.usage.calls == server.count
    assert "6 of 6 sessions" in lines[-1]
    assert json.loads((tmp_path / "run" / "audit" / "audit.json").read_text()) == json.loads(json.dumps(asdict(result)))
    rows = [line for line in audit_markdown(result).splitlines() if line.startswith("| ")]
    for label in ("influence depth", "absorption", "citations each", "distance of ideas", "Vendi score", "judged qual"):
        assert sum(row.startswith(f"| {label}") for row in rows) == 1
    for hidden in ("nothing", "an uncited entity", "a cited entity", "cited (precision)", "uncited"):
        assert sum(row.startswith(f"| {hidden} |") for row in rows) == 1


def test_an_audit_is_not_paid_for_twice(audited: Audited, tmp_path: Path) -> None:
    first, _ = audited()
    again, server = audited()
    assert server.count == 0
    assert replace(again, usage=first.usage) == first
    assert again.usage.calls == first.usage.calls
    more, server = audited(samples=2)
    assert server.count == 6 * 3
    assert len(more.masking.pairs) == 6


def test_an_audit_that_broke_off_goes_on(audited: Audited, tmp_path: Path) -> None:
    whole, server = audited()
    count = server.count
    (tmp_path / "run" / "audit").rename(tmp_path / "kept")
    with pytest.raises(Exception, match="cannot be used"):
        audited(faults=lambda r: Fault(401) if r.number > 40 else None, max_concurrency=1)
    assert not (tmp_path / "run" / "audit" / "audit.json").exists()
    again, server = audited()
    assert server.count == count - 40
    assert replace(again, usage=whole.usage) == whole


def test_failures_are_told_and_not_imputed(audited: Audited) -> None:
    def fails(request: Any) -> Fault | None:
        return Fault(500) if "used" in request.fields or "title" in request.fields else None

    result, _ = audited(faults=fails, seeds=0)
    assert result.masking.effect.value is None
    assert result.masking.failed == 18
    assert result.edges.precision.value is None
    assert result.edges.failed > 0
    said = verdict(result)
    assert said[0] == "Masking: nothing to compare (no proposal could be made again)."
    assert said[1] == "Edges: no citation could be judged."
    assert "neither borne out nor refuted" in said[2]


def test_without_seeds_there_is_no_ablation(audited: Audited, tmp_path: Path) -> None:
    result, server = audited(seeds=0)
    assert result.ablation is None
    assert not any("thought" in r.fields for r in server.requests)
    assert "Ablation" not in audit_markdown(result)
    assert len(verdict(result)) == 3
    assert {p.name for p in (tmp_path / "run" / "audit").iterdir()} == {"audit.json", "masking", "judge"}


def test_personas_and_seeds_of_the_ablation_are_those_of_the_session(audited: Audited, tmp_path: Path) -> None:
    audited()
    joined = []
    for log in sorted((tmp_path / "run").rglob("session.jsonl")):
        records = [json.loads(line) for line in log.read_text().splitlines()]
        joined.append([r for r in records if r.get("type") == "joined"])
    assert len(joined) == 7
    assert all(people == joined[0] for people in joined)


def test_keys_are_in_no_file(audited: Audited, tmp_path: Path) -> None:
    audited(faults=lambda r: Fault(500, message=f"bad key {SECRET}") if r.number % 5 == 0 else None)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 20
    for path in files:
        assert SECRET not in path.read_text(errors="replace")


def test_another_judge_cannot_be_mixed_in(audited: Audited, scripted: Callable[..., Any]) -> None:
    first, _ = audited(seeds=0)
    with LoopbackServer(reply=scripted(), model="other") as other, pytest.raises(OutputError) as caught:
        audited(seeds=0, lms={"participant": other.lm(), "facilitator": other.lm(), "judge": other.lm()})
    assert "participant openai/talker and not openai/other" in str(caught.value)
    assert other.count == 0
    assert first.held_with == {"participant": "openai/talker", "facilitator": "openai/talker"}


# ---------------------------------------------------------------- what cannot be audited


@pytest.mark.parametrize(
    "wrong",
    [
        {"seeds": -1}, {"seeds": True}, {"seeds": 1.5}, {"samples": 0}, {"sources": 0}, {"edges": 0}, {"edges": "many"},
        {"samples": -2}, {"max_concurrency": 0}, {"max_concurrency": -1}, {"seed": "x"}, {"seed": 0.5},
    ],
)  # fmt: skip
def test_numbers_that_cannot_work_are_told_before_anything_is_spent(
    scripted: Callable[..., Any], talked: Callable[..., Session], tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with LoopbackServer(reply=scripted()) as server:
        lms = dict.fromkeys(("participant", "facilitator", "judge"), server.lm())
        talked(server.lm(), tmp_path, turns=0, ideas=1)
        count = server.count
        with pytest.raises(UserError, match=f"{next(iter(wrong))}=.* whole number"):
            asyncio.run(audit(tmp_path, lms=lms, **wrong))
        assert server.count == count
    assert not (tmp_path / "audit").exists()


def test_a_debate_has_no_ideas_to_audit(quick_embeddings: None, tmp_path: Path) -> None:
    with LoopbackServer() as server:
        lm = server.lm()
        asyncio.run(Debate(agents=2, rounds=1, k=1, lms={"participant": lm, "judge": lm}).hold(task="x", out=tmp_path))
        with pytest.raises(UserError, match="holds a session of Debate: the audit tests the citations of a Roundtable"):
            asyncio.run(audit(tmp_path, lms={"participant": lm, "judge": lm}))
    assert not (tmp_path / "audit").exists()


def test_a_session_that_was_interrupted_has_to_be_resumed_first(
    scripted: Callable[..., Any], talked: Callable[..., Session], tmp_path: Path
) -> None:
    with LoopbackServer(reply=scripted()) as server:
        talked(server.lm(), tmp_path / "run")
        log = tmp_path / "run" / "session.jsonl"
        log.write_text("".join(log.read_text().splitlines(keepends=True)[:30]))
        count = server.count
        with pytest.raises(LogError) as caught:
            asyncio.run(audit(tmp_path / "run", lms={"participant": server.lm()}))
        assert server.count == count
    assert "was interrupted" in str(caught.value)
    assert f"salon brainstorm --resume {tmp_path / 'run'}" in str(caught.value)


def test_a_folder_without_a_session_and_a_missing_model_are_told(tmp_path: Path, audited: Audited) -> None:
    with pytest.raises(OutputError, match="There is no session"):
        asyncio.run(audit(tmp_path / "nowhere"))
    audited(seeds=0)
    with pytest.raises(UserError, match="No language model is set"):
        asyncio.run(audit(tmp_path / "run", seeds=0))


def test_a_budget_bounds_the_audit(audited: Audited) -> None:
    result, server = audited(seeds=0, budget=Budget(calls=3))
    assert server.count == 6  # three for each test
    assert result.masking.failed == 18 - 3
    assert result.edges.failed > 0


# ---------------------------------------------------------------- the verdict


def interval(value: float, low: float, high: float, n: int = 20) -> Interval:
    return Interval(value, low, high, n)


UP, DOWN, FLAT = interval(0.2, 0.1, 0.3), interval(-0.2, -0.3, -0.1), interval(0.01, -0.1, 0.1)
NONE = Interval(None, None, None, 0)


def an_audit(effect: Interval = FLAT, lift: Interval = FLAT, lost: Interval | None = None, **other: Any) -> Audit:
    masking = Masking([], FLAT, FLAT, FLAT, effect, {}, 0)
    edges = Edges([], 30, interval(0.8, 0.6, 0.9), interval(0.3, 0.2, 0.4), lift, 0)
    names = ("depth", "absorption", "citations", "distance", "vendi", "quality")
    means = {kind: dict.fromkeys(names, interval(3.0, 2, 4)) for kind in ("required", "optional", "off")}
    ablation = Ablation([1, 2], means, dict.fromkeys(names, lost), []) if lost else None
    models = {"participant": "m", "judge": "j"}
    return Audit("run", ablation, masking, edges, models, other.pop("held_with", models), Usage(), **other)


@pytest.mark.parametrize(
    ("effect", "lift", "whole"),
    [
        (UP, UP, "is borne out by cause and by content"),
        (UP, FLAT, "borne out in part, by cause, not by content"),
        (FLAT, UP, "borne out in part, by content, not by cause"),
        (FLAT, FLAT, "neither borne out nor refuted"),
        (NONE, NONE, "neither borne out nor refuted"),
        (DOWN, FLAT, "contradicted by at least one test"),
        (UP, DOWN, "contradicted by at least one test"),
        (interval(0.2, 0.1, 0.3, n=3), interval(0.2, 0.1, 0.3, n=7), "neither borne out nor refuted"),
        (interval(-0.2, -0.3, -0.1, n=3), FLAT, "neither borne out nor refuted"),
    ],
)
def test_the_conclusion_follows_from_both_tests(effect: Interval, lift: Interval, whole: str) -> None:
    assert whole in verdict(an_audit(effect, lift))[-1]


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        (UP, "The demand itself deepens the graph, so that depth under it must not be read as influence alone."),
        (DOWN, "The demand does not deepen the graph."),
        (FLAT, "Whether the demand deepens the graph is not shown either way."),
        (interval(2, 1, 3, n=3), "There are signs that the demand itself deepens the graph, so that depth under it"),
        (interval(1, -1, 3, n=3), "Whether the demand deepens the graph is not shown either way, but 3 are few."),
        (NONE, "Ablation: no two sessions could be compared."),
    ],
)
def test_the_ablation_says_what_its_seeds_allow(lost: Interval, told: str) -> None:
    said = verdict(an_audit(lost=lost))
    assert len(said) == 4
    assert told in said[0]


def test_masking_by_another_model_is_told() -> None:
    said = verdict(an_audit(UP, held_with={"participant": "n"}))[0]
    assert "by another model, m, than the one that proposed them, n." in said
    assert "another model" not in verdict(an_audit(UP))[0]
    assert "another model" not in verdict(an_audit(NONE, held_with={"participant": "n"}))[0]


def test_numbers_are_said_with_their_direction() -> None:
    assert "moves an idea 0.200 farther than hiding an uncited one, over 20 ideas" in verdict(an_audit(UP))[0]
    assert "moves an idea 0.200 less far than" in verdict(an_audit(DOWN))[0]
    assert "over 1 idea." in verdict(an_audit(Interval(0.2, None, None, 1)))[0]
    assert "80% of 20 citations used, and 30% of uncited pairs" in verdict(an_audit())[1]


def test_texts_of_models_are_inert_in_the_table() -> None:
    found = an_audit(UP, UP, lost=UP)
    assert found.ablation is not None
    ablation = replace(found.ablation, failures=["seed-1: <script>alert(1)</script> | x\n# head"])
    told = audit_markdown(replace(found, ablation=ablation, models={"participant": "<b>m|"}))
    assert "<script>" not in told
    assert "<b>" not in told
    assert "\n# head" not in told
