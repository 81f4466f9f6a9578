"""``salon audit``: whether a session's citations are real influences."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict
from pathlib import Path

from salon.running import budget, make_models, model_names_again, write_progress

__all__ = ["command"]


def command(options: argparse.Namespace) -> int:
    """Audit the session; print tables and verdict; return the exit code."""
    from salon.evals.audit import AUDIT_NAME, audit, auditable
    from salon.evals.verdict import audit_markdown
    from salon.modules.files import write_file
    from salon.modules.roundtable import Roundtable

    folder = Path(options.folder)
    names, bases = model_names_again(options, (*Roundtable.roles, "judge"), auditable(folder).header["models"])
    lms = make_models(names, options, bases)
    with write_progress() as tell:
        result = asyncio.run(
            audit(
                folder,
                lms=lms,
                seeds=options.seeds,
                samples=options.samples,
                sources=options.sources,
                edges=options.edges,
                seed=options.seed or 0,
                budget=budget(options),
                max_concurrency=32 if options.concurrency is None else options.concurrency,
                tell=tell,
            )
        )
    told = audit_markdown(result)
    write_file(folder / AUDIT_NAME / "audit.md", told)
    print(json.dumps(asdict(result)) if options.json else told)
    return 0
