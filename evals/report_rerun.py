"""Which models a session had, and how to hold it again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from ..modules.session import Session
from ..modules.yes_and import DEFAULT_EXPERTS

__all__ = ["PEOPLE_FILE", "ModelRow", "model_rows", "rerun_command", "rerun_python"]

PEOPLE_FILE = "people.csv"
_COMMANDS = {"Roundtable": "brainstorm", "YesAnd": "chat", "Debate": "debate"}
_OPTIONS = {  # settings that the command line can set, by program
    "Roundtable": ("minutes", "turns", "ideas", "votes", "citations"),
    "YesAnd": ("threshold", "max_agent_turns", "order"),
    "Debate": ("agents", "rounds", "k", "peers", "protocol"),
}


@dataclass(frozen=True)
class ModelRow:
    """Which model a role had, as the header tells it: without any key."""

    role: str
    model: str
    address: str
    temperature: str
    limit: str


def model_rows(session: Session) -> list[ModelRow]:
    """Return the models of a session by role."""
    return [
        ModelRow(
            role,
            str(model.get("model")),
            str(model.get("api_base") or "the provider's"),
            str(model.get("temperature") or "as the program sets it"),
            str(model.get("max_tokens") or "the model's"),
        )
        for role, model in session.header["models"].items()
    ]


def rerun_command(session: Session) -> str:
    """Return the command that holds a session like this one, or an empty string where there is none."""
    command = _COMMANDS.get(session.name)
    if command is None:
        return ""
    settings = session.header["settings"]
    words = ["salon", command, session.topic]
    for name in _OPTIONS[session.name]:
        if settings.get(name) is not None:
            option = "agent-turns" if name == "max_agent_turns" else name
            words += [
                f"--{option}",
                f"{settings[name]:g}" if isinstance(settings[name], float) else str(settings[name]),
            ]
    words += _cast(session.name, settings)
    words += ["--no-facilitator"] if settings.get("facilitator") is False else []
    words += ["--lenses", "none"] if settings.get("lenses") == [] else []
    words += ["--seed", str(session.header["seed"])]
    return shlex.join([*words, *_models(session)])


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cast(program: str, settings: dict[str, Any]) -> list[str]:
    """Return the option that says who takes part; people who were given go into a file."""
    name = {"Roundtable": "personas", "YesAnd": "experts"}.get(program, "")
    cast = settings.get(name)
    if cast is None or cast == [expert.model_dump() for expert in DEFAULT_EXPERTS]:
        return []
    return [f"--{name}", str(cast) if isinstance(cast, int) else PEOPLE_FILE]


def _models(session: Session) -> list[str]:
    models = session.header["models"]
    names = {role: str(model.get("model")) for role, model in models.items()}
    bases = [str(model["api_base"]) for model in models.values() if model.get("api_base")]
    if len(set(names.values())) == 1:
        words = ["--lm", next(iter(names.values()))]
    else:
        words = [word for role, name in names.items() for word in ("--lm", f"{role}={name}")]
    return [*words, "--api-base", bases[0]] if bases else words


def rerun_python(session: Session) -> str:
    """Return Python lines that hold this very session anew: same program, prompts, settings, inputs and seed."""
    models = session.header["models"]
    roles = ", ".join(f"{role!r}: {_lm(model)}" for role, model in models.items())
    folder = str(session.folder or "the session's folder")
    return "\n".join(
        (
            "import salon",
            "from salon.modules.archive import program_of, read_session",
            "",
            f"header = read_session({folder!r}).header",
            'program = program_of(header["program"])  # prompts and numbers as they were',
            f"program.lms = {{{roles}}}",
            'result = program(seed=header["seed"], **header["inputs"])',
        )
    )


def _lm(model: dict[str, Any]) -> str:
    base = f", api_base={model['api_base']!r}" if model.get("api_base") else ""
    return f"salon.lm({model.get('model')!r}{base})"
