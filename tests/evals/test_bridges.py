"""Our measures in dspy.Evaluate, our programs and judges in inspect_ai; and what importing them costs."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import dspy
import pytest
import salon.evals
from salon.data.benchmarks import load_benchmark
from salon.data.rubrics import RUBRICS
from salon.evals import diversity_metric, inspect_scorer, inspect_solver, quality_metric
from salon.evals.judges import RubricJudge
from salon.modules import Debate, Direct, sessions, text_diversity

from salon.errors import RunFailure, UserError
from salon.testing import ChatRequest, Fault, LoopbackServer

pytestmark = pytest.mark.usefixtures("quick_embeddings")


def rates(request: ChatRequest) -> bool:
    return any(name.startswith("originality") for name in request.fields)


def judging(*ratings: int) -> Any:
    """Return a reply that rates in turn, the same in every dimension."""
    turns = iter(ratings)

    def reply(request: ChatRequest) -> Any:
        if not rates(request):
            return None
        rating = next(turns)
        return {name: "because" if name == "reason" else rating for name in request.fields}

    return reply


# ---------------------------------------------------------------- dspy.Evaluate


def test_quality_is_the_judges_mean_on_a_scale_of_0_to_1_in_a_real_evaluate(loopback: LoopbackServer) -> None:
    with LoopbackServer(reply=judging(1, 10, 4)) as judge, dspy.context(lm=loopback.lm()):
        metric = quality_metric(judge.lm(cache=False), "liveideabench")
        devset = load_benchmark("topics", limit=3).examples()
        result = dspy.Evaluate(devset=devset, metric=metric, num_threads=1)(Debate(agents=2, rounds=1))
        assert [score for *_, score in result.results] == pytest.approx([0.0, 1.0, 1 / 3])
        assert result.score == pytest.approx(100 * (0 + 1 + 1 / 3) / 3, abs=0.01)
        assert all(prediction.answer for _, prediction, _ in result.results)
        assert (judge.count, metric.spent.calls, metric.failures) == (3, 3, [])
        assert metric.spent.prompt_tokens > 0


def test_it_works_in_many_threads_and_counts_every_call(loopback: LoopbackServer) -> None:
    with LoopbackServer(delay=0.02) as judge, dspy.context(lm=loopback.lm(cache=False)):
        metric = quality_metric(judge.lm(cache=False))
        devset = load_benchmark("topics", limit=12).examples()
        result = dspy.Evaluate(devset=devset, metric=metric, num_threads=6)(Direct())
        assert all(0 <= score <= 1 for *_, score in result.results)
        assert metric.spent.calls == judge.count == 12


def test_a_rating_that_fails_is_no_number_of_ours(loopback: LoopbackServer) -> None:
    def faults(request: ChatRequest) -> Fault | None:
        return Fault(400) if request.number == 2 else None

    with LoopbackServer(faults=faults) as judge, dspy.context(lm=loopback.lm()):
        metric = quality_metric(judge.lm(cache=False, num_retries=0))
        devset = load_benchmark("topics", limit=3).examples()
        result = dspy.Evaluate(devset=devset, metric=metric, num_threads=1, failure_score=-1.0)(Direct())
        assert [score == -1.0 for *_, score in result.results] == [False, True, False]
        assert len(metric.failures) == 1
        assert "The answer has no rating" in metric.failures[0]
        with pytest.raises(RunFailure, match="no answer to judge"):
            metric(devset[0], dspy.Prediction(answer=" "))


def test_the_task_and_the_answer_can_have_any_name(loopback: LoopbackServer) -> None:
    metric = quality_metric(loopback.lm(), task="topic", answer="idea")
    example = dspy.Example(topic="Tea", place="here").with_inputs("topic", "place")
    assert 0 <= metric(example, dspy.Prediction(idea="Brew it cold."), None, "predictor", None) <= 1
    assert "Tea" in loopback.requests[0].text
    assert "Brew it cold." in loopback.requests[0].text
    with pytest.raises(UserError, match="which is the task is not said"):
        quality_metric(loopback.lm())(example, dspy.Prediction(answer="x"))
    with pytest.raises(UserError, match="prediction has no idea"):
        metric(example, dspy.Prediction(answer="x"))
    with pytest.raises(UserError, match="cannot be rated"):
        metric(example, dspy.Prediction(idea=3))


def test_a_panel_leaves_out_the_author_of_a_session(loopback: LoopbackServer) -> None:
    with LoopbackServer() as other, dspy.context(lm=loopback.lm(cache=False)):
        panel = RubricJudge(RUBRICS["ideas"], [loopback.lm(cache=False), other.lm(cache=False)])
        metric = quality_metric(panel)
        prediction = Direct()(task="Name a tea.")
        count = loopback.count
        metric(dspy.Example(task="Name a tea.").with_inputs("task"), prediction)
        assert (loopback.count, other.count) == (count, 1)


def test_without_a_judge_it_says_so() -> None:
    with pytest.raises(UserError, match="There is no judge"):
        quality_metric()
    with pytest.raises(UserError, match="There is no judge"):
        quality_metric(False)
    with pytest.raises(UserError, match="no rubric"):
        quality_metric(dspy.LM("openai/x"), "nope")


@pytest.mark.parametrize(("measure", "low", "high"), [("vendi", 1, 3), ("distance", 0, 2), ("div_bleu", 0, 100)])
def test_diversity_of_a_set_of_sessions_in_a_real_evaluate(
    measure: Any, low: float, high: float, tmp_path: Path
) -> None:
    numbers = iter(range(100))
    debate = Direct()
    with LoopbackServer(reply=lambda _: {"answer": f"word{next(numbers)} here"}) as server:
        with dspy.context(lm=server.lm(cache=False)):
            devset = load_benchmark("topics", limit=2).examples()
            metric = diversity_metric(measure, debate.embedder)
            evaluate = dspy.Evaluate(devset=devset, metric=metric, num_threads=2)
            result = evaluate(lambda **inputs: sessions(debate, inputs, g=3))
    for _, found, score in result.results:
        value = getattr(text_diversity(found.answers, debate.embedder), measure)
        assert score == pytest.approx((value - low) / (high - low))
        assert 0 < score <= 1


def test_diversity_is_0_for_equal_answers_and_undefined_for_one() -> None:
    metric = diversity_metric()
    assert metric(None, dspy.Prediction(answers=["a", "a", "a"])) == pytest.approx(0, abs=1e-6)
    for few in (["a"], []):
        with pytest.raises(RunFailure, match="no diversity"):
            metric(None, dspy.Prediction(answers=few))
    assert len(metric.failures) == 2
    for wrong in ("text", [1, 2]):
        with pytest.raises(UserError, match="list of texts"):
            metric(None, dspy.Prediction(answers=wrong))
    with pytest.raises(UserError, match="no answers"):
        metric(None, dspy.Prediction(answer="a"))
    with pytest.raises(UserError, match="There is no measure"):
        diversity_metric("beauty")  # type: ignore[arg-type]


# ---------------------------------------------------------------- inspect_ai


def held(solver: Any, scorer: Any, out: Path, **settings: Any) -> Any:
    """Evaluate three samples with inspect's own mock model."""
    inspect_ai = pytest.importorskip("inspect_ai", reason="needs inspect-ai (pip install '.[inspect]')")
    from inspect_ai.dataset import Sample

    texts = ("Name a use for a brick.", "Name a tea.", "Name a chair.")
    samples = [Sample(input=text, target="", id=f"s/{n}") for n, text in enumerate(texts, 1)]
    task = inspect_ai.Task(dataset=samples, solver=solver, scorer=scorer, name="bricks")
    (log,) = inspect_ai.eval(
        task, model="mockllm/model", log_dir=str(out), display="none", log_level="error", **settings
    )
    return log


def test_a_debate_solves_and_a_judge_scores_in_inspect(tmp_path: Path) -> None:
    with LoopbackServer(delay=0.2) as loopback, LoopbackServer(reply=judging(*[7] * 6)) as judge:
        with dspy.context(lm=loopback.lm(cache=False)):
            solver = inspect_solver(Debate(agents=2, rounds=1), seed=3, max_concurrency=2)
        scorer = inspect_scorer(judge.lm(cache=False), "ideas")
        log = held(solver, scorer, tmp_path, epochs=2)
        assert log.status == "success", log.error
        assert loopback.count == 6 * 5
        assert loopback.max_in_flight == 2
        assert judge.count == 6
    assert log.results.scores[0].metrics["mean"].value == pytest.approx(7.0)
    assert len(log.samples) == 6
    for sample in log.samples:
        about = sample.metadata["salon"]
        assert sample.output.completion
        assert sample.messages[-1].text == sample.output.completion
        assert about["calls"] == 5
        assert sample.output.usage.output_tokens == about["completion_tokens"] > 0
        (score,) = sample.scores.values()
        assert score.explanation == "because"
        assert score.metadata["ratings"][0]["scores"]["clarity"] == 7
    assert len({sample.metadata["salon"]["seed"] for sample in log.samples}) == 6
    assert log.plan.steps[0].params["seed"] == 3


def test_a_session_without_an_answer_is_an_error_of_its_sample(tmp_path: Path) -> None:
    def faults(request: ChatRequest) -> Fault | None:
        return Fault(500) if "Name a tea" in request.text else None

    with LoopbackServer(faults=faults) as server, dspy.context(lm=server.lm(cache=False, num_retries=0)):
        log = held(inspect_solver(Direct()), inspect_scorer(server.lm(num_retries=0)), tmp_path, fail_on_error=0.9)
        errors = [sample.error for sample in log.samples]
        assert [error is None for error in errors] == [True, False, True]
        assert "direct has no answer" in errors[1].message


def test_an_answer_that_no_judge_rated_stays_unscored(loopback: LoopbackServer, tmp_path: Path) -> None:
    def faults(request: ChatRequest) -> Fault | None:
        return Fault(400) if "Name a tea" in request.text else None

    with LoopbackServer(reply=judging(8, 4), faults=faults) as judge, dspy.context(lm=loopback.lm()):
        log = held(inspect_solver(Direct()), inspect_scorer(judge.lm(cache=False, num_retries=0)), tmp_path)
        assert log.status == "success"
        scores = {sample.id: next(iter(sample.scores.values())) for sample in log.samples}
        assert math.isnan(scores["s/2"].value)
        assert "scripted failure" in scores["s/2"].explanation
        assert log.results.scores[0].metrics["mean"].value == pytest.approx(6.0)
        assert log.results.scores[0].unscored_samples == 1


def test_sessions_in_a_folder_are_not_held_again(loopback: LoopbackServer, tmp_path: Path) -> None:
    with dspy.context(lm=loopback.lm(cache=False)):
        judge = inspect_scorer(loopback.lm())
        first = held(inspect_solver(Direct(), out=tmp_path / "held"), judge, tmp_path / "a")
        count = loopback.count
        again = held(inspect_solver("direct", out=tmp_path / "held"), judge, tmp_path / "b")
    assert loopback.count == count
    completions = [[sample.output.completion for sample in log.samples] for log in (first, again)]
    assert completions[0] == completions[1]


def test_a_function_solves_too_and_several_programs_do_not(loopback: LoopbackServer, tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai")
    log = held(inspect_solver(lambda task: f"Do as told: {task}"), inspect_scorer(loopback.lm()), tmp_path)
    assert [sample.output.completion[:10] for sample in log.samples] == ["Do as told"] * 3
    with pytest.raises(UserError, match="one program"):
        inspect_solver("direct,voting")
    with pytest.raises(UserError, match="no method"):
        inspect_solver("nope")


def test_without_inspect_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    for make in (lambda: inspect_solver(Direct()), lambda: inspect_scorer(dspy.LM("openai/x"))):
        with pytest.raises(UserError, match=r"pip install salon\[inspect\]"):
            make()


# ---------------------------------------------------------------- importing


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, salon.evals; "
        "heavy = {'dspy', 'torch', 'pandas', 'ray', 'inspect_ai', 'optuna', 'scipy', 'numpy'} & set(sys.modules); "
        "assert not heavy, heavy; "
        "from salon.evals import evaluate, ray_engine, inspect_solver; "
        "heavy = {'torch', 'pandas', 'ray', 'inspect_ai', 'matplotlib'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_exported_name_is_there() -> None:
    assert salon.evals.__all__ == sorted(salon.evals.__all__, key=lambda name: (name.lower() == name, name))
    for name in salon.evals.__all__:
        assert getattr(salon.evals, name).__name__ == name
    with pytest.raises(AttributeError):
        salon.evals.nothing  # noqa: B018
