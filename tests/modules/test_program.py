"""The face of a session program: calling, streaming, saving, loading and copying it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from dspy.dsp.utils.settings import settings as dspy_settings
from salon.modules import Embedder, Tunable
from salon.modules import log as log_module
from salon.modules.archive import PROGRAMS, program_of
from salon.modules.events import Distinctness
from salon.modules.log import LOG_NAME, read_log
from salon.modules.program import PROGRAM_NAME, run_sync

import salon
from salon import Budget, Roundtable, Session, load, replay, resume
from salon.errors import LMSetupError, OutputError, UserError
from salon.testing import LoopbackServer

TOPIC = "Bicycles for winter"
Make = Callable[..., Roundtable]


@pytest.fixture
def lm(loopback: LoopbackServer) -> Any:
    return loopback.lm(cache=False)


def prompts(server: LoopbackServer, program: Any, lm: Any) -> list[str]:
    """The prompts of one session, sorted, since those of a cycle are sent at once."""
    server.reset()
    with dspy.context(lm=lm):
        program(topic=TOPIC, seed=5)
    return sorted(request.text for request in server.requests)


# Calling


def test_a_call_returns_a_prediction(roundtable: Make, lm: Any) -> None:
    with dspy.context(lm=lm):
        result = roundtable()(topic=TOPIC, seed=1)
    assert isinstance(result, dspy.Prediction)
    assert isinstance(result.session, Session)
    assert result.ideas == result.session.ideas
    assert result.answer == f"{result.ideas[0].title}: {result.ideas[0].description}"
    assert [idea.rank for idea in result.ideas] == list(range(1, len(result.ideas) + 1))


def test_sync_async_and_a_running_loop_give_the_same(roundtable: Make, lm: Any) -> None:
    program = roundtable()

    async def inside() -> tuple[Any, Any]:
        return program(topic=TOPIC, seed=1), await program.acall(topic=TOPIC, seed=1)

    with dspy.context(lm=lm):
        plain = program(topic=TOPIC, seed=1)
        sync, awaited = asyncio.run(inside())
        held = asyncio.run(program.hold(topic=TOPIC, seed=1))
    assert plain.session.events == sync.session.events == awaited.session.events == held.events


def test_an_error_inside_a_running_loop_is_the_same_error(roundtable: Make) -> None:
    async def inside() -> None:
        with pytest.raises(LMSetupError):
            roundtable()(topic=TOPIC)

    asyncio.run(inside())


def test_run_sync_keeps_the_context_and_uses_a_thread_only_inside_a_loop() -> None:
    async def where() -> tuple[str, Any]:
        return threading.current_thread().name, dspy_settings.adapter

    async def inside() -> tuple[str, Any]:
        return run_sync(where())

    adapter = dspy.JSONAdapter()
    with dspy.context(adapter=adapter):
        assert run_sync(where()) == ("MainThread", adapter)
        assert asyncio.run(inside()) == ("salon", adapter)


def test_sessions_run_together_under_one_limit(roundtable: Make) -> None:
    async def both() -> list[Session]:
        limit = asyncio.Semaphore(2)
        program = roundtable()
        return list(await asyncio.gather(*(program.hold(topic=TOPIC, seed=seed, limit=limit) for seed in range(4))))

    with LoopbackServer(delay=0.002) as server, dspy.context(lm=server.lm(cache=False)):
        together = asyncio.run(both())
        assert server.max_in_flight == 2
        alone = [roundtable()(topic=TOPIC, seed=seed).session for seed in range(4)]
    assert [s.events for s in together] == [s.events for s in alone]


def test_evaluate_can_run_it_in_threads(roundtable: Make, lm: Any) -> None:
    cases = [dspy.Example(topic=f"{TOPIC} {n}", seed=n).with_inputs("topic", "seed") for n in range(3)]

    def metric(_: Any, prediction: Any, __: Any = None) -> float:
        return float(len(prediction.ideas))

    with dspy.context(lm=lm):
        evaluate = dspy.Evaluate(devset=cases, metric=metric, num_threads=3, display_progress=False)
        result = evaluate(roundtable())
    assert all(prediction.session.status == "complete" for _, prediction, _ in result.results)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "There is no topic"),
        ({"topic": " \n "}, "There is no topic"),
        ({"topic": TOPIC, "tpoic": "x"}, "takes no tpoic"),
        ({"topic": TOPIC, "seed": 1.5}, "The seed 1.5 cannot be used"),
        ({"topic": TOPIC, "seed": True}, "The seed True cannot be used"),
        ({"topic": "word " * 20_000}, "The topic is too long"),
    ],
)
def test_mistakes_are_said_before_anything_is_spent(
    roundtable: Make, loopback: LoopbackServer, lm: Any, tmp_path: Path, arguments: dict[str, Any], why: str
) -> None:
    with dspy.context(lm=lm), pytest.raises(UserError, match=why):
        roundtable()(out=tmp_path / "out", **arguments)
    assert loopback.count == 0
    assert not (tmp_path / "out").exists()


def test_at_least_one_call_must_be_in_flight(roundtable: Make) -> None:
    with pytest.raises(UserError, match="max_concurrency=0 is not possible"):
        roundtable(max_concurrency=0)


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_spent(
    roundtable: Make, loopback: LoopbackServer, lm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "session.tmp").symlink_to("/dev/full")
    with dspy.context(lm=lm):
        for out in (tmp_path / "file", tmp_path / "file" / "deep", tmp_path / "full"):
            with pytest.raises(OutputError, match="cannot be written"):
                roundtable()(topic=TOPIC, out=out)
        roundtable(turns=0)(topic=TOPIC, out=tmp_path / "good", budget=Budget(calls=3))
        loopback.reset()
        room = SimpleNamespace(total=10**9, free=1000)
        monkeypatch.setattr(log_module.shutil, "disk_usage", lambda _: room)
        with pytest.raises(OutputError, match="the disk has 0 KiB left"):
            resume(tmp_path / "good")
    assert loopback.count == 0


def test_a_session_leaves_its_log_and_three_files(roundtable: Make, lm: Any, tmp_path: Path) -> None:
    with dspy.context(lm=lm):
        session = roundtable()(topic=TOPIC, seed=2, out=tmp_path / "a" / "b").session
    assert session.folder == tmp_path / "a" / "b"
    assert {p.name for p in session.folder.iterdir()} == {LOG_NAME, "session.json", "ideas.md", "ideas.csv"}
    document = json.loads((session.folder / "session.json").read_text(encoding="utf-8"))
    assert document["status"] == session.status == "complete"
    assert [idea["title"] for idea in document["ideas"]] == [idea.title for idea in session.ideas]


def test_files_missing_from_a_finished_session_are_made_by_a_resume(
    roundtable: Make, loopback: LoopbackServer, lm: Any, tmp_path: Path
) -> None:
    with dspy.context(lm=lm):
        roundtable()(topic=TOPIC, out=tmp_path)
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    (tmp_path / "ideas.md").unlink()
    loopback.reset()
    replay(tmp_path)
    assert not (tmp_path / "ideas.md").exists()
    resume(tmp_path)
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before
    assert loopback.count == 0


def test_with_real_embeddings_a_session_can_be_interrupted_and_replayed(
    loopback: LoopbackServer, lm: Any, tmp_path: Path
) -> None:
    people = [
        {"name": "Ada", "sketch": "Ada repairs bicycles in a small workshop."},
        {"name": "Bo", "sketch": "Bo mends bicycles in a little workshop."},
        {"name": "Cy", "sketch": "Cy studies the songs of whales."},
    ]
    with dspy.context(lm=lm):
        whole = Roundtable(people, turns=1, ideas=1)(topic=TOPIC, seed=2, out=tmp_path).session
        [alike] = [event for event in whole.events if isinstance(event, Distinctness)]
        assert alike.matrix[0][1] > alike.matrix[0][2]
        path = tmp_path / LOG_NAME
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[: len(lines) // 2]))
        loopback.reset()
        resumed = resume(tmp_path)
        assert 0 < loopback.count < whole.usage.calls
    assert resumed.events == whole.events
    assert replay(tmp_path).events == whole.events


# Saving, loading, copying


def tuned(program: Roundtable) -> Roundtable:
    program.threshold.value = 8.5
    program.memory.value = 1
    program.temperature.value = 0.7
    program.think.signature = program.think.signature.with_instructions("Think of the cold.")
    program.think.demos = [
        dspy.Example(topic="Hats", thought="Wool.", cites=["C1"], eagerness=4, wants="pass"),
        {"topic": "Gloves", "thought": "Leather.", "cites": [], "eagerness": 2, "wants": "comment"},
    ]
    return program


def test_a_saved_program_comes_back_with_its_prompts_and_numbers(
    roundtable: Make, loopback: LoopbackServer, lm: Any, tmp_path: Path
) -> None:
    program = tuned(roundtable(votes=3, facilitator=False, max_concurrency=2))
    program.save(tmp_path / "compiled" / "roundtable")
    loaded = load(tmp_path / "compiled" / "roundtable")
    assert isinstance(loaded, Roundtable)
    assert loaded.settings() == program.settings()
    assert loaded.dump_state() == program.dump_state()
    assert float(loaded.threshold) == 8.5
    sent = prompts(loopback, program, lm)
    assert any("Think of the cold." in text and "Leather." in text for text in sent)
    assert prompts(loopback, loaded, lm) == sent
    assert prompts(loopback, roundtable(votes=3, facilitator=False), lm) != sent
    assert loopback.requests[0].body["temperature"] == 1.0
    loopback.reset()
    with dspy.context(lm=lm):
        loaded(topic=TOPIC)
    assert {request.body["temperature"] for request in loopback.requests} == {0.7}
    loaded.save(tmp_path / "again")
    texts = [(tmp_path / n / PROGRAM_NAME).read_text() for n in ("compiled/roundtable", "again")]
    assert texts[0] == texts[1]


def test_an_existing_program_can_take_what_was_saved(roundtable: Make, lm: Any, tmp_path: Path) -> None:
    tuned(roundtable()).save(tmp_path)
    program = roundtable()
    program.think.lm = lm
    program.load(tmp_path)
    assert program.dump_state() == tuned(roundtable()).dump_state()
    assert program.think.lm is lm
    with pytest.raises(OutputError, match="There is no program in"):
        program.load(tmp_path / "nowhere")


def test_saving_leaves_lms_out_whatever_they_are(roundtable: Make, lm: Any, tmp_path: Path) -> None:
    class Engine:
        def complete(self, request: Any) -> Any:
            raise NotImplementedError

    plain = roundtable()
    program = roundtable(lms={"Ada": lm})
    program.set_lm(dspy.LM("mine/own", engine=Engine()))
    program.save(tmp_path)
    text = (tmp_path / PROGRAM_NAME).read_text(encoding="utf-8")
    assert "mine/own" not in text
    assert "loopback" not in text
    assert program.dump_state() == plain.dump_state()
    assert program.think.lm is not None


def test_copies_are_independent_and_share_the_embedding_model(roundtable: Make, lm: Any) -> None:
    program = tuned(roundtable(lms={"Ada": lm}))
    copied = program.deepcopy()
    assert copied.dump_state() == program.dump_state()
    assert copied.embedder is program.embedder
    copied.threshold.value = 2
    copied.think.demos.clear()
    copied.lms.clear()
    assert float(program.threshold) == 8.5
    assert len(program.think.demos) == 2
    assert program.lms == {"Ada": lm}


def test_a_copy_reset_for_prompt_tuning_keeps_its_numbers(roundtable: Make) -> None:
    copied = tuned(roundtable()).reset_copy()
    assert copied.think.demos == []
    assert float(copied.threshold) == 8.5


def test_other_settings_keep_prompts_numbers_lms_and_the_embedder(roundtable: Make, lm: Any) -> None:
    program = tuned(roundtable(embedder=Embedder(), lms={"Ada": lm}))
    program.think.lm = lm
    other = program.changed(votes=4, max_concurrency=1)
    assert (int(other.votes), other.max_concurrency) == (4, 1)
    assert float(other.threshold) == 8.5
    assert len(other.think.demos) == 2
    assert other.embedder is program.embedder
    assert other.think.lm is lm
    assert other.lms == program.lms
    assert int(program.votes) == 2


def test_every_number_that_shapes_a_session_is_a_parameter(roundtable: Make) -> None:
    names = {name for name, p in roundtable(minutes=1).named_parameters() if isinstance(p, Tunable)}
    assert names >= {
        "threshold",
        "fairness",
        "duplicate",
        "votes",
        "ideas",
        "turns",
        "minutes",
        "temperature",
    }
    assert set(dict(roundtable().named_predictors())) == {
        "cast", "sketch", "think", "speak", "propose", "vote", "facilitate", "summarise",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "Squaretable"}, "There is no program 'Squaretable': known are .*Roundtable"),
        ({"settings": {"seats": 4}}, "does not fit this salon: its settings differ in .*personas, seats"),
        ({"settings": None}, "does not fit this salon"),
        ({"state": {}}, "differs in .*threshold"),
    ],
)
def test_a_program_that_does_not_fit_is_refused(
    roundtable: Make, tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    roundtable().save(tmp_path)
    path = tmp_path / PROGRAM_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UserError, match=why) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_saved_number_out_of_range_is_refused(roundtable: Make) -> None:
    content = roundtable().described()
    content["state"]["threshold"]["value"] = 11
    with pytest.raises(UserError, match="11 is not allowed here"):
        program_of(content)


def test_what_is_no_saved_program_is_refused(roundtable: Make, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="There is no program in"):
        load(tmp_path)
    (tmp_path / PROGRAM_NAME).write_text("{")
    with pytest.raises(OutputError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / PROGRAM_NAME).write_text("[]")
    with pytest.raises(UserError, match="There is no program None"):
        load(tmp_path)
    with pytest.raises(OutputError, match="cannot be written"):
        roundtable().save(tmp_path / PROGRAM_NAME)


def test_a_session_remembers_the_tuned_program_it_was_held_with(
    roundtable: Make, loopback: LoopbackServer, lm: Any, tmp_path: Path
) -> None:
    with dspy.context(lm=lm):
        whole = tuned(roundtable())(topic=TOPIC, seed=5, out=tmp_path).session
        sent = sorted(request.text for request in loopback.requests)
        path = tmp_path / LOG_NAME
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
        loopback.reset()
        resumed = resume(tmp_path)
    assert sorted(request.text for request in loopback.requests) == sent
    assert resumed.events == whole.events
    assert {request.body["temperature"] for request in loopback.requests} == {0.7}


def test_a_resume_can_use_other_lms_and_another_concurrency(
    roundtable: Make, loopback: LoopbackServer, lm: Any, tmp_path: Path
) -> None:
    with dspy.context(lm=lm):
        roundtable()(topic=TOPIC, out=tmp_path)
    path = tmp_path / LOG_NAME
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    with LoopbackServer(delay=0.002) as other:
        lms = {"participant": other.lm(cache=False), "facilitator": other.lm(cache=False)}
        session = resume(tmp_path, lms=lms, max_concurrency=1)
        assert other.count == session.usage.calls
        assert other.max_in_flight == 1
    assert {call["model"] for call in read_log(tmp_path).calls.values()} == {f"openai/{other.model}"}


def test_programs_are_found_by_their_class_names() -> None:
    assert all(name == kind.__name__ for name, kind in PROGRAMS.items())
    assert PROGRAMS["Roundtable"] is salon.Roundtable
