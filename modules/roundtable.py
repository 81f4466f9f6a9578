"""Roundtable: personas discuss, put ideas on a whiteboard and vote, under a restrained facilitator.

After the virtual roundtable of Dorn, Khan and Mumford (arXiv 2606.05178). A session has three phases.

**Discussion.** Each turn is one cycle: all personas think at once, in private, while the facilitator looks
at the talk; one speaker is chosen (``turns.choose_speaker``); that speaker comments, or proposes an idea if
that is what it wanted. A turn therefore takes two calls in sequence. The discussion is bounded by the
session clock (spoken words at 150 a minute), by turns, or by whichever comes first.

**Ideation.** Personas with quota left propose in rounds; the proposals of a round are made at once, as in
brainwriting, and put up in an order drawn from the seed. A proposal too close to an idea on the whiteboard
becomes a vote for that idea. Ideation ends when the quotas are used or its time is over.

**Voting.** All ballots are filled in at once and counted by the rules.

A persona whose call fails is silent this turn and leaves after three failures in a row; a session with
fewer than two personas ends as partial. Budgets and Ctrl-C lead to the vote early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, get_args

import dspy

from salon.errors import UserError

from ..signatures.personas import CastPersonas, Persona, SketchPersona
from ..signatures.roundtable import CastVotes, Facilitate, Propose, Speak, Summarise, Think, citing, worded_as
from .checks import check_sketches, checked_personas, checked_text
from .embedding import Embedder
from .program import SessionProgram
from .roundtable_session import RoundtableSession
from .run import Run
from .session import Status
from .trajectory import MINUTES_PER_TURN
from .tunable import Tunable

__all__ = ["Citing", "Roundtable"]

Citing = Literal["required", "optional", "off"]

DEFAULT_MINUTES = 5.0


class Roundtable(SessionProgram):
    """A facilitated discussion that ends with ranked ideas and their history.

    Args:
        personas: How many to invent, or the personas (``salon.data.load_personas`` reads a pool).
        minutes: Bound of the discussion on the session clock; 0 skips it.
        turns: Bound of the discussion in turns. Neither bound means 5 minutes, both mean the earlier one.
        ideas: Ideas each persona may propose.
        votes: Votes each persona may cast.
        facilitator: Whether a facilitator takes part.
        self_votes: Whether a persona may vote for its own idea.
        citations: Whether thoughts, comments and ideas name what led to them: ``required`` as in the paper,
            ``optional`` (only where something really did), or ``off`` (they are not asked).
        lms: LMs by role (``participant``, ``facilitator``), persona id or persona name.
        embedder: Embedding model, or an ``Embedder`` to share.
        max_concurrency: Most calls in flight at once.

    Attributes:
        threshold: Eagerness from which a persona selects itself (tier 2).
        fairness: Base of the weight for turns of silence.
        duplicate: Cosine from which a proposal counts as a duplicate.
        distinct: Cosine above which two sketches are too close.
        ideation_minutes: Bound of the ideation on the session clock.
        facilitator_rest: Turns the facilitator stays silent after it stepped in.
        move_on_after: Share of the discussion before which ``move_on`` is not heeded.
        memory: Own thoughts a persona is shown.
        prompt_tokens: Budget of a prompt; the transcript is compacted to keep it.
        temperature: Sampling temperature of all calls.

    Calling it takes ``topic`` and the arguments of ``hold``.
    """

    inputs: ClassVar[tuple[str, ...]] = ("topic",)
    roles: ClassVar[tuple[str, ...]] = ("participant", "facilitator")

    def __init__(
        self,
        personas: int | Sequence[Persona | Mapping[str, Any]] = 5,
        minutes: float | None = None,
        turns: int | None = None,
        ideas: int = 2,
        votes: int = 5,
        facilitator: bool = True,
        self_votes: bool = False,
        citations: Citing = "required",
        lms: dict[str, Any] | None = None,
        embedder: str | Embedder | None = None,
        max_concurrency: int = 32,
    ) -> None:
        super().__init__(lms, embedder, max_concurrency)
        self.personas = checked_personas(personas, 2, "a roundtable")
        if minutes is None and turns is None:
            minutes = DEFAULT_MINUTES
        self.minutes: Tunable | None = None
        self.turns: Tunable | None = None
        if minutes is not None:
            self.minutes = Tunable(minutes, 0, 240, "minutes of discussion", whole=False, search=(1, 10, 1))
        if turns is not None:
            self.turns = Tunable(turns, 0, 10_000, "turns of discussion", whole=True, search=(2, 20))
        self.ideas = Tunable(ideas, 0, 50, "ideas per persona", whole=True)
        self.votes = Tunable(votes, 0, 20, "votes per persona", whole=True)
        self.facilitator = facilitator
        self.self_votes = self_votes
        if citations not in get_args(Citing):
            raise UserError(f"citations={citations!r} is not possible", f"they are {', '.join(get_args(Citing))}")
        self.citations = citations
        self.threshold = Tunable(6.0, 0, 10, "eagerness", search=(3, 9, 0.5))
        self.fairness = Tunable(1.01, 1, 2, "weight per silent turn", search=(1.01, 1.31, 0.05))
        self.duplicate = Tunable(0.80, 0.5, 1, "cosine", search=(0.7, 0.95, 0.05))
        self.distinct = Tunable(0.90, 0.5, 1, "cosine")
        self.ideation_minutes = Tunable(10.0, 0, 240, "minutes of ideation")
        self.facilitator_rest = Tunable(2, 0, 50, "turns", search=(0, 6))
        self.move_on_after = Tunable(0.5, 0, 1, "share of the discussion")
        self.memory = Tunable(2, 0, 20, "thoughts", search=(0, 5))
        self.prompt_tokens = Tunable(6000, 1500, 1_000_000, "tokens", log=True)
        self.temperature = Tunable(1.0, 0, 2, search=(0.5, 1.3, 0.1))
        self.cast = dspy.Predict(CastPersonas)
        self.sketch = dspy.Predict(SketchPersona)
        self.think = dspy.Predict(citing(Think, citations))
        self.speak = dspy.Predict(citing(Speak, citations))
        self.propose = dspy.Predict(citing(Propose, citations))
        self.vote = dspy.Predict(CastVotes)
        self.facilitate = dspy.Predict(Facilitate)
        self.summarise = dspy.Predict(Summarise)

    def settings(self) -> dict[str, Any]:
        """Return the constructor arguments that make this program again, as JSON values."""
        personas = self.personas
        return {
            "personas": personas if isinstance(personas, int) else [p.model_dump() for p in personas],
            "minutes": None if self.minutes is None else self.minutes.value,
            "turns": None if self.turns is None else self.turns.value,
            "ideas": self.ideas.value,
            "votes": self.votes.value,
            "facilitator": self.facilitator,
            "self_votes": self.self_votes,
            "citations": self.citations,
            "embedder": self.embedder.model,
            "max_concurrency": self.max_concurrency,
        }

    def changed(self, **settings: Any) -> Self:
        """Return a roundtable like this one with other settings; prompts and other tunables stay as they are.

        Where citations are asked for in another way, the prompts that ask for them change in that alone.
        """
        program = super().changed(**settings)
        if program.citations != self.citations:
            for name, kind in (("think", Think), ("speak", Speak), ("propose", Propose)):
                asked, own = citing(kind, program.citations), getattr(self, name)
                getattr(program, name).signature = worded_as(asked, own.signature)
                getattr(program, name).demos = list(own.demos)
        return program

    def checked(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the topic, cleaned.

        Raises:
            UserError: If it is missing, empty, or too long for the prompt budget.
        """
        checked = checked_text("Roundtable", inputs, "topic", self.prompt_tokens.value)
        check_sketches([] if isinstance(self.personas, int) else self.personas, self.prompt_tokens.value)
        return checked

    def idle_tunables(self, always: bool = False) -> set[str]:
        """Return the numbers of a facilitator, a discussion or a whiteboard that this roundtable does without."""
        idle = set() if self.facilitator else {"facilitator_rest", "move_on_after"}
        if not always and self.expected_turns() == 0:
            idle |= {"threshold", "fairness", "facilitator_rest", "move_on_after", "memory"}
        if not always and int(self.ideas) == 0:
            idle |= {"votes", "duplicate", "ideation_minutes"}
        return idle

    def expected_turns(self) -> int:
        """Return about how many turns the discussion will have."""
        bounds = []
        if self.turns is not None:
            bounds.append(int(self.turns))
        if self.minutes is not None:
            bounds.append(round(float(self.minutes) / MINUTES_PER_TURN))
        return min(bounds)

    def expected_calls(self) -> dict[str, int]:
        """Return about how many calls each predictor will make in a session."""
        invented = isinstance(self.personas, int)
        count = self.personas if isinstance(self.personas, int) else len(self.personas)
        turns, ideas = self.expected_turns(), count * int(self.ideas)
        return {
            "cast": int(invented),
            "sketch": count if invented else 0,
            "think": count * turns,
            "speak": turns,
            "facilitate": turns if self.facilitator else 0,
            "summarise": int(self.facilitator and turns > 0),
            "propose": ideas,
            "vote": count if ideas and int(self.votes) else 0,
        }

    def calls(self) -> int:
        """Return about how many calls a session takes."""
        return sum(self.expected_calls().values())

    async def _session(self, run: Run) -> tuple[Status, str]:
        warming = asyncio.get_running_loop().run_in_executor(None, self.embedder.warm) if not run.desk.offline else None
        try:
            return await RoundtableSession(self, run).held()
        finally:
            if warming is not None:
                await asyncio.gather(warming, return_exceptions=True)
