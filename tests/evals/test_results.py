"""The result of an evaluation, held against the same numbers worked out by hand from the lines on disk."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from salon.evals.results import Results
from salon.modules import Embedder
from salon.modules.measures import diversity_of
from scipy import stats

from salon.errors import LogError, OutputError, UserError

TEXTS = [f"Topic number {n}" for n in range(1, 10)]
Build = Callable[..., Any]


def lines(folder: Any) -> pd.DataFrame:
    """Return the jobs on disk with the mean of their ratings, by pandas alone."""
    frame = pd.DataFrame([json.loads(line) for line in (folder.place / "jobs.jsonl").read_text().splitlines()])
    values = frame["ratings"].map(lambda ratings: [r["value"] for r in ratings if r["value"] is not None])
    return frame.assign(quality=[float(np.mean(v)) if v else math.nan for v in values])


def resampled(values: Any) -> tuple[float, float]:
    """Return the ends of a percentile bootstrap interval, with numpy alone."""
    data = np.asarray(values, dtype=float)
    draws = np.random.default_rng(5).choice(data, size=(20_000, len(data))).mean(axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(low), float(high)


@pytest.fixture
def uneven(evaluated: Build) -> Any:
    """Three methods with failed jobs, failed ratings, jobs not run and a run that fills no group."""
    return evaluated(
        methods=("direct", "debate", "voting"),
        texts=TEXTS,
        runs=5,
        judges=("judge/a", "judge/b"),
        answer=lambda m, q, r: None if (m, q, r) == ("voting", "Q9", 4) else f"{m} {q} idea {r % 3} of {'abc'[r % 2]}",
        failed=lambda m, q, r: "too slow" if m == "debate" and (q, r) in (("Q1", 1), ("Q2", 5)) else "",
        value=lambda m, q, r, j: None if (q, r, j) == ("Q3", 2, "judge/b") else 3 + len(m) / 3 + int(q[1]) / 9 + r / 5,
    )


# ---------------------------------------------------------------- tables by hand


@pytest.mark.usefixtures("worded")
def test_quality_is_the_mean_over_queries_with_an_interval_over_queries(uneven: Any) -> None:
    results, rows = Results.load(uneven.place), lines(uneven)
    by_query = rows.groupby(["method", "query"])["quality"].mean()
    for _, method in results.methods.iterrows():
        means = by_query[method["method"]]
        assert method["quality"] == pytest.approx(means.mean())
        assert method["quality_n"] == 9
        low, high = resampled(means)
        assert method["quality_low"] == pytest.approx(low, abs=0.03)
        assert method["quality_high"] == pytest.approx(high, abs=0.03)
        assert method["quality_low"] <= method["quality"] <= method["quality_high"]
    ours = results.queries.set_index(["method", "query"])["quality"]
    pd.testing.assert_series_equal(ours.sort_index(), by_query.sort_index(), check_names=False, check_index_type=False)


@pytest.mark.usefixtures("worded")
def test_answers_failures_and_gaps_are_counted(uneven: Any) -> None:
    methods = Results.load(uneven.place).methods.set_index("method")
    assert list(methods.index) == ["direct", "debate", "voting"]
    assert methods["jobs"].tolist() == [45, 45, 44]
    assert methods["answers"].tolist() == [45, 43, 44]
    assert methods["failed"].tolist() == [0, 2, 0]
    assert methods["missing"].tolist() == [0, 0, 1]
    assert methods["judged"].tolist() == [45, 43, 44]


@pytest.mark.usefixtures("worded")
def test_diversity_of_groups_of_runs(uneven: Any) -> None:
    results, rows = Results.load(uneven.place), lines(uneven)
    assert len(results.groups) == 3 * 9 * 2
    for group in results.groups.itertuples():
        runs = [2 * group.group - 1, 2 * group.group]
        held = rows[(rows["method"] == group.method) & (rows["query"] == group.query) & rows["run"].isin(runs)]
        texts = held[held["status"] == "ok"]["answer"].tolist()
        assert group.n == len(texts)
        if len(texts) < 2:
            assert math.isnan(group.vendi)
            assert math.isnan(group.distance)
            assert group.reason in ("1 of 2 answers (1 failed)", "1 of 2 answers (1 not run)")
            continue
        a, b = Embedder().embed(texts).astype(float)
        cosine = float(a @ b)
        shares = np.array([(1 + cosine) / 2, (1 - cosine) / 2])
        shares = shares[shares > 1e-12]
        assert group.vendi == pytest.approx(math.exp(-(shares * np.log(shares)).sum()), abs=1e-5)
        assert group.distance == pytest.approx(1 - cosine, abs=1e-6)
        assert group.div_bleu == pytest.approx(diversity_of(texts, Embedder().embed(texts)).div_bleu)
        assert group.quality == pytest.approx(held["quality"].mean())
    lost = results.groups[results.groups["reason"] != ""]
    assert [tuple(row) for row in lost[["method", "query", "group"]].to_numpy()] == [
        ("debate", "Q1", 1), ("voting", "Q9", 2),
    ]  # fmt: skip
    by_query = results.groups.groupby(["method", "query"])["vendi"].mean()
    means = results.methods.set_index("method")["vendi"]
    for name in ("direct", "debate", "voting"):
        assert means[name] == pytest.approx(by_query[name].mean())


@pytest.mark.usefixtures("worded")
def test_gated_diversity_is_that_of_the_answers_that_reach_the_threshold(evaluated: Build) -> None:
    values = {1: 8.0, 2: 7.0, 3: 2.0, 4: 6.0, 5: 5.9, 6: 6.0, 7: 9.0, 8: None}
    folder = evaluated(
        methods=("direct",), texts=TEXTS[:1], runs=8, size=4, value=lambda m, q, r, j: values[r],
        answer=lambda m, q, r: f"alpha{r} beta{r % 2}",
    )  # fmt: skip
    results = Results.load(folder.place)
    first, second = results.groups.itertuples()
    good = Embedder().embed(["alpha1 beta1", "alpha2 beta0", "alpha4 beta0"])
    assert first.passed == 3
    assert first.gated == pytest.approx(diversity_of(["a", "b", "c"], good).vendi)
    assert first.gated < first.vendi
    assert math.isnan(second.gated)
    assert second.gated_reason == "1 of 4 answers not rated"
    assert second.vendi > 1
    method = results.methods.iloc[0]
    assert method["gated"] == pytest.approx(first.gated)
    assert method["gated_n"] == 1
    assert math.isnan(method["gated_low"])
    assert method["passed"] == pytest.approx(5 / 7)


@pytest.mark.usefixtures("worded")
def test_gated_diversity_of_fewer_than_two_answers_is_undefined(evaluated: Build) -> None:
    folder = evaluated(texts=TEXTS[:1], runs=2, value=lambda m, q, r, j: 8.0 if m == "direct" and r == 1 else 3.0)
    groups = Results.load(folder.place).groups
    assert groups["gated"].isna().all()
    assert groups["gated_reason"].tolist() == ["1 of 2 answers reach 6", "0 of 2 answers reach 6"]
    assert groups["vendi"].notna().all()


@pytest.mark.usefixtures("worded")
def test_cost_is_that_of_all_jobs_and_each_answer_bears_the_failed_ones(uneven: Any) -> None:
    results, rows = Results.load(uneven.place), lines(uneven)
    rows["tokens"] = rows["prompt_tokens"] + rows["completion_tokens"]
    sums = rows.groupby("method")[["calls", "tokens", "usd", "seconds"]].sum()
    for method in results.methods.to_dict("records"):
        for name in sums.columns:
            assert method[name] == pytest.approx(sums.loc[method["method"], name])
            assert method[f"{name}_each"] == pytest.approx(sums.loc[method["method"], name] / method["answers"])
    assert results.judge_spent.calls == rows["judge_calls"].sum()
    assert results.judge_spent.tokens == rows["judge_tokens"].sum()


@pytest.mark.usefixtures("worded")
def test_a_price_that_is_unknown_stays_unknown(evaluated: Build) -> None:
    folder = evaluated(usd=None)
    results = Results.load(folder.place)
    assert results.methods[["usd", "usd_each"]].isna().all(axis=None)
    assert results.as_json()["methods"][0]["spent"]["usd"] is None
    assert "unknown" in results.markdown()
    one_known = [{**row, "usd": 0.5 if row["run"] == 1 else None} for row in folder.rows]
    folder.write("jobs.jsonl", one_known)
    assert Results.load(folder.place).methods["usd"].isna().all()


@pytest.mark.usefixtures("worded")
def test_wins_and_their_matrix(evaluated: Build) -> None:
    folder = evaluated(methods=("direct", "debate", "voting"), texts=TEXTS[:4])
    scores = dict(zip(itertools.product(("direct", "debate"), TEXTS, (1, 2)), itertools.cycle((1.0, 0.0, 0.5, 1.0))))
    folder.compare(
        lambda a, b, q, r: None if (a, q) == ("debate", "Q4") else scores[a, TEXTS[int(q[1]) - 1], r], runs=2
    )
    results = Results.load(folder.place)
    told = pd.DataFrame([json.loads(line) for line in (folder.place / "pairs.jsonl").read_text().splitlines()])
    told = told[told["score"].notna()]
    turned = told.rename(columns={"a": "b", "b": "a"}).assign(score=1 - told["score"])
    both = pd.concat([told, turned])
    expected, counts = both.pivot_table("score", "a", "b"), both.pivot_table("score", "a", "b", aggfunc="count")
    for a, b in itertools.permutations(results.about.methods, 2):
        assert results.wins.loc[a, b] == pytest.approx(expected.loc[a, b])
        assert results.comparisons.loc[a, b] == counts.loc[a, b]
    assert np.isnan(np.diag(results.wins)).all()
    rates = both.groupby(["a", "query"])["score"].mean().groupby("a").mean()
    methods = results.methods.set_index("method")
    for name in results.about.methods:
        assert methods.loc[name, "win_rate"] == pytest.approx(rates[name])
        assert methods.loc[name, "comparisons"] == (both["a"] == name).sum()
    assert methods["win_rate_n"].tolist() == [4, 4, 4]
    assert methods["strength"].sum() == pytest.approx(0, abs=1e-6)
    # The likelihood of Bradley and Terry, with half a win more for either side of each pair, is at its peak.
    names = list(results.about.methods)

    def unlikely(strengths: Any) -> float:
        place = dict(zip(names, strengths, strict=True))
        games = [(a, b, counts.loc[a, b] * expected.loc[a, b] + 0.25) for a, b in itertools.permutations(names, 2)]
        return float(sum(wins * math.log1p(math.exp(place[b] - place[a])) for a, b, wins in games))

    found = [methods.loc[name, "strength"] for name in names]
    for at in range(3):
        for step in (-0.02, 0.02):
            moved = [s + step * (at == n) for n, s in enumerate(found)]
            assert unlikely(moved) > unlikely(found)


@pytest.mark.usefixtures("worded")
def test_without_comparisons_there_are_no_wins(evaluated: Build) -> None:
    results = Results.load(evaluated().place)
    assert results.pairs.empty
    assert results.wins.isna().all(axis=None)
    assert results.methods[["win_rate", "strength"]].isna().all(axis=None)
    assert results.methods["win_rate_n"].tolist() == [0, 0]


@pytest.mark.usefixtures("worded")
def test_tests_against_the_baseline_are_paired_and_corrected_together(uneven: Any) -> None:
    results = Results.load(uneven.place)
    queries = results.queries
    assert list(zip(results.tests["measure"], results.tests["method"], strict=True)) == [
        ("quality", "debate"), ("quality", "voting"), ("vendi", "debate"), ("vendi", "voting"),
    ]  # fmt: skip
    for test in results.tests.itertuples():
        table = queries.pivot(index="query", columns="method", values=test.measure)
        gaps = (table[test.method] - table["direct"]).dropna().to_numpy()
        assert test.n == len(gaps)
        assert test.difference == pytest.approx(gaps.mean())
        assert test.low <= test.difference <= test.high
        low, high = resampled(gaps)
        assert test.low == pytest.approx(low, abs=0.02)
        assert test.high == pytest.approx(high, abs=0.02)
        exact = stats.permutation_test(
            (gaps, np.zeros_like(gaps)), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples",
            vectorized=True, n_resamples=np.inf,
        )  # fmt: skip
        assert test.p == pytest.approx(exact.pvalue, abs=1e-9)
    order = np.argsort(results.tests["p"].to_numpy(), kind="stable")
    corrected = np.maximum.accumulate(np.minimum(1, results.tests["p"].to_numpy()[order] * np.arange(4, 0, -1)))
    assert results.tests["p_holm"].to_numpy()[order] == pytest.approx(corrected)


@pytest.mark.usefixtures("worded")
def test_another_baseline_can_be_chosen(uneven: Any) -> None:
    results = Results.load(uneven.place)
    ours = results.against("debate").set_index(["measure", "method"])
    assert (ours["baseline"] == "debate").all()
    there = results.tests.set_index(["measure", "method"])
    assert ours.loc[("quality", "direct"), "difference"] == pytest.approx(
        -there.loc[("quality", "debate"), "difference"]
    )
    with pytest.raises(UserError, match="none of the methods"):
        results.against("nobody")


@pytest.mark.usefixtures("worded")
def test_no_baseline_no_tests(evaluated: Build) -> None:
    results = Results.load(evaluated(baseline=None).place)
    assert results.tests.empty
    assert "p (Holm)" not in results.markdown()


@pytest.mark.usefixtures("worded")
def test_the_front_holds_what_no_method_beats(evaluated: Build) -> None:
    quality = {"good": 9.0, "wide": 5.0, "both": 7.0, "poor": 4.0, "twin": 9.0}
    words = {"good": 1, "wide": 9, "both": 4, "poor": 2, "twin": 1}
    folder = evaluated(
        methods=tuple(quality), texts=TEXTS[:2], runs=2, value=lambda m, q, r, j: quality[m],
        answer=lambda m, q, r: " ".join(["same"] * 3 + [f"{n}run{r}" for n in range(words[m])]),
    )  # fmt: skip
    results = Results.load(folder.place)
    assert results.front == ["good", "wide", "both", "twin"]
    assert results.methods["front"].tolist() == [True, True, True, False, True]


@pytest.mark.usefixtures("worded")
def test_best_and_worst_answers_come_with_reason_and_query(uneven: Any) -> None:
    results, rows = Results.load(uneven.place), lines(uneven)
    known = rows["quality"].dropna()
    best, worst = results.best(4), results.worst(3)
    assert [answer.score for answer in best] == pytest.approx(known.nlargest(4).tolist())
    assert [answer.score for answer in worst] == pytest.approx(known.nsmallest(3).tolist())
    first = best[0]
    row = rows[(rows["method"] == first.method) & (rows["query"] == first.query) & (rows["run"] == first.run)].iloc[0]
    assert first.answer == row["answer"]
    assert first.task == TEXTS[int(first.query[1]) - 1]
    assert first.reason == " ".join(rating["reason"] for rating in row["ratings"])
    assert len(results.best(10_000)) == len(known)


@pytest.mark.usefixtures("worded")
def test_every_rating_is_a_row_with_its_dimensions(uneven: Any) -> None:
    ratings, rows = Results.load(uneven.place).ratings, lines(uneven)
    assert len(ratings) == sum(map(len, rows["ratings"]))
    failed = ratings[ratings["value"].isna()]
    assert len(failed) == 3
    assert (failed["error"] == "it said nothing").all()
    known = ratings[ratings["value"].notna()]
    assert known["score clarity"].to_numpy() == pytest.approx(known["value"].to_numpy())
    assert known["score originality"].to_numpy() == pytest.approx(known["value"].to_numpy() - 0.5)


# ---------------------------------------------------------------- embeddings


def test_each_text_is_embedded_once(evaluated: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def encode(texts: list[str]) -> Any:
        seen.extend(texts)
        return np.eye(64)[[len(text) % 64 for text in texts]]

    monkeypatch.setattr(Embedder, "_encoder", lambda _: encode)
    folder = evaluated(
        runs=5, size=2, answer=lambda m, q, r: f"{m} {q} {r % 3}", failed=lambda m, q, r: "no" if r == 3 else ""
    )
    results = Results.load(folder.place)
    assert not results.jobs.empty
    assert seen == []
    assert not results.methods.empty
    assert not results.groups.empty
    results.markdown()
    results.as_json()
    expected = {f"{m} {q} {r % 3}" for m in folder.methods for q in folder.queries for r in (1, 2)}
    assert sorted(seen) == sorted(expected)


def test_real_embeddings_tell_alike_from_unlike(evaluated: Build) -> None:
    said = {
        "alike": ("A folding cup made of paper.", "A paper cup that folds flat.", "A cup of paper that can be folded."),
        "unlike": ("A folding cup made of paper.", "Teach owls to deliver mail.", "Sing lullabies to volcanoes."),
    }
    folder = evaluated(
        methods=("alike", "unlike"), texts=TEXTS[:1], runs=3, size=3, answer=lambda m, q, r: said[m][r - 1]
    )
    methods = Results.load(folder.place).methods.set_index("method")
    assert methods.loc["unlike", "vendi"] > methods.loc["alike", "vendi"] + 0.5
    assert methods.loc["unlike", "distance"] > 2 * methods.loc["alike", "distance"]


@pytest.mark.usefixtures("worded")
def test_identical_answers_count_as_one(evaluated: Build) -> None:
    results = Results.load(evaluated(answer=lambda m, q, r: "always the very same answer", runs=5, size=5).place)
    assert results.groups["vendi"].to_numpy() == pytest.approx(1)
    assert results.groups["distance"].to_numpy() == pytest.approx(0, abs=1e-6)
    assert results.groups["div_bleu"].to_numpy() == pytest.approx(0)


# ---------------------------------------------------------------- little, and nothing


@pytest.mark.usefixtures("worded")
def test_groups_of_one_have_no_diversity(evaluated: Build) -> None:
    results = Results.load(evaluated(size=1).place)
    assert results.groups["vendi"].isna().all()
    assert (results.groups["reason"] == "one answer alone has no diversity").all()
    assert results.methods["quality"].notna().all()
    assert results.front == []
    assert any("a group of one answer has none" in note for note in results.notes)


@pytest.mark.usefixtures("worded")
def test_too_few_runs_for_a_group(evaluated: Build) -> None:
    results = Results.load(evaluated(runs=3, size=5).place)
    assert results.groups.empty
    assert results.methods["vendi"].isna().all()
    assert "Diversity is undefined: a group takes 5 runs, and there are 3." in results.notes


@pytest.mark.usefixtures("worded")
def test_runs_that_fill_no_group_are_told(uneven: Any) -> None:
    results = Results.load(uneven.place)
    assert "1 run of each method and query fill no group of 2 and count for quality alone." in results.notes
    assert set(results.jobs[results.jobs["run"] == 5]["group"]) == {0}
    assert set(results.jobs[results.jobs["run"] == 3]["group"]) == {2}


@pytest.mark.usefixtures("worded")
def test_a_method_without_an_answer(evaluated: Build) -> None:
    results = Results.load(evaluated(failed=lambda m, q, r: "it broke" if m == "debate" else "").place)
    row = results.methods.set_index("method").loc["debate"]
    assert (row["answers"], row["failed"], row["judged"], row["quality_n"]) == (0, 12, 0, 0)
    assert row[["quality", "vendi", "gated", "usd_each", "seconds_each", "passed"]].isna().all()
    assert row["calls"] == 36
    assert results.front == ["direct"]
    test = results.tests.set_index(["measure", "method"]).loc[("quality", "debate")]
    assert test["n"] == 0
    assert test[["difference", "p", "p_holm"]].isna().all()
    text = results.markdown()
    assert "12 jobs failed (debate 12)" in text
    assert "Failed 12x: it broke" in text
    assert "nan" not in text.lower()


@pytest.mark.usefixtures("worded")
def test_ratings_that_all_failed(evaluated: Build) -> None:
    results = Results.load(evaluated(value=lambda m, q, r, j: None).place)
    assert results.methods["quality"].isna().all()
    assert results.methods["vendi"].notna().all()
    assert results.best() == results.worst() == []
    assert results.front == []
    assert any(note.startswith("24 of 24 ratings failed, most often: it said nothing") for note in results.notes)
    json.dumps(results.as_json(), allow_nan=False)


@pytest.mark.usefixtures("worded")
def test_answers_that_nobody_judged(evaluated: Build) -> None:
    results = Results.load(evaluated(judges=()).place)
    assert "Answers were not rated, so nothing is known of their quality." in results.notes
    assert not any("Judged quality" in note for note in results.notes)
    assert results.judge_spent.calls == 0


@pytest.mark.usefixtures("worded")
def test_one_method_and_one_query(evaluated: Build) -> None:
    results = Results.load(evaluated(methods=("direct",), texts=TEXTS[:1]).place)
    method = results.methods.iloc[0]
    assert method["quality_n"] == method["vendi_n"] == 1
    assert math.isnan(method["quality_low"])
    assert results.tests.empty
    assert results.front == ["direct"]
    assert any("All rests on one query" in note for note in results.notes)


@pytest.mark.usefixtures("worded")
def test_nothing_done_yet(evaluated: Build) -> None:
    folder = evaluated()
    (folder.place / "jobs.jsonl").unlink()
    results = Results.load(folder.place)
    assert results.jobs.empty
    assert results.methods["missing"].tolist() == [12, 12]
    assert "The evaluation is not finished: 24 of 24 jobs not done." in results.notes
    assert results.answered == 0
    results.to_csv(folder.place)
    assert "nan" not in results.markdown().lower()


@pytest.mark.usefixtures("worded")
def test_few_queries_are_told_to_be_few(evaluated: Build) -> None:
    few, many = Results.load(evaluated().place), Results.load(evaluated(texts=TEXTS, runs=2).place)
    assert any("3 queries, which are few" in note for note in few.notes)
    assert not any("few:" in note for note in many.notes)


@pytest.mark.usefixtures("worded")
def test_a_judge_that_is_an_author_is_told(evaluated: Build) -> None:
    models = {"direct": {"participant": {"model": "judge/a"}}, "debate": {"participant": {"model": "other"}}}
    notes = Results.load(evaluated(models=models).place).notes
    assert any(note.startswith("The judge is also an author of direct;") for note in notes)
    assert not any("author" in note for note in Results.load(evaluated().place).notes)


# ---------------------------------------------------------------- files on disk


@pytest.mark.usefixtures("worded")
def test_the_last_line_of_a_job_counts(evaluated: Build) -> None:
    folder = evaluated(failed=lambda m, q, r: "at first" if (m, q, r) == ("direct", "Q1", 1) else "")
    assert Results.load(folder.place).methods["failed"].tolist() == [1, 0]
    again = {**folder.rows[2], "method": "direct", "query": "Q1", "run": 1, "status": "ok", "answer": "now it works"}
    folder.write("jobs.jsonl", [again], "a")
    results = Results.load(folder.place)
    assert results.methods["failed"].tolist() == [0, 0]
    assert results.jobs.iloc[0]["answer"] == "now it works"
    assert len(results.jobs) == 24


@pytest.mark.usefixtures("worded")
def test_a_torn_last_line_is_not_read(evaluated: Build) -> None:
    folder = evaluated()
    before = Results.load(folder.place).methods
    with (folder.place / "jobs.jsonl").open("a") as file:
        file.write('{"method": "direct", "query": "Q1", "ru')
    pd.testing.assert_frame_equal(Results.load(folder.place).methods, before)


@pytest.mark.parametrize("name", ["jobs.jsonl", "pairs.jsonl"])
def test_a_damaged_line_is_named(evaluated: Build, name: str) -> None:
    folder = evaluated()
    folder.compare(lambda a, b, q, r: 1.0)
    content = (folder.place / name).read_text().splitlines(keepends=True)
    (folder.place / name).write_text("".join([*content[:2], "{broken\n", *content[2:]]))
    with pytest.raises(LogError, match=re.escape(f"{name} is damaged: line 3")) as caught:
        Results.load(folder.place)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"run": "one"}, {"calls": None}, {"seconds": float("nan")}, {"answer": 5}, {"usd": "dear"},
        {"ratings": [{"judge": "j"}]}, {"ratings": [{"judge": "j", "value": "good", "scores": {}, "error": ""}]},
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_told(evaluated: Build, changes: dict[str, Any]) -> None:
    folder = evaluated()
    folder.write("jobs.jsonl", [{**folder.rows[0], **changes}], "a")
    with pytest.raises(LogError, match=r"jobs\.jsonl is damaged"):
        Results.load(folder.place)


@pytest.mark.usefixtures("worded")
def test_lines_on_what_is_not_evaluated_are_left_out_and_counted(evaluated: Build) -> None:
    folder = evaluated()
    folder.compare(lambda a, b, q, r: 1.0)
    odd = [{**folder.rows[0], **change} for change in ({"method": "gone"}, {"query": "Q77"}, {"run": 5})]
    folder.write("jobs.jsonl", odd, "a")
    folder.write("pairs.jsonl", [{"query": "Q1", "run": 1, "a": "gone", "b": "direct", "judge": "j", "score": 1.0,
                                  "forward": 1.0, "backward": 1.0, "log_odds": None, "error": ""}], "a")  # fmt: skip
    results = Results.load(folder.place)
    assert len(results.jobs) == 24
    assert len(results.pairs) == 3
    assert any(note.startswith("4 lines left out") for note in results.notes)


def test_a_folder_without_an_evaluation(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(OutputError, match="There is no evaluation in") as caught:
            Results.load(place)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"version": 99}', '{"version": 1}',
     '{"version": 1, "benchmark": 3, "methods": {}, "seed": 0, "runs": 0, "groups": 0, "threshold": 1, "judge": {}}'],
)  # fmt: skip
def test_a_record_that_cannot_be_read(tmp_path: Path, content: str) -> None:
    (tmp_path / "evaluation.json").write_text(content)
    with pytest.raises(LogError, match=r"evaluation\.json") as caught:
        Results.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("worded")
def test_tables_as_csv_are_safe_and_complete(evaluated: Build, tmp_path: Path) -> None:
    folder = evaluated(methods=("direct", "=1+1"), answer=lambda m, q, r: f'@SUM(A1) {m}, "{q}"\n{r}')
    results = Results.load(folder.place)
    paths = results.to_csv(tmp_path / "tables")
    assert [path.name for path in paths] == ["methods.csv", "queries.csv", "jobs.csv"]
    read = [list(csv.DictReader(io.StringIO(path.read_text()))) for path in paths]
    assert [len(rows) for rows in read] == [2, 6, 24]
    assert read[0][1]["method"] == "'=1+1"
    assert all(row["answer"].startswith("'@SUM") for row in read[2])
    assert float(read[0][0]["quality"]) == results.methods.iloc[0]["quality"]
    assert read[0][0]["win_rate"] == ""
    assert list(read[1][0]) == list(results.queries.columns)


@pytest.mark.usefixtures("worded")
def test_the_json_is_plain_and_agrees_with_the_tables(uneven: Any) -> None:
    uneven.compare(lambda a, b, q, r: {"1": 1.0, "2": 0.5}.get(q[1], 0.0))
    results = Results.load(uneven.place)
    told = json.loads(json.dumps(results.as_json(), allow_nan=False))
    assert [row["method"] for row in told["methods"]] == results.methods["method"].tolist()
    for row, method in zip(told["methods"], results.methods.to_dict("records"), strict=True):
        assert row["quality"] == {
            "value": method["quality"], "low": method["quality_low"], "high": method["quality_high"], "n": 9
        }  # fmt: skip
        assert row["front"] == method["front"]
    assert told["wins"]["direct"]["debate"] == results.wins.loc["direct", "debate"]
    assert told["front"] == results.front
    assert told["notes"] == results.notes
    assert len(told["by_query"]) == 27
    assert len(told["tests"]) == 4


@pytest.mark.usefixtures("worded")
def test_the_text_names_numbers_with_their_n(uneven: Any) -> None:
    uneven.compare(lambda a, b, q, r: 1.0)
    results = Results.load(uneven.place)
    text, method = results.markdown(), results.method_rows[1]
    found = method.means["quality"]
    assert f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}] (9)" in text
    assert "should not be quoted" in text
    assert "2 jobs failed (debate 2); no quality is put in their place." in text
    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 5
    for block in tables:
        assert len({row.count("|") for row in block.splitlines()}) == 1


@pytest.mark.usefixtures("quick_embeddings")
def test_three_thousand_jobs(evaluated: Build) -> None:
    folder = evaluated(
        methods=tuple(f"method {n}" for n in range(5)), texts=[f"Topic {n}" for n in range(40)], runs=15, size=5
    )
    folder.compare(lambda a, b, q, r: 1.0)
    results = Results.load(folder.place)
    assert len(results.jobs) == 3000
    assert len(results.groups) == 5 * 40 * 3
    assert results.methods["quality_n"].tolist() == [40] * 5
    assert results.groups["vendi"].notna().all()


def test_hostile_texts_break_no_table(evaluated: Build, quick_embeddings: None, hostile: Any, tmp_path: Path) -> None:
    from salon.modules.events import wording

    texts = [text for entity in hostile.entities.values() if (text := wording(entity)).strip()]
    draw = iter(itertools.cycle(texts))
    folder = evaluated(
        methods=("direct", *texts[:2]), texts=texts[2:5], answer=lambda m, q, r: next(draw), runs=2,
        failed=lambda m, q, r: texts[0] if (q, r) == ("Q1", 1) else "",
    )  # fmt: skip
    folder.compare(lambda a, b, q, r: 1.0)
    results = Results.load(folder.place)
    text = results.markdown()
    assert "<script>" not in text
    for block in (block for block in text.split("\n\n") if block.startswith("| ")):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1
    results.to_csv(tmp_path / "tables")
    json.dumps(results.as_json(), allow_nan=False)
    for name in ("jobs", "ratings", "groups", "queries", "methods", "pairs", "tests"):
        getattr(results, name).to_csv(tmp_path / "frame.csv")
