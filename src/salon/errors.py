"""Every error salon raises, in one tree.

    SalonError                      anything salon reports itself
    ├── UserError (ValueError)      the caller's mistake; the command line exits 2
    │   ├── PersonaError            a persona pool that cannot be used
    │   ├── LMSetupError            a model that cannot be set up (name, key, weights)
    │   └── OutputError             a folder that cannot be written or would be overwritten
    └── RunFailure (RuntimeError)   something outside failed; the command line exits 1
        ├── CallFailure             an LM call that failed after its retries
        ├── BudgetSpent             a budget that is used up before there is a result
        ├── LogError                a session log that is damaged or does not fit the program
        └── EmbeddedModelError      the embedded model server did not start or died

Each error is told in one line: what happened, why, and what to do about it.
"""

from __future__ import annotations

__all__ = [
    "BudgetSpent",
    "CallFailure",
    "EmbeddedModelError",
    "LMSetupError",
    "LogError",
    "OutputError",
    "PersonaError",
    "RunFailure",
    "SalonError",
    "UserError",
]


class SalonError(Exception):
    """Base of all errors of salon.

    Args:
        what: What happened, without a full stop.
        why: The cause, where it is known.
        todo: What the reader can do about it.
    """

    def __init__(self, what: str, why: str = "", todo: str = "") -> None:
        self.what, self.why, self.todo = what, why, todo
        line = f"{what}: {why}" if why else what
        super().__init__(" ".join((f"{line}. {todo}" if todo else line).split()))


class UserError(SalonError, ValueError):
    """A mistake of the caller: a bad argument, file or setting."""


class PersonaError(UserError):
    """A persona pool that cannot be used."""


class LMSetupError(UserError):
    """A language model that cannot be set up: unknown name, missing key, missing weights."""


class OutputError(UserError):
    """An output folder that cannot be written, or that holds something already."""


class RunFailure(SalonError, RuntimeError):
    """A failure outside the caller's control."""


class CallFailure(RunFailure):
    """An LM call that failed after its retries."""


class BudgetSpent(RunFailure):
    """A budget that is used up before there is a result; what was made is kept."""


class LogError(RunFailure):
    """A session log that is damaged, or that does not belong to the program run over it."""


class EmbeddedModelError(RunFailure):
    """The embedded model's server did not start, or died."""
