"""Labels that are unique, and whole names found in what was said, in any script."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from salon.modules.names import addressed, labels, named


def labelled(*names: str) -> dict[str, str]:
    return labels(names, [f"P{n}" for n in range(1, len(names) + 1)])


CAST = labelled("Alex", "Alex ", "Ana María", "小明", "QA {lead}", "🦊", "None", "Facilitator", "Ann", "Anna")


# ---------------------------------------------------------------- labels


def test_labels_of_a_hostile_cast() -> None:
    assert list(CAST.values()) == [
        "Alex (P1)", "Alex (P2)", "Ana María", "小明", "QA {lead}", "🦊", "None (P7)", "Facilitator (P8)",
        "Ann", "Anna",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "names",
    [
        ("Alex", "ALEX"),
        ("Alex", "Ａｌｅｘ"),
        ("Alex", " Alex\n"),
        ("Ana  María", "Ana María"),
        ("Jose\u0301", "José"),
        ("x" * 80, "x" * 81),
        ("Alex", "Alex", "Alex (P1)"),
        ("Alex (P2)", "Alex", "Alex"),
        ("", " "),
        ("you", "Everyone", "NULL"),
    ],
)
def test_labels_are_unique_and_short(names: Sequence[str]) -> None:
    shown = list(labelled(*names).values())
    assert len({label.casefold() for label in shown}) == len(shown)
    assert all(label and len(label) < 80 and label == " ".join(label.split()) for label in shown)


@given(st.lists(st.text(max_size=12) | st.sampled_from(["Ann", "Ann (P1)", "P2", "None", "?"]), max_size=6))
def test_each_label_finds_its_own_persona_alone(names: list[str]) -> None:
    cast = labelled(*names)
    assert len(set(cast.values())) == len(names)
    for persona, label in cast.items():
        assert "\n" not in label
        if label.endswith(f"({persona})") or label == persona:
            assert persona in named(label, cast)
        assert persona in named(persona, cast)


# ---------------------------------------------------------------- whole names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Anna", ["P10"]),
        ("Ann", ["P9"]),
        ("I agree with Ann, and Anna's point.", ["P9", "P10"]),
        ("annals and Annabel", []),
        ("ANA MARÍA!", ["P3"]),
        ("Ana  Mari\u0301a", ["P3"]),
        ("Ana Mar", []),
        ("Ana", []),
        ("我同意小明的看法", ["P4"]),
        ("ask QA {lead} about it", ["P5"]),
        ("ask QA lead about it", []),
        ("what does 🦊 think", ["P6"]),
        ("None of us", []),
        ("nobody", []),
        ("None (P7)", ["P7"]),
        ("the facilitator said so", []),
        ("P8, please", ["P8"]),
        ("p8", ["P8"]),
        ("P88 and XP8", []),
        ("Alex", ["P1", "P2"]),
        ("Alex (P2)", ["P2"]),
        ("Alex, I mean P1", ["P1"]),
        ("ａｌｅｘ", ["P1", "P2"]),
        ("", []),
    ],
)
def test_names_of_a_hostile_cast(text: str, found: list[str]) -> None:
    assert named(text, CAST) == found


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("Олег", "Олег прав", "Олегом"),
        ("Νίκη", "η Νίκη, ναι", "Νίκης"),
        ("محمد", "يا محمد، قل", "محمدي"),
        ("דנה", "שאלו את דנה", "דנהל"),
        ("राम", "राम कहो", "रामपुर"),
        ("ยาย", "ถามยายสิ", "ยา"),
        ("ゆき", "ゆきさんはどう", "ゆ"),
        ("민수", "민수는 어때", "민"),
        ("田中 美咲", "田中 美咲さん", "田中"),
        ("Zoë", "for Zoë", "Zoëy"),
        ("O'Neil", "Mr O'Neil's", "Neil"),
        ("Jean-Luc", "so Jean-Luc said", "Jean"),
        ("C.J.", "ask C.J. now", "CJ"),
        ("a+b", "the a+b", "aab"),
    ],
)
def test_whole_names_in_any_script(name: str, inside: str, outside: str) -> None:
    cast = labelled(name, "Somebody Else")
    assert named(inside, cast) == ["P1"]
    assert named(outside, cast) == []


def test_the_longer_of_two_names_wins_where_both_match() -> None:
    cast = labelled("Alex", "Alex Kim", "Kim")
    assert named("Alex Kim", cast) == ["P2"]
    assert named("Alex Kim and Alex", cast) == ["P1", "P2"]
    assert named("Kim, Alex", cast) == ["P1", "P3"]


@pytest.mark.parametrize("name", ["?", "...", "-", " ", "\u200b", "!?"])
def test_a_name_without_a_letter_is_found_by_its_id_alone(name: str) -> None:
    cast = labelled(name, "Ann")
    assert named("What? Well... - yes!?", cast) == []
    assert named("P1?", cast) == ["P1"]


def test_a_persona_called_like_an_id_is_not_taken_for_it() -> None:
    cast = labelled("P2", "Ann")
    assert named("P2", cast) == ["P2"]
    assert named(cast["P1"], cast) == ["P1"]


# ---------------------------------------------------------------- who was addressed


@pytest.mark.parametrize(
    ("nomination", "said", "found"),
    [
        ("Ann", "Let us hear Anna?", ["P9"]),
        ("", "I agree with Ann. What do you think, Anna?", ["P10"]),
        ("", "Anna is right. Ann said so!", []),
        ("", "小明怎么看？", ["P4"]),
        ("", "هل توافق يا Ann؟ نعم.", ["P9"]),
        ("nobody in particular", "Anna, why?", ["P10"]),
        ("Facilitator", "", []),
        ("Ana María", "", ["P3"]),
        ("P3", "", ["P3"]),
        ("", "", []),
    ],
)
def test_who_was_addressed(nomination: str, said: str, found: list[str]) -> None:
    assert addressed(nomination, said, CAST, "P1") == found


def test_a_speaker_cannot_address_himself() -> None:
    assert addressed("Ann", "Anna, is Ann right?", CAST, "P9") == ["P10"]
    assert addressed("Ann", "Is Ann right?", CAST, "P9") == []


@pytest.mark.parametrize(
    "said",
    [
        "Dr. Amina Patel, what would you do?",
        "Costs matter. And you, Dr. Amina Patel?",
        "What would you do, Dr. Amina Patel? Not J. R.",
        "You are right, J. R. Ewing. What would Dr. Amina Patel do?",
    ],
)
def test_full_stops_in_names_do_not_end_a_question(said: str) -> None:
    assert addressed("", said, labelled("Dr. Amina Patel", "J. R. Ewing", "Bo"), "P3") == ["P1"]


@given(st.text(max_size=60), st.text(max_size=200), st.lists(st.text(max_size=10), min_size=1, max_size=5))
def test_any_text_names_only_who_is_there(nomination: str, said: str, names: list[str]) -> None:
    cast = labelled(*names)
    found = addressed(nomination, said, cast, "P1")
    assert set(found) <= set(cast) - {"P1"}
    assert found == sorted(set(found), key=lambda p: int(re.sub(r"\D", "", p)))
