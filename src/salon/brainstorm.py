"""``salon brainstorm``: one roundtable, live in the terminal, with its folder of results."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from salon.errors import UserError
from salon.running import budget, default_folder, held, made_or_loaded, make_models, model_names, prepare, resumption

__all__ = ["command"]


def command(options: argparse.Namespace) -> int:
    """Hold or resume a session as the options say; return the exit code."""
    if options.resume:
        return _resumed(options)
    if not options.topic:
        raise UserError("There is no topic", "brainstorm needs one", 'Try: salon brainstorm "your topic".')
    program = _program(options)
    inputs = program.checked({"topic": options.topic})
    names = model_names(options, program.roles)
    expected = _expected(program, inputs["topic"], names)
    if options.dry_run:
        return _dry_run(expected, names, options.json)
    folder = Path(options.out) if options.out else default_folder(inputs["topic"])
    prepare(folder, options.force)
    program.lms = make_models(names, options)
    settings = {"seed": options.seed or 0, "out": folder, "budget": budget(options), **inputs}
    return held(options, folder, program, expected.calls, lambda **steer: program.hold(**settings, **steer))


def _resumed(options: argparse.Namespace) -> int:
    from salon.modules.archive import ahold_again
    from salon.modules.log import read_log

    folder, program, settings = resumption(options, "Roundtable")
    topic = read_log(folder).header["inputs"]["topic"]
    expected = _expected(program, topic, {who: lm.model for who, lm in program.lms.items()})
    return held(options, folder, program, expected.calls, lambda **steer: ahold_again(folder, **settings, **steer))


def _program(options: argparse.Namespace) -> Any:
    """Build the roundtable, or load the one that was saved and change what the options name."""
    import salon

    given = {
        "personas": personas_of(options.personas),
        "minutes": options.minutes,
        "turns": options.turns,
        "ideas": options.ideas,
        "votes": options.votes,
        "facilitator": options.facilitator,
        "citations": options.citations,
        "embedder": options.embedder,
        "max_concurrency": options.concurrency,
    }
    return made_or_loaded(options, salon.Roundtable, given)


def personas_of(text: str | None) -> Any:
    """Return what ``--personas`` or ``--experts`` names: a number, a pool's personas, or None."""
    import salon

    if text is None:
        return None
    if re.fullmatch(r"-?\d+", text.strip()):
        return int(text)
    return salon.load_personas(text)


def _expected(program: Any, topic: str, names: dict[str, str]) -> Any:
    from salon.estimate import estimate

    return estimate(program, topic, names)


def _dry_run(expected: Any, names: dict[str, str], as_json: bool) -> int:
    """Print what the session is expected to cost; no server was started and no key needed."""
    if as_json:
        print(json.dumps({**vars(expected), "models": names}))
    else:
        who = ", ".join(f"{role}: {name}" for role, name in names.items())
        print(f"Expected ({who}): {expected}. Nothing was spent.")
    return 0
