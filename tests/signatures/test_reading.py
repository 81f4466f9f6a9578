from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from salon.signatures.reading import (
    Reading,
    read_choice,
    read_ids,
    read_name,
    read_number,
    read_text,
    shorten,
)

TEXTS = st.text(st.characters(exclude_categories=()), max_size=80)  # lone surrogates and NUL included
PIECES = st.lists(
    st.sampled_from(
        [
            *"0123456789 ,.;:-/%'\"`*[](){}#\n\x00�８٨½²",
            "I",
            "C",
            "T1",
            " eight ",
            "ten",
            "out of ",
            "and ",
            "to ",
            "score ",
            "idea ",
            "comments ",
            "None",
            "null",
            "```",
            "<think>",
            "</think>",
            "[[ ## completed ## ]]",
            "between ",
            "not ",
            "move on",
            "move",
            "pass",
            "Title: ",
            "…",
            "\u200d",
            "é",
            "1e999",
            "/10",
        ]
    ),
    max_size=14,
).map("".join)
STRINGS = TEXTS | PIECES
SCALARS = STRINGS | st.none() | st.booleans() | st.integers() | st.floats() | st.just(10**400)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["score", "id", "ids", "text", "name", "choice", "idea", "I3"]), inner)
        | st.dictionaries(STRINGS, inner, max_size=3)
    ),
    max_leaves=8,
)
OPTIONS = ("pass", "comment", "move", "move_on")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (8, 8),
        (8.5, 8.5),
        (Decimal("8.5"), 8.5),
        (Fraction(17, 2), 8.5),
        ("8/10", 8),
        ("8 / 10 (80%)", 8),
        ("８／１０", 8),
        ("80%", 8),
        ("80 percent", 8),
        ("8.5", 8.5),
        ("8,5", 8.5),
        ("８", 8),
        ("٨", 8),
        ("८", 8),
        ("eight", 8),
        ("Nine!", 9),
        ("eight out of ten", 8),
        ("4 out of five", 8),
        ("4 out of 5 stars", 8),
        ("eight - because it is new", 8),
        (" 8 ", 8),
        ('"8"', 8),
        ("**8**", 8),
        ("`8`", 8),
        ("8.", 8),
        ("8️⃣", 8),
        ("Score: 8", 8),
        ("score=8", 8),
        ("**Score:** 8", 8),
        ("Rating: **7**/10", 7),
        ("Rating(8)", 8),
        ("8 - because...", 8),
        ("8 - because it has 3 strengths", 8),
        ("8\n\nReason: 3 things", 8),
        ("4/5", 8),
        ("I'd give it 4/5, with 2 caveats", 8),
        ("I would give it an eight", 8),
        ("I3 is great: 8", 8),
        ("GPT-4 says 8", 8),
        ("3 people liked it, score 8", 8),
        ("The idea is known (2 products), so 8", 8),
        ("Score: 7, but after all. Final score: 8", 8),
        ("I am 90% sure, 8", 8),
        ("On a scale from 1 to 10, I'd say 8", 8),
        ("8 (1-10)", 8),
        ("between 7 and 8", 7.5),
        ("between seven and eight", 7.5),
        ("7-8", 7.5),
        ("7–8/10", 7.5),
        ("7 or 8", 7.5),
        ("```json\n8\n```", 8),
        ('{"score": 8}', 8),
        ('{"score": 8', 8),
        ("{'score': 8}", 8),
        ("<think>a 3 perhaps</think>\n8", 8),
        ("8 [[ ## completed ## ]]", 8),
        ([8], 8),
        (["8/10"], 8),
        (["because", 8], 8),
        ({"score": 8}, 8),
        ({"Rating": "8/10", "reason": "x"}, 8),
        ({"value": {"value": 8}}, 8),
        ({"confidence": [8]}, 8),
    ],
)
def test_numbers_are_read(value: object, number: float) -> None:
    assert read_number(value, 1, 10) == Reading(number, False)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (15, 10),
        ("15", 10),
        ("12/10", 10),
        ("120%", 10),
        ("1,000", 10),
        (10**400, 10),
        (-(10**400), 1),
        (-3, 1),
        ("-3", 1),
        ("−3", 1),
        ("Score: -3", 1),
        ("0%", 1),
        (0.99, 1),
    ],
)
def test_numbers_outside_the_scale_are_clamped(value: object, number: float) -> None:
    assert read_number(value, 1, 10) == Reading(number, True)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        "",
        " ",
        "null",
        "n/a",
        "None",
        float("nan"),
        float("inf"),
        "NaN",
        "inf",
        "1e999",
        [],
        [7, 8],
        "[7, 8]",
        "7, 8",
        {},
        {"note": 8},
        {"score": 7, "confidence": 8},
        {"score": None},
        {8},
        b"8",
        "no idea",
        "one of the best",
        "two thoughts on this",
        "none",
        "eighty",
        "8th",
        "½",
        "1/0",
        "2024-01-01",
        "1-10",
        "from 1 to 10",
        "novelty 7/10, use 9/10",
        "I3",
        "V1.2",
        "<think>8",
        "7 from me, 8 from him",
    ],
)
def test_what_is_no_number_is_refused_in_one_line(value: object) -> None:
    with pytest.raises(ValueError, match="no number from 1 to 10 could be read") as caught:
        read_number(value, 1, 10)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 120


def test_shares_follow_the_scale() -> None:
    assert read_number("80%", 0, 1).value == pytest.approx(0.8)
    assert read_number("4/5", 0, 100).value == 80
    assert read_number("8/100", 0, 100).value == 8


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        ("I like I1, i2 and IDEA-3; see C 12, [C4](x), #I7, Idea 5, comment 6", "I1 I2 I3 C12 C4 I7 I5 C6"),
        (["I1", "C2", "I1"], "I1 C2 I1"),
        ([{"id": "I1"}, {"id": "i2", "text": "grows out of C4"}], "I1 I2"),
        ('["I1", "I2"]', "I1 I2"),
        ('```json\n["I1", "I2"]\n```', "I1 I2"),
        ('[{"id": "I1", "text": "grows out of C4"}]', "I1"),
        ("['I1', 'I2']", "I1 I2"),
        ("[I1, I2]", "I1 I2"),
        ("I1,I2", "I1 I2"),
        ("I1 I2", "I1 I2"),
        ("- I1\n- I2", "I1 I2"),
        ("1. I3\n2. I5", "I3 I5"),
        ("Ｉ１、Ｃ２", "I1 C2"),
        ("I٣", "I3"),
        ("I007", "I7"),
        ("**I3**, _C4_, `T5`, (I6)", "I3 C4 T5 I6"),
        ("Thought 1, comment-2, idea_3, vote 4, Facilitator 5, human 6, summary 7", "T1 C2 I3 V4 F5 U6 S7"),
        ("ideas 5, 6 and 7; comments 1 & 2", "I5 I6 I7 C1 C2"),
        ("Idea 5, 6 people", "I5"),
        ("idea no. 4, Idea #5", "I4 I5"),
        ("I#4 I-5 I_6 C-7", "I4 I5 I6 C7"),
        ("I1-I3", "I1 I3"),
        ("I 2", "I2"),
        ("I 2, I 3", "I2 I3"),
        (["I 2"], "I2"),
        ("then I 2 agree with C3", "C3"),
        ("you and I 2nd that", ""),
        ("it's 3, a C 3", "C3"),
        ("C3PO, T1000x, V1.2, PIC4, I12345678901", ""),
        ("U2's and I3's", "U2 I3"),
        ({"ids": ["I1"]}, "I1"),
        ({"idea": 3}, "I3"),
        ({"I1": "good", "I4": 9}, "I1 I4"),
        ({"first": "I4", "second": "I7"}, "I4 I7"),
        ("<think>I9</think>I1", "I1"),
        (None, ""),
        ("", ""),
        ("none", ""),
        ([], ""),
        (True, ""),
        (3, ""),
        ([1, 2], ""),
        (float("nan"), ""),
        ("[" * 5000, ""),
    ],
)
def test_ids_are_read(value: object, ids: str) -> None:
    assert read_ids(value) == ids.split()


@pytest.mark.parametrize("value", [[3, "5", 3], "3, 5 and 3", "[3, 5, 3]", ["I3", 5, "Idea 3"], {"votes": [3, 5, 3]}])
def test_bare_numbers_get_the_kind_that_is_asked_for(value: object) -> None:
    assert read_ids(value, "I") == ["I3", "I5", "I3"]


def test_a_number_in_prose_is_no_bare_id() -> None:
    assert read_ids("I have 2 votes: I3", "I") == ["I3"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("hello", "hello"),
        ("  hello\r\nyou \n", "hello\nyou"),
        ('"hello"', "hello"),
        ("“hello”", "hello"),
        ("**hello**", "hello"),
        ('"A" and "B"', '"A" and "B"'),
        ("Comment: hello", "hello"),
        ('**Comment:** "hello"', "hello"),
        ("My idea: hello", "hello"),
        ("Question: why?", "Question: why?"),
        ('Title("hello")', "hello"),
        ("```\nhello\n```", "hello"),
        ("```\nhello", "hello"),
        ('```json\n{"text": "hello"}\n```', "hello"),
        ('["hello", "you"]', "hello\nyou"),
        ("<think>hm</think>hello", "hello"),
        ("hm</think>hello", "hello"),
        ("hello<think>hm", "hello"),
        ("hello [[ ## completed ## ]]", "hello"),
        ("[[ ## comment ## ]] hello", "hello"),
        ("\ufeff\u200bhello\u3000", "hello"),
        ("a\x00b\ud800c", "a\ufffdb\ufffdc"),
        ("\ud83d\ude00", "😀"),
        ("see [I3](x), use {app}", "see [I3](x), use {app}"),
        ("[I3] is a start", "[I3] is a start"),
        (42, "42"),
        (4.5, "4.5"),
        (["hello", None, "you"], "hello\nyou"),
        ([{"text": "hello"}], "hello"),
        ({"comment": "hello", "n": 1}, "hello"),
        ({"anything": "hello", "n": 1}, "hello"),
    ],
)
def test_texts_are_read(value: object, text: str) -> None:
    assert read_text(value, 100) == text


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        " \n",
        "null",
        "None.",
        "N/A",
        "[]",
        "{}",
        [],
        {},
        {"a": "x", "b": "y"},
        True,
        float("nan"),
        "\u200b\ufeff",
        "\x00",
        "<think>never closed",
        '""',
        "```\n```",
        "Comment:",
        "[[ ## completed ## ]]",
    ],
)
def test_what_is_no_text_is_refused_or_empty(value: object) -> None:
    with pytest.raises(ValueError, match="no text"):
        read_text(value, 10)
    assert read_text(value, 10, allow_empty=True) == ""


def test_texts_are_cut_at_words() -> None:
    assert read_text("one two three", 13) == "one two three"
    assert read_text("one two three", 12) == "one two…"
    assert read_text("one two, three", 9) == "one two…"
    assert read_text("x" * 50, 10) == "x" * 9 + "…"
    assert read_text("e\u0301" * 50, 10) == "e\u0301" * 4 + "…"
    assert shorten("ab", 1) == "…"
    with pytest.raises(ValueError, match="cannot be cut"):
        shorten("", 0)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("Ann Lee\nA nurse", "Ann Lee"),
        ("- **Ann Lee**", "Ann Lee"),
        ("1. Ann.", "Ann"),
        ("Dr. Ann Jr.", "Dr. Ann Jr."),
        ("Name: Ann", "Ann"),
        ('"Ann"', "Ann"),
        (["Ann", "Bob"], "Ann"),
        ({"name": "Ann"}, "Ann"),
        ("李 雷", "李 雷"),
        ('{"name": "Ann"}', "Ann"),
        (" Ann\xa0  Lee ,", "Ann Lee"),
    ],
)
def test_names_are_read(value: object, name: str) -> None:
    assert read_name(value) == name


@pytest.mark.parametrize("value", [None, "", "none", [], {}, {"age": 3}, "null"])
def test_what_is_no_name_is_refused_or_empty(value: object) -> None:
    with pytest.raises(ValueError, match="no name"):
        read_name(value)
    assert read_name(value, allow_empty=True) == ""


@pytest.mark.parametrize(
    ("value", "option"),
    [
        ("pass", "pass"),
        ("PASS.", "pass"),
        ("'pass'", "pass"),
        ("ｐａｓｓ", "pass"),
        ("**pass**", "pass"),
        ("I would choose: pass", "pass"),
        ("pass, since I have nothing to add", "pass"),
        (["pass"], "pass"),
        ({"action": "pass", "why": "comment"}, "pass"),
        ('{"choice": "pass"}', "pass"),
        ("don't pass; comment", "comment"),
        ("move on", "move_on"),
        ("Move-On", "move_on"),
        ("let us move on.", "move_on"),
        ("move", "move"),
    ],
)
def test_choices_are_read(value: object, option: str) -> None:
    assert read_choice(value, OPTIONS) == option


@pytest.mark.parametrize("value", ["", None, "pass or comment", "passing", "I would not pass", ["pass", "move"], 3, {}])
def test_what_is_no_single_choice_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="could be read"):
        read_choice(value, OPTIONS)


@settings(deadline=None)
@given(VALUES)
def test_any_value_is_a_number_in_the_scale_or_refused(value: object) -> None:
    try:
        number, _ = read_number(value, 1, 10)
    except ValueError:
        return
    assert 1 <= number <= 10


@settings(deadline=None)
@given(st.floats(1, 10))
def test_numbers_come_back_as_written(number: float) -> None:
    for written in (
        number,
        f"{number:.6f}",
        f"Score: {number:.6f}",
        f"{number:.6f}/10",
        f"{number * 10:.6f}%",
    ):
        assert read_number(written, 1, 10).value == pytest.approx(number, abs=1e-6)


@settings(deadline=None)
@given(VALUES, st.sampled_from(["", "I"]))
def test_ids_are_always_ids(value: object, bare: str) -> None:
    assert all(re.fullmatch(r"[TCIVFUS][0-9]+", one) for one in read_ids(value, bare))


@settings(deadline=None)
@given(st.lists(st.from_regex(r"[TCIVFUS](0|[1-9][0-9]{0,4})", fullmatch=True), max_size=12))
def test_ids_come_back_as_written(ids: list[str]) -> None:
    for written in (
        ids,
        [{"id": one} for one in ids],
        ", ".join(ids),
        str(ids),
        "\n".join(f"- {one}" for one in ids),
    ):
        assert read_ids(written) == ids


@settings(deadline=None)
@given(VALUES, st.integers(1, 60))
def test_texts_are_bounded_and_can_be_written(value: object, limit: int) -> None:
    text = read_text(value, limit, allow_empty=True)
    assert len(text) <= limit
    text.encode()
    assert "\x00" not in text


@settings(deadline=None)
@given(VALUES)
def test_names_are_one_line(value: object) -> None:
    name = read_name(value, allow_empty=True)
    assert len(name.splitlines()) <= 1
    name.encode()


@settings(deadline=None)
@given(VALUES)
def test_choices_are_options_or_refused(value: object) -> None:
    try:
        option = read_choice(value, OPTIONS)
    except ValueError:
        return
    assert option in OPTIONS
