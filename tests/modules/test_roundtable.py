"""The roundtable: every part of a session, with scripted replies."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import dspy
import pytest
from salon.modules import Embedder, Roundtable
from salon.modules.events import visible_to
from salon.modules.files import ideas_markdown
from salon.modules.run import WORDS_PER_MINUTE
from salon.signatures import Persona

from salon.errors import PersonaError, UserError
from salon.testing import LoopbackServer

Hold = Callable[..., Any]


def section(text: str, name: str) -> str:
    """Return one section of a prompt."""
    return text.partition(f"[[ ## {name} ## ]]\n")[2].partition("\n\n")[0]


def eager(**eagerness: float) -> Callable[[Any], dict[str, Any]]:
    """Think with an eagerness by persona; those not named pass."""
    return lambda call: (
        {"eagerness": eagerness[call.who]} if call.who in eagerness else {"eagerness": 0, "wants": "pass"}
    )


# ---------------------------------------------------------------- personas


def test_personas_are_invented_by_one_cast_and_a_sketch_each(hold: Hold) -> None:
    held = hold(3, turns=0)
    assert len(held.asked("cast")) == 1
    assert len(held.asked("sketch")) == 3
    joined = list(held.session.personas.values())
    assert [(p.name, p.role) for p in joined] == [(f"Guest{n}", f"role{n}") for n in (1, 2, 3)]
    assert len({p.sketch for p in joined}) == 3
    assert not any(p.regenerated for p in joined)
    assert "60 to 80 words" in held.asked("sketch")[0].text


@pytest.mark.parametrize("written", [2, 9])
def test_a_cast_of_another_size_is_filled_up_or_cut(hold: Hold, written: int) -> None:
    cast = {"people": [{"name": f"N{n}", "role": "r"} for n in range(written)]}
    held = hold(4, {"cast": cast}, turns=0)
    assert len(held.session.personas) == 4


def test_a_person_of_the_cast_needs_no_role(hold: Hold) -> None:
    cast = {"people": [{"name": "Ann", "role": ""}, {"name": "Bo", "role": None}]}
    held = hold(2, {"cast": cast}, turns=0)
    assert [(p.name, p.role) for p in held.session.personas.values()] == [("Ann", ""), ("Bo", "")]
    assert held.asked("sketch")[0].text.count("1. Ann") >= 1


def test_near_identical_sketches_are_regenerated_exactly_once_and_then_reported(hold: Hold) -> None:
    held = hold(3, {"sketch": {"sketch": "the very same words"}}, turns=0)
    assert len(held.asked("sketch")) == 3 + 2
    again = [call for call in held.asked("sketch") if "be nothing like it: the very same words" in call.text]
    assert len(again) == 2
    assert [p.regenerated for p in held.session.personas.values()] == [False, True, True]
    (distinctness,) = held.events("distinctness")
    assert distinctness.too_close == [("P1", "P2"), ("P1", "P3"), ("P2", "P3")]
    assert distinctness.matrix == [[1.0] * 3] * 3
    assert "Too close: P1 and P2, P1 and P3, P2 and P3." in ideas_markdown(held.session)


def test_a_regenerated_sketch_that_differs_is_taken(hold: Hold) -> None:
    def sketch(call: Any) -> dict[str, Any]:
        return {"sketch": "fresh and other" if "be nothing like it" in call.text else f"same {call.nth // 3}"}

    held = hold(2, {"sketch": sketch}, turns=0)
    assert [p.sketch for p in held.session.personas.values()] == ["same 0", "fresh and other"]
    assert held.events("distinctness")[0].too_close == []
    assert held.events("distinctness")[0].matrix[0][1] < 0.9


def test_a_pool_is_never_rewritten_but_measured(hold: Hold) -> None:
    pool = [Persona(name=n, sketch="All the same here.", extra={"age": "4"}) for n in ("Ann", "Bo")]
    held = hold(pool, turns=0)
    assert not held.asked("sketch")
    assert held.events("distinctness")[0].too_close == [("P1", "P2")]
    assert [p.extra for p in held.session.personas.values()] == [{"age": "4"}] * 2


@pytest.mark.parametrize("personas", [0, 1, -3, 101, "5", None, True, [], [{"name": "Ann", "sketch": "x"}]])
def test_numbers_of_personas_that_cannot_work(personas: Any) -> None:
    with pytest.raises(PersonaError):
        Roundtable(personas=personas)


@pytest.mark.parametrize(
    ("persona", "told"),
    [
        ({"name": "Ann"}, "sketch"),
        ({"name": " ", "sketch": "x"}, "name"),
        ({"name": "Ann", "sketch": "x", "age": "3"}, "age"),
        ({"name": ["Ann"], "sketch": "x"}, "name"),
    ],
)
def test_a_bad_persona_is_told_by_what_is_wrong(persona: Any, told: str) -> None:
    with pytest.raises(PersonaError, match=rf"is no persona: .*\b{told}\b"):
        Roundtable(personas=[persona, {"name": "Bo", "sketch": "y"}])


@pytest.mark.parametrize(
    "settings",
    [
        {"minutes": -1}, {"minutes": float("nan")}, {"minutes": "soon"}, {"turns": -1}, {"turns": 2.5},
        {"ideas": -1}, {"ideas": 1.5}, {"votes": 99}, {"ideas": True}, {"max_concurrency": 0},
    ],
)  # fmt: skip
def test_settings_that_cannot_work(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        Roundtable(personas=2, **settings)


@pytest.mark.parametrize("topic", [None, "", " \n", 7, "long " * 2000])
def test_topics_that_cannot_work_are_told_before_anything_is_spent(hold: Hold, topic: Any) -> None:
    with LoopbackServer() as server, dspy.context(lm=server.lm()), pytest.raises(UserError, match="topic"):
        Roundtable(personas=2)(topic=topic)
    assert server.count == 0


# ---------------------------------------------------------------- the cycle


def test_all_think_at_once_and_then_one_speaks(hold: Hold) -> None:
    held = hold(turns=3, ideas=0, server={"delay": 0.02})
    kinds = [call.kind for call in held.calls]
    assert kinds == ["think", "think", "think", "speak"] * 3
    assert held.server.max_in_flight == 3
    assert [e.turn for e in held.events("thought")] == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_the_three_tiers_in_a_session(hold: Hold) -> None:
    def speak(call: Any) -> dict[str, Any]:
        return {"nominates": "Cy" if call.who == "P1" else ""}

    held = hold(replies={"think": eager(P1=9, P2=2), "speak": speak}, turns=3, ideas=0)
    chosen = [(e.speaker, e.tier) for e in held.events("chosen")]
    assert chosen == [("P1", 2), ("P3", 1), ("P1", 2)]
    held = hold(replies={"think": eager()}, turns=6, ideas=0)
    assert {e.tier for e in held.events("chosen")} == {3}
    assert set(held.session.contributions.values()) == {2}


def test_a_question_by_name_gives_the_floor(hold: Hold) -> None:
    def speak(call: Any) -> dict[str, Any]:
        return {"comment": "I agree with Bo. What do you say, Cy?" if call.nth == 1 else "Well."}

    held = hold(replies={"think": eager(P1=9), "speak": speak}, turns=2, ideas=0)
    assert [(e.speaker, e.tier) for e in held.events("chosen")] == [("P1", 2), ("P3", 1)]
    assert held.events("comment")[0].addressed == ["P3"]


def test_nobody_speaks_twice_in_a_row(hold: Hold) -> None:
    held = hold(replies={"think": eager(P1=10), "speak": {"nominates": "Ann"}}, turns=8, ideas=0)
    speakers = [e.speaker for e in held.events("chosen")]
    assert all(a != b for a, b in itertools.pairwise(speakers))
    assert speakers[::2] == ["P1"] * 4


def test_a_speaker_that_wants_an_idea_proposes_it(hold: Hold) -> None:
    think = {"eagerness": 9, "wants": "idea"}
    held = hold(replies={"think": think}, turns=4, ideas=1)
    board = held.session.board
    assert [e.turn for e in board] == [1, 2, 3]
    assert [call.kind for call in held.calls if call.kind in ("speak", "propose")] == ["propose"] * 3 + ["speak"]
    assert held.phases == ["discussion", "ideation", "voting", "closed"]


def test_the_same_seed_makes_the_same_session_and_another_seed_another(hold: Hold) -> None:
    def log(seed: int) -> Any:
        return [e.model_dump() for e in hold(turns=6, ideas=0, seed=seed).events("chosen")]

    assert log(1) == log(1)
    assert len({json.dumps(log(seed)) for seed in range(4)}) > 1


# ---------------------------------------------------------------- who sees what


def test_private_thoughts_are_in_no_prompt_of_anybody_else(hold: Hold) -> None:
    facilitate = {"action": "redirect", "message": "Back to tea."}
    vote = {"votes": ["I1", "I2", "I3"], "reason": "secret-reason"}
    think = lambda call: {  # noqa: E731
        "thought": f"secret-{call.who}", "eagerness": 9, "wants": "idea" if call.nth == 2 else "comment"
    }  # fmt: skip
    held = hold(
        replies={"think": think, "facilitate": facilitate, "vote": vote},
        turns=12,
        facilitator=True,
        tuned={"facilitator_rest": 0, "prompt_tokens": 1500},
    )
    assert held.asked("summarise")
    seen = Counter[str]()
    for call in held.calls:
        assert "secret-reason" not in call.text
        for secret in re.findall(r"secret-(P\d)", call.text):
            assert secret == call.who
            seen[secret] += 1
    assert set(seen) == {"P1", "P2", "P3"}


def test_a_targeted_word_is_seen_by_its_target_alone(hold: Hold) -> None:
    def facilitate(call: Any) -> dict[str, Any]:
        words = {"action": "challenge", "target": "Bo", "message": "What would a sceptic say?"}
        return words if call.nth == 1 else {}

    held = hold(replies={"facilitate": facilitate, "vote": {"votes": ["I1"]}}, turns=4, facilitator=True)
    (word,) = held.events("facilitation")
    assert (word.target, word.turn) == ("P2", 1)
    told = {(call.kind, call.who) for call in held.calls if "sceptic" in call.text}
    assert {who for _, who in told} == {"P2"}
    assert ("think", "P2") in told
    assert "Facilitator, to you: What would a sceptic say?" in held.asked("think", "P2")[1].text
    assert [visible_to(word, v) for v in ("P1", "P2", "facilitator", "everyone")] == [False, True, True, False]


def test_a_public_word_is_seen_by_all(hold: Hold) -> None:
    def facilitate(call: Any) -> dict[str, Any]:
        return {"action": "redirect", "message": "Back to tea."} if call.nth == 1 else {}

    held = hold(replies={"facilitate": facilitate}, turns=2, facilitator=True)
    assert all("F1 Facilitator: Back to tea." in call.text for call in held.asked("think")[3:])


def test_citations_that_do_not_hold_are_dropped_and_counted(hold: Hold) -> None:
    def speak(call: Any) -> dict[str, Any]:
        if len(heard) == 0:
            heard.append(call.who)
            return {}
        mine = f"T{int(call.who[1]) + 3}"
        other = next(f"T{n}" for n in (1, 2, 3) if f"T{n + 3}" != mine)
        return {"cites": ["C1", "C2", mine, other, "C9", "C1", "C1", "F7"]}

    heard: list[str] = []
    held = hold(replies={"speak": speak}, turns=2, ideas=0)
    comment = held.events("comment")[1]
    assert comment.cites == ["C1", f"T{int(comment.author[1]) + 3}"]
    assert comment.dropped == {"itself": 1, "invisible": 1, "unknown": 2, "repeated": 2}
    assert held.session.measures(held.program.embedder).citations_dropped == 6


def test_a_move_on_that_was_refused_cannot_be_cited(hold: Hold) -> None:
    facilitate = {"action": "move_on", "message": "Enough of this."}
    held = hold(replies={"facilitate": facilitate, "speak": {"cites": ["F1"]}}, turns=8, facilitator=True, ideas=0)
    assert held.events("comment")[0].dropped == {"invisible": 1}


# ---------------------------------------------------------------- the facilitator


@pytest.mark.parametrize(
    "decision",
    [
        {},
        {"action": "no_action", "message": "I would rather say this."},
        {"action": "invite", "target": "Ann or so Bo", "message": "Both of you."},
        {"action": "invite", "target": "Dora", "message": "Dora?"},
        {"action": "invite", "target": "", "message": "Somebody?"},
        {"action": "redirect", "message": ""},
        {"action": "challenge", "target": "Bo", "message": None},
    ],
)
def test_the_facilitator_is_restrained(hold: Hold, decision: dict[str, Any]) -> None:
    held = hold(replies={"facilitate": decision}, turns=3, facilitator=True, ideas=0)
    assert len(held.asked("facilitate")) == 3
    assert not held.events("facilitation")
    assert held.session.contributions.keys() == {"P1", "P2", "P3"}


def test_the_facilitator_never_contributes_an_idea(hold: Hold) -> None:
    facilitate = {"action": "challenge", "message": "Idea: I9 a lamp. I propose it."}
    held = hold(replies={"facilitate": facilitate, "vote": {"votes": "all"}}, turns=4, facilitator=True)
    assert {idea.author for idea in held.session.board} <= {"P1", "P2", "P3"}
    assert len(held.session.board) == 6


def test_the_facilitator_rests_after_it_stepped_in(hold: Hold) -> None:
    facilitate = {"action": "redirect", "message": "Back to tea."}
    held = hold(replies={"facilitate": facilitate}, turns=7, facilitator=True, ideas=0)
    assert [e.turn for e in held.events("facilitation")] == [1, 4, 7]
    assert len(held.asked("facilitate")) == 3


@pytest.mark.parametrize(("target", "message"), [("Cy", "And you?"), ("P3", "Please."), ("cy", "?")])
def test_who_is_invited_speaks_next(hold: Hold, target: str, message: str) -> None:
    facilitate = {"action": "invite", "target": target, "message": message}
    held = hold(replies={"think": eager(P1=10), "facilitate": facilitate}, turns=1, facilitator=True)
    assert [(e.speaker, e.tier) for e in held.events("chosen")] == [("P3", 1)]


def test_who_is_invited_goes_before_who_was_nominated(hold: Hold) -> None:
    def facilitate(call: Any) -> dict[str, Any]:
        return {"action": "invite", "target": "Cy", "message": "Cy?"} if call.nth == 2 else {}

    speak = {"nominates": "Bo"}
    held = hold(replies={"think": eager(P1=10), "facilitate": facilitate, "speak": speak}, turns=2, facilitator=True)
    assert [(e.speaker, e.tier) for e in held.events("chosen")] == [("P1", 2), ("P3", 1)]


def test_who_is_invited_may_propose_an_idea(hold: Hold) -> None:
    facilitate = {"action": "invite", "target": "Cy", "message": "And you?"}
    held = hold(replies={"think": {"wants": "idea"}, "facilitate": facilitate}, turns=1, facilitator=True)
    assert held.session.board[0].author == "P3"
    assert held.session.board[0].turn == 1


@pytest.mark.parametrize("bound", ["turns", "minutes"])
def test_move_on_is_refused_before_half_and_heeded_after(hold: Hold, bound: str) -> None:
    comment = "word " * 150  # one minute
    bounds = {"turns": 8} if bound == "turns" else {"minutes": 8.0, "turns": None}
    held = hold(
        replies={
            "facilitate": {"action": "move_on", "message": "Let us go on."},
            "speak": {"comment": comment[:590]},
        },
        tuned={"facilitator_rest": 0},
        facilitator=True,
        ideas=0,
        **bounds,
    )
    refused = [e for e in held.events("facilitation") if not e.accepted]
    heeded = [e for e in held.events("facilitation") if e.accepted]
    assert refused
    assert len(heeded) == 1
    assert heeded[0] is held.events("facilitation")[-1]
    if bound == "turns":
        assert [e.turn for e in refused] == [1, 2, 3, 4]
        assert heeded[0].turn == 5
    else:
        assert all(e.minute < 4 for e in refused)
        assert heeded[0].minute >= 4
    assert heeded[0].turn not in {e.turn for e in held.events("chosen")}
    assert sum("Let us go on." in call.text for call in held.asked("think")) == 0


def test_the_discussion_is_summed_up_for_the_ideation(hold: Hold) -> None:
    held = hold(turns=2, facilitator=True)
    assert len(held.asked("summarise")) == 1
    assert all("S1 Facilitator sums up: Summary-x1." in call.text for call in held.asked("propose"))
    assert not hold(turns=2, facilitator=False).asked("summarise")
    assert not hold(turns=0, facilitator=True).asked("summarise")


# ---------------------------------------------------------------- duration


WORDS = 45  # of a comment: 0.3 minutes


@pytest.mark.parametrize(
    ("minutes", "turns", "spoken"),
    [
        (None, 3, 3), (None, 0, 0), (1.0, None, 4), (0.0, None, 0), (1.0, 2, 2), (0.5, 10, 2), (0.0, 5, 0),
        (5.0, 0, 0), (0.0, 0, 0), (0.01, None, 1),
    ],
)  # fmt: skip
def test_the_discussion_is_bounded_by_minutes_and_turns(
    hold: Hold, minutes: float | None, turns: int | None, spoken: int
) -> None:
    speak = {"comment": " ".join(["word"] * WORDS)}
    held = hold(replies={"speak": speak}, minutes=minutes, turns=turns, ideas=0)
    assert len(held.events("comment")) == spoken
    assert held.session.status == "complete"
    assert held.phases[0] == "discussion"


def test_without_any_bound_it_takes_five_minutes(hold: Hold) -> None:
    speak = {"comment": " ".join(["word"] * 100)}
    held = hold(replies={"speak": speak}, minutes=None, turns=None, ideas=0)
    assert len(held.events("comment")) == 8  # the eighth begins at 4.67 minutes


def test_the_session_clock_counts_spoken_words_alone(hold: Hold) -> None:
    speak = {"comment": " ".join(["word"] * 30)}
    propose = lambda call: {"title": f"t{call.who}", "description": f"{call.who} " * 14}  # noqa: E731
    held = hold(replies={"speak": speak, "propose": propose, "think": {"thought": "many " * 90}}, turns=2, ideas=1)
    assert [e.minute for e in held.events("comment")] == pytest.approx([0, 30 / WORDS_PER_MINUTE])
    ends = [60 / WORDS_PER_MINUTE + n * 15 / WORDS_PER_MINUTE for n in range(4)]
    assert [e.minute for e in held.events("idea")] == pytest.approx(ends[:3], abs=1e-4)
    assert held.events("phase")[-1].minute == pytest.approx(ends[3], abs=1e-4)


@pytest.mark.parametrize("failing", ["speak", "propose"])
def test_a_talk_in_which_no_word_is_said_ends_all_the_same(hold: Hold, failing: str) -> None:
    think = {"wants": "idea" if failing == "propose" else "comment", "eagerness": 9}
    held = hold(replies={"think": think, failing: "not readable"}, minutes=2.0, turns=None, ideas=1)
    assert len(held.events("chosen")) < 20
    assert held.phases[-1] == "closed"


# ---------------------------------------------------------------- ideation


def test_ideation_ends_when_the_quotas_are_used(hold: Hold) -> None:
    held = hold(turns=1, ideas=2)
    assert Counter(idea.author for idea in held.session.board) == {"P1": 2, "P2": 2, "P3": 2}
    assert [e.turn for e in held.session.board] == [2, 2, 2, 3, 3, 3]
    assert held.session.status == "complete"


def test_the_proposals_of_a_round_come_up_in_an_order_of_the_seed(hold: Hold) -> None:
    orders = {tuple(i.author for i in hold(turns=0, ideas=1, seed=s).session.board) for s in range(8)}
    assert len(orders) > 2


def test_ideation_ends_when_its_time_is_over(hold: Hold) -> None:
    propose = lambda call: {"description": f"w{call.who}{call.nth} " * 45}  # noqa: E731
    held = hold(replies={"propose": propose}, turns=0, ideas=20, tuned={"ideation_minutes": 2})
    assert len(held.session.board) == 9  # three rounds of 0.92 minutes
    assert held.session.status == "complete"


def test_no_time_for_ideation_means_none(hold: Hold) -> None:
    held = hold(turns=1, ideas=2, tuned={"ideation_minutes": 0})
    assert not held.asked("propose")
    assert (held.session.status, held.session.reason) == ("partial", "no idea was proposed")


def test_no_ideas_wanted_means_no_ideation_and_no_vote(hold: Hold) -> None:
    held = hold(turns=1, ideas=0)
    assert held.phases == ["discussion", "closed"]
    assert held.session.status == "complete"


def test_the_same_idea_of_all_is_one_idea_and_the_votes(hold: Hold) -> None:
    propose = {"title": "Tea cup", "description": "It keeps warm."}
    held = hold(replies={"propose": propose, "vote": {"votes": ["I1"]}}, turns=0, ideas=1)
    (idea,) = held.session.ideas
    assert idea.votes == 2
    assert [v.origin for v in held.events("vote")] == ["duplicate"] * 2
    assert idea.author not in idea.voters
    assert not held.asked("vote")  # all have voted for all they can
    measures = held.session.measures(held.program.embedder)
    assert measures.distance is None
    assert measures.undefined["distance"] == "fewer than two ideas"


def test_identical_ideas_that_are_let_in_have_distance_zero(hold: Hold) -> None:
    propose = {"title": "Tea cup", "description": "It keeps warm."}
    held = hold(replies={"propose": propose}, turns=0, ideas=1, tuned={"duplicate": 1.0}, embedder=Embedder())
    if len(held.session.board) == 1:  # the cosine of equal vectors may round to 1 or just under it
        assert held.events("duplicate")
    else:
        assert held.session.measures().distance == pytest.approx(0, abs=1e-6)


def test_a_duplicate_gives_its_quota_back_only_once(hold: Hold) -> None:
    propose = {"title": "Tea cup", "description": "It keeps warm."}
    held = hold(replies={"propose": propose}, turns=0, ideas=2)
    first = held.session.board[0].author
    for persona in ("P1", "P2", "P3"):
        assert len(held.asked("propose", persona)) == 3  # two, and one given back
        returned = [d.quota_returned for d in held.events("duplicate") if d.persona == persona]
        assert returned == ([True, False] if persona == first else [True, False, False])


def test_a_duplicate_of_ones_own_idea_is_no_vote_unless_that_is_allowed(hold: Hold) -> None:
    propose = lambda call: {"title": f"Cup {call.who}", "description": f"{call.who} " * 20}  # noqa: E731
    held = hold(("Ann", "Bo"), {"propose": propose}, turns=0, ideas=2, votes=1)
    assert not held.session.votes["I1"] + held.session.votes["I2"]
    held = hold(("Ann", "Bo"), {"propose": propose}, turns=0, ideas=2, votes=1, self_votes=True)
    assert [idea.votes for idea in held.session.ideas] == [1, 1]
    assert all(idea.author in idea.voters for idea in held.session.ideas)


def test_ideas_that_are_alike_are_told_by_the_packaged_model(hold: Hold) -> None:
    texts = {
        "P1": "A cup that keeps tea warm for hours.",
        "P2": "A mug which holds your tea warm for many hours.",
        "P3": "A night bus for dogs.",
    }
    propose = lambda call: {"title": "My idea", "description": texts[call.who]}  # noqa: E731
    held = hold(replies={"propose": propose}, turns=0, ideas=1, embedder=Embedder())
    assert len(held.session.board) == 2
    duplicates = held.events("duplicate")
    assert min(duplicate.cosine for duplicate in duplicates) >= 0.8
    assert len({duplicate.persona for duplicate in duplicates} & {"P1", "P2"}) == 1
    distance = held.session.measures().distance
    assert distance is not None
    assert distance > 0.3


def test_duplicates_keep_to_the_votes_of_a_persona(hold: Hold) -> None:
    propose = {"title": "Tea cup", "description": "It keeps warm."}
    held = hold(replies={"propose": propose}, turns=0, ideas=1, votes=0)
    assert held.session.ideas[0].votes == 0
    assert not held.events("vote")


# ---------------------------------------------------------------- voting


def test_ballots_are_counted_by_the_rules(hold: Hold) -> None:
    ballots = {
        "P1": ["I1", "I2", "I3", "I4", "I5", "I6", "I7"],
        "P2": "IDEA-1, idea 2 and I99",
        "P3": ["I2", "I2", "I2"],
    }
    vote = lambda call: {"votes": ballots[call.who]}  # noqa: E731
    held = hold(replies={"vote": vote}, turns=0, ideas=3, votes=5)
    own = {i.id: i.author for i in held.session.board}
    cast = [(v.author, v.idea) for v in held.events("vote")]
    assert len(cast) == len(set(cast))
    assert all(own[idea] != persona for persona, idea in cast)
    assert all(n <= 5 for n in Counter(persona for persona, _ in cast).values())
    by = {b.persona: b for b in held.events("ballot")}
    assert by["P1"].ideas == [i for i in ballots["P1"] if own[i] != "P1"][:5]
    assert sum(by["P1"].dropped.values()) == 7 - len(by["P1"].ideas)
    assert by["P2"].dropped["unknown"] == 1
    assert sum(by["P3"].dropped.values()) == 3 - len(by["P3"].ideas)
    assert [i.rank for i in held.session.ideas] == list(range(1, 10))
    assert [i.votes for i in held.session.ideas] == sorted((i.votes for i in held.session.ideas), reverse=True)
    assert sum(i.votes for i in held.session.ideas) == len(cast)


def test_equal_votes_are_ranked_by_who_came_first(hold: Hold) -> None:
    held = hold(turns=0, ideas=1)
    assert [i.id for i in held.session.ideas] == ["I1", "I2", "I3"]


def test_all_vote_at_once_and_see_the_whole_whiteboard(hold: Hold) -> None:
    held = hold(turns=0, ideas=1, server={"delay": lambda r: 0.05 if "votes" in r.fields else 0})
    assert held.server.max_in_flight == 3
    for call in held.asked("vote"):
        assert len(re.findall(r"^I\d .*\(.*\): a", section(call.text, "whiteboard"), re.M)) == 3
        (own,) = [i.id for i in held.session.board if i.author == call.who]
        assert f"You cannot vote for {own}." in call.text


def test_own_ideas_can_be_allowed(hold: Hold) -> None:
    held = hold(("Ann", "Bo"), {"vote": {"votes": ["I1", "I2"]}}, turns=0, ideas=1, self_votes=True)
    assert [i.votes for i in held.session.ideas] == [2, 2]


def test_an_empty_ballot_is_a_ballot(hold: Hold) -> None:
    held = hold(replies={"vote": {"votes": None}}, turns=0, ideas=1)
    assert [b.ideas for b in held.events("ballot")] == [[], [], []]
    assert held.session.status == "complete"


# ---------------------------------------------------------------- results


def test_the_result_holds_contributions_lineage_and_history(hold: Hold) -> None:
    speak = lambda call: {"cites": ["C1"] if "C1 " in call.text else []}  # noqa: E731
    propose = {"cites": ["C3", "T1", "T2", "T3"]}
    held = hold(replies={"speak": speak, "propose": propose}, turns=3, ideas=1)
    session = held.session
    assert sum(session.contributions.values()) == 6
    for idea in session.ideas:
        assert idea.cites[0] == "C3"
        assert session.lineage.depth(idea.id) == 2
        assert {"C1", "C3"} <= session.lineage.ancestors(idea.id)
    told = ideas_markdown(session)
    assert told.count("Proposed by") == 3
    assert "It builds on C3" in told
    measures = session.measures(held.program.embedder)
    assert measures.depth == 2
    assert measures.absorption is not None
    assert 0 < measures.absorption <= 1


def test_absorption_is_zero_where_there_was_no_discussion(hold: Hold) -> None:
    held = hold(turns=0, ideas=1)
    measures = held.session.measures(held.program.embedder)
    assert (measures.depth, measures.absorption) == (0, 0)


@pytest.mark.parametrize(
    ("bounds", "planned"),
    [
        ({"minutes": 5.0, "turns": None}, 5.0),
        ({"minutes": None, "turns": 10}, 3.0),
        ({"minutes": 25.0, "turns": 10}, 3.0),
        ({"minutes": 0.0, "turns": 10}, 0.0),
    ],
)
def test_the_expected_course_goes_by_the_earlier_bound(hold: Hold, bounds: dict[str, Any], planned: float) -> None:
    held = hold(replies={"speak": {"comment": "word " * 110}}, ideas=1, **bounds)
    plan = held.session.plan()
    assert plan.discussion == pytest.approx(planned)
    assert plan.ideas == 3
    course = plan.expected()
    assert (course[-1].ideas, course[-1].votes) == (3, 15)
    assert all(a.minute <= b.minute and a.ideas <= b.ideas for a, b in itertools.pairwise(course))
    points = held.session.trajectory()
    assert (points[-1].ideas, points[-1].votes) == (3, 0)
    assert all(a.minute <= b.minute and a.ideas <= b.ideas for a, b in itertools.pairwise(points))


# ---------------------------------------------------------------- one LM for all, per role, per persona


def test_every_persona_and_the_facilitator_can_have_a_model_of_its_own(hold: Hold) -> None:
    def lms(server: LoopbackServer) -> dict[str, Any]:
        reach = {"api_base": server.base_url, "api_key": "x"}
        return {name: dspy.LM(f"openai/model-{name}", **reach) for name in ("P1", "Bo", "facilitator")}

    held = hold(turns=2, facilitator=True, lms=lms, ideas=1)
    models = {(call.who or "facilitator"): set[str]() for call in held.calls}
    for call in held.calls:
        models[call.who or "facilitator"].add(call.model)
    assert models["P1"] == {"model-P1"}
    assert models["P2"] == {"model-Bo"}
    assert models["facilitator"] == {"model-facilitator"}
    assert models["P3"] == {held.server.model}


# ---------------------------------------------------------------- compaction


def test_two_hundred_long_turns_stay_within_a_small_context(hold: Hold) -> None:
    filler = "and so the talk goes on and on about cups and kettles " * 12

    def speak(call: Any) -> dict[str, Any]:
        ids = re.findall(r"^(C\d+) ", section(call.text, "transcript"), re.M)
        return {"comment": f"Remark {call.who}{call.nth} {filler}"[:600], "cites": ids[-1:] + ids[:1]}

    held = hold(
        replies={
            "speak": speak,
            "think": {"thought": filler, "eagerness": 7},
            "summarise": {"summary": filler * 2},
            "propose": lambda c: {"title": f"t{c.who}{c.nth} " * 9, "description": f"d{c.who}{c.nth} " * 80},
        },
        turns=200,
        facilitator=True,
        tuned={"facilitator_rest": 5},
        server={"context_tokens": 8192},
    )
    assert held.server.context_errors == 0
    assert len(held.events("comment")) == 200
    assert not held.events("failure")
    compactions = [s for s in held.events("summary") if s.purpose == "compaction"]
    assert 3 < len(compactions) < 40
    prompts = [call.text for call in held.asked("think", "P1")]
    grew = sum(b.startswith(a.partition("[[ ## whiteboard")[0].rstrip()) for a, b in itertools.pairwise(prompts))
    assert grew == len(prompts) - 1 - len(compactions)
    assert max(len(p.encode()) for p in prompts) / 3 <= 6000
    assert session_ids_known(held)


def session_ids_known(held: Any) -> bool:
    """Say whether every entity that a line in sight cites is in sight too, or could be after a compaction."""
    last = section(held.asked("think")[-1].text, "transcript")
    shown = re.findall(r"^([CIFS]\d+) ", last, re.M)
    entities = held.session.entities
    newest = [name for name in shown if entities[name].turn > entities[shown[-1]].turn - 5]
    return all(cited in shown for name in newest for cited in entities[name].cites[:1])


@pytest.mark.parametrize("script", ["漢字", "é", "🦊"])
def test_other_scripts_stay_within_it_too(hold: Hold, script: str) -> None:
    long = script * (600 // len(script))
    held = hold(
        [Persona(name=f"{script}{n}", sketch=f"Sketch of seat P{n}. {script * 300}") for n in (1, 2, 3)],
        replies={
            "speak": {"comment": long},
            "think": {"thought": long, "eagerness": 7},
            "summarise": {"summary": script * 900},
            "propose": lambda c: {"title": f"{script * 30} {c.who}{c.nth}", "description": f"{c.nth}{c.who} {long}"},
        },
        topic=script * 400,
        turns=25,
        ideas=6,
        facilitator=True,
        server={"context_tokens": 8192},
        tuned={"duplicate": 1.0},
    )
    assert held.server.context_errors == 0
    assert not held.events("failure")
    assert max(len(call.text.encode()) / 3 for call in held.calls) <= 6000 * 1.02


def test_an_idea_cannot_cite_one_of_its_own_round(hold: Callable[..., Any]) -> None:
    """Proposals of a round are made at once, so their authors saw none of the others."""
    held = hold(replies={"propose": {"cites": ["I1", "I2", "I3"]}}, turns=0, ideas=2)
    ideas = held.events("idea")
    first, second = ideas[:3], ideas[3:]
    assert [idea.cites for idea in first] == [[], [], []]
    assert sum(sum(idea.dropped.values()) for idea in first) == 9
    assert all(idea.cites == ["I1", "I2", "I3"] for idea in second)
