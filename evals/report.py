"""The report of sessions as one page: of one session all there is to see, of several a comparison.

The page is built from the session alone; the embedding model is used for the measures and nothing else.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..modules.budget import Usage
from ..modules.embedding import Embedder
from ..modules.events import Consensus, Draft, Left, Vote
from ..modules.files import cost_line
from ..modules.session import RankedIdea, Session
from ..modules.story import story
from . import report_charts as charts
from .comparison import comparison_page
from .pages import json_block, write_page
from .report_costs import costs, price
from .report_measures import measure_rows
from .report_rerun import PEOPLE_FILE, model_rows, rerun_command, rerun_python
from .report_talk import turns_of

__all__ = ["REPORT_NAME", "glance", "session_page", "write_report"]

REPORT_NAME = "report.html"
_SHOWN_FIRST = 10  # ideas shown at once; more are folded away


@dataclass(frozen=True)
class Support:
    """A vote for an idea: whose, with which reason, and whether it came from proposing the same."""

    who: str
    reason: str
    duplicate: bool


@dataclass(frozen=True)
class IdeaCard:
    """An idea as it is shown: in the ranking, with its votes, depth and history."""

    idea: RankedIdea
    support: list[Support]
    share: float
    depth: int
    history: list[str]
    superseded_by: str


@dataclass(frozen=True)
class PersonaCard:
    """A persona as it is shown."""

    id: str
    label: str
    role: str
    sketch: str
    spoke: int
    extra: dict[str, str]
    left: str


def write_report(sessions: Sequence[Session], path: Path, embedder: Embedder | None = None) -> None:
    """Write the report of one session, or the comparison of several.

    Args:
        sessions: The sessions, at least one.
        path: The file.
        embedder: Embeds the ideas for the measures; by default each session's own model.

    Raises:
        OutputError: If the file cannot be written.
        UserError: If the embedding model cannot be loaded.
    """
    if len(sessions) == 1:
        write_page(path, "report.html.j2", **session_page(sessions[0], embedder))
    else:
        write_page(path, "comparison.html.j2", **comparison_page(sessions, path.parent, embedder))


def session_page(session: Session, embedder: Embedder | None = None) -> dict[str, Any]:
    """Return what the page of one session shows."""
    cards = _ideas(session)
    rows, by_persona = measure_rows(session.measures(embedder))
    consensus = _consensus(session)
    voted = any(isinstance(entity, Vote) for entity in session.entities.values())
    return {
        "title": session.topic,
        "session": session,
        "glance": glance(session),
        "cards": cards[:_SHOWN_FIRST],
        "more_cards": cards[_SHOWN_FIRST:],
        "has_votes": voted and consensus is None,
        "consensus": consensus,
        "personas": _personas(session),
        "speaking": charts.speaking(session) if session.personas else "",
        "distinctness": charts.distinctness(session),
        "timeline": charts.timeline(session),
        "talk": charts.talk(session),
        "lineage": charts.lineage(session) if session.entities else "",
        "graph": json_block({name: list(cites) for name, cites in session.lineage.cites.items()}),
        "rounds": _drafts(session),
        "turns": turns_of(session),
        "measures": rows,
        "by_persona": by_persona,
        "costs": costs(session),
        "cost_line": cost_line(session.usage),
        "models": model_rows(session),
        "settings": _pretty({"settings": session.header["settings"], "tunables": _tunables(session)}),
        "replay_command": shlex.join(["salon", "replay", str(session.folder)]),
        "rerun_command": rerun_command(session),
        "people_note": f"{PEOPLE_FILE} is to hold the people above" if PEOPLE_FILE in rerun_command(session) else "",
        "rerun_python": rerun_python(session),
        "place": str(session.folder or ""),
    }


def glance(session: Session) -> list[tuple[str, str]]:
    """Return the figures at a glance: (number, what it counts)."""
    usage: Usage = session.usage
    last = session.events[-1] if session.events else None
    figures = [
        (str(len(session.board)), "idea" if len(session.board) == 1 else "ideas"),
        (str(len(session.personas)), "persona" if len(session.personas) == 1 else "personas"),
        (str(last.turn if last else 0), "turns"),
        *([(f"{last.minute:.1f}", "minutes of talk")] if last and last.minute else []),
        (f"{usage.calls:,}", "model calls"),
        (f"{usage.tokens:,}", "tokens"),
        (price(usage).removeprefix("price "), "cost"),
        (f"{usage.seconds:,.0f} s", "in all"),
    ]
    return [figure for figure in figures if figure[0] != "no cost"]


def _ideas(session: Session) -> list[IdeaCard]:
    votes, depths = session.votes, session.lineage.depths()
    later = {idea.supersedes: idea.id for idea in session.board if idea.supersedes}
    ranked = session.ideas
    most = max((idea.votes for idea in ranked), default=0)
    return [
        IdeaCard(
            idea,
            [Support(session.label(v.author), v.reason, v.origin == "duplicate") for v in votes[idea.id]],
            idea.votes / most if most else 0.0,
            depths[idea.id],
            story(session, idea.id).splitlines(),
            later.get(idea.id, ""),
        )
        for idea in ranked
    ]


def _personas(session: Session) -> list[PersonaCard]:
    spoken = charts.spoken(session)
    gone = {event.persona: event.reason for event in session.events if isinstance(event, Left)}
    return [
        PersonaCard(name, who.label, who.role, who.sketch, spoken[name], dict(who.extra), gone.get(name, ""))
        for name, who in session.personas.items()
    ]


def _consensus(session: Session) -> dict[str, Any] | None:
    """Return the choice of an answer, if there was one."""
    event = next((e for e in session.events if isinstance(e, Consensus)), None)
    if event is None:
        return None
    idea = session.entities.get(event.idea)
    return {
        "id": event.idea,
        "author": session.label(idea.author) if idea else "",
        "decided": event.decided,
        "reason": event.reason,
        "rejected": [(session.label(author), why) for author, why in event.rejected.items()],
    }


def _drafts(session: Session) -> dict[int, list[tuple[str, Draft, list[tuple[str, str]]]]]:
    """Return the answers of a debate by round: author, answer, and (author, id) of those it was shown."""
    rounds: dict[int, list[tuple[str, Draft, list[tuple[str, str]]]]] = {}
    for entity in session.entities.values():
        if isinstance(entity, Draft):
            seen = [(session.label(session.lineage.authors[s]), s) for s in entity.shown]
            rounds.setdefault(entity.round, []).append((session.label(entity.author), entity, seen))
    return rounds


def _tunables(session: Session) -> dict[str, Any]:
    state = session.header["program"]["state"]
    return {name: saved["value"] for name, saved in state.items() if isinstance(saved, dict) and "value" in saved}


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
