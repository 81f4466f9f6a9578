"""The forms of a session: names, the transcript, and what hostile texts become in Markdown and CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from salon.modules.entries import entries, transcript_csv, transcript_markdown
from salon.modules.events import (
    Consensus,
    Declined,
    Duplicate,
    Failure,
    Floor,
    Left,
    Rated,
    Round,
)
from salon.modules.exports import FORMATS, export
from salon.modules.files import RESULT_NAMES, safe_cell

from salon import Session, UserError

Made = Callable[..., Session]


@pytest.fixture
def small(made: Made) -> Session:
    said = [
        ("thought", 1, "rain again", []),
        ("comment", 1, "wet hands", ["T1"]),
        ("facilitation", 2, "and you?", []),
        ("idea", 2, "Gloves", ["C1", "T1"]),
        ("vote", 1, "warm", ["I1"]),
    ]
    return made(["Ann", "Bo"], said)


def test_every_form_by_its_file_name(small: Session) -> None:
    assert list(FORMATS) == [
        "ideas.md", "ideas.csv", "transcript.md", "transcript.csv", "session.json", "session.schema.json",
        "lineage.graphml", "lineage.dot", "lineage.mmd", "lineage.json",
    ]  # fmt: skip
    assert set(RESULT_NAMES) <= FORMATS.keys()
    for name, write in FORMATS.items():
        assert write(small) == export(small, name) != ""
    assert "T1" in export(small, "lineage.mmd", "I1")
    assert export(small, "ideas.md", "I1") == export(small, "ideas.md")
    with pytest.raises(UserError, match="no idea 'I7'"):
        export(small, "lineage.mmd", "I7")
    with pytest.raises(KeyError):
        export(small, "ideas.pdf")


def test_the_schema_is_the_same_for_all_sessions(small: Session, made: Made) -> None:
    schema = export(small, "session.schema.json")
    assert schema == export(made(["Zoe"], []), "session.schema.json")
    assert json.loads(schema)["title"] == "Session"


def test_the_transcript_tells_who_said_what_when_and_why(small: Session) -> None:
    assert transcript_markdown(small) == (
        "# Tea\n\nTranscript of a Roundtable. Status: complete (all is said).\n\n"
        "- **Ann**, joined (turn 0; minute 0.0): Ann\n"
        "- **Bo**, joined (turn 0; minute 0.0): Bo\n\n"
        "## discussion: it began, minute 0.5\n\n"
        "- **Ann**, T1 thought (turn 1; minute 0.5; private): rain again\n"
        "- **Ann**, C1 comment (turn 1; minute 0.5; from T1): wet hands\n"
        "- **Bo**, F1 facilitation (turn 1; minute 0.5; private): and you?\n"
        "- **Bo**, I1 idea (turn 1; minute 0.5; from C1, T1): Gloves. That is: Gloves\n"
        "- **Ann**, V1 vote (turn 1; minute 0.5; from I1): warm\n"
    )
    rows = list(csv.DictReader(io.StringIO(transcript_csv(small))))
    assert [row["id"] for row in rows] == ["", "", "", "T1", "C1", "F1", "I1", "V1"]
    assert [row["private"] for row in rows[3:]] == ["True", "False", "True", "False", "False"]
    assert rows[6] == {
        "n": "6", "turn": "1", "minute": "0.5", "kind": "idea", "id": "I1", "author": "Bo", "private": "False",
        "cites": "C1 T1", "text": "Gloves. That is: Gloves",
    }  # fmt: skip


def test_the_course_is_told_in_the_transcript(small: Session) -> None:
    place: dict[str, Any] = {"turn": 2, "minute": 1.0}
    happened = [
        (Rated(n=8, expert="P1", raw=4, score=4.5, would_add="a hat", **place), "Ann", "4.5 of 10: a hat"),
        (Declined(n=9, expert="P2", **place), "Bo", "has nothing to add"),
        (Duplicate(n=10, persona="P1", title="Mitts", idea="I1", cosine=0.9, quota_returned=True, **place), "Ann",
         "Mitts (too close to I1)"),
        (Round(n=11, round=1, distance=0.25, vendi=2.0, **place), "", "round 1 is written, mean distance 0.250"),
        (Round(n=12, round=2, distance=None, vendi=None, **place), "", "round 2 is written"),
        (Consensus(n=13, idea="I1", order=[], decided=True, reason="warmest", **place), "", "I1 is chosen: warmest"),
        (Consensus(n=14, idea="", order=[], decided=False, reason="none", **place), "", "nothing is chosen: none"),
        (Failure(n=15, key="t/x/P2", speaker="P2", error="timeout", **place), "Bo", "timeout"),
        (Left(n=16, persona="P2", reason="silent", **place), "Bo", "silent"),
    ]  # fmt: skip
    before = len(list(entries(small)))
    for event, _, _ in happened:
        small.add(event)
    small.add(Floor(n=17, reason="no reader misses this", **place))
    told = list(entries(small))[before:]
    assert [(entry.author, entry.text, entry.id) for entry in told] == [(who, text, "") for _, who, text in happened]
    assert [entry.id for entry in entries(small, course=False)] == ["T1", "C1", "F1", "I1", "V1"]


def test_an_empty_session_has_every_form(made: Made) -> None:
    session = made([], [])
    assert list(csv.reader(io.StringIO(export(session, "ideas.csv"))))[1:] == []
    assert len(list(csv.reader(io.StringIO(transcript_csv(session))))) == 2  # the phase
    assert "## discussion" in transcript_markdown(session)


# ---------------------------------------------------------------- hostile texts


LIVE = re.compile(
    r"<(?!\d)|(?<!\\)(?:\\\\)*\[[^\]]*(?<!\\)\]\(|(?<!\\)[`|]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\ud800-\udfff]"
)


def test_no_text_comes_to_life_in_markdown(hostile: Session) -> None:
    for name in ("ideas.md", "transcript.md"):
        text = export(hostile, name)
        own = re.sub(r"(?m)^\|.*\|$", "", text)  # the tables that salon draws
        assert not LIVE.findall(own), name
        heads = [line for line in text.split("\n") if line.startswith("#")]
        assert all(re.match(r"#{1,2} \S", line) for line in heads)
        assert len([h for h in heads if h.startswith("# ")]) == 1
    items = [line for line in export(hostile, "transcript.md").split("\n") if line.startswith("- ")]
    assert len(items) == len(list(entries(hostile))) - 1  # all but the phase, each on one line


def test_no_cell_is_a_formula_or_breaks_its_row(hostile: Session) -> None:
    for name in ("ideas.csv", "transcript.csv"):
        text = export(hostile, name)
        rows = list(csv.reader(io.StringIO(text, newline="")))
        assert {len(row) for row in rows} == {len(rows[0])}
        cells = [cell for row in rows for cell in row if cell]
        assert not [cell for cell in cells if cell.strip()[:1] in set("=+-@＝＋－＠") or cell[0] in "\t\r"]
        assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]", text)
    assert len(list(csv.reader(io.StringIO(export(hostile, "ideas.csv"), newline="")))) == 1 + len(hostile.ideas)
    table = list(csv.DictReader(io.StringIO(export(hostile, "transcript.csv"), newline="")))
    said = [row["text"] for row in table if row["kind"] == "comment"]
    assert "'=1+1" in said
    assert "'＝1+1" in said
    assert "{0} {x} %s" in said
    assert "<script>alert(1)</script>" in said


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"), ("\t=1+1", "'=1+1"), ("\ttab", "'tab"), ("  =1", "'=1"), ("＝1", "'＝1"), ("－1", "'－1"),
        ("\x00=1", "\ufffd=1"), ("a=1", "a=1"), (-3, -3), (0.5, 0.5), ("", ""), ("line\r\nbreak", "line\nbreak"),
    ],
)  # fmt: skip
def test_cells(value: object, cell: object) -> None:
    assert safe_cell(value) == cell
