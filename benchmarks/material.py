"""What the measurements share: personas, a warm embedder, the settings of a quiet process."""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")
os.environ["DSPY_CACHEDIR"] = tempfile.mkdtemp(prefix="salon-bench-")

from salon.modules.embedding import Embedder
from salon.signatures import Persona

__all__ = ["people", "warm_embedder"]

_DAYS = (
    "walks to the market before dawn and argues with the baker about the price of flour",
    "repairs bicycles in a garage that floods each spring and teaches children to patch tubes",
    "keeps the books of a small theatre and knows every superstition of its actors",
    "drives a night bus and writes down the odd things passengers leave on the seats",
    "runs a clinic for old dogs and cannot refuse an animal that limps",
)
_FEARS = (
    "fears that machines will make people stop asking each other the way",
    "fears to be a burden to her children and hides how little she sees",
    "fears noise, crowds and any device that needs an account before it works",
)
_HOPES = (
    "hopes to sail once around the island where his father was born, and talks in short plain sentences",
    "hopes that somebody will at last build a tool for people with only one free hand, and laughs a lot",
)


def people(count: int) -> list[Persona]:
    """Return personas whose sketches have the 60 to 80 words of real ones."""
    return [
        Persona(
            name=f"Person {chr(65 + n % 26)}{n // 26 or ''}",
            role=f"guest number {n + 1}",
            sketch=f"This person, aged {20 + 3 * n}, {_DAYS[n % 5]}; last year something odd happened "
            f"on the {n + 1}. of May that changed how they see the topic: a stranger helped and asked for nothing. "
            f"The person {_FEARS[n % 3]} and {_HOPES[n % 2]}.",
        )
        for n in range(count)
    ]


def warm_embedder() -> Embedder:
    """Return an embedder whose model is loaded."""
    embedder = Embedder()
    embedder.embed(["warm"])
    return embedder
