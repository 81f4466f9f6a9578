"""What is measured of a session: by hand on a small one, and every reason for a value that there is not."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from salon.modules import Embedder, Session
from salon.modules.events import Phase
from salon.modules.measures import text_diversity

Make = Callable[..., Session]
SPREAD = ("distance", "vendi", "div_bleu", "order")


class Words(Embedder):
    """Bags of words: texts without a common word are orthogonal."""

    def __init__(self) -> None:
        super().__init__("words")

    def _encoder(self) -> Callable[[list[str]], Any]:
        def encode(texts: list[str]) -> Any:
            vectors = np.zeros((len(texts), 4096), dtype=np.float32)
            for row, text in zip(vectors, texts, strict=True):
                for word in text.split():
                    row[zlib.crc32(word.encode("utf-8", "replace")) % 4096] += 1
            return vectors

        return encode


@pytest.fixture
def small(made: Make) -> Session:
    """Ann, Bo and Cy: three thoughts, three remarks and two ideas that cite each other, and a vote.

    T1 Ann, C1 Ann [T1], T2 Bo [C1], C2 Bo [T2, C1], T3 Cy, C3 Cy, I1 Ann [C2], I2 Cy [I1, C3], V1 Bo for I2.
    """
    return made(
        ["Ann", "Bo", "Cy"],
        [
            ("thought", 1, "hm", []),
            ("comment", 1, "one", ["T1"]),
            ("thought", 2, "oh", ["C1"]),
            ("comment", 2, "two", ["T2", "C1"]),
            ("thought", 3, "ah", []),
            ("comment", 3, "three", []),
            ("idea", 1, "kettle", ["C2"]),
            ("idea", 3, "teapot", ["I1", "C3"]),
            ("vote", 2, "nice", ["I2"]),
        ],
    )


def test_a_small_session_by_hand(small: Session) -> None:
    m = small.measures(Words())
    assert m.ideas == 2
    assert m.depth == (4 + 5) / 2  # T1 C1 T2 C2 I1, and one more to I2
    # Of I1 by Ann: Bo and Cy said C2, C3 and I2; C2 led to it. Of I2 by Cy: C1, C2 and I1 of Ann and Bo; all did.
    assert m.absorption == pytest.approx((1 / 3 + 3 / 3) / 2)
    # I1 goes back to T1 C1 T2 C2, half of it Bo's; I2 to those and I1 and C3: three of six Ann's, two Bo's.
    assert m.influence == {"Ann": pytest.approx(3 / 6), "Bo": pytest.approx((2 / 4 + 2 / 6) / 2), "Cy": 0.0}
    # All but T1 had something to cite, C1 its own thought. Cy had C1 and C2 before T3 and C3.
    assert m.citations == pytest.approx((1 + 1 + 2 + 0 + 0 + 1 + 2) / 7)
    assert m.uncited == pytest.approx(2 / 7)
    shares = [2 / 5, 1 / 5, 2 / 5]
    assert m.balance == pytest.approx(-sum(s * math.log(s) for s in shares) / math.log(3))
    assert m.distance == pytest.approx(1 - cosine("kettle. That is: kettle", "teapot. That is: teapot"))
    # kettle that is kettle teapot that is teapot: 4 of 8 words, 6 pairs without repetition but "that is".
    assert m.distinct_1 == 4 / 8
    assert m.distinct_2 == 5 / 6
    assert (m.citations_dropped, m.clamped, m.failures, m.undefined) == (0, 0, 0, {})


def cosine(one: str, other: str) -> float:
    a, b = Words().embed([one, other])
    return float(a @ b)


def test_what_is_spoken_evenly_has_balance_1(made: Make) -> None:
    even = made(["A", "B"], [("comment", 1, "x", []), ("comment", 2, "y", [])])
    alone = made(["A", "B"], [("comment", 1, "x", []), ("comment", 1, "y", [])])
    assert even.measures(Words()).balance == pytest.approx(1)
    assert alone.measures(Words()).balance == 0


def test_nobody_could_cite_what_was_not_said_yet(made: Make) -> None:
    """The first thoughts had nothing to cite; ideas of one round do not see each other."""
    first = made(["A", "B"], [("thought", 1, "x", []), ("thought", 2, "y", [])])
    assert first.measures(Words()).citations is None
    round_ = made(["A", "B", "C"], [("idea", 1, "x", []), ("idea", 2, "y", []), ("idea", 3, "z", [])])
    assert round_.measures(Words()).uncited is None
    assert round_.measures(Words()).undefined["uncited"] == "nothing there that could cite"
    later = made(["A", "B"], [("facilitation", 1, "F", []), ("thought", 1, "x", []), ("comment", 2, "y", [])])
    assert later.measures(Words()).uncited == 1.0  # the word was for A alone; B had nothing


# ---------------------------------------------------------------- what is undefined, and why


def test_a_session_in_which_nothing_was_said(made: Make) -> None:
    m = made(["Ann", "Bo"], []).measures(Words())
    assert m.ideas == 0
    assert m.undefined == {
        "depth": "no ideas",
        "absorption": "no ideas, no discussion phase, or nothing said by others",
        "citations": "nothing there that could cite",
        "uncited": "nothing there that could cite",
        "balance": "nobody spoke, or one persona alone",
        **dict.fromkeys((*SPREAD, "distinct_1", "distinct_2"), "no ideas"),
    }
    assert m.influence == {"Ann": None, "Bo": None}


def test_one_idea_has_no_diversity(made: Make) -> None:
    m = made(["Ann", "Bo"], [("comment", 2, "x", []), ("idea", 1, "kettle", ["C1"])]).measures(Words())
    assert m.undefined == dict.fromkeys(SPREAD, "fewer than two ideas")
    assert (m.depth, m.absorption, m.distinct_1) == (1.0, 1.0, 3 / 4)
    assert m.influence == {"Ann": None, "Bo": 1.0}  # there is no idea of another than Ann


def test_ideas_without_a_word_have_no_distinct_words(made: Make) -> None:
    session = made(["Ann", "Bo"], [])
    for n, title in enumerate(("!!!", "???"), 1):
        session.add(idea(session, n, title))
    m = session.measures(Words())
    assert m.undefined["distinct_1"] == "no words in the ideas"
    assert m.undefined["distinct_2"] == "no two words next to each other in the ideas"
    assert m.distance is not None


def idea(session: Session, n: int, title: str) -> Any:
    from salon.modules.events import Idea

    return Idea(n=len(session.events), turn=1, minute=0, id=f"I{n}", author="P1", title=title, description=title)


def test_without_a_discussion_there_is_no_absorption(made: Make) -> None:
    said = [("idea", 1, "x", []), ("idea", 2, "y", ["I1"])]
    empty = made(["A", "B"], [])
    ideation = Phase(n=len(empty.events), turn=1, minute=0, phase="ideation", reason="")
    whole = [*empty.events, ideation, *made(["A", "B"], said).events[3:]]
    short = Session(empty.header, [e.model_copy(update={"n": n}) for n, e in enumerate(whole)])
    assert short.measures(Words()).absorption == 0.0
    never = Session(empty.header, [e for e in whole if not isinstance(e, Phase)])
    assert never.measures(Words()).absorption is None
    assert "no discussion phase" in never.measures(Words()).undefined["absorption"]


def test_citations_that_were_not_asked_for_are_not_counted_as_missing(small: Session) -> None:
    small.header["settings"]["citations"] = "off"
    m = small.measures(Words())
    assert (m.citations, m.uncited) == (None, None)
    assert m.undefined == dict.fromkeys(("citations", "uncited"), "citations were not asked for")


TEXTS = st.sampled_from(["", "a", "a b", "?!", "c"])
KINDS = st.sampled_from(["thought", "comment", "idea", "facilitation", "vote"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # it makes a session anew each time
@given(data=st.data(), count=st.integers(0, 12))
def test_every_measure_is_finite_and_bounded_or_has_a_reason(made: Make, data: st.DataObject, count: int) -> None:
    said: list[tuple[str, int, str, list[str]]] = []
    ids: list[str] = []
    numbers: dict[str, int] = {}
    for _ in range(count):
        kind = data.draw(KINDS)
        ideas = [i for i in ids if i[0] == "I"]
        if kind == "vote" and not ideas:
            continue
        cites = [data.draw(st.sampled_from(ideas))] if kind == "vote" else data.draw(subsets(ids))
        said.append((kind, data.draw(st.integers(1, 3)), data.draw(TEXTS), cites))
        numbers[kind] = numbers.get(kind, 0) + 1
        ids.append(f"{kind[0].upper()}{numbers[kind]}")
    m = made(["X", "Y", "Z"], said).measures(Words())
    values = {k: v for k, v in asdict(m).items() if k not in ("influence", "undefined")}
    for name, value in values.items():
        assert (value is None) == (name in m.undefined)
        assert value is None or (math.isfinite(value) and value >= -1e-9)
    for name in ("absorption", "uncited", "distinct_1", "distinct_2", "order", "balance"):
        assert values[name] is None or 0 <= values[name] <= 1 + 1e-9
    assert all(v is None or 0 <= v <= 1 for v in m.influence.values())


def subsets(ids: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(ids), unique=True, max_size=3) if ids else st.just([])


# ---------------------------------------------------------------- texts


def test_texts_by_hand() -> None:
    found = text_diversity(["red kite", "blue sea", "red sea"], Words())
    assert found.n == 3
    assert found.distance == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert found.distinct_1 == 4 / 6
    assert found.distinct_2 == 1.0
    assert found.undefined == {}


def test_only_texts_that_are_good_enough_are_measured() -> None:
    texts = ["red kite", "blue sea", "red sea", "red kite"]
    gated = text_diversity(texts, Words(), quality=[6, 6.5, 5.9, None], at_least=6)
    assert gated == text_diversity(texts[:2], Words())
    assert gated.n == 2
    assert text_diversity(texts, Words(), quality=[1, 1, 1, 1], at_least=6).n == 0
    assert text_diversity(texts, Words(), quality=[float("nan"), 7, 7, 7], at_least=6).n == 3
    with pytest.raises(ValueError, match="zip"):
        text_diversity(texts, Words(), quality=[6, 6])


@pytest.mark.parametrize("texts", [[], ["a kite"], ["kite"]])
def test_fewer_than_two_texts_have_no_diversity(texts: list[str]) -> None:
    found = text_diversity(texts, Words())
    assert found.n == len(texts)
    assert {name: found.undefined[name] for name in SPREAD} == dict.fromkeys(SPREAD, "fewer than two texts")
    assert all(getattr(found, name) is None for name in SPREAD)
    assert ("distinct_1" in found.undefined) == (not texts)
    assert found.undefined.get("distinct_2") == (None if texts == ["a kite"] else "no two words next to each other")
    assert set(found.undefined) == {k for k, v in asdict(found).items() if v is None}


@given(st.lists(st.text(max_size=12), max_size=6))
def test_texts_of_any_kind_give_finite_values(texts: list[str]) -> None:
    found = text_diversity(texts, Words())
    for name, value in asdict(found).items():
        if name not in ("n", "undefined"):
            assert (value is None) == (name in found.undefined)
            assert value is None or math.isfinite(value)
