"""``salon chat``: a conversation with experts in the terminal, or through a pipe.

Lines typed while experts work are heard before the next speaker is chosen. Commands: ``/sage`` sums up,
``/ask NAME`` gives an expert the floor, ``/threshold N`` sets the confidence from which experts speak,
``/save DIR`` writes the session so far, ``/quit`` ends. In a pipe each line is a message, and the Sage sums up
at its end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from salon.brainstorm import personas_of
from salon.errors import SalonError, UserError
from salon.running import (
    advise,
    budget,
    default_folder,
    made_or_loaded,
    make_models,
    model_names,
    prepare,
    report,
    resumption,
)

__all__ = ["command"]

_HELP = "Commands: /sage  /ask NAME  /threshold N  /save DIR  /quit"


def command(options: argparse.Namespace) -> int:
    """Hold or resume a chat as the options say; return the exit code."""
    from rich.console import Console

    folder, chat, talk = _opened(options)
    live = sys.stdin.isatty() and sys.stdout.isatty() and not options.json
    console = Console(stderr=options.json)
    advise(Console(stderr=True), chat.program)
    talk.console = console
    with chat:
        for _ in chat.opening:
            pass
        try:
            if live:
                _typed(chat, talk, console)
            else:
                _piped(chat, (line.rstrip("\n") for line in sys.stdin), console)
        except KeyboardInterrupt:
            print(f"Stopped. Go on with: salon chat --resume {folder}", file=sys.stderr)
            raise
        session = chat.close()
    return report(session, folder, options.json, options.command) if options.json or live else _ended(session, folder)


def _opened(options: argparse.Namespace) -> tuple[Path, Any, Any]:
    """Open or resume the chat; return its folder, the chat and what shows its events."""
    from salon.modules.chat import Chat
    from salon.modules.log import read_log

    talk = _Talk()
    if options.resume:
        folder, program, again = resumption(options, "YesAnd")
        recorded = read_log(folder)
        inputs = {"problem": recorded.header["inputs"]["problem"]}
        arguments = {"seed": recorded.header["seed"], "recorded": recorded, "budget": again["budget"], **inputs}
    else:
        if not options.problem:
            raise UserError("There is no problem", "a chat needs one", 'Try: salon chat "your problem".')
        program = _program(options)
        inputs = program.checked({"problem": options.problem})
        folder = Path(options.out) if options.out else default_folder(inputs["problem"])
        prepare(folder, options.force)
        program.lms = make_models(model_names(options, program.roles), options)
        arguments = {"seed": options.seed or 0, "budget": budget(options), "problem": inputs["problem"]}
    return folder, Chat(program, {**arguments, "out": folder}, listen=talk), talk


def _program(options: argparse.Namespace) -> Any:
    import salon

    given = {
        "experts": personas_of(options.experts),
        "threshold": options.threshold,
        "max_agent_turns": options.agent_turns,
        "order": options.order,
        "calibrate": options.calibrate,
        "max_concurrency": options.concurrency,
    }
    return made_or_loaded(options, salon.YesAnd, given)


class _Talk:
    """Shows events as they happen, from the session's thread; ratings once it is known who speaks."""

    def __init__(self) -> None:
        self.console: Any = None
        self.labels: dict[str, str] = {}
        self._rated: list[Any] = []
        self._early: list[Any] = []

    def __call__(self, item: Any) -> None:
        from salon.lines import line_of, rating_line
        from salon.modules.events import Chosen, Event, Joined, Message, Rated

        if not isinstance(item, Event):
            return
        if isinstance(item, Joined):
            self.labels[item.persona] = item.label
        if isinstance(item, Rated):
            self._rated.append(item)
            return
        speaker = item.speaker if isinstance(item, Chosen) else ""
        lines = [rating_line(rated, self.labels, rated.expert == speaker) for rated in self._rated]
        self._rated.clear()
        if not isinstance(item, Message) and (line := line_of(item, self.labels)) is not None:
            lines.append(line)
        self._show(lines)

    def _show(self, lines: list[Any]) -> None:
        """Print the lines, and those from before there was a console."""
        self._early += lines
        if self.console is not None:
            for line in self._early:
                self.console.print(line, highlight=False, soft_wrap=not self.console.is_terminal)
            self._early.clear()


def _typed(chat: Any, talk: _Talk, console: Any) -> None:
    """Take lines from the keyboard while events appear above the prompt."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.patch_stdout import patch_stdout
    from rich.console import Console

    session: Any = PromptSession()
    console.print(_HELP, style="dim", highlight=False)
    interrupted = False
    with patch_stdout(raw=True):
        talk.console = Console(file=sys.stdout, force_terminal=True)
        while True:
            try:
                line = session.prompt("you> ")
                interrupted = False
            except KeyboardInterrupt:
                if interrupted:
                    return
                interrupted = True
                talk.console.print("Ctrl-C again, or /quit, to leave. The conversation is saved.", style="yellow")
                continue
            except EOFError:
                return
            if chat.over or _command(chat, line, talk.console) == "quit":
                talk.console.print("Ending the conversation…", style="dim")
                return


def _piped(chat: Any, lines: Iterable[str], console: Any) -> None:
    """Take each line as a message and wait for what follows it; let the Sage sum up at the end."""
    for line in lines:
        if chat.over:
            return
        if not line.strip():
            continue
        following = _command(chat, line, console)
        if following == "quit":
            return
        for _ in following or ():
            pass
    if not chat.over:
        for _ in chat.sage():
            pass


def _command(chat: Any, line: str, console: Any) -> Any:
    """Do what a line asks for; return the events that follow, ``"quit"``, or None."""
    word, _, rest = line.strip().partition(" ")
    try:
        match word.lower():
            case "":
                return None
            case "/quit" | "/exit":
                return "quit"
            case "/threshold":
                chat.set_threshold(_number(rest))
            case "/save":
                if not rest.strip():
                    raise UserError("/save needs a folder", "none was given", "Try: /save my-chat")
                chat.save(rest.strip())
                console.print(f"Saved in {rest.strip()}.", style="dim", highlight=False)
            case "/sage":
                return chat.sage()
            case "/ask":
                return chat.ask(rest.strip())
            case _ if word.startswith("/"):
                raise UserError(f"There is no command {word}", "", _HELP)
            case _:
                return chat.interject(line)
    except SalonError as error:
        console.print(str(error), style="yellow", highlight=False)
    return None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{text.strip()!r} is no threshold", "it is a number from 0 to 10") from None


def _ended(session: Any, folder: Path) -> int:
    """Say on stderr how a piped chat ended; its words went to stdout as they were said."""
    from salon.modules.files import cost_line
    from salon.view import stderr_console

    console = stderr_console()
    status = f"{session.status.capitalize()}: {session.reason}. {cost_line(session.usage)}."
    console.print(f"{status} Saved in {folder}", highlight=False, soft_wrap=True)
    if session.status != "complete":
        console.print(f"Go on with: salon chat --resume {folder}", highlight=False, soft_wrap=True)
    return 1 if session.status == "partial" else 0
