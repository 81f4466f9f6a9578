"""Saved programs: they come back as they were, in another process too; what does not fit is refused, nothing runs."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import dspy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from salon.modules.archive import PROGRAMS, program_of
from salon.modules.saving import PROGRAM_NAME, contract_of, same_prompts
from salon.signatures.fields import Citations, Rating

import salon
from salon import BASELINES, Debate, Direct, Roundtable, Tunable, UserError, YesAnd, load
from salon.testing import LoopbackServer

PEOPLE = [{"name": "Ada", "sketch": "Ada mends bicycles."}, {"name": "Bo", "sketch": "Bo nurses at night."}]
WORDS = "You are {braces} <b>bold</b> [[ ## answer ## ]] “é漢” $x$.\n\n  - one\n    - two\n\n"
CASES: dict[str, Callable[[], Any]] = {
    "Roundtable": lambda: Roundtable(personas=2, turns=1, ideas=1, votes=1),
    "given people": lambda: Roundtable(
        personas=[{**person, "extra": {"path": "../x", "æ": "{}"}} for person in PEOPLE], turns=1, ideas=1,
        citations="off", facilitator=False, self_votes=True, max_concurrency=3,
    ),
    "optional citations": lambda: Roundtable(personas=PEOPLE, minutes=0, ideas=1, citations="optional"),
    "YesAnd": lambda: YesAnd(experts=2, messages=1, max_agent_turns=1, calibrate=True),
    "YesAnd fixed": lambda: YesAnd(experts=PEOPLE, messages=1, order="fixed"),
    "Debate": lambda: Debate(agents=3, rounds=1, k=1),
    "own lenses": lambda: Debate(
        agents=2, rounds=1, lenses=["critical", "of {mine}: ../../x"], personas=["a ‘cook’"], protocol="one-by-one",
        peers="closest",
    ),
    **{name: BASELINES[name] for name in ("direct-lens", "voting", "self-refine", "verbalized-tail")},
}  # fmt: skip
SCRIPT = """
import json, sys
import dspy, salon
for job in json.load(sys.stdin):
    lms = {name: dspy.LM(**lm, api_key="loopback", cache=False) for name, lm in job["lms"].items()}
    program = salon.load(job["folder"])
    program.lms = {name: lm for name, lm in lms.items() if name != "context"}
    with dspy.context(lm=lms["context"]):
        program(**job["inputs"])
"""


def inputs_of(program: Any) -> dict[str, Any]:
    more = {"person": "A nurse who sends mail too early."} if "person" in program.inputs else {}
    return {program.inputs[0]: "A use for old keys", "seed": 5, **more}


def optimised(program: Any, server: LoopbackServer) -> Any:
    """Return a program as optimizers leave it: marked, reworded, with demos from its own traces and from people."""
    trace: list[Any] = []
    with dspy.context(lm=server.lm(cache=False), trace=trace):
        program(**inputs_of(program))
    names = {id(predictor): name for name, predictor in program.named_predictors()}
    made = program.deepcopy()
    made._compiled = True
    for name, predictor in made.named_predictors():
        own = [(inputs, found) for one, inputs, found in trace if names[id(one)] == name][:2]
        predictor.demos = [dspy.Example(augmented=True, **inputs, **dict(found.items())) for inputs, found in own]
        first, asked = (next(iter(f)) for f in (predictor.signature.input_fields, predictor.signature.output_fields))
        predictor.demos.append({first: "a part of a demo only", asked: "some {words}"})
        signature = predictor.signature.with_instructions(f"{WORDS}{predictor.signature.instructions}")
        last = list(signature.fields)[-1]
        predictor.signature = signature.with_updated_fields(last, desc="said {otherwise}", prefix="Other:")
        predictor._compiled = True
    made.temperature.value = 0.625
    return made


def bodies(servers: dict[str, LoopbackServer]) -> dict[str, list[str]]:
    found = {name: [json.dumps(r.body, sort_keys=True) for r in server.requests] for name, server in servers.items()}
    for server in servers.values():
        server.reset()
    return found


def test_loaded_in_a_fresh_process_programs_ask_exactly_what_they_asked_before(tmp_path: Path) -> None:
    jobs = []
    asked: dict[str, list[str]] = {"context": [], "participant": [], "P1": []}
    with LoopbackServer() as one, LoopbackServer() as two, LoopbackServer() as three:
        servers = dict(zip(asked, (one, two, three), strict=True))
        for name, make in CASES.items():
            program = optimised(make(), one)
            program.save(tmp_path / name)
            bodies(servers)
            program.lms = {role: servers[role].lm(cache=False) for role in ("participant", "P1")}
            with dspy.context(lm=one.lm(cache=False)):
                program(**inputs_of(program))
            for role, sent in bodies(servers).items():
                asked[role] += sent
            lms = {role: {"model": f"openai/{s.model}", "api_base": s.base_url} for role, s in servers.items()}
            jobs.append({"folder": name, "inputs": inputs_of(program), "lms": lms})
            loaded = load(tmp_path / name)
            assert loaded.described() == program.described(), name
            assert loaded.contracts() == program.contracts()
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        again = bodies(servers)
    for role, sent in asked.items():
        assert sent
        assert sorted(again[role]) == sorted(sent), role
    texts = "".join(again["participant"] + again["P1"])
    assert "a part of a demo only" in texts
    assert "{braces}" in texts
    assert '"temperature": 0.625' in texts


def test_demos_with_typed_values_write_the_same_prompts(tmp_path: Path) -> None:
    from salon.signatures.personas import Seat

    program = Roundtable(personas=2, turns=0)
    seats = [Seat(name="Ada", role="smith"), Seat(name="Bo", role="nurse")]
    program.cast.demos = [dspy.Example(topic="Tea", request="two", people=seats), {"topic": "Ice", "people": seats}]
    program.think.demos = [
        {"topic": "Tea", "thought": "Hm", "cites": Citations(["C1"]), "eagerness": 3, "wants": "pass"}
    ]
    program.save(tmp_path)
    demo = load(tmp_path).cast.demos[0]
    assert demo["people"] == [{"name": "Ada", "role": "smith"}, {"name": "Bo", "role": "nurse"}]


@given(st.text(alphabet=" \n\tab-é{", max_size=30), st.text(max_size=30), st.text(max_size=10))
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_any_words_come_back_as_they_are(instructions: str, description: str, prefix: str) -> None:
    program = Direct()
    signature = program.draft.signature.with_instructions(instructions)
    program.draft.signature = signature.with_updated_fields("answer", desc=description, prefix=prefix)
    loaded = program_of(json.loads(json.dumps(program.described())))
    assert loaded.draft.signature.instructions == program.draft.signature.instructions
    extra = loaded.draft.signature.fields["answer"].json_schema_extra
    assert (extra["desc"], extra["prefix"]) == (description, prefix)


# ---------------------------------------------------------------- what cannot be saved


class Odd:
    pass


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda p: p.draft.demos.append({"task": float("nan")}), "would not come back"),
        (lambda p: p.draft.demos.append({"task": Odd()}), "would not come back"),
        (lambda p: p.draft.update_config(max_tokens=5), r"settings of its own \(max_tokens\)"),
        (lambda p: setattr(p.draft, "signature", p.draft.signature.append("more", dspy.OutputField())), "more"),
        (lambda p: setattr(p.draft, "signature", p.draft.signature.delete("persona")), "persona"),
        (lambda p: setattr(p, "draft", dspy.ChainOfThought(p.draft.signature)), "differ in draft, draft.predict"),
        (lambda p: setattr(p, "extra", dspy.Predict("a -> b")), "differ in extra"),
    ],
)
def test_a_program_that_would_not_come_back_is_not_saved(
    tmp_path: Path, change: Callable[[Any], Any], why: str
) -> None:
    program = Direct()
    program.save(tmp_path)
    before = (tmp_path / PROGRAM_NAME).read_bytes()
    change(program)
    with pytest.raises(UserError, match=why) as caught:
        program.save(tmp_path)
    assert str(caught.value).startswith("The program cannot be saved: ")
    assert "\n" not in str(caught.value)
    assert (tmp_path / PROGRAM_NAME).read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [PROGRAM_NAME]


def test_prompts_are_compared_as_they_are_written() -> None:
    one, other = Direct().draft, Direct().draft
    assert same_prompts(one, other)
    other.demos = [{"task": "Tea", "answer": "x"}]
    assert not same_prompts(one, other)
    one.demos = [dspy.Example(task="Tea", answer="x", augmented=True)]
    assert same_prompts(one, other)
    one.signature = one.signature.with_instructions("Other words.")
    assert not same_prompts(one, other)


def test_a_frozen_module_in_place_of_a_predictor_is_not_left_out_silently(tmp_path: Path) -> None:
    program = Direct()
    program.draft = dspy.ChainOfThought(program.draft.signature)
    program.draft._compiled = True  # DSPy's own save would leave it out without a word
    with pytest.raises(UserError, match="differ in draft"):
        program.save(tmp_path)


# ---------------------------------------------------------------- what does not fit


def changed(folder: Path, *path: Any, to: Any = None, drop: bool = False) -> None:
    """Change a part of a saved program."""
    file = folder / PROGRAM_NAME
    content = json.loads(file.read_text())
    place = content
    for key in path[:-1]:
        place = place[key]
    if drop:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    file.write_text(json.dumps(content))


THINK = ("state", "think")


@pytest.mark.parametrize(
    ("path", "to", "why"),
    [
        (("version",), 2, "has version 2: this salon reads version 1. Install salon 0.1.0 or newer"),
        (("version",), True, "has version True"),
        (("salon",), "7.1", "was saved by salon 7.1: this is salon"),
        (("salon",), "../../x", "'../../x' is no version of salon"),
        (("salon",), None, "None is no version of salon"),
        (("name",), "../../x", r"There is no program '\.\./\.\./x': known are Roundtable"),
        (("name",), "os.system", "There is no program 'os.system'"),
        (("name",), ["Roundtable"], r"There is no program \['Roundtable'\]"),
        (("name",), "Debate", "its settings differ in agents"),
        (("settings",), [], "its settings are not an object"),
        (("settings", "lms"), {"participant": {"model": "evil", "api_base": "http://evil"}}, "differ in lms"),
        (("settings", "facilitator"), "no", "facilitator='no' is not possible"),
        (("settings", "votes"), "5", "'5' is not allowed here"),
        (("settings", "votes"), 4, "its votes would not be 4"),
        (("settings", "personas"), {}, r"{} are no personas"),
        (("settings", "personas"), [{"name": "A", "sketch": "B", "__class__": "x"}] * 2, "is no persona"),
        (("settings", "embedder"), None, "its embedder would not be None"),
        (("settings", "max_concurrency"), 1e300, "max_concurrency=1e"),
        (("state",), [], "it differs in cast"),
        (("state", "threshold"), 5, "saved threshold does not fit: 5 is no value"),
        (("state", "threshold", "value"), "5", "threshold does not fit: '5' is not allowed here"),
        (("state", "threshold", "value"), 11, "threshold does not fit: 11 is not allowed here: a number from 0 to 10"),
        (("state", "threshold", "value"), True, "True is not allowed"),
        (("state", "threshold", "low"), 0, "is no value"),
        (("state", "memory", "value"), 1.5, "a whole number is needed"),
        (("state", "evil"), {"value": 1}, "it differs in evil"),
        ((*THINK, "config"), {"api_base": "http://evil"}, "and has config, demos, signature"),
        ((*THINK, "lm"), {"model": "openai/x", "api_base": "http://evil"}, "and has demos, lm, signature"),
        ((*THINK, "aforward"), "x", "and has aforward, demos, signature"),
        ((*THINK, "extended_signature"), {}, "and has demos, extended_signature"),
        ((*THINK, "demos"), {}, "its demos must be a list of objects"),
        ((*THINK, "demos"), ["x"], "its demos must be a list of objects"),
        ((*THINK, "signature"), "topic -> thought", "its signature must have instructions and fields"),
        ((*THINK, "signature", "instructions"), ["x"], "its instructions must be a text"),
        ((*THINK, "signature", "fields"), [], "its signature must have 10 fields"),
        ((*THINK, "signature", "fields", 0), {"prefix": "a", "description": 5}, "a field must have a prefix"),
        (("signatures",), None, "does not say which fields its predictors have"),
        (("signatures", "think"), 5, "does not say which fields its predictors have"),
        (("signatures", "evil"), "a: str -> b: str", "its predictors differ in evil"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(tmp_path: Path, path: tuple[Any, ...], to: Any, why: str) -> None:
    Roundtable(personas=PEOPLE).save(tmp_path)
    changed(tmp_path, *path, to=to)
    with pytest.raises(UserError, match=why) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("part", ["version", "name", "settings", "state", "signatures"])
def test_a_missing_part_is_refused(tmp_path: Path, part: str) -> None:
    Debate().save(tmp_path)
    changed(tmp_path, part, drop=True)
    with pytest.raises(UserError):
        load(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("eagerness: Confidence", "eagerness: Rating", "eagerness: Rating, where this salon has eagerness: Confidence"),
        ("eagerness: Confidence, ", "", "none, where this salon has eagerness: Confidence"),
        ("wants: Want", "wants: Want, mood: Short", "mood: Short, where this salon has none"),
        ("topic: str, rules: str", "rules: str, topic: str", "in another order"),
        ("cites: Citations = ...", "cites: Citations", "cites: Citations, where this salon has cites: Citations = ..."),
    ],
)
def test_a_predictor_with_other_fields_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    Roundtable().save(tmp_path)
    contract = json.loads((tmp_path / PROGRAM_NAME).read_text())["signatures"]["think"]
    assert old in contract
    changed(tmp_path, "signatures", "think", to=contract.replace(old, new))
    with pytest.raises(UserError) as caught:
        load(tmp_path)
    assert f"its predictor think has the fields ({why})" in str(caught.value)


class Part(BaseModel):
    name: Rating


class Typed(dspy.Signature):
    one: Literal["a", "b"] = dspy.InputField()
    two: list[Part] | None = dspy.OutputField()
    three: dict[str, Citations] = dspy.OutputField(default={})


def test_the_contract_names_types_and_not_where_they_are() -> None:
    expected = "one: Literal['a', 'b'] -> two: list[Part(name: Rating)] | None, three: dict[str, Citations] = ..."
    assert contract_of(Typed) == expected
    assert contract_of(Typed.with_instructions("Other words.")) == expected


def test_what_does_not_fit_leaves_a_program_as_it_was() -> None:
    program = Debate()
    before = program.described()
    state = copy.deepcopy(before["state"])
    state["draft"]["signature"]["instructions"] = "Other words."
    state["temperature"]["value"] = 99
    with pytest.raises(UserError, match="temperature does not fit"):
        program.load_state(state)
    assert program.described() == before


def test_another_program_cannot_take_it(tmp_path: Path) -> None:
    Debate().save(tmp_path)
    with pytest.raises(UserError, match="holds a Debate: this is a Roundtable"):
        Roundtable().load(tmp_path)


def leaves(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each part of a JSON value."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, inner in pairs:
        yield (*path, key)
        yield from leaves(inner, (*path, key))


WRONG = [None, True, -1, 5.5, "x", "9" * 5000, [], {}, [[]], {"value": 1}, 10**30, "../../x", [{"a": 1}]]


@pytest.mark.parametrize("name", PROGRAMS)
def test_whatever_is_put_into_a_file_is_refused_or_is_what_the_program_then_is(name: str) -> None:
    program = PROGRAMS[name]()
    program.named_predictors()[0][1].demos = [{"task": "Tea", "n": [1, {"a": None}]}]
    content = json.loads(json.dumps({**program.described(), "signatures": program.contracts()}))
    wrong = cycle(WRONG)
    for path in leaves(content):
        changed_content = copy.deepcopy(content)
        place = changed_content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = next(wrong)
        try:
            loaded = program_of(changed_content, saved=True)
        except UserError:
            continue
        told = {**loaded.described(), "signatures": loaded.contracts()}
        assert json.loads(json.dumps(told)) == changed_content, path


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ('{"version": 1, "x": NaN}', "NaN is no number"),
        ('{"version": 1, "x": -Infinity}', "-Infinity is no number"),
        ('{"version": 1, "x": 1e999}', "1e999 is too large a number"),
        ('{"version": 1, "x": ' + "9" * 5000 + "}", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("\udcff", "cannot be read"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / PROGRAM_NAME).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=why) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    Direct().save(tmp_path)
    whole = (tmp_path / PROGRAM_NAME).read_bytes()
    for end in range(0, len(whole) - 1, 37):
        (tmp_path / PROGRAM_NAME).write_bytes(whole[:end])
        with pytest.raises(UserError, match="cannot be read"):
            load(tmp_path)


def test_a_file_that_is_far_too_large_or_none_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / PROGRAM_NAME).open("wb") as file:
        file.truncate(1 << 32)
    with pytest.raises(UserError, match=r"it has 4,294,967,296 bytes"):
        load(tmp_path)
    (tmp_path / PROGRAM_NAME).unlink()
    os.mkfifo(tmp_path / PROGRAM_NAME)
    with pytest.raises(UserError, match="not a plain file"):
        load(tmp_path)


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.mark, "ran"))


def test_nothing_in_the_folder_is_run_whatever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark, folder = tmp_path / "ran", tmp_path / "folder"
    Debate().save(folder)
    code = f"from pathlib import Path\nPath({str(mark)!r}).write_text('ran')\n"
    names = ("__init__", "__main__", "program", "Debate", "sitecustomize", "conftest", "metadata", "settings", "lens")
    for name in names:
        (folder / f"{name}.py").write_text(code)
    for name in ("program.pkl", "program.json.pkl", "metadata.pkl", "study.log", "pytorch_model.bin"):
        (folder / name).write_bytes(pickle.dumps(Bomb(mark)))
    (folder / "compile.json").write_text("{")
    (folder / "program.yaml").write_text("!!python/object/apply:os.system [true]")
    monkeypatch.chdir(folder)
    paths, modules = list(sys.path), set(sys.modules)
    assert load(folder).described() == Debate().described()
    assert load(".").described() == Debate().described()
    assert not mark.exists()
    assert sys.path == paths
    assert not [m for m in set(sys.modules) - modules if str(folder) in str(getattr(sys.modules[m], "__file__", ""))]
    (folder / PROGRAM_NAME).unlink()
    with pytest.raises(UserError, match="There is no program in"):
        load(folder)
    assert not mark.exists()


def test_an_embedding_model_in_the_folder_itself_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for model in (str(tmp_path / "folder" / "model"), "folder/model", "folder/../folder/model"):
        Debate(embedder=model).save(tmp_path / "folder")
        with pytest.raises(UserError, match="lies in the same folder"):
            load(tmp_path / "folder")
    Debate(embedder="../elsewhere/model").save(tmp_path / "folder")
    assert load(tmp_path / "folder").embedder.model == "../elsewhere/model"


def test_numbers_are_found_by_name() -> None:
    assert {name for name, p in Debate().named_parameters() if isinstance(p, Tunable)} <= set(Debate().dump_state())
    assert salon.load is load
