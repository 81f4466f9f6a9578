"""Doing the jobs of an evaluation on the workers of a Ray cluster: ``--engine ray``.

The driver, the process that evaluates, starts some workers. Each does several jobs at a time in an event loop of its
own, through the same ``run_job`` as here; methods, judges and LMs are sent to it once. Rows come back to the driver,
which alone writes them. A gate (see ``gate``) holds the calls in flight of each LM and the budget across all workers.

A worker that dies is replaced, and its jobs are done again by whoever is free: their sessions are in the folder of
the evaluation, which all machines must share, so they go on where they stopped. A job that has cost ``_DEATHS``
workers is a failed row.

What comes out is what comes out locally: the calls, seeds and prompts of a job follow from the job alone.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from salon.errors import RunFailure, UserError
from salon.redact import redact

from ..modules.budget import Account, Usage
from .engine import JOBS_PER_CALL, Engine, Todo
from .gate import Gate
from .jobs import Job, JobRow
from .judges import RubricJudge
from .methods import Method
from .worker import Done, Sent, Worker

__all__ = ["RayEngine", "ray_engine"]

_DEATHS = 3
_LEAST_JOBS = 8  # a worker that does fewer at a time costs more than it brings
_ASKING = 1_000_000  # calls of all workers that may wait at the gate
_STORE = 128 * 2**20  # bytes of memory for what is sent around, on a cluster that is started here


def ray_engine(address: str | None = None, workers: int | None = None) -> Callable[..., Engine]:
    """Return what makes an engine that does jobs on Ray; give it as ``engine`` to ``evaluate``.

    Args:
        address: Address of a cluster, e.g. ``10.0.0.1:6379``, ``ray://HOST:10001``, or ``auto`` for the one that this
            machine is part of. None starts one on this machine alone, and stops it when the jobs are done.
        workers: How many workers; by default one for each CPU of the cluster, as long as each has 8 jobs at a time.

    Raises:
        UserError: If Ray is not installed, or there are to be no workers.
    """
    _ray()
    if workers is not None and (isinstance(workers, bool) or workers < 1):
        raise UserError(f"workers={workers!r} is not possible", "it must be a whole number, 1 or more")

    def make(
        methods: Mapping[str, Method],
        judge: RubricJudge | None,
        root: Path,
        limit: asyncio.Semaphore,
        purse: Account,
        at_once: int,
        seed: int = 0,
    ) -> RayEngine:
        sent = Sent.of(methods, judge, root, purse.budget, seed)
        return RayEngine(sent, purse, at_once, address, workers)

    return make


def _ray() -> Any:
    """Return the module Ray, which must not report that it is used."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise UserError("Ray is not installed", str(error), "Install it: pip install salon[ray]") from None
    return ray


class _Hand:
    """The place of a worker: the worker that is there is replaced when it dies.

    Args:
        ray: The module Ray.
        gate: Handle of the gate.
        packed: What a worker needs, as Ray has it.
        embedded: Whether it has to run the embedded model.
        jobs: Jobs it does at a time.
    """

    def __init__(self, ray: Any, gate: Any, packed: Any, embedded: bool, jobs: int) -> None:
        self._ray, self._gate, self._packed, self._embedded = ray, gate, packed, embedded
        self._make = ray.remote(Worker).options(num_cpus=1, max_restarts=0, max_concurrency=jobs + 2)
        self._name, self._worker = "", None
        self._starting = asyncio.Lock()

    async def worker(self) -> Any:
        """Return a worker that is ready.

        Raises:
            SalonError: If none can start.
        """
        async with self._starting:
            why = ""
            for _ in range(_DEATHS):
                if self._worker is not None:
                    return self._worker
                name = uuid.uuid4().hex
                worker = self._make.remote(name, self._gate)
                try:
                    failure = await worker.start.remote(self._packed, self._embedded, [str(Path.cwd())])
                except self._ray.exceptions.RayActorError as error:
                    why = _line(error)
                    continue
                if failure is not None:
                    raise failure
                self._name, self._worker = name, worker
                return worker
            raise RunFailure("No worker of the cluster starts", why, "Look at its logs, then run the command again.")

    def lost(self, worker: Any) -> None:
        """Give up a worker; whatever it holds at the gate is given back."""
        if worker is self._worker:
            self._worker = None
            self._ray.kill(worker)  # where it was only out of reach, its sessions must not be written twice
            self._gate.drop.remote(self._name)

    def end(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._ray.kill(self._worker)


class RayEngine:
    """Does jobs on the workers of a Ray cluster.

    Args:
        sent: What a worker needs.
        purse: The account of the whole evaluation.
        at_once: Jobs under way at most.
        address: Address of the cluster.
        workers: How many workers.
    """

    def __init__(self, sent: Sent, purse: Account, at_once: int, address: str | None, workers: int | None) -> None:
        self._sent, self._purse, self._at_once = sent, purse, at_once
        self._address, self._workers = address, workers
        self._waiting: deque[tuple[Job, JobRow | None, int]] = deque()  # with the workers each has cost
        self._busy, self._refusal, self._unfinished = 0, "", False
        self._changed = asyncio.Condition()

    async def run(self, todo: Todo, done: Callable[[JobRow], None]) -> str:
        """Do all jobs; none is started any more once the account is empty.

        Raises:
            CallFailure: If no call can succeed (model name, key).
            UserError: If something cannot be sent to the workers, or they do not share the folder.
            RunFailure: If the cluster fails.
        """
        if not todo:
            return ""
        if refusal := self._empty():
            return refusal
        self._waiting.extend((job, row, 0) for job, row in todo)
        packed = self._sent.packed()
        # Ray tells of dead workers on standard output, where results go.
        with redirect_stdout(sys.stderr), _cluster(self._address, self._workers) as ray:
            try:
                await self._run(ray, packed, done)
            except ray.exceptions.RayError as error:
                cause = getattr(error, "cause", None) or error
                why = f"{type(cause).__name__}: {_line(cause)}"
                raise RunFailure("The cluster failed", why, "Run the command again: it goes on.") from error
        return self._refusal if self._waiting or self._unfinished else ""

    async def _run(self, ray: Any, packed: bytes, done: Callable[[JobRow], None]) -> None:
        jobs = min(self._at_once, len(self._waiting))
        cpus = int(ray.cluster_resources().get("CPU", 1))
        count = min(self._workers or min(cpus, math.ceil(jobs / _LEAST_JOBS)), jobs)
        each = math.ceil(jobs / count)
        shared = ray.remote(Gate).options(num_cpus=0, max_concurrency=_ASKING)
        most, budget = max(1, self._at_once // JOBS_PER_CALL), self._purse.budget
        gate = shared.remote(most, budget, self._purse.spent, self._purse.elapsed())
        sent = ray.put(packed)
        hands = [_Hand(ray, gate, sent, self._sent.embedded, each) for _ in range(count)]
        lanes = [asyncio.ensure_future(self._work(ray, hand, done)) for hand in hands for _ in range(each)]
        over = asyncio.ensure_future(self._over())
        try:
            finished, _ = await asyncio.wait({over, *lanes}, return_when=asyncio.FIRST_COMPLETED)
            for one in finished:
                one.result()
        finally:
            for one in (over, *lanes):
                one.cancel()
            await asyncio.gather(over, *lanes, return_exceptions=True)
            for hand in hands:
                hand.end()
            ray.kill(gate)

    async def _over(self) -> None:
        """Wait until no job is under way, and none is left or may be started."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._busy and (self._refusal or not self._waiting))

    async def _work(self, ray: Any, hand: _Hand, done: Callable[[JobRow], None]) -> None:
        """Have one job after the other done by a worker, for ever."""
        while True:
            worker = await hand.worker()
            async with self._changed:
                await self._changed.wait_for(lambda: self._waiting and not self._refusal)
                job, row, deaths = self._waiting.popleft()
                self._busy += 1
            try:
                outcome: Done = await worker.do.remote(job, row)
            except ray.exceptions.RayTaskError:  # also those that tell of another actor's death
                raise
            except ray.exceptions.RayActorError as error:
                hand.lost(worker)
                if deaths + 1 < _DEATHS:
                    self._waiting.append((job, row, deaths + 1))
                else:
                    done(_failed(job, _line(error)))
            else:
                self._take(outcome, done)
            async with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _take(self, outcome: Done, done: Callable[[JobRow], None]) -> None:
        """Book and hand on what came of a job."""
        self._purse.spent.add(outcome.spent)
        if outcome.failure is not None:
            raise outcome.failure
        if outcome.row is not None:
            done(outcome.row)
            self._unfinished = self._unfinished or not outcome.row.finished
        self._refusal = self._refusal or outcome.refused or self._empty()

    def _empty(self) -> str:
        """Return why no further call fits the account, or an empty string."""
        self._purse.spent.seconds = self._purse.elapsed()
        return self._purse.refused or self._purse.budget.refusal(self._purse.spent, Usage(calls=1))


def _failed(job: Job, why: str) -> JobRow:
    return JobRow(job.method, job.query, job.run, job.seed, reason=f"{_DEATHS} workers died over it: {why}")


def _line(error: BaseException) -> str:
    return " ".join(redact(str(error)).split())[:300]


@contextmanager
def _cluster(address: str | None, workers: int | None) -> Iterator[Any]:
    """Be connected to a cluster; one that was started here is stopped at the end.

    Raises:
        UserError: If there is no cluster at the address.
    """
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    own = {"num_cpus": workers, "include_dashboard": False, "object_store_memory": _STORE} if address is None else {}
    try:
        ray.init(address=address or "local", **quiet, **own)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        why = " ".join(str(error).split())[:300]
        raise UserError(f"There is no Ray cluster at {address or 'this machine'}", why, "Check --address.") from error
    try:
        yield ray
    finally:
        ray.shutdown()
