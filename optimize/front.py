"""Fronts of programs: which are dominated by none, how much a front covers, and which one to take.

A point dominates another if it is at least as good in every objective and better in one. A point that lacks a
value takes no part: it dominates nothing and is on no front. All functions take points as mappings of values by
the name of an objective, and return positions in the list they were given.

Rules to pick one program of a front:

| rule | takes |
|---|---|
| ``diverse`` | the most diverse within 1 % of the best quality (the default where diversity is an objective) |
| ``quality`` | the best quality |
| ``balanced`` | the knee: closest to the best of everything, each objective scaled from 0 to 1 over the front |
| ``cheapest`` | the least cost |

Ties go to the better quality, then the more diverse, then the cheaper, then the one that comes first. Where a
search has several objectives of a kind, the first one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import dist
from typing import TypeAlias

from salon.errors import UserError

from .objectives import Kind, Objective

__all__ = ["DEFAULT_RULE", "RULES", "default_rule", "dominates", "hypervolume", "pareto", "pick"]

Point: TypeAlias = Mapping[str, float | None]
RULES = {
    "diverse": "the most diverse within 1 % of the best quality",
    "quality": "the best quality",
    "balanced": "the knee of the front",
    "cheapest": "the cheapest",
}
"""Rules to pick by, each in words."""
DEFAULT_RULE = "diverse"
_NEEDED: dict[str, Kind] = {"diverse": "diversity", "quality": "quality", "cheapest": "cost"}
_WITHIN = 0.01


def _scores(points: Sequence[Point], objectives: Sequence[Objective]) -> dict[int, tuple[float, ...]]:
    """Return the values of each complete point, by position, turned so that more is better."""
    found = {}
    for at, point in enumerate(points):
        values = [point.get(objective.name) for objective in objectives]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            found[at] = tuple(o.sign * value for o, value in zip(objectives, known, strict=True))
    return found


def _dominates(first: Sequence[float], second: Sequence[float]) -> bool:
    return all(a >= b for a, b in zip(first, second, strict=True)) and tuple(first) != tuple(second)


def dominates(first: Point, second: Point, objectives: Sequence[Objective]) -> bool:
    """Return whether the first point is as good in all objectives and better in one; False if a value lacks."""
    scores = _scores([first, second], objectives)
    return len(scores) == 2 and _dominates(scores[0], scores[1])


def pareto(points: Sequence[Point], objectives: Sequence[Objective]) -> list[int]:
    """Return the positions of the points that no other dominates, in their order; equal points stay together."""
    scores = _scores(points, objectives)
    return [at for at, own in scores.items() if not any(_dominates(other, own) for other in scores.values())]


def hypervolume(points: Sequence[Point], objectives: Sequence[Objective], reference: Point) -> float:
    """Return the area that points dominate, up to a reference point that is worse than what matters.

    A sweep over the first objective from its best value on adds, for each point, the strip by which it exceeds
    the second objective so far. Points that do not exceed the reference in both add nothing.

    Raises:
        UserError: If there are not just two objectives, or the reference lacks one.
    """
    base = _scores([reference], objectives).get(0)
    if len(objectives) != 2 or base is None:
        raise UserError("The hypervolume cannot be had", "two objectives and a reference with both are needed")
    area, top = 0.0, base[1]
    for first, second in sorted(_scores(points, objectives).values(), reverse=True):
        if first > base[0] and second > top:
            area, top = area + (first - base[0]) * (second - top), second
    return area


def default_rule(objectives: Sequence[Objective]) -> str:
    """Return the first rule that the objectives say: ``diverse``, ``quality``, ``cheapest``, else ``balanced``."""
    said = (rule for rule, kind in _NEEDED.items() if _first(kind, objectives) is not None)
    return next(said, "balanced")


def pick(points: Sequence[Point], objectives: Sequence[Objective], rule: str = DEFAULT_RULE) -> int | None:
    """Return the position of the point to take, by a rule; None if there is none to take.

    Raises:
        UserError: If the rule is not known, or asks for what the objectives do not say.
    """
    if rule not in RULES:
        raise UserError(f"There is no rule {rule!r} to pick by", todo=f"Give one of {', '.join(RULES)}.")
    if (needed := _NEEDED.get(rule)) is not None and _first(needed, objectives) is None:
        raise UserError(f"{rule!r} picks by {needed}", "no objective says it", "Pick by another rule.")
    front = pareto(points, objectives)
    scores = _scores(points, objectives)
    if not front:
        return None
    kinds: tuple[Kind, ...] = ("quality", "diversity", "cost")
    of = {kind: _first(kind, objectives) for kind in kinds}

    def score(kind: Kind, at: int) -> float:
        place = of[kind]
        return 0.0 if place is None else scores[at][place]

    by_rule: dict[str, Callable[[int], float]] = {
        "diverse": lambda at: score("diversity", at),
        "quality": lambda at: score("quality", at),
        "balanced": lambda at: -_lacking(scores[at], [scores[other] for other in front]),
        "cheapest": lambda at: score("cost", at),
    }
    if rule == "diverse":
        best = max(score("quality", at) for at in front)
        front = [at for at in front if score("quality", at) >= best - _WITHIN * abs(best)]
    return max(front, key=lambda at: (by_rule[rule](at), *(score(kind, at) for kind in of), -at))


def _first(kind: Kind, objectives: Sequence[Objective]) -> int | None:
    return next((n for n, objective in enumerate(objectives) if objective.kind == kind), None)


def _lacking(own: Sequence[float], front: Sequence[Sequence[float]]) -> float:
    """Return the distance to the best of everything, each objective scaled from 0 to 1 over the front."""
    low, high = [min(c) for c in zip(*front, strict=True)], [max(c) for c in zip(*front, strict=True)]
    scaled = [(v - a) / (b - a) if b > a else 1.0 for v, a, b in zip(own, low, high, strict=True)]
    return dist(scaled, [1.0] * len(scaled))
