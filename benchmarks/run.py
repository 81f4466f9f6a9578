"""Run the measurements and print their figures: ``python -m benchmarks.run [NAME...]``."""

from __future__ import annotations

import importlib
import platform
import sys

NAMES = (
    *("startup", "lineage_speed", "call_overhead", "session_speed", "growth", "set_speed", "report_speed"),
    *("evaluation", "compile_overhead"),
)


def main() -> None:
    """Print a table of figures, a line each."""
    names = sys.argv[1:] or NAMES
    print(f"Python {platform.python_version()} on {platform.machine()}, {platform.system()}")
    for name in names:
        for figure, value in importlib.import_module(f"benchmarks.{name}").measure().items():
            print(f"{figure:68} {value}", flush=True)


if __name__ == "__main__":
    main()
