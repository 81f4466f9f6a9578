"""Who takes part: inventing personas that differ, and seating them.

The cast (names and roles) comes from one call in which contrast is demanded; then all sketches are written
at once, each knowing the whole cast. Sketches whose embeddings are too close are written once more, told
what they must not resemble; what is still too close then is reported with the distinctness matrix.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ..signatures.personas import Persona
from .diversity import cosines, too_close
from .events import Distinctness, Joined
from .names import labels
from .run import Run
from .text import excerpt, neutral

__all__ = ["invent", "measure_distinctness", "seat"]


def seat(run: Run, personas: Sequence[Persona], regenerated: frozenset[int] = frozenset()) -> None:
    """Let the personas join, in order, with ids P1.. and labels that are unique."""
    ids = [f"P{n}" for n in range(1, len(personas) + 1)]
    shown = labels([p.name for p in personas], ids)
    for at, (name, persona) in enumerate(zip(ids, personas, strict=True)):
        run.emit(
            Joined,
            persona=name,
            name=persona.name,
            label=shown[name],
            role=persona.role,
            sketch=persona.sketch,
            extra=persona.extra,
            regenerated=at in regenerated,
        )


async def measure_distinctness(run: Run, sketches: list[str], key: str) -> list[list[float]]:
    """Return the cosines of all pairs of sketches; a reading, taken in a thread."""
    matrix: list[list[float]] = await run.slow_reading(key, lambda: cosines(run.embedder.embed(sketches)))
    return matrix


def report_distinctness(run: Run, matrix: list[list[float]], limit: float) -> None:
    """Emit the distinctness matrix with the pairs that are too close."""
    ids = list(run.session.personas)
    pairs = [(ids[i], ids[j]) for i, j in too_close(matrix, limit)]
    run.emit(Distinctness, personas=ids, matrix=matrix, too_close=pairs)


async def invent(run: Run, cast: Any, sketch: Any, topic: str, count: int, limit: float) -> tuple[list[Persona], Any]:
    """Invent personas.

    Args:
        run: The running session.
        cast: Predictor for ``CastPersonas``.
        sketch: Predictor for ``SketchPersona``.
        topic: The session's topic, safe for prompts.
        count: How many are wanted.
        limit: Cosine above which two sketches are too close.

    Returns:
        The personas (fewer where calls failed), and which of them were written a second time.
    """
    answer = await run.ask(cast, "cast", "participant", "cast", topic=topic, request=f"{count} people, all different.")
    if answer.error:
        run.failed("cast", "cast", answer)
        return [], frozenset()
    seats = [(str(p.name), str(p.role)) for p in answer.people][:count]
    for number in range(len(seats), count):
        seats.append((f"Guest {number + 1}", "a passer-by with no stake in the topic"))
    shown = [", ".join(filter(None, (neutral(name), neutral(role)))) for name, role in seats]
    roster = "\n".join(f"{n}. {who}" for n, who in enumerate(shown, 1))

    async def sketched(purpose: str, demands: dict[int, str]) -> list[str]:
        """Have the sketches of some seats written at once; failures are told in seat order."""

        async def one(at: int, demand: str) -> Any:
            who, name = f"{at + 1}. {shown[at]}{demand}", f"seat{at + 1}"
            return await run.ask(sketch, purpose, "participant", name, topic=topic, cast=roster, persona=who)

        answers = await asyncio.gather(*(one(at, demand) for at, demand in demands.items()))
        for at, answer in zip(demands, answers, strict=True):
            if answer.error:
                run.failed(purpose, f"seat{at + 1}", answer)
        return ["" if answer.error else str(answer.sketch) for answer in answers]

    sketches = await sketched("sketch", dict.fromkeys(range(len(seats)), ""))
    again = await _too_close_seats(run, sketches, limit)

    taken = "\nThis sketch is taken, be nothing like it: "
    demands = {at: taken + excerpt(neutral(sketches[other]), 300) for at, other in again.items()}
    for at, text in zip(demands, await sketched("resketch", demands), strict=True):
        sketches[at] = text or sketches[at]
    kept = [at for at, text in enumerate(sketches) if text]
    personas = [Persona(name=seats[at][0], role=seats[at][1], sketch=sketches[at]) for at in kept]
    return personas, frozenset(n for n, at in enumerate(kept) if at in again)


async def _too_close_seats(run: Run, sketches: list[str], limit: float) -> dict[int, int]:
    """Return the seats to write again, each with the earlier seat it resembles."""
    written = [at for at, text in enumerate(sketches) if text]
    matrix = await measure_distinctness(run, [sketches[at] for at in written], "t0000/distinctness/draft")
    again: dict[int, int] = {}
    for i, j in too_close(matrix, limit):
        if written[i] not in again:
            again.setdefault(written[j], written[i])
    return again
