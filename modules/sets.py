"""G independent sessions on the same inputs, and how different their answers are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from salon.errors import RunFailure, UserError

from .budget import Budget
from .diversity import div_bleu, pairwise_distance, vendi
from .program import SessionProgram, run_sync
from .session import Session
from .streams import rollout_id

__all__ = ["SessionSet", "asessions", "sessions"]


@dataclass(frozen=True)
class SessionSet:
    """Sessions of one program on the same inputs.

    Attributes:
        sessions: Those that ended with an answer, in order of their number.
        answers: Their answers.
        failures: Why the others have none, by their number.
        vendi: Vendi score of the answers, from 1 to their number; None for fewer than two.
        distance: Mean pairwise distance (1 - cosine); None for fewer than two.
        div_bleu: 100 * (1 - self-BLEU); None for fewer than two.
    """

    sessions: list[Session]
    answers: list[str]
    failures: dict[int, str] = field(default_factory=dict)
    vendi: float | None = None
    distance: float | None = None
    div_bleu: float | None = None


async def asessions(
    program: SessionProgram,
    inputs: Mapping[str, Any],
    g: int = 5,
    seed: int = 0,
    out: str | Path | None = None,
    budget: Budget | None = None,
) -> SessionSet:
    """Hold G sessions at once, under one limit of calls in flight, and measure their answers.

    The sessions' seeds are derived from ``seed``, so their cached answers are kept apart, and the same call
    gives the same set.

    Args:
        program: The session program.
        inputs: Its inputs, e.g. ``{"task": "..."}``.
        g: How many sessions.
        seed: Decides the seeds of all sessions.
        out: Folder for their logs, in subfolders ``1`` to ``g``; None keeps them in memory.
        budget: Hard limits of each session.

    Raises:
        UserError: If ``g`` is less than 1, or inputs or settings cannot work.
        RunFailure: If no session has an answer.
    """
    if isinstance(g, bool) or not isinstance(g, int) or g < 1:
        raise UserError(f"g={g!r} is not possible", "it is the number of sessions, 1 or more")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise UserError(f"seed={seed!r} is not possible", "it must be a whole number")
    limit = asyncio.Semaphore(program.max_concurrency)

    async def one(number: int) -> Session:
        return await program.hold(
            **inputs,
            seed=rollout_id(seed, "session", number),
            out=None if out is None else Path(out) / str(number),
            budget=budget,
            limit=limit,
        )

    held = await asyncio.gather(*(one(n) for n in range(1, g + 1)), return_exceptions=True)
    good: list[Session] = []
    failures: dict[int, str] = {}
    for number, session in enumerate(held, 1):
        if isinstance(session, Session) and program.answer(session):
            good.append(session)
        elif isinstance(session, Session):
            failures[number] = session.reason
        elif isinstance(session, RunFailure):
            failures[number] = str(session)
        else:
            raise session
    if not good:
        raise RunFailure("No session has an answer", "; ".join(sorted(set(failures.values()))))
    answers = [program.answer(session) for session in good]
    vectors = await asyncio.to_thread(program.embedder.embed, answers)
    return SessionSet(good, answers, failures, vendi(vectors), pairwise_distance(vectors), div_bleu(answers))


def sessions(program: SessionProgram, inputs: Mapping[str, Any], **arguments: Any) -> SessionSet:
    """Do as ``asessions``, for callers without an event loop and for those inside one."""
    return run_sync(asessions(program, inputs, **arguments))
