"""``salon eval calibrate``: how far a judge agrees with people's labels."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from salon.errors import UserError
from salon.running import budget, default_folder, make_models, write_progress

__all__ = ["calibrate"]


def calibrate(options: argparse.Namespace) -> int:
    """Have labelled solutions judged, print the agreement, and return the exit code."""
    from salon.data.labels import load_labels
    from salon.data.rubrics import load_rubric
    from salon.evals.calibration import calibrate as held_against
    from salon.evals.calibration import calibration_markdown, draw_labels
    from salon.evals.judges import RubricJudge
    from salon.evaluating import concurrency, judges_of, role_names

    if not options.labels:
        todo = "Give --labels FILE: a table with the columns problem, solution and label."
        raise UserError("There are no labels to calibrate against", todo=todo)
    labels, rubric = load_labels(options.labels), load_rubric(options.rubric or "macgyver")
    names = role_names(options)
    if options.dry_run:
        return _dry_run(options, draw_labels(labels, options.limit, options.seed or 0), names)
    judge = RubricJudge(rubric, judges_of(options, make_models({"judge": names["judge"]}, options)))
    folder = Path(options.out) if options.out else default_folder(f"calibration {Path(options.labels).stem}")
    with write_progress() as tell:
        tell(f"The judge's calls are kept in {folder}; the same command with --out {folder} goes on with them")
        found = asyncio.run(
            held_against(
                labels,
                judge,
                out=folder,
                limit=options.limit,
                seed=options.seed or 0,
                budget=budget(options),
                max_concurrency=concurrency(options, names),
                tell=tell,
            )
        )
    print(json.dumps(asdict(found)) if options.json else calibration_markdown(found))
    return 0


def _dry_run(options: argparse.Namespace, labels: Any, names: dict[str, str]) -> int:
    """Print what the judgements are expected to take; nothing is spent."""
    from salon.estimate import judging

    judges = options.judge or [names["judge"]]
    expected = judging(judges[0]) * (len(labels) * len(judges))
    print(f"Expected: {len(labels)} solutions. {str(expected).capitalize()}. Nothing was spent.")
    return 0
