"""A worker of a cluster: a process that does jobs of an evaluation, several at a time.

It is sent once what all jobs need; a job is then its own description and the row it has already.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from salon.errors import OutputError, SalonError, UserError

from ..modules.budget import Budget, Usage
from .engine import run_job
from .gate import JobAccount, SharedLimits
from .jobs import Job, JobRow
from .judges import RubricJudge
from .methods import Method

__all__ = ["Done", "Sent", "Worker"]

_EMBEDDED = "embedded/"


@dataclass(frozen=True)
class Sent:
    """What a worker needs to do jobs.

    Attributes:
        methods: Methods by name.
        judge: Rates the answers.
        root: Folder of the evaluation.
        budget: Limits that the gate holds.
        seed: Seed of the evaluation.
        settings: DSPy's settings here.
    """

    methods: Mapping[str, Method]
    judge: RubricJudge | None
    root: Path
    budget: Budget
    seed: int
    settings: dict[str, Any]

    @classmethod
    def of(
        cls, methods: Mapping[str, Method], judge: RubricJudge | None, root: Path, budget: Budget, seed: int
    ) -> Sent:
        """Gather it, with the LM and the adapter that are DSPy's current ones."""
        settings = {"lm": dspy.settings.lm, "adapter": dspy.settings.adapter}
        return cls(methods, judge, root.resolve(), budget, seed, settings)

    def packed(self) -> bytes:
        """Return it as bytes.

        Raises:
            UserError: If something cannot be sent to another process.
        """
        from ray import cloudpickle

        try:
            return bytes(cloudpickle.dumps(self))
        except Exception as error:  # whatever the parts of a user's program raise when they are copied
            raise UserError(
                "The methods cannot be sent to a cluster", f"{type(error).__name__}: {error}", "Use --engine local."
            ) from error

    @property
    def embedded(self) -> bool:
        """Whether a worker has to run the embedded model."""
        models = [model for method in self.methods.values() for model in method.models().values()]
        judges = [str(lm.model) for lm in self.judge.lms.values()] if self.judge is not None else []
        return any(name.startswith(_EMBEDDED) for name in (*judges, *(str(m.get("model")) for m in models)))


@dataclass(frozen=True)
class Done:
    """What a worker tells of a job: its row or why all must stop, what it spent, and what was refused to it."""

    row: JobRow | None
    spent: Usage
    refused: str = ""
    failure: SalonError | None = None


class Worker:
    """Does jobs, several at a time; an actor.

    Args:
        name: Its name at the gate.
        gate: Handle of the gate.
    """

    def __init__(self, name: str, gate: Any) -> None:
        self._name, self._gate = name, gate
        self._tickets, self._jobs = itertools.count(), itertools.count()

    async def start(self, packed: bytes, embedded: bool, path: list[str]) -> SalonError | None:
        """Take what jobs need; return why that cannot be."""
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
        sys.path += [place for place in path if place not in sys.path]
        from ray import cloudpickle

        try:
            if embedded:
                from salon.embedded import register

                register()
            self._sent: Sent = cloudpickle.loads(packed)
        except SalonError as error:
            return error
        except Exception as error:  # whatever a user's module raises where it is imported
            why = f"{type(error).__name__}: {error}"
            return UserError("A worker cannot start", why, "Install the same packages on all machines of the cluster.")
        if not self._sent.root.is_dir():
            why = f"{self._sent.root} is not there on the machine of a worker"
            return OutputError("The folder of the evaluation is not shared", why, "Give one that all machines share.")
        return None

    async def do(self, job: Job, row: JobRow | None) -> Done:
        """Do a job."""
        sent = self._sent
        account = JobAccount(self._gate, self._name, next(self._jobs), self._tickets, sent.budget)
        limits = SharedLimits(self._gate, self._name, self._tickets)
        method = sent.methods[job.method]
        try:
            with dspy.context(**sent.settings):
                row = await run_job(job, row, method, sent.judge, sent.root, limits, account, sent.seed)
        except SalonError as error:
            return Done(None, account.spent, account.refused, error)
        finally:
            account.close()
        return Done(row, account.spent, account.refused)
