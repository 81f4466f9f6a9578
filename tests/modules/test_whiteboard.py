"""Quotas and ballots: no tally may break the rules, whatever a ballot says."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from salon.modules.whiteboard import Quotas, count_ballot
from salon.signatures.fields import BallotIds

IDS = st.sampled_from([f"I{n}" for n in range(1, 9)])
ANY = IDS | st.sampled_from(["I0", "I99", "C1", "", "i1"])


@given(st.lists(ANY, max_size=30), st.sets(IDS), st.sets(IDS), st.sets(IDS), st.integers(min_value=-2, max_value=9))
def test_a_ballot_never_breaks_the_rules(
    ballot: list[str], ideas: set[str], own: set[str], voted: set[str], votes: int
) -> None:
    counted = count_ballot(ballot, ideas, own, voted, votes)
    assert len(counted.votes) == len(set(counted.votes)) <= max(votes, 0)
    assert set(counted.votes) <= ideas - own - voted
    assert len(counted.votes) + sum(counted.dropped.values()) == len(ballot)
    assert all(number > 0 for number in counted.dropped.values())
    allowed = [idea for idea in dict.fromkeys(ballot) if idea in ideas - own - voted]
    assert counted.votes == allowed[: max(votes, 0)]


def test_why_votes_do_not_count() -> None:
    ballot = ["I9", "I1", "I2", "I2", "I3", "I4", "I5"]
    counted = count_ballot(ballot, ["I1", "I2", "I3", "I4", "I5"], ["I1"], ["I3"], 2)
    assert counted.votes == ["I2", "I4"]
    assert counted.dropped == {"unknown": 1, "own": 1, "repeated": 2, "too many": 1}


def test_votes_as_models_write_them() -> None:
    ideas = [f"I{n}" for n in range(1, 8)]
    for written in ("IDEA-1, idea 2", '["I1", "I2"]', [1, 2], "1. I1\n2. I2", "I vote for I1 and I2."):
        assert count_ballot(BallotIds.read(written), ideas, [], [], 5).votes == ["I1", "I2"]
    nothing: Any
    for nothing in (None, "", "none", [], "I cannot decide"):
        assert count_ballot(BallotIds.read(nothing), ideas, [], [], 5).votes == []
    assert count_ballot(BallotIds.read("I1 I2 I3 I4 I5 I6 I7"), ideas, [], [], 5).dropped == {"too many": 2}


def test_an_idea_is_given_back_only_once() -> None:
    quotas = Quotas(2, 5)
    quotas.propose("a")
    assert quotas.ideas_left("a") == 1
    assert quotas.give_back("a")
    assert quotas.ideas_left("a") == 2
    for left in (1, 0):
        quotas.propose("a")
        assert not quotas.give_back("a")
        assert quotas.ideas_left("a") == left
    assert quotas.ideas_left("b") == 2


class Whiteboard(RuleBasedStateMachine):
    """Personas propose, get ideas back and fill in ballots in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.quotas = Quotas(2, 3)
        self.proposed: dict[str, int] = {"a": 0, "b": 0}
        self.votes: list[tuple[str, str]] = []

    @rule(persona=st.sampled_from("ab"), duplicate=st.booleans())
    def propose(self, persona: str, duplicate: bool) -> None:
        if self.quotas.ideas_left(persona) > 0:
            self.quotas.propose(persona)
            self.proposed[persona] += 1
            if duplicate:
                self.quotas.give_back(persona)

    @rule(persona=st.sampled_from("ab"), ballot=st.lists(IDS, max_size=8))
    def vote(self, persona: str, ballot: list[str]) -> None:
        ideas = ["I1", "I2", "I3", "I4", "I5"]
        voted, left = self.quotas.voted(persona), self.quotas.votes_left(persona)
        for idea in count_ballot(ballot, ideas, ["I1"], voted, left).votes:
            self.quotas.vote(persona, idea)
            self.votes.append((persona, idea))

    @invariant()
    def rules_hold(self) -> None:
        assert len(self.votes) == len(set(self.votes))
        for persona, proposed in self.proposed.items():
            assert proposed <= 3  # the quota, and one idea given back
            mine = [idea for voter, idea in self.votes if voter == persona]
            assert len(mine) <= 3
            assert "I1" not in mine
            assert self.quotas.votes_left(persona) == 3 - len(mine)
            assert set(self.quotas.voted(persona)) == set(mine)


TestWhiteboard = Whiteboard.TestCase
