"""The shared memory of a study: which trials there are, which numbers are tried next, and whose turn it is.

Every worker of a study, in this process or another, takes its next trial under one lock in the study's folder:

1. A trial that was left running is taken up again, with the same numbers and hence the same folder of sessions.
   Each process names itself in its trials, and ``workers`` tells which of them live. Trials of processes with other
   folders are left alone.
2. Otherwise the sampler suggests numbers; the untuned program comes first. Numbers that make a program that was
   tried before cost nothing: its values are copied into a finished trial of their own, so that the sampler knows,
   and others are suggested. After ``COPIES`` copies in a row a program that is new is drawn at random.

A program whose trials all failed may be tried again, as what failed may have passed, and counts once. Failures are
the programs' own once something succeeded after them (``settle``); until then they may be those of an outage, and the
next call tries them first. So it does with the untuned program, if it failed, and with what another limit pruned.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from filelock import FileLock

from salon.errors import OutputError

from ..modules.program import SessionProgram
from ..modules.streams import stream
from .objectives import Objective, Value
from .samplers import Sampler, check_sampler, drawn, next_of_grid, sampler_of
from .space import Dimension, program_key, tunables, with_values
from .storage import open_storage, quiet_optuna
from .trial_records import again_name, excess_of, measurements, record_of
from .trials import State, TrialRecord
from .workers import Workers

__all__ = ["COPIES", "Search", "Taken"]

COPIES = 10
_ORPHAN_SECONDS = 60.0
_COUNTING = ("RUNNING", "COMPLETE", "PRUNED")


@dataclass
class Taken:
    """A trial that a worker has taken.

    Attributes:
        number: Its number in the study.
        numbers: The numbers that were suggested.
        program: The program that they make.
        key: Its hash.
        trial: Optuna's trial.
    """

    number: int
    numbers: dict[str, float]
    program: SessionProgram
    key: str
    trial: Any


class Search:
    """A study in a storage, as one process sees it; a context manager.

    Args:
        program: The untuned program.
        space: What is searched.
        objectives: What is measured.
        sampler: Who suggests.
        seed: Seed of the suggestions.
        limits: Limits by objective.
        out: Folder of the study.
        storage: The storage; see ``open_storage``.
        name: Name of the study in it.
        facts: What else must be the same when the study goes on, by what it is called.

    Raises:
        UserError: If a grid is asked for that cannot be walked.
        OutputError: If the storage cannot be used, or holds another study under this name.
    """

    def __init__(
        self,
        program: SessionProgram,
        space: Mapping[str, Dimension],
        objectives: Sequence[Objective],
        sampler: Sampler,
        seed: int,
        limits: Mapping[str, float],
        out: Path,
        storage: str,
        name: str,
        facts: Mapping[str, Any],
    ) -> None:
        self.program, self.space, self.objectives = program, dict(space), list(objectives)
        self.sampler, self.seed, self.limits, self.storage = sampler, seed, dict(limits), storage
        self.exhausted = False
        self._kept: dict[tuple[int, str, int], TrialRecord] = {}
        check_sampler(sampler, self.space)
        self._workers = Workers(out / "workers")
        self.lock = FileLock(out / "study.lock", thread_local=False)
        self._alone = "://" not in storage and Path(storage).resolve().parent == out.resolve()
        self._untuned = {name: dimension.default for name, dimension in self.space.items()}
        wanted = {
            "program": program_key(program),
            "space": [str(dimension) for dimension in self.space.values()],
            "objectives": [f"{o.direction} {o.name} ({o.unit})" for o in self.objectives],
            "seed": seed,
            **facts,
        }
        with self.lock:
            self.study = self._opened(name, wanted)
            self._workers.begin()
            self._first()

    def _opened(self, name: str, wanted: Mapping[str, Any]) -> Any:
        import optuna

        with quiet_optuna():
            kept = open_storage(self.storage)
            directions = [objective.direction for objective in self.objectives]
            there = name in optuna.get_all_study_names(kept)
            study = optuna.create_study(study_name=name, storage=kept, directions=directions, load_if_exists=True)
            if not there or not study.get_trials(deepcopy=False):  # new, or whoever made it died or is still at it
                study.set_metric_names([objective.name for objective in self.objectives])
                for what in wanted.keys() - study.user_attrs.keys():
                    study.set_user_attr(what, wanted[what])
        found = study.user_attrs
        for what, value in wanted.items():
            if found.get(what) != value:
                raise OutputError(
                    f"{self.storage} holds another study",
                    f"it has other {what}" if what.endswith("s") else f"it has another {what}",
                    "Give the same command, or another folder.",
                )
        return study

    def _first(self) -> None:
        """Have the untuned program tried, unless it was and did not fail, and what is to be tried again."""
        trials = {t.number: t for t in self._trials()}
        mine = [t for t in trials.values() if t.user_attrs.get("untuned")]
        if all(trial.state.name == "FAIL" for trial in mine):
            self.study.enqueue_trial(self._untuned, user_attrs={"untuned": True})
        waiting = {t.user_attrs.get("retried") for t in trials.values() if t.state.name == "WAITING"}
        stale = [t.number for t in trials.values() if self._stale(t) and self._earlier_of(t.user_attrs["key"]) is None]
        for number in [*self._unsettled(), *stale]:
            if number not in waiting and not trials[number].user_attrs.get("untuned"):
                self.study.enqueue_trial(trials[number].params, user_attrs={"retried": number})

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *_: object) -> None:
        """Let others take up what this process leaves running, and forget it if it leaves nothing."""
        self._workers.end(forget=all(t.user_attrs.get("worker") != self._workers.me for t in self._running()))

    # ---------------------------------------------------------------- taking a trial

    def take(self, trials: int) -> Taken | None:
        """Return the next trial, or None if there have been so many or no program is left.

        Args:
            trials: How many there are to be in the study, copies not counted.
        """
        with self.lock:
            return self._abandoned() or self._asked(trials)

    def _abandoned(self) -> Taken | None:
        import optuna

        for frozen in self._running():
            if self._is_left(frozen):
                trial = optuna.trial.Trial(self.study, frozen._trial_id)  # Optuna has no public way to take one up
                trial.set_user_attr("worker", self._workers.me)
                taken = self._taken(trial)
                earlier = self._earlier(taken)
                if earlier is None:
                    return taken
                self._copy(trial, earlier)
        return None

    def _is_left(self, frozen: Any) -> bool:
        """Return whether no process works on a running trial any more."""
        worker = frozen.user_attrs.get("worker")
        if worker is None:  # killed before it could put its name there
            return self._alone or time.time() - frozen.datetime_start.timestamp() > _ORPHAN_SECONDS
        return worker != self._workers.me and not self._workers.lives(worker)

    def _asked(self, trials: int) -> Taken | None:
        copies = 0
        while True:
            known = self._trials()
            waiting = any(t.state.name == "WAITING" for t in known)
            if not waiting and len({t.user_attrs.get("key", t.number) for t in known}) >= trials:
                return None
            if not waiting and (self.sampler == "grid" or copies >= COPIES):
                numbers = self._new(known)
                if numbers is None:
                    self.exhausted = True
                    return None
                self.study.enqueue_trial(numbers)
            self.study.sampler = sampler_of(self.sampler, self.seed, len(known))
            trial = self.study.ask()
            trial.set_user_attr("worker", self._workers.me)
            taken = self._taken(trial)
            earlier = self._earlier(taken)
            if earlier is None:
                return taken
            self._copy(trial, earlier)
            copies += 1

    def _new(self, known: Sequence[Any]) -> dict[str, float] | None:
        """Return numbers that were not tried: the next of the grid, or any; None if there are none."""
        if self.sampler == "grid":
            return next_of_grid(self.space, [trial.params for trial in known], self.seed)
        tried = {trial.user_attrs.get("key") for trial in known}
        return drawn(self.program, self.space, tried, stream(self.seed, "new", len(known)))

    def _taken(self, trial: Any) -> Taken:
        """Have the numbers of a trial suggested, those that it has already kept, and make its program."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # Optuna's, of values put in by hand
            numbers = {name: dimension.suggest(trial) for name, dimension in self.space.items()}
        program = with_values(self.program, numbers)
        key = program_key(program)
        trial.set_user_attr("key", key)
        own = tunables(program)  # what others bound is bounded
        trial.set_user_attr("numbers", {name: own[name].value for name in numbers})
        return Taken(trial.number, numbers, program, key, trial)

    def _earlier(self, taken: Taken) -> Any:
        """Return the earlier trial of the same program that counts; None if there is none, or all failed."""
        return self._earlier_of(taken.key, taken.number)

    def _earlier_of(self, key: str, before: float = inf) -> Any:
        able = (t for t in self._trials() if t.state.name in _COUNTING and "copy_of" not in t.user_attrs)
        same = (t for t in able if t.number < before and t.user_attrs.get("key") == key and not self._stale(t))
        return next(same, None)

    def _stale(self, trial: Any) -> bool:
        """Return whether a trial was pruned by a limit that is another one now."""
        name, bound = trial.user_attrs.get("found", {}).get("limit") or (None, None)
        return name is not None and self.limits.get(name) != bound

    def _copy(self, trial: Any, earlier: Any) -> None:
        """End a trial with the values of an earlier one; without any while that one is still running."""
        import optuna

        trial.set_user_attr("copy_of", earlier.number)
        running = earlier.state.name == "RUNNING"
        if not running:
            for name, value in earlier.constraints.items():
                trial.set_constraint(name, value)
        state = optuna.trial.TrialState.FAIL if running else earlier.state
        self.study.tell(trial.number, earlier.values if earlier.state.name == "COMPLETE" else None, state)

    # ---------------------------------------------------------------- ending a trial

    def end(
        self,
        taken: Taken,
        state: State,
        values: Mapping[str, Value],
        reason: str = "",
        sessions: int = 0,
        failed: int = 0,
        seconds: float = 0.0,
        limit: str = "",
    ) -> None:
        """Write down what a trial found; a complete one needs a value of each objective.

        Args:
            taken: The trial.
            state: How it ended.
            values: What was measured.
            reason: Why it failed or was pruned.
            sessions: Sessions held.
            failed: Sessions of these that failed.
            seconds: How long it took.
            limit: The objective whose limit it was pruned by.
        """
        import optuna

        found = {
            "values": {name: dict(value.by_query) for name, value in values.items()},
            "reason": reason,
            "sessions": sessions,
            "failed": failed,
            "seconds": round(seconds, 3),
            "limit": [limit, self.limits[limit]] if limit else None,
        }
        with self.lock:
            taken.trial.set_user_attr("found", found)
            set_already = {t.number: t for t in self._running()}[taken.number].constraints
            for name, excess in excess_of(values, self.objectives, self.limits).items():
                if name not in set_already:
                    taken.trial.set_constraint(name, excess)
            kind = {"complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}[state]
            means = [values[objective.name].value for objective in self.objectives] if state == "complete" else None
            self.study.tell(taken.number, means, optuna.trial.TrialState[kind])
            if state != "failed":
                self._settle()

    def again(self, record: TrialRecord, values: Mapping[str, Value]) -> None:
        """Write down what measuring a program again, with other seeds, found."""
        content = {name: dict(value.by_query) for name, value in values.items()}
        with self.lock:
            self.study.set_user_attr(again_name(record.key, record.measured), content)

    def settle(self) -> None:
        """Hold failures so far for the programs' own."""
        with self.lock:
            self._settle()

    def _settle(self) -> None:
        ended = [t.number for t in self._trials() if t.state.name not in ("RUNNING", "WAITING")]
        self.study.set_user_attr("settled", max(ended, default=-1))

    def unsettled(self) -> list[int]:
        """Return the trials that failed and after which nothing succeeded, one of each program."""
        with self.lock:
            return self._unsettled()

    def _unsettled(self) -> list[int]:
        settled, found = self.study.user_attrs.get("settled", -1), dict[str, int]()
        for trial in self._trials():
            key = trial.user_attrs.get("key", "")
            own = trial.state.name == "FAIL" and "copy_of" not in trial.user_attrs
            if own and trial.number > settled and self._earlier_of(key) is None:
                found[key] = trial.number
        return list(found.values())

    def probe(self) -> int:
        """Return a number that no probe of the study had before, from 1."""
        with self.lock:
            number = int(self.study.user_attrs.get("probes", 0)) + 1
            self.study.set_user_attr("probes", number)
        return number

    # ---------------------------------------------------------------- what is known

    def records(self) -> list[TrialRecord]:
        """Return all trials that have begun, by number, with all their measurements pooled."""
        attrs = self.study.user_attrs
        trials = {t.number: t for t in self._trials() if t.state.name != "WAITING"}
        records = [self._record(trial, trials, attrs) for trial in trials.values()]
        ranks = {key: rank for rank, key in enumerate(dict.fromkeys(record.key for record in records))}
        return [replace(record, rank=ranks[record.key]) for record in records]

    def _record(self, trial: Any, trials: Mapping[int, Any], attrs: Mapping[str, Any]) -> TrialRecord:
        source = trials[trial.user_attrs["copy_of"]] if "copy_of" in trial.user_attrs else trial
        found = measurements(source, attrs)
        at = (trial.number, source.state.name, len(found))
        if at not in self._kept:
            record = record_of(trial, source, found, self.space, self.objectives, self.limits)
            if record.state == "running":
                return record
            self._kept[at] = record
        return self._kept[at]

    def others_running(self) -> bool:
        """Return whether another process with the same folder has a trial that has not ended, alive or not."""
        with self.lock:
            workers = {trial.user_attrs.get("worker") for trial in self._running()} - {None, self._workers.me}
            return any(self._workers.shares(worker) for worker in workers)

    def _running(self) -> list[Any]:
        return [t for t in self._trials() if t.state.name == "RUNNING"]

    def _trials(self) -> list[Any]:
        found: list[Any] = self.study.get_trials(deepcopy=False)
        return found
