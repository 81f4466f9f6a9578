"""Baselines: their calls, equal compute, and the choice among answers; sets of sessions and their measures."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from salon.modules.diversity import div_bleu, pairwise_distance, vendi

from salon import BASELINES, Debate, Direct, Embedder, RunFailure, UserError, Voting, load, replay, sessions
from salon.testing import ChatRequest, Fault, LoopbackServer

SINGLE = [name for name in BASELINES if name not in ("roundtable-unfacilitated", "yes-and-fixed")]


class Numbered:
    """Every answer differs; the judge takes the last."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)

    def __call__(self, request: ChatRequest) -> Any:
        if "choice" in request.fields:
            return {
                "reason": "last",
                "choice": request.text.partition("[[ ## answers ## ]]")[2].count(". answer number"),
            }
        if "answers" in request.fields:
            texts = [{"answer": f"answer number {next(self.numbers)}", "probability": 20} for _ in range(5)]
            return {"answers": texts}
        return {"critique": "-", "answer": f"answer number {next(self.numbers)}"}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    def spread(texts: list[str]) -> Any:
        return np.stack([np.random.default_rng(sum(text.encode())).normal(size=32) for text in texts])

    monkeypatch.setattr(Embedder, "_encoder", lambda _: spread)


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("equal_calls", [None, 16])
def test_a_baseline_takes_the_calls_it_states(name: str, equal_calls: int | None, quick: None) -> None:
    program: Any = BASELINES[name](equal_calls=equal_calls)
    with LoopbackServer(reply=Numbered()) as server, dspy.context(lm=server.lm()):
        prediction = program(task="Use an umbrella", seed=2)
    assert server.count == program.calls()
    assert prediction.answer.startswith("answer number")
    assert prediction.session.status == "complete"
    if equal_calls:
        assert 13 <= program.calls() <= 16
        assert len(prediction.ideas) > 1
    else:
        assert program.calls() == {"self-refine": 3, "voting": 6, "voting-lens": 6}.get(name, 1)


@pytest.mark.parametrize("name", list(BASELINES))
def test_a_baseline_is_saved_and_loaded(name: str, tmp_path: Path) -> None:
    program: Any = BASELINES[name]()
    program.temperature.value = 0.3
    program.save(tmp_path)
    again = load(tmp_path)
    assert type(again) is type(program)
    assert again.settings() == program.settings()
    assert again.dump_state() == program.dump_state()


def test_lenses_of_voting_are_the_five_and_of_direct_one_by_the_seed(quick: None) -> None:
    with LoopbackServer(reply=Numbered()) as server, dspy.context(lm=server.lm()):
        BASELINES["voting-lens"]()(task="x")
        lenses = {r.text.rpartition("[[ ## persona ## ]]")[2][:40] for r in server.requests[:5]}
        assert len(lenses) == 5
        server.reset()
        for seed in range(12):
            BASELINES["direct-lens"]()(task="x", seed=seed)
        assert len({r.text.rpartition("[[ ## persona ## ]]")[2][:40] for r in server.requests}) > 2


def test_an_answer_by_its_stated_probability(quick: None) -> None:
    answers = [{"answer": "sure", "probability": 100}, {"answer": "never", "probability": 0}]
    with LoopbackServer(reply=lambda _: {"answers": answers}) as server, dspy.context(lm=server.lm()):
        drawn = {BASELINES["verbalized"]()(task="x", seed=s).answer for s in range(8)}
        tail = {BASELINES["verbalized-tail"]()(task="x", seed=s).answer for s in range(20)}
    assert drawn == {"sure"}
    assert tail == {"never"}


def test_a_failed_answer_does_not_stop_the_vote(quick: None) -> None:
    numbered = Numbered()

    def reply(request: ChatRequest) -> Any:
        return Fault(status=400) if request.number == 2 else numbered(request)

    with LoopbackServer(reply=reply) as server, dspy.context(lm=server.lm(num_retries=0)):
        prediction = Voting()(task="x")
    assert len(prediction.ideas) == 4
    assert prediction.session.measures().failures == 1


def test_a_vote_with_failures_is_replayed_whatever_came_first(quick: None, tmp_path: Path) -> None:
    def slow(request: ChatRequest) -> float:
        return 0.3 if request.number in (1, 6) else 0.0

    with LoopbackServer(reply=lambda _: "nonsense", delay=slow) as server, dspy.context(lm=server.lm()):
        session = Voting(answers=3)(task="x", out=tmp_path / "run").session
    assert session.status == "partial"
    assert [e.key for e in replay(tmp_path / "run").events if e.type == "failure"] == [
        e.key for e in session.events if e.type == "failure"
    ]


@pytest.mark.parametrize("rambling", ["w " * 2000, "[" * 2000, {"a": "b"}, None, 5])
def test_a_list_that_rambles_is_unreadable(rambling: Any, quick: None) -> None:
    reply = lambda _: {"answers": rambling}  # noqa: E731
    with LoopbackServer(reply=reply) as server, dspy.context(lm=server.lm()):
        assert BASELINES["verbalized"]()(task="x").session.status == "partial"


def test_session_programs_as_baselines_spend_about_equal_calls() -> None:
    people = [{"name": name, "sketch": f"{name} knows much."} for name in ("Ann", "Bo")]
    table: Any = BASELINES["roundtable-unfacilitated"](equal_calls=30, personas=people)
    talk: Any = BASELINES["yes-and-fixed"](equal_calls=30)
    for program, inputs in ((table, {"topic": "x"}), (talk, {"problem": "x", "person": "Mia, a nurse"})):
        with LoopbackServer() as server, dspy.context(lm=server.lm()):
            program(**inputs)
        assert 25 <= program.calls() <= 30
        assert server.count == pytest.approx(program.calls(), abs=6)
    for name in ("roundtable-unfacilitated", "yes-and-fixed"):
        with pytest.raises(UserError, match="equal_calls=1"):
            BASELINES[name](equal_calls=1)


def test_calls_that_are_too_few_are_refused() -> None:
    with pytest.raises(UserError, match="3 calls"):
        BASELINES["self-refine"](equal_calls=2)


def test_sessions_are_distinct_measured_and_answered_by_the_cache_again(quick: None, tmp_path: Path) -> None:
    with LoopbackServer(reply=Numbered()) as server, dspy.context(lm=server.lm()):
        first = sessions(Debate(agents=3, rounds=1), {"task": "x"}, g=4, seed=5, out=tmp_path)
        count = server.count
        again = sessions(Debate(agents=3, rounds=1), {"task": "x"}, g=4, seed=5)
        other = sessions(Debate(agents=3, rounds=1), {"task": "x"}, g=4, seed=6)
    assert count == 4 * 7
    assert len(set(first.answers)) == 4
    assert again.answers == first.answers
    assert server.count == 2 * count
    assert not set(other.answers) & set(first.answers)
    assert first.vendi is not None
    assert 1 < first.vendi <= 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1", "2", "3", "4"]


def test_a_set_of_one_has_no_diversity(quick: None) -> None:
    with LoopbackServer(reply=Numbered()) as server, dspy.context(lm=server.lm()):
        one = sessions(Direct(), {"task": "x"}, g=1)
    assert (one.vendi, one.distance, one.div_bleu) == (None, None, None)


def test_a_set_without_any_answer_is_a_failure(quick: None) -> None:
    with LoopbackServer(reply=lambda _: Fault(status=400)) as server, dspy.context(lm=server.lm(num_retries=0)):
        with pytest.raises(RunFailure, match="no answer"):
            sessions(Direct(), {"task": "x"}, g=2)
        with pytest.raises(UserError, match="g=0"):
            sessions(Direct(), {"task": "x"}, g=0)


# ---------------------------------------------------------------- measures


def test_vendi_of_known_sets() -> None:
    assert vendi(np.eye(5, dtype=np.float32)) == pytest.approx(5)
    assert vendi(np.ones((4, 3), dtype=np.float32) / math.sqrt(3)) == pytest.approx(1)
    half = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=np.float32)
    assert vendi(half) == pytest.approx(2)
    assert vendi(half[:1]) is None


@given(hnp.arrays(np.float32, st.tuples(st.integers(2, 8), st.just(6)), elements=st.floats(-1, 1, width=32)))
def test_vendi_is_what_the_reference_package_computes(raw: Any) -> None:
    from vendi_score import vendi as reference

    norms = np.linalg.norm(raw, axis=1, keepdims=True)
    vectors = np.where(norms > 1e-3, raw / np.where(norms > 1e-3, norms, 1), np.eye(6, dtype=np.float32)[0])
    ours = vendi(vectors.astype(np.float32))
    assert ours == pytest.approx(reference.score_dual(vectors.astype(np.float64), normalize=False), rel=1e-3)
    distance = pairwise_distance(vectors.astype(np.float32))
    assert distance is not None
    assert distance >= 0


_TEXTS = st.lists(st.text("abc d", min_size=1, max_size=40).filter(str.strip), min_size=2, max_size=5)


@given(_TEXTS)
def test_div_bleu_is_what_nltk_computes(texts: list[str]) -> None:
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    tokens = [text.split() for text in texts]
    smooth = SmoothingFunction().method1
    scores = [sentence_bleu(tokens[:i] + tokens[i + 1 :], t, smoothing_function=smooth) for i, t in enumerate(tokens)]
    assert div_bleu(texts) == pytest.approx(100 * (1 - sum(scores) / len(scores)), abs=1e-6)


def test_div_bleu_of_equal_and_of_unrelated_texts() -> None:
    text = "a lamp that reads the room and dims itself"
    assert div_bleu([text, text]) == pytest.approx(0)
    assert div_bleu([text, "umbrellas grow quickly under heavy green rain"]) == pytest.approx(100)
    assert div_bleu([text]) is None
