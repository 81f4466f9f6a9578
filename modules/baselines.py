"""Simple ways to answer a task, with the interface of the session programs, to judge those by.

Each baseline makes one or more answers; where there are several, one is chosen by the same judge as in a
Debate. ``calls()`` says what a session costs; ``equal_calls`` has a baseline spend about as many calls as a
costlier program, on more answers to choose from, so that a comparison is fair in compute.

| name | answers | calls |
|---|---|---|
| direct | one | 1 |
| direct-lens | one, in a way of thinking drawn from the seed | 1 |
| voting | five independent ones | 6 |
| voting-lens | five, one for each lens | 6 |
| self-refine | one, criticised and rewritten twice | 3 |
| verbalized | one drawn, by its stated probability, from five written in one call | 1 |
| verbalized-tail | the same, from answers whose stated probability is under 10 % | 1 |
| roundtable-unfacilitated | a Roundtable without a facilitator | as the Roundtable |
| yes-and-fixed | YesAnd in which everyone answers in fixed order | as YesAnd |
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

import dspy

from salon.errors import UserError

from ..signatures.baselines import Refine, SampleAnswers
from ..signatures.debate import LENSES, ChooseAnswer, Draft
from ..signatures.personas import Persona
from .cast import seat
from .checks import checked_text
from .choice import choose_answer
from .debate import PLAIN
from .embedding import Embedder
from .program import SessionProgram
from .roundtable import Roundtable
from .run import Run
from .session import Session, Status
from .streams import stream
from .text import clean, neutral, restated
from .tunable import Tunable
from .yes_and import YesAnd

__all__ = ["BASELINES", "Baseline", "Direct", "SelfRefine", "VerbalizedSampling", "Voting"]


TAIL = 10  # percent
Failed = list[tuple[str, Any]]


class Baseline(SessionProgram):
    """Base of the baselines: chains of calls that each end in an answer, and a choice among the answers.

    Args:
        equal_calls: Spend at most so many calls in all; None for the baseline's own number.
        lens: Whether answers are written through lenses.
        lms: LMs by role (``participant``, ``judge``).
        embedder: Embedding model for measures.
        max_concurrency: Most calls in flight at once.
    """

    inputs: ClassVar[tuple[str, ...]] = ("task",)
    roles: ClassVar[tuple[str, ...]] = ("participant", "judge")

    def __init__(
        self,
        equal_calls: int | None = None,
        lens: bool = False,
        lms: dict[str, Any] | None = None,
        embedder: str | Embedder | None = None,
        max_concurrency: int = 32,
    ) -> None:
        super().__init__(lms, embedder, max_concurrency)
        if equal_calls is not None and (not isinstance(equal_calls, int) or equal_calls < self.chain_calls()):
            raise UserError(
                f"equal_calls={equal_calls} is not possible", f"one answer takes {self.chain_calls()} calls"
            )
        self.equal_calls, self.lens = equal_calls, lens
        self.temperature = Tunable(1.0, 0, 2, search=(0.5, 1.3, 0.1))
        self.choose = dspy.Predict(ChooseAnswer)

    @abstractmethod
    def chain_calls(self) -> int:
        """Return the calls that one answer takes."""

    @abstractmethod
    async def _answer(self, run: Run, chain: str, task: str, failed: Failed) -> str:
        """Write the answer of one chain; empty if it failed. Failed calls are added to ``failed``."""

    def own_chains(self) -> int:
        """Return how many answers this baseline writes of its own."""
        return 1

    def chains(self) -> int:
        """Return how many answers are written."""
        if self.equal_calls is None:
            return self.own_chains()
        return max((self.equal_calls - 1) // self.chain_calls(), 1)

    def calls(self) -> int:
        """Return how many calls a session takes."""
        return self.chains() * self.chain_calls() + (self.chains() > 1)

    def settings(self) -> dict[str, Any]:
        """Return the constructor arguments that make this program again, as JSON values."""
        return {
            "equal_calls": self.equal_calls,
            "lens": self.lens,
            "embedder": self.embedder.model,
            "max_concurrency": self.max_concurrency,
        }

    def checked(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the task, cleaned.

        Raises:
            UserError: If it is missing, empty or far too long.
        """
        return checked_text(type(self).__name__, inputs, "task")

    def answer(self, session: Session) -> str:
        """Return the answer that was written, or chosen."""
        ideas = session.ideas
        return ideas[0].description if ideas else ""

    async def _session(self, run: Run) -> tuple[Status, str]:
        task = neutral(str(run.session.header["inputs"]["task"]))
        seat(run, [Persona(name=f"Writer {n + 1}", sketch=self._lens(run, n)) for n in range(self.chains())])
        run.turn += 1
        writers = list(run.session.personas)
        failed: dict[str, Failed] = {writer: [] for writer in writers}
        answers = await asyncio.gather(*(self._answer(run, writer, task, failed[writer]) for writer in writers))
        for writer in writers:
            for purpose, answer in failed[writer]:
                run.failed(purpose, writer, answer)
        finals = {writer: (answer, "") for writer, answer in zip(writers, answers, strict=True) if answer}
        run.turn += 1
        chosen = await choose_answer(run, self.choose if self.chains() > 1 else None, task, finals)
        return ("complete", "an answer was written") if chosen else ("partial", "no answer was written")

    def _lens(self, run: Run, chain: int) -> str:
        """Return the way of thinking of a chain: the lenses in order, from one drawn by the seed."""
        if not self.lens:
            return PLAIN
        lenses = list(LENSES.values())
        first = stream(run.seed, "lens").randrange(len(lenses)) if self.chains() == 1 else 0
        return lenses[(first + chain) % len(lenses)]

    async def _ask(self, run: Run, predict: Any, purpose: str, writer: str, failed: Failed, **inputs: Any) -> Any:
        answer = await run.ask(predict, purpose, "participant", writer, **inputs)
        if answer.error:
            failed.append((purpose, answer))
        return answer


class Direct(Baseline):
    """One call, one answer."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.draft = dspy.Predict(Draft)

    def chain_calls(self) -> int:
        """Return 1."""
        return 1

    async def _answer(self, run: Run, chain: str, task: str, failed: Failed) -> str:
        who = neutral(run.session.personas[chain].sketch)
        request = restated(task, "Write your answer.")
        answer = await self._ask(run, self.draft, "draft", chain, failed, task=task, persona=who, request=request)
        return "" if answer.error else clean(answer.answer)


class Voting(Direct):
    """Several independent answers, of which the judge picks one.

    Args:
        answers: How many.
        settings: As for ``Baseline``.
    """

    def __init__(self, answers: int = 5, **settings: Any) -> None:
        super().__init__(**settings)
        self.answers = Tunable(answers, 1, 100, "answers", whole=True, search=(2, 9))

    def own_chains(self) -> int:
        """Return the number of answers."""
        return int(self.answers)

    def idle_tunables(self, always: bool = False) -> set[str]:
        """Return ``answers`` where the number of calls is fixed."""
        return {"answers"} if self.equal_calls is not None else set()

    def settings(self) -> dict[str, Any]:
        """Return the constructor arguments that make this program again, as JSON values."""
        return {"answers": self.answers.value, **super().settings()}


class SelfRefine(Direct):
    """One answer, criticised and rewritten by its own author.

    Args:
        rounds: How often it is rewritten.
        settings: As for ``Baseline``.
    """

    def __init__(self, rounds: int = 2, **settings: Any) -> None:
        self.rounds = Tunable(rounds, 0, 20, "rewritings", whole=True, search=(0, 4))
        super().__init__(**settings)
        self.refine = dspy.Predict(Refine)

    def chain_calls(self) -> int:
        """Return one call and one for each rewriting."""
        return 1 + int(self.rounds)

    def settings(self) -> dict[str, Any]:
        """Return the constructor arguments that make this program again, as JSON values."""
        return {"rounds": self.rounds.value, **super().settings()}

    async def _answer(self, run: Run, chain: str, task: str, failed: Failed) -> str:
        text = await super()._answer(run, chain, task, failed)
        for number in range(1, int(self.rounds) + 1):
            if not text:
                break
            request = restated(task, "Criticise your answer, then write a better one.")
            purpose = f"refine{number}"
            better = await self._ask(
                run, self.refine, purpose, chain, failed, task=task, own=neutral(text), request=request
            )
            text = text if better.error else clean(better.answer)
        return text


class VerbalizedSampling(Baseline):
    """Several answers with their probabilities in one call, of which one is drawn.

    The tail variant draws among the answers stated at under 10 %; where there is none, among all.

    Args:
        answers: How many answers one call asks for.
        tail: Ask for answers whose probability is under 10 % each, and draw evenly.
        settings: As for ``Baseline``.
    """

    def __init__(self, answers: int = 5, tail: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self.answers = Tunable(answers, 2, 20, "answers a call", whole=True, search=(2, 8))
        self.tail = tail
        self.sample = dspy.Predict(SampleAnswers)

    def chain_calls(self) -> int:
        """Return 1."""
        return 1

    def settings(self) -> dict[str, Any]:
        """Return the constructor arguments that make this program again, as JSON values."""
        return {"answers": self.answers.value, "tail": self.tail, **super().settings()}

    async def _answer(self, run: Run, chain: str, task: str, failed: Failed) -> str:
        count = int(self.answers)
        likely = (
            "each with a probability under 10 percent" if self.tail else "with probabilities that sum to 100 percent"
        )
        request = restated(task, f"Give {count} answers, {likely}.")
        answer = await self._ask(run, self.sample, "sample", chain, failed, task=task, request=request)
        if answer.error or not answer.answers:
            return ""
        options = answer.answers[:count]
        if self.tail:
            options = [option for option in options if int(option.probability) < TAIL] or options
        weights = [1 if self.tail else int(option.probability) for option in options]
        draw: Random = stream(run.seed, chain, "sample")
        return clean(draw.choices(options, weights if sum(weights) else None)[0].answer)


def _unfacilitated(equal_calls: int | None = None, **settings: Any) -> Roundtable:
    """Make a roundtable without a facilitator; ``equal_calls`` decides the turns of its discussion."""
    if equal_calls is None:
        return Roundtable(**{**settings, "facilitator": False})
    program = Roundtable(**{**settings, "facilitator": False, "minutes": None, "turns": 0})
    seats = program.personas if isinstance(program.personas, int) else len(program.personas)
    if equal_calls < program.calls():
        raise UserError(f"equal_calls={equal_calls} is not possible", f"ideas and votes alone take {program.calls()}")
    return program.changed(turns=(equal_calls - program.calls()) // (seats + 1))


def _fixed(equal_calls: int | None = None, **settings: Any) -> YesAnd:
    """Make a conversation in fixed order; ``equal_calls`` decides the messages of a simulated person."""
    program = YesAnd(**{**settings, "order": "fixed"})
    if equal_calls is None:
        return program
    per_message = (program.calls() - program.changed(messages=0).calls()) // max(int(program.messages), 1)
    messages = (equal_calls - program.changed(messages=0).calls()) // max(per_message, 1)
    if messages < 1:
        raise UserError(f"equal_calls={equal_calls} is not possible", "one message takes more")
    return program.changed(messages=messages)


BASELINES: dict[str, Callable[..., SessionProgram]] = {
    "direct": Direct,
    "direct-lens": lambda **settings: Direct(lens=True, **settings),
    "self-refine": SelfRefine,
    "voting": Voting,
    "voting-lens": lambda **settings: Voting(lens=True, **settings),
    "verbalized": VerbalizedSampling,
    "verbalized-tail": lambda **settings: VerbalizedSampling(tail=True, **settings),
    "roundtable-unfacilitated": _unfacilitated,
    "yes-and-fixed": _fixed,
}
