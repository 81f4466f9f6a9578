"""What the parsers of several commands share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn, TypeAlias

__all__ = ["Commands", "Parser", "add_command", "add_limits", "add_models"]


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        """Say the mistake and exit with 2."""
        self.exit(2, f"salon: {message}. See `{self.prog} --help`.\n")


if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[Parser]
else:
    Commands = argparse._SubParsersAction  # no generic where it runs


def add_command(commands: Commands, name: str, module: str, summary: str) -> Parser:
    """Add a command, which is run by the function ``command`` of a module, and return its parser."""
    command = commands.add_parser(name, help=summary, description=summary)
    command.set_defaults(module=module)
    return command


def add_models(command: argparse.ArgumentParser) -> None:
    """Add the options that say which language models are used."""
    models = command.add_argument_group("language model")
    models.add_argument(
        "--lm",
        action="append",
        metavar="[WHO=]MODEL",
        help="embedded, or provider/model; WHO is a role (participant, facilitator, sage, person, judge) or a name; "
        "may be repeated (SALON_LM, else embedded)",
    )
    models.add_argument("--api-base", metavar="URL", help="address of your own server (SALON_API_BASE)")
    models.add_argument("--api-key", metavar="KEY", help="key (the provider's environment variable)")


def add_limits(command: argparse.ArgumentParser, of: str = "the session") -> None:
    """Add the options that bound what may be spent."""
    limits = command.add_argument_group(f"limits (hard; {of} ends in order before it reaches them)")
    limits.add_argument("--max-usd", type=float, metavar="USD")
    limits.add_argument("--max-tokens", type=int, metavar="N")
    limits.add_argument("--max-seconds", type=float, metavar="S")
    limits.add_argument("--max-calls", type=int, metavar="N")
    limits.add_argument("--concurrency", type=int, metavar="N", help="most calls in flight (32)")
