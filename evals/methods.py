"""The methods of an evaluation by name: programs, baselines, compiled programs, and any callable of the user's."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import dspy

from salon.errors import SalonError, UserError

from ..modules.archive import load
from ..modules.baselines import BASELINES
from ..modules.debate import Debate
from ..modules.program import PROGRAM_NAME, SessionProgram
from ..modules.roundtable import Roundtable
from ..modules.yes_and import YesAnd
from .answering import CallableMethod, Method, ProgramMethod

__all__ = [
    "METHODS",
    "CallableMethod",
    "Method",
    "ProgramMethod",
    "all_methods",
    "as_method",
    "method_of",
    "methods_of",
    "with_lms",
]

METHODS: dict[str, Callable[..., SessionProgram]] = {
    "roundtable": Roundtable,
    "yes-and": YesAnd,
    "debate": Debate,
    **BASELINES,
}
"""The programs and baselines that can be named."""

_KNOWN = f"Give {', '.join(METHODS)}, a folder of a saved program, or module:callable."


def methods_of(text: str, lms: Mapping[str, Any] | None = None) -> dict[str, Method]:
    """Read a list of methods with commas between them (see ``method_of``).

    Raises:
        UserError: If one is not known, cannot work, or comes twice.
    """
    found: dict[str, Method] = {}
    for part in re.split(r",(?![^(]*\))", text):
        if not part.strip():
            continue
        method = method_of(part.strip(), lms)
        if method.name in found:
            raise UserError(f"The method {method.name} is there twice", todo="Name each once, or give NAME=METHOD.")
        found[method.name] = method
    if not found:
        raise UserError("There is no method to evaluate", todo=_KNOWN)
    return found


def method_of(text: str, lms: Mapping[str, Any] | None = None) -> Method:
    """Return one method.

    Args:
        text: A name of ``METHODS``, with settings if wanted: ``debate(agents=3,rounds=1)``; a folder with a saved
            program; or ``module:callable``. ``NAME=`` before any of them gives it a name of its own.
        lms: LMs by role.

    Raises:
        UserError: If it is not known or cannot work.
    """
    label, _, rest = text.partition("=") if re.match(r"[\w. -]+=(?!=)", text) else ("", "", text)
    name, settings = _parsed(rest.strip())
    if name in METHODS:
        return with_lms(ProgramMethod(label.strip() or text, _made(text, METHODS[name], settings)), lms)
    if settings:
        raise UserError(f"{text} is not possible", f"only {', '.join(METHODS)} take settings")
    if (folder := _saved(name)) is not None:
        return with_lms(ProgramMethod(label.strip() or folder.name, load(folder)), lms)
    if re.fullmatch(r"[\w.]+:[\w.]+", name):
        return with_lms(as_method(label.strip() or name, _imported(name), name), lms)
    raise UserError(f"There is no method {name[:60]!r}", todo=_KNOWN)


def as_method(name: str, given: Any, place: str = "") -> Method:
    """Return a method for a program, a DSPy module or a function; or for what makes one and needs no argument.

    Raises:
        UserError: If it is none of these.
    """
    if isinstance(given, Method):
        return given
    if _makes(given):
        try:
            given = given()
        except SalonError:
            raise
        except Exception as error:  # whatever a user's code raises
            raise UserError(f"{name} cannot be made", f"{type(error).__name__}: {error}") from error
    if isinstance(given, Method):
        return given
    if isinstance(given, SessionProgram):
        return ProgramMethod(name, given)
    if callable(given):
        return CallableMethod(name, given, place=place)
    raise UserError(f"{name} cannot be evaluated", f"{type(given).__name__} is no program and cannot be called")


def _saved(name: str) -> Path | None:
    """Return the folder of a saved program; None if a name is that of none."""
    try:
        folder = Path(name).expanduser()
        return folder if (folder / PROGRAM_NAME).exists() else None
    except (OSError, ValueError, RuntimeError):  # a name that no folder can have
        return None


def _makes(given: Any) -> bool:
    """Say whether something is called for a program or a callable, not for an answer: it needs no argument."""
    if isinstance(given, dspy.Module) or not callable(given):
        return False
    try:
        inspect.signature(given).bind()
    except (TypeError, ValueError):
        return False
    return isinstance(given, type) or not inspect.signature(given).parameters


def with_lms(method: Method, lms: Mapping[str, Any] | None) -> Method:
    """Give a method the LMs of its roles, where it has none of its own, and return it."""
    if lms and isinstance(method, ProgramMethod):
        wanted = {role: lms[role] for role in method.program.roles if role in lms}
        method.program.lms = {**wanted, **method.program.lms}
    elif lms and isinstance(method, CallableMethod):
        method.lm = method.lm or lms.get("participant")
    return method


def _made(text: str, kind: Callable[..., SessionProgram], settings: dict[str, Any]) -> SessionProgram:
    """Make a program with settings.

    Raises:
        UserError: If it has no such settings, or they are not possible.
    """
    known = kind().settings()
    if odd := settings.keys() - known.keys():
        raise UserError(f"{text} is not possible", f"it has no {', '.join(sorted(odd))}", f"It has {', '.join(known)}.")
    try:
        return kind(**settings)
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, UserError) else UserError(f"{text} is not possible", str(error)) from error


def _parsed(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``name(key=value, ...)``."""
    match = re.fullmatch(r"([^()]+)\((.*)\)", text, re.DOTALL)
    if match is None:
        return text, {}
    try:
        call = ast.parse(f"f({match[2]})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args or any(word.arg is None for word in call.keywords):
            raise ValueError
        return match[1].strip(), {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        needed = "settings are needed as in debate(agents=3, rounds=1)"
        raise UserError(f"{text[:80]} cannot be read", needed) from None


def _imported(place: str) -> Any:
    """Import ``module:name``, also from the current folder.

    Raises:
        UserError: If there is no such thing.
    """
    module, _, path = place.partition(":")
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except Exception as error:  # whatever a user's module raises
        why = str(error) if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        todo = "Give module:callable, with the module on the path or in this folder."
        raise UserError(f"{place} cannot be imported", why, todo) from error
    finally:
        if added:
            sys.path.remove(here)
    return found


def all_methods(
    given: Mapping[str, Any] | Iterable[str] | str | Any, lms: Mapping[str, Any] | None = None
) -> dict[str, Method]:
    """Return methods for what a caller of ``evaluate`` gives: names, a mapping of anything, or one program.

    Raises:
        UserError: If one cannot be evaluated.
    """
    if isinstance(given, str):
        return methods_of(given, lms)
    if isinstance(given, Mapping) and given:
        return {str(name): with_lms(as_method(str(name), value), lms) for name, value in given.items()}
    if isinstance(given, SessionProgram | dspy.Module | Method) or callable(given):
        named = getattr(given, "name", None) or getattr(given, "__name__", None) or type(given).__name__
        method = as_method(str(named).lower(), given)
        return {method.name: with_lms(method, lms)}
    names = list(given) if isinstance(given, Iterable) else [None]
    if all(isinstance(name, str) for name in names):
        return methods_of(",".join(map(str, names)), lms)
    raise UserError(f"{type(given).__name__} cannot be evaluated", "a program, a mapping or names are needed")
