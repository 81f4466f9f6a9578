"""Does an idea change when what it cites is hidden? A causal test of citations.

For each idea and each entity that it cites, the proposal is made again with that entity hidden, and as a
control with an uncited entity hidden, several times each; it is also made again with nothing hidden. All are
compared with the idea as it was, by 1 - cosine of their embeddings. If citations name real influences, the idea
moves farther when a cited entity is hidden than when an uncited one is. The effect of an idea is the mean
difference over its pairs; ideas are what the interval resamples.

A persona's own earlier ideas are not hidden: its prompt reminds it of them a second time. What is hidden can
still have come through a summary or through what others made of it, so an effect of 0 refutes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..modules.embedding import Embedder
from ..modules.events import Idea
from ..modules.measures import idea_text
from ..modules.session import Session
from ..modules.streams import stream
from ..modules.text import clean
from .ledger import Ledger, together
from .sight import Prompt, control_for, hidden
from .statistics import Interval, mean_interval

__all__ = ["Masked", "Masking", "mask"]


@dataclass(frozen=True)
class Masked:
    """One cited entity hidden, against a control.

    Attributes:
        idea: The idea proposed again.
        cited: The cited entity that was hidden.
        control: The uncited entity that was hidden instead.
        same_kind: Whether both are of one kind (comment, thought, idea...).
        without_cited: Mean distance to the idea as it was, the cited entity hidden; None if all calls failed.
        without_control: The same with the uncited entity hidden.
    """

    idea: str
    cited: str
    control: str
    same_kind: bool
    without_cited: float | None
    without_control: float | None


@dataclass(frozen=True)
class Masking:
    """The masking test of a session.

    Attributes:
        pairs: All pairs of hidden entities.
        unmasked: Mean distance to the idea as it was with nothing hidden, over ideas.
        without_control: The same with an uncited entity hidden.
        without_cited: The same with a cited entity hidden.
        effect: ``without_cited`` minus ``without_control``, by idea.
        skipped: Ideas left out, with the reason.
        failed: Calls that brought nothing.
    """

    pairs: list[Masked]
    unmasked: Interval
    without_control: Interval
    without_cited: Interval
    effect: Interval
    skipped: dict[str, str]
    failed: int


async def mask(
    session: Session,
    found: Mapping[str, Prompt],
    propose: Any,
    ledger: Ledger,
    embedder: Embedder,
    samples: int = 3,
    most: int = 2,
    seed: int = 0,
) -> Masking:
    """Hold the masking test.

    Args:
        session: The session.
        found: What its ideas were proposed from, by id.
        propose: The program's predictor for proposals.
        ledger: Makes the calls.
        embedder: Compares ideas.
        samples: Proposals made again for each hidden entity.
        most: Cited entities tested per idea; drawn from the seed where there are more.
        seed: Decides which.
    """
    pairs: list[tuple[str, str, str]] = []
    skipped: dict[str, str] = {}
    wanted: dict[tuple[str, str], dict[str, Any]] = {}
    for idea in session.board:
        chosen = _pairs(session, idea, found[idea.id].sight, most, seed)
        if isinstance(chosen, str):
            skipped[idea.id] = chosen
            continue
        inputs = found[idea.id].inputs
        wanted[idea.id, ""] = dict(inputs)
        wanted |= {(idea.id, name): dict(hidden(inputs, name)) for pair in chosen for name in pair}
        pairs += [(idea.id, cited, control) for cited, control in chosen]

    async def one(idea: str, entity: str, number: int) -> str | None:
        key = f"{idea}/without-{entity or 'nothing'}/{number}"
        author = session.entities[idea].author
        who = (author, session.personas[author].name)
        answer = await ledger.ask(propose, key, "participant", *who, **wanted[idea, entity])
        return None if answer.error else idea_text(clean(answer.title), clean(answer.description))

    jobs = [(idea, entity, n) for idea, entity in wanted for n in range(1, samples + 1)]
    texts = await together(one(*job) for job in jobs)
    moved = await asyncio.to_thread(_moved, session, embedder, [(i, e) for i, e, _ in jobs], texts)
    return _summed(session, pairs, moved, skipped, sum(text is None for text in texts))


def _pairs(session: Session, idea: Idea, sight: tuple[str, ...], most: int, seed: int) -> list[tuple[str, str]] | str:
    """Return the cited entities to hide, each with its control, or why there is none."""
    if not idea.cites:
        return "it cites nothing"
    if not any(name in sight for name in idea.cites):
        return "its prompt did not show what it cites"
    own = {earlier.id for earlier in session.board if earlier.author == idea.author}
    hideable = tuple(name for name in sight if name not in own)
    cited = [name for name in idea.cites if name in hideable]
    if not cited:
        return "of what it saw it cites its author's own ideas alone"
    chosen = cited if len(cited) <= most else stream(seed, idea.id, "masked").sample(cited, most)
    matched = [(name, control_for(session, idea, name, hideable)) for name in chosen]
    return [(name, control) for name, control in matched if control is not None] or "all it could see it cites"


def _moved(
    session: Session, embedder: Embedder, jobs: list[tuple[str, str]], texts: list[str | None]
) -> dict[tuple[str, str], float]:
    """Return the mean distance to the idea as it was, by idea and hidden entity."""
    far: dict[tuple[str, str], list[float]] = {}
    embedder.embed([text for text in texts if text is not None])
    for (idea, entity), text in zip(jobs, texts, strict=True):
        if text is not None:
            was = session.entities[idea]
            assert isinstance(was, Idea)
            cosine = embedder.similarities(text, [idea_text(was.title, was.description)])[0]
            far.setdefault((idea, entity), []).append(1 - cosine)
    return {key: sum(values) / len(values) for key, values in far.items()}


def _summed(
    session: Session,
    pairs: list[tuple[str, str, str]],
    moved: Mapping[tuple[str, str], float],
    skipped: dict[str, str],
    failed: int,
) -> Masking:
    masked = [
        Masked(
            idea,
            cited,
            control,
            type(session.entities[cited]) is type(session.entities[control]),
            moved.get((idea, cited)),
            moved.get((idea, control)),
        )
        for idea, cited, control in pairs
    ]
    by_idea: dict[str, list[tuple[float, float]]] = {}
    for m in masked:
        if m.without_cited is not None and m.without_control is not None:
            by_idea.setdefault(m.idea, []).append((m.without_cited, m.without_control))
    means = {idea: [sum(v) / len(v) for v in zip(*both, strict=True)] for idea, both in by_idea.items()}
    return Masking(
        masked,
        mean_interval([moved[idea, ""] for idea in means if (idea, "") in moved]),
        mean_interval([control for _, control in means.values()]),
        mean_interval([cited for cited, _ in means.values()]),
        mean_interval([cited - control for cited, control in means.values()]),
        skipped,
        failed,
    )
