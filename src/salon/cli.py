"""The command line. Only the parser lives here; commands are imported when they run, so help is instant.

Results go to stdout, progress to stderr. Exit codes: 0 done, 1 something failed, 2 a mistake in the
command, 130 stopped by the user.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import salon
from salon.errors import SalonError, UserError
from salon.options import Commands, Parser, add_command, add_limits, add_models
from salon.parsers import add_audit, add_compile, add_eval, add_study

__all__ = ["main", "parser"]

_EPILOG = """\
examples:
  salon brainstorm "AI smart glasses for everyday consumers"
  salon brainstorm "..." --personas pool.csv --turns 20 --lm openai/gpt-5-mini
  salon brainstorm "..." --lm hosted_vllm/qwen3-8b --api-base http://localhost:8000/v1
  salon brainstorm --resume salon-runs/20261130-101500-ai-smart-glasses
  salon chat "How might people recall sent mail?"
  salon debate "A use for old umbrellas, in at most 60 words" --agents 3 --rounds 1
  salon replay salon-runs/20261130-101500-ai-smart-glasses
  salon report salon-runs/20261130-101500-ai-smart-glasses
  salon export salon-runs/20261130-101500-ai-smart-glasses lineage.dot --idea I2
  salon audit salon-runs/20261130-101500-ai-smart-glasses
  salon study duration --minutes 0,5,10 --sessions 5 --personas pool.csv --out study
  salon eval --methods debate,voting-lens,direct --queries 5 --runs 5 --out evaluation
  salon eval calibrate --labels labelled.csv --judge openai/gpt-5-mini
  salon compile debate --queries 6 --trials 20 --out compiled/debate
  salon doctor
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")  # no look-up of prices over the network
    for stream, errors in ((sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace"), (sys.stdin, "replace")):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=errors)
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(given)
    options.arguments = given
    if options.command is None:
        parser().print_help()
        return 2
    try:
        return int(import_module(f"salon.{options.module}").command(options))
    except SalonError as error:
        print(f"salon: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    except KeyboardInterrupt:
        print("salon: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read the result wants no more of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = Parser(
        prog="salon",
        description="Brainstorming with AI that can be called, compiled and measured.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"salon {salon.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    _brainstorm(commands)
    _chat(commands)
    _debate(commands)
    _replay(commands)
    _report(commands)
    _export(commands)
    add_audit(commands)
    add_study(commands)
    add_eval(commands)
    add_compile(commands)
    _doctor(commands)
    return top


def _brainstorm(commands: Commands) -> None:
    summary = "Hold a roundtable: personas discuss, propose and vote; ideas come out ranked."
    command = add_command(commands, "brainstorm", "brainstorm", summary)
    command.add_argument("topic", nargs="?", metavar="TOPIC", help="what to brainstorm about")
    session = command.add_argument_group("session")
    session.add_argument("--personas", metavar="N|FILE", help="how many to invent, or a CSV, JSON or YAML pool (5)")
    session.add_argument("--minutes", type=float, metavar="M", help="bound the discussion on the session clock (5)")
    session.add_argument("--turns", type=int, metavar="T", help="bound the discussion in turns")
    session.add_argument("--ideas", type=int, metavar="N", help="ideas each persona may propose (2)")
    session.add_argument("--votes", type=int, metavar="N", help="votes each persona may cast (5)")
    session.add_argument(
        "--facilitator", action=argparse.BooleanOptionalAction, default=None, help="have a facilitator (yes)"
    )
    session.add_argument("--citations", metavar="HOW", help="required, optional or off (required)")
    session.add_argument("--embedder", metavar="NAME", help="embedding model (packaged all-MiniLM-L6-v2)")
    _session_options(command, session)
    command.add_argument("--dry-run", action="store_true", help="print expected calls, tokens and cost; spend nothing")


def _debate(commands: Commands) -> None:
    summary = "Have agents with different ways of thinking answer a task, revise, and choose one answer."
    command = add_command(commands, "debate", "debating", summary)
    command.add_argument("task", nargs="?", metavar="TASK", help="the task, with its constraints")
    session = command.add_argument_group("session")
    session.add_argument("--agents", type=int, metavar="N", help="how many agents (5)")
    session.add_argument("--rounds", type=int, metavar="R", help="how often they revise (2)")
    session.add_argument("--k", type=int, metavar="K", help="how many peers each is shown (2)")
    session.add_argument("--peers", metavar="WHICH", help="farthest, random, closest or all (farthest)")
    session.add_argument("--protocol", metavar="HOW", help="simultaneous or one-by-one (simultaneous)")
    session.add_argument("--lenses", metavar="NAMES", help="comma-separated lenses, or none (the five in order)")
    session.add_argument(
        "--preset",
        choices=("homogeneous", "heterogeneous", "lens-only", "selection-only"),
        help="a variant of the paper; other options change it",
    )
    _session_options(command, session)


def _chat(commands: Commands) -> None:
    summary = "Brainstorm with experts who speak only when they are confident of adding something."
    command = add_command(commands, "chat", "chatting", summary)
    command.add_argument("problem", nargs="?", metavar="PROBLEM", help="what to think about")
    session = command.add_argument_group("session")
    session.add_argument("--experts", metavar="N|FILE", help="how many to invent, or a pool (the three defaults)")
    session.add_argument("--threshold", type=float, metavar="X", help="confidence from which experts speak (7)")
    session.add_argument("--agent-turns", type=int, metavar="N", help="turns of experts before it is yours (4)")
    session.add_argument("--order", choices=("confidence", "fixed"), help="who speaks (confidence)")
    session.add_argument("--calibrate", action="store_true", default=None, help="rate experts against themselves")
    _session_options(command, session)


def _session_options(command: argparse.ArgumentParser, session: argparse._ArgumentGroup) -> None:
    """Add the options that all commands with a session have."""
    session.add_argument("--program", metavar="DIR", help="use a compiled program, or one saved with program.save(DIR)")
    session.add_argument("--seed", type=int, metavar="S", help="decides every random choice (0)")
    add_models(command)
    add_limits(command)
    output = command.add_argument_group("output")
    output.add_argument("--out", metavar="DIR", help="folder for log and results (salon-runs/<time>-<topic>)")
    output.add_argument("--force", action="store_true", help="overwrite a session that is in the folder")
    output.add_argument("--resume", metavar="DIR", help="go on with an earlier session")
    output.add_argument("--json", action="store_true", help="print the result as JSON")


def _replay(commands: Commands) -> None:
    command = add_command(commands, "replay", "replay", "Show a recorded session again, without a language model.")
    command.add_argument("folder", metavar="DIR", help="folder of the session")
    command.add_argument("--json", action="store_true", help="print the result as JSON")


def _report(commands: Commands) -> None:
    summary = "Write recorded sessions as one HTML page that opens offline: one in full, several side by side."
    command = add_command(commands, "report", "report", summary)
    command.add_argument("folders", nargs="+", metavar="DIR", help="folder of a session, finished or not")
    command.add_argument("--out", metavar="FILE", help="the page (report.html in DIR, or here for several sessions)")
    command.add_argument("--json", action="store_true", help="print the path of the page as JSON")


def _export(commands: Commands) -> None:
    summary = "Write a recorded session as Markdown, CSV, JSON or a graph, finished or not."
    command = add_command(commands, "export", "export", summary)
    command.add_argument("folder", metavar="DIR", help="folder of the session")
    command.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="one form to print, or several to write (all): ideas.md, ideas.csv, transcript.md, transcript.csv, "
        "session.json, session.schema.json, lineage.graphml, lineage.dot, lineage.mmd, lineage.json",
    )
    command.add_argument("--out", metavar="FOLDER", help="where to write (DIR)")
    command.add_argument("--idea", metavar="ID", help="restrict the graphs to an idea and what led to it")


def _doctor(commands: Commands) -> None:
    command = add_command(commands, "doctor", "checkup", "Check the installation, the model and the embeddings.")
    add_models(command)
    command.add_argument("--json", action="store_true", help="print the checks as JSON")
