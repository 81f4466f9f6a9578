"""One session of a Roundtable: the state of the talk and what happens in each phase.

See ``roundtable`` for how the phases work. Everything here is driven by events and recorded answers alone,
so that a session run again over its log takes the same course.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from .cast import invent, measure_distinctness, report_distinctness, seat
from .course import Course
from .events import (
    FACILITATOR,
    Ballot,
    Chosen,
    Comment,
    Duplicate,
    Facilitation,
    Idea,
    Phase,
    Summary,
    Thought,
    Vote,
)
from .measures import idea_text
from .names import addressed, named
from .run import WRAP_UP, Run
from .session import Status
from .streams import stream
from .text import clean, excerpt, neutral, tokens
from .trajectory import MINUTES_PER_TURN
from .transcript import NOTE_TOKENS, notes, whiteboard
from .turns import Bid, choose_speaker
from .whiteboard import Quotas, count_ballot

if TYPE_CHECKING:
    from .answers import Answer
    from .roundtable import Roundtable

__all__ = ["RoundtableSession"]

_TASK_TOKENS = 450
RULES = (
    "Everyone speaks for themselves, one at a time. {build} Defer judgement of ideas until the vote. Each person "
    "may put up to {ideas} ideas on the whiteboard; after that each has {votes} votes."
)
_BUILD = {
    "required": "Build on what others said and name what you build on by its id.",
    "optional": "Build on what others said; where you do, you may name it by its id.",
    "off": "Build on what others said.",
}


class RoundtableSession(Course):
    """The course of one session.

    Args:
        program: The roundtable and its settings.
        run: The running session.
    """

    def __init__(self, program: Roundtable, run: Run) -> None:
        super().__init__(run)
        self.program = program
        self.topic = neutral(self.session.topic)
        self.rules = RULES.format(build=_BUILD[program.citations], ideas=int(program.ideas), votes=int(program.votes))
        self.quotas = Quotas(int(program.ideas), int(program.votes))
        self.last = ""
        self.addressed: list[str] = []
        self.spoke_at: dict[str, int] = {}
        self.facilitated_at = -1_000
        self.cut = ""

    # ---------------------------------------------------------------- the whole

    async def held(self) -> tuple[Status, str]:
        """Hold the session; return its status and the reason."""
        await self._seat()
        distinctness = asyncio.ensure_future(self._distinctness())
        try:
            if len(self.session.seated) >= 2:
                await self._discussion()
                await self._report(distinctness)
                await self._ideation()
                await self._voting()
            else:
                await self._report(distinctness)
        finally:
            distinctness.cancel()
        status, reason = self._status()
        self.emit(Phase, phase="closed", reason=reason)
        return status, reason

    def _status(self) -> tuple[Status, str]:
        here = len(self.session.seated)
        if here < 2:
            return (
                "partial",
                f"only {here} personas were left" if self.session.personas else "no personas could be made",
            )
        if not self.session.board and int(self.program.ideas):
            return "partial", self.cut or "no idea was proposed"
        return ("cut short", self.cut) if self.cut else ("complete", "all phases were held")

    # ---------------------------------------------------------------- seats

    async def _seat(self) -> None:
        program = self.program
        if isinstance(program.personas, int):
            personas, regenerated = await invent(
                self.run, program.cast, program.sketch, self.topic, program.personas, float(program.distinct)
            )
            seat(self.run, personas, regenerated)
        else:
            seat(self.run, program.personas)
        self.spoke_at = dict.fromkeys(self.session.personas, 0)

    async def _distinctness(self) -> list[list[float]]:
        sketches = [p.sketch for p in self.session.personas.values()]
        return await measure_distinctness(self.run, sketches, "t0000/distinctness")

    async def _report(self, distinctness: asyncio.Future[list[list[float]]]) -> None:
        report_distinctness(self.run, await distinctness, float(self.program.distinct))

    # ---------------------------------------------------------------- discussion

    async def _discussion(self) -> None:
        self.emit(Phase, phase="discussion", reason="the session began")
        while True:
            ending = self._discussion_ending()
            if ending or not await self._turn():
                break
        if self.program.facilitator and not self.cut and self.run.turn and len(self.session.seated) >= 2:
            await self._summary("phase", "the whole discussion", self.transcript.text)

    def _discussion_ending(self) -> bool:
        program, run = self.program, self.run
        if program.turns is not None and run.turn >= int(program.turns):
            return True
        if program.minutes is not None and run.minute >= float(program.minutes):
            return True
        run.turn += 1
        return self._closing(2 * len(self.session.seated) + 2)

    def _closing(self, ahead: int) -> bool:
        self.cut = self.cut or self.run.closing(ahead)
        return bool(self.cut)

    async def _turn(self) -> bool:
        """Hold one cycle; return whether the discussion goes on."""
        await self._compact()
        seated, began = self.session.seated, self.run.minute
        looks = self.program.facilitator and self.run.turn - self.facilitated_at > int(self.program.facilitator_rest)
        shared = self._shared()
        thoughts, look = await asyncio.gather(
            asyncio.gather(*(self._participant(self.program.think, "think", p, shared) for p in seated)),
            self._look(shared) if looks else _nothing(),
        )
        bids = {
            persona: bid
            for persona, answer in zip(seated, thoughts, strict=True)
            if (bid := self._thought(persona, answer)) is not None
        }
        moves_on = look is not None and self._facilitation(look)
        if len(self.session.seated) < 2:
            return False
        if not moves_on:
            await self._floor({p: b for p, b in bids.items() if p not in self.session.left})
            if self.run.minute == began:  # nothing was said: the clock runs on, or the talk might never end
                self.run.minute += MINUTES_PER_TURN
        return not moves_on and len(self.session.seated) >= 2

    def _thought(self, persona: str, answer: Answer) -> Bid | None:
        if answer.error:
            self.silent("think", persona, answer)
            return None
        self.run.answered(persona)
        thought = self.entity(
            Thought,
            persona,
            _cites(answer),
            text=clean(answer.thought),
            eagerness=float(answer.eagerness),
            wants=str(answer.wants),
            clamped=answer.clamped,
        )
        heard = self.session.contributions[persona]
        return Bid(thought.eagerness, thought.wants != "pass", self.run.turn - self.spoke_at[persona], heard)

    async def _floor(self, bids: dict[str, Bid]) -> None:
        """Choose a speaker and let it speak."""
        program = self.program
        choice = choose_speaker(
            bids,
            self.addressed,
            self.last,
            float(program.threshold),
            float(program.fairness),
            stream(self.run.seed, self.run.turn, "speaker"),
        )
        self.addressed = []
        if choice is None:
            return
        self.emit(Chosen, speaker=choice.speaker, tier=choice.tier, reason=choice.reason)
        if self._wants_idea(choice.speaker) and self.quotas.ideas_left(choice.speaker) > 0:
            answer = await self._participant(program.propose, "propose", choice.speaker, self._shared())
            await self._proposal(choice.speaker, answer)
        else:
            await self._comment(choice.speaker)
        if choice.speaker not in self.run.silent_for:
            self.last = choice.speaker
            self.spoke_at[choice.speaker] = self.run.turn

    def _wants_idea(self, persona: str) -> bool:
        """Say whether a persona's last thought was of an idea; a word for it alone may have come since."""
        latest = self.session.own_entities(persona, 2)
        return next((e.wants == "idea" for e in reversed(latest) if isinstance(e, Thought)), False)

    async def _comment(self, persona: str) -> None:
        answer = await self._participant(self.program.speak, "speak", persona, self._shared())
        if answer.error:
            self.silent("speak", persona, answer)
            return
        self.run.answered(persona)
        text = clean(answer.comment)
        to = addressed(str(answer.nominates), text, self.labels(), persona)
        self.entity(Comment, persona, _cites(answer), text=text, addressed=to, clamped=answer.clamped)
        self.run.speak(text)
        self.addressed = [*self.addressed, *to]

    # ---------------------------------------------------------------- facilitator

    async def _look(self, shared: dict[str, str]) -> Answer:
        return await self.run.ask(
            self.program.facilitate, "facilitate", FACILITATOR, FACILITATOR, **shared, state=self._state()
        )

    def _state(self) -> str:
        """Describe the balance of talk and where the session stands against its plan."""
        spoke = ", ".join(f"{self.session.label(p)} {n}" for p, n in self.session.contributions.items())
        plan = self.session.plan()
        expected = plan.ideas_at(self.run.minute) if plan else 0.0
        return (
            f"Contributions: {spoke}. {self._progress():.0%} of the discussion is over. "
            f"Ideas: {len(self.session.board)}, about {expected:.0f} expected."
        )

    def _progress(self) -> float:
        program, run = self.program, self.run
        shares = [0.0]
        if program.turns is not None and int(program.turns):
            shares.append((run.turn - 1) / int(program.turns))
        if program.minutes is not None and float(program.minutes):
            shares.append(run.minute / float(program.minutes))
        return min(max(shares), 1.0)

    def _facilitation(self, answer: Answer) -> bool:
        """Let the facilitator step in if it wants to; return whether the discussion is over."""
        if answer.error:
            self.run.failed("facilitate", FACILITATOR, answer)
            return False
        action, message = str(answer.action), clean(answer.message)
        found = named(str(answer.target), self.labels()) if answer.target else []
        target = found[0] if len(found) == 1 else ""
        if action == "no_action" or (action == "invite" and not target) or (action != "move_on" and not message):
            return False
        accepted = action != "move_on" or self._progress() >= float(self.program.move_on_after)
        self.entity(
            Facilitation,
            FACILITATOR,
            [],
            action=action,
            target=target if action != "move_on" else "",
            text=message or "Let us go on to the next phase.",
            reason=clean(answer.reason),
            accepted=accepted,
            clamped=answer.clamped,
        )
        self.facilitated_at = self.run.turn
        if target and action != "move_on":
            self.addressed = [target, *self.addressed]
        return action == "move_on" and accepted

    async def _summary(self, purpose: Literal["phase", "compaction"], what: str, text: str) -> str:
        """Have a part of the transcript summed up; return the summary, or nothing if that failed."""
        answer = await self.run.ask(
            self.program.summarise,
            f"summary-{purpose}",
            FACILITATOR,
            FACILITATOR,
            topic=self.topic,
            rules=self.rules,
            transcript=text,
            request=f"Sum up {what}.",
        )
        if answer.error:
            self.run.failed(f"summary-{purpose}", FACILITATOR, answer)
            return ""
        summary = clean(answer.summary)
        through = len(self.session.events)
        self.entity(Summary, FACILITATOR, [], purpose=purpose, text=summary, through=through, clamped=answer.clamped)
        return summary

    async def _compact(self) -> None:
        """Keep the transcript within what the prompt budget leaves for it."""
        room = self._transcript_room()
        if self.transcript.cost <= room:
            return
        count = self.transcript.older(room // 3)
        older = self.transcript.oldest(count)
        summary = await self._summary("compaction", "this part of the talk", older)
        self.transcript.compact(count, summary, room // 3)

    def _transcript_room(self) -> int:
        own = int(self.program.memory) * NOTE_TOKENS
        return max(300, self._prompt_room() - own - self._board_limit())

    def _prompt_room(self) -> int:
        """Return what the prompt budget leaves beside what every participant's prompt holds."""
        sketches = [tokens(self.who(p)) for p in self.session.personas]
        fixed = _TASK_TOKENS + tokens(self.topic) + tokens(self.rules) + max(sketches, default=0)
        return int(self.program.prompt_tokens) - fixed

    def _board_limit(self) -> int:
        return int(self.program.prompt_tokens) // 6

    # ---------------------------------------------------------------- ideation

    async def _ideation(self) -> None:
        if not int(self.program.ideas) or len(self.session.seated) < 2:
            return
        if self._enough():
            return
        self.emit(Phase, phase="ideation", reason=self.cut or "the discussion is over")
        end = self.run.minute + float(self.program.ideation_minutes)
        while self.run.minute < end and (proposers := self._proposers()):
            self.run.turn += 1
            self._closing(2 * len(self.session.seated))
            if self._enough():
                break
            await self._compact()
            await self._round(proposers)

    def _proposers(self) -> list[str]:
        return [p for p in self.session.seated if self.quotas.ideas_left(p) > 0]

    def _enough(self) -> bool:
        """Say whether to go straight to the vote: a session cut short still needs an idea to vote on."""
        return bool(self.cut) and (self.cut == WRAP_UP or bool(self.session.board))

    async def _round(self, proposers: Sequence[str]) -> None:
        """Let all propose at once, and put the proposals up in an order drawn from the seed."""
        propose, shared, asked_at = self.program.propose, self._shared(), len(self.session.events)
        answers = await asyncio.gather(*(self._participant(propose, "propose", p, shared) for p in proposers))
        written = [idea_text(clean(a.title), clean(a.description)) for a in answers if not a.error]
        await self.run.embed_ahead(written)
        order = list(zip(proposers, answers, strict=True))
        stream(self.run.seed, self.run.turn, "proposals").shuffle(order)
        for persona, answer in order:
            await self._proposal(persona, answer, asked_at)

    async def _proposal(self, persona: str, answer: Answer, asked_at: int | None = None) -> None:
        """Put a proposal on the whiteboard, or turn it into a vote if it is there already."""
        if answer.error:
            self.silent("propose", persona, answer)
            if answer.refused or persona in self.session.left:
                self.quotas.propose(persona)
            return
        self.run.answered(persona)
        self.quotas.propose(persona)
        title, description = clean(answer.title), clean(answer.description)
        twin, cosine = await self._nearest(persona, idea_text(title, description))
        if twin is None:
            self.entity(
                Idea,
                persona,
                _cites(answer),
                asked_at=asked_at,
                title=title,
                description=description,
                clamped=answer.clamped,
            )
            self.run.speak(idea_text(title, description))
            return
        returned = self.quotas.give_back(persona)
        self.emit(
            Duplicate,
            persona=persona,
            title=title,
            idea=twin.id,
            cosine=round(cosine, 4),
            quota_returned=returned,
        )
        may_vote = self.program.self_votes or twin.author != persona
        if may_vote and twin.id not in self.quotas.voted(persona) and self.quotas.votes_left(persona) > 0:
            self._vote(persona, twin.id, "duplicate", f"proposed the same: {title}")

    async def _nearest(self, persona: str, text: str) -> tuple[Idea | None, float]:
        """Return the idea on the whiteboard that a proposal duplicates, if any, with the cosine."""
        ideas = list(self.session.board)
        if not ideas:
            return None, 0.0
        others = [idea_text(i.title, i.description) for i in ideas]

        def nearest() -> list[float]:
            cosines = self.run.embedder.similarities(text, others)
            best = max(range(len(cosines)), key=lambda at: cosines[at])
            return [best, round(cosines[best], 6)]

        at, cosine = await self.run.slow_reading(f"t{self.run.turn:04}/nearest/{persona}", nearest)
        return (ideas[int(at)] if cosine >= float(self.program.duplicate) else None), cosine

    def _vote(self, persona: str, idea: str, origin: Literal["ballot", "duplicate"], reason: str) -> None:
        self.quotas.vote(persona, idea)
        self.entity(Vote, persona, [idea], idea=idea, origin=origin, reason=reason)

    # ---------------------------------------------------------------- voting

    async def _voting(self) -> None:
        ideas = [idea.id for idea in self.session.board]
        if not ideas or not int(self.program.votes) or not self.session.seated:
            return
        self.run.turn += 1
        self.emit(Phase, phase="voting", reason=self.cut or "all ideas are up")
        voters = self.session.seated
        board = whiteboard(self.session, max(300, self._prompt_room()), full=True)
        answers = await asyncio.gather(*(self._ballot(p, board) for p in voters))
        for persona, answer in zip(voters, answers, strict=True):
            if answer is not None:
                self._count(persona, answer, ideas)

    def _own(self, persona: str) -> list[str]:
        """Return the ideas a persona may not vote for."""
        if self.program.self_votes:
            return []
        return [idea.id for idea in self.session.board if idea.author == persona]

    async def _ballot(self, persona: str, board: str) -> Answer | None:
        left, own = self.quotas.votes_left(persona), self._own(persona)
        barred = [*own, *sorted(self.quotas.voted(persona))]
        if left <= 0 or len(set(barred)) >= len(self.session.board):
            return None
        request = f"You have {left} votes, at most one for each idea."
        if barred:
            request += f" You cannot vote for {', '.join(barred)}."
        return await self.run.ask(
            self.program.vote,
            "vote",
            "participant",
            persona,
            topic=self.topic,
            whiteboard=board,
            persona=self.who(persona),
            request=request,
        )

    def _count(self, persona: str, answer: Answer, ideas: Sequence[str]) -> None:
        if answer.error:
            self.silent("vote", persona, answer)
            return
        voted = self.quotas.voted(persona)
        counted = count_ballot(answer.votes, ideas, self._own(persona), voted, self.quotas.votes_left(persona))
        reason = clean(answer.reason)
        self.emit(Ballot, persona=persona, ideas=counted.votes, dropped=counted.dropped, reason=reason)
        for idea in counted.votes:
            self._vote(persona, idea, "ballot", reason)

    # ---------------------------------------------------------------- prompts

    def _shared(self) -> dict[str, str]:
        board = whiteboard(self.session, self._board_limit())
        return {
            "topic": self.topic,
            "rules": self.rules,
            "transcript": self.transcript.text,
            "whiteboard": board,
        }

    def _taken(self, persona: str) -> str:
        """Remind a persona of its own ideas on the whiteboard: small models propose them again."""
        titles = [
            f"{idea.id} {excerpt(neutral(idea.title), 60)}" for idea in self.session.board if idea.author == persona
        ]
        return f"\nYou proposed {', '.join(titles[-3:])}. Now think of quite another need." if titles else ""

    async def _participant(self, predict: Any, purpose: str, persona: str, shared: dict[str, str]) -> Answer:
        own = notes(self.session, persona, int(self.program.memory))
        if purpose == "propose":
            own += self._taken(persona)
        return await self.run.ask(
            predict, purpose, "participant", persona, **shared, persona=self.who(persona), notes=own
        )


def _cites(answer: Answer) -> list[str]:
    """Return the citations of an answer; none where they were not asked for."""
    return list(answer.outputs.get("cites", ()))


async def _nothing() -> None:
    """Stand in for a look that is not taken."""
