"""The duration study: matched sessions, resumed without loss, and findings that say no more than they may."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from salon.evals.conditions import Condition
from salon.evals.findings import figures, findings, study_markdown, study_page
from salon.evals.statistics import Correlation, Interval
from salon.evals.study import STUDIED, Cell, Study, study_conditions, study_duration
from salon.modules import Roundtable
from salon.modules.budget import Budget, Usage

from salon.errors import CallFailure, OutputError, RunFailure, UserError
from salon.testing import Fault, LoopbackProcess, LoopbackServer

PEOPLE = [{"name": name, "sketch": f"Sketch of seat P{n}."} for n, name in enumerate(("Ann", "Bo", "Cy"), 1)]


def newest(call: Any) -> dict[str, Any]:
    """Cite the newest remark or idea."""
    return {"cites": re.findall(r"^([CI]\d+) ", call.section("transcript"), re.M)[-1:]}


CITING = dict.fromkeys(("think", "speak", "propose"), newest)
SPOKEN = {**CITING, "speak": lambda call: {**newest(call), "comment": f"{call.mark} " + "word " * 60}}


def study(server: LoopbackServer, out: Path, judged: bool = True, **settings: Any) -> Study:
    lm = server.lm(num_retries=0, cache=False)
    made = {name: settings.pop(name) for name in ("personas", "ideas", "votes", "facilitator") if name in settings}
    given = {"personas": PEOPLE, "ideas": 1, "votes": 1, "facilitator": False, **made}
    program = Roundtable(lms={"participant": lm, "facilitator": lm}, **given)
    plan = {"minutes": (0, 0.5), "sessions": 1, "judge": lm if judged else None, **settings}
    return asyncio.run(study_duration(plan.pop("topic", "Tea"), out, program, **plan))


def joined(root: Path) -> list[list[dict[str, Any]]]:
    found = []
    for log in sorted(root.glob("citations-*/**/session.jsonl")):
        records = [json.loads(line) for line in log.read_text().splitlines()]
        found.append([r for r in records if r.get("type") == "joined"])
    return found


# ---------------------------------------------------------------- the whole


def test_a_study_holds_every_condition_with_the_same_seeds_and_people(
    scripted: Callable[..., Any], worded: None, tmp_path: Path
) -> None:
    lines: list[str] = []
    with LoopbackServer(reply=scripted(**CITING)) as server:
        found = study(server, tmp_path, seed=5, sessions=2, tell=lines.append)
        assert found.usage.calls == server.count
    assert found.seeds == [5, 6]
    assert found.personas == ["Ann", "Bo", "Cy"]
    assert [(r["citations"], r["minutes"], r["seed"]) for r in found.rows] == [
        (kind, minutes, seed) for kind in ("required", "optional") for minutes in (0, 0.5) for seed in (5, 6)
    ]
    people = joined(tmp_path)
    assert len(people) == 8
    assert all(seats == people[0] for seats in people)
    assert [(c.citations, c.minutes, c.failed, c.early) for c in found.cells] == [
        (kind, minutes, 0, 0) for kind in ("required", "optional") for minutes in (0, 0.5)
    ]
    assert all(cell.means[m].n == 2 for cell in found.cells for m in ("depth", "distance", "quality"))
    assert set(found.correlations) == {"required", "optional"}
    assert all(set(c) == set(STUDIED) for c in found.correlations.values())
    assert found.models == dict.fromkeys(("participant", "facilitator", "judge"), f"openai/{server.model}")
    assert any("8 of 8 sessions" in line for line in lines)
    kept = json.loads((tmp_path / "study.json").read_text())
    assert kept["correlations"]["required"]["depth"]["n"] == 4
    assert "rows" not in kept
    rows = list(csv.DictReader((tmp_path / "sessions.csv").open()))
    assert [list(row) for row in rows] == [list(found.rows[0])] * 8
    assert [int(row["calls"]) for row in rows] == [row["calls"] for row in found.rows]
    frame = found.to_frame()
    assert len(frame) == 8
    assert list(frame["quality"]) == [6.0] * 8
    assert found.rows[0]["citations_each"] is None  # without a talk there is nothing to cite
    assert found.rows[2]["citations_each"] > 0


def test_longer_talks_of_a_model_that_cites_are_deeper(
    scripted: Callable[..., Any], worded: None, tmp_path: Path
) -> None:
    with LoopbackServer(reply=scripted(**SPOKEN)) as server:
        found = study(server, tmp_path, judged=False, minutes=(0, 1, 2), citations=("required",), sessions=2)
    depth, absorption = (found.correlations["required"][m] for m in ("depth", "absorption"))
    assert depth.r is not None
    assert absorption.r is not None
    assert depth.r > 0.8
    assert absorption.r > 0.5
    means = [cell.means["depth"].value for cell in found.cells]
    assert means == sorted(means, key=lambda v: v or 0)
    assert found.correlations["required"]["quality"] == Correlation(None, None, None, None, 0, "fewer than three pairs")
    said = findings(found)[0]
    assert said.startswith("Citations required: There are signs that influence depth rises with minutes (r = +")
    assert said.endswith("6 sessions); but 6 are few.")
    assert not any("quality" in sentence for sentence in findings(found))


def test_citations_that_come_on_demand_alone_are_found_out(
    scripted: Callable[..., Any], worded: None, tmp_path: Path
) -> None:
    def obedient(call: Any) -> dict[str, Any]:
        cited = newest(call) if "name what you build on" in call.text else {"cites": []}
        return {**cited, **({"comment": f"{call.mark} " + "word " * 60} if call.kind == "speak" else {})}

    replies = dict.fromkeys(("think", "speak", "propose"), obedient)
    with LoopbackServer(reply=scripted(**replies)) as server:
        found = study(server, tmp_path, judged=False, minutes=(0, 1, 2), sessions=2)
    assert found.correlations["optional"]["depth"].undefined == "one of the two does not vary"
    said = findings(found)
    assert "no growth is shown where it is optional: the growth may be made by the prompt." in said[-1]
    assert said[-1].endswith(" But 6 sessions are few.")
    assert "Citations optional: Influence depth against minutes is undefined (one of the two does not vary)." in said


def test_one_session_of_one_duration(scripted: Callable[..., Any], worded: None, tmp_path: Path) -> None:
    with LoopbackServer(reply=scripted(**CITING)) as server:
        found = study(server, tmp_path, minutes=(0,), sessions=1, citations=("off",), ideas=0)
    (told,) = found.rows
    assert (told["status"], told["ideas"], told["quality"], told["rated"]) == ("complete", 0, None, 0)
    assert found.correlations["off"]["depth"].undefined == "fewer than three pairs"
    assert "not studied both with and without" in findings(found)[-1]
    assert figures(found) == []
    study_page(found, tmp_path)
    assert "| off | 0 | – |" in study_markdown(found)


# ---------------------------------------------------------------- personas


def test_invented_personas_are_made_once(scripted: Callable[..., Any], worded: None, tmp_path: Path) -> None:
    model = scripted(**CITING)
    with LoopbackServer(reply=model) as server:
        found = study(server, tmp_path, personas=3, minutes=(0,), sessions=1)
        assert len(model.of("cast")) == 1
        assert len(model.of("sketch")) == 3
        assert found.usage.calls == server.count
        again = study(server, tmp_path, personas=3, minutes=(0,), sessions=2)
        assert len(model.of("cast")) == 1
    assert found.personas == again.personas == ["Guest1", "Guest2", "Guest3"]
    people = joined(tmp_path)
    assert len(people) == 4
    assert all(seats == people[0] for seats in people)


def test_personas_that_failed_are_made_when_the_study_is_run_again(
    scripted: Callable[..., Any], worded: None, tmp_path: Path
) -> None:
    model = scripted(**CITING)
    with LoopbackServer(reply=model, faults={3: Fault(500)}) as server:
        with pytest.raises(RunFailure, match=r"Only 2 of 3 personas could be made.*Run it again"):
            study(server, tmp_path, personas=3)
        assert server.count == 4
        found = study(server, tmp_path, personas=3)
        assert len(model.of("cast")) == 1
    assert found.personas == ["Guest1", "Guest2", "Guest3"]


def test_a_budget_bounds_inventing_too(scripted: Callable[..., Any], worded: None, tmp_path: Path) -> None:
    with LoopbackServer(reply=scripted(**CITING)) as server:
        with pytest.raises(RunFailure, match="personas could be made"):
            study(server, tmp_path, personas=3, budget=Budget(calls=2))
        assert server.count == 2


# ---------------------------------------------------------------- going on


def test_a_study_is_not_paid_for_twice_and_can_be_widened(
    scripted: Callable[..., Any], worded: None, tmp_path: Path
) -> None:
    with LoopbackServer(reply=scripted(**CITING)) as server:
        small: dict[str, Any] = {"minutes": (0,), "sessions": 1}
        first = study(server, tmp_path, **small)
        count, table = server.count, (tmp_path / "sessions.csv").read_bytes()
        again = study(server, tmp_path, **small)
        assert server.count == count
        assert (tmp_path / "sessions.csv").read_bytes() == table
        assert again.rows == first.rows
        assert again.usage.calls == count
        wider = study(server, tmp_path, minutes=(0, 0.3), sessions=2, citations=("required", "optional", "off"))
    assert len(wider.rows) == 12
    assert [r for r in wider.rows if r in first.rows] == first.rows


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"topic": "Coffee"}, "it has another topic"),
        ({"ideas": 2}, "it has other settings"),
        ({"personas": PEOPLE[:2]}, "it has other settings"),
        ({"personas": 4}, "it has other settings"),
        ({"seed": 3, "personas": 3}, "it has another seed"),
    ],
)
def test_another_study_in_the_folder_is_told(
    scripted: Callable[..., Any], worded: None, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    invented = {"personas": 3} if isinstance(changes.get("personas"), int) else {}
    with LoopbackServer(reply=scripted(**CITING)) as server:
        study(server, tmp_path, **invented)
        count = server.count
        with pytest.raises(OutputError, match=f"holds another session: {told}"):
            study(server, tmp_path, **{**invented, **changes})
        assert server.count == count


def test_another_model_or_judge_is_not_mixed_in(scripted: Callable[..., Any], worded: None, tmp_path: Path) -> None:
    with LoopbackServer(reply=scripted(**CITING), model="one") as server:
        study(server, tmp_path)
    with LoopbackServer(reply=scripted(**CITING), model="two") as other:
        with pytest.raises(OutputError, match="participant openai/one and not openai/two"):
            study(other, tmp_path)
        assert other.count == 0


# ---------------------------------------------------------------- failures


def test_a_session_that_fails_is_a_row_with_a_reason(
    scripted: Callable[..., Any], worded: None, tmp_path: Path
) -> None:
    with LoopbackServer(reply=scripted(**CITING)) as server:
        study(server, tmp_path, sessions=2)
        log = Condition({"citations": "required", "minutes": 0}, 0).folder(tmp_path) / "session.jsonl"
        records = [json.loads(line) for line in log.read_text().splitlines()][:-1]
        next(r for r in records if r.get("type") == "joined")["label"] = "=cmd()"
        log.write_text("".join(json.dumps(r) + "\n" for r in records))
        found = study(server, tmp_path, sessions=2)
    assert [r["status"] for r in found.rows] == ["failed", *["complete"] * 7]
    assert "cannot be run over its log" in found.rows[0]["reason"]
    assert found.cells[0].failed == 1
    assert found.cells[0].means["depth"].n == 1
    assert found.correlations["required"]["depth"].n == 3
    assert "1 of 8 sessions have no result and are left out." in findings(found)
    study_page(found, tmp_path)
    rows = list(csv.DictReader((tmp_path / "sessions.csv").open()))
    assert rows[0]["depth"] == ""
    assert rows[1]["depth"] != ""


def test_sessions_that_ended_early_are_told(scripted: Callable[..., Any], worded: None, tmp_path: Path) -> None:
    with LoopbackServer(reply=scripted(**CITING)) as server:
        found = study(server, tmp_path, judged=False, budget=Budget(calls=7))
    early = [r for r in found.rows if r["status"] != "complete"]
    assert early
    assert {r["minutes"] for r in early} == {0.5}
    assert f"{len(early)} of 4 sessions ended before their time and count all the same." in findings(found)


def test_no_result_at_all_is_a_failure_and_a_bad_key_stops_it(
    scripted: Callable[..., Any], worded: None, tmp_path: Path
) -> None:
    with LoopbackServer(reply=scripted(), faults=lambda _: Fault(401)) as server, pytest.raises(CallFailure):
        study(server, tmp_path, max_concurrency=1)
    assert server.count == 1


def test_without_ratings_there_is_no_quality(scripted: Callable[..., Any], worded: None, tmp_path: Path) -> None:
    faults = lambda r: Fault(500) if "originality" in r.fields else None  # noqa: E731
    with LoopbackServer(reply=scripted(**CITING), faults=faults) as server:
        found = study(server, tmp_path)
        assert all((r["quality"], r["rated"]) == (None, 0) for r in found.rows)
        server.settings.faults = {}
        found = study(server, tmp_path)
        assert all((r["quality"], r["rated"]) == (6.0, 3) for r in found.rows)


# ---------------------------------------------------------------- what cannot work


@pytest.mark.parametrize(
    "wrong",
    [
        {"minutes": ()}, {"minutes": (5, 5)}, {"minutes": (0, 5.0, 5)}, {"minutes": (-1,)}, {"minutes": (241,)},
        {"minutes": (float("nan"),)}, {"minutes": (float("inf"),)}, {"sessions": 0}, {"sessions": -2},
        {"sessions": True}, {"sessions": 1.5}, {"citations": ()}, {"citations": ("off", "off")},
        {"citations": ("maybe",)}, {"seed": "x"}, {"max_concurrency": 0}, {"topic": ""}, {"topic": "x" * 100_000},
    ],
)  # fmt: skip
def test_settings_that_cannot_work_are_told_before_anything_is_spent(
    scripted: Callable[..., Any], tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with LoopbackServer(reply=scripted()) as server, pytest.raises(UserError) as caught:
        study(server, tmp_path / "study", personas=3, **wrong)
    assert server.count == 0
    assert not (tmp_path / "study").exists()
    assert "\n" not in str(caught.value)


def test_conditions_are_all_combinations_in_order() -> None:
    found = study_conditions((0, 2.5), ("required", "off"), (7, 8))
    assert [(c.factors["citations"], c.factors["minutes"], c.seed) for c in found][:3] == [
        ("required", 0, 7), ("required", 0, 8), ("required", 2.5, 7),
    ]  # fmt: skip
    assert len({c.folder(Path("x")) for c in found}) == len(found) == 8


# ---------------------------------------------------------------- kill -9

_STUDY = """
import asyncio, sys
import dspy, numpy as np
from hashlib import sha256
from salon.evals.study import study_duration
from salon.modules import Embedder, Roundtable

def spread(texts):
    seeds = [int.from_bytes(sha256(t.encode()).digest()[:8], "big") for t in texts]
    return np.stack([np.random.default_rng(s).normal(size=64) for s in seeds])

Embedder._encoder = lambda _: spread
model, base, out = sys.argv[1:]
lm = dspy.LM(model, api_base=base, api_key="sk-secret-of-the-study", num_retries=0, cache=False)
people = [{"name": n, "sketch": f"Sketch of {n}."} for n in ("Ann", "Bo", "Cy")]
program = Roundtable(personas=people, ideas=1, votes=1, facilitator=False, lms={"participant": lm, "facilitator": lm})
asyncio.run(study_duration("Tea", out, program, minutes=(0, 0.4), sessions=2, judge=lm, max_concurrency=4))
"""


def start(server: LoopbackProcess, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _STUDY, f"openai/{server.model}", server.base_url, str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})


def answered(root: Path) -> int:
    """Count the calls on file that brought an answer."""
    logs = [*root.rglob("session.jsonl"), *root.rglob("calls.jsonl")]
    return sum(log.read_text().count('"kind":"call"') for log in logs)


def timeless(path: Path) -> list[dict[str, str]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(path.open())]


def test_a_study_that_was_killed_repeats_no_call_and_ends_the_same(tmp_path: Path) -> None:
    with LoopbackProcess(seed=3, delay=0.02, model="steady") as server:
        process = start(server, tmp_path / "whole")
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert "Warning" not in errors
        total = server.count
        assert total == answered(tmp_path / "whole")
        server.reset()
        process = start(server, tmp_path / "killed")
        while answered(tmp_path / "killed") < total // 3 and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        on_file = answered(tmp_path / "killed")
        assert total // 3 <= on_file < total
        assert not (tmp_path / "killed" / "sessions.csv").exists()
        time.sleep(0.3)  # requests in flight die with their client
        server.reset()
        process = start(server, tmp_path / "killed")
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        torn = total - on_file - server.count  # a call on file may be a torn last line
        assert -4 <= torn <= 0
    assert timeless(tmp_path / "killed" / "sessions.csv") == timeless(tmp_path / "whole" / "sessions.csv")
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or "sk-secret-of-the-study" not in path.read_text(errors="replace")


# ---------------------------------------------------------------- findings and page


def a_study(depth: dict[str, Correlation], **changes: Any) -> Study:
    flat = Correlation(0.1, 0.7, -0.5, 0.6, 20)
    none = Correlation(None, None, None, None, 0, "fewer than three pairs")
    found = {
        kind: {"depth": c, "absorption": flat, "distance": flat, "vendi": flat, "quality": none}
        for kind, c in depth.items()
    }
    value = Interval(1.0, 0.5, 1.5, 2)
    cells = [Cell(m, kind, dict.fromkeys(STUDIED, value), 0, 0) for kind in depth for m in (0.0, 5.0)]
    row = {"citations": "required", "minutes": 5, "seed": 20261130, "reason": "", "depth": 1.23456, "calls": 12345}
    study = Study("Tea", ["Ann"], [0, 5], [0], cells, found, {"participant": "m"}, Usage(), [row])
    return replace(study, **changes)


RISES, FALLS = Correlation(0.8, 0.001, 0.5, 0.9, 20), Correlation(-0.8, 0.001, -0.9, -0.5, 20)
LEVEL = Correlation(0.1, 0.7, -0.5, 0.6, 20)
STILL = Correlation(None, None, None, None, 20, "one of the two does not vary")
FEW = Correlation(None, None, None, None, 2, "fewer than three pairs")


@pytest.mark.parametrize(
    ("required", "optional", "told"),
    [
        (RISES, RISES, "Depth grows also where citing is optional, so the demand alone does not explain it"),
        (RISES, LEVEL, "no growth is shown where it is optional: the growth may be made by the prompt"),
        (RISES, FALLS, "no growth is shown where it is optional"),
        (RISES, STILL, "no growth is shown where it is optional"),
        (LEVEL, RISES, "Depth grows where citing is optional, and no growth is shown where it is demanded"),
        (LEVEL, LEVEL, "No growth of depth is shown, so there is nothing to explain"),
        (FALLS, FALLS, "No growth of depth is shown"),
        (STILL, STILL, "No growth of depth is shown"),
        (FEW, FEW, "Too few sessions to compare"),
        (RISES, FEW, "Too few sessions to compare"),
    ],
)
def test_what_is_concluded_of_influence(required: Correlation, optional: Correlation, told: str) -> None:
    said = findings(a_study({"required": required, "optional": optional}))
    assert told in said[-1]
    assert "that a longer talk has more to cite still might" in said[-1] or (required, optional) != (RISES, RISES)


@pytest.mark.parametrize("kinds", [("required",), ("optional",), ("off",), ("required", "off"), ("optional", "off")])
def test_one_way_of_citing_tells_nothing_of_obedience(kinds: tuple[str, ...]) -> None:
    said = findings(a_study(dict.fromkeys(kinds, RISES)))
    assert "Depth was not studied both with and without the demand for citations" in said[-1]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (RISES, "rises with minutes (r = +0.80, 95 % 0.50 to 0.90, p = 0.001, 20 sessions)."),
        (FALLS, "falls with minutes (r = -0.80, 95 % -0.90 to -0.50, p = 0.001, 20 sessions)."),
        (LEVEL, "shows no clear trend with minutes (r = +0.10, 95 % -0.50 to 0.60, p = 0.7, 20 sessions)."),
        (STILL, "against minutes is undefined (one of the two does not vary)."),
        (Correlation(0.9, 0.2, None, None, 3), "shows no clear trend with minutes (r = +0.90, p = 0.2, 3 sessions)."),
        (Correlation(1.0, 0.0, None, None, 9), "rises with minutes (r = +1.00, p = 0, 9 sessions)."),
    ],
)
def test_trends_are_told_with_their_numbers(found: Correlation, told: str) -> None:
    said = findings(a_study({"required": found}))
    assert said[0] == f"Citations required: Influence depth {told}"
    assert not any("quality" in sentence for sentence in said)


HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)> {{ 7*7 }} \ud800 \x00'


def test_hostile_texts_are_inert_on_the_page(tmp_path: Path) -> None:
    row = {"citations": "required", "minutes": 5, "seed": 20261130, "reason": HOSTILE, "depth": None, "calls": 12345}
    hostile = a_study({"required": RISES}, topic=HOSTILE, personas=[HOSTILE], models={HOSTILE: HOSTILE}, rows=[row])
    path = study_page(hostile, tmp_path)
    page = path.read_text(encoding="utf-8")
    assert page.count("<script") == 1  # the page's own
    assert "<img" not in page
    assert "alert(1)" in page
    assert "&lt;script&gt;" in page
    assert "{{ 7*7 }}" in page
    assert not re.search(r"(?:src|href)=[\"'](?!#|data:)", page)
    assert ">20261130<" in page  # a seed is a name, not a quantity
    assert "\ud800" not in page


def test_the_page_shows_every_session_and_mean(scripted: Callable[..., Any], worded: None, tmp_path: Path) -> None:
    with LoopbackServer(reply=scripted(**CITING)) as server:
        found = study(server, tmp_path)
    page = study_page(found, tmp_path).read_text()
    assert page.count("<figure") == sum(any(c.means[m].value is not None for c in found.cells) for m in STUDIED)
    assert page.count("<tr>") == (1 + 4) + (1 + 4)
    for sentence in findings(found):
        assert sentence.replace("'", "&#39;") in page
    told = study_markdown(found)
    assert told.count("\n| required |") == told.count("\n| optional |") == 2
    assert "Cost: " in told


def test_a_table_is_safe_in_a_spreadsheet(
    scripted: Callable[..., Any], worded: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from salon.modules.session import Session

    monkeypatch.setattr(Session, "__post_init__", _with_reason(Session.__post_init__))
    with LoopbackServer(reply=scripted(**CITING)) as server:
        study(server, tmp_path, minutes=(0,), sessions=1)
        found = study(server, tmp_path, minutes=(0,), sessions=1)
    assert found.rows[0]["reason"] == "=HYPERLINK(1)\ud800"
    cell = next(csv.DictReader((tmp_path / "sessions.csv").open()))["reason"]
    assert cell.startswith("'=HYPERLINK(1)")


def _with_reason(before: Callable[[Any], None]) -> Callable[[Any], None]:
    """Give sessions that are read from file a hostile reason."""

    def after(self: Any) -> None:
        before(self)
        if self.reason:
            self.reason = "=HYPERLINK(1)\ud800"

    return after
