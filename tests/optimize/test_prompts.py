"""Prompt tuning as a whole: each optimizer on each program, what it never repeats, what it survives."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import optuna
import pytest
from dspy.utils import parallelizer
from salon.data.benchmarks import Task
from salon.modules import Debate, Embedder, Roundtable, YesAnd
from salon.modules.budget import Account, Budget
from salon.optimize.group_module import GroupModule, example_of
from salon.optimize.groups import Groups
from salon.optimize.metric import Aim
from salon.optimize.optimizers import scalar_metric
from salon.optimize.prompts import PromptsTuned, tune_prompts

import salon
from salon import BudgetSpent, CallFailure, RunFailure, UserError
from salon.testing import ChatRequest, Fault, LoopbackServer, default_reply

MAGIC = "lighthouse"
GOOD = "sparkling"
BLAND = "An app that reminds people of things they forget"
IDEAS = (
    "a choir of kettles wakes the street", "moss carpets drink the rain", "tailors print maps on coats",
    "a ferry sells soup by the litre", "bats guard the orchard at night", "grandmothers teach drone pilots",
    "a violin measures the wind", "beehives heat the greenhouse", "ink that fades when you lie",
    "a museum of broken umbrellas", "snow is stored for August", "dogs vote on the route of the bus",
)  # fmt: skip
TEXTS = ("answer", "description", "title", "text", "seed", "comment", "thought", "message", "would_add")
PEOPLE = [
    {"name": "Ada", "sketch": "Ada repairs bicycles and hates waste."},
    {"name": "Bo", "sketch": "Bo nurses at night and sleeps by day."},
]


def tasks(*texts: str) -> list[Task]:
    return [Task(f"q{n}-{text[-8:]}", text, text) for n, text in enumerate(texts)]


TRAIN = tasks("Find a use for corks", "Find a use for old maps")
EASY = tasks("Easy: find a use for corks", "Easy: find a use for old maps")
VAL = tasks("Find a use for broken bells", "Find a use for spare keys")


@dataclass
class Script:
    """The model: bland unless the prompt has the magic word, something good to go by, or an easy task."""

    reflects: str | Fault | Callable[[ChatRequest], Any] = f"Answer like the keeper of a {MAGIC}: from far away."
    fails_after: int | None = None
    fault: Fault = field(default_factory=lambda: Fault(status=401, message="no such key"))
    reflected: list[ChatRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = itertools.count()

    def __call__(self, request: ChatRequest) -> Any:
        if self.fails_after is not None and request.number > self.fails_after:
            return self.fault
        if "better" in request.fields:
            self.reflected.append(request)
            said = self.reflects(request) if callable(self.reflects) else self.reflects
            return {"better": said} if isinstance(said, str) else said
        reply = default_reply(request)
        good = any(sign in request.text for sign in (MAGIC, GOOD, "Easy"))
        number = next(self._numbers)
        written = f"{GOOD} thought {number}: {IDEAS[number % len(IDEAS)]}" if good else BLAND
        return {**reply, **{name: written for name in reply if name in TEXTS}}


@dataclass
class Judge:
    """Rates answers: 8 for good ones, 3 for others; counts what it rated."""

    rated: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    async def __call__(self, task: str, answers: Sequence[str]) -> list[Any]:
        self.rated.append((task, tuple(answers)))
        good = [GOOD in answer for answer in answers]
        return [
            SimpleNamespace(value=8.0 if g else 3.0, reason="it has a point of its own" if g else "everybody says that")
            for g in good
        ]


def debate(embedder: Embedder, **settings: Any) -> Debate:
    return Debate(**{"agents": 2, "rounds": 1, "k": 1, "embedder": embedder, **settings})


def roundtable(embedder: Embedder) -> Roundtable:
    return Roundtable(PEOPLE, turns=1, ideas=1, votes=1, facilitator=False, embedder=embedder)


def yes_and(embedder: Embedder) -> YesAnd:
    return YesAnd(PEOPLE, messages=1, order="fixed", embedder=embedder)


PROGRAMS: dict[str, tuple[Callable[[Embedder], Any], str]] = {
    "debate": (debate, "revise"),
    "roundtable": (roundtable, "propose"),
    "yes-and": (yes_and, "sum_up"),
}
"""Programs, each with the predictor that its answer comes from."""


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    """The packaged model, loaded once."""
    loaded = Embedder()
    loaded.warm()
    return loaded


def tune(
    program: Any, how: str, server: LoopbackServer, trainset: Sequence[Task], judge: Any = None, **settings: Any
) -> PromptsTuned:
    given = {"valset": VAL[:1], "groups": 2, "max_metric_calls": 8, "demos": 1, "candidates": 3, **settings}
    valset = given.pop("valset")
    with dspy.context(lm=server.lm(num_retries=0, cache=False)):
        return asyncio.run(tune_prompts(program, how, trainset, valset, rate=judge or Judge(), **given))


def prompts_of(program: Any) -> dict[str, Any]:
    return {name: (p.signature.instructions, p.demos) for name, p in program.named_predictors()}


def sent_by(program: Any, task: str) -> list[str]:
    """What a program sends to a model whose answers depend on the prompt alone."""
    with LoopbackServer(seed=5) as server, dspy.context(lm=server.lm(num_retries=0, cache=False)):
        program(**{program.inputs[0]: task}, **({"person": "A keeper."} if "person" in program.inputs else {}))
        return sorted(json.dumps(request.messages) for request in server.requests)


# ---------------------------------------------------------------- all optimizers on all programs


@pytest.mark.parametrize("alone", [False, True], ids=["whole", "alone"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("how", ["gepa", "mipro", "bootstrap"])
def test_each_optimizer_makes_each_program_better(
    how: str, name: str, alone: bool, embedder: Embedder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, answering = PROGRAMS[name]
    program, level = make(embedder), optuna.logging.get_verbosity()
    program.temperature.value = 0.7
    before, asked = prompts_of(program), dict(dspy.settings.config)
    script, judge = Script(), Judge()
    with LoopbackServer(reply=script) as server:
        trainset = (TRAIN if how == "gepa" else EASY)[:1]
        only = answering if alone else None
        calls = 4 if how == "gepa" else 5  # enough for one new program, or three trials
        found = tune(program, how, server, trainset, judge, only=only, max_metric_calls=calls)
    assert found.reason == "complete"
    assert found.improved
    assert found.score_before is not None
    assert found.score_after is not None
    assert found.score_before < 0.2 < 0.6 < found.score_after
    assert found.program is not program
    assert type(found.program) is type(program)
    after = prompts_of(found.program)
    changed = {predictor for predictor in after if after[predictor] != before[predictor]}
    assert changed
    if alone:
        assert changed == {answering}
        assert found.details["tuned"] == [answering]
    if how == "gepa":
        assert all(MAGIC in after[predictor][0] for predictor in changed)
        assert not any(demos for _, demos in after.values())
    if how == "bootstrap":
        assert all(after[p][0] == before[p][0] and len(after[p][1]) == 1 for p in changed)
    assert "play_person" not in changed
    assert prompts_of(program) == before
    assert program.temperature.value == found.program.temperature.value == 0.7
    best = max(found.candidates, key=lambda candidate: candidate.score)
    assert found.score_after == best.score
    assert found.candidates[0].score == found.score_before
    assert best.objectives["quality"] == pytest.approx(7 / 9)
    assert best.score == pytest.approx((best.objectives["quality"] + best.objectives["diversity"]) / 2)
    assert len(judge.rated) == found.sessions / 2
    # nothing is left behind
    output = capsys.readouterr()
    assert output.out == ""
    assert "Bootstrapp" not in output.err
    assert "%|" not in output.err
    assert optuna.logging.get_verbosity() == level
    assert dict(dspy.settings.config) == asked
    # saved, loaded, and the same prompts sent
    found.program.save(tmp_path)
    loaded = salon.load(tmp_path)
    sent = sent_by(found.program, "Find a use for fog")
    assert sent_by(loaded, "Find a use for fog") == sent
    assert sent_by(program, "Find a use for fog") != sent
    told = [instructions for instructions, _ in after.values() if MAGIC in instructions]
    assert all(any(MAGIC in one for one in sent) for _ in told)


# ---------------------------------------------------------------- traces and threads


@pytest.mark.parametrize("inside", [False, True], ids=["thread", "running loop"])
def test_calls_of_a_session_are_in_the_trace(inside: bool, embedder: Embedder, loopback: LoopbackServer) -> None:
    program, trace = debate(embedder), []

    async def within() -> None:
        program(task="Use a bell")

    with dspy.context(lm=loopback.lm(num_retries=0), trace=trace):
        asyncio.run(within()) if inside else program(task="Use a bell")
    names = {id(predictor): name for name, predictor in program.named_predictors()}
    assert Counter(names[id(predictor)] for predictor, _, _ in trace) == {"draft": 2, "revise": 2, "choose": 1}
    assert all({*inputs} == {*p.signature.input_fields} for p, inputs, _ in trace)


def test_dspys_own_bootstrap_finds_demos_in_a_plain_program(embedder: Embedder, loopback: LoopbackServer) -> None:
    with dspy.context(lm=loopback.lm(num_retries=0)):
        optimizer = dspy.BootstrapFewShot(metric=lambda *_: True, max_bootstrapped_demos=1, max_labeled_demos=0)
        student = optimizer.compile(debate(embedder), trainset=[example_of(TRAIN[0])])
    assert [len(predictor.demos) for predictor in student.predictors()] == [1, 1, 1]


def groups_of(judge: Judge, **settings: Any) -> Groups:
    given: dict[str, Any] = {
        "rate": judge, "aim": Aim(), "size": 2, "seed": 0, "limit": asyncio.Semaphore(8), "most": None, "out": None,
        "purse": Account(Budget()), "context": copy_context(), "done": lambda *_: None, **settings,
    }  # fmt: skip
    return Groups(**given)


def test_a_slow_session_that_dspy_submits_again_is_held_once(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, delay = Counter[str](), 1.6
    execute = parallelizer.ParallelExecutor.__init__

    def impatient(self: Any, *args: Any, **kwargs: Any) -> None:
        execute(self, *args, **{**kwargs, "timeout": 0.3})

    monkeypatch.setattr(parallelizer.ParallelExecutor, "__init__", impatient)
    forward = GroupModule.forward

    def counted(self: Any, task: str) -> dspy.Prediction:
        started[task] += 1
        return forward(self, task)

    monkeypatch.setattr(GroupModule, "forward", counted)
    program, judge = debate(embedder, agents=1, rounds=0), Judge()

    async def run() -> Any:
        groups = groups_of(judge)
        module = GroupModule(program, groups, {task.text: task for task in VAL}, ["draft", "choose"], 600)
        evaluate = dspy.Evaluate(
            devset=[example_of(task) for task in VAL], metric=scalar_metric(0.5), num_threads=4, max_errors=99
        )
        result = await asyncio.to_thread(evaluate, module)
        await groups.close()
        return result

    with LoopbackServer(reply=Script(), delay=delay) as server, dspy.context(lm=server.lm(cache=False)):
        result = asyncio.run(run())
    assert max(started.values()) > 1, "DSPy did not submit anything again: the test shows nothing"
    sent = Counter(request.text for request in server.requests)
    assert len(sent) == 4  # a draft and a choice for each task
    assert set(sent.values()) == {2}  # once for each of two sessions
    assert [score for *_, score in result.results] == pytest.approx([1 / 9, 1 / 9])
    assert len(judge.rated) == 2


def test_the_module_gives_answers_usage_and_failures(embedder: Embedder) -> None:
    def reply(request: ChatRequest) -> Any:
        broken = VAL[1].text in request.text and "choice" not in request.fields
        return Fault(status=500) if broken else default_reply(request)

    async def run() -> tuple[Any, Any]:
        groups = groups_of(Judge())
        module = GroupModule(
            debate(embedder, agents=2, rounds=0), groups, {task.text: task for task in VAL}, ["draft"], 600
        )
        assert [name for name, _ in module.named_predictors()] == ["draft"]
        copied = module.deepcopy()
        assert copied.predictors()[0] is not module.predictors()[0]
        both = [await asyncio.to_thread(copied, task=task.text) for task in VAL]
        await groups.close()
        return both[0], both[1]

    with LoopbackServer(reply=reply) as server, dspy.context(lm=server.lm(num_retries=0)):
        good, bad = asyncio.run(run())
    assert len(good.answers) == 2
    assert good.failures == {}
    assert good.usage.calls == 6
    assert bad.answers == []
    assert "no agent" in bad.failures[1] or "0 of 2" in bad.failures[1]
    assert scalar_metric(0.0)(None, bad) == 0.0
    assert bad.group.score.quality == 0.0


# ---------------------------------------------------------------- what is kept


def calls_on_disk(folder: Path) -> int:
    logs = [*folder.rglob("session.jsonl"), *folder.rglob("calls.jsonl")]
    records = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    return sum(record["calls"] for record in records if record["kind"] in ("call", "past"))


@pytest.mark.parametrize("how", ["gepa", "mipro", "bootstrap"])
def test_a_tuning_that_is_run_again_asks_nothing(how: str, embedder: Embedder, tmp_path: Path) -> None:
    trainset = (TRAIN if how == "gepa" else EASY)[:1]
    with LoopbackServer(reply=Script(), model="one") as server:
        first = tune(debate(embedder), how, server, trainset, out=tmp_path)
        count = server.count
        assert calls_on_disk(tmp_path) == count
        again = tune(debate(embedder), how, server, trainset, out=tmp_path)
        assert server.count == count
    assert prompts_of(again.program) == prompts_of(first.program)
    assert [c.score for c in again.candidates] == [c.score for c in first.candidates]
    assert [c.by_task for c in again.candidates] == [c.by_task for c in first.candidates]
    assert again.spent.calls == first.spent.calls == count
    assert (tmp_path / "optimizer.log").read_text()


@pytest.mark.parametrize("at", [3, 26, 41])
def test_a_model_that_dies_ends_it_and_what_was_made_is_kept(at: int, embedder: Embedder, tmp_path: Path) -> None:
    """One call at a time, so that none is in flight when the key is refused."""
    script, one = Script(fails_after=at), asyncio.Semaphore(1)
    with LoopbackServer(reply=script, model="one") as server:
        with pytest.raises(CallFailure, match=r"The model openai/one cannot be used: .*no such key"):
            tune(debate(embedder), "gepa", server, TRAIN[:1], out=tmp_path, limit=one)
        assert server.count <= at + 1
        script.fails_after = None
        found = tune(debate(embedder), "gepa", server, TRAIN[:1], out=tmp_path, limit=asyncio.Semaphore(1))
        assert found.improved
        assert calls_on_disk(tmp_path) == server.count - 1
        assert found.spent.calls == server.count - 1


def test_a_reflecting_model_that_dies_ends_it(embedder: Embedder) -> None:
    with LoopbackServer(reply=Script()) as server, LoopbackServer(reply=Script(fails_after=0), model="two") as other:
        dead = other.lm(num_retries=0)
        with pytest.raises(CallFailure, match="The model openai/two cannot be used"):
            tune(debate(embedder), "gepa", server, TRAIN[:1], reflection_lm=dead)
        assert other.count == 1


def test_lms_stay_where_they_are(embedder: Embedder) -> None:
    with LoopbackServer(reply=Script()) as server, LoopbackServer(reply=Script()) as other:
        judge, own = other.lm(num_retries=0), other.lm(num_retries=0)
        program = debate(embedder, lms={"judge": judge})
        program.revise.lm = own
        with LoopbackServer(reply=Script()) as third:
            reflecting = third.lm(num_retries=0)
            found = tune(program, "gepa", server, TRAIN[:1], reflection_lm=reflecting)
            assert third.count == len(third.requests) > 0
        asked = {name for request in other.requests for name in request.fields}
    assert found.program.lms == {"judge": judge}
    assert found.program.revise.lm is own
    assert asked == {"critique", "answer", "reason", "choice"}
    assert not any("choice" in request.fields or "critique" in request.fields for request in server.requests)


# ---------------------------------------------------------------- budgets


def test_a_budget_of_calls_is_kept_and_the_best_so_far_returned(embedder: Embedder) -> None:
    told: list[str] = []
    with LoopbackServer(reply=Script()) as server:
        whole = tune(debate(embedder), "gepa", server, TRAIN[:1])
        first = server.count
        purse = Account(Budget(calls=first - 5))
        found = tune(debate(embedder), "gepa", server, TRAIN[:1], purse=purse, tell=told.append)
        assert server.count - first <= first - 5
    assert "calls is used up" in found.reason
    assert any("The best so far is kept." in line for line in told)
    assert found.score_before == pytest.approx(whole.score_before)
    assert found.score_after is not None
    assert found.score_after >= found.score_before  # type: ignore[operator]


def test_a_budget_that_ends_at_once_leaves_the_untuned_program(embedder: Embedder) -> None:
    program = debate(embedder)
    with LoopbackServer(reply=Script()) as server:
        found = tune(program, "bootstrap", server, EASY[:1], purse=Account(Budget(calls=3)))
        assert server.count <= 3
    assert found.score_before is None
    assert found.score_after is None
    assert found.candidates == ()
    assert not found.improved
    assert prompts_of(found.program) == prompts_of(program)


def test_sessions_can_be_limited(embedder: Embedder) -> None:
    with LoopbackServer(reply=Script()) as server:
        found = tune(debate(embedder), "gepa", server, TRAIN[:1], max_sessions=5)
    assert found.sessions == 4
    assert "4 of 5 sessions were held, and a task takes 2" in found.reason
    assert found.score_after == found.score_before


# ---------------------------------------------------------------- hostile


@pytest.mark.parametrize(
    "said",
    ["", "None", "[[ ## completed ## ]] <|im_end|> {{{", "la " * 9000, Fault(status=500), Fault.malformed()],
    ids=["empty", "none", "markers", "endless", "error", "no json"],
)
def test_nonsense_from_the_reflecting_model_changes_nothing_for_the_worse(said: Any, embedder: Embedder) -> None:
    program = debate(embedder, agents=1, rounds=0)
    with LoopbackServer(reply=Script(reflects=said)) as server:
        found = tune(program, "gepa", server, TRAIN[:1], only="draft")
    assert found.reason == "complete"
    assert not found.improved
    assert found.score_after == found.score_before
    assert prompts_of(found.program) == prompts_of(program)
    for request in server.requests:
        assert "[[ ## completed" not in request.text
        assert len(request.text) < 20_000


def test_a_program_without_answers_is_told(embedder: Embedder) -> None:
    with LoopbackServer(reply=lambda _: Fault(status=500, message="out of order")) as server:
        with pytest.raises(RunFailure, match="No session of the program has an answer"):
            tune(debate(embedder), "gepa", server, TRAIN[:1])


def test_training_sessions_that_all_fail_leave_the_untuned_program(embedder: Embedder) -> None:
    script = Script()

    def reply(request: ChatRequest) -> Any:
        return Fault(status=500) if TRAIN[0].text in request.text else script(request)

    program = debate(embedder)
    for how in ("gepa", "bootstrap"):
        with LoopbackServer(reply=reply) as server:
            found = tune(program, how, server, TRAIN[:1])
        assert not found.improved
        assert prompts_of(found.program) == prompts_of(program)


def test_answers_that_nobody_could_rate_have_no_score(embedder: Embedder) -> None:
    async def silent(task: str, answers: Sequence[str]) -> list[Any]:
        return [[SimpleNamespace(value=None, reason="", error="no answer")] for _ in answers]

    with LoopbackServer(reply=Script()) as server:
        found = tune(debate(embedder), "bootstrap", server, EASY[:1], silent)
    assert found.score_before is None
    assert found.candidates == ()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"how": "magic"}, "how='magic' is not known: it is one of gepa, mipro, bootstrap"),
        ({"trainset": []}, "The trainset is empty"),
        ({"valset": []}, "The valset is empty"),
        ({"valset": [Task("other", " find a use for CORKS ", "corks")]}, "Training and validation tasks overlap"),
        ({"valset": [VAL[0], VAL[0]]}, "A task is there twice"),
        ({"only": "thesis"}, "There is no predictor 'thesis': Debate has draft, revise, choose"),
        ({"groups": 1}, "groups=1 leaves no diversity to measure"),
        ({"objectives": {"beauty": 1}}, "is not possible: quality and one of vendi"),
        ({"objectives": {"quality": -1}}, "weights are numbers of 0 or more"),
        ({"max_metric_calls": 3}, "max_metric_calls=3 is not possible: it must be a whole number, 4 or more"),
        ({"demos": 0}, "demos=0 is not possible"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_spent(
    settings: dict[str, Any], told: str, embedder: Embedder, loopback: LoopbackServer
) -> None:
    given = {"how": "gepa", "trainset": TRAIN[:1], **settings}
    with pytest.raises(UserError, match=told.replace("[", r"\[")):
        tune(debate(embedder), given.pop("how"), loopback, given.pop("trainset"), **given)
    assert loopback.count == 0


def test_a_step_that_is_never_asked_cannot_be_tuned(embedder: Embedder, loopback: LoopbackServer) -> None:
    with pytest.raises(UserError, match="Tuning 'revise' would change nothing: its sessions ask draft, choose"):
        tune(debate(embedder, rounds=0), "gepa", loopback, TRAIN[:1], only="revise")


def test_it_can_be_cancelled(embedder: Embedder) -> None:
    async def run() -> None:
        task = asyncio.ensure_future(
            tune_prompts(debate(embedder), "gepa", TRAIN[:1], VAL[:1], rate=Judge(), groups=2, max_metric_calls=8)
        )
        while server.count < 24:
            await asyncio.sleep(0.01)
        task.cancel()
        await task

    with LoopbackServer(reply=Script(), delay=0.05) as server, dspy.context(lm=server.lm(num_retries=0)):
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(run())


def test_a_rating_function_that_miscounts_is_told(embedder: Embedder) -> None:
    async def short(task: str, answers: Sequence[str]) -> list[Any]:
        return []

    with LoopbackServer(reply=Script()) as server:
        with pytest.raises(UserError, match="it gave 0 ratings for 2 answers"):
            tune(debate(embedder), "gepa", server, TRAIN[:1], short)


def test_a_budget_that_the_judge_reports_ends_it(embedder: Embedder) -> None:
    judge = Judge()

    async def poor(task: str, answers: Sequence[str]) -> list[Any]:
        if judge.rated:
            raise BudgetSpent("The judge cannot be paid")
        return await judge(task, answers)

    with LoopbackServer(reply=Script()) as server:
        found = tune(debate(embedder), "gepa", server, TRAIN[:1], poor)
    assert found.reason == "The judge cannot be paid"
    assert found.score_before is not None
