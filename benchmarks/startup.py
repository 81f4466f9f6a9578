"""How long ``import salon`` and ``salon --help`` take beyond Python's own start."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median


def _seconds(code: str) -> float:
    times = []
    for _ in range(7):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return median(times)


def measure() -> dict[str, str]:
    """Return both times."""
    python = _seconds("pass")
    imported = _seconds("import salon")
    helped = _seconds("import sys; sys.argv=['salon', '--help']; import salon.cli; salon.cli.main()")
    return {
        "import salon beyond Python's start (under 0.3 s)": f"{imported - python:.3f} s",
        "salon --help in all (under 0.5 s)": f"{helped:.3f} s",
    }
