"""The page of an evaluation: everything that is known stands on it, nothing else, and all texts are texts."""

from __future__ import annotations

import html
import itertools
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from salon.evals.evaluation_page import evaluation_page, write_evaluation_page
from salon.evals.results import Results
from salon.modules import Session
from salon.modules.events import wording

from salon import UserError
from salon.cli import main

pytestmark = pytest.mark.usefixtures("quick_embeddings")
Build = Callable[..., Any]
METHODS = ("direct", "debate", "voting")


@pytest.fixture
def full(evaluated: Build) -> Any:
    """An evaluation with all there can be: comparisons, failures, ratings that failed, a baseline."""
    folder = evaluated(
        methods=METHODS,
        texts=[f"Topic {n}" for n in range(1, 10)],
        judges=("judge/a", "judge/b"),
        failed=lambda m, q, r: "the server was away" if (m, q) == ("voting", "Q2") else "",
        value=lambda m, q, r, j: None if (q, r) == ("Q3", 1) else 2 + len(m) / 2 + int(q[1]) / 5,
    )
    folder.compare(lambda a, b, q, r: 1.0 if q < "Q5" else 0.5)
    return folder


def page_of(folder: Any) -> str:
    return write_evaluation_page(Results.load(folder.place), folder.place).read_text()


def text_of(page: str) -> str:
    """Return what a reader sees."""
    body = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def sections(page: str) -> list[str]:
    return re.findall(r'<section id="([\w-]+)"', page)


def test_everything_is_on_the_page(full: Any) -> None:
    page = page_of(full)
    text, results = text_of(page), Results.load(full.place)
    assert sections(page) == [
        "summary", "trade-off", "wins", "tests", "queries", "judges", "cost", "failures", "answers", "setup", "reading"
    ]  # fmt: skip
    for row in results.method_rows:
        for name, digits in (("quality", 2), ("vendi", 2), ("distance", 3), ("div_bleu", 1), ("win_rate", 2)):
            found = row.means[name]
            assert f"{found.value:.{digits}f} {found.low:.{digits}f} to {found.high:.{digits}f} n = {found.n}" in text
        assert f"{row.strength:+.2f}" in text
    for test in results.test_rows:
        difference = test.found.difference
        assert f"{difference.low:.2f} to {difference.high:.2f} {test.found.n} " in text
    for note in results.notes:
        assert note in text
    for answer in (*results.best(), *results.worst()):
        assert answer.answer in text
        assert answer.ratings[0][2] in text
    for part in ("topics.csv", "MIT", "judge/a, judge/b", "author/m", "all-MiniLM-L6-v2", "python 3.11"):
        assert part in text
    assert "voting 4 the server was away" in text
    assert "judge/a 3 it said nothing" in text


def test_numbers_of_queries_and_wins(full: Any) -> None:
    results = Results.load(full.place)
    text = text_of(page_of(full))
    for (query,), rows in results.queries.groupby(["query"]):
        task = results.about.tasks[query]
        shown = " ".join(
            f"{'–' if row.quality != row.quality else f'{row.quality:.2f}'} · "
            f"{'–' if row.vendi != row.vendi else f'{row.vendi:.2f}'}"
            + (f" {row.answers} of 4 answers" if row.answers < 4 else f" {row.judged} of 4 rated" * (row.judged < 4))
            for row in rows.itertuples()
        )
        assert f"{query} {task} {shown}" in text
    assert f"direct – {results.wins.loc['direct', 'debate']:.2f} {results.wins.loc['direct', 'voting']:.2f}" in text
    assert "each number rests on 9 comparisons" in text


def test_sections_without_content_are_left_out(evaluated: Build) -> None:
    page = page_of(evaluated(methods=("debate",), judges=()))
    assert sections(page) == ["summary", "trade-off", "queries", "cost", "setup", "reading"]
    linked = re.findall(r'<li><a href="#([\w-]+)">', page)
    assert linked == sections(page)
    assert "No method has both a quality and a diversity." in page


@pytest.mark.parametrize(
    "settings",
    [
        {"size": 1}, {"runs": 1, "texts": ["One"]}, {"methods": ("direct",), "texts": ["One"]}, {"usd": None},
        {"value": lambda m, q, r, j: None}, {"failed": lambda m, q, r: "boom"}, {"baseline": None}, {"models": {}},
        {"answer": lambda m, q, r: None}, {"answer": lambda m, q, r: "all the same"}, {"packages": {}},
        {"methods": ("direct", "debate"), "started": "yesterday"}, {"judge": None, "judges": ()},
    ],
)  # fmt: skip
def test_pages_of_little(evaluated: Build, settings: dict[str, Any]) -> None:
    folder = evaluated(**settings)
    text = text_of(page_of(folder))
    assert not re.search(r"\b(nan|None|inf)\b", text.split("How to read it")[-2])
    assert "Summary" in text


def test_what_a_callable_and_a_described_program_are(evaluated: Build) -> None:
    methods = {
        "mine": {"callable": "my.module:answer"},
        "debate": {"name": "Debate", "settings": {"agents": 3}, "state": {}},
    }
    models = {"debate": {"participant": {"model": "a/x"}, "judge": {"model": "b/y"}}}
    folder = evaluated(methods=tuple(methods), **{"models": models})
    content = json.loads((folder.place / "evaluation.json").read_text())
    (folder.place / "evaluation.json").write_text(json.dumps({**content, "methods": methods}))
    assert evaluation_page(Results.load(folder.place))["programs"] == [
        ("mine", "my.module:answer", ""),
        ("debate", 'Debate {"agents": 3}', "participant: a/x; judge: b/y"),
    ]


def test_the_scores_of_liveideabench_have_a_table(evaluated: Build) -> None:
    folder = evaluated(value=lambda m, q, r, j: {"Q1": 4.0, "Q2": 6.0, "Q3": 8.0}[q])
    content = json.loads((folder.place / "evaluation.json").read_text())
    content["benchmark"]["rubric"]["name"] = "liveideabench"
    (folder.place / "evaluation.json").write_text(json.dumps(content))
    grades = {"Q1": 10.0, "Q2": 7.0, "Q3": None}
    folder.write("similar.jsonl", [
        {"method": m, "query": q, "run_a": 1, "run_b": 2, "judge": "judge/a", "grade": "A", "score": grades[q],
         "error": "" if grades[q] else "it said nothing"}
        for m in folder.methods for q in folder.queries
    ])  # fmt: skip
    results = Results.load(folder.place)
    found = results.liveidea["debate"]
    assert (found.originality.value, found.feasibility.value, found.clarity.value) == pytest.approx((5.5, 6.5, 6.0))
    assert (found.fluency.value, found.fluency.n) == (8.5, 2)
    assert found.flexibility.value == pytest.approx(5.2)  # 60 % of the way from 4 to 6
    assert found.overall.value == pytest.approx((5.5 + 6.5 + 6 + 8.5 + 5.2) / 5)
    text = text_of(page_of(folder))
    row = f"debate 5.50 [{found.originality.low:.2f}, {found.originality.high:.2f}] (12) 6.50"
    assert row in text
    assert "8.50 [7.00, 10.00] (2)" in text
    assert "| debate | 5.50 [" in results.markdown()
    assert results.similar["score"].isna().sum() == 2


def test_bad_judges_are_exposed(evaluated: Build) -> None:
    draw = random.Random(0)
    values = {
        "seven": lambda m, q, r: 7.0,
        "random": lambda m, q, r: draw.uniform(1, 10),
        "fair": lambda m, q, r: 2.0 + int(q[1]) / 2 + r / 3,
        "fair too": lambda m, q, r: 1.0 + int(q[1]) / 2 + r / 4,
    }
    folder = evaluated(
        texts=[f"Topic {n}" for n in range(9)], judges=tuple(values), value=lambda m, q, r, j: values[j](m, q, r)
    )
    folder.write("pairs.jsonl", [
        {"query": q, "run": 1, "a": "direct", "b": "debate", "judge": "fair", "forward": 1.0, "backward": 0.0,
         "score": 0.5, "log_odds": None, "error": ""}
        for q in folder.queries
    ])  # fmt: skip
    text = text_of(page_of(folder))
    assert "seven gives 7 in 100 % of 72 ratings: it hardly tells answers apart." in text
    assert "That random ranks answers as the other judges do is not shown" in text
    assert "fair prefers the answer that stands first (1.00, 95 % 0.82 to 1.00, n = 18; 0.50 is no preference)" in text
    assert "fair gives" not in text
    assert "That fair too ranks" not in text
    assert "Krippendorff's alpha of the judges" in text


def test_many_queries_are_folded_and_long_answers_too(evaluated: Build) -> None:
    folder = evaluated(
        texts=[f"Topic {n}" for n in range(60)], runs=2, answer=lambda m, q, r: f"{m} {q} {r} " + "word " * 400
    )
    page = page_of(folder)
    assert "35 more" in page
    assert page.count("<details><summary>") == 10
    assert len(re.findall(r'<th scope="row"><span class="id">', page)) == 60


def test_hostile_texts_stay_texts(evaluated: Build, hostile: Session) -> None:
    texts = [text for entity in hostile.entities.values() if (text := wording(entity)).strip()]
    draw = iter(itertools.cycle(texts))
    folder = evaluated(
        methods=tuple(dict.fromkeys(("direct", *texts[:3]))), texts=texts, runs=2, answer=lambda m, q, r: next(draw),
        failed=lambda m, q, r: texts[0] if (q, r) == ("Q2", 1) else "",
        models={"direct": {texts[1]: {"model": texts[0]}}},
    )  # fmt: skip
    folder.compare(lambda a, b, q, r: 0.5)
    page = page_of(folder)
    assert page.count("<script") == 1
    assert not re.search(r"<(img|iframe|object|embed|form|b>html)", page)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\ud800-\udfff]", page)
    assert not re.findall(r"(?:src|href)=[\"'](?!#|data:)[^\"']*", page)


# ---------------------------------------------------------------- the command


def test_the_command_writes_the_page_of_an_evaluation(full: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(full.place)]) == 0
    page = full.place / "report.html"
    assert capsys.readouterr().out.strip() == str(page)
    assert "3 methods compared" in page.read_text()


def test_the_command_writes_where_it_is_told(full: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(full.place), "--out", str(tmp_path / "new" / "page.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(tmp_path / "new" / "page.html")}
    assert (tmp_path / "new" / "page.html").exists()
    assert not (full.place / "report.html").exists()


def test_an_evaluation_is_reported_alone(full: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(full.place), str(tmp_path)]) == 2
    assert "is an evaluation: its report is a page of its own" in capsys.readouterr().err


def test_a_damaged_evaluation_is_told_in_one_line(full: Any, capsys: pytest.CaptureFixture[str]) -> None:
    content = (full.place / "jobs.jsonl").read_text().splitlines(keepends=True)
    (full.place / "jobs.jsonl").write_text("".join([content[0], "nonsense\n", *content[1:]]))
    assert main(["report", str(full.place)]) == 1
    error = capsys.readouterr().err
    assert "jobs.jsonl is damaged: line 2" in error
    assert error.count("\n") == 1


def test_a_place_that_cannot_be_written(full: Any) -> None:
    (full.place / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_evaluation_page(Results.load(full.place), full.place / "file")
