"""``salon study duration``: what more minutes of discussion do to ideas."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from salon.brainstorm import personas_of
from salon.errors import UserError
from salon.running import budget, default_folder, make_models, model_names, write_progress

__all__ = ["command"]


def command(options: argparse.Namespace) -> int:
    """Hold or go on with the study, print its tables and findings, and return the exit code."""
    from salon.evals.conditions import check_whole
    from salon.evals.figure import study_figure
    from salon.evals.findings import study_markdown, study_page
    from salon.evals.study import study_conditions, study_duration

    program = _program(options)
    program.checked({"topic": options.topic})
    limits, abreast = budget(options), 32 if options.concurrency is None else options.concurrency
    check_whole("max_concurrency", abreast, 1)
    minutes, citations = _numbers(options.minutes), [kind.strip() for kind in options.citations.split(",")]
    conditions = study_conditions(minutes, citations, range(options.sessions))
    roles = (*program.roles, "judge")
    names = model_names(options, roles)
    if options.dry_run:
        return _dry_run(program, conditions, options, names)
    lms = make_models(names, options)
    program.lms = {who: lm for who, lm in lms.items() if who != "judge"}
    folder = Path(options.out) if options.out else default_folder(f"study {options.topic}")
    with write_progress() as tell:
        tell(f"The study is in {folder}; the same command with --out {folder} goes on with it")
        study = asyncio.run(
            study_duration(
                options.topic,
                folder,
                program,
                minutes=minutes,
                sessions=options.sessions,
                citations=citations,
                seed=options.seed or 0,
                judge=lms["judge"] if options.judged else None,
                budget=limits,
                max_concurrency=abreast,
                tell=tell,
            )
        )
        study_figure(study, folder)
        tell(f"Page: {study_page(study, folder)}")
    print(json.dumps(asdict(study)) if options.json else study_markdown(study))
    return 0


def _program(options: argparse.Namespace) -> Any:
    import salon

    given = {
        "personas": personas_of(options.personas),
        "ideas": options.ideas,
        "votes": options.votes,
        "facilitator": options.facilitator,
        "embedder": options.embedder,
    }
    return salon.Roundtable(**{name: value for name, value in given.items() if value is not None})


def _numbers(text: str) -> list[float]:
    """Read ``0,5,10``.

    Raises:
        UserError: If a part is no number.
    """
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--minutes {text!r} cannot be read", "numbers with commas are needed, e.g. 0,5,10") from None
    return [int(value) if value.is_integer() else value for value in values]


def _dry_run(program: Any, conditions: list[Any], options: argparse.Namespace, names: dict[str, str]) -> int:
    """Print what the study is expected to take; nothing is spent."""
    from salon.estimate import estimate
    from salon.evals.study import inventing

    expected, people, topic = [], program.personas, options.topic
    if isinstance(people, int):
        expected.append(estimate(inventing(program), topic, names))
        people = [{"name": f"Guest {n + 1}", "sketch": "not invented yet"} for n in range(people)]
    programs = (program.changed(personas=people, turns=None, **c.factors) for c in conditions)
    expected += [estimate(changed, topic, names) for changed in programs]
    calls, prompt, answer = (
        sum(getattr(e, n) for e in expected) for n in ("calls", "prompt_tokens", "completion_tokens")
    )
    prices = [e.usd for e in expected]
    known = [price for price in prices if price is not None]
    judge = ", and one call of the judge for each idea" if options.judged else ""
    price = f"about ${sum(known):.2f}" if len(known) == len(prices) else "price unknown"
    print(
        f"Expected: {len(conditions)} sessions, about {calls:,} calls, {prompt:,} prompt and {answer:,} answer tokens, "
        f"{price}{judge}. Nothing was spent."
    )
    return 0
