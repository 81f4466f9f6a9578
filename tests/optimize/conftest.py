"""A bench whose programs are as good and as diverse as a formula says, so that the true front is known."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import hypothesis
import numpy as np
import pytest
from salon.data.benchmarks import Task
from salon.evals.jobs import JobRow
from salon.modules import Debate, Embedder

hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


class Spread(Embedder):
    """Reads ``spread NUMBER author NAME`` in a text: a common direction plus so much of a random one of its own."""

    def __init__(self) -> None:
        super().__init__("spread")

    def _encoder(self) -> Callable[[list[str]], Any]:
        return lambda texts: np.stack([self._vector(text) for text in texts])

    def _vector(self, text: str) -> Any:
        spread, own = float(text.split()[1]), text.split()[3]
        draw = np.random.default_rng(int.from_bytes(hashlib.sha256(own.encode()).digest()[:8], "big"))
        random = draw.normal(size=64)
        common = np.zeros(64)
        common[0] = 1.0
        return common + spread * random / np.linalg.norm(random)


def formula(program: Any) -> tuple[float, float]:
    """Return quality and spread: rounds help quality, k and cool agents cost diversity, k = 2 is best for quality."""
    k, rounds, temperature = int(program.k), int(program.rounds), float(program.temperature)
    used = k if rounds else 0
    quality = 5 + 0.8 * sqrt(rounds) - 0.35 * abs(used - 2) * bool(rounds) - 2.5 * abs(temperature - 0.8)
    spread = 0.2 + 1.2 * temperature - 0.12 * rounds - 0.15 * used
    return quality, max(spread, 0.05)


class FormulaBench:
    """A bench without sessions.

    Args:
        groups: Answers per query.
        noise: Standard deviation of an answer's quality around the formula, on top of what all trials share.
        fail: Returns why a program's sessions fail, or nothing.
        seconds: How long a measurement takes.
        of: Returns the quality and the spread of a program's answers.

    Attributes:
        made: How often each query was measured, by place, query and number of the seeds.
    """

    def __init__(
        self,
        groups: int = 3,
        noise: float = 0.0,
        fail: Callable[[Any], str] = lambda _: "",
        seconds: float = 0.0,
        of: Callable[[Any], tuple[float, float]] = formula,
    ) -> None:
        self.groups, self.noise, self.fail, self.seconds, self.of = groups, noise, fail, seconds, of
        self.embedder = Spread()
        self.made: Counter[tuple[str, str, int]] = Counter()

    async def measure(self, program: Any, tasks: Sequence[Task], place: str, fresh: int = 0) -> list[JobRow]:
        await asyncio.sleep(self.seconds)
        (quality, spread), why = self.of(program), self.fail(program)
        rows = []
        for task in tasks:
            self.made[place, task.id, fresh] += 1
            for run in range(1, self.groups + 1):
                shared = zlib.crc32(f"{task.id}/{run}/{fresh}".encode())
                luck = np.random.default_rng(shared).normal() * 0.5
                own = np.random.default_rng(zlib.crc32(f"{place}/{shared}".encode())).normal() * self.noise
                value = quality + luck + own
                rating = {"judge": "j", "scores": {}, "value": value, "how": "", "reason": "", "error": ""}
                rows.append(
                    JobRow(
                        method="program", query=task.id, run=run, seed=shared, status="failed" if why else "ok",
                        reason=why, answer=f"spread {spread:.4f} author {shared}", ratings=[] if why else [rating],
                        prompt_tokens=100 * program.calls(), completion_tokens=20 * program.calls(),
                    )
                )  # fmt: skip
        return rows


@pytest.fixture
def tasks() -> list[Task]:
    return [Task(f"q{n}", f"Task {n}", f"Task {n}") for n in range(12)]


@pytest.fixture
def debate() -> Debate:
    return Debate(embedder=Spread())


@pytest.fixture
def bench() -> type[FormulaBench]:
    return FormulaBench


@pytest.fixture
def spread() -> Spread:
    return Spread()
