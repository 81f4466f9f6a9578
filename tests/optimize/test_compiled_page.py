"""The page of a compiled program, as HTML and in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from salon.evals.statistics import Interval
from salon.modules import Debate
from salon.modules.budget import Usage
from salon.optimize.artifact import write_artifact
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
from salon.optimize.compiled_page import PAGE_NAME, write_compiled_page
from salon.optimize.program_change import ProgramChange, PromptChange, program_change

from salon import OutputError
from salon.cli import main

Report = Callable[..., CompileReport]
HOSTILE = (
    '<script>alert(1)</script>"><img src=x onerror=alert(1)> {{ 7*7 }} {% raw %} =1+1 [x](javascript:alert(1)) '
    "\u202emoc مرحبا 漢字 👓 </pre></style></title> ]]> & &lt; $x$"
)


def written(report: CompileReport, folder: Path) -> Path:
    write_artifact(folder, Debate(), report)
    return write_compiled_page(folder)


def tuned() -> Debate:
    program = Debate(k=3)
    words = program.draft.signature.instructions
    program.draft.signature = program.draft.signature.with_instructions(words.replace("highly original", "useful"))
    program.revise.signature = program.revise.signature.with_instructions("Nothing is as it was.")
    program.choose.demos = [{"task": "Tea", "choice": 2}]
    return program


def trials(count: int) -> list[Trial]:
    states = ("complete", "complete", "complete", "pruned", "failed")
    return [
        Trial(
            n, {"k": n % 4 + 1}, {g: Measured(v, 0.2, 9) for g, v in (("quality", n % 7), ("vendi", -n % 5))},
            states[n % 5] if n else "complete", "" if n % 5 < 3 else "a reason", confirmed=n % 9 == 0,
        )
        for n in range(count)
    ]  # fmt: skip


def hostile(report: Report) -> CompileReport:
    text = HOSTILE
    held = HeldOut(Interval(1, 0, 2, 9), Interval(1, 0, 2, 9), Interval(0, -1, 1, 9), 0.5, 9)
    prompt = PromptChange(text, text, text + " more", {text: (text, "b")}, [{text: text}], [{"a": "b"}, {"a": "c"}])
    rewritten = PromptChange(text, text, "x", {}, [])
    values = {text: Measured(1, 0.1, 3), "b": Measured(2, 0.1, 3)}
    return report(
        program=ProgramChange(text, text, {text: text}, {text: [text]}, {text: 1}, {text: 2}, [prompt, rewritten]),
        benchmark=DataSource(text, text, text, {text: text}),
        train=[TaskText(text, text)], models={text: text}, judges=[text], packages={text: text},
        objectives=[Goal(text, "maximize", text), Goal("b", "minimize", text)],
        space={text: Range(0, 1, True, False, 1)},
        trials=[Trial(n, {text: n}, values, "complete", text, text) for n in range(9)],
        front=[1], rule=text, held_out={text: held}, verdict=text, usage={text: Usage(1)}, started=text, limits=[text],
        search=text,
    )  # fmt: skip


CASES: dict[str, Callable[[Report], CompileReport]] = {
    "plain": lambda report: report(),
    "tuned": lambda report: report(program=program_change(Debate(), tuned())),
    "nothing": lambda report: report(
        trials=[], front=[], picked=None, space={}, held_out={}, limits=[], better=False, objectives=[], usage={}
    ),
    "failed only": lambda report: report(
        trials=[Trial(n, {"k": 1}, {}, "failed", "broken") for n in range(3)], front=[], picked=None
    ),
    "no values": lambda report: report(
        trials=[Trial(0, {}, {"quality": Measured(None, None, 0)}, "complete")], front=[], picked=None
    ),
    "one goal": lambda report: report(objectives=[Goal("quality", "maximize")], trials=trials(12)),
    "200 trials": lambda report: report(trials=trials(200), front=[1, 2, 6, 7], picked=6),
    "hostile": hostile,
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:Glyph")
def test_any_report_gives_a_page_that_opens_quietly_and_fits(
    report: Report, browser: Any, tmp_path: Path, case: str
) -> None:
    page = browser.open(written(CASES[case](report), tmp_path))
    assert page.complaints() == []
    assert page.requests() == []
    for width in (1400, 400):
        page.size(width)
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), width
    assert page.run("return document.querySelectorAll('script').length") == 1
    assert page.run("return document.querySelectorAll('img, iframe, object, embed, form').length") == 0
    assert page.run(
        "return [...document.querySelectorAll('*')].every(e => [...e.attributes].every(a => !a.name.startsWith('on')))"
    )
    links = page.run("return [...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href'))")
    assert all(re.fullmatch(r"#[a-z]+", link) for link in links)
    assert page.run(
        "return [...document.querySelectorAll('.toc a')].every(a => document.getElementById(a.hash.slice(1)))"
    )
    assert not re.search(r"\b(?:None|nan|Infinity)\b", " ".join(page.texts("main > section:not(#limits)")))


def test_the_verdict_comes_first_and_the_numbers_follow(report: Report, browser: Any, tmp_path: Path) -> None:
    made = report(program=program_change(Debate(), tuned()), trials=trials(30), front=[1, 2], picked=2)
    page = browser.open(written(made, tmp_path))
    assert page.texts(".status") == ["the tuned program is better"]
    assert page.texts("main > section:first-child .callout p")[0] == made.verdict
    rows = [" ".join(text.split()) for text in page.texts("#result tbody tr")]
    assert rows[0] == "quality7 [6.500, 7.500]61 [0.500, 1.500]0.0402"
    marks = page.texts("#front tbody tr")
    assert len(marks) == 3
    assert page.texts("#prompts h3") == ["draft", "revise", "choose"]
    assert page.texts("#prompts del") == ["highly original"]
    assert page.texts("#prompts ins") == ["useful"]
    assert page.texts("#numbers tbody strong") == ["3"]
    assert len(page.texts("#trials tbody tr")) == 30
    assert not page.run("return document.querySelector('#trials details').open")
    assert page.run("return document.querySelectorAll('#importance table.bars').length") == 2
    assert page.run("return document.querySelectorAll('#history svg.plot').length") == 2
    assert "n = 18 trials" in page.texts("#importance figcaption small")[0]
    assert page.texts("#limits li") == ["One model played and judged."]


def test_hostile_texts_come_out_as_they_are(report: Report, browser: Any, tmp_path: Path) -> None:
    page = browser.open(written(hostile(report), tmp_path))
    assert page.texts("#limits li")[0] == HOSTILE
    assert page.texts("#result .callout p")[0] == HOSTILE
    assert "".join(page.texts("#prompts .one:nth-child(2) pre")) == HOSTILE + " more"
    assert "49" not in page.texts("#limits li")[0]


def test_marks_of_a_front_are_labelled_and_others_are_not(report: Report, browser: Any, tmp_path: Path) -> None:
    made = report(trials=trials(200), front=[1, 2, 6], picked=6)
    page = browser.open(written(made, tmp_path))
    assert sorted(page.texts("#front svg text.label")) == ["front 1", "front 2", "picked 6", "untuned 0"]
    tips = page.texts("#front svg path.mark title")
    assert len(tips) == len(made.of_state("complete"))
    assert any(tip.startswith("other trial 11:") for tip in tips)


def test_the_scheme_follows_the_reader(report: Report, browser: Any, tmp_path: Path) -> None:
    page = browser.open(written(report(), tmp_path))
    light = page.run("return getComputedStyle(document.body).backgroundColor")
    page.scheme("dark")
    assert page.run("return getComputedStyle(document.body).backgroundColor") != light


def test_the_command_writes_the_page_of_a_compile(
    report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_artifact(tmp_path, Debate(), report())
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr() == (f"{tmp_path / PAGE_NAME}\n", "")
    assert "A compiled Debate" in (tmp_path / PAGE_NAME).read_text(encoding="utf-8")
    assert main(["report", str(tmp_path), str(tmp_path)]) == 2
    assert "is a compiled program: its report is a page of its own. Give it alone." in capsys.readouterr().err
    (tmp_path / "compile.json").write_text("{")
    assert main(["report", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_page_needs_a_compiled_program_and_a_place(report: Report, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="There is no compiled program"):
        write_compiled_page(tmp_path)
    write_artifact(tmp_path, Debate(), replace(report(), verdict="Fine."))
    assert write_compiled_page(tmp_path, tmp_path / "other" / "page.html") == tmp_path / "other" / "page.html"
    assert not (tmp_path / PAGE_NAME).exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        write_compiled_page(tmp_path, tmp_path / "file" / "page.html")
