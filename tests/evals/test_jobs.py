"""Jobs and their rows: order, seeds, folders, and a file that survives a kill."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from salon.data.benchmarks import Task
from salon.evals.jobs import JOBS_NAME, Job, JobFile, JobKey, JobRow, jobs_of, read_lines, read_rows, slug

from salon.errors import LogError, OutputError

TASKS = [Task("a", "Task A", "A"), Task("b", "Task B", "B")]
HOSTILE = (
    "../../etc/passwd", "..", ".", "", "/", "a/b", "a\\b", "C:\\x", "x" * 300, "日本語の課題", "Ünïcode", "😀", "a\0b",
    "nul\n", " spaced ", "A-B", "a-b", "a--b", "-a", "a-", "con", "\udcff", "../x", "x/..",
)  # fmt: skip


def row(query: str = "a", run: int = 1, **told: object) -> JobRow:
    return JobRow(**{"method": "m", "query": query, "run": run, "seed": 1, "status": "ok", "answer": "x", **told})  # type: ignore[arg-type]


# ---------------------------------------------------------------- which jobs there are


def test_jobs_come_run_by_run_so_that_all_methods_and_queries_are_covered_early() -> None:
    jobs = jobs_of(["m", "n"], TASKS, 2, 7)
    assert [tuple(job.key) for job in jobs[:4]] == [("m", "a", 1), ("n", "a", 1), ("m", "b", 1), ("n", "b", 1)]
    assert {job.run for job in jobs[4:]} == {2}
    assert len({job.key for job in jobs}) == 8


def test_methods_share_the_seed_of_a_run_and_runs_and_queries_do_not() -> None:
    jobs = {job.key: job for job in jobs_of(["m", "n"], TASKS, 3, 7)}
    assert jobs[JobKey("m", "a", 1)].seed == jobs[JobKey("n", "a", 1)].seed
    assert len({job.seed for job in jobs.values()}) == 2 * 3


def test_seeds_stay_when_methods_queries_and_runs_are_added_and_follow_from_the_seed() -> None:
    few = {job.key: job.seed for job in jobs_of(["m"], TASKS[:1], 1, 7)}
    many = {job.key: job.seed for job in jobs_of(["n", "m"], TASKS[::-1], 3, 7)}
    assert few.items() <= many.items()
    assert few != {job.key: job.seed for job in jobs_of(["m"], TASKS[:1], 1, 8)}


# ---------------------------------------------------------------- folders


@pytest.mark.parametrize("name", HOSTILE)
def test_a_folder_stays_inside_whatever_the_names_are(name: str, tmp_path: Path) -> None:
    folder = Job(name, name, "x", 1, 1).folder(tmp_path)
    assert folder.resolve().is_relative_to(tmp_path / "sessions")
    assert len(folder.relative_to(tmp_path).parts) == 4
    folder.mkdir(parents=True)


@given(st.lists(st.one_of(st.text(max_size=60), st.sampled_from(HOSTILE)), unique=True, max_size=30))
def test_two_names_never_share_a_folder(names: list[str]) -> None:
    found = [slug(name).casefold() for name in names]
    assert len(set(found)) == len(names)
    assert all(0 < len(text) <= 49 and text.isascii() and text.strip(".") for text in found)


def test_a_plain_name_is_its_own_folder() -> None:
    assert slug("voting-lens") == "voting-lens"
    assert slug("debate(k=1)").startswith("debate-k-1-")


# ---------------------------------------------------------------- rows on disk


def test_rows_are_on_disk_at_once_and_the_last_of_a_job_counts(tmp_path: Path) -> None:
    with JobFile(tmp_path) as file:
        file.add(row(status="failed", reason="no luck", answer=""))
        file.add(row("b"))
        assert read_rows(tmp_path)[JobKey("m", "a", 1)].reason == "no luck"
        file.add(row(answer="zwei \u2028 \ud800"))
    rows = read_rows(tmp_path)
    assert rows[JobKey("m", "a", 1)].answer == "zwei \u2028 \ud800"
    assert len(rows) == 2
    assert len((tmp_path / JOBS_NAME).read_text().splitlines()) == 3


def test_a_torn_last_line_is_not_read_and_is_cut_off_when_more_is_written(tmp_path: Path) -> None:
    with JobFile(tmp_path) as file:
        file.add(row())
    whole = (tmp_path / JOBS_NAME).read_bytes()
    for cut in (1, 10, len(whole) - 2, len(whole) - 1):
        (tmp_path / JOBS_NAME).write_bytes(whole + whole[:cut])
        assert len(read_rows(tmp_path)) == 1
        with JobFile(tmp_path) as file:
            file.add(row("b"))
        assert {key.query for key in read_rows(tmp_path)} == {"a", "b"}


@pytest.mark.parametrize("line", ["{]", "[1]", '{"method": "m"}', "\xff"])
def test_a_damaged_line_is_told_with_its_number(line: str, tmp_path: Path) -> None:
    with JobFile(tmp_path) as file:
        file.add(row())
    with (tmp_path / JOBS_NAME).open("ab") as plain:
        plain.write(line.encode("latin-1") + b"\n")
    with pytest.raises(LogError, match="line 2 is no"):
        read_rows(tmp_path)


def test_what_a_later_salon_writes_beside_is_left_alone(tmp_path: Path) -> None:
    content = {**asdict(row()), "mood": "good"}
    (tmp_path / JOBS_NAME).write_text(json.dumps(content) + "\n")
    assert read_rows(tmp_path) == {JobKey("m", "a", 1): row()}


def test_no_file_is_no_rows_and_a_file_in_the_way_is_one_line(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "none.jsonl") == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        JobFile(tmp_path / "file")


def test_quality_is_the_mean_of_the_ratings_that_exist() -> None:
    def rated(*values: float | None) -> JobRow:
        return row(ratings=[{"judge": "j", "value": v, "error": "" if v is not None else "no answer"} for v in values])

    assert rated(4.0, None, 7.0).quality == 5.5
    assert rated(None).quality is None
    assert row().quality is None
    assert rated(4.0).finished
    assert not rated(4.0, None).finished
    assert not row(status="failed").finished
