"""The lineage audit: are the citations of a session real influences, or obedience to a prompt?

Three tests, each with its own weakness, so that none decides alone:

- **Ablation.** The session is held again with citations required, optional and not asked for, with the same
  personas and seeds. What depth and absorption lose when the demand is lifted was made by the demand.
- **Masking** (``masking``). Ideas are proposed again with a cited or an uncited entity hidden: a causal test, of
  ideas alone, which cannot see influence that reached the author by another way as well.
- **Edges** (``edges``). A judge says of citations and of controls whether the earlier text is used: a test of
  content, as good as the judge, which the controls show.

All that is asked is kept in the session's folder under ``audit``: run again, the audit goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import dspy

from salon.errors import LogError, UserError

from ..data.rubrics import RUBRICS
from ..modules.archive import program_of
from ..modules.budget import Budget, Usage
from ..modules.calls import LMs
from ..modules.embedding import Embedder
from ..modules.files import write_file
from ..modules.log import Recorded, read_log
from ..modules.program import SessionProgram
from ..modules.roundtable import Citing, Roundtable
from ..modules.session import Session
from ..signatures.judging import JudgeUse
from ..signatures.personas import Persona
from .conditions import Condition, Outcome, Progress, check_whole, hold_all, rate_all, sessions_at_once
from .edges import Edges, judge_edges
from .judges import RubricJudge
from .ledger import Ledger, together
from .masking import Masking, mask
from .sight import prompts
from .statistics import Interval, mean_interval

__all__ = ["AUDIT_NAME", "CITATIONS", "Ablation", "Audit", "audit", "auditable"]

CITATIONS: tuple[str, ...] = get_args(Citing)
AUDIT_NAME = "audit"
_COMPARED = ("depth", "absorption", "citations", "distance", "vendi")


@dataclass(frozen=True)
class Ablation:
    """Sessions held with and without the demand for citations.

    Attributes:
        seeds: Seeds of the sessions of each kind.
        means: For each kind and measure, the mean over its sessions.
        lost: For each measure, required minus optional on the same seed: what the demand adds.
        failures: Sessions that could not be held, with the reason.
    """

    seeds: list[int]
    means: dict[str, dict[str, Interval]]
    lost: dict[str, Interval]
    failures: list[str]


@dataclass(frozen=True)
class Audit:
    """What the three tests found in one session.

    Attributes:
        session: The session's folder.
        ablation: The first test; None if it was left out.
        masking: The second.
        edges: The third.
        models: Names of the models that answered, by role.
        held_with: Names of the models that held the session, by role or persona.
        usage: What the audit cost, earlier runs included.
    """

    session: str
    ablation: Ablation | None
    masking: Masking
    edges: Edges
    models: dict[str, str]
    held_with: dict[str, str]
    usage: Usage


async def audit(
    folder: str | Path,
    *,
    lms: Mapping[str, Any] | None = None,
    seeds: int = 3,
    samples: int = 3,
    sources: int = 2,
    edges: int = 60,
    seed: int = 0,
    budget: Budget | None = None,
    embedder: Embedder | None = None,
    max_concurrency: int = 32,
    tell: Callable[[str], None] = lambda _: None,
) -> Audit:
    """Audit the lineage of a roundtable.

    Args:
        folder: The session's folder; the audit's own files go into ``audit`` in it.
        lms: LMs by role (``participant``, ``facilitator``, ``judge``) or persona; others use DSPy's current LM.
        seeds: Sessions of each kind in the ablation, from the session's own seed upwards; 0 leaves it out.
        samples: Proposals made again for each hidden entity.
        sources: Cited entities hidden per idea at most.
        edges: Citations judged at most.
        seed: Decides what is drawn.
        budget: Hard limits of each session and of each of the two tests' calls.
        embedder: Compares ideas; by default the session's own model.
        max_concurrency: Most calls in flight.
        tell: Told in a line what is done.

    Raises:
        UserError: If it is no roundtable, or a number cannot work.
        OutputError: If there is no session, the audit cannot be written, or an earlier one in the folder had
            another seed or other models.
        LogError: If the session was interrupted.
        CallFailure: If no call can succeed (model name, key).
    """
    numbers = {"samples": samples, "sources": sources, "edges": edges, "max_concurrency": max_concurrency}
    for name, value in numbers.items():
        check_whole(name, value, 1)
    check_whole("seeds", seeds, 0)
    check_whole("seed", seed)
    place = Path(folder)
    auditable(place)
    named = dict(lms or {})
    models = {role: str(LMs(named=named).of(role).model) for role in (*Roundtable.roles, "judge")}
    session, found = await prompts(place)
    program = _program(session, {who: lm for who, lm in named.items() if who != "judge"}, embedder)
    limit, root = asyncio.Semaphore(max_concurrency), place / AUDIT_NAME
    at_once = sessions_at_once(max_concurrency, max(len(session.personas), 1))
    with ExitStack() as stack:

        def ledger(purpose: str, temperature: float, *unused: str) -> Ledger:
            used = {who: lm for who, lm in named.items() if who not in unused}
            return stack.enter_context(Ledger(root / purpose, purpose, used, seed, budget, limit, temperature))

        masked = ledger("masking", float(program.temperature), "judge", "facilitator")
        judged = ledger("judge", 0.0, *(named.keys() - {"judge"}))
        tell(f"Hiding sources of {len(session.board)} ideas and judging up to {edges} citations")
        masking, verdicts = await _both(
            mask(session, found, program.propose, masked, program.embedder, samples, sources, seed),
            judge_edges(session, found, dspy.Predict(JudgeUse), judged, edges, seed),
        )
        ablation, spent = None, Usage()
        if seeds:
            tell(f"Holding {seeds} session{'' if seeds == 1 else 's'} each with citations {', '.join(CITATIONS)}")
            critic = RubricJudge(RUBRICS["liveideabench"], [LMs(named=named).of("judge")])
            limits = (limit, at_once, budget)
            ablation, spent = await _ablated(session, program, root, seeds, *limits, critic, judged, tell)
        for used in (masked.spent, judged.spent):
            spent.add(used)
    held_with = {who: str(model["model"]) for who, model in session.header["models"].items()}
    result = Audit(str(place), ablation, masking, verdicts, models, held_with, spent)
    write_file(root / "audit.json", json.dumps(asdict(result), indent=1))
    return result


def auditable(folder: Path) -> Recorded:
    """Return the log of a session that can be audited.

    Raises:
        UserError: If it is no roundtable.
        OutputError: If there is no session.
        LogError: If the log is damaged, or the session was interrupted.
    """
    recorded = read_log(folder)
    name = str(recorded.header["program"].get("name"))
    if name != Roundtable.__name__:
        raise UserError(f"{folder} holds a session of {name}", "the audit tests the citations of a Roundtable")
    if recorded.end is None:
        raise LogError(
            f"The session in {folder} was interrupted or is under way",
            "an audit needs all of it",
            f"Go on with it: salon brainstorm --resume {folder}",
        )
    return recorded


async def _both(masking: Awaitable[Masking], edges: Awaitable[Edges]) -> tuple[Masking, Edges]:
    """Await the two tests at once; if one fails, the other is stopped."""
    found: list[Any] = await together([masking, edges])
    return found[0], found[1]


def _program(session: Session, lms: dict[str, Any], embedder: Embedder | None) -> Roundtable:
    """Return the session's program, with the personas that it had."""
    program = program_of(session.header["program"])
    assert isinstance(program, Roundtable)
    seats = [Persona(name=p.name, role=p.role, sketch=p.sketch, extra=p.extra) for p in session.personas.values()]
    program.lms = lms
    program.embedder = embedder or program.embedder
    return program.changed(personas=seats)


async def _ablated(
    session: Session,
    program: SessionProgram,
    root: Path,
    seeds: int,
    limit: asyncio.Semaphore,
    at_once: int,
    budget: Budget | None,
    critic: RubricJudge,
    judge: Ledger,
    tell: Callable[[str], None],
) -> tuple[Ablation, Usage]:
    first = int(session.header["seed"])
    numbers = list(range(first, first + seeds))
    conditions = [Condition({"citations": kind}, number) for kind in CITATIONS for number in numbers]

    def count(progress: Progress) -> None:
        tell(f"{progress.done} of {progress.total} sessions, {progress.spent.calls} calls")

    outcomes = await hold_all(program, session.header["inputs"], conditions, root, limit, at_once, budget, count)
    await rate_all(outcomes, critic, judge)
    spent = Usage()
    for outcome in outcomes:
        if outcome.session is not None:
            spent.add(outcome.session.usage)
    return _compared(numbers, outcomes), spent


def _compared(seeds: list[int], outcomes: Sequence[Outcome]) -> Ablation:
    def value(outcome: Outcome, name: str) -> float | None:
        if name == "quality":
            return outcome.quality
        return getattr(outcome.measures, name) if outcome.measures is not None else None

    by_kind = {kind: [o for o in outcomes if o.condition.factors["citations"] == kind] for kind in CITATIONS}
    means: dict[str, dict[str, Interval]] = {}
    lost: dict[str, Interval] = {}
    for name in (*_COMPARED, "quality"):
        values = {kind: [value(o, name) for o in held] for kind, held in by_kind.items()}
        for kind, known in values.items():
            means.setdefault(kind, {})[name] = mean_interval([v for v in known if v is not None])
        pairs = zip(values["required"], values["optional"], strict=True)
        lost[name] = mean_interval([a - b for a, b in pairs if a is not None and b is not None])
    failures = [f"{o.condition.folder(Path()).as_posix()}: {o.failure}" for o in outcomes if o.failure]
    return Ablation(seeds, means, lost, failures)
