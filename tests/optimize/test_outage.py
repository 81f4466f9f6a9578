"""A model that fails for a while: what is kept, what is tried again, what is not concluded from it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import optuna
import pytest
from salon.modules import Debate, Embedder
from salon.optimize.objectives import Objective, objectives_of
from salon.optimize.study import HOPELESS, tune
from salon.optimize.trials import Tuned

import salon
from salon import Budget
from salon.errors import LogError, RunFailure, UserError
from salon.testing import ChatRequest, Fault, LoopbackServer

AIMS = objectives_of(["quality", "vendi"], 3)


def tuned(program: Any, bench: Any, tasks: Any, out: Path, **settings: Any) -> Tuned:
    return asyncio.run(tune(program, bench, tasks, AIMS, out=out, **{"trials": 8, "race": 1, **settings}))


def own(found: Tuned) -> list[Any]:
    return [record for record in found.trials if record.copy_of is None]


class Outage:
    """A bench whose sessions fail after so many measurements, and later not any more."""

    def __init__(self, bench: Callable[..., Any], healthy: int) -> None:
        self.left = healthy
        self.inner = bench(fail=lambda _: "" if self.left >= 0 else "the server is down")
        self.groups, self.embedder = self.inner.groups, self.inner.embedder

    async def measure(self, program: Any, tasks: Any, place: str, fresh: int = 0) -> Any:
        self.left -= 1
        return await self.inner.measure(program, tasks, place, fresh)


def test_trials_that_fail_in_a_row_end_the_study_and_are_tried_again(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any
) -> None:
    short = tuned(debate, Outage(bench, 3), tasks, tmp_path)
    assert short.unfinished.startswith(f"The last {HOPELESS} trials failed: 36 of 36 sessions failed: the server is")
    assert short.unfinished.endswith("they are tried again.")
    assert [record.state for record in own(short)] == ["complete"] * 3 + ["failed"] * HOPELESS
    assert short.front
    after = bench()
    found = tuned(debate, after, tasks, tmp_path)
    keys = {record.key for record in own(found)}
    assert len(keys) == 8  # what failed counts once
    assert {record.key for record in own(found) if record.state == "complete"} == keys
    failed = [record.key for record in own(found) if record.state == "failed"]
    assert [record.key for record in own(found)[6:9]] == failed  # before others
    quiet = bench()
    assert [r.number for r in tuned(debate, quiet, tasks, tmp_path).trials] == [r.number for r in found.trials]
    assert not quiet.made


@pytest.mark.parametrize("trials", [3, 8])
def test_a_study_that_only_failed_begins_again(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any, trials: int
) -> None:
    for _ in range(2):
        with pytest.raises(RunFailure, match=r"None of [34] trials succeeded.*the server is down.*tried again"):
            tuned(debate, Outage(bench, 0), tasks, tmp_path, trials=trials)
        trials += 3  # the second time one more fails
    found = tuned(debate, bench(), tasks, tmp_path, trials=trials)
    assert found.untuned is not None
    assert found.untuned.state == "complete"
    assert len({record.key for record in own(found)}) == trials


def test_programs_that_fail_for_good_do_not_stop_the_study_for_ever(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any
) -> None:
    broken = bench(fail=lambda p: "it never works" if float(p.temperature) != 1.0 else "")
    settings = {"sampler": "grid", "trials": 30}
    for _ in range(20):
        found = tuned(debate, broken, tasks, tmp_path, **settings)
        if not found.unfinished:
            break
    assert not found.unfinished
    assert len({record.key for record in own(found)}) == 30
    assert {record.state for record in own(found)} == {"complete", "failed"}


def test_an_untuned_program_that_failed_alone_is_tried_again(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any
) -> None:
    calls = iter([True])
    once = bench(fail=lambda _: "a hiccup" if next(calls, False) else "")
    found = tuned(debate, once, tasks, tmp_path, trials=4)
    assert found.untuned is None
    found = tuned(debate, bench(), tasks, tmp_path, trials=4)
    assert found.untuned is not None
    assert len({record.key for record in own(found)}) == 4


def test_a_damaged_log_is_no_fault_of_a_program(tmp_path: Path, debate: Any, bench: Any, tasks: Any) -> None:
    class Damaged(Outage):
        async def measure(self, *given: Any, **more: Any) -> Any:
            raise LogError("session.jsonl is damaged")

    with pytest.raises(LogError):
        tuned(debate, Damaged(bench, 0), tasks, tmp_path)
    found = tuned(debate, bench(), tasks, tmp_path)
    assert {record.state for record in found.trials} == {"complete"}


def test_what_fails_when_measured_again_is_not_confirmed_and_later_is(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any
) -> None:
    short = tuned(debate, Outage(bench, 8), tasks, tmp_path)
    assert "could not be measured again: 36 of 36 sessions failed: the server is down" in short.unfinished
    assert {record.measured for record in short.trials} == {1}
    assert short.stopped == ""
    found = tuned(debate, bench(), tasks, tmp_path)
    assert found.unfinished == ""
    assert {record.measured for record in found.front} == {2}


def test_a_study_that_was_killed_while_it_was_made_goes_on(tmp_path: Path, debate: Any, bench: Any, tasks: Any) -> None:
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
    study = optuna.create_study(
        study_name="numbers", storage=optuna.storages.JournalStorage(backend), directions=["maximize", "maximize"]
    )
    study.set_user_attr("seed", 0)
    assert len(own(tuned(debate, bench(), tasks, tmp_path, trials=2))) == 2


# ---------------------------------------------------------------- a compile


TRAIN, HELD_OUT = ["Find a use for corks", "Find a use for bells"], ["Find a use for keys", "Find a use for maps"]
GOALS: dict[str, Any] = {"objectives": ["quality"], "rule": "quality", "sampler": "grid", "ranges": {"rounds": (0, 2)}}
GOALS |= {"include": ["rounds"], "trials": 3, "groups": 2}


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder()


@contextmanager
def model(reply: Any) -> Iterator[LoopbackServer]:
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    with LoopbackServer(reply=reply, model="steady") as server, dspy.context(lm=server.lm(cache=False, num_retries=0)):
        yield server


def program(embedder: Embedder) -> Debate:
    return Debate(agents=2, rounds=0, k=1, embedder=embedder)


def by_steps(request: ChatRequest) -> Any:
    """Write answers that get better with each revision."""
    if "originality" in request.fields:
        value = 3 + 3 * min(request.text.count("again"), 2)
        return {name: "so" if name == "reason" else value for name in request.fields}
    if "critique" in request.fields:
        written = request.text.rpartition("[[ ## own ## ]]")[2].split("[[ ##")[0]
        return {"critique": "", "answer": f"Corks {'again ' * (written.count('again') + 1)}"}
    return {"answer": "Corks"} if "answer" in request.fields else None


def test_an_untuned_program_that_fails_is_told_before_the_search(embedder: Embedder, tmp_path: Path) -> None:
    def down(request: ChatRequest) -> Any:
        return Fault(status=500) if "originality" in request.fields else by_steps(request)

    with model(down) as server:
        with pytest.raises(RunFailure, match="The untuned program cannot be measured: 4 of 4 answers have no rating"):
            salon.compile(program(embedder), TRAIN, HELD_OUT, out=tmp_path, **GOALS)
        assert server.count <= 4 * (3 + 2)  # four sessions, their ratings tried twice
    with model(by_steps):
        kept = salon.compile(program(embedder), TRAIN, HELD_OUT, out=tmp_path, **GOALS)
    assert kept.compile_report.better


HEAT: dict[str, Any] = {**GOALS, "include": ["temperature"], "ranges": {"temperature": (0.8, 1.2, 0.1)}}


def by_heat(request: ChatRequest) -> Any:
    """Write answers that get better with the temperature."""
    if "answer" in request.fields:
        return {"answer": f"Corks {'again ' * round(10 * request.body['temperature'] - 10)}"}
    return by_steps(request)


def untuned_alone(request: ChatRequest) -> Any:
    """Fail whatever is not as warm as the untuned program."""
    cold = "answer" in request.fields and request.body["temperature"] != 1.0
    return Fault(status=500, message="down") if cold else by_heat(request)


class Switch:
    """A model that is down from the moment that a tell has heard a text so often."""

    def __init__(self, reply: Callable[[ChatRequest], Any], begins: str, times: int = 1) -> None:
        self.reply, self.begins, self.left = reply, begins, times

    def __call__(self, request: ChatRequest) -> Any:
        return Fault(status=500, message="down") if self.left <= 0 else self.reply(request)

    def tell(self, line: Any) -> None:
        self.left -= str(line).startswith(self.begins)


@pytest.mark.parametrize(("healthy", "calls", "failed"), [(1, 1, 3), (3, 1, 2), (4, 1, 1), (2, 3, 3)])
def test_a_search_that_ends_in_an_outage_goes_on_later(
    embedder: Embedder, tmp_path: Path, healthy: int, calls: int, failed: int
) -> None:
    """It ends the same however many trials failed at the end, and however many calls the outage lasts."""
    goals = {**HEAT, "trials": 5}
    switch = Switch(by_heat, "Trial ", healthy)
    for _ in range(calls):
        with model(switch):
            first = salon.compile(program(embedder), TRAIN, HELD_OUT, out=tmp_path, tell=switch.tell, **goals)
        assert f"The last {failed} trials failed: 4 of 4 sessions failed" in first.compile_report.stopped
        assert not first.compile_report.better
    with model(by_heat):
        found = salon.compile(program(embedder), TRAIN, HELD_OUT, out=tmp_path, **goals)
    report = found.compile_report
    assert {trial.state for trial in report.trials} == {"complete"}
    assert sorted(trial.values["temperature"] for trial in report.trials) == [0.8, 0.9, 1.0, 1.1, 1.2]
    assert report.trials[0].values["temperature"] == 1.0
    assert report.better
    assert float(found.temperature) == 1.2


def test_a_picked_program_that_fails_on_held_out_tasks_is_not_better(embedder: Embedder, tmp_path: Path) -> None:
    def ails(request: ChatRequest) -> Any:
        held_out = any(task in request.text for task in HELD_OUT)
        return untuned_alone(request) if held_out else by_heat(request)

    with model(ails):
        kept = salon.compile(program(embedder), TRAIN, HELD_OUT, out=tmp_path, **{**HEAT, "trials": 5})
    report = kept.compile_report
    assert "could not be held against the untuned one, which is kept: 4 of 4 sessions failed" in report.verdict
    assert (report.better, float(kept.temperature)) == (False, 1.0)
    with model(by_heat):
        later = salon.compile(program(embedder), TRAIN, HELD_OUT, out=tmp_path, **{**HEAT, "trials": 5})
    assert later.compile_report.better


def test_prompts_tuned_in_an_outage_are_tuned_again(embedder: Embedder, tmp_path: Path) -> None:
    goals = {**GOALS, "trials": 2, "prompts": "bootstrap"}
    down = False

    def reply(request: ChatRequest) -> Any:
        return Fault(status=500, message="down") if down else by_steps(request)

    def tell(line: Any) -> None:
        nonlocal down
        if str(line).startswith("Tuning draft"):  # its untuned program is measured by then
            down = True

    with model(reply):
        first = salon.compile(program(embedder), TRAIN, HELD_OUT, out=tmp_path, tell=tell, **goals).compile_report
    course = json.loads((tmp_path / "course.json").read_text())
    assert "spent" not in course["prompts"], first.stopped
    lines: list[str] = []
    with model(by_steps):
        down = False
        salon.compile(program(embedder), TRAIN, HELD_OUT, out=tmp_path, tell=lambda x: lines.append(str(x)), **goals)
    assert "Prompts were tuned with bootstrap before" not in lines
    assert "spent" in json.loads((tmp_path / "course.json").read_text())["prompts"]


# ---------------------------------------------------------------- budgets of several calls


def test_a_compile_that_is_done_keeps_its_program_whatever_the_budget(embedder: Embedder, tmp_path: Path) -> None:
    with model(by_steps) as server:
        done = salon.compile(program(embedder), TRAIN, HELD_OUT, out=tmp_path, **GOALS)
        calls = server.count
        for most in (calls, calls - 1, 20):
            again = salon.compile(program(embedder), TRAIN, HELD_OUT, out=tmp_path, budget=Budget(calls=most), **GOALS)
            assert again.described() == done.described()
            assert again.compile_report.better
            assert again.compile_report.stopped == ""
        assert server.count == calls


def test_comparisons_of_earlier_calls_count(embedder: Embedder, tmp_path: Path) -> None:
    """The first call picks a program and compares it; the second may pick another, and the budget holds all."""
    goals = {**GOALS, "ranges": {"rounds": (0, 4)}}
    with model(by_steps) as server:
        salon.compile(program(embedder), TRAIN, HELD_OUT, out=tmp_path, **{**goals, "trials": 2})
        most = server.count + 40
        report = salon.compile(
            program(embedder), TRAIN, HELD_OUT, out=tmp_path, budget=Budget(calls=most), **{**goals, "trials": 5}
        ).compile_report
        assert server.count <= most
    assert report.total.calls == server.count


# ---------------------------------------------------------------- workers, cancelling, limits


@pytest.mark.parametrize("workers", [3, 5])
def test_no_trial_of_an_outage_is_lost_to_workers(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any, workers: int
) -> None:
    short = tuned(debate, Outage(bench, 2), tasks, tmp_path, workers=workers)
    assert short.unfinished
    found = tuned(debate, bench(), tasks, tmp_path, workers=workers)
    states: dict[str, set[str]] = {}
    for record in own(found):
        states.setdefault(record.key, set()).add(record.state)
    assert len(states) == 8
    assert all("complete" in ended for ended in states.values())


@pytest.mark.parametrize("after", range(0, 60, 8))
def test_cancelled_at_any_moment_no_trial_is_lost(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any, after: int
) -> None:
    async def cancelled() -> None:
        work = asyncio.ensure_future(tune(debate, bench(), tasks, AIMS, out=tmp_path, trials=6, race=1))
        await asyncio.sleep(after / 200)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    asyncio.run(cancelled())
    found = tuned(debate, bench(), tasks, tmp_path, trials=6)
    assert {record.state for record in found.trials} == {"complete"}
    assert len({record.key for record in own(found)}) == 6


def test_a_limit_that_is_loosened_gives_what_it_pruned_another_try(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any
) -> None:
    costly = objectives_of(["quality", "vendi", "tokens"], 3)

    def limited(bound: float) -> Tuned:
        given = {"out": tmp_path, "trials": 12, "race": 3, "limits": {"tokens": bound}}
        return asyncio.run(tune(debate, bench(), tasks, costly, **given))

    tight = limited(900)
    assert any("sure to pass the limit" in record.reason for record in tight.trials)
    loose = limited(1e6)
    last = {record.key: record for record in own(loose)}
    assert not any("limit" in record.reason for record in last.values())
    assert len(last) == 12
    assert len(loose.front) >= len(tight.front)


def test_values_that_are_no_numbers_fail_a_trial_and_not_the_study(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any
) -> None:
    for n, odd in enumerate((float("nan"), float("inf"), "much", True, ValueError("broken"))):

        def of(rows: Any, _: Any, odd: Any = odd) -> Any:
            if "0.0500" not in rows[0].answer:
                return np.float32(0.5)
            if isinstance(odd, Exception):
                raise odd
            return odd

        own_goal = Objective("mine", "maximize", 0, 1, "share", of)
        maker = bench(of=lambda p: (5.0, 0.05 if int(p.rounds) == 1 else 0.5))
        found = asyncio.run(tune(debate, maker, tasks, [own_goal], out=tmp_path / str(n), trials=8, race=1))
        failed = [record for record in found.trials if record.state == "failed"]
        assert {record.numbers["rounds"] for record in failed} == {1}
        assert all(record.reason.startswith("The objective mine cannot be computed: ") for record in failed)
        assert found.untuned is not None


# ---------------------------------------------------------------- more of a compile


def test_judges_that_fail_while_prompts_are_tuned_conclude_nothing(embedder: Embedder, tmp_path: Path) -> None:
    goals = {**GOALS, "trials": 2, "prompts": "bootstrap"}
    tuning = False

    def reply(request: ChatRequest) -> Any:
        return Fault(status=500, message="down") if tuning and "originality" in request.fields else by_steps(request)

    def tell(line: Any) -> None:
        nonlocal tuning
        tuning = tuning or str(line).startswith("Tuning prompts")

    with model(reply):
        first = salon.compile(program(embedder), TRAIN, HELD_OUT, out=tmp_path, tell=tell, **goals).compile_report
    assert "answers were not rated while prompts were tuned" in first.stopped
    noted = json.loads((tmp_path / "course.json").read_text())["prompts"]
    assert noted.keys() == {"numbers", "interrupted"}
    lines: list[str] = []
    with model(by_steps):
        salon.compile(program(embedder), TRAIN, HELD_OUT, out=tmp_path, tell=lambda x: lines.append(str(x)), **goals)
    assert "Prompts were tuned with bootstrap before" not in lines
    assert "spent" in json.loads((tmp_path / "course.json").read_text())["prompts"]


def test_a_few_failures_on_held_out_tasks_are_final_once_they_were_told(embedder: Embedder, tmp_path: Path) -> None:
    """One of ten ratings fails: the verdict stands, whatever the budget of a later call."""
    tasks = [f"Find a use for things of kind {n}" for n in range(5)]
    flaky = {"left": 3}  # each rating is tried so often

    def reply(request: ChatRequest) -> Any:
        if "originality" in request.fields and tasks[0] in request.text and "again again" in request.text:
            flaky["left"] -= 1
            if flaky["left"] >= 0:
                return Fault(status=500, message="busy")
        return by_steps(request)

    with model(reply) as server:
        done = salon.compile(program(embedder), TRAIN, tasks, out=tmp_path, **GOALS)
        assert done.compile_report.better
        calls = server.count
        for budget in (None, Budget(calls=done.compile_report.total.calls)):
            again = salon.compile(program(embedder), TRAIN, tasks, out=tmp_path, budget=budget, **GOALS)
            assert again.described() == done.described()
            assert again.compile_report.held_out == done.compile_report.held_out
        assert server.count == calls


def test_what_cannot_be_a_seed_or_a_limit_is_refused(embedder: Embedder, tmp_path: Path) -> None:
    with model(by_steps) as server:
        for wrong in ({"seed": -1}, {"limits": {"quality": float("nan")}}, {"limits": {"quality": 10**400}}):
            with pytest.raises(UserError, match="not possible"):
                salon.compile(program(embedder), TRAIN, HELD_OUT, out=tmp_path, **{**GOALS, **wrong})
        assert server.count == 0
