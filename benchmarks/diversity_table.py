"""Diversity of debate variants and baselines on a few keywords: a table of the shape of the paper's tables.

``python -m benchmarks.diversity_table`` runs at a size for the embedded model; ``--paper`` at the paper's size
(8 keywords, G = 5, N = 5, R = 2, k = 2), with ``--lm`` and ``--api-base`` for any model. Answers come back from
DSPy's cache when the same command is run again, so an interrupted run goes on where it stopped.

For each keyword G sessions are held; Vendi score, mean pairwise distance and Div-BLEU are taken over their G
answers. A row gives the mean over keywords and its 95 % bootstrap interval (10,000 resamples of keywords).
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import dspy
import numpy as np
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


def interval(values: list[float]) -> str:
    """Return a mean with its 95 % bootstrap interval; the mean alone for one value."""
    data = np.asarray(values, dtype=float)
    if len(data) < 2:
        return f"{data.mean():.3f}"
    draws = np.random.default_rng(0).choice(data, size=(10_000, len(data))).mean(axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return f"{data.mean():.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Hold the sessions and print the table as Markdown."""
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
    embedder = salon.Embedder()
    print(f"{len(keywords)} keywords, G={g}, N={agents}, R={rounds}, k={k}, seed {options.seed}\n")
    print("| method | Vendi (1 to G) | distance | Div-BLEU | calls | failed | seconds |\n|---|---|---|---|---|---|---|")
    with dspy.context(lm=salon.lm(options.lm, api_base=options.api_base)):
        for name, program in methods(agents, rounds, k, embedder).items():
            start = time.monotonic()
            sets = [salon.sessions(program, {"task": TASK.format(w)}, g=g, seed=options.seed) for w in keywords]
            columns = [
                interval([s.vendi for s in sets if s.vendi is not None]),
                interval([s.distance for s in sets if s.distance is not None]),
                interval([s.div_bleu for s in sets if s.div_bleu is not None]),
            ]
            calls = sum(session.usage.calls for s in sets for session in s.sessions)
            failed = sum(len(s.failures) for s in sets)
            seconds = time.monotonic() - start
            print(f"| {name} | {' | '.join(columns)} | {calls} | {failed} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
