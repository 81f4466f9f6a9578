"""The search: what it finds, what it never repeats, what it survives."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from salon.modules import Debate
from salon.optimize.front import dominates, hypervolume, pareto
from salon.optimize.objectives import Objective, objectives_of, values_of
from salon.optimize.space import points, program_key, size, space_of, with_values
from salon.optimize.study import tune
from salon.optimize.trials import Progress, Tuned

from salon.errors import BudgetSpent, CallFailure, OutputError, RunFailure, UserError

AIMS = objectives_of(["quality", "vendi"], 3)
COSTLY = objectives_of(["quality", "vendi", "tokens"], 3)


def tuned(program: Any, bench: Any, tasks: Any, out: Path, objectives: Any = AIMS, **settings: Any) -> Tuned:
    return asyncio.run(tune(program, bench, tasks, objectives, out=out, **{"trials": 8, **settings}))


def told(found: Tuned) -> list[tuple[Any, ...]]:
    return [(r.number, dict(r.numbers), r.state, r.means, r.copy_of) for r in found.trials]


def test_the_untuned_program_is_trial_0_and_the_original_stays(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any
) -> None:
    before = program_key(debate)
    found = tuned(debate, bench(), tasks, tmp_path)
    assert found.trials[0].untuned
    assert dict(found.trials[0].numbers) == {"rounds": 2, "k": 2, "temperature": 1.0}
    assert found.untuned == found.trials[0]
    assert program_key(debate) == before == found.trials[0].key
    best = found.picked("quality")
    assert {n: p.value for n, p in found.program_of(best).named_parameters() if n in best.numbers} == best.numbers
    assert found.stopped == ""
    for record in found.front:
        assert record.measured == 2
        assert not any(dominates(other.means, record.means, AIMS) for other in found.front)


def test_a_search_comes_close_to_the_true_front(tmp_path: Path, debate: Any, bench: Any, tasks: Any) -> None:
    space = space_of(debate, ranges={"temperature": (0.5, 1.3, 0.05)})
    everything: dict[str, Any] = {}
    ideal = bench()
    for at in range(size(space) or 0):
        variant = with_values(debate, points(space, at))
        rows = asyncio.run(ideal.measure(variant, tasks[:2], program_key(variant)))
        everything[program_key(variant)] = {n: v.value for n, v in values_of(rows, AIMS, ideal.embedder).items()}
    known = list(everything.values())
    worst = {name: min(point[name] for point in known) for name in ("quality", "vendi")}
    found = tuned(debate, bench(), tasks[:2], tmp_path, trials=60, space=space, confirm=0)
    true = hypervolume(known, AIMS, worst)
    assert hypervolume([r.means for r in found.front], AIMS, worst) >= 0.95 * true
    assert len(pareto(known, AIMS)) > 3


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "gp", "random", "grid"])
def test_samplers_are_seeded_and_go_on_as_if_never_stopped(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any, sampler: Any
) -> None:
    settings = {"sampler": sampler, "seed": 3, "confirm": 0, "race": 1}
    whole = tuned(debate, bench(), tasks[:2], tmp_path / "a", trials=14, **settings)
    tuned(debate, bench(), tasks[:2], tmp_path / "b", trials=5, **settings)
    again = bench()
    resumed = tuned(debate, again, tasks[:2], tmp_path / "b", trials=14, **settings)
    assert told(whole) == told(resumed)
    assert sum(again.made.values()) == 2 * 9
    other = tuned(debate, bench(), tasks[:2], tmp_path / "c", trials=14, **{**settings, "seed": 4})
    assert told(other) != told(whole)


def test_a_finished_study_measures_nothing_again(tmp_path: Path, debate: Any, bench: Any, tasks: Any) -> None:
    first, second = bench(noise=0.3), bench(noise=0.3)
    found = tuned(debate, first, tasks, tmp_path)
    assert set(first.made.values()) == {1}
    again = tuned(debate, second, tasks, tmp_path)
    assert not second.made
    assert told(again) == told(found)
    assert [r.number for r in again.front] == [r.number for r in found.front]


def test_the_same_program_is_measured_once_and_its_values_are_copied(tmp_path: Path, bench: Any, tasks: Any) -> None:
    program, maker = Debate(rounds=0, embedder=bench().embedder), bench()
    space = space_of(program, include=["rounds", "k"], ranges={"rounds": (0, 1)})
    found = tuned(program, maker, tasks[:2], tmp_path, space=space, trials=50, confirm=0, race=1)
    programs = {record.key for record in found.trials}
    assert len(programs) == 1 + 4  # without rounds, all k are one
    assert len(maker.made) == 2 * 5
    assert found.stopped == "every program of the space was tried"
    copies = [record for record in found.trials if record.copy_of is not None]
    assert copies
    for record in copies:
        assert record.means == found.trials[record.copy_of].means
        assert record.key == found.trials[record.copy_of].key


def test_a_grid_is_walked_once(tmp_path: Path, debate: Any, bench: Any, tasks: Any) -> None:
    space = space_of(debate, include=["k"], ranges={"rounds": (1, 2)})
    maker = bench()
    found = tuned(debate, maker, tasks[:2], tmp_path, space=space, sampler="grid", trials=99, confirm=0, race=1)
    assert sorted((r.numbers["rounds"], r.numbers["k"]) for r in found.trials) == [
        (r, k) for r in (1, 2) for k in (1, 2, 3, 4)
    ]
    assert found.stopped == "every program of the space was tried"


def test_hopeless_trials_are_stopped_early_with_what_they_have(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any
) -> None:
    maker = bench()
    found = tuned(debate, maker, tasks, tmp_path, objectives=COSTLY[:1] + COSTLY[2:], trials=25, confirm=0)
    stopped = [record for record in found.trials if record.state == "pruned" and record.copy_of is None]
    assert stopped
    for record in stopped:
        assert record.reason.startswith("dominated even at its best, after")
        assert record.sessions == 3 * sum(place == record.place for place, _, _ in maker.made)
        assert record.sessions < 3 * len(tasks)
        assert record not in found.front
        assert any(
            rival.means["quality"] > record.means["quality"] and rival.means["tokens"] < record.means["tokens"]
            for rival in found.trials[: record.number]
        )
    full = tuned(debate, bench(), tasks, tmp_path / "full", objectives=AIMS, trials=10, race=1, confirm=0)
    assert {record.state for record in full.trials} == {"complete"}


def test_a_limit_is_a_constraint(tmp_path: Path, debate: Any, bench: Any, tasks: Any) -> None:
    found = tuned(debate, bench(), tasks, tmp_path, objectives=COSTLY, trials=20, limits={"tokens": 1500})
    assert found.front
    for record in found.trials:
        over = record.means["tokens"] > 1500
        assert record.feasible != over
        assert not (over and record in found.front)
        if over and record.state == "complete":
            assert "passes the limit of 1500" in record.reason
    assert not found.trials[0].feasible  # 16 calls of 120 tokens
    study = optuna.load_study(study_name="numbers", storage=_journal(tmp_path))
    assert study.trials[0].constraints == {"tokens limit": pytest.approx(1920 / 1500 - 1)}


def test_what_may_win_is_measured_again_and_the_pooled_values_decide(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any
) -> None:
    maker = bench(noise=1.5)
    seen: list[Progress] = []
    found = tuned(debate, maker, tasks, tmp_path, trials=12, confirm=2, tell=seen.append)
    fresh: dict[str, set[int]] = {}
    for place, _, number in maker.made:
        fresh.setdefault(place, set()).add(number)
    assert fresh[found.trials[0].place] == {0, 1, 2}
    assert all(fresh[record.place] == {0, 1, 2} and record.measured == 3 for record in found.front)
    record = found.front[-1]
    rows = [asyncio.run(bench(noise=1.5).measure(found.program_of(record), tasks, record.place, n)) for n in (0, 1, 2)]
    each = [values_of(part, AIMS, maker.embedder)["quality"].value or 0 for part in rows]
    assert record.means["quality"] == pytest.approx(sum(each) / 3)
    assert seen[-1].front
    assert all(str(progress) for progress in seen)


def test_trials_that_fail_are_recorded_and_the_study_goes_on(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any
) -> None:
    maker = bench(fail=lambda program: "the model sulks" if int(program.rounds) == 3 else "")
    found = tuned(debate, maker, tasks, tmp_path, trials=12)
    failed = [record for record in found.trials if record.state == "failed" and record.copy_of is None]
    assert failed
    for record in failed:
        assert record.numbers["rounds"] == 3
        assert "sessions failed: the model sulks" in record.reason
        assert record.failed == record.sessions
    assert sum(r.copy_of is None for r in found.trials) == 12
    states = [t.state.name for t in optuna.load_study(study_name="numbers", storage=_journal(tmp_path)).trials]
    assert states.count("FAIL") == len(failed)


class Raising:
    """A bench that raises what it is told on some programs."""

    def __init__(self, bench: Any, error: Exception, when: Callable[[Any], bool]) -> None:
        self.bench, self.error, self.when = bench, error, when
        self.groups, self.embedder = bench.groups, bench.embedder

    async def measure(self, program: Any, *given: Any, **more: Any) -> Any:
        if self.when(program):
            raise self.error
        return await self.bench.measure(program, *given, **more)


def test_errors_of_one_program_fail_its_trial_and_those_of_all_end_the_study(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any
) -> None:
    own = Raising(bench(), UserError("The topic is too long"), lambda p: int(p.rounds) == 1)
    found = tuned(debate, own, tasks[:4], tmp_path / "a", trials=12)
    assert {r.reason for r in found.trials if r.numbers["rounds"] == 1} == {"The topic is too long"}
    with pytest.raises(CallFailure, match="no key"):
        tuned(debate, Raising(bench(), CallFailure("no key"), lambda _: True), tasks, tmp_path / "b")
    with pytest.raises(RunFailure, match=r"None of 3 trials succeeded: it rains\."):
        tuned(debate, Raising(bench(), RunFailure("it rains"), lambda _: True), tasks, tmp_path / "c")
    after = tuned(debate, bench(), tasks, tmp_path / "c")  # what failed may have passed: the untuned one is back
    assert after.untuned is not None
    assert after.untuned.state == "complete"


def test_an_objective_without_a_value_fails_the_trial(tmp_path: Path, debate: Any, bench: Any, tasks: Any) -> None:
    odd = Objective("odd", "maximize", 0, 1, "share", lambda rows, _: None if "0.0500" in rows[0].answer else 1.0)
    nothing = Objective("nothing", "maximize", 0, 1, "share", lambda rows, _: None, needs="a miracle")
    found = tuned(debate, bench(of=lambda p: (5.0, 0.05 if int(p.rounds) == 1 else 0.5)), tasks, tmp_path / "a", [odd])
    assert {r.reason for r in found.trials if r.numbers["rounds"] == 1} == {
        "no odd: 12 of 12 queries lack a session that says it"
    }
    with pytest.raises(RunFailure, match="no nothing: 12 of 12 queries lack a miracle"):
        tuned(debate, bench(), tasks, tmp_path / "b", [nothing])


def test_a_budget_that_ends_leaves_a_study_to_go_on_with(tmp_path: Path, debate: Any, bench: Any, tasks: Any) -> None:
    maker, left = bench(), [7]

    def spent(_: Any) -> bool:
        left[0] -= 1
        return left[0] < 0

    short = tuned(
        debate, Raising(maker, BudgetSpent("The budget of 9 calls is used up"), spent), tasks, tmp_path, race=1
    )
    assert short.stopped == "The budget of 9 calls is used up"
    assert [r.state for r in short.trials if r.copy_of is None].count("complete") == 7
    assert short.trials[-1].state == "running"
    assert short.front
    more = bench()
    whole = tuned(debate, more, tasks, tmp_path, race=1)
    assert told(whole) == told(tuned(debate, bench(), tasks, tmp_path / "whole", race=1))
    assert not {key for key in more.made if key[2] == 0} & set(maker.made)


def test_another_study_in_the_folder_is_not_mixed_in(tmp_path: Path, debate: Any, bench: Any, tasks: Any) -> None:
    tuned(debate, bench(), tasks, tmp_path, trials=2, confirm=0)
    for told_, changed in {
        "other queries": {"tasks": tasks[:5]},
        "another program": {"program": Debate(peers="random")},
        "another space": {"space": space_of(debate, include=["k"])},
        "other objectives": {"objectives": objectives_of(["distance", "vendi"], 3)},
        "another seed": {"seed": 5},
        "another answers a query": {"bench": bench(groups=4)},
    }.items():
        given: dict[str, Any] = {"program": debate, "bench": bench(), "tasks": tasks, "out": tmp_path, **changed}
        if told_ == "other objectives":
            given["objectives"] = changed["objectives"]
        with pytest.raises(OutputError, match=told_.replace("another answers a query", "answers a query")):
            tuned(**given)
    both = tuned(debate, bench(), tasks[:5], tmp_path, trials=2, confirm=0, name="another study")
    assert len(both.trials) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trials": 0}, "trials=0"), ({"workers": 0}, "workers=0"), ({"race": 0}, "race=0"),
        ({"confirm": -1}, "confirm=-1"), ({"seed": 1.5}, "seed=1.5"), ({"sampler": "luck"}, "no sampler 'luck'"),
        ({"limits": {"usd": 1}}, "no limit of 'usd'"), ({"limits": {"vendi": "x"}}, "a number is needed"),
        ({"storage": "mars://x"}, "cannot be opened"),
    ],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        tuned(debate, bench(), tasks, tmp_path, **settings)
    for wrong in ([], [tasks[0], tasks[0]]):
        with pytest.raises(UserError, match="queries cannot be used"):
            tuned(debate, bench(), wrong, tmp_path)
    with pytest.raises(UserError, match="no objective"):
        tuned(debate, bench(), tasks, tmp_path, objectives=[])


def test_two_workers_share_the_trials(tmp_path: Path, debate: Any, bench: Any, tasks: Any) -> None:
    maker = bench(seconds=0.02)
    found = tuned(debate, maker, tasks, tmp_path, trials=14, workers=3)
    own = [record for record in found.trials if record.copy_of is None]
    assert len(own) == 14
    assert len({record.key for record in own}) == 14
    assert set(maker.made.values()) == {1}
    assert not list((tmp_path / "workers").iterdir())


def test_a_database_holds_the_study_and_the_dashboard_can_read_it(
    tmp_path: Path, debate: Any, bench: Any, tasks: Any
) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    found = tuned(debate, bench(), tasks, tmp_path / "one", trials=4, storage=url, confirm=0)
    assert (found.storage, found.name) == (url, "numbers")
    second = bench()
    more = tuned(debate, second, tasks, tmp_path / "two", trials=6, storage=url, confirm=0)  # another machine
    assert told(more)[:4] == told(found)[:4]
    assert len({place for place, _, _ in second.made}) == 2
    study = optuna.load_study(study_name="numbers", storage=url)
    assert study.metric_names == ["quality", "vendi"]
    assert [d.name for d in study.directions] == ["MAXIMIZE", "MAXIMIZE"]


def test_optuna_says_nothing(tmp_path: Path, debate: Any, bench: Any, tasks: Any, capfd: Any, recwarn: Any) -> None:
    tuned(debate, bench(), tasks, tmp_path, trials=4)
    tuned(debate, bench(), tasks, tmp_path, trials=4)
    assert capfd.readouterr() == ("", "")
    assert not [w for w in recwarn if "optuna" in str(w.filename)]


def _journal(out: Path) -> Any:
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(out / "study.log")))


# ---------------------------------------------------------------- processes

_SCRIPT = """
import asyncio, json, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from conftest import FormulaBench, Spread
from salon.data.benchmarks import Task
from salon.modules import Debate
from salon.optimize.objectives import objectives_of
from salon.optimize.study import tune

out, slow, trials = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])

class Kept(FormulaBench):
    '''Keeps each query's row in a file, as a real bench does, and writes down what it makes.'''
    async def measure(self, program, tasks, place, fresh=0):
        rows = []
        for task in tasks:
            done = out / "bench" / place / f"{{fresh}}-{{task.id}}"
            if not done.exists():
                await asyncio.sleep(slow)
                done.parent.mkdir(parents=True, exist_ok=True)
                with (out / "made.txt").open("a") as file:
                    file.write(f"{{place}} {{task.id}} {{fresh}}\\n")
                done.write_text("")
            rows += await super().measure(program, [task], place, fresh)
        return rows

tasks = [Task(f"q{{n}}", f"Task {{n}}", f"Task {{n}}") for n in range(12)]
out.mkdir(parents=True, exist_ok=True)
found = asyncio.run(tune(Debate(embedder=Spread()), Kept(noise=0.2), tasks, objectives_of(["quality", "vendi"], 3),
                         out=out, trials=trials))
print(json.dumps([[[r.number, dict(r.numbers), r.state, r.means, r.copy_of] for r in found.trials],
                  [r.number for r in found.front]]))
"""


def _started(out: Path, slow: float, trials: int = 8) -> subprocess.Popen[str]:
    script = _SCRIPT.format(tests=str(Path(__file__).parent))
    return subprocess.Popen(
        [sys.executable, "-c", script, str(out), str(slow), str(trials)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ),
    )  # fmt: skip


def _ended(process: subprocess.Popen[str]) -> Any:
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return json.loads(output)


def _made(out: Path) -> list[str]:
    path = out / "made.txt"
    return path.read_text().splitlines() if path.exists() else []


def test_a_study_killed_in_the_middle_of_trials_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = _ended(_started(tmp_path / "whole", 0.0))
    out = tmp_path / "killed"
    for beyond in (5, 30, 65):
        process = _started(out, 0.03)
        while len(_made(out)) < beyond:
            assert process.poll() is None, process.communicate()
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert _ended(_started(out, 0.0)) == whole
    made = _made(out)
    assert len(made) == len(set(made))
    assert sorted(made) == sorted(_made(tmp_path / "whole"))


def test_two_processes_share_one_journal(tmp_path: Path) -> None:
    first, second = _started(tmp_path, 0.02, 14), _started(tmp_path, 0.02, 14)
    found = [_ended(first), _ended(second)]
    assert found[0] == found[1]
    trials, front = found[0]
    assert sum(copy is None for *_, copy in trials) == 14
    made = _made(tmp_path)
    assert len(made) == len(set(made))
    workers = {
        t.user_attrs["worker"] for t in optuna.load_study(study_name="numbers", storage=_journal(tmp_path)).trials
    }
    assert len(workers) == 2
    assert front
