"""The duration study: what more minutes of discussion do to ideas, and what the demand for citations does.

For each duration and each way of asking for citations the same number of roundtables is held, with the same
personas, quotas and seeds. Depth, absorption, diversity and judged quality are held against the minutes with
Pearson's r over sessions. Depth and absorption can grow by construction: a longer talk has more to cite, and a
prompt that demands citations gets them. The condition with optional citations shows what is left without the
demand; quality shows whether deeper ideas are better ones.

The study lives in one folder: personas, a folder for each session, the judge's calls, ``sessions.csv`` and
``study.json``. Run again, it goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from salon.errors import RunFailure, UserError

from ..data.rubrics import RUBRICS
from ..modules.archive import finished, read_session
from ..modules.budget import Budget, Usage
from ..modules.files import csv_table, write_file
from ..modules.roundtable import Citing, Roundtable
from ..signatures.personas import Persona
from .conditions import Condition, Outcome, Progress, check_whole, earlier, hold_all, rate_all, row, sessions_at_once
from .judges import RubricJudge
from .ledger import Ledger
from .statistics import Correlation, Interval, correlation, mean_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["STUDIED", "Cell", "Study", "inventing", "study_conditions", "study_duration"]

STUDIED = ("depth", "absorption", "distance", "vendi", "quality")


@dataclass(frozen=True)
class Cell:
    """The sessions of one duration and one way of citing.

    Attributes:
        minutes: Minutes of discussion.
        citations: How citations were asked for.
        means: For each measure the mean over the sessions, with its interval.
        failed: Sessions without a result.
        early: Sessions that ended before their time, by a budget or for want of personas.
    """

    minutes: float
    citations: str
    means: dict[str, Interval]
    failed: int
    early: int


@dataclass(frozen=True)
class Study:
    """What the study found.

    Attributes:
        topic: Topic of all sessions.
        personas: Names of those who took part in all of them.
        minutes: Durations studied.
        seeds: Seeds of the sessions of each duration.
        cells: Means by duration and way of citing.
        correlations: By way of citing and measure, Pearson's r with the minutes, over sessions.
        models: Names of the models, by role.
        usage: What sessions and judge cost, earlier runs included.
        rows: One row a session.
    """

    topic: str
    personas: list[str]
    minutes: list[float]
    seeds: list[int]
    cells: list[Cell]
    correlations: dict[str, dict[str, Correlation]]
    models: dict[str, str]
    usage: Usage
    rows: list[dict[str, Any]]

    def to_frame(self) -> pd.DataFrame:
        """Return one row a session: minutes, citations, seed, status, measures, quality, cost."""
        import pandas as pd

        return pd.DataFrame(self.rows)


def study_conditions(minutes: Sequence[float], citations: Sequence[str], seeds: Sequence[int]) -> list[Condition]:
    """Return the conditions of a study.

    Raises:
        UserError: If there is none, one comes twice, or one cannot work.
    """
    if not seeds:
        raise UserError("A study without sessions is not possible", "at least one of each duration is needed")
    listed: dict[str, Sequence[Any]] = {"minutes": minutes, "citations": citations}
    for name, values in listed.items():
        if not values or len(set(values)) < len(values):
            raise UserError(f"{name}={list(values)} is not possible", "at least one is needed, and none twice")
    if beyond := [m for m in minutes if not 0 <= m <= 240]:
        raise UserError(f"{beyond[0]} minutes are not possible", "a discussion takes 0 to 240")
    if wrong := [c for c in citations if c not in get_args(Citing)]:
        raise UserError(f"citations={wrong[0]!r} is not possible", f"they are {', '.join(get_args(Citing))}")
    return [Condition({"citations": c, "minutes": m}, seed) for c in citations for m in minutes for seed in seeds]


async def study_duration(
    topic: str,
    out: str | Path,
    program: Roundtable,
    *,
    minutes: Sequence[float] = (0, 5, 10, 15, 20, 25),
    sessions: int = 5,
    citations: Sequence[str] = ("required", "optional"),
    seed: int = 0,
    judge: Any = None,
    budget: Budget | None = None,
    max_concurrency: int = 32,
    tell: Callable[[str], None] = lambda _: None,
) -> Study:
    """Hold, or go on with, a duration study.

    Args:
        topic: Topic of all sessions.
        out: Folder of the study.
        program: The roundtable; its personas, if they are to be invented, are invented once.
        minutes: Minutes of discussion to compare.
        sessions: Sessions of each duration and way of citing, with seeds from ``seed`` upwards.
        citations: Ways of asking for citations: required, optional, off.
        seed: First seed.
        judge: LM that rates the ideas; None leaves quality out.
        budget: Hard limits of each session, of inventing the personas, and of the judge.
        max_concurrency: Most calls in flight over all sessions.
        tell: Told in a line what is done.

    Raises:
        UserError: If settings cannot work.
        OutputError: If the folder holds another study, or cannot be written.
        LogError: If a log in the folder is damaged.
        RunFailure: If no session has a result, or the personas cannot be made.
        CallFailure: If no call can succeed (model name, key).
    """
    check_whole("sessions", sessions, 1)
    check_whole("max_concurrency", max_concurrency, 1)
    check_whole("seed", seed)
    seeds = list(range(seed, seed + sessions))
    conditions = study_conditions(minutes, citations, seeds)
    root, limit = Path(out), asyncio.Semaphore(max_concurrency)
    inputs = program.checked({"topic": topic})
    personas, spent = await _personas(program, inputs, root, seed, limit, budget)
    fixed = program.changed(personas=personas, turns=None, minutes=minutes[0])

    def count(progress: Progress) -> None:
        tell(f"{progress.done} of {progress.total} sessions, {progress.spent.calls} calls")

    at_once = sessions_at_once(max_concurrency, len(personas))
    outcomes = await hold_all(fixed, inputs, conditions, root, limit, at_once, budget, count)
    if all(outcome.session is None for outcome in outcomes):
        raise RunFailure("No session of the study has a result", outcomes[0].failure)
    for outcome in outcomes:
        if outcome.session is not None:
            spent.add(outcome.session.usage)
    if judge is not None:
        tell(f"Rating {sum(len(o.session.board) for o in outcomes if o.session)} ideas")
        critic = RubricJudge(RUBRICS["liveideabench"], [judge], seed=seed)
        with Ledger(root / "judge", "quality", critic.lms, seed, budget, limit, temperature=0.0) as ledger:
            await rate_all(outcomes, critic, ledger)
            spent.add(ledger.spent)
    study = Study(
        topic=inputs["topic"],
        personas=[p.name for p in personas],
        minutes=list(minutes),
        seeds=seeds,
        cells=_cells(outcomes, minutes, citations),
        correlations=_correlations(outcomes, citations),
        models=_models(outcomes, judge),
        usage=spent,
        rows=[row(outcome) for outcome in outcomes],
    )
    _write(study, root)
    return study


def inventing(program: Roundtable) -> Roundtable:
    """Return the roundtable whose session invents the personas and does nothing else."""
    return program.changed(turns=0, minutes=None, ideas=0, votes=0, facilitator=False)


async def _personas(
    program: Roundtable,
    inputs: Mapping[str, Any],
    root: Path,
    seed: int,
    limit: asyncio.Semaphore,
    budget: Budget | None,
) -> tuple[list[Persona], Usage]:
    """Return the personas of all sessions; those to be invented are, once, in a session of their own."""
    if not isinstance(program.personas, int):
        return list(program.personas), Usage()
    folder, short = root / "personas", inventing(program)
    recorded = earlier(short, inputs, seed, folder)
    cast = read_session(folder) if recorded is not None and finished(recorded) else None
    if cast is None or len(cast.personas) < program.personas:
        settings: dict[str, Any] = {"budget": budget, "limit": limit, "recorded": recorded}
        cast = await short.hold(**inputs, seed=seed, out=folder, **settings)
    if len(cast.personas) < program.personas:
        raise RunFailure(
            f"Only {len(cast.personas)} of {program.personas} personas could be made", cast.reason, "Run it again."
        )
    people = cast.personas.values()
    return [Persona(name=p.name, role=p.role, sketch=p.sketch, extra=p.extra) for p in people], cast.usage


def _value(outcome: Outcome, measure: str) -> float | None:
    if measure == "quality":
        return outcome.quality
    return getattr(outcome.measures, measure) if outcome.measures is not None else None


def _cells(outcomes: Sequence[Outcome], minutes: Sequence[float], citations: Sequence[str]) -> list[Cell]:
    cells = []
    for kind in citations:
        for length in minutes:
            held = [o for o in outcomes if o.condition.factors == {"citations": kind, "minutes": length}]
            known = {m: [v for o in held if (v := _value(o, m)) is not None] for m in STUDIED}
            means = {measure: mean_interval(values) for measure, values in known.items()}
            early = sum(o.session is not None and o.session.status != "complete" for o in held)
            cells.append(Cell(length, kind, means, sum(o.session is None for o in held), early))
    return cells


def _correlations(outcomes: Sequence[Outcome], citations: Sequence[str]) -> dict[str, dict[str, Correlation]]:
    by_kind = {kind: [o for o in outcomes if o.condition.factors["citations"] == kind] for kind in citations}
    return {
        kind: {m: correlation([(o.condition.factors["minutes"], _value(o, m)) for o in held]) for m in STUDIED}
        for kind, held in by_kind.items()
    }


def _models(outcomes: Sequence[Outcome], judge: Any) -> dict[str, str]:
    held = next(outcome.session for outcome in outcomes if outcome.session is not None)
    models = {role: str(model.get("model", "?")) for role, model in held.header["models"].items()}
    return models | ({"judge": str(judge.model)} if judge is not None else {})


def _write(study: Study, root: Path) -> None:
    content = asdict(study)
    del content["rows"]
    write_file(root / "sessions.csv", csv_table(list(study.rows[0]), [list(row.values()) for row in study.rows]))
    write_file(root / "study.json", json.dumps(content, indent=1))
