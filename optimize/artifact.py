"""A compiled program as a folder that can be read, checked, called and passed on.

| file | what is in it |
|---|---|
| ``program.json`` | settings, prompts, demonstrations and numbers; ``salon.load`` reads it and nothing else |
| ``card.md`` | what it is, what it was made from, what it costs, how good it is, what it cannot tell |
| ``compile.json`` | the same for machines (`CompileReport`) |
| ``front/`` | the other programs of the front, each in a folder with the number of its trial |
| ``study.log`` | the journal of the study, where it is not in a data base |
| ``plots/`` | front, importance of parameters and history, as SVG and PNG |
| ``report.html`` | the same to read and compare, made by ``salon report`` |

Nothing in it is code and nothing is pickled. Keys are masked in whatever is written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from salon.errors import OutputError, UserError
from salon.redact import redact

from ..modules.archive import PROGRAMS, load
from ..modules.files import write_file
from ..modules.program import SessionProgram
from ..modules.saving import strict_json
from ..modules.text import excerpt
from .card import card_markdown
from .compile_report import VERSION, CompileReport
from .plots import plots

__all__ = ["CARD_NAME", "COMPILED_NAME", "FRONT_NAME", "is_compiled", "read_report", "report_json", "write_artifact"]

CARD_NAME = "card.md"
FRONT_NAME = "front"
COMPILED_NAME = "compile.json"


def write_artifact(
    folder: str | Path,
    program: SessionProgram,
    report: CompileReport,
    others: Mapping[int, SessionProgram] | None = None,
) -> None:
    """Write a compiled program; what is in the folder beside it, such as the study, stays.

    Args:
        folder: The folder; it is made if there is none.
        program: The program that was chosen, or the untuned one where that is no worse.
        report: How it came about.
        others: The programs of the front, by the number of their trials.

    Raises:
        OutputError: If a file cannot be written.
        UserError: If the program would not come back as it is, or the report holds a number that is not finite.
    """
    place = Path(folder)
    content = report_json(report)
    program.save(place)
    if _read_back(program, place).described() != program.described():
        raise UserError(f"The {type(program).__name__} cannot be saved", "it would not come back as it is")
    write_front(place / FRONT_NAME, others or {})
    shown = _report_of(content)
    write_file(place / COMPILED_NAME, content)
    write_file(place / CARD_NAME, card_markdown(shown))
    plots(shown, place)


def _read_back(program: SessionProgram, place: Path) -> SessionProgram:
    """Return what was saved; a class that ``salon.load`` does not know reads its own."""
    if PROGRAMS.get(type(program).__name__) is type(program):
        return load(place)
    other = program.changed()
    other.load(place)
    return other


def write_front(place: Path, programs: Mapping[int, SessionProgram]) -> None:
    """Write programs, each into a folder named by its trial; numbered folders of an earlier call go.

    Raises:
        OutputError: If a file cannot be written.
    """
    try:
        for folder in place.iterdir() if place.is_dir() else ():
            if folder.name.isdecimal() and not folder.is_symlink():
                shutil.rmtree(folder)
    except OSError as error:
        raise OutputError(f"{place} cannot be written", error.strerror or str(error)) from error
    for number, program in programs.items():
        program.save(place / str(number))


def is_compiled(folder: str | Path) -> bool:
    """Say whether a folder holds a compiled program."""
    return (Path(folder) / COMPILED_NAME).exists()


def read_report(folder: str | Path) -> CompileReport:
    """Return the report of a compiled program.

    Raises:
        OutputError: If there is none, or it is damaged or of another version.
    """
    path = Path(folder) / COMPILED_NAME
    found = strict_json(path, f"There is no compiled program in {folder}")
    version = found.get("version") if isinstance(found, dict) else None
    if version != VERSION:
        told = f"its version is {excerpt(repr(version)[:200], 40)}"
        raise OutputError(f"{path} cannot be read", told, f"This salon reads version {VERSION}.")
    try:
        return _report_of(json.dumps(found))
    except ValueError as error:
        raise OutputError(f"{path} cannot be read", excerpt(_first(error), 200), "The file is damaged.") from error


def report_json(report: CompileReport) -> str:
    """Return a report as JSON: keys are masked, and lone surrogates, which JSON cannot pass on, become U+FFFD.

    Raises:
        UserError: If it holds a number that is not finite.
    """
    masked = replace(
        report,
        storage=_address(report.storage),
        models={role: redact(model) for role, model in report.models.items()},
        judges=[redact(model) for model in report.judges],
        trials=[replace(trial, reason=redact(trial.reason)) for trial in report.trials],
        limits=[redact(limit) for limit in report.limits],
        stopped=redact(report.stopped),
    )
    try:
        return json.dumps(_storable(asdict(masked)), indent=1, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise UserError("The report of the compile cannot be written", str(error)) from error


def _report_of(content: str) -> CompileReport:
    """Return a report from its JSON; every value must be of the type it should have.

    Raises:
        ValueError: If one is not.
    """
    report: CompileReport = _adapter().validate_json(content, strict=True)
    return report


@cache
def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(CompileReport)


def _storable(value: Any) -> Any:
    """Return a value with every text made fit for a file."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_storable(key): _storable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(inner) for inner in value]
    return value


def _address(storage: str) -> str:
    """Return where a study is, without user, password and query."""
    if "://" not in storage:
        return storage
    parts = urlsplit(storage)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _first(error: ValueError) -> str:
    """Return the first of a validation's complaints, and where it is."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return str(error)
    wrong = errors()[0]
    return ": ".join([".".join(map(str, wrong["loc"])), wrong["msg"]])
