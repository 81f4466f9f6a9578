"""The duration study, the lineage audit and the diversity table at the size of the papers, on a loopback server.

Proves that the commands hold at that size; the texts mean nothing. ``--citations`` sets the study's ways of
citing, ``--keep DIR`` keeps what was written.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from salon.testing import LoopbackProcess

STUDY = ["--minutes", "0,5,10,15,20,25", "--sessions", "6", "--personas", "13", "--concurrency", "32"]


def run(name: str, command: list[str], environment: dict[str, str]) -> None:
    """Run a command and print how long it took and the end of what it printed."""
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    print(f"{name}: exit {done.returncode}, {time.monotonic() - start:.0f} s", flush=True)
    print("\n".join((done.stdout if done.returncode == 0 else done.stderr).splitlines()[-60:]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--citations", default="required,optional")
    parser.add_argument("--keep", metavar="DIR")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, LoopbackProcess() as server:
        place = Path(options.keep or scratch)
        environment = {**os.environ, "DSPY_CACHEDIR": str(Path(scratch) / "cache")}
        model = ["--lm", "openai/loopback", "--api-base", server.base_url]
        salon = [sys.executable, "-m", "salon"]
        study = [*salon, "study", "duration", *STUDY, "--citations", options.citations, "--out", str(place / "study")]
        run("study", [*study, *model, "--api-key", "none"], environment)
        first = options.citations.split(",")[0]
        session = place / "study" / f"citations-{first}" / "minutes-10" / "seed-0"
        run("audit", [*salon, "audit", str(session), "--seeds", "3", *model, "--api-key", "none"], environment)
        table = [sys.executable, "-m", "benchmarks.diversity_table", "--paper", *model]
        run("diversity table", table, {**environment, "OPENAI_API_KEY": "none"})


if __name__ == "__main__":
    main()
