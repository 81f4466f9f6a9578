"""Who speaks next: a pure decision, apart from the speaking.

Three tiers, after the virtual roundtable of Dorn, Khan and Mumford; the first that has a candidate decides:

1. whoever was addressed by name, by the facilitator or by the last speaker;
2. whoever wants to speak with an eagerness at or above the threshold, drawn at random with weight
   ``eagerness * fairness ** turns_silent``;
3. whoever was heard least so far, drawn at random among ties.

The last speaker is left out unless nobody else is there.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Bid", "Choice", "choose_speaker"]


@dataclass(frozen=True)
class Bid:
    """What one persona brings to the choice.

    Attributes:
        eagerness: 0 to 10.
        wants: Whether it wants the floor at all.
        silent: Turns since it last spoke.
        heard: How often it has spoken.
    """

    eagerness: float
    wants: bool
    silent: int
    heard: int


@dataclass(frozen=True)
class Choice:
    """Who gets the floor, by which tier, and why."""

    speaker: str
    tier: Literal[1, 2, 3]
    reason: str


def choose_speaker(
    bids: Mapping[str, Bid],
    addressed: Sequence[str],
    last: str,
    threshold: float,
    fairness: float,
    draw: random.Random,
) -> Choice | None:
    """Choose the next speaker; None if nobody can speak.

    Args:
        bids: By persona id, in seat order; personas that cannot speak this turn are not in it.
        addressed: Persona ids addressed by name, most urgent first.
        last: The last speaker, or an empty string.
        threshold: Eagerness from which a persona selects itself.
        fairness: Base of the weight for turns of silence, at least 1.
        draw: Source of randomness for this choice alone.
    """
    others = {name: bid for name, bid in bids.items() if name != last} or dict(bids)
    if not others:
        return None
    for name in addressed:
        if name in others:
            return Choice(name, 1, "was addressed by name")
    eager = {n: b for n, b in others.items() if b.wants and b.eagerness >= threshold}
    if eager:
        longest = max(b.silent for b in eager.values())  # weights are relative to its, so none overflows
        weights = [b.eagerness * fairness ** (b.silent - longest) for b in eager.values()]
        name = draw.choices(list(eager), weights if sum(weights) > 0 else None)[0]
        return Choice(name, 2, f"was eager ({eager[name].eagerness:g} of 10)")
    least = min(bid.heard for bid in others.values())
    quiet = [name for name, bid in others.items() if bid.heard == least]
    return Choice(draw.choice(quiet), 3, f"was heard least ({least} times)")
