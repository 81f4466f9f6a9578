"""Saved programs and recorded sessions: load, resume, replay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from salon.errors import LogError, UserError

from .baselines import Direct, SelfRefine, VerbalizedSampling, Voting
from .budget import Budget
from .calls import CallProgress
from .debate import Debate
from .document import document_of
from .events import Event, event_from
from .files import RESULT_NAMES, write_results
from .log import Recorded, read_log
from .program import SessionProgram, run_sync
from .roundtable import Roundtable
from .run import Control
from .saving import check_contracts, read_program
from .session import Session
from .text import excerpt
from .yes_and import YesAnd

__all__ = ["PROGRAMS", "ahold_again", "load", "program_of", "read_session", "replay", "resume"]

PROGRAMS: dict[str, type[SessionProgram]] = {
    kind.__name__: kind for kind in (Roundtable, YesAnd, Debate, Direct, Voting, SelfRefine, VerbalizedSampling)
}


def load(folder: str | Path) -> SessionProgram:
    """Load a saved or compiled program.

    Of the folder only ``program.json`` is read, and nothing in it is run. LMs are not part of it: call the
    program under ``dspy.context(lm=...)``, or set its ``lms``.

    Args:
        folder: What ``program.save``, or a compile, wrote.

    Raises:
        OutputError: If there is no program, or its file is damaged.
        UserError: If it does not fit this salon: another version, program, setting, predictor, field or number.
    """
    content = read_program(folder)
    program = program_of(content, saved=True)
    model = Path(program.embedder.model)
    if model.exists() and model.resolve().is_relative_to(Path(folder).resolve()):
        raise UserError(
            f"The program in {folder} is not loaded",
            f"its embedding model {excerpt(str(model), 80)} lies in the same folder, from which nothing is run",
            "Move the model elsewhere, and name that place as `embedder` in the settings of program.json.",
        )
    return program


def program_of(content: dict[str, Any], saved: bool = False) -> SessionProgram:
    """Build a program from its description, as in ``program.json`` or a session's header.

    Args:
        content: Name, settings and state.
        saved: Whether it is that of a program file, which has the contracts of its predictors too.

    Raises:
        UserError: If there is no such program, or its settings or state do not fit.
    """
    name = content.get("name")
    kind = PROGRAMS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise UserError(f"There is no program {excerpt(repr(name)[:500], 60)}", f"known are {', '.join(PROGRAMS)}")
    try:
        settings = _checked_settings(kind, content.get("settings"))
        program = kind(**settings)
        if saved:
            check_contracts(content.get("signatures"), program)
        program.load_state(content.get("state"))
        odd = [key for key, value in program.settings().items() if value != settings[key]]
        if odd:
            told = excerpt(f"{settings[odd[0]]!r}"[:500], 60)
            raise UserError(f"its {odd[0]} would not be {told}, which is no such setting or is at odds with its state")
    except (TypeError, LookupError, AttributeError, ValueError, ArithmeticError) as error:
        told = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        raise UserError(
            f"The saved {kind.__name__} does not fit this salon",
            told.rstrip(".").replace("does not fit this salon", "does not fit"),
            f"It was saved by salon {content['salon']}." if isinstance(content.get("salon"), str) else "",
        ) from error
    return program


def _checked_settings(kind: type[SessionProgram], settings: Any) -> dict[str, Any]:
    """Return settings that are those of a program, no more and no fewer; a switch is true or false.

    Raises:
        UserError: If they are not.
    """
    known = kind().settings()
    if not isinstance(settings, dict):
        raise UserError("its settings are not an object")
    if settings.keys() != known.keys():
        odd = excerpt(", ".join(sorted(map(str, settings.keys() ^ known.keys()))), 200)
        raise UserError(f"its settings differ in {odd}")
    for name, usual in known.items():
        if isinstance(usual, bool) != isinstance(settings[name], bool):
            raise UserError(f"{name}={excerpt(repr(settings[name])[:500], 60)} is not possible")
    return settings


async def ahold_again(
    folder: str | Path,
    *,
    lms: dict[str, Any] | None = None,
    budget: Budget | None = None,
    control: Control | None = None,
    listen: Callable[[Event | CallProgress], None] | None = None,
    offline: bool = False,
    max_concurrency: int | None = None,
) -> Session:
    """Run a recorded session again: over its log, making only the calls that are missing.

    Args:
        folder: The session's folder.
        lms: LMs by role or persona, as for the program.
        budget: Hard limits; what the session spent before counts. Where none are set, an interrupted
            session keeps those it had, and one that ended goes on without.
        control: Lets the caller wrap the session up.
        listen: Told of each event, from the first one on.
        offline: Make no call and write nothing (replay).
        max_concurrency: Most calls in flight; by default as in the session's settings.

    Raises:
        OutputError: If the folder has no session, or cannot be written.
        LogError: If the log is damaged or does not fit, or, offline, is not complete.
    """
    place = Path(folder)
    recorded = read_log(place)
    program = program_of(recorded.header.get("program", {}))
    program.lms = dict(lms or {})
    if max_concurrency is not None:
        program.max_concurrency = max_concurrency
    replaying, offline = offline, offline or finished(recorded)
    session = await program.hold(
        seed=recorded.header["seed"],
        out=None if offline else place,
        budget=budget,
        control=control,
        listen=listen,
        recorded=recorded,
        offline=offline,
        **recorded.header["inputs"],
    )
    session.folder = place
    if offline and not replaying and not all((place / name).exists() for name in RESULT_NAMES):
        write_results(session, place)
    return session


def finished(recorded: Recorded) -> bool:
    """Say whether nothing is left to do in a session."""
    return recorded.end is not None and recorded.end["status"] == "complete"


def resume(folder: str | Path, **arguments: Any) -> Session:
    """Go on with a session that was interrupted, cut short or left partial.

    Calls found in the log are not made again. Of a session that ended early, failed and refused calls
    are tried again; a complete one is returned as it is. Arguments as for ``ahold_again``.
    """
    return run_sync(ahold_again(folder, **arguments))


def replay(folder: str | Path, listen: Callable[[Event | CallProgress], None] | None = None) -> Session:
    """Run a session again over its log alone, without any LM, and return it.

    Raises:
        LogError: If the log is damaged, or the session was interrupted and lacks calls.
    """
    return run_sync(ahold_again(folder, listen=listen, offline=True))


def read_session(folder: str | Path) -> Session:
    """Read a recorded session from its log, finished or not, without running its program.

    Quick, and needs no LM and no embeddings; but the events are taken as they are on file, where ``replay``
    derives them anew from the calls.

    Args:
        folder: The session's folder.

    Returns:
        The session; one that was interrupted, or is still running, has the status ``running``.

    Raises:
        OutputError: If the folder has no session, or it cannot be opened.
        LogError: If the log is damaged.
    """
    place = Path(folder)
    recorded = read_log(place)
    try:
        events = [event_from(event) for event in recorded.events]
        end = recorded.end or {"status": "running", "reason": "its log has no end"}
        session = Session(recorded.header, events, end["status"], end["reason"], recorded.usage, place, recorded)
        document_of(session)  # what cannot be told as a document is no session
    except (ValueError, TypeError, LookupError) as error:
        trouble = f"{type(error).__name__}: {excerpt(str(error), 200)}"
        raise LogError(f"The log in {place} is damaged", f"its records do not make a session ({trouble})") from error
    return session
