"""Arguments of the wrong type are told in one line, before anything is spent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from salon.modules import Budget, Debate, Direct, Roundtable

import salon
from salon.errors import UserError
from salon.testing import LoopbackServer


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"budget": 5}, r"budget=5 .*a salon\.Budget is needed"),
        ({"budget": {"calls": 3}}, r"a salon\.Budget is needed"),
        ({"out": 7}, r"out=7 .*the path of a folder"),
        ({"control": "stop"}, r"control='stop' .*a salon\.Control"),
        ({"limit": 4}, r"limit=4 .*an asyncio\.Semaphore"),
        ({"seed": "a"}, r"The seed 'a'"),
        ({"seed": True}, r"The seed True"),
    ],
)
def test_arguments_of_a_session(
    roundtable: Callable[..., Roundtable], loopback: LoopbackServer, arguments: dict[str, Any], told: str
) -> None:
    program = roundtable(lms={"participant": loopback.lm(), "facilitator": loopback.lm()})
    with pytest.raises(UserError, match=told):
        asyncio.run(program.hold(topic="Tea", **arguments))
    assert loopback.requests == []


@pytest.mark.parametrize("seed", ["a", 1.5, None, True])
def test_a_set_needs_a_whole_seed(loopback: LoopbackServer, seed: Any) -> None:
    with pytest.raises(UserError, match="it must be a whole number"):
        salon.sessions(Direct(lms={"participant": loopback.lm()}), {"task": "x"}, g=2, seed=seed)
    assert loopback.requests == []


@pytest.mark.parametrize("embedder", [5, ["a"], object()])
def test_an_embedder_is_a_name_or_an_embedder(embedder: Any) -> None:
    with pytest.raises(UserError, match="the name of a model or an Embedder is needed"):
        Debate(embedder=embedder)


def test_a_budget_of_calls_is_kept(roundtable: Callable[..., Roundtable], loopback: LoopbackServer) -> None:
    program = roundtable(lms={"participant": loopback.lm(), "facilitator": loopback.lm()}, turns=20)
    session = asyncio.run(program.hold(topic="Tea", budget=Budget(calls=25)))
    assert session.usage.calls <= 25
    assert session.status == "cut short"
    assert session.ideas
