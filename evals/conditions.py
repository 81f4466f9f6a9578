"""Sessions of one program under several conditions, side by side: held, resumed, measured and rated.

Each session has its own folder, so a study that was interrupted goes on where it stopped; one that is complete
is read and not held again. Sessions of another topic, program or model are never mixed in: that is found out
before anything is spent. All run at once under one limit of calls in flight. A session that fails is an
outcome with its reason, never left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from salon.errors import CallFailure, OutputError, RunFailure, UserError

from ..modules.archive import finished, read_session
from ..modules.budget import Budget, Usage
from ..modules.log import LOG_NAME, Recorded, read_log
from ..modules.measures import Measures, idea_text
from ..modules.program import SessionProgram
from ..modules.session import Session
from .judges import Rated, RubricJudge
from .ledger import SAME_MODELS, Ledger, other_models, together

__all__ = [
    "Condition",
    "Outcome",
    "Progress",
    "check_whole",
    "earlier",
    "hold_all",
    "rate_all",
    "row",
    "sessions_at_once",
]

_OTHER = {"program": "other settings", "inputs": "another topic", "seed": "another seed"}
_COLUMNS = {"citations": "citations_each"}  # measures whose own name is that of a setting
_UNTOLD = {"undefined", "influence"}  # measures that are no column of a table


@dataclass(frozen=True)
class Condition:
    """One session to hold.

    Attributes:
        factors: What tells it from the others, e.g. ``{"minutes": 5, "citations": "optional"}``: settings of
            the program.
        seed: Its seed.
    """

    factors: dict[str, Any]
    seed: int

    def folder(self, root: Path) -> Path:
        """Return where the session is."""
        parts = (f"{n}-{v:g}" if isinstance(v, int | float) else f"{n}-{v}" for n, v in self.factors.items())
        return root.joinpath(*parts, f"seed-{self.seed}")


@dataclass
class Outcome:
    """What came of a condition.

    Attributes:
        condition: The condition.
        session: The session; None if it could not be held.
        measures: Its measures.
        ratings: Ratings of its ideas, by id.
        failure: Why there is no session.
    """

    condition: Condition
    session: Session | None = None
    measures: Measures | None = None
    ratings: dict[str, Rated] = field(default_factory=dict)
    failure: str = ""

    @property
    def quality(self) -> float | None:
        """Mean quality of the rated ideas, 1 to 10; None if there are none."""
        known = [rated.value for rated in self.ratings.values() if rated.value is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True)
class Progress:
    """How far a set of sessions is: sessions done, sessions in all, and what was spent in this run and before."""

    done: int
    total: int
    spent: Usage


def check_whole(name: str, value: object, least: int | None = None) -> None:
    """Make sure that a setting is a whole number, and no less than ``least``.

    Raises:
        UserError: If it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
        needed = "it must be a whole number" + ("" if least is None else f", {least} or more")
        raise UserError(f"{name}={value!r} is not possible", needed)


def sessions_at_once(max_concurrency: int, seats: int) -> int:
    """Return how many sessions keep so many calls in flight.

    Half of the time a session has one call in flight for each seat, half of the time a single one. More sessions
    would only wait for each other, and push each other's prompts out of a server's prefix cache.
    """
    return max(1, 2 * max_concurrency // seats)


async def hold_all(
    program: SessionProgram,
    inputs: Mapping[str, Any],
    conditions: Sequence[Condition],
    root: Path,
    limit: asyncio.Semaphore,
    at_once: int,
    budget: Budget | None = None,
    tell: Callable[[Progress], None] = lambda _: None,
) -> list[Outcome]:
    """Hold, resume or read the sessions of all conditions, and measure them.

    Args:
        program: The program; each condition changes some of its settings.
        inputs: Inputs of all sessions.
        conditions: What to hold.
        root: Folder of all sessions.
        limit: Bounds calls in flight over all of them.
        at_once: Sessions under way at most (see ``sessions_at_once``).
        budget: Hard limits of each session.
        tell: Told whenever a session is done.

    Raises:
        OutputError: If a folder holds another session, or cannot be written.
        LogError: If a log is damaged.
        CallFailure: If no call can succeed (model name, key).
    """
    programs = [program.changed(**condition.factors) for condition in conditions]
    known = [earlier(p, inputs, c.seed, c.folder(root)) for p, c in zip(programs, conditions, strict=True)]
    spent, done, room = Usage(), 0, asyncio.Semaphore(at_once)

    async def one(condition: Condition, changed: SessionProgram, recorded: Recorded | None) -> Outcome:
        nonlocal done
        folder = condition.folder(root)
        try:
            if recorded is not None and finished(recorded):
                session = read_session(folder)
            else:
                settings: dict[str, Any] = {"budget": budget, "limit": limit, "recorded": recorded}
                async with room:
                    session = await changed.hold(**inputs, seed=condition.seed, out=folder, **settings)
        except CallFailure:
            raise
        except RunFailure as error:
            outcome = Outcome(condition, failure=str(error))
        else:
            measures = await asyncio.to_thread(session.measures, program.embedder)
            outcome = Outcome(condition, session, measures)
            spent.add(session.usage)
        done += 1
        tell(Progress(done, len(conditions), spent))
        return outcome

    return await together(one(*item) for item in zip(conditions, programs, known, strict=True))


def earlier(program: SessionProgram, inputs: Mapping[str, Any], seed: int, folder: Path) -> Recorded | None:
    """Return what a folder has of a session, to go on with it; None if there is none.

    Raises:
        OutputError: If it is the session of another program, input, seed or model.
        LogError: If its log is damaged.
    """
    if not (folder / LOG_NAME).exists():
        return None
    recorded = read_log(folder)
    header = recorded.header
    now = {"program": program.described(), "inputs": dict(inputs), "seed": seed}
    if odd := [_OTHER[name] for name, value in now.items() if _lasting(header[name]) != _lasting(value)]:
        why = f"it has {' and '.join(odd)}"
        raise OutputError(f"{folder} holds another session", why, "Give the same settings, or another folder.")
    if told := other_models(header["models"], program.described_lms()):
        raise OutputError(f"{folder} holds a session of other models", told, SAME_MODELS)
    return recorded


def _lasting(value: Any) -> Any:
    """Return settings without those that change nothing in a session."""
    if not isinstance(value, Mapping) or "settings" not in value:
        return value
    return {**value, "settings": {k: v for k, v in value["settings"].items() if k != "max_concurrency"}}


async def rate_all(outcomes: Sequence[Outcome], judge: RubricJudge, ledger: Ledger) -> None:
    """Have the ideas of all sessions rated by a judge of one LM, each alone, and note the ratings in the outcomes."""

    async def one(outcome: Outcome) -> None:
        if outcome.session is None:
            return
        place, topic, ideas = outcome.condition.folder(Path()).as_posix(), outcome.session.topic, outcome.session.board
        rated = await together(
            judge.rate(ledger, f"{place}/{idea.id}", topic, idea_text(idea.title, idea.description)) for idea in ideas
        )
        outcome.ratings = {idea.id: rating for idea, (rating,) in zip(ideas, rated, strict=True)}

    await together(one(outcome) for outcome in outcomes)


def row(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as one row of a table: factors, seed, status, measures, quality, cost."""
    session = outcome.session
    known = asdict(outcome.measures) if outcome.measures is not None else {}
    measured = {_COLUMNS.get(f.name, f.name): known.get(f.name) for f in fields(Measures) if f.name not in _UNTOLD}
    return {
        **outcome.condition.factors,
        "seed": outcome.condition.seed,
        "status": session.status if session else "failed",
        "reason": session.reason if session else outcome.failure,
        "turns": session.events[-1].turn if session and session.events else None,
        **measured,
        "quality": outcome.quality,
        "rated": sum(r.value is not None for r in outcome.ratings.values()),
        "calls": session.usage.calls if session else None,
        "prompt_tokens": session.usage.prompt_tokens if session else None,
        "completion_tokens": session.usage.completion_tokens if session else None,
        "usd": session.usage.usd if session else None,
        "seconds": session.usage.seconds if session else None,
    }
