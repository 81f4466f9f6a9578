"""What is measured of a session, and of any set of texts.

Every value that is undefined is None and has its reason in ``undefined``: one text has no diversity, a session
without a discussion no absorption. Formulas are told where they are computed (``diversity``, ``lineage``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import log
from typing import TYPE_CHECKING

from .diversity import distinct, div_bleu, order, pairwise_distance, vendi
from .embedding import Embedder, Vectors
from .events import EVERYONE, Comment, Entity, Facilitation, Failure, Idea, Phase, Thought, visible_to

if TYPE_CHECKING:
    from .session import Session

__all__ = ["Diversity", "Measures", "diversity_of", "measure", "text_diversity"]

_FEW = "fewer than two texts"
_WORDLESS = "no words"
_APART = "no two words next to each other"


@dataclass(frozen=True)
class Diversity:
    """How different the texts of a set are from each other.

    Attributes:
        n: Texts measured.
        distance: Mean pairwise distance (1 - cosine), 0 to 2.
        vendi: Vendi score: the effective number of different texts, 1 to n.
        div_bleu: 100 * (1 - self-BLEU), 0 to 100.
        distinct_1: Different words among all words, 0 to 1.
        distinct_2: Different pairs of neighbouring words among all such pairs, 0 to 1.
        order: Order parameter: mean cosine with the mean direction, 0 to 1; 1 where all are alike.
        undefined: Reason for each value that is None.
    """

    n: int
    distance: float | None
    vendi: float | None
    div_bleu: float | None
    distinct_1: float | None
    distinct_2: float | None
    order: float | None
    undefined: dict[str, str] = field(default_factory=dict)


def diversity_of(texts: Sequence[str], vectors: Vectors) -> Diversity:
    """Measure texts whose unit vectors are known, shape (n, d)."""
    values: dict[str, float | None] = {
        "distance": pairwise_distance(vectors),
        "vendi": vendi(vectors),
        "div_bleu": div_bleu(texts),
        "distinct_1": distinct(texts, 1),
        "distinct_2": distinct(texts, 2),
        "order": order(vectors),
    }
    reasons = {"distinct_1": _WORDLESS, "distinct_2": _APART}
    why = {name: reasons.get(name, _FEW) for name, value in values.items() if value is None}
    return Diversity(len(texts), **values, undefined=why)


def text_diversity(
    texts: Sequence[str],
    embedder: Embedder | None = None,
    quality: Sequence[float | None] | None = None,
    at_least: float = 0.0,
) -> Diversity:
    """Measure how different texts are, or only those of them that are good enough.

    Args:
        texts: The texts.
        embedder: Embeds them; by default the packaged model.
        quality: A quality for each text, to gate by; a text without one (None) does not pass.
        at_least: Quality that a text must reach to be measured.

    Raises:
        ValueError: If there are not as many qualities as texts.
    """
    chosen = list(texts)
    if quality is not None:
        chosen = [t for t, q in zip(texts, quality, strict=True) if q is not None and q >= at_least]
    encoder = embedder or Embedder()
    return diversity_of(chosen, encoder.embed(chosen))


@dataclass(frozen=True)
class Measures:
    """Measures of one session; a value is None where it is undefined, and ``undefined`` says why.

    Attributes:
        ideas: Ideas on the whiteboard.
        depth: Mean influence depth of the ideas, in edges of the longest citation chain.
        absorption: Mean share of the discussion's public entities by other personas among an idea's ancestors;
            0 where there was no discussion.
        influence: By persona, the mean share that its entities have in the ancestors of other personas' ideas;
            None where there are no such ideas.
        citations: Mean citations of a thought, comment or idea whose author could see something to cite.
        uncited: Share of those that cite nothing.
        distance: Mean pairwise distance (1 - cosine) of the ideas, title and description together.
        vendi: Vendi score of the ideas, 1 to their number.
        div_bleu: 100 * (1 - self-BLEU) of the ideas.
        distinct_1: Different words among all words of the ideas.
        distinct_2: Different pairs of neighbouring words among all such pairs of the ideas.
        order: Order parameter of the ideas, 1 where all are alike.
        balance: Evenness of talk: normalised entropy of the personas' shares of contributions, 0 to 1.
        citations_dropped: Citations that named something unknown, invisible or itself, or repeated an id.
        clamped: Numbers that models wrote outside their scale.
        failures: Calls that failed after their retries.
        undefined: Reason for each measure that is None.
    """

    ideas: int
    depth: float | None
    absorption: float | None
    influence: dict[str, float | None]
    citations: float | None
    uncited: float | None
    distance: float | None
    vendi: float | None
    div_bleu: float | None
    distinct_1: float | None
    distinct_2: float | None
    order: float | None
    balance: float | None
    citations_dropped: int
    clamped: int
    failures: int
    undefined: dict[str, str]


def measure(session: Session, embedder: Embedder | None = None) -> Measures:
    """Measure a session; see ``Session.measures``."""
    undefined: dict[str, str] = {}

    def mean(name: str, values: Sequence[float], why: str) -> float | None:
        if not values:
            undefined[name] = why
            return None
        return sum(values) / len(values)

    lineage, depths = session.lineage, session.lineage.depths()
    asked = session.header["settings"].get("citations") != "off"
    cited = _citations(session) if asked else []
    uncited = "nothing there that could cite" if asked else "citations were not asked for"
    texts = [idea_text(i.title, i.description) for i in session.board]
    encoder = embedder or Embedder(session.header["settings"].get("embedder"))
    spread = diversity_of(texts, encoder.embed(texts))
    few = "fewer than two ideas" if texts else "no ideas"
    undefined |= {k: few if why == _FEW or not texts else f"{why} in the ideas" for k, why in spread.undefined.items()}
    different = {k: v for k, v in asdict(spread).items() if k not in ("n", "undefined")}
    influence = lineage.influence([idea.id for idea in session.board])
    return Measures(
        ideas=len(session.board),
        depth=mean("depth", [float(depths[idea.id]) for idea in session.board], "no ideas"),
        absorption=mean("absorption", _absorbed(session), "no ideas, no discussion phase, or nothing said by others"),
        influence={session.label(p): influence.get(p, 0.0 if session.board else None) for p in session.personas},
        citations=mean("citations", cited, uncited),
        uncited=mean("uncited", [float(n == 0) for n in cited], uncited),
        **different,
        balance=_balance(list(session.contributions.values()), undefined),
        citations_dropped=sum(sum(e.dropped.values()) for e in session.entities.values()),
        clamped=sum(e.clamped for e in session.entities.values()),
        failures=sum(isinstance(e, Failure) for e in session.events),
        undefined=undefined,
    )


def _absorbed(session: Session) -> list[float]:
    """Return the absorption of each idea that has one."""
    if not any(isinstance(e, Phase) and e.phase == "discussion" for e in session.events):
        return []
    discussion = session.discussion_ids()
    if not discussion:
        return [0.0] * len(session.board)
    shares = (session.lineage.absorption(idea.id, discussion) for idea in session.board)
    return [share for share in shares if share is not None]


def _citations(session: Session) -> list[int]:
    """Return the number of citations of each thought, comment and idea whose author could see an earlier entity.

    Ideas of one round are written at once, so none can cite another of its turn.
    """
    first: Entity | None = None
    knowing: set[str] = set()  # who has seen something that others may not have
    counts = []
    for entity in session.entities.values():
        public = first is not None and not (isinstance(first, Idea) and first.turn == entity.turn)
        if isinstance(entity, Thought | Comment | Idea) and (public or entity.author in knowing):
            counts.append(len(entity.cites))
        if first is None and visible_to(entity, EVERYONE):
            first = entity
        elif isinstance(entity, Thought):
            knowing.add(entity.author)
        elif isinstance(entity, Facilitation):
            knowing.add(entity.target)
    return counts


def _balance(counts: Sequence[int], undefined: dict[str, str]) -> float | None:
    total = sum(counts)
    if total == 0 or len(counts) < 2:
        undefined["balance"] = "nobody spoke, or one persona alone"
        return None
    return -sum(c / total * log(c / total) for c in counts if c) / log(len(counts))


def idea_text(title: str, description: str) -> str:
    """Return the text by which an idea is compared with others."""
    return f"{title}. {description}"
