"""An audit's table, and a verdict in words that says no more than the numbers allow.

A bootstrap interval of few values is too narrow: of two it lies on one side of 0 every other time by chance.
Findings that rest on few are therefore told as signs, and count for nothing in the conclusion.
"""

from __future__ import annotations

from ..modules.files import cost_line, markdown
from .audit import CITATIONS, Ablation, Audit
from .edges import Edges
from .masking import Masking
from .statistics import FEW, Interval

__all__ = ["audit_markdown", "verdict"]

_LENIENT = 0.5  # share of controls found used above which a judge tells little
_NAMES = {
    "depth": "influence depth",
    "absorption": "absorption",
    "citations": "citations each",
    "distance": "distance of ideas",
    "vendi": "Vendi score",
    "quality": "judged quality",
}


def verdict(audit: Audit) -> list[str]:
    """Return what the audit allows to say, one sentence or two for each test, and one for the whole."""
    said = [_on_masking(audit.masking) + _on_the_model(audit), _on_edges(audit.edges)]
    if audit.ablation is not None:
        said.insert(0, _on_ablation(audit.ablation))
    return [*said, _on_the_whole(audit)]


def _on_ablation(found: Ablation) -> str:
    required, optional, lost = (
        found.means["required"]["depth"],
        found.means["optional"]["depth"],
        found.lost["depth"],
    )
    if required.value is None or optional.value is None or lost.value is None:
        return "Ablation: no two sessions could be compared."
    head = f"Ablation: ideas lie {required.value:.1f} citations deep where citing is required and {optional.value:.1f} "
    head += f"where it is optional, over {lost.n} seed{'' if lost.n == 1 else 's'}. "
    return head + _told(
        lost,
        "the demand itself deepens the graph, so that depth under it must not be read as influence alone",
        "the demand does not deepen the graph",
        "whether the demand deepens the graph is not shown either way",
    )


def _on_masking(found: Masking) -> str:
    effect = found.effect
    if effect.value is None:
        why = "; ".join(sorted(set(found.skipped.values()))) or "no proposal could be made again"
        return f"Masking: nothing to compare ({why})."
    more = "farther" if effect.value >= 0 else "less far"
    head = f"Masking: hiding a cited entity moves an idea {abs(effect.value):.3f} {more} than hiding an uncited one"
    head += f", over {effect.n} idea{'' if effect.n == 1 else 's'}. "
    return head + _told(
        effect,
        "the ideas depend on what they cite: citations name causes",
        "hiding what is cited changes ideas less than hiding something else: citations do not name causes",
        "the interval holds 0, so no dependence on what is cited is shown",
    )


def _on_the_model(audit: Audit) -> str:
    """Warn where ideas were proposed again by another model than the one that proposed them."""
    held, now = (models.get("participant") for models in (audit.held_with, audit.models))
    if held == now or audit.masking.effect.value is None:
        return ""
    return f" But they were proposed again by another model, {now}, than the one that proposed them, {held}."


def _on_edges(found: Edges) -> str:
    if found.precision.value is None:
        return "Edges: no citation could be judged."
    head = f"Edges: the judge finds {found.precision.value:.0%} of {found.precision.n} citations used"
    if found.controls.value is None:
        return head + "; there was nothing uncited to hold against it."
    head += f", and {found.controls.value:.0%} of uncited pairs. "
    if found.controls.value > _LENIENT:
        head += "It finds use nearly everywhere, so its precision says little by itself. "
    return head + _told(
        found.lift,
        "citations point to used text more often than uncited pairs do",
        "citations point to used text less often than uncited pairs do",
        "the two cannot be told apart",
    )


def _sure(interval: Interval) -> int:
    """Return the sign of an interval that rests on enough values, else 0."""
    return interval.sign if interval.n >= FEW else 0


def _told(interval: Interval, above: str, below: str, within: str) -> str:
    """Return the sentence for where an interval lies; one that rests on few values is but a sign."""
    said = {1: above, -1: below, 0: within}[interval.sign]
    if interval.n >= FEW:
        return f"{said[0].upper()}{said[1:]}."
    if interval.sign:
        return f"There are signs that {said}; but {interval.n} are few."
    return f"{said[0].upper()}{said[1:]}, but {interval.n} are few."


def _on_the_whole(audit: Audit) -> str:
    signs = (_sure(audit.masking.effect), _sure(audit.edges.lift))
    if signs == (1, 1):
        return "In all: the lineage of this session is borne out by cause and by content."
    if max(signs) == 1 and min(signs) == 0:
        by = "by cause, not by content" if signs[0] == 1 else "by content, not by cause"
        return f"In all: the lineage of this session is borne out in part, {by}."
    if min(signs) == -1:
        return "In all: this session's lineage is contradicted by at least one test; take it as what was claimed."
    return "In all: this session's lineage is neither borne out nor refuted; take it as what was claimed."


def audit_markdown(audit: Audit) -> str:
    """Return the audit as Markdown: tables, verdict, cost."""
    lines = ["# Lineage audit", ""]
    lines += [f"- {markdown(sentence)}" for sentence in verdict(audit)]
    lines += ["", "Means with 95 % intervals: bootstrap, Wilson for shares.", ""]
    lines += _ablation_table(audit.ablation) if audit.ablation else []
    m, e = audit.masking, audit.edges
    lines += ["## Masking: distance of an idea proposed again from the idea as it was", "", "| hidden | distance |"]
    lines += ["|---|---|", f"| nothing | {m.unmasked} |", f"| an uncited entity | {m.without_control} |"]
    lines += [f"| a cited entity | {m.without_cited} |", f"| **effect** (cited - uncited) | {m.effect} |", ""]
    matched = sum(pair.same_kind for pair in m.pairs)
    lines += [f"{len(m.pairs)} pairs, {matched} of one kind; {m.failed} calls failed."]
    lines += [f"Left out: {idea}, {why}." for idea, why in m.skipped.items()]
    lines += ["", "## Edges: is the earlier text used in the later one?", "", "| pairs | share used |", "|---|---|"]
    lines += [f"| cited (precision) | {e.precision} |", f"| uncited | {e.controls} |"]
    lines += [f"| **difference** | {e.lift} |", ""]
    lines += [f"{len(e.edges)} of {e.total} citations judged; {e.failed} judgements could not be had."]
    lines += ["Citations of one session are not independent, so the true intervals are wider.", ""]
    who = ", ".join(markdown(f"{role} {name}") for role, name in audit.models.items())
    lines += [f"Cost: {cost_line(audit.usage)}." + (f" Models: {who}." if who else ""), ""]
    return "\n".join(lines)


def _ablation_table(found: Ablation) -> list[str]:
    lines = ["## Ablation: the same personas and seeds, citations asked for or not", ""]
    lines += [f"| measure | {' | '.join(CITATIONS)} | required - optional |", "|---|---|---|---|---|"]
    for name, label in _NAMES.items():
        cells = [str(found.means[kind][name]) for kind in CITATIONS]
        lines.append(f"| {label} | {' | '.join(cells)} | {found.lost[name]} |")
    lines += ["", f"Seeds {', '.join(map(str, found.seeds))}."]
    return [*lines, *(f"Failed: {markdown(why)}." for why in found.failures), ""]
