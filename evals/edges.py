"""Is what an entity cites really used in it? A judge looks at pairs of texts.

The judge sees citing and cited text without ids or names. Each cited pair has a control: a text that was in the
author's prompt and that it does not cite. A judge that says yes to everything, or rewards a common topic, says yes
to the controls too; precision is therefore read beside the controls' rate, and the difference is what counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..modules.events import Comment, Entity, Idea, Thought, wording
from ..modules.session import Session
from ..modules.streams import stream
from ..modules.text import fitted, neutral
from .ledger import Ledger, together
from .sight import Prompt, control_for
from .statistics import Interval, mean_interval, share_interval

__all__ = ["Edge", "Edges", "judge_edges"]

_LONGEST = 220  # tokens of a text that the judge is shown


@dataclass(frozen=True)
class Edge:
    """One citation and its control, as judged.

    Attributes:
        citing: Id of the later entity.
        cited: Id of the entity it cites.
        control: Id of one that its author had before its eyes and that it does not cite.
        used: Whether the judge finds the cited text used; None if it gave no answer.
        control_used: The same of the control.
        reason: The judge's reason on the citation.
    """

    citing: str
    cited: str
    control: str
    used: bool | None
    control_used: bool | None
    reason: str


@dataclass(frozen=True)
class Edges:
    """The judged citations of a session.

    Attributes:
        edges: The judged ones.
        total: Citations there were to draw from.
        precision: Share of citations whose text is used, with Wilson's interval.
        controls: Share of controls that the judge finds used; one that stands against several citations of an
            entity counts once.
        lift: Precision minus the controls' share, over the pairs judged both ways.
        failed: Judgements that could not be had.
    """

    edges: list[Edge]
    total: int
    precision: Interval
    controls: Interval
    lift: Interval
    failed: int


async def judge_edges(
    session: Session, found: Mapping[str, Prompt], judge: Any, ledger: Ledger, most: int = 60, seed: int = 0
) -> Edges:
    """Have the citations of thoughts, comments and ideas judged.

    Args:
        session: The session.
        found: What its entities were written from, by id.
        judge: Predictor for ``JudgeUse``.
        ledger: Makes the calls.
        most: Citations judged; drawn from the seed where there are more.
        seed: Decides which.
    """
    cited = [
        (entity, name)
        for entity in session.entities.values()
        if isinstance(entity, Thought | Comment | Idea)
        for name in entity.cites
    ]
    chosen = _drawn(session, found, cited, most, seed)
    topic = neutral(session.topic)

    async def one(later: str, earlier: str) -> tuple[bool | None, str]:
        texts: dict[str, Any] = {"earlier": _text(session.entities[earlier]), "later": _text(session.entities[later])}
        answer = await ledger.ask(judge, f"{later}/use/{earlier}", "judge", topic=topic, **texts)
        return (None, answer.error) if answer.error else (str(answer.used) == "yes", str(answer.reason))

    looked = list(dict.fromkeys((later, earlier) for later, *both in chosen for earlier in both))
    said = dict(zip(looked, await together(one(*pair) for pair in looked), strict=True))
    edges = [
        Edge(e, cited, other, said[e, cited][0], said[e, other][0], said[e, cited][1]) for e, cited, other in chosen
    ]
    return _summed(edges, len(cited))


def _drawn(
    session: Session, found: Mapping[str, Prompt], cited: Sequence[tuple[Entity, str]], most: int, seed: int
) -> list[tuple[str, str, str]]:
    """Return citations in an order drawn from the seed, each with its control; those without one are left out."""
    drawn: list[tuple[str, str, str]] = []
    for entity, name in stream(seed, "edges").sample(cited, len(cited)):
        control = control_for(session, entity, name, found[entity.id].sight)
        if control is not None:
            drawn.append((entity.id, name, control))
        if len(drawn) == most:
            break
    return drawn


def _summed(edges: list[Edge], total: int) -> Edges:
    used = [e.used for e in edges if e.used is not None]
    controls = {(e.citing, e.control): e.control_used for e in edges}
    base = [value for value in controls.values() if value is not None]
    both = [(e.used, e.control_used) for e in edges if e.used is not None and e.control_used is not None]
    return Edges(
        edges,
        total,
        share_interval(sum(used), len(used)),
        share_interval(sum(base), len(base)),
        mean_interval([float(u) - float(c) for u, c in both]),
        len(edges) + len(controls) - len(used) - len(base),
    )


def _text(entity: Entity) -> str:
    return fitted(neutral(wording(entity)), _LONGEST)
