"""Methods: named, loaded, imported or given; what each answers, costs and says when it cannot work."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import dspy
import pytest
from salon.evals.jobs import Job, JobRow
from salon.evals.methods import METHODS, CallableMethod, all_methods, as_method, method_of, methods_of, with_lms
from salon.modules import Budget, Debate, Direct, Usage
from salon.modules.budget import Account

from salon.errors import UserError
from salon.testing import LoopbackServer

MODULE = """
import dspy
from salon.modules import Debate, Direct

TASKS = []

def plain(task):
    return "plain " + task

async def later(task, seed):
    return f"later {task} {seed}"

def nothing():
    return 3

def factory():
    return Direct()

def broken():
    raise RuntimeError("out of paper")

def two(task, other):
    return task

class Answerer:
    def __call__(self, task):
        return "called " + task

class Awaited:
    async def __call__(self, task):
        return "awaited " + task

class Own(dspy.Module):
    def __init__(self):
        super().__init__()
        self.answer = dspy.Predict("task -> answer")
    def forward(self, task, seed=0):
        return self.answer(task=task)

class Debating(Debate):
    pass

chain = dspy.ChainOfThought("task -> answer")
question = dspy.Predict("question -> answer")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's in the current folder."""
    name = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return name


def _text(task: str) -> str:
    return task


def answered(
    method: Any, server: LoopbackServer, root: Path, seed: int = 3, purse: Account | None = None, **lm: Any
) -> JobRow:
    """Have a method answer one task."""
    with dspy.context(lm=server.lm(**lm)):
        job = Job(method.name, "q", "Name a use for a brick.", 1, seed)
        return asyncio.run(method.answer(job, root, asyncio.Semaphore(4), purse))


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("name", METHODS)
def test_every_named_method_answers_with_its_cost(
    name: str, loopback: LoopbackServer, quick_embeddings: None, tmp_path: Path
) -> None:
    short = {"roundtable": "(personas=2,turns=1,ideas=1)", "yes-and": "(max_agent_turns=1,messages=1)"}
    method = method_of(name + next((short[start] for start in short if name.startswith(start)), ""))
    row = answered(method, loopback, tmp_path)
    assert row.status == "ok", row.reason
    assert row.answer
    assert row.calls == loopback.count
    assert row.prompt_tokens > 0
    assert row.completion_tokens > 0
    assert (row.depth is not None) == name.startswith("roundtable")
    assert (row.balance is not None) == name.startswith("roundtable")
    if method.expected_calls() is not None and not name.startswith(("roundtable", "yes-and")):
        assert method.expected_calls() == row.calls


def test_settings_and_labels_are_read() -> None:
    methods = methods_of("debate(agents=3, rounds=1), few=debate(agents=2,lenses=['Be brief.'],k=1) ,direct,")
    assert list(methods) == ["debate(agents=3, rounds=1)", "few", "direct"]
    few = methods["few"].described()["settings"]
    assert (few["agents"], few["k"], few["lenses"]) == (2, 1, ["Be brief."])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "There is no method to evaluate"),
        (" , ", "There is no method to evaluate"),
        ("debat", "There is no method 'debat'.*roundtable"),
        ("debate,debate", "debate is there twice"),
        ("debate(agents=0)", "agents"),
        ("debate(agent=3)", "it has no agent"),
        ("debate(lms={'participant': 'x'})", "it has no lms"),
        ("debate(3)", "settings are needed as in"),
        ("debate(agents=3", "There is no method"),
        ("debate(agents=open('x'))", "settings are needed as in"),
        ("debate(**{'agents': 2})", "settings are needed as in"),
        ("debate(peers='nearest')", "peers='nearest' is not known"),
        ("nowhere:thing", "nowhere:thing cannot be imported"),
        ("math:thing", "math:thing cannot be imported"),
        ("math:pi", "float is no program and cannot be called"),
        ("x/y(agents=2)", "only roundtable, .* take settings"),
        ("a" * 500, "There is no method"),
    ],
)
def test_what_cannot_be_a_method_is_one_clear_line(text: str, told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        methods_of(text)
    assert "\n" not in str(caught.value)


def test_a_saved_program_is_a_method_named_by_its_folder(tmp_path: Path, quick_embeddings: None) -> None:
    program = Debate(agents=2, rounds=0)
    program.temperature.value = 0.7
    program.save(tmp_path / "mine")
    methods = methods_of(f"{tmp_path / 'mine'},other={tmp_path / 'mine'}")
    assert list(methods) == ["mine", "other"]
    assert methods["mine"].described() == program.described()


# ---------------------------------------------------------------- module:callable


@pytest.mark.parametrize(
    ("name", "answer", "calls"),
    [
        ("plain", "plain Name a use for a brick.", 0),
        ("later", "later Name a use for a brick. 3", 0),
        ("Answerer", "called Name a use for a brick.", 0),
        ("Awaited", "awaited Name a use for a brick.", 0),
        ("Own", None, 1),
        ("chain", None, 1),
        ("factory", None, 1),
        ("Debating", None, 16),
    ],
)
def test_what_a_module_offers_is_called(
    name: str,
    answer: str | None,
    calls: int,
    module: str,
    loopback: LoopbackServer,
    quick_embeddings: None,
    tmp_path: Path,
) -> None:
    method = method_of(f"{module}:{name}")
    row = answered(method, loopback, tmp_path)
    assert row.status == "ok", row.reason
    assert answer is None or row.answer == answer
    assert row.calls == loopback.count == calls
    assert (row.prompt_tokens > 0) == (calls > 0)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nothing", "int is no program and cannot be called"),
        ("broken", "broken cannot be made: RuntimeError: out of paper"),
        ("two", "it takes no task"),
        ("question", "it takes no task"),
        ("TASKS", "list is no program"),
        ("absent", "cannot be imported"),
    ],
)
def test_what_a_module_offers_and_cannot_work_is_told_before_anything_is_spent(
    name: str, told: str, module: str
) -> None:
    with pytest.raises(UserError, match=told):
        method_of(f"{module}:{name}")


def test_a_module_that_fails_to_import_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "halfdone.py").write_text("def x(:\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="halfdone:x cannot be imported: SyntaxError") as caught:
        method_of("halfdone:x")
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- callables


def test_runs_of_a_callable_differ_and_yet_come_from_the_cache_the_second_time(tmp_path: Path) -> None:
    ask = dspy.Predict("task -> answer")
    numbers = iter(range(100))
    with LoopbackServer(reply=lambda _: {"answer": f"answer {next(numbers)}"}) as server:
        first = [answered(as_method("m", ask), server, tmp_path, seed).answer for seed in (1, 2)]
        assert first == ["answer 0", "answer 1"]
        again = answered(as_method("m", ask), server, tmp_path, 2)
        assert (again.answer, server.count, again.prompt_tokens) == ("answer 1", 2, 0)


def test_what_a_callable_raises_is_the_reason_of_its_row_without_keys(loopback: LoopbackServer, tmp_path: Path) -> None:
    def call(task: str) -> str:
        dspy.Predict("task -> answer")(task=task)
        raise ValueError("no luck\nwith key sk-abcdefghijklmnopqrstuvwxyz123456")

    row = answered(CallableMethod("m", call), loopback, tmp_path)
    assert (row.status, row.calls, row.answer) == ("failed", 1, "")
    assert row.reason.startswith("ValueError: no luck with key")
    assert "abcdefghij" not in row.reason


@pytest.mark.parametrize(("result", "told"), [(3, "int, which is no text"), (None, "NoneType"), ("  ", "no answer")])
def test_a_callable_without_an_answer_fails(result: Any, told: str, loopback: LoopbackServer, tmp_path: Path) -> None:
    row = answered(CallableMethod("m", lambda task: result), loopback, tmp_path)
    assert row.status == "failed"
    assert told in row.reason


def test_callables_that_block_run_side_by_side(loopback: LoopbackServer, tmp_path: Path) -> None:
    barrier = threading.Barrier(24)  # more than asyncio has threads for on a small machine

    def call(task: str) -> str:
        barrier.wait(60)
        return "met"

    async def all_at_once() -> list[JobRow]:
        method, limit = CallableMethod("m", call), asyncio.Semaphore(24)
        return await asyncio.gather(*(method.answer(Job("m", "q", "x", n, n), tmp_path, limit) for n in range(24)))

    assert {row.answer for row in asyncio.run(all_at_once())} == {"met"}


def test_a_callable_is_held_against_the_budget_and_booked(loopback: LoopbackServer, tmp_path: Path) -> None:
    purse = Account(Budget(calls=1))
    method = as_method("m", dspy.Predict("task -> answer"))
    assert answered(method, loopback, tmp_path, 1, purse).status == "ok"
    assert purse.spent.calls == 1
    refused = answered(method, loopback, tmp_path, 2, purse)
    assert (refused.status, refused.reason) == ("failed", "the budget of 1 calls is used up")
    assert loopback.count == 1


# ---------------------------------------------------------------- programs


def test_an_answered_job_is_read_and_not_asked_again_and_is_on_the_account(
    loopback: LoopbackServer, tmp_path: Path
) -> None:
    method = as_method("m", Direct())
    first = answered(method, loopback, tmp_path, cache=False)
    purse = Account(Budget())
    assert answered(method, loopback, tmp_path, purse=purse, cache=False) == first
    assert loopback.count == 1
    assert purse.spent == Usage(1, first.prompt_tokens, first.completion_tokens, unpriced=1)


def test_a_task_that_a_program_cannot_take_fails_its_own_job(loopback: LoopbackServer, tmp_path: Path) -> None:
    with dspy.context(lm=loopback.lm()):
        job = Job("m", "q", "long " * 20_000, 1, 1)
        row = asyncio.run(as_method("m", Direct()).answer(job, tmp_path, asyncio.Semaphore(1)))
    assert row.status == "failed"
    assert "too long" in row.reason
    assert loopback.count == 0


def test_lms_are_seated_by_role_and_a_program_keeps_its_own(loopback: LoopbackServer) -> None:
    mine, theirs = loopback.lm(), loopback.lm()
    method: Any = with_lms(
        as_method("m", Debate(lms={"judge": mine})), {"participant": theirs, "judge": theirs, "x": 1}
    )
    assert method.program.lms == {"participant": theirs, "judge": mine}
    called: Any = with_lms(as_method("m", lambda task: task), {"participant": theirs})
    assert called.lm is theirs


def test_what_evaluate_takes_as_methods() -> None:
    assert list(all_methods("direct,voting")) == ["direct", "voting"]
    assert list(all_methods(["direct", "debate(k=1)"])) == ["direct", "debate(k=1)"]
    assert list(all_methods({"a": Direct(), "b": Direct, "c": lambda task: task})) == ["a", "b", "c"]
    assert list(all_methods(Debate())) == list(all_methods(Debate)) == ["debate"]
    assert list(all_methods(_text)) == ["_text"]
    for wrong in (3, None, {}, [], [Direct()]):
        with pytest.raises(UserError):
            all_methods(wrong)
