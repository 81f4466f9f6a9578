"""The history of an idea, told by a language model from its path of citations alone.

The path is a longest citation chain of the idea together with the entries that it cites itself, in order of
creation; votes come later and are never on it. Texts are made inert and shortened, and of a path that is too
long for its budget the middle is left out. Which ids the history names is read from its text: those on the
path are ``cited``, all others ``invented``. The text is never corrected, so a reader can see what was made up.
"""

from __future__ import annotations

import asyncio
import re

import dspy

from salon.errors import CallFailure, UserError

from ..signatures.lineage import TellHistory
from .budget import Budget
from .calls import Desk, LMs
from .events import Entity, wording
from .log import Recorded, SessionLog
from .program import run_sync
from .session import Session
from .text import fitted, neutral, tokens

__all__ = ["Narrator", "path_lines", "path_of"]

_ENTRY = 80  # tokens of one entry's text
_NAME = 20  # tokens of its author's name
_LEAST = 300  # tokens that hold the ends of any path
_TOPIC = 300  # tokens of the topic
_ID = re.compile(r"(?<!\w)[CDFISTUV][0-9]+(?!\w)")
_NARRATOR = "narrator"


class Narrator(dspy.Module):
    """Tells the history of an idea; uses DSPy's current LM, or the one of ``set_lm``.

    Args:
        path_tokens: Most tokens that the path may take in the prompt, at least 300.

    Raises:
        UserError: If ``path_tokens`` is too small.
    """

    def __init__(self, path_tokens: int = 3000) -> None:
        super().__init__()
        if path_tokens < _LEAST:
            raise UserError(f"path_tokens={path_tokens} is not possible", f"a path needs {_LEAST} tokens or more")
        self.path_tokens = path_tokens
        self.tell = dspy.Predict(TellHistory)

    async def aforward(self, session: Session, idea: str) -> dspy.Prediction:
        """Tell the history of an idea.

        Args:
            session: The session.
            idea: Id of the idea.

        Returns:
            A prediction with ``history``, and with the ids that it names: ``cited`` (on the path it was shown)
            and ``invented`` (all others), each in order of first mention.

        Raises:
            UserError: If the session has no such idea.
            CallFailure: If the call fails.
            LMSetupError: If there is no LM.
        """
        shown = self._shown(session, idea)
        desk = Desk(
            log=SessionLog(None, Recorded(session.header)),
            lms=LMs(),
            seed=int(session.header["seed"]),
            budget=Budget(),
            limit=asyncio.Semaphore(1),
        )
        answer = await desk.ask(
            self.tell,
            f"{idea}/history/{_NARRATOR}",
            _NARRATOR,
            _NARRATOR,
            topic=fitted(neutral(session.topic), _TOPIC),
            path="\n".join(shown.values()),
            request=f"Tell the history of {idea}.",
        )
        if answer.error:
            raise CallFailure(f"The history of {idea} could not be told", answer.error, "Try again, or another model.")
        history = str(answer.history)
        named = dict.fromkeys(_ID.findall(history))
        cited = [name for name in named if name in shown]
        return dspy.Prediction(history=history, cited=cited, invented=[name for name in named if name not in shown])

    def forward(self, session: Session, idea: str) -> dspy.Prediction:
        """Do as ``aforward``, for callers without an event loop and for those inside one."""
        return run_sync(self.acall(session=session, idea=idea))

    def _shown(self, session: Session, idea: str) -> dict[str, str]:
        if idea not in session.votes:
            raise UserError(f"The session has no idea {idea!r}", f"its ideas are: {', '.join(session.votes) or 'none'}")
        return path_lines(session, path_of(session, idea), self.path_tokens)


def path_of(session: Session, idea: str) -> list[Entity]:
    """Return what led to an idea, in order of creation: a longest chain and what it cites, itself last."""
    on_path = {*session.lineage.longest_chain(idea), *session.lineage.cites[idea]}
    return [entity for name, entity in session.entities.items() if name in on_path]


def path_lines(session: Session, path: list[Entity], limit: int) -> dict[str, str]:
    """Return a path as numbered lines by id, at most ``limit`` tokens; what does not fit goes from the middle."""
    lines = {entity.id: _line(session, number, entity) for number, entity in enumerate(path, 1)}
    names = list(lines)
    order = [name for pair in zip(reversed(names), names, strict=True) for name in pair]  # last, first, last but one
    kept: set[str] = set()
    left = limit
    for name in dict.fromkeys(order):
        left -= tokens(lines[name]) + 1
        if left < 0:
            break
        kept.add(name)
    return {name: line for name, line in lines.items() if name in kept}


def _line(session: Session, number: int, entity: Entity) -> str:
    who, said = (neutral(text) for text in (session.label(entity.author), wording(entity)))
    return f"{number}. {entity.id} {fitted(who, _NAME)} {type(entity).__name__.lower()}: {fitted(said, _ENTRY)}"
