"""Ablations: what each set of methods is, and their tables against the means of the result."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from salon.evals.ablations import ABLATIONS, ablation, ablation_table
from salon.evals.results import Results
from salon.modules import Debate, Embedder
from salon.modules.baselines import Direct

from salon import UserError
from salon.testing import LoopbackServer

Build = Callable[..., Any]


def settings_of(name: str, **settings: Any) -> dict[str, dict[str, Any]]:
    return {key: program.settings() for key, program in ablation(name, **settings).items()}


def test_k_runs_from_one_to_all_others() -> None:
    assert {name: s["k"] for name, s in settings_of("k").items()} == {f"k{k}": k for k in (1, 2, 3, 4)}
    assert list(ablation("k", agents=3)) == ["k1", "k2"]
    with pytest.raises(UserError, match="an agent alone is shown no answer"):
        ablation("k", agents=1)


def test_numbers_of_agents_and_rounds() -> None:
    assert [s["agents"] for s in settings_of("agents").values()] == [3, 5, 7]
    assert {s["k"] for s in settings_of("agents").values()} == {2}
    assert [s["rounds"] for s in settings_of("rounds").values()] == [0, 1, 2, 3]


def test_ways_to_select_peers() -> None:
    made = settings_of("peers")
    assert [s["peers"] for s in made.values()] == list(made) == ["farthest", "random", "closest", "all"]


def test_ways_to_think() -> None:
    made = settings_of("lenses")
    assert [len(s["lenses"]) for s in made.values()] == [0, 5, 0]
    assert [len(s["personas"]) for s in made.values()] == [0, 0, 5]
    assert {s["peers"] for s in made.values()} == {"farthest"}


def test_components_are_added_one_by_one() -> None:
    made = ablation("components")
    assert isinstance(made["direct"], Direct)
    debates = {name: program.settings() for name, program in made.items() if isinstance(program, Debate)}
    assert {name: (bool(s["lenses"]), s["peers"]) for name, s in debates.items()} == {
        "homogeneous": (False, "all"), "lens-only": (True, "all"), "selection-only": (False, "farthest"),
        "debate": (True, "farthest"),
    }  # fmt: skip


@pytest.mark.parametrize("name", ABLATIONS)
def test_methods_differ_in_what_is_varied_alone(name: str) -> None:
    shared = Embedder()
    made = ablation(name, embedder=shared, max_concurrency=3)
    assert all(program.embedder is shared and program.max_concurrency == 3 for program in made.values())
    debates = [program.settings() for program in made.values() if isinstance(program, Debate)]
    differing = {key for key in debates[0] if any(s[key] != debates[0][key] for s in debates)}
    assert differing <= set(ABLATIONS[name].varied)
    assert len({str(sorted(s.items())) for s in debates}) == len(debates)


@pytest.mark.parametrize("name", ABLATIONS)
def test_what_an_ablation_varies_cannot_be_set(name: str) -> None:
    varied = next(iter(ABLATIONS[name].varied))
    with pytest.raises(UserError, match=f"{varied} cannot be set"):
        ablation(name, **{varied: 3})


def test_an_unknown_ablation() -> None:
    for call in (lambda: ablation("colour"), lambda: ablation_table([], "colour")):
        with pytest.raises(UserError, match="Give one of components, lenses, peers, k, agents, rounds"):
            call()


def test_settings_of_debates_reach_all_debates() -> None:
    assert {s["rounds"] for s in settings_of("peers", rounds=1, agents=3).values()} == {1}
    with pytest.raises(UserError):
        ablation("peers", agents=99)


@pytest.mark.parametrize("name", ["components", "peers", "k", "rounds"])
def test_methods_can_be_run(name: str, loopback: LoopbackServer, quick_embeddings: None) -> None:
    lm = loopback.lm(cache=False)
    for method, program in ablation(name, **({} if name == "agents" else {"agents": 3})).items():
        program.lms = {"participant": lm, "judge": lm}
        session = asyncio.run(program.hold(task="Use old umbrellas", seed=1))
        assert session.status == "complete", method
        assert program.answer(session)


# ---------------------------------------------------------------- tables


def cells(text: str) -> list[list[str]]:
    rows = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("| ---")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


@pytest.mark.usefixtures("worded")
@pytest.mark.parametrize("name", ABLATIONS)
def test_the_table_of_one_benchmark(name: str, evaluated: Build) -> None:
    made = list(ablation(name))
    results = Results.load(evaluated(methods=made, texts=[f"Topic {n}" for n in range(9)]).place)
    text = ablation_table(results, name)
    head, *rows = cells(text)
    assert head[1:] == ["Vendi score", "quality x10", "tokens each", "failed"]
    assert len(rows) == len(made)
    for row, found in zip(rows, results.methods.to_dict("records"), strict=True):
        assert row[1] == f"{found['vendi']:.2f} [{found['vendi_low']:.2f}, {found['vendi_high']:.2f}] (9)"
        ends = f"[{10 * found['quality_low']:.1f}, {10 * found['quality_high']:.1f}]"
        assert row[2] == f"{10 * found['quality']:.1f} {ends} (9)"
        assert row[3] == f"{found['tokens_each']:,.0f}"
    assert "9 queries x 4 runs, judged by judge/a." in text
    assert "few" not in text


@pytest.mark.usefixtures("worded")
def test_the_table_of_several_benchmarks_has_a_column_each(evaluated: Build) -> None:
    made = list(ablation("components"))
    first = Results.load(evaluated(methods=made).place)
    second = Results.load(evaluated(methods=made[:3], value=lambda m, q, r, j: 7.0).place)
    text = ablation_table([first, second], "components")
    head, *rows = cells(text)
    assert head == ["method", "topics", "topics"]
    assert [row[0] for row in rows] == [
        "Direct", "Homogeneous debate", "Lenses only", "Selection only", "Lenses and selection"
    ]  # fmt: skip
    for at, row in enumerate(rows):
        vendi, quality = row[1].split(" / ")
        assert vendi.startswith(f"{first.methods.iloc[at]['vendi']:.2f} [")
        assert quality.startswith(f"{10 * first.methods.iloc[at]['quality']:.1f} [")
        assert row[2].endswith("/ 70.0 [70.0, 70.0] (3)") if at < 3 else row[2] == "–"
    assert text.count("which is few: take differences as signs") == 2


@pytest.mark.usefixtures("worded")
def test_methods_without_answers_and_methods_not_run(evaluated: Build) -> None:
    folder = evaluated(methods=("farthest", "closest"), failed=lambda m, q, r: "no" if m == "closest" else "")
    text = ablation_table(Results.load(folder.place), "peers")
    rows = {row[0]: row[1:] for row in cells(text)}
    assert rows["Closest"] == ["–", "–", "–", "12"]
    assert rows["Random"] == ["–", "–", "–", "–"]
    assert "12 jobs failed; no quality is put in their place." in text
    assert not re.search(r"nan|None", text)


@pytest.mark.usefixtures("worded")
def test_more_agents_have_more_rows_of_k(evaluated: Build) -> None:
    folder = evaluated(methods=tuple(ablation("k", agents=8)))
    assert [row[0] for row in cells(ablation_table(Results.load(folder.place), "k"))[1:]] == [
        f"k = {k}" for k in range(1, 8)
    ]


@pytest.mark.usefixtures("worded")
def test_a_result_of_something_else(evaluated: Build, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing of the ablation 'rounds'"):
        ablation_table(Results.load(evaluated().place), "rounds")
