"""Jobs on a Ray cluster: the same rows as here, limits over all workers, and nothing lost with a worker that dies."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dspy
import pytest
from salon.evals.cluster import ray_engine
from salon.evals.gate import Gate, JobAccount, SharedLimits
from salon.evals.jobs import read_rows
from salon.evals.runner import evaluate
from salon.modules import Budget, Embedder, Usage

from salon.errors import CallFailure, UserError
from salon.testing import ChatRequest, Fault, LoopbackServer

pytestmark = pytest.mark.usefixtures("quick_embeddings")
METHODS = "direct,voting,self-refine,debate(agents=2,rounds=1,peers='all')"
MODULE = """
import os, time
from pathlib import Path

def worker(task):
    (Path(__file__).parent / f"pid-{os.getpid()}").touch()
    return f"by a worker: {task}"
"""


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A cluster of two CPUs on this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    module = pytest.importorskip("ray", reason="needs ray (pip install '.[ray]')")
    module.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=128 * 2**20
    )
    yield module
    module.shutdown()


def run(server: LoopbackServer, out: Path, methods: Any = METHODS, lm: Any = None, **settings: Any) -> Any:
    given = {"queries": 2, "runs": 3, "groups": 3, "compare": 1, "max_concurrency": 6, **settings}
    with dspy.context(lm=lm or server.lm(cache=False, num_retries=0)):
        return evaluate(methods, out=out, **given)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows = [asdict(row) for _, row in sorted(read_rows(folder).items())]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


# ---------------------------------------------------------------- on two workers


def test_two_workers_give_the_rows_of_this_process_even_if_one_is_killed_in_its_work(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine_on_ray.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    methods = f"mine=mine_on_ray:worker,{METHODS}"

    def workers() -> list[int]:
        return [int(path.name.partition("-")[2]) for path in tmp_path.glob("pid-*")]

    killed: list[int] = []

    def reply(request: ChatRequest) -> None:
        if on_ray and request.number >= 60 and not killed and workers():
            killed.append(workers()[0])
            os.kill(killed[0], signal.SIGKILL)

    on_ray = False
    with LoopbackServer(delay=0.1, reply=reply) as server:
        local = run(server, tmp_path / "local", methods)
        expected = server.count
        server.reset()
        for path in tmp_path.glob("pid-*"):
            path.unlink()
        on_ray = True
        spread = run(server, tmp_path / "ray", methods, engine=ray_engine(workers=2), budget=Budget(calls=10_000))
        # Those in flight at the kill may have been answered to nobody; no other call is made twice.
        assert expected <= server.count <= expected + 6
    assert killed
    assert len(workers()) in (2, 3)  # of two, one was killed, and replaced in time to do a job or not
    assert rows_of(tmp_path / "ray") == rows_of(tmp_path / "local")
    assert len(rows_of(tmp_path / "ray")) == 5 * 2 * 3
    timeless = [column for column in local.methods.columns if "seconds" not in column]
    assert spread.methods[timeless].equals(local.methods[timeless])
    assert capfd.readouterr().out == ""


def test_limits_hold_over_all_workers_and_another_engine_goes_on(ray: Any, tmp_path: Path) -> None:
    with LoopbackServer(delay=0.02) as server:
        settings: Any = {"runs": 6, "compare": 0, "methods": "voting"}
        engine = ray_engine(workers=2)
        results = run(server, tmp_path, budget=Budget(calls=40), max_concurrency=3, engine=engine, **settings)
        assert results.left == "the budget of 40 calls is used up"
        assert 30 < server.count <= 40
        assert server.max_in_flight == 3
        assert len(read_rows(tmp_path)) < 12
        results = run(server, tmp_path, budget=Budget(calls=12 * 7), **settings)
        assert (results.left, results.answered) == ("", 12)
        assert server.count == 12 * 7


def test_a_key_that_is_refused_ends_it_in_one_line(ray: Any, tmp_path: Path) -> None:
    with LoopbackServer(faults=lambda _: Fault(401)) as server:
        with pytest.raises(CallFailure, match="cannot be used") as caught:
            run(server, tmp_path, "direct", engine=ray_engine(workers=1))
        assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- before anything is sent


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install salon\[ray\]"):
        ray_engine()


@pytest.mark.parametrize("workers", [0, -1, True])
def test_a_cluster_needs_workers(workers: Any) -> None:
    pytest.importorskip("ray")
    with pytest.raises(UserError, match="workers="):
        ray_engine(workers=workers)


def test_what_cannot_be_sent_is_told_in_one_line(loopback: LoopbackServer, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    lock = __import__("threading").Lock()
    with pytest.raises(UserError, match="cannot be sent to a cluster"):
        run(loopback, tmp_path, {"mine": lambda task: f"{lock} {task}"}, engine=ray_engine())
    assert loopback.count == 0


def test_an_embedder_is_sent_by_name(tmp_path: Path) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    first = Embedder("some/model", batch=3)
    first.embed(["a", "b"])
    again = cloudpickle.loads(cloudpickle.dumps(first))
    assert (again.model, again.batch) == ("some/model", 3)
    assert again._cache == {}


# ---------------------------------------------------------------- the gate


class _Remote:
    """A gate in this process with the manners of a Ray handle."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.gate, name)

        class Call:
            @staticmethod
            def remote(*arguments: Any) -> asyncio.Task[Any]:
                return asyncio.ensure_future(method(*arguments))

        return Call


class _LM:
    def __init__(self, model: str, api_base: str = "") -> None:
        self.model, self.kwargs = model, {"api_base": api_base}


def test_each_lm_has_its_own_places_over_all_workers() -> None:
    async def main() -> tuple[int, int]:
        handle = _Remote(Gate(2, Budget(), Usage(), 0.0))
        limits = [SharedLimits(handle, worker, itertools.count()) for worker in "ab"]
        inside = {"x": 0, "y": 0}
        most = dict(inside)

        async def call(limit: SharedLimits, lm: str) -> None:
            async with limit.of(_LM("m", lm)):
                inside[lm] += 1
                most[lm] = max(most[lm], inside[lm])
                await asyncio.sleep(0.01)
                inside[lm] -= 1

        await asyncio.gather(*(call(limits[n % 2], "xy"[n // 2 % 2]) for n in range(20)))
        return most["x"], most["y"]

    assert asyncio.run(main()) == (2, 2)


def test_places_of_a_dead_worker_are_given_back_those_it_waits_for_too() -> None:
    async def main() -> None:
        gate = Gate(1, Budget(), Usage(), 0.0)
        await gate.enter("dead", 1, "lm")
        waiting = [asyncio.ensure_future(gate.enter("dead", n, "lm")) for n in (2, 3)]
        alive = asyncio.ensure_future(gate.enter("alive", 1, "lm"))
        await asyncio.sleep(0.01)
        assert not alive.done()
        await gate.drop("dead")
        await asyncio.wait_for(alive, 5)
        await asyncio.gather(*waiting)
        late = asyncio.ensure_future(gate.enter("dead", 4, "lm"))
        await gate.leave("alive", 1)
        await asyncio.wait_for(late, 5)  # asked before it died, heard after: it must not hold a place either
        await asyncio.wait_for(gate.enter("alive", 2, "lm"), 5)

    asyncio.run(main())


def test_a_call_that_is_given_up_while_it_waits_holds_no_place() -> None:
    async def main() -> None:
        gate = Gate(1, Budget(), Usage(), 0.0)
        limits = SharedLimits(_Remote(gate), "a", itertools.count())

        async def call() -> None:
            async with limits.of(_LM("m")):
                await asyncio.sleep(100)

        first, second = asyncio.ensure_future(call()), asyncio.ensure_future(call())
        await asyncio.sleep(0.01)
        second.cancel()
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        await asyncio.sleep(0.01)
        async with asyncio.timeout(5):
            async with limits.of(_LM("m")):
                pass
        await gate.leave("a", 99)  # a ticket given back before it is taken is never held
        await asyncio.wait_for(gate.enter("a", 99, "m "), 5)
        await asyncio.wait_for(gate.enter("a", 100, "m "), 5)

    asyncio.run(main())


def test_a_job_is_held_against_the_shared_account_and_a_dead_workers_jobs_leave_it() -> None:
    async def main() -> None:
        budget = Budget(calls=4)
        gate = Gate(8, budget, Usage(calls=1), 0.0)
        handle = _Remote(gate)
        accounts = [JobAccount(handle, worker, 0, itertools.count(), budget) for worker in ("a", "b")]
        costs = [Usage(calls=1) for _ in range(4)]
        assert await accounts[0].reserve("m", costs[0]) == ""
        assert await accounts[0].reserve("m", costs[1]) == ""
        assert await accounts[1].reserve("m", costs[2]) == ""
        pending = asyncio.ensure_future(accounts[1].reserve("m", costs[3]))
        await asyncio.sleep(0.01)
        assert not pending.done()  # only calls in flight stand in its way
        for cost in costs[:2]:
            accounts[0].book("m", cost, 0.1)
            accounts[0].release("m", cost)
        await asyncio.sleep(0.01)
        assert accounts[0].spent.calls == 2
        accounts[1].book("m", costs[2], 0.1)
        accounts[1].release("m", costs[2])
        assert await asyncio.wait_for(pending, 5) == "the budget of 4 calls is used up"
        assert accounts[1].refused
        await gate.drop("a")  # its job will be done again, over its log
        assert await accounts[1].reserve("m", Usage(calls=1)) == ""

    asyncio.run(main())


def test_what_a_finished_job_spent_stays_when_its_worker_dies() -> None:
    async def main() -> str:
        budget = Budget(calls=1)
        gate = Gate(8, budget, Usage(), 0.0)
        account = JobAccount(_Remote(gate), "a", 0, itertools.count(), budget)
        account.book("m", Usage(calls=1), 0.1)
        account.close()
        await asyncio.sleep(0.01)
        await gate.drop("a")
        return (await gate.reserve("b", 0, [], 1, "m", Usage(calls=1)))[0]

    assert asyncio.run(main()) == "the budget of 1 calls is used up"


def test_a_repair_has_to_fit_the_shared_account() -> None:
    async def main() -> list[str]:
        budget = Budget(calls=2)
        gate = Gate(8, budget, Usage(), 0.0)
        account = JobAccount(_Remote(gate), "a", 0, itertools.count(), budget)
        cost = Usage(calls=1)
        await account.reserve("m", cost)
        told = [await account.extend(cost, Usage(calls=1))]
        told.append(await account.extend(cost, Usage(calls=1)))
        account.release("m", cost)
        return told

    assert asyncio.run(main()) == ["", "the budget of 2 calls is used up"]


def test_without_limits_the_gate_is_not_asked() -> None:
    async def main() -> Usage:
        account = JobAccount(None, "a", 0, itertools.count(), Budget())
        cost = Usage(calls=1)
        assert await account.reserve("m", cost) == ""
        assert await account.extend(cost, cost) == ""
        account.book("m", cost, 0.1)
        account.release("m", cost)
        account.close()
        return account.spent

    assert asyncio.run(main()) == Usage(calls=1)
