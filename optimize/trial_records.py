"""What a storage knows of a trial, read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .objectives import Objective, Value, pooled, value_of
from .space import Dimension
from .trials import State, TrialRecord

__all__ = ["again_name", "excess_of", "measurements", "passed_limit", "record_of"]

_STATES: dict[str, State] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
Measured = Mapping[str, Mapping[str, float | None]]  # by objective and query


def again_name(key: str, number: int) -> str:
    """Return under which name a study keeps what a program was measured as with other seeds."""
    return f"again/{key}/{number}"


def excess_of(
    values: Mapping[str, Value], objectives: Sequence[Objective], limits: Mapping[str, float]
) -> dict[str, float]:
    """Return by how much each limit is passed, as a share of it; 0 or less where it is kept."""
    signs = {objective.name: objective.sign for objective in objectives}
    return {
        f"{name} limit": signs[name] * (bound - mean) / (abs(bound) or 1.0)
        for name, bound in limits.items()
        if name in values and (mean := values[name].value) is not None
    }


def passed_limit(values: Mapping[str, Value], objectives: Sequence[Objective], limits: Mapping[str, float]) -> str:
    """Return which limit is passed, in words; empty if all are kept."""
    for name, excess in excess_of(values, objectives, limits).items():
        if excess > 0:
            objective = name.removesuffix(" limit")
            return f"{objective} of {values[objective].value:.4g} passes the limit of {limits[objective]:g}"
    return ""


def measurements(trial: Any, attrs: Mapping[str, Any]) -> list[Measured]:
    """Return what an Optuna trial was measured as: once, and again as the attributes of its study tell."""
    found: list[Measured] = [trial.user_attrs.get("found", {}).get("values", {})]
    if trial.state.name == "COMPLETE":
        while (more := attrs.get(again_name(trial.user_attrs["key"], len(found)))) is not None:
            found.append(more)
    return found


def record_of(
    trial: Any,
    source: Any,
    found: Sequence[Measured],
    space: Mapping[str, Dimension],
    objectives: Sequence[Objective],
    limits: Mapping[str, float],
) -> TrialRecord:
    """Return the record of an Optuna trial.

    Args:
        trial: The trial.
        source: The trial whose values it has: itself, or the one it is a copy of.
        found: What that one was measured as.
        space: What is searched.
        objectives: What is measured.
        limits: Limits by objective.
    """
    needs = {objective.name: objective.needs for objective in objectives}
    values = {name: pooled([value_of(part[name], needs[name]) for part in found]) for name in found[0]}
    complete = source.state.name == "COMPLETE"
    own, told = trial.user_attrs, source.user_attrs.get("found", {})
    return TrialRecord(
        number=trial.number,
        numbers={name: space[name].tidy(value) for name, value in own.get("numbers", trial.params).items()},
        state=_STATES.get(source.state.name, "running"),
        values=values,
        measured=len(found),
        feasible=all(excess <= 0 for excess in excess_of(values, objectives, limits).values()),
        reason=passed_limit(values, objectives, limits) if complete else told.get("reason", ""),
        key=own.get("key", ""),
        untuned=bool(own.get("untuned")),
        copy_of=own.get("copy_of"),
        sessions=told.get("sessions", 0),
        failed=told.get("failed", 0),
        seconds=told.get("seconds", 0.0),
    )
