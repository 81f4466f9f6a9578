"""What the commands that hold sessions share: models, output folder, live run, report."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from salon.errors import OutputError, UserError
from salon.modules.log import LOG_NAME

__all__ = [
    "COMMANDS",
    "budget",
    "default_folder",
    "held",
    "made_or_loaded",
    "make_models",
    "model_names",
    "model_names_again",
    "prepare",
    "report",
    "resumption",
    "write_progress",
]

COMMANDS = {"Roundtable": "brainstorm", "YesAnd": "chat", "Debate": "debate"}
_RESUMABLE = {
    *("command", "module", "arguments", "resume", "json", "concurrency"),
    *("lm", "api_base", "api_key", "max_usd", "max_tokens", "max_seconds", "max_calls"),
}
_BETTER = (
    "This is the small embedded model. For better ideas name another, e.g. --lm openai/gpt-5-mini, "
    "--lm anthropic/claude-sonnet-5, --lm ollama_chat/qwen3 or --lm hosted_vllm/... --api-base URL."
)


def model_names(options: argparse.Namespace, roles: tuple[str, ...]) -> dict[str, str]:
    """Return the model name of each role, and of each persona that has its own."""
    default = os.environ.get("SALON_LM") or "embedded"
    named: dict[str, str] = {}
    for text in options.lm or []:
        who, found, model = text.partition("=")
        if found:
            named[who] = model
        else:
            default = text
    return {**dict.fromkeys(roles, default), **named}


def model_names_again(
    options: argparse.Namespace, roles: tuple[str, ...], held: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str | None] | None]:
    """Return models and addresses by role: those that held a session, except where the user names others.

    An address that is given along with models of single roles is theirs; given alone it replaces all recorded ones.

    Args:
        options: Of the command.
        roles: Roles that need a model; one that the session did not have gets its participants'.
        held: What the session's header says of its models, by role or persona.

    Returns:
        Models by role or persona, and their addresses; None instead of these where ``--api-base`` is everyone's.
    """
    if os.environ.get("SALON_LM") or any("=" not in text for text in options.lm or []):
        return model_names(options, roles), None
    had = {**dict.fromkeys(roles, held["participant"]), **held}
    given = dict(text.split("=", 1) for text in options.lm or [])
    recorded = {who: (options.api_base if not given else None) or model.get("api_base") for who, model in had.items()}
    names = {**{who: str(model["model"]) for who, model in had.items()}, **given}
    return names, {**recorded, **dict.fromkeys(given, options.api_base)}


def make_models(
    names: dict[str, str], options: argparse.Namespace, bases: Mapping[str, str | None] | None = None
) -> dict[str, Any]:
    """Make the LMs; roles with the same model at the same address share one.

    Args:
        names: Model by role or persona.
        options: Of the command.
        bases: Addresses by role or persona; by default ``--api-base`` is everyone's.
    """
    import salon

    made: dict[tuple[str, str | None], Any] = {}
    by_role: dict[str, Any] = {}
    for who, name in names.items():
        base = None if name.startswith("embedded") else bases[who] if bases is not None else options.api_base
        if (name, base) not in made:
            made[name, base] = salon.lm(name, api_base=base, api_key=options.api_key)
        by_role[who] = made[name, base]
    return by_role


def budget(options: argparse.Namespace) -> Any:
    """Return the limits that the options set."""
    from salon.modules.budget import Budget

    return Budget(usd=options.max_usd, tokens=options.max_tokens, seconds=options.max_seconds, calls=options.max_calls)


def made_or_loaded(options: argparse.Namespace, kind: Any, settings: Mapping[str, Any]) -> Any:
    """Make a program, or load the one that ``--program`` names and change in it what the options name.

    Args:
        options: Of the command.
        kind: The class of the program, or what makes a variant of it.
        settings: What the options say; None leaves a setting as it is.

    Raises:
        UserError: If the saved program is one of another command.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if not options.program:
        return kind(**given)
    import salon

    saved = salon.load(options.program)
    if not isinstance(saved, kind):
        why = f"this command runs a {kind.__name__}"
        raise UserError(f"{options.program} holds a {type(saved).__name__}", why)
    if given.keys() & {"minutes", "turns"}:  # one bound that is named replaces both that were saved
        given = {"minutes": None, "turns": None, **given}
    return saved.changed(**given)


def default_folder(topic: str) -> Path:
    """Return the folder of a session that was given none: by time and topic."""
    slug = "-".join(re.findall(r"[^\W_]+", topic.lower()))[:40].strip("-") or "session"
    return Path("salon-runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{slug}"


def prepare(folder: Path, force: bool) -> None:
    """Make sure, before anything is spent, that the folder can take a session.

    Raises:
        OutputError: If it holds something already, or cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file", "a folder is needed", "Give another one with --out.")
    probe = folder / ".probe"
    try:
        if folder.exists() and any(folder.iterdir()):
            _refuse_used(folder, force)
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"\0" * 65536)
        probe.unlink()
    except OSError as error:
        todo = "Give another folder with --out."
        raise OutputError(f"{folder} cannot be written", error.strerror or str(error), todo) from error


def _refuse_used(folder: Path, force: bool) -> None:
    """Refuse a folder that is in use; with ``force`` remove the session in it."""
    from salon.modules.files import RESULT_NAMES

    if not (folder / LOG_NAME).exists():
        raise OutputError(f"{folder} is not empty", "it holds no session either", "Give another one with --out.")
    if not force:
        todo = f"Go on with it: --resume {folder}; replace it: --force."
        raise OutputError(f"{folder} holds a session already", "it would be overwritten", todo)
    for name in (LOG_NAME, *RESULT_NAMES):
        (folder / name).unlink(missing_ok=True)


def resumption(options: argparse.Namespace, program: str) -> tuple[Path, Any, dict[str, Any]]:
    """Return folder, program and arguments for going on with a session, with the models it had unless others are named.

    Raises:
        UserError: If the folder holds a session of another program.
        LogError: If its log is damaged.
    """
    from salon.modules.archive import program_of
    from salon.modules.log import read_log

    folder = Path(options.resume)
    header = read_log(folder).header
    restored = program_of(header["program"])
    if type(restored).__name__ != program:
        raise UserError(f"{folder} holds a session of {type(restored).__name__}", f"this command resumes a {program}")
    text = getattr(options, restored.inputs[0], None)
    if text and text != header["inputs"][restored.inputs[0]]:
        raise UserError(f"A resumed session keeps its {restored.inputs[0]}", "another one was given", "Leave it out.")
    given = {name for name, value in vars(options).items() if value not in (None, False)}
    if ignored := sorted(given - _RESUMABLE - {restored.inputs[0]}):
        raise UserError(
            f"--{ignored[0].replace('_', '-')} cannot be changed on --resume", "the session keeps what it had"
        )
    names, bases = model_names_again(options, restored.roles, header["models"])
    restored.lms = make_models(names, options, bases)
    restored.max_concurrency = options.concurrency or restored.max_concurrency
    return folder, restored, {"lms": restored.lms, "budget": budget(options), "max_concurrency": options.concurrency}


def held(
    options: argparse.Namespace, folder: Path, program: Any, expected: int, hold: Callable[..., Awaitable[Any]]
) -> int:
    """Run a session under the live view, print its result, and return the exit code.

    Args:
        options: Of the command.
        folder: Where the session is.
        program: What is run.
        expected: Calls expected, for the time left.
        hold: Called with ``listen`` and ``control``.
    """
    from salon.modules.control import Control
    from salon.view import SessionView, stderr_console

    console, control = stderr_console(), Control()
    advise(console, program)
    with SessionView(console, expected, options.max_seconds) as view:
        session = asyncio.run(_until_stopped(hold(listen=view, control=control), control, view))
    if session is None:
        console.print(
            f"Stopped. Go on with: salon {options.command} --resume {folder}", highlight=False, soft_wrap=True
        )
        return 130
    return report(session, folder, options.json, options.command)


def advise(console: Any, program: Any) -> None:
    """Say how to use a better model, where the embedded one is used."""
    if any(str(lm.model).startswith("embedded") for lm in program.lms.values()):
        console.print(_BETTER, style="dim", highlight=False, soft_wrap=True)


async def _until_stopped(session: Awaitable[Any], control: Any, view: Any) -> Any:
    """Await a session; one Ctrl-C lets it vote and end, a second one stops it. None if it was stopped."""
    task = asyncio.ensure_future(session)

    def interrupted() -> None:
        if control.wrap_up:
            task.cancel()
        else:
            control.wrap_up = True
            view.say("Coming to an end with what is there. Ctrl-C again to stop at once.")

    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C stops at once
        loop.add_signal_handler(signal.SIGINT, interrupted)
    try:
        return await task
    except asyncio.CancelledError:
        return None


def report(session: Any, folder: Path, as_json: bool, command: str) -> int:
    """Print a session's result to stdout and where it is to stderr; return the exit code."""
    from rich.console import Console

    from salon.modules.files import cost_line, session_json
    from salon.view import print_result, stderr_console

    if as_json:
        print(session_json(session))
    else:
        print_result(Console(file=sys.stdout), session)
    console = stderr_console()
    ending = f": {session.reason}" if session.reason else ""
    console.print(
        f"\n{session.status.capitalize()}{ending}. {cost_line(session.usage)}.", highlight=False, soft_wrap=True
    )
    console.print(f"History, log and tables: {folder}", highlight=False, soft_wrap=True)
    if session.status != "complete":
        console.print(f"Go on with: salon {command} --resume {folder}", highlight=False, soft_wrap=True)
    return 1 if session.status == "partial" else 0


@contextlib.contextmanager
def write_progress() -> Iterator[Callable[[str], None]]:
    """Give a function that shows a line on stderr: in place on a terminal, else one under the other."""
    from salon.view import stderr_console

    console = stderr_console()
    if not console.is_terminal:
        yield lambda text: console.print(text, highlight=False, soft_wrap=True)
        return
    with console.status("starting") as status:

        def tell(text: str) -> None:
            status.update(text)

        yield tell
