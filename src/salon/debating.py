"""``salon debate``: agents answer a task, revise and choose, live in the terminal."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from salon.errors import UserError
from salon.running import budget, default_folder, held, made_or_loaded, make_models, model_names, prepare, resumption

__all__ = ["command"]


def command(options: argparse.Namespace) -> int:
    """Hold or resume a debate as the options say; return the exit code."""
    if options.resume:
        from salon.modules.archive import ahold_again

        folder, program, again = resumption(options, "Debate")
        return held(options, folder, program, program.calls(), lambda **steer: ahold_again(folder, **again, **steer))
    if not options.task:
        raise UserError("There is no task", "a debate needs one", 'Try: salon debate "your task".')
    program = _program(options)
    inputs = program.checked({"task": options.task})
    folder = Path(options.out) if options.out else default_folder(inputs["task"])
    prepare(folder, options.force)
    program.lms = make_models(model_names(options, program.roles), options)
    settings = {"seed": options.seed or 0, "out": folder, "budget": budget(options), **inputs}
    return held(options, folder, program, program.calls(), lambda **steer: program.hold(**settings, **steer))


def _program(options: argparse.Namespace) -> Any:
    import salon

    given = {
        "agents": options.agents,
        "rounds": options.rounds,
        "k": options.k,
        "peers": options.peers,
        "protocol": options.protocol,
        "lenses": options.lenses.split(",") if options.lenses else options.lenses,
        "max_concurrency": options.concurrency,
    }
    if given["lenses"] == ["none"]:
        given["lenses"] = False
    if options.preset and options.program:
        raise UserError("--preset makes a program", "--program names one", "Give one of them.")
    make = getattr(salon.Debate, options.preset.replace("-", "_")) if options.preset else salon.Debate
    return made_or_loaded(options, make, given)
