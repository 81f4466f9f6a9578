"""Debate: agents with different ways of thinking answer, see the most distant answers, and revise.

After Creative-MAD (arXiv 2609.00683). N agents answer a task; in each of R rounds every agent is shown the
answers of k peers and writes a better one; at the end one of the N answers is chosen. Two things keep the
answers from becoming alike: each agent has a *lens* (how it thinks, not what it knows), and it is shown the
peers whose last answers are *farthest* from its own (largest 1 - cosine).

Simultaneous agents revise at once; one by one, each sees what those before it in the round have written.
Against drift from the task, the task stands once more beside the request, and answers that are empty or talk
about the debate cannot win. A session takes N(R+1)+1 calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import dspy

from salon.errors import UserError

from ..signatures.debate import LENSES, ChooseAnswer, Draft, Revise
from ..signatures.personas import Persona
from .cast import seat
from .checks import checked_personas, checked_text
from .choice import choose_answer
from .course import Course
from .diversity import pairwise_distance, vendi
from .embedding import Embedder, Vectors
from .events import Draft as DraftEvent
from .events import Round
from .program import SessionProgram
from .run import Run
from .session import Session, Status
from .streams import stream
from .text import clean, neutral, restated
from .tunable import Tunable

__all__ = ["PLAIN", "PROFESSIONS", "Debate", "Peers", "Protocol", "farthest"]

Peers = Literal["farthest", "random", "closest", "all"]
Protocol = Literal["simultaneous", "one-by-one"]
PROFESSIONS = ("economist", "psychologist", "lawyer", "doctor", "historian")
PLAIN = "You think in your own way."


class Debate(SessionProgram):
    """Agents answer a task and revise their answers; one answer is chosen.

    Args:
        agents: How many agents (N).
        rounds: How often they revise (R).
        k: How many peers each is shown; more than there are means all.
        lenses: True for the five lenses in order, None or False for none, or a list of lens names or own texts;
            with more agents than lenses they are used again from the first.
        personas: Texts or personas that say who the agents are; used again from the first.
        peers: Whom an agent is shown: the farthest or closest answers, random ones, or all.
        protocol: Whether agents revise at once or one by one.
        models: One LM per agent; used again from the first.
        lms: LMs by role (``participant``, ``judge``) or agent id (``P1``...).
        embedder: Embedding model, or an ``Embedder`` to share.
        max_concurrency: Most calls in flight at once.

    Attributes:
        temperature: Sampling temperature of all calls.

    Calling it takes ``task`` and the arguments of ``hold``; the prediction's ``answer`` is the chosen answer.
    """

    inputs: ClassVar[tuple[str, ...]] = ("task",)
    roles: ClassVar[tuple[str, ...]] = ("participant", "judge")

    def __init__(
        self,
        agents: int = 5,
        rounds: int = 2,
        k: int = 2,
        lenses: bool | Sequence[str] | None = True,
        personas: Sequence[str | Persona | Mapping[str, Any]] | None = None,
        peers: Peers = "farthest",
        protocol: Protocol = "simultaneous",
        models: Sequence[Any] | None = None,
        lms: dict[str, Any] | None = None,
        embedder: str | Embedder | None = None,
        max_concurrency: int = 32,
    ) -> None:
        super().__init__(lms, embedder, max_concurrency)
        if peers not in ("farthest", "random", "closest", "all"):
            raise UserError(f"peers={peers!r} is not known", "it is farthest, random, closest or all")
        if protocol not in ("simultaneous", "one-by-one"):
            raise UserError(f"protocol={protocol!r} is not known", "it is simultaneous or one-by-one")
        if isinstance(models, str) or not isinstance(models or (), Sequence):
            raise UserError(f"models={models!r} is not possible", "a list of LMs is needed, e.g. [salon.lm(...)]")
        self.models = list(models or ())
        self.agents = Tunable(agents, 1, 50, "agents", whole=True)
        self.rounds = Tunable(rounds, 0, 20, "rounds of revision", whole=True, search=(0, 3))
        self.k = Tunable(k, 1, 49, "peers shown", whole=True, search=(1, 4))
        self.lenses = lenses_of(lenses)
        self.personas = _texts_of(personas)
        self.peers, self.protocol = peers, protocol
        self.temperature = Tunable(1.0, 0, 2, search=(0.5, 1.3, 0.1))
        self.draft = dspy.Predict(Draft)
        self.revise = dspy.Predict(Revise)
        self.choose = dspy.Predict(ChooseAnswer)

    @classmethod
    def homogeneous(cls, **settings: Any) -> Debate:
        """Make a debate without lenses in which everyone sees all answers (homogeneous MAD)."""
        return cls(**{"lenses": None, "peers": "all", **settings})

    @classmethod
    def heterogeneous(cls, **settings: Any) -> Debate:
        """Make a debate of professions in which everyone sees all answers (heterogeneous MAD)."""
        people = [f"You are a {name}, and think as one." for name in PROFESSIONS]
        return cls(**{"lenses": None, "peers": "all", "personas": people, **settings})

    @classmethod
    def lens_only(cls, **settings: Any) -> Debate:
        """Make a debate with lenses in which everyone sees all answers."""
        return cls(**{"lenses": True, "peers": "all", **settings})

    @classmethod
    def selection_only(cls, **settings: Any) -> Debate:
        """Make a debate without lenses in which everyone sees the farthest answers."""
        return cls(**{"lenses": None, "peers": "farthest", **settings})

    def settings(self) -> dict[str, Any]:
        """Return the constructor arguments that make this program again, as JSON values."""
        return {
            "agents": self.agents.value,
            "rounds": self.rounds.value,
            "k": self.k.value,
            "lenses": list(self.lenses),
            "personas": list(self.personas),
            "peers": self.peers,
            "protocol": self.protocol,
            "embedder": self.embedder.model,
            "max_concurrency": self.max_concurrency,
        }

    def checked(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the task, cleaned.

        Raises:
            UserError: If it is missing, empty or far too long.
        """
        return checked_text("Debate", inputs, "task")

    def answer(self, session: Session) -> str:
        """Return the chosen answer."""
        ideas = session.ideas
        return ideas[0].description if ideas else ""

    def carried(self) -> dict[str, Any]:
        """Return constructor arguments that are no JSON values and that a changed program takes along."""
        return {**super().carried(), "models": self.models}

    def named_lms(self) -> dict[str, Any]:
        """Return the LMs by role and agent; those named in ``lms`` go before ``models``."""
        count = int(self.agents) if self.models else 0
        return {**{f"P{n + 1}": self.models[n % len(self.models)] for n in range(count)}, **self.lms}

    def calls(self) -> int:
        """Return how many calls a session takes: N(R+1)+1."""
        return int(self.agents) * (int(self.rounds) + 1) + 1

    def idle_tunables(self, always: bool = False) -> set[str]:
        """Return ``k`` where all peers are shown; and where there is nobody, or no time, to show."""
        nothing_shown = not always and (int(self.rounds) == 0 or int(self.agents) == 1)
        return {"k"} if self.peers == "all" or nothing_shown else set()

    def settle(self) -> None:
        """Show at most all peers: ``k`` is at most ``agents - 1``."""
        self.k.value = min(int(self.k), max(int(self.agents) - 1, 1))

    async def _session(self, run: Run) -> tuple[Status, str]:
        return await _Debating(self, run).held()


def lenses_of(lenses: bool | Sequence[str] | None) -> list[str]:
    """Return lens texts: all five, none, or those named; other texts are lenses of one's own.

    Raises:
        UserError: If a lens is not a text.
    """
    if not lenses:
        return []
    if lenses is True:
        return list(LENSES.values())
    if (
        not isinstance(lenses, Sequence)
        or isinstance(lenses, str)
        or not all(isinstance(lens, str) and lens.strip() for lens in lenses)
    ):
        known = ", ".join(LENSES)
        raise UserError(f"lenses={lenses!r} is not possible", f"a list of texts or of {known} is needed")
    return [LENSES.get(lens.strip().lower(), lens.strip()) for lens in lenses]


def _texts_of(personas: Sequence[str | Persona | Mapping[str, Any]] | None) -> list[str]:
    """Return who the agents are, as texts."""
    if not personas:
        return []
    if isinstance(personas, str) or not isinstance(personas, Sequence):
        raise UserError(f"personas={personas!r} is not possible", "a list of texts or personas is needed")
    if all(isinstance(p, str) and p.strip() for p in personas):
        return [str(p) for p in personas]
    people = checked_personas([p for p in personas if not isinstance(p, str)], len(personas), "a debate")
    return [f"{p.name}: {p.sketch}" for p in people] if isinstance(people, list) else []


def lens_label(lens: str, number: int) -> str:
    """Return what an agent with a lens is called."""
    known = next((name for name, text in LENSES.items() if text == lens), "")
    return f"{known.capitalize()} agent" if known else f"Agent {number}"


def farthest(vectors: Vectors, own: int, k: int, closest: bool = False) -> list[int]:
    """Return the rows most distant from row ``own`` (or closest to it), itself excluded, nearest tie first."""
    similar = vectors @ vectors[own]
    others = [i for i in range(len(vectors)) if i != own]
    return sorted(others, key=lambda i: (-similar[i] if closest else similar[i], i))[:k]


class _Debating(Course):
    """The course of one debate."""

    def __init__(self, program: Debate, run: Run) -> None:
        super().__init__(run)
        self.program = program
        self.task = neutral(str(self.session.header["inputs"]["task"]))
        self.last: dict[str, DraftEvent] = {}
        self.shown: dict[str, list[str]] = {}
        self.cut = ""

    async def held(self) -> tuple[Status, str]:
        self._seat()
        await self._drafts()
        for _ in range(int(self.program.rounds)):
            self.run.turn += 1
            self.cut = self.cut or self.run.closing(int(self.program.agents) + 1)
            if self.cut:
                break
            await (self._at_once() if self.program.protocol == "simultaneous" else self._one_by_one())
        self.run.turn += 1
        finals = {draft.author: (draft.text, draft.id) for draft in self.last.values()}
        chosen = await choose_answer(self.run, self.program.choose, self.task, finals)
        if len(finals) < min(2, int(self.program.agents)):
            return "partial", f"{len(finals)} of {int(self.program.agents)} agents had an answer"
        if not chosen:
            return "partial", "no agent had an answer"
        return ("cut short", self.cut) if self.cut else ("complete", "all rounds were held")

    def _seat(self) -> None:
        lenses, personas = self.program.lenses, self.program.personas
        agents = []
        for n in range(int(self.program.agents)):
            parts = [texts[n % len(texts)] for texts in (personas, lenses) if texts]
            name = lens_label(lenses[n % len(lenses)], n + 1) if lenses else f"Agent {n + 1}"
            agents.append(Persona(name=name, sketch=" ".join(parts) or PLAIN))
        seat(self.run, agents)

    def _who(self, agent: str) -> str:
        return neutral(self.session.personas[agent].sketch)

    async def _drafts(self) -> None:
        self.run.turn += 1
        agents = self.session.seated
        answers = await asyncio.gather(*(self._drafted(agent) for agent in agents))
        for agent, answer in zip(agents, answers, strict=True):
            self._keep(agent, answer, 0, [], "draft")
        await self._round(0)

    async def _drafted(self, agent: str) -> Any:
        request = restated(self.task, "Write your answer.")
        return await self.run.ask(
            self.program.draft, "draft", "participant", agent, task=self.task, persona=self._who(agent), request=request
        )

    async def _round(self, number: int) -> None:
        """Measure how different the answers are, choose whom each agent is shown next, and report both.

        One by one, agents are shown what is there when their turn comes, so nothing is chosen ahead.
        """
        agents = list(self.last)
        texts = [self.last[agent].text for agent in agents]

        def measured() -> dict[str, Any]:
            vectors = self.run.embedder.embed(texts)
            shown = {agent: [agents[j] for j in self._selected(vectors, i, agent)] for i, agent in enumerate(agents)}
            return {"distance": pairwise_distance(vectors), "vendi": vendi(vectors), "shown": shown}

        found = await self.run.slow_reading(f"t{self.run.turn:04}/diversity/{number}", measured)
        ahead = number < int(self.program.rounds) and self.program.protocol == "simultaneous"
        self.shown = found["shown"] if ahead else {}
        self.run.emit(Round, round=number, distance=found["distance"], vendi=found["vendi"], shown=self.shown)

    def _selected(self, vectors: Vectors, own: int, agent: str) -> list[int]:
        k = int(self.program.k)
        others = [i for i in range(len(vectors)) if i != own]
        if self.program.peers == "all":
            return others
        if self.program.peers == "random":
            draw = stream(self.run.seed, self.run.turn, agent, "peers")
            return sorted(draw.sample(others, min(k, len(others))))
        return farthest(vectors, own, k, closest=self.program.peers == "closest")

    async def _at_once(self) -> None:
        agents, shown = self.session.seated, self.shown
        answers = await asyncio.gather(*(self._revised(agent, shown.get(agent, [])) for agent in agents))
        before = dict(self.last)
        number = self.run.turn - 1
        for agent, answer in zip(agents, answers, strict=True):
            cites = [before[peer].id for peer in shown.get(agent, []) if peer in before]
            self._keep(agent, answer, number, cites, "revise")
        await self._round(number)

    async def _one_by_one(self) -> None:
        number = self.run.turn - 1
        for agent in self.session.seated:
            shown = await self._shown_now(agent)
            cites = [self.last[peer].id for peer in shown]
            self._keep(agent, await self._revised(agent, shown), number, cites, "revise")
        await self._round(number)

    async def _shown_now(self, agent: str) -> list[str]:
        """Return whom an agent is shown, given what has been written so far."""
        if agent not in self.last:
            return []
        agents = list(self.last)
        texts = [self.last[a].text for a in agents]

        def selected() -> list[str]:
            return [agents[j] for j in self._selected(self.run.embedder.embed(texts), agents.index(agent), agent)]

        found: list[str] = await self.run.slow_reading(f"t{self.run.turn:04}/shown/{agent}", selected)
        return found

    async def _revised(self, agent: str, shown: Sequence[str]) -> Any:
        """Ask an agent for a better answer; one that has none yet drafts."""
        if agent not in self.last:
            return await self._drafted(agent)
        others = "\n\n".join(f"Answer {n}: {neutral(self.last[p].text)}" for n, p in enumerate(shown, 1))
        return await self.run.ask(
            self.program.revise,
            "revise",
            "participant",
            agent,
            task=self.task,
            others=others or "(there are no other answers)",
            persona=self._who(agent),
            own=neutral(self.last[agent].text),
            request=restated(self.task, "Criticise the answers of others, then write your improved answer."),
        )

    def _keep(self, agent: str, answer: Any, number: int, shown: list[str], purpose: str) -> None:
        """Record an agent's answer; without one its last answer stands."""
        if answer.error:
            self.silent(purpose, agent, answer)
            return
        self.run.answered(agent)
        own = [self.last[agent].id] if agent in self.last else []
        critique = clean(answer.outputs.get("critique", ""))
        self.last[agent] = self.run.entity(
            DraftEvent,
            agent,
            [*shown, *own],
            round=number,
            text=clean(answer.answer),
            critique=critique,
            shown=shown,
            clamped=answer.clamped,
        )
