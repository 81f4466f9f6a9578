"""How a program is written to disk and read back: plain JSON, every part of it checked.

A program file holds settings, prompts, demonstrations and numbers; never an LM, its address or its key, and
nothing that could run. What is read is taken apart by hand: only the parts named here reach a program, so that
a file cannot set an attribute, a model or an address. DSPy's own files are not so strict.

Beside the state of a predictor its *contract* is kept: its fields, in order, with their types. Instructions and
descriptions are what tuning changes; the contract is what the code of a session relies on, and what DSPy, which
restores descriptions by their position, does not check.

Saving reads back what it would write: a program whose prompts would not come back as they are is refused then,
not when it is needed.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import math
import os
import types
import typing
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin

import dspy

from salon.errors import OutputError, UserError

from .adapters import ADAPTERS
from .text import excerpt
from .tunable import Tunable

__all__ = [
    "PROGRAM_NAME",
    "check_contracts",
    "contract_of",
    "read_program",
    "restore",
    "same_prompts",
    "saved_state",
    "strict_json",
    "version_of",
    "write_program",
]

PROGRAM_NAME = "program.json"
VERSION = 1
_MOST_BYTES = 64 * 1024 * 1024
_NO_PROGRAM = "Save it once more with `program.save(folder)`."


# ---------------------------------------------------------------- what a signature promises


def contract_of(signature: Any) -> str:
    """Return the fields of a signature with their types, as ``a: str, b: str -> c: Rating, d: Citations = ...``."""

    def listed(fields: Mapping[str, Any]) -> str:
        return ", ".join(
            f"{name}: {_type_name(field.annotation)}{'' if field.is_required() else ' = ...'}"
            for name, field in fields.items()
        )

    return f"{listed(signature.input_fields)} -> {listed(signature.output_fields)}"


def _type_name(kind: Any) -> str:
    """Return the name of a type: the same in any process, and wherever the type is defined."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, inner))}]"
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_type_name, inner))
    if origin is not None:
        return f"{_type_name(origin)}[{', '.join(map(_type_name, inner))}]"
    if kind is type(None):
        return "None"
    name = str(getattr(kind, "__qualname__", kind))
    parts = getattr(kind, "model_fields", None)
    if isinstance(parts, dict):
        return f"{name}({', '.join(f'{part}: {_type_name(field.annotation)}' for part, field in parts.items())})"
    return name


def check_contracts(saved: Any, program: Any) -> None:
    """Make sure that a saved program's predictors have the fields that this program's have.

    Args:
        saved: The contracts of the file, by predictor.
        program: The program that is to take its state.

    Raises:
        UserError: If they differ.
    """
    own = {name: contract_of(predictor.signature) for name, predictor in program.named_predictors()}
    kind = type(program).__name__
    if not isinstance(saved, dict) or not all(isinstance(contract, str) for contract in saved.values()):
        raise _unfit(kind, "it does not say which fields its predictors have", _NO_PROGRAM)
    if saved.keys() != own.keys():
        raise _unfit(kind, f"its predictors differ in {_listed(saved.keys() ^ own.keys())}")
    for name, contract in own.items():
        if saved[name] != contract:
            raise _unfit(kind, f"its predictor {name} has the fields ({_differing(saved[name], contract)})")


def _differing(saved: str, own: str) -> str:
    """Tell where two contracts differ, in one line."""

    def parts(contract: str) -> list[str]:
        return contract.replace(" -> ", ", -> ").split(", ")

    there, here = parts(saved), parts(own)
    only_there = [part for part in there if part not in here]
    only_here = [part for part in here if part not in there]
    if not only_there and not only_here:
        return "in another order"
    return f"{_listed(only_there) or 'none'}, where this salon has {_listed(only_here) or 'none'}"


# ---------------------------------------------------------------- the state of a parameter


def saved_state(parameter: Any, json_mode: bool = True) -> dict[str, Any]:
    """Return what is saved of a parameter: the value of a tunable, or instructions, descriptions and demos."""
    if not isinstance(parameter, dspy.Predict):
        return dict(parameter.dump_state(json_mode=json_mode))
    bare = copy.copy(parameter)
    bare.lm = None  # it might not be one that can be saved
    state = bare.dump_state(json_mode=json_mode)
    for unsaved in ("lm", "traces", "train"):
        state.pop(unsaved, None)
    words = state["signature"]["instructions"]
    if inspect.cleandoc(words) != words:  # DSPy dedents instructions at each reading: keep what it reads them from
        state["signature"]["instructions"] = parameter.signature.__doc__
    return state


def restore(name: str, parameter: Any, state: Any) -> None:
    """Give a parameter its saved state; the parameter stays as it is if that does not fit.

    Raises:
        UserError: If the state is not one of this parameter.
    """
    if isinstance(parameter, dspy.Predict):
        _check_predictor(name, state, len(parameter.signature.fields))
        lm = parameter.lm
        parameter.load_state({**copy.deepcopy(state), "traces": [], "train": [], "lm": None})
        parameter.lm = lm
    elif isinstance(parameter, Tunable):
        if not isinstance(state, dict) or state.keys() != {"value"}:
            raise _unfit(name, f"{_shown(state)} is no value")
        try:
            parameter.load_state(state)
        except (UserError, OverflowError) as error:
            raise _unfit(name, str(error)) from error
    else:
        parameter.load_state(state)


def _check_predictor(name: str, state: Any, count: int) -> None:
    """Make sure that a state has the parts of a predictor's state and no other, each of its type."""
    if not isinstance(state, dict) or state.keys() != {"demos", "signature"}:
        found = _listed(state) if isinstance(state, dict) else _shown(state)
        raise _unfit(name, f"it must have demos and a signature, and has {found or 'nothing'}")
    demos, signature = state["demos"], state["signature"]
    if not isinstance(demos, list) or not all(isinstance(demo, dict) for demo in demos):
        raise _unfit(name, "its demos must be a list of objects")
    if not isinstance(signature, dict) or signature.keys() != {"instructions", "fields"}:
        raise _unfit(name, "its signature must have instructions and fields")
    fields = signature["fields"]
    if not isinstance(signature["instructions"], str):
        raise _unfit(name, f"its instructions must be a text, and are {_shown(signature['instructions'])}")
    if not isinstance(fields, list) or len(fields) != count:
        raise _unfit(name, f"its signature must have {count} fields")
    for field in fields:
        if not (
            isinstance(field, dict)
            and field.keys() == {"prefix", "description"}
            and all(isinstance(text, str) for text in field.values())
        ):
            raise _unfit(name, f"a field must have a prefix and a description, and is {_shown(field)}")


def same_prompts(one: Any, other: Any) -> bool:
    """Say whether two predictors write the same prompts, in every answer format."""

    def prompts(predictor: Any) -> list[Any]:
        return [adapter.format(predictor.signature, predictor.demos, {}) for adapter in ADAPTERS.values()]

    return prompts(one) == prompts(other)


# ---------------------------------------------------------------- files


def write_program(folder: str | Path, content: Mapping[str, Any]) -> None:
    """Write a program file; it appears whole or not at all.

    Raises:
        OutputError: If it cannot be written.
        UserError: If it holds what JSON cannot.
    """
    path = Path(folder) / PROGRAM_NAME
    whole = {"version": VERSION, "salon": version_of("salon"), "dspy": version_of("dspy"), **content}
    try:
        text = json.dumps(whole, indent=1, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(
            "The program cannot be saved", f"it holds what no JSON file can ({error})", "Look at its demonstrations."
        ) from error
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"{path} cannot be written", error.strerror or str(error)) from error


def read_program(folder: str | Path) -> dict[str, Any]:
    """Return what ``write_program`` wrote into a folder; nothing else in the folder is looked at.

    Raises:
        OutputError: If there is no program, or it cannot be read.
        UserError: If it is of a version that this salon does not know.
    """
    path = Path(folder) / PROGRAM_NAME
    content = strict_json(path, f"There is no program in {folder}")
    if not isinstance(content, dict):
        return {}
    found = content.get("version")
    if found != VERSION or isinstance(found, bool):
        raise UserError(f"{path} has version {_shown(found)}", f"this salon reads version {VERSION}", _upgrade(content))
    major, own = _major(content.get("salon")), _major(version_of("salon"))
    if major is None:
        raise UserError(f"{path} cannot be used", f"{_shown(content.get('salon'))} is no version of salon", _NO_PROGRAM)
    if own is not None and major > own:
        raise UserError(
            f"{path} was saved by salon {excerpt(str(content['salon']), 20)}",
            f"this is salon {version_of('salon')}, which may read it wrongly",
            _upgrade(content),
        )
    return content


def strict_json(path: Path, missing: str) -> Any:
    """Return the content of a JSON file; only what JSON really has is read, and no number that is not finite.

    Args:
        path: The file.
        missing: What is said if it does not exist.

    Raises:
        OutputError: If it is missing, no plain file, far too large, or no JSON.
    """
    try:
        if not path.exists():
            raise OutputError(missing, f"it has no {path.name}")
        if not path.is_file():
            raise OutputError(f"{path} cannot be read", "it is not a plain file")
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise OutputError(f"{path} cannot be read", f"it has {size:,} bytes, and {_MOST_BYTES:,} is the most")
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse, parse_float=_finite)
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OutputError):
            raise
        why = str(error) or "it is nested too deeply"
        raise OutputError(f"{path} cannot be read", why, "The file is damaged.") from error


@functools.cache
def version_of(package: str) -> str:
    """Return the version of a package, or ``unknown``."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{excerpt(text, 40)} is too large a number")
    return value


def _major(found: Any) -> int | None:
    """Return the major version, 0 where it is unknown; None for what is no version."""
    if found == "unknown":
        return 0
    head = found.partition(".")[0] if isinstance(found, str) else ""
    return int(head) if head.isascii() and head.isdigit() and len(head) < 10 else None


def _upgrade(content: Mapping[str, Any]) -> str:
    return f"Install salon {excerpt(str(content.get('salon', '?')), 20)} or newer: pip install --upgrade salon"


def _unfit(what: str, why: str, todo: str = "") -> UserError:
    return UserError(f"The saved {what} does not fit this salon", why, todo)


def _listed(names: Any) -> str:
    return excerpt(", ".join(sorted(map(str, names))), 200)


def _shown(value: Any) -> str:
    return excerpt(repr(value)[:500], 60)
