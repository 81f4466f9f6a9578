"""Diversity of debate variants and baselines on a few keywords: a table of the shape of the paper's tables.

``python -m benchmarks.diversity_table`` runs at a size for the embedded model; ``--paper`` at the paper's size
(8 keywords, G = 5, N = 5, R = 2, k = 2), with ``--lm`` and ``--api-base`` for any model. Answers come back from
DSPy's cache when the same command is run again, so an interrupted run goes on where it stopped. The table is
printed after each keyword, so that a run that was stopped early has one over the keywords that were done.

For each keyword G sessions are held; Vendi score, mean pairwise distance and Div-BLEU are taken over their G
answers. A row gives the mean over keywords and its 95 % bootstrap interval (10,000 resamples of keywords).
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import dspy
from salon.evals.statistics import mean_interval
from salon.modules.program import SessionProgram

import salon

KEYWORDS = ("umbrella", "fermentation", "lighthouse", "sleep", "bicycle", "soil", "echo", "glass")
TASK = "Propose one scientific or practical idea about the keyword '{}', in at most 60 words."


def methods(agents: int, rounds: int, k: int, embedder: salon.Embedder) -> dict[str, SessionProgram]:
    """Return the methods to compare, by name."""
    debate = {"agents": agents, "rounds": rounds, "k": k, "embedder": embedder}
    return {
        "Debate (lenses, farthest)": salon.Debate(**debate),
        "homogeneous": salon.Debate.homogeneous(**debate),
        "lens only": salon.Debate.lens_only(**debate),
        "selection only": salon.Debate.selection_only(**debate),
        "Direct": salon.Direct(embedder=embedder),
        "Voting+lens": salon.Voting(answers=agents, lens=True, embedder=embedder),
    }


def table(found: dict[str, list[Any]], seconds: Counter[str]) -> str:
    """Return the table as Markdown: a row for each method, over the keywords so far."""
    lines = [
        "| method | Vendi (1 to G) | distance | Div-BLEU | calls | failed | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, sets in found.items():
        columns = []
        for measure in ("vendi", "distance", "div_bleu"):
            values = [getattr(s, measure) for s in sets]
            columns.append(str(mean_interval([v for v in values if v is not None])))
        calls = sum(session.usage.calls for s in sets for session in s.sessions)
        failed = sum(len(s.failures) for s in sets)
        lines.append(f"| {name} | {' | '.join(columns)} | {calls} | {failed} | {seconds[name]:.0f} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Hold the sessions and print the table after each keyword."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--paper", action="store_true", help="the paper's size instead of a small one")
    parser.add_argument("--keywords", type=int, help="how many keywords")
    parser.add_argument("--g", type=int, help="sessions for each keyword")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lm")
    parser.add_argument("--api-base")
    options = parser.parse_args()
    agents, rounds, k = (5, 2, 2) if options.paper else (3, 1, 1)
    g = options.g or (5 if options.paper else 4)
    keywords = KEYWORDS[: options.keywords or (8 if options.paper else 4)]
    compared = methods(agents, rounds, k, salon.Embedder())
    found: dict[str, list[Any]] = {name: [] for name in compared}
    seconds: Counter[str] = Counter()
    with dspy.context(lm=salon.lm(options.lm, api_base=options.api_base)):
        for done, word in enumerate(keywords, 1):
            for name, program in compared.items():
                start = time.monotonic()
                found[name].append(salon.sessions(program, {"task": TASK.format(word)}, g=g, seed=options.seed))
                seconds[name] += time.monotonic() - start
            print(f"{done} keywords, G={g}, N={agents}, R={rounds}, k={k}, seed {options.seed}\n")
            print(table(found, seconds), flush=True)


if __name__ == "__main__":
    main()
