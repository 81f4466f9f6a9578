"""Depth and ancestors of a citation chain of 10,000 entities, and what twice the length costs."""

from __future__ import annotations

import time

from salon.modules.lineage import Lineage


def _chain(length: int) -> float:
    start = time.perf_counter()
    lineage = Lineage.of((f"C{n}", f"P{n % 7}", (f"C{n - 1}",) if n > 1 else ()) for n in range(1, length + 1))
    assert lineage.depth(f"C{length}") == length - 1
    assert len(lineage.ancestors(f"C{length}")) == length - 1
    return time.perf_counter() - start


def measure() -> dict[str, str]:
    """Return the time and its growth."""
    _chain(1000)
    once, twice = min(_chain(10_000) for _ in range(5)), min(_chain(20_000) for _ in range(5))
    growth = f"20,000: {twice / once:.1f} times that"
    return {"lineage of a 10,000-entity chain (under 1 s)": f"{once * 1000:.0f} ms  ({growth})"}
