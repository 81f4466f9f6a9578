"""One conversation of YesAnd: the person's moves, the experts' turns, the Sage. See ``yes_and``."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from salon.errors import UserError

from .answers import Answer
from .cast import invent, seat
from .course import Course
from .events import (
    PERSON,
    SAGE,
    Chosen,
    Comment,
    Declined,
    Floor,
    Idea,
    Message,
    Phase,
    Rated,
)
from .names import addressed, named
from .run import Run
from .session import Status
from .text import clean, neutral, tokens

if TYPE_CHECKING:
    from .yes_and import YesAnd

__all__ = ["YesAndSession", "calibrated"]

_TASK_TOKENS = 700  # of a prompt beside the conversation, experts apart
_PRIOR = 5  # ratings after which an expert's own history weighs as much as the raw rating


def calibrated(history: list[float], raw: float) -> float:
    """Return a rating relative to an expert's earlier ones, on the same scale of 0 to 10.

    The mid-rank of the rating in the expert's history, times 10, mixed with the raw rating as long as the
    history is short: weight n / (n + 5) for n earlier ratings.
    """
    n = len(history)
    if not n:
        return raw
    rank = (sum(h < raw for h in history) + 0.5 * sum(h == raw for h in history)) / n
    return (n * 10 * rank + _PRIOR * raw) / (n + _PRIOR)


def _checked_move(said: Any) -> dict[str, Any]:
    """Return a person's move: its text, cleaned, and a threshold where it sets one.

    Raises:
        UserError: If it is neither a text nor such a mapping.
    """
    move = said if isinstance(said, dict) else {"text": said}
    text, threshold = move.get("text"), move.get("threshold")
    if not isinstance(text, str) or not (threshold is None or isinstance(threshold, int | float)):
        raise UserError(f"{said!r} is no move of a person", "a text is needed, or None to end")
    return {"text": clean(text), **({} if threshold is None else {"threshold": float(threshold)})}


class YesAndSession(Course):
    """The course of one conversation.

    Args:
        program: The program and its settings.
        run: The running session.
    """

    def __init__(self, program: YesAnd, run: Run) -> None:
        super().__init__(run)
        self.program = program
        self.problem = neutral(str(self.session.header["inputs"]["problem"]))
        self.threshold = float(program.threshold)
        self.history: dict[str, list[float]] = {}
        self.nominated: list[str] = []
        self.last = ""
        self.moves = 0
        self.seed = ""
        self.unsummed = True
        self.cut = ""

    # ---------------------------------------------------------------- the whole

    async def held(self) -> tuple[Status, str]:
        """Hold the conversation; return its status and the reason."""
        await self._seat()
        if not self.session.seated:
            return "partial", "no experts could be made"
        self.emit(Phase, phase="conversation", reason="the experts are there")
        interactive = bool(self.run.reading("interactive", lambda: self.run.control.interactive))
        while not self.cut and self.session.seated:
            self.run.turn += 1
            move = await self._move()
            if move is None:
                break
            await self._follow(str(move["text"]), move.get("threshold"))
        if self.unsummed and (self.cut or not interactive):
            self.run.turn += 1
            await self._sum_up("The conversation is over: sum it up.")
        self.emit(Phase, phase="closed", reason=self.cut or "the person ended it")
        if not self.session.seated:
            return "partial", "no experts were left"
        if not self.session.board and not interactive:
            return "partial", self.cut or "the Sage had no answer"
        return ("cut short", self.cut) if self.cut else ("complete", "the person ended it")

    def _closing(self) -> bool:
        """Say whether it is time to come to an end: one more turn and the Sage might not fit."""
        self.cut = self.cut or self.run.closing(len(self.session.seated) + 2)
        return bool(self.cut)

    async def _seat(self) -> None:
        program = self.program
        if isinstance(program.experts, int):
            personas, again = await invent(
                self.run, program.cast, program.sketch, self.problem, program.experts, float(program.distinct)
            )
            seat(self.run, personas, again)
        else:
            seat(self.run, program.experts)

    # ---------------------------------------------------------------- the person

    async def _move(self) -> dict[str, Any] | None:
        """Return the person's next move, from the record or from the person; None if it ends."""
        key = f"t{self.run.turn:04}/person"
        readings = self.run.log.recorded.readings
        if key not in readings:
            if self.run.desk.offline:
                return None
            move = await self._asked()
            if move is None:
                return None
            self.run.log.reading(key, move)
        self.moves += 1
        move = readings[key]
        return dict(move)

    async def _asked(self) -> dict[str, Any] | None:
        """Ask the person: whoever steers the session, the scripted messages, or a simulated person."""
        if pending := self.run.control.taken():
            return {"text": clean(pending)}
        if self.run.control.person is not None:
            said = self.run.control.person(self.session)
            said = await said if inspect.isawaitable(said) else said
            if said is None:
                return None
            return _checked_move(said)
        person = self.session.header["inputs"].get("person")
        if isinstance(person, list):
            return {"text": clean(person[self.moves])} if self.moves < len(person) else None
        if isinstance(person, str) and self.moves < int(self.program.messages):
            return await self._played(person)
        return None

    async def _played(self, brief: str) -> dict[str, Any] | None:
        self._compact()
        answer = await self.run.ask(
            self.program.play_person,
            "play",
            PERSON,
            PERSON,
            problem=self.problem,
            conversation=self.transcript.text,
            persona=neutral(brief),
        )
        if answer.error:
            self.run.failed("play", PERSON, answer)
            return None
        return {"text": clean(answer.message)}

    async def _follow(self, text: str, threshold: float | None) -> None:
        """Do what a move asks for."""
        if threshold is not None:
            self.threshold = float(threshold)
        if not text.strip():
            self.emit(Floor, reason="nothing was said")
        elif text.strip().lower() == "/sage":
            await self._sum_up("The person called you.")
            self.emit(Floor, reason="the Sage summed up")
        else:
            command, _, name = text.strip().partition(" ")
            if command.lower() == "/ask":
                self.nominated = named(name, self.labels())[:1]
            else:
                self.nominated = []
                self._said(text)
            await self._experts()

    def _said(self, text: str) -> None:
        self.entity(Message, PERSON, [], text=clean(text))
        self.last, self.unsummed = PERSON, True

    # ---------------------------------------------------------------- the experts

    async def _experts(self) -> None:
        """Let experts speak until the floor is the person's again."""
        reason = await (self._in_turn() if self.program.order == "fixed" else self._by_confidence())
        self.emit(Floor, reason=reason)

    async def _in_turn(self) -> str:
        asked, self.nominated = self.nominated, []
        for expert in asked or list(self.session.seated):
            self.run.turn += 1
            if self._closing():
                return self.cut
            self._heard()
            await self._contribution(expert, "It is your turn.")
        return f"{self.session.label(asked[0])} has answered" if asked else "everyone has answered"

    async def _by_confidence(self) -> str:
        turns, passed = 0, set[str]()
        while turns < int(self.program.max_agent_turns):
            self.run.turn += 1
            if self._closing():
                return self.cut
            if self._heard():
                turns, passed = 0, set()
            speaker, request = await self._next_speaker(passed)
            if speaker is None:
                continue
            if not speaker:
                await self._sum_up("No expert is confident of adding anything: sum up.")
                return "the Sage summed up"
            turns += 1
            comment = await self._contribution(speaker, request)
            if comment is None:
                passed.add(speaker)
            elif comment.question:
                return f"{self.session.label(speaker)} asked a question"
            if not self.session.seated:
                return "no experts are left"
        return f"the experts had {turns} turns"

    def _heard(self) -> bool:
        """Take in what the person said meanwhile; return whether it said something."""
        said = self.run.heard(f"t{self.run.turn:04}/interjection")
        if said:
            self._said(said)
            self.nominated = []
        return bool(said)

    async def _next_speaker(self, passed: set[str]) -> tuple[str | None, str]:
        """Return who speaks next and why; an empty name for the Sage, None if the person cut in."""
        nominated = [p for p in self.nominated if p in self.session.seated and p not in passed]
        self.nominated = []
        if nominated:
            self.emit(Chosen, speaker=nominated[0], tier=1, reason="was nominated")
            return nominated[0], "You were handed the floor by name. Leave the text empty to decline."
        rated = await self._rated(passed)
        if rated is None:
            return None, ""
        able = {p: score for p, (score, _) in rated.items() if score >= self.threshold}
        others = {p: score for p, score in able.items() if p != self.last}
        if not able:
            return "", ""
        tier = 2 if others else 3
        spoke = self.session.contributions
        seats = self.session.seated
        speaker = min(others or able, key=lambda p: (-able[p], spoke[p], seats.index(p)))
        self.emit(Chosen, speaker=speaker, tier=tier, reason=f"was confident ({able[speaker]:.3g} of 10)")
        return speaker, f"You were the most confident. You meant to add: {neutral(rated[speaker][1])}"

    async def _rated(self, passed: set[str]) -> dict[str, tuple[float, str]] | None:
        """Have all experts rate at once; None if the person cut in meanwhile."""
        if self._cut_in() in self.run.log.recorded.readings:
            return None
        experts = [p for p in self.session.seated if p not in passed]
        ratings = asyncio.ensure_future(asyncio.gather(*(self._rating(expert) for expert in experts)))
        answers = await self._unless_cut_in(ratings)
        if answers is None:
            return None
        found: dict[str, tuple[float, str]] = {}
        for expert, answer in zip(experts, answers, strict=True):
            if answer.error:
                self.silent("rate", expert, answer)
                continue
            self.run.answered(expert)
            raw, earlier = float(answer.confidence), self.history.setdefault(expert, [])
            score = calibrated(earlier, raw) if int(self.program.calibrate) else raw
            earlier.append(raw)
            would = clean(answer.would_add)
            self.emit(Rated, expert=expert, raw=raw, score=round(score, 4), would_add=would)
            found[expert] = (score, would)
        return found

    async def _unless_cut_in(self, ratings: asyncio.Future[list[Answer]]) -> list[Answer] | None:
        """Await ratings; if the person speaks first, cancel them, for they rate words that are no longer the last."""
        if self.run.desk.offline or self.run.log.behind:
            return list(await ratings)
        cut_in = asyncio.ensure_future(self.run.control.spoken())
        try:
            waiting: set[asyncio.Future[Any]] = {ratings, cut_in}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if ratings.done():
                return list(ratings.result())
            self.run.log.reading(self._cut_in(), True)
            return None
        finally:
            for task in (ratings, cut_in):
                if not task.done():
                    task.cancel()
            await asyncio.gather(ratings, cut_in, return_exceptions=True)

    def _cut_in(self) -> str:
        return f"t{self.run.turn:04}/cut_in"

    async def _rating(self, expert: str) -> Answer:
        return await self._expert(self.program.rate, "rate", expert)

    async def _expert(self, predict: Any, purpose: str, expert: str, **more: str) -> Answer:
        self._compact()
        shared = {"problem": self.problem, "conversation": self.transcript.text}
        return await self.run.ask(predict, purpose, "participant", expert, **shared, persona=self.who(expert), **more)

    async def _contribution(self, expert: str, request: str) -> Comment | None:
        """Let an expert speak; None if it declined or has no answer."""
        answer = await self._expert(self.program.contribute, "contribute", expert, request=request)
        if answer.error:
            self.silent("contribute", expert, answer)
            return None
        self.run.answered(expert)
        text, question = clean(answer.text), clean(answer.question)
        if not text and not question:
            self.emit(Declined, expert=expert)
            return None
        to = addressed(str(answer.nominates), "", self.labels(), expert)
        comment: Comment = self.entity(
            Comment,
            expert,
            list(answer.cites),
            text=text or question,
            addressed=to,
            question=question,
            clamped=answer.clamped,
        )
        self.last, self.nominated, self.unsummed = expert, to, True
        self.run.speak(f"{text} {question}")
        return comment

    # ---------------------------------------------------------------- the Sage

    async def _sum_up(self, why: str) -> None:
        self._compact()
        answer = await self.run.ask(
            self.program.sum_up,
            "sum_up",
            SAGE,
            SAGE,
            problem=self.problem,
            conversation=self.transcript.text,
            request=why,
        )
        if answer.error:
            self.run.failed("sum_up", SAGE, answer)
            return
        question = clean(answer.open_question)
        seed = clean(answer.seed) + (f" Open: {question}" if question else "")
        idea = self.entity(
            Idea,
            SAGE,
            list(answer.cites),
            title=clean(answer.title),
            description=seed,
            supersedes=self.seed,
            clamped=answer.clamped,
        )
        self.seed = idea.id
        self.unsummed = False

    def _compact(self) -> None:
        """Keep the conversation within the prompt budget; the Sage's last seed stands for the older part."""
        sketches = [tokens(p.sketch) for p in self.session.personas.values()]
        room = int(self.program.prompt_tokens) - _TASK_TOKENS - tokens(self.problem) - max(sketches, default=0)
        if self.transcript.cost <= max(room, 300):
            return
        seed = self.session.entities.get(self.seed)
        summary = f"{seed.title}. {seed.description}" if isinstance(seed, Idea) else ""
        keep = max(room, 300) // 3
        self.transcript.compact(self.transcript.older(keep), summary, keep)
