"""A session as pandas tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from salon import Session, UserError

Made = Callable[..., Session]
COLUMNS = {
    "ideas": ["rank", "id", "title", "description", "author", "votes", "voters", "cites", "depth", "program", "topic",
              "seed", "status"],
    "transcript": ["n", "turn", "minute", "kind", "id", "author", "private", "cites", "text"],
    "votes": ["id", "turn", "minute", "voter", "idea", "title", "origin", "reason"],
}  # fmt: skip
TYPES = {"rank": "int64", "votes": "int64", "depth": "int64", "n": "int64", "turn": "int64", "minute": "float64",
         "private": "bool"}  # fmt: skip


@pytest.fixture
def small(made: Made) -> Session:
    said = [
        ("comment", 1, "wet hands", []),
        ("thought", 2, "hm", ["C1"]),
        ("idea", 1, "Hat", []),
        ("idea", 2, "Gloves", ["C1", "T1"]),
        ("vote", 1, "warm", ["I2"]),
        ("vote", 2, "mine", ["I2"]),
    ]
    return made(["Ann", "Bo"], said, topic="Cold", seed=2**70)


def test_ideas(small: Session) -> None:
    frame = small.to_frame()
    assert frame.to_dict("records") == [
        {
            "rank": 1, "id": "I2", "title": "Gloves", "description": "That is: Gloves", "author": "Bo", "votes": 2,
            "voters": ["Ann", "Bo"], "cites": ["C1", "T1"], "depth": 2, "program": "Roundtable", "topic": "Cold",
            "seed": 2**70, "status": "complete",
        },
        {
            "rank": 2, "id": "I1", "title": "Hat", "description": "That is: Hat", "author": "Ann", "votes": 0,
            "voters": [], "cites": [], "depth": 0, "program": "Roundtable", "topic": "Cold", "seed": 2**70,
            "status": "complete",
        },
    ]  # fmt: skip
    assert list(frame["rank"]) == [idea.rank for idea in small.ideas]


def test_transcript_and_votes(small: Session) -> None:
    transcript, votes = small.to_frame("transcript"), small.to_frame("votes")
    assert list(transcript["id"]) == list(small.entities)
    assert list(transcript["private"]) == [False, True, False, False, False, False]
    assert transcript["cites"][3] == ["C1", "T1"]
    assert list(transcript["text"][:3]) == ["wet hands", "hm", "Hat. That is: Hat"]
    assert votes.to_dict("records")[0] == {
        "id": "V1", "turn": 1, "minute": 0.5, "voter": "Ann", "idea": "I2", "title": "Gloves", "origin": "ballot",
        "reason": "warm",
    }  # fmt: skip


@pytest.mark.parametrize("what", COLUMNS)
def test_columns_and_their_types_do_not_depend_on_what_was_said(
    what: str, small: Session, hostile: Session, made: Made
) -> None:
    for session in (small, hostile, made([], []), made(["Ann"], [])):
        frame = session.to_frame(what)
        assert list(frame.columns) == COLUMNS[what]
        assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
            name: TYPES.get(name, "object") for name in COLUMNS[what]
        }
    assert made([], []).to_frame(what).empty


def test_hostile_texts_are_kept_but_for_lone_surrogates(hostile: Session) -> None:
    said = hostile.to_frame("transcript").query("kind == 'comment'")["text"].tolist()
    assert "=1+1" in said
    assert "nul \0 bell \7 esc \x1b[31m" in said
    assert "lone ? surrogate" in said
    assert "\n".join(said).encode("utf-8")


def test_an_unknown_table_is_refused(small: Session) -> None:
    with pytest.raises(UserError, match=r"no table 'people'.*Ask for ideas, transcript, votes"):
        small.to_frame("people")
