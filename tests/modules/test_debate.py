"""Debate: who sees whom, what it costs, what cannot win, and the variants by configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from salon.modules import Embedder
from salon.modules.choice import inadmissible
from salon.modules.debate import farthest
from salon.modules.events import Consensus, Draft, Round
from salon.modules.text import restated

from salon import Debate, OutputError, UserError
from salon.testing import ChatRequest, LoopbackServer


class Planted(Embedder):
    """Embeds a text by the numbers in it, so that tests know who is far from whom."""

    def __init__(self) -> None:
        super().__init__("planted")

    def _encoder(self) -> Callable[[list[str]], Any]:
        def encode(texts: list[str]) -> Any:
            angles = [float(text.split("@")[1].split()[0]) for text in texts]
            return np.array([[np.cos(a), np.sin(a)] for a in angles])

        return encode


def own_part(request: ChatRequest) -> str:
    return request.text.rpartition("[[ ## persona ## ]]")[2]


def angles(request: ChatRequest) -> dict[str, Any]:
    """Answer with the angle planted for the agent's lens; the judge takes the first answer."""
    if "choice" in request.fields:
        return {"reason": "it is first", "choice": 1}
    agent = next(n for n in range(1, 6) if f"lens {n}." in own_part(request))
    return {"critique": "fine", "answer": f"Answer of {agent} @{agent * 0.3} in full"}


def held(reply: Any = angles, seed: int = 0, embedder: Embedder | None = None, **settings: Any) -> tuple[Any, Any]:
    lenses = {"lenses": [f"This is lens {n}." for n in range(1, 6)]} if "lenses" not in settings else {}
    with LoopbackServer(reply=reply) as server, dspy.context(lm=server.lm(num_retries=0)):
        prediction = Debate(**{"embedder": embedder or Planted(), **lenses, **settings})(
            task="Use an umbrella", seed=seed
        )
    return prediction, server


def of_type(prediction: Any, kind: type) -> list[Any]:
    return [event for event in prediction.session.events if isinstance(event, kind)]


@pytest.mark.parametrize(("agents", "rounds"), [(1, 0), (1, 2), (2, 1), (5, 2), (3, 0)])
def test_a_session_takes_n_times_r_plus_1_plus_1_calls(agents: int, rounds: int) -> None:
    prediction, server = held(agents=agents, rounds=rounds)
    assert server.count == agents * (rounds + 1) + 1 == Debate(agents=agents, rounds=rounds).calls()
    assert prediction.session.status == "complete"
    assert prediction.answer == "Answer of 1 @0.3 in full" if agents == 1 else prediction.answer


def test_each_agent_is_shown_the_farthest_and_cites_them() -> None:
    prediction, server = held(agents=4, rounds=1, k=1)
    (first, last) = of_type(prediction, Round)
    assert first.shown == {"P1": ["P4"], "P2": ["P4"], "P3": ["P1"], "P4": ["P1"]}
    assert last.shown == {}
    drafts = of_type(prediction, Draft)
    revision = next(d for d in drafts if d.round == 1 and d.author == "P2")
    assert revision.shown == ["D4"]
    assert revision.cites == ["D4", "D2"]
    seen = [r for r in server.requests if "critique" in r.fields and "lens 2." in own_part(r)]
    assert "Answer of 4" in seen[0].text.partition("[[ ## persona ## ]]")[0]
    assert "Answer of 3" not in seen[0].text
    assert prediction.session.lineage.ancestors("I2") >= {"D4", "D2", revision.id}


@pytest.mark.parametrize(
    ("peers", "of_first"), [("closest", ["P2"]), ("farthest", ["P4"]), ("all", ["P2", "P3", "P4"])]
)
def test_peers_can_be_chosen_otherwise(peers: Any, of_first: list[str]) -> None:
    prediction, _ = held(agents=4, rounds=1, k=1, peers=peers)
    assert of_type(prediction, Round)[0].shown["P1"] == of_first


def test_random_peers_come_from_the_seed() -> None:
    shown = [of_type(held(agents=5, rounds=1, peers="random", seed=s)[0], Round)[0].shown for s in (1, 1, 2)]
    assert shown[0] == shown[1] != shown[2]
    assert all(agent not in seen and len(set(seen)) == 2 for agent, seen in shown[0].items())


def test_more_peers_than_there_are_means_all() -> None:
    prediction, _ = held(agents=3, rounds=1, k=9)
    assert {len(seen) for seen in of_type(prediction, Round)[0].shown.values()} == {2}


def test_one_by_one_each_sees_what_is_new() -> None:
    def reply(request: ChatRequest) -> dict[str, Any]:
        answer = angles(request)
        if "critique" in request.fields:
            answer["answer"] += " revised"
        return answer

    _prediction, server = held(reply, agents=3, rounds=1, k=2, protocol="one-by-one")
    assert server.count == 7
    last = [r for r in server.requests if "critique" in r.fields][-1]
    others = last.text.partition("[[ ## others ## ]]")[2].partition("[[ ## ")[0]
    assert others.count("revised") == 2


def test_equal_answers_have_no_distance_and_a_vendi_of_one() -> None:
    def same(request: ChatRequest) -> dict[str, Any]:
        return {"choice": 2, "reason": "-"} if "choice" in request.fields else {"answer": "The same @1.0 text"}

    prediction, _ = held(same, agents=4, rounds=1)
    assert [(r.distance, r.vendi) for r in of_type(prediction, Round)] == [(0.0, 1.0), (0.0, 1.0)]
    assert prediction.answer == "The same @1.0 text"


def test_one_agent_has_no_distance() -> None:
    prediction, _ = held(agents=1, rounds=1)
    assert [(r.distance, r.vendi) for r in of_type(prediction, Round)] == [(None, None)] * 2


def test_the_judge_sees_shuffled_answers_without_names() -> None:
    _, server = held(agents=5, rounds=0)
    judged = server.requests[-1].text
    order = [int(part.split(" @")[0]) for part in judged.split("Answer of ")[1:6]]
    assert sorted(order) == [1, 2, 3, 4, 5] != order
    assert "Agent" not in judged
    assert "P1" not in judged


@pytest.mark.parametrize("choice", [9, 0, -1, "none of them", None])
def test_a_choice_of_nobody_is_not_replaced_by_an_invented_one(choice: Any) -> None:
    def reply(request: ChatRequest) -> dict[str, Any]:
        return {"reason": "?", "choice": choice} if "choice" in request.fields else angles(request)

    prediction, _ = held(reply, agents=3, rounds=0)
    (consensus,) = of_type(prediction, Consensus)
    if choice in (0, -1):  # read as the first place, and counted as out of scale
        assert consensus.decided
    else:
        assert not consensus.decided
        assert all(idea.votes == 0 for idea in prediction.ideas)
    assert prediction.answer.startswith("Answer of ")


def test_an_answer_about_the_debate_cannot_win() -> None:
    def reply(request: ChatRequest) -> dict[str, Any]:
        if "choice" in request.fields:
            assert "other agents" not in request.text.partition("[[ ## answers ## ]]")[2]
            return {"reason": "first", "choice": 1}
        if "lens 1." in own_part(request):
            return {"answer": "I agree with the other agents. The debate was good @0.1 ."}
        return angles(request)

    prediction, _ = held(reply, agents=3, rounds=0)
    (consensus,) = of_type(prediction, Consensus)
    assert list(consensus.rejected) == ["P1"]
    assert len(prediction.ideas) == 2


@pytest.mark.parametrize(
    ("answer", "wins"),
    [
        ("", False),
        ("...", False),
        ("My revised answer improves on the previous answer.", False),
        ("As an AI language model I cannot hold an umbrella.", False),
        ("A debate club lends umbrellas. Members earn one by winning. It folds into a lectern.", True),
        ("Ein Schirm, der Regen sammelt.", True),
        ("雨を集める傘。", True),
    ],
)
def test_what_can_win(answer: str, wins: bool) -> None:
    assert (inadmissible(answer) == "") is wins


def test_if_all_answers_are_about_the_debate_one_still_stands() -> None:
    def reply(request: ChatRequest) -> dict[str, Any]:
        return {"choice": 1, "reason": "-"} if "choice" in request.fields else {"answer": "The debate was good @1.0 ."}

    prediction, _ = held(reply, agents=2, rounds=0)
    assert prediction.answer
    assert len(of_type(prediction, Consensus)[0].rejected) == 2


def test_an_agent_without_an_answer_is_asked_again_and_is_nobodys_peer() -> None:
    def reply(request: ChatRequest) -> Any:
        if "lens 2." in own_part(request) and "critique" not in request.fields and reply.failed < 2:
            reply.failed += 1
            return "no answer at all"
        return angles(request)

    reply.failed = 0
    prediction, _ = held(reply, agents=3, rounds=1, k=2)
    first, _second = of_type(prediction, Round)
    assert first.shown == {"P1": ["P3"], "P3": ["P1"]}
    assert "P2" in {d.author for d in of_type(prediction, Draft) if d.round == 1}
    assert prediction.session.status == "complete"


def test_the_task_stands_once_more_beside_the_request() -> None:
    _, server = held(agents=2, rounds=1)
    for request in server.requests:
        assert request.text.rpartition("[[ ## request ## ]]")[2].count("Use an umbrella") == 1
    long = restated("a" * 1000 + "b" * 1000, "Now.")
    assert len(long) < 1400
    assert "…" in long


def test_the_variants_of_the_paper() -> None:
    plain = Debate.homogeneous()
    assert (plain.lenses, plain.peers, plain.personas) == ([], "all", [])
    people = Debate.heterogeneous()
    assert [
        word in text
        for word, text in zip(
            ("economist", "psychologist", "lawyer", "doctor", "historian"), people.personas, strict=True
        )
    ] == [True] * 5
    assert len(Debate.lens_only().lenses) == 5
    assert Debate.lens_only().peers == "all"
    assert (Debate.selection_only().lenses, Debate.selection_only().peers) == ([], "farthest")
    assert Debate(lenses=["critical"]).lenses == [Debate().lenses[2]]


def test_one_model_per_agent() -> None:
    with LoopbackServer(reply=angles) as first, LoopbackServer(reply=angles) as second:
        lenses = [f"This is lens {n}." for n in range(1, 6)]
        program = Debate(agents=3, rounds=1, lenses=lenses, models=[first.lm(), second.lm()], embedder=Planted())
        with dspy.context(lm=first.lm()):
            program(task="Use an umbrella")
    assert second.count == 2
    assert first.count == 5


def test_two_runs_do_not_write_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    from salon.modules.archive import ahold_again

    out = tmp_path / "run"
    monkeypatch.setattr(Embedder, "_encoder", Planted._encoder)
    with LoopbackServer(reply=angles, delay=0.1) as server, dspy.context(lm=server.lm()):
        program = Debate(agents=2, rounds=1, lenses=[f"This is lens {n}." for n in range(1, 6)])
        program(task="x", out=out)
        with pytest.raises(OutputError, match="already"):
            program(task="y", out=out)
        log = (out / "session.jsonl").read_bytes()
        (out / "session.jsonl").write_bytes(log[: len(log) // 2])

        async def twice() -> list[Any]:
            runs = (ahold_again(out), ahold_again(out))
            return await asyncio.gather(*runs, return_exceptions=True)

        first, second = asyncio.run(twice())
    assert isinstance(second, OutputError)
    assert "under way" in str(second)
    assert first.status == "complete"
    assert not (out / ".lock").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"agents": 0},
        {"rounds": -1},
        {"k": 0},
        {"peers": "nearest"},
        {"protocol": "all"},
        {"lenses": "critical"},
        {"lenses": [1]},
        {"lenses": 5},
        {"personas": 5},
        {"personas": "abc"},
        {"models": "openai/x"},
        {"models": 5},
        {"lms": "x"},
        {"max_concurrency": "a"},
        {"agents": 2.5},
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        Debate(**settings)


@given(st.lists(st.floats(0, 6.2), min_size=2, max_size=9), st.integers(1, 9), st.booleans())
def test_farthest_is_what_sorting_by_distance_gives(turns: list[float], k: int, closest: bool) -> None:
    vectors = np.array([[np.cos(a), np.sin(a)] for a in turns])
    found = farthest(vectors, 0, k, closest)
    distances = [1 - vectors[i] @ vectors[0] for i in range(len(turns))]
    rest = [i for i in range(1, len(turns)) if i not in found]
    assert len(found) == min(k, len(turns) - 1)
    assert 0 not in found
    for i in found:
        for j in rest:
            assert (distances[i] <= distances[j] + 1e-9) if closest else (distances[i] >= distances[j] - 1e-9)
