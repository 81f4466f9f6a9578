"""The charts of one session: its course, who spoke when, how alike the personas are, and its lineage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from ..modules.events import (
    Comment,
    Distinctness,
    Draft,
    Entity,
    Facilitation,
    Idea,
    Message,
    Phase,
    Rated,
    Round,
    Summary,
    wording,
)
from ..modules.session import Session
from ..modules.text import excerpt
from ..modules.trajectory import Point
from .chart_strips import Strip, Tick, strips
from .charts import Bar, Level, Series, bars, heat, lines
from .lineage_chart import Node, lineage_chart
from .report_talk import KINDS, kind_of

__all__ = ["distinctness", "lineage", "speaking", "spoken", "talk", "timeline"]

_TIP = 50  # characters of an entity's text that its node shows
_MANY = 600  # entities from which on nodes show none, to keep the page small
_SPOKEN = (Comment, Idea, Facilitation, Summary, Draft, Message)


def timeline(session: Session) -> list[Markup]:
    """Return the charts of a session's course."""
    found = [*_course(session), *_rounds(session), *_confidence(session)]
    return found or [*_counts(session)]


def _phases(session: Session) -> list[Level]:
    return [Level(event.minute, event.phase) for event in session.events if isinstance(event, Phase)]


def _course(session: Session) -> list[Markup]:
    """Return ideas and votes over the minutes of a roundtable, beside its plan."""
    plan = session.plan()
    if plan is None:
        return []
    expected, course, borders = plan.expected(), session.trajectory(), _phases(session)
    return [
        _against_plan("Ideas, as planned and as they came", "ideas", expected, course, borders),
        _against_plan("Votes, as planned and as they came", "votes", expected, course, borders),
    ]


def _against_plan(
    title: str, name: str, expected: Sequence[Point], course: Sequence[Point], borders: Sequence[Level]
) -> Markup:
    end = max((border.at for border in borders), default=0.0)
    actual = [(point.minute, getattr(point, name)) for point in course]
    if end > actual[-1][0]:
        actual.append((end, actual[-1][1]))
    planned = [(point.minute, getattr(point, name)) for point in expected]
    series = [Series("planned", planned, planned=True, colour=7), Series(name, actual, step=True, colour=0)]
    return lines(title, series, x="session minute", y=name, borders=borders, whole="y")


def _counts(session: Session) -> list[Markup]:
    course = session.trajectory()
    if len(course) < 2:
        return []
    actual = [(point.minute, point.ideas) for point in course]
    series = [Series("ideas", actual, step=True)]
    return [lines("Ideas over the session", series, x="session minute", y="ideas", borders=_phases(session), whole="y")]


def _rounds(session: Session) -> list[Markup]:
    """Return how different the answers of a debate were in each round."""
    rounds = [event for event in session.events if isinstance(event, Round)]
    if not rounds:
        return []
    distance = [Series("mean distance", [(float(r.round), r.distance) for r in rounds])]
    score = [Series("Vendi score", [(float(r.round), r.vendi) for r in rounds], colour=1)]
    return [
        lines("Distance of the answers by round", distance, x="round", y="1 − cosine", whole="x"),
        lines("Different answers in effect by round", score, x="round", y="Vendi score", low=1.0, whole="x"),
    ]


def _confidence(session: Session) -> list[Markup]:
    """Return how confident each expert of a conversation was over its turns."""
    rated: dict[str, list[tuple[float, float | None]]] = {}
    for event in session.events:
        if isinstance(event, Rated):
            rated.setdefault(event.expert, []).append((float(event.turn), event.score))
    if not rated:
        return []
    series = [Series(session.label(expert), points) for expert, points in rated.items()]
    threshold = session.header["program"]["state"].get("threshold", {}).get("value")
    levels = [Level(float(threshold), f"speaks from {threshold:g}")] if threshold is not None else []
    title = "Confidence of the experts that they can add something"
    return [lines(title, series, x="turn", y="confidence, 0 to 10", levels=levels, high=10.0, whole="x")]


def talk(session: Session) -> Markup:
    """Return who spoke in which turn, as a strip for each voice."""
    voices: dict[str, list[Tick]] = {persona: [] for persona in session.personas}
    for entity in session.entities.values():
        if isinstance(entity, _SPOKEN):
            note = f"{entity.id} in turn {entity.turn}: {excerpt(wording(entity), _TIP)}"
            voices.setdefault(entity.author, []).append(Tick(float(entity.turn), kind_of(entity), note))
    rows = [Strip(session.label(author), ticks) for author, ticks in voices.items()]
    borders = [Level(float(e.turn), e.phase) for e in session.events if isinstance(e, Phase) and e.phase != "closed"]
    return strips("Who spoke in which turn", rows, x="turn", borders=borders)


def speaking(session: Session) -> Markup:
    """Return how often each persona spoke; in a debate, how many answers it wrote."""
    counts = spoken(session)
    unit = "Answers" if _debated(session) else "Times"
    note = "" if _debated(session) else "Remarks and ideas."
    items = [Bar(session.label(persona), float(count)) for persona, count in counts.items()]
    return bars("How often each one spoke", items, head="Who", unit=unit, note=note)


def spoken(session: Session) -> dict[str, int]:
    """Return how often each persona spoke, in seat order; in a debate, how many answers it wrote."""
    if not _debated(session):
        return dict(session.contributions)
    answers = Counter(entity.author for entity in session.entities.values() if isinstance(entity, Draft))
    return {persona: answers[persona] for persona in session.personas}


def _debated(session: Session) -> bool:
    return any(isinstance(entity, Draft) for entity in session.entities.values())


def distinctness(session: Session) -> Markup:
    """Return how alike the sketches of the personas are, or nothing where that was not measured."""
    event = next((e for e in session.events if isinstance(e, Distinctness)), None)
    if event is None:
        return Markup("")
    seat = {persona: place for place, persona in enumerate(event.personas)}
    rows = [f"{persona} {session.label(persona)}" for persona in event.personas]
    matrix = [[None if i == j else value for j, value in enumerate(row)] for i, row in enumerate(event.matrix)]
    pairs = {(seat[a], seat[b]) for a, b in event.too_close}
    note = "Cosine of their sketches: 1 would be the same person twice."
    if event.too_close:
        named = "; ".join(f"{session.label(a)} and {session.label(b)}" for a, b in event.too_close)
        note += f" Too close: {named}."
    flagged = pairs | {(b, a) for a, b in pairs}
    title = "How alike the personas are"
    return heat(title, rows, event.personas, matrix, flagged=flagged, flag="too close", note=note)


def lineage(session: Session) -> Markup:
    """Return the graph of all entities and their citations."""
    entities = list(session.entities.values())
    lanes = dict.fromkeys([*session.personas, *(entity.author for entity in entities)])
    names = {author: session.label(author) for author in lanes}
    tip = _TIP if len(entities) <= _MANY else 0
    nodes = [_node(entity, names, tip) for entity in entities]
    return lineage_chart("Who built on what", names, nodes, list(KINDS.values()))


def _node(entity: Entity, names: dict[str, str], length: int) -> Node:
    said = excerpt(wording(entity), length) if length else ""
    tip = f"{entity.id}, {kind_of(entity)} of {names[entity.author]}" + (f": {said}" if said else "")
    return Node(entity.id, entity.author, kind_of(entity), tip, entity.cites, isinstance(entity, Idea | Draft))
