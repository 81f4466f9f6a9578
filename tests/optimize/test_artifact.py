"""A compiled program's folder: report, card and plots, whatever the texts and however the search went."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from salon.evals.statistics import Interval
from salon.modules import Debate
from salon.modules.budget import Usage
from salon.optimize.artifact import CARD_NAME, COMPILED_NAME, read_report, report_json, write_artifact
from salon.optimize.card import card_markdown, outcome
from salon.optimize.compile_report import (
    CompileReport,
    DataSource,
    Goal,
    HeldOut,
    Measured,
    Range,
    TaskText,
    Trial,
)
from salon.optimize.importance import history, importance
from salon.optimize.plots import PLOTS, plots
from salon.optimize.program_change import ProgramChange, PromptChange, program_change
from salon.optimize.word_changes import changed_words
from scipy import stats

from salon import OutputError, UserError, load

Report = Callable[..., CompileReport]
FILES = {"program.json", COMPILED_NAME, CARD_NAME, "plots"}

# ---------------------------------------------------------------- round trip

texts = st.text(max_size=30)
numbers = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False)
floats = st.floats(allow_nan=False, allow_infinity=False)
maybe = st.none() | floats
counts = st.integers(0, 10**9)
intervals = st.builds(Interval, maybe, maybe, maybe, counts)
usages = st.builds(Usage, counts, counts, counts, floats, counts, floats)
tasks = st.lists(st.builds(TaskText, texts, texts), max_size=3)
demos = st.lists(st.dictionaries(texts, texts, max_size=2), max_size=2)
prompts = st.builds(
    PromptChange, texts, texts, texts, st.dictionaries(texts, st.tuples(texts, texts), max_size=2), demos, demos
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
named = st.dictionaries(texts, values, max_size=3)
tuned = st.dictionaries(texts, numbers, max_size=3)
programs = st.builds(ProgramChange, texts, texts, named, named, tuned, tuned, st.lists(prompts, max_size=2))
trials = st.builds(
    Trial, counts, tuned, st.dictionaries(texts, st.builds(Measured, maybe, maybe, counts), max_size=3),
    st.sampled_from(["complete", "pruned", "failed"]), texts, texts, usages, st.booleans(),
)  # fmt: skip
reports = st.builds(
    CompileReport,
    program=programs,
    benchmark=st.builds(
        DataSource, texts, texts, texts, st.dictionaries(texts, st.none() | st.booleans() | numbers | texts)
    ),
    train=tasks,
    validation=tasks,
    test=tasks,
    groups=counts,
    seed=counts,
    models=st.dictionaries(texts, texts, max_size=3),
    judges=st.lists(texts, max_size=3),
    packages=st.dictionaries(texts, texts, max_size=3),
    objectives=st.lists(
        st.builds(Goal, texts, st.sampled_from(["maximize", "minimize"]), texts), max_size=3, unique_by=lambda g: g.name
    ),
    space=st.dictionaries(texts, st.builds(Range, numbers, numbers, st.booleans(), st.booleans(), numbers), max_size=3),
    trials=st.lists(trials, max_size=4),
    front=st.lists(counts, max_size=3),
    picked=st.none() | counts,
    rule=texts,
    held_out=st.dictionaries(texts, st.builds(HeldOut, intervals, intervals, intervals, maybe, counts), max_size=3),
    better=st.booleans(),
    verdict=texts,
    usage=st.dictionaries(texts, usages, max_size=3),
    seconds=floats,
    started=texts,
    limits=st.lists(texts, max_size=3),
    search=texts,
    storage=st.just("study.log"),
)


@given(reports)
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_any_report_comes_back_as_it_was_and_can_be_told(report: CompileReport) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / COMPILED_NAME
        path.write_text(report_json(report), encoding="utf-8", newline="")
        assert unkeyed(read_report(place)) == unkeyed(report)
        assert [type(v) for t in read_report(place).trials for v in t.values.values()] == [
            type(v) for t in report.trials for v in t.values.values()
        ]
    card_markdown(report).encode()


def unkeyed(report: CompileReport) -> CompileReport:
    """Leave out where keys are masked, which may change a text that looks like one."""
    bare = [replace(trial, reason="") for trial in report.trials]
    return replace(report, models={}, judges=[], limits=[], trials=bare)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_refused_before_anything_is_written(
    report: Report, tmp_path: Path, number: float
) -> None:
    bad = report(seconds=number)
    with pytest.raises(UserError, match="report of the compile cannot be written"):
        write_artifact(tmp_path / "out", Debate(), bad)
    assert not (tmp_path / "out").exists()


def test_lone_surrogates_become_what_a_file_can_hold(report: Report, tmp_path: Path) -> None:
    write_artifact(tmp_path, Debate(), report(verdict="a \ud800 b", rule="\ud83d\ude00"))
    read = read_report(tmp_path)
    assert (read.verdict, read.rule) == ("a \ufffd b", "😀")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seconds": "5"}, "seconds"),
        ({"seed": 1.5}, "seed"),
        ({"groups": True}, "groups"),
        ({"trials": {}}, "trials"),
        ({"trials": [{"number": 1}]}, r"trials\.0"),
        ({"objectives": [{"name": "q", "direction": "up", "unit": ""}]}, r"objectives\.0\.direction"),
        ({"better": 1}, "better"),
        ({"held_out": [1]}, "held_out"),
        ({"version": 2}, "its version is 2. This salon reads version 1"),
        ({"version": "1"}, "its version is '1'"),
        ({"program": None}, "program"),
    ],
)
def test_a_damaged_report_is_refused_in_one_line(
    report: Report, tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    content = {**json.loads(report_json(report())), **change}
    (tmp_path / COMPILED_NAME).write_text(json.dumps(content))
    with pytest.raises(OutputError, match=why) as caught:
        read_report(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": NaN}', "null", "[" * 100_000, '{"version": 1}', "\ud800"])
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / COMPILED_NAME).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(OutputError, match="cannot be read"):
        read_report(tmp_path)
    with pytest.raises(OutputError, match="There is no compiled program"):
        read_report(tmp_path / "nowhere")


# ---------------------------------------------------------------- the folder


def test_the_folder_holds_all_of_it_and_the_program_can_be_called(report: Report, tmp_path: Path) -> None:
    program = Debate(k=1)
    (tmp_path / "study.log").write_text("a journal")
    made = report(program=program_change(Debate(), program))
    write_artifact(tmp_path, program, made)
    assert {file.name for file in tmp_path.iterdir()} == FILES | {"study.log"}
    assert {file.name for file in (tmp_path / "plots").iterdir()} == {
        f"{name}.{ending}" for name in PLOTS for ending in ("svg", "png")
    }
    assert read_report(tmp_path) == made
    assert load(tmp_path).described() == program.described()
    before = {file.name: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    write_artifact(tmp_path, program, made)
    assert {file.name: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    assert (tmp_path / "study.log").read_text() == "a journal"


def test_no_key_and_no_password_is_written(report: Report, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EXAMPLE_API_KEY", "quite-a-secret-value")
    made = report(
        storage="postgresql://me:hunter2@db.example:5432/study?password=hunter3#hunter4",
        models={"participant": "openai/gpt sk-abcdefghijkl"},
        judges=["quite-a-secret-value"],
        trials=[Trial(0, {}, {}, "failed", "bearer abcdefgh was refused")],
        limits=["It was run with quite-a-secret-value."],
    )
    write_artifact(tmp_path, Debate(), made)
    written = "".join(f.read_text("utf-8", "replace") for f in tmp_path.rglob("*") if f.suffix in (".json", ".md"))
    for secret in ("hunter", "sk-abc", "quite-a-secret", "abcdefgh"):
        assert secret not in written
    assert read_report(tmp_path).storage == "postgresql://db.example:5432/study"


def test_a_place_that_cannot_be_written_is_told_in_one_line(report: Report, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        write_artifact(tmp_path / "file" / "out", Debate(), report())
    (tmp_path / "plots").write_text("")
    with pytest.raises(OutputError, match="cannot be drawn"):
        write_artifact(tmp_path, Debate(), report())


def test_what_changed_in_a_program_is_told_part_by_part() -> None:
    before, after = Debate(), Debate(agents=3)
    after.temperature.value = 0.5
    after.draft.signature = after.draft.signature.with_instructions("Be brief.")
    after.revise.signature = after.revise.signature.with_updated_fields("critique", desc="in 5 words")
    after.choose.demos = [{"task": "Tea", "choice": 2, "extra": [1, "ü"]}]
    change = program_change(before, after)
    assert (change.name, change.input, change.changed) == ("Debate", "task", True)
    assert (change.numbers_before["agents"], change.numbers["agents"]) == (5, 3)
    assert change.numbers["temperature"] == 0.5
    draft, revise, choose = change.prompts
    assert (draft.before, draft.after) == (before.draft.signature.instructions, "Be brief.")
    assert revise.fields == {"critique": ("what to drop and what to keep, in at most 40 words", "in 5 words")}
    assert revise.before == revise.after
    assert choose.demos == [{"task": "Tea", "choice": "2", "extra": '[1, "ü"]'}]
    assert choose.changed
    assert not program_change(before, Debate()).changed


# ---------------------------------------------------------------- the card


def test_the_card_tells_everything_a_reader_needs(report: Report) -> None:
    made = report()
    card = card_markdown(made)
    lines = card.splitlines()
    assert lines[0] == "# A compiled Debate"
    assert lines[2] == made.verdict
    for needed in (
        "MIT", "topics.csv", "seed 7", "openai/gpt-5", "salon 0.1.0", "dspy 3.4.1", "120 calls", "| k | 1 | 4 | 2 |",
        "3 trials: 1 complete, 1 pruned, 1 failed", made.rule, "One model played and judged.",
        "Held out for the last comparison: 2 tasks",
        "| quality | 7 \\[6.500, 7.500\\] | 6 | 1 \\[0.500, 1.500\\] | 0.040 | 2 |", "2 tasks are few",
        "plots/front.png", "the tuned program is better", 'program(task="...")',
    ):  # fmt: skip
        assert needed in card, needed
    assert "| 0 | picked, untuned, front, confirmed | default | 6 ± 0.200 | 2.500 ± 0.100 | k 2 |" in lines


def test_the_card_says_that_it_is_not_better(report: Report) -> None:
    same = program_change(Debate(), Debate())
    made = report(better=False, program=same, verdict="No better: +0.0 [-0.3, 0.3] on 12 held-out tasks.")
    card = card_markdown(made)
    assert "No better" in card
    assert "This folder holds the untuned Debate" in card
    assert "the tuned program is not better: the untuned one is kept" in card
    assert outcome(report(held_out={}, better=False)) == "not compared on held-out tasks"
    assert "nothing here tells whether it is better" in card_markdown(report(held_out={}, better=False))


def hostile_report(report: Report, text: str) -> CompileReport:
    prompt = PromptChange(text, text, text + " more", {text: (text, "b")}, [{text: text}], [])
    held = HeldOut(Interval(1, 0, 2, 9), Interval(1, None, None, 1), Interval(None, None, None, 0), None, 0)
    return report(
        program=ProgramChange(text, "task", {text: text}, {text: [text]}, {text: 1}, {text: 2}, [prompt]),
        benchmark=DataSource(text, text, text, {text: text}),
        train=[TaskText(text, text)],
        models={text: text},
        judges=[text],
        packages={text: text},
        objectives=[Goal(text, "maximize", text), Goal(text + "2", "minimize", text)],
        space={text: Range(0, 1, True, False, 1)},
        trials=[
            Trial(n, {text: n}, {text: Measured(n, 0.1, 3), text + "2": Measured(-n, None, 3)}, "complete", text, text)
            for n in range(9)
        ],
        front=[1],
        rule=text,
        held_out={text: held},
        verdict=text,
        usage={text: Usage(1)},
        started=text,
        limits=[text],
        search=text,
    )  # fmt: skip


HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "[x](javascript:alert(1))", "# head", "| a | b |",
    "`**md**`", "```\n# out", "---", "=1+1", "@SUM(A1)", "{{ 7*7 }} {% raw %} {0} %s", "$\\frac{1}$ $x",
    "\u202emoc مرحبا", "漢字 \x00 \x1b[31m", "1. list", "- bullet", "&lt;b&gt;", "a\nb\r\n\u2028c", "<!-- ",
    "![i](http://evil.example/x.png)",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_texts_in_the_card(report: Report, text: str) -> None:
    made = hostile_report(report, text)
    card = card_markdown(made)
    own = card_markdown(hostile_report(report, "plain"))
    for start in ("#", "|---", "```", "![", "---"):
        assert len(lines_with(card, start)) == len(lines_with(own, start)), start
    prose = "\n".join(part for n, part in enumerate(card.split("```")) if n % 2 == 0)
    assert not re.search(r"(?<!\\)<|(?<!\\)\[(?!What|Trial|The front)", prose)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u2028\ud800-\udfff]", card)
    rows = [line for line in card.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {
        len(re.findall(r"(?<!\\)\|", row)) for row in own.splitlines() if row.startswith("|")
    }


@pytest.mark.filterwarnings("ignore:Glyph")
def test_hostile_texts_are_texts_in_the_plots(report: Report, tmp_path: Path) -> None:
    for text in ("$\\frac{1}$ $x", "<b>&</b>"):
        plots(hostile_report(report, text), tmp_path)
        assert "<b>" not in (tmp_path / "plots" / "front.svg").read_text(encoding="utf-8")


def lines_with(card: str, start: str) -> list[str]:
    return [line for line in card.splitlines() if line.startswith(start)]


# ---------------------------------------------------------------- odd searches


@pytest.mark.parametrize("case", ["nothing", "failed only", "one goal", "no values", "no space", "200 trials"])
def test_any_search_gives_a_whole_folder(report: Report, tmp_path: Path, case: str) -> None:
    goals = report().objectives
    changes: dict[str, dict[str, Any]] = {
        "nothing": {"trials": [], "front": [], "picked": None, "space": {}, "held_out": {}, "limits": []},
        "failed only": {
            "trials": [Trial(n, {"k": 1}, {}, "failed", "broken") for n in range(4)], "front": [], "picked": None
        },
        "one goal": {"objectives": goals[:1]},
        "no values": {"trials": [Trial(0, {"k": 2}, {"quality": Measured(None, None, 0)}, "complete")], "front": []},
        "no space": {"space": {}},
        "200 trials": {"trials": many(200), "front": list(range(1, 200, 3)), "picked": 4},
    }  # fmt: skip
    made = report(**changes[case])
    write_artifact(tmp_path, Debate(), made)
    assert read_report(tmp_path) == made
    assert {file.name for file in tmp_path.iterdir()} == FILES
    card = (tmp_path / CARD_NAME).read_text(encoding="utf-8")
    assert "None" not in card.replace("None were recorded", "")
    assert "nan" not in card
    if case == "200 trials":
        assert "more are in `compile.json`" in card
        assert len(card) < 20_000
    if case in ("nothing", "failed only"):
        assert ("There is none: no trial was complete." in card) is (case == "nothing")


def many(count: int) -> list[Trial]:
    return [
        Trial(n, {"k": n % 4 + 1}, {"quality": Measured(n % 7, 0.1, 9), "vendi": Measured(n % 5, 0.1, 9)}, "complete")
        for n in range(count)
    ]


def test_importance_is_spearmans_rho_of_the_complete_trials(report: Report) -> None:
    made = report(trials=[*many(30), Trial(30, {"k": 4}, {"quality": Measured(99, 0, 9)}, "pruned")])
    found = importance(made)["quality"]["k"]
    expected = stats.spearmanr([n % 4 + 1 for n in range(30)], [n % 7 for n in range(30)])
    assert found.r == pytest.approx(float(expected.statistic))
    assert found.n == 30
    few = importance(report(trials=many(7)))["quality"]["k"]
    assert (few.r, few.n, few.undefined) == (None, 7, "fewer than 8 trials")
    still = [replace(trial, values={"k": 2}) for trial in many(20)]
    assert importance(report(trials=still))["quality"]["k"].r is None


def test_history_keeps_the_best_so_far_in_the_direction_of_the_goal(report: Report) -> None:
    values = [3.0, None, 5.0, 1.0]
    made = report(
        trials=[Trial(n, {}, {"quality": Measured(v, None, 2)}, "complete") for n, v in enumerate(values)][::-1]
    )
    assert history(made, Goal("quality", "maximize")).best == [(0, 3.0), (2, 5.0), (3, 5.0)]
    assert history(made, Goal("quality", "minimize")).best == [(0, 3.0), (2, 3.0), (3, 1.0)]
    assert history(made, Goal("unknown", "maximize")).points == []


@given(st.text(alphabet="ab \n", max_size=60), st.text(alphabet="ab \n", max_size=60))
def test_pieces_of_a_change_make_both_texts(before: str, after: str) -> None:
    pieces = changed_words(before, after)
    if pieces is not None:
        assert "".join(p.text for p in pieces if p.kind != "added") == before
        assert "".join(p.text for p in pieces if p.kind != "removed") == after


def test_texts_with_little_in_common_or_far_too_long_are_not_compared() -> None:
    assert changed_words("one two three", "four five six seven") is None
    assert changed_words("word " * 5000, "word " * 5000) is None
    assert changed_words("a b c", "a x c") is not None


def test_a_report_is_plain_data(report: Report) -> None:
    assert json.loads(report_json(report())) == json.loads(json.dumps(asdict(report())))
