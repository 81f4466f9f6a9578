"""Bad judges are exposed: one that always says 7, one that is random, one that prefers the first place."""

from __future__ import annotations

import asyncio
import json
import random
import re
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from math import log2
from typing import Any

import numpy as np
import pytest
from salon.data.rubrics import RUBRICS
from salon.evals.diagnostics import Diagnosis, diagnose
from salon.evals.judge_findings import judge_findings
from salon.evals.judges import RubricJudge
from salon.evals.ledger import Ledger, together
from scipy import stats

from salon.testing import ChatRequest, Fault, LoopbackServer

RUBRIC = RUBRICS["ideas"]
ANSWERS = 40


def worth(request: ChatRequest) -> int:
    """What the answer that a judge is shown is worth, as it says itself."""
    (found,) = re.findall(r"worth (\d+)", request.text)
    return int(found)


def saying(score: Callable[[ChatRequest], int]) -> Callable[[ChatRequest], dict[str, Any]]:
    def reply(request: ChatRequest) -> dict[str, Any]:
        value = score(request)
        return {"reason": "so", **{dimension.name: value for dimension in RUBRIC.dimensions}}

    return reply


def fair(request: ChatRequest) -> int:
    return worth(request)


def severe(request: ChatRequest) -> int:
    return max(1, worth(request) - 2 + zlib.crc32(request.text.encode()) % 2)


def sevens(request: ChatRequest) -> int:
    return 7


def erratic(request: ChatRequest) -> int:
    return 1 + zlib.crc32(f"dice {request.text}".encode()) % 10


def forgetful() -> Callable[[ChatRequest], int]:
    draw = random.Random(3)
    return lambda request: draw.randint(1, 10)


def panelled(*scores: Callable[[ChatRequest], int], repeats: int = 1, faults: Any = None) -> list[dict[str, Any]]:
    """Have answers rated through HTTP by a panel of these judges; return rows as an evaluation has them."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(LoopbackServer(reply=saying(score), model=f"m{n}", faults=faults))
            for n, score in enumerate(scores)
        ]
        judge = RubricJudge(RUBRIC, [server.lm(num_retries=0, cache=False) for server in servers])
        ledger = stack.enter_context(Ledger(None, "quality", judge.lms, temperature=0.0))

        async def one(n: int) -> dict[str, Any]:
            text = f"Idea {n} is worth {1 + n % 10}."
            rated = await together(judge.rate(ledger, f"{n}.{again}", "Tea", text) for again in range(repeats))
            ratings = [asdict(rating) for ratings in rated for rating in ratings]
            return {"method": "m", "query": f"q{n // 4}", "run": n % 4, "ratings": ratings}

        async def all_of() -> list[dict[str, Any]]:
            return await together(one(n) for n in range(ANSWERS))

        return asyncio.run(all_of())


def paired(better: Callable[[ChatRequest], Any]) -> list[dict[str, Any]]:
    """Have pairs of answers compared through HTTP by a judge; return rows as an evaluation has them."""
    with LoopbackServer(reply=better, model="m0") as server:
        judge = RubricJudge(RUBRIC, [server.lm(num_retries=0, cache=False)])

        async def all_of() -> list[Any]:
            texts = [(f"Worth {1 + n % 10}.", f"Worth {1 + (n * 7 + 3) % 10}.") for n in range(ANSWERS)]
            return await together(judge.prefer(ledger, f"{n}", f"Tea {n}", a, b) for n, (a, b) in enumerate(texts))

        with Ledger(None, "comparing", judge.lms, temperature=0.0) as ledger:
            return [asdict(found) for found in asyncio.run(all_of())]


def told(diagnosis: Diagnosis) -> str:
    return "\n".join(judge_findings(diagnosis))


# ---------------------------------------------------------------- bad judges through HTTP


def test_fair_judges_have_nothing_said_of_them() -> None:
    found = diagnose(panelled(fair, severe, repeats=2), paired(lambda r: {"reason": "so", "better": better_of(r)}))
    assert judge_findings(found) == []
    one, two = found.judges
    assert (one.judge, two.judge) == ("openai/m0", "openai/m1")
    assert one.failed.value == 0
    assert one.how == {"integers": 80}
    assert (one.consistency.value, one.gap.value) == (pytest.approx(1.0), 0.0)
    assert one.others.value is not None
    assert one.others.value > 0.9
    assert found.alpha.value is not None
    assert found.alpha.value < one.others.value
    assert json.loads(json.dumps(asdict(found)))["alpha"]["n"] == ANSWERS


def better_of(request: ChatRequest) -> str:
    first, second = (int(n) for n in re.findall(r"Worth (\d+)", request.text))
    return "first" if first >= second else "second"


def test_a_judge_that_always_says_7_is_exposed() -> None:
    found = diagnose(panelled(sevens, fair))
    (check, other) = found.judges
    assert (check.commonest, check.share.value, check.deviation.value, check.entropy.value) == (7, 1.0, 0.0, 0.0)
    assert check.share.low is not None
    assert check.share.low > 0.9
    assert check.others.value is None
    assert "openai/m0 says nearly always 7: share 1.00 [0.91, 1.00] (n=40)" in told(found)
    assert "m1 says" not in told(found)
    assert other.entropy.value == pytest.approx(log2(10))


def test_a_random_judge_is_exposed_by_a_second_one() -> None:
    found = diagnose(panelled(erratic, fair))
    ((a, b, ranks),) = found.pairs
    assert (a, b) == ("openai/m0", "openai/m1")
    assert ranks.low is not None
    assert ranks.low < 0
    assert "openai/m0 and openai/m1 do not rank answers alike" in told(found)
    assert "The panel agrees no more than chance would" in told(found)


def test_of_three_judges_the_random_one_is_named() -> None:
    found = told(diagnose(panelled(fair, erratic, severe)))
    assert "openai/m1 ranks answers unlike the other judges" in found
    assert "openai/m0" not in found
    assert "openai/m2" not in found


def test_a_random_judge_is_exposed_by_asking_again() -> None:
    found = diagnose(panelled(forgetful(), repeats=3))
    (check,) = found.judges
    assert check.consistency.n == 3 * ANSWERS
    assert "openai/m0 rates the same answer again as differently as it rates different answers" in told(found)
    (steady,) = diagnose(panelled(fair, repeats=3)).judges
    assert steady.consistency.value == pytest.approx(1.0)


def test_a_random_judge_is_exposed_by_labels() -> None:
    labels = {("m", f"q{n // 4}", n % 4): float(1 + n % 10) for n in range(ANSWERS)}
    assert "openai/m0 ranks answers unlike the labels" in told(diagnose(panelled(erratic), labels=labels))
    found = diagnose(panelled(fair), labels=labels)
    assert found.judges[0].labels.value == pytest.approx(1.0)
    assert judge_findings(found) == []


@pytest.mark.parametrize(("place", "share"), [("first", 1.0), ("second", 0.0)])
def test_a_judge_that_prefers_a_place_is_exposed(place: str, share: float) -> None:
    pairs = paired(lambda request: {"reason": "so", "better": place})
    assert {pair["score"] for pair in pairs} == {0.5}
    found = diagnose([], pairs)
    places = found.judges[0].places
    assert places is not None
    assert (places.first.value, places.first.n, places.kept.value) == (share, 2 * ANSWERS, 0.0)
    assert f"openai/m0 prefers what stands {place}" in told(found)
    assert "keeps a choice no more often than chance" in told(found)


def test_a_judge_that_chooses_at_random_is_exposed() -> None:
    draw = random.Random(5)
    found = diagnose([], paired(lambda request: {"reason": "so", "better": draw.choice(["first", "second"])}))
    assert "keeps a choice no more often than chance" in told(found)
    assert "prefers" not in told(found)


def test_a_judge_that_fails_is_exposed() -> None:
    rows = panelled(fair, faults=lambda request: Fault(500) if worth(request) in (3, 4) else None)
    (check,) = diagnose(rows).judges
    assert (check.failed.value, check.failed.n, check.share.n) == (0.2, ANSWERS, ANSWERS * 4 // 5)
    assert "openai/m0 failed to rate: share 0.20" in told(diagnose(rows))


# ---------------------------------------------------------------- numbers


def row(n: int, *ratings: tuple[str, float | None]) -> dict[str, Any]:
    listed = [{"judge": j, "value": v, "how": "logprobs", "error": "" if v else "x"} for j, v in ratings]
    return {"method": "m", "query": "q", "run": n, "ratings": listed}


def test_numbers_are_those_of_an_independent_computation() -> None:
    draw = np.random.default_rng(0)
    table = np.clip(np.round(draw.normal(5, 2, (12, 1)) + draw.normal(0, 1, (12, 3)), 1), 1, 10)
    found = diagnose([row(n, *(("j", float(v)) for v in values)) for n, values in enumerate(table)])
    (check,) = found.judges
    assert check.deviation.value == pytest.approx(np.std(table, ddof=1))
    counts = np.unique([round(v) for v in table.flatten()], return_counts=True)[1]
    assert check.entropy.value == pytest.approx(stats.entropy(counts, base=2))
    assert check.share.value == max(counts) / counts.sum()
    between = 3 * np.var(table.mean(axis=1), ddof=1)
    within = np.mean(np.var(table, axis=1, ddof=1))
    assert check.consistency.value == pytest.approx((between - within) / (between + 2 * within))
    gaps = [abs(a - b) for v in table for a, b in [(v[0], v[1]), (v[0], v[2]), (v[1], v[2])]]
    assert check.gap.value == pytest.approx(np.mean(gaps))
    for interval in (check.deviation, check.entropy, check.consistency, check.gap):
        assert interval.low is not None
        assert interval.high is not None
        assert interval.low <= (interval.value or 0) <= interval.high


def test_agreement_is_over_answers_that_both_rated() -> None:
    values = [(2.0, 3.0), (4.0, 5.0), (6.0, 4.5), (8.0, 9.0), (3.0, None)]
    found = diagnose([row(n, ("a", a), ("b", b)) for n, (a, b) in enumerate(values)])
    ((_, _, ranks),) = found.pairs
    assert (ranks.n, ranks.value) == (4, pytest.approx(stats.spearmanr([2, 4, 6, 8], [3, 5, 4.5, 9]).statistic))
    assert found.alpha.n == 4


@pytest.mark.parametrize("jobs", [[], [row(1)], [row(1, ("a", None))], [row(1, ("a", 5.0))]])
def test_little_is_no_error_and_no_number_is_made_up(jobs: Sequence[dict[str, Any]]) -> None:
    found = diagnose(jobs)
    assert found.alpha.value is None
    for check in found.judges:
        assert (check.consistency.value, check.gap.value, check.others.value, check.places) == (None,) * 4
        assert check.deviation.value is None
        assert check.share.n in (0, 1)
    assert all("too few" in sentence or "failed" in sentence for sentence in judge_findings(found))


def test_pairs_that_failed_and_even_odds_are_no_choices() -> None:
    pair = {"judge": "j", "error": ""}
    rows = [
        {**pair, "forward": 0.9, "backward": 0.8},
        {**pair, "forward": 0.5, "backward": 0.4},
        {**pair, "forward": None, "backward": None, "error": "x"},
        {**pair, "forward": 0.7, "backward": 0.2},
    ]
    places = diagnose([], rows).judges[0].places
    assert places is not None
    assert (places.first.value, places.first.n) == (4 / 5, 5)
    assert (places.kept.value, places.kept.n) == (1 / 2, 2)
    assert (places.failed.value, places.failed.n) == (1 / 4, 4)
