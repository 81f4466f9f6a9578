"""``salon compile``: a program tuned for quality and diversity, verified, and saved as a folder."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
from hashlib import blake2b
from pathlib import Path
from typing import Any

from salon.errors import UserError
from salon.evaluating import OWN_JUDGE, ROLES, benchmark_of, concurrency, judges_of, role_names
from salon.running import budget, make_models

__all__ = ["command"]


def command(options: argparse.Namespace) -> int:
    """Compile as the options say, print the card, and return the exit code."""
    from salon.compile_view import CompileView
    from salon.optimize.compile import acompile
    from salon.view import stderr_console

    names = role_names(options)
    train, held_out = _tasks(options)
    program = _program(options)
    searched = _searched(options)
    if options.dry_run:
        return _dry_run(options, program, train, held_out, names, searched)
    lms = make_models(names, options)
    named = {who: lm for who, lm in lms.items() if who in program.roles or who not in ROLES}
    program.lms = {**named, **program.lms}
    folder = Path(options.out) if options.out else _default_folder(options, program)
    console = stderr_console()
    first = [f"The compile is in {folder}; the same command goes on with it"]
    judges = judges_of(options, lms)
    if judges is not False and not options.judge:
        first.append(OWN_JUDGE)
    work = acompile(
        program,
        train,
        held_out,
        _objectives(options),
        trials=options.trials,
        prompts=None if options.prompts == "none" else options.prompts,
        seed=options.seed or 0,
        budget=budget(options),
        groups=options.groups,
        judge=judges,
        rule=options.pick,
        sampler=options.sampler,
        only=options.only,
        reflection_lm=_reflection(options, lms),
        out=folder,
        storage=options.storage,
        workers=options.workers,
        max_concurrency=concurrency(options, names),
        tell=(view := CompileView(console, first)),
        limits=_bounds(options),
        **searched,
    )
    try:
        with view:
            asyncio.run(work)
    except KeyboardInterrupt:
        console.print(
            f"Stopped. What is done is in {folder}. Go on with: {_again(options)}", highlight=False, soft_wrap=True
        )
        return 130
    return _report(options, folder)


def _again(options: argparse.Namespace) -> str:
    """Return the command, without a key in it."""
    words = list(options.arguments)
    for at, word in enumerate(words):
        if word == "--api-key":
            words[at + 1 : at + 2] = ["..."]
        elif word.startswith("--api-key="):
            words[at] = "--api-key=..."
    return shlex.join(["salon", *words])


def _report(options: argparse.Namespace, folder: Path) -> int:
    """Print what came of it, write the page, and return the exit code."""
    from salon.optimize.artifact import read_report, report_json
    from salon.optimize.card import card_markdown
    from salon.optimize.compiled_page import PAGE_NAME
    from salon.view import stderr_console

    report, console = read_report(folder), stderr_console()
    print(report_json(report) if options.json else card_markdown(report, str(folder)))
    told = [f"Page: {folder / PAGE_NAME}. Program: salon.load({str(folder)!r})"]
    if report.stopped:
        told.append(f"Cut short: {report.stopped} The same command with larger limits goes on.")
    for line in told:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    untuned_is_best = report.picked == 0
    return 0 if report.held_out or untuned_is_best else 1


def _objectives(options: argparse.Namespace) -> list[str]:
    return [name.strip() for name in options.objectives.split(",") if name.strip()]


def _tasks(options: argparse.Namespace) -> tuple[Any, Any]:
    """Return the training tasks, from the training part, and those held out, from the test part."""
    for name, least in (("queries", 1), ("held_out", 1)):
        if getattr(options, name) < least:
            raise UserError(f"--{name.replace('_', '-')} {getattr(options, name)} is not possible", "one is needed")
    both = []
    for part, count in (("train", options.queries), ("test", options.held_out)):
        chosen = argparse.Namespace(**{**vars(options), "split": part, "queries": count})
        both.append(benchmark_of(chosen))
    return both[0], both[1]


def _program(options: argparse.Namespace) -> Any:
    from salon.evals.methods import ProgramMethod, method_of

    method = method_of(options.program)
    if not isinstance(method, ProgramMethod):
        raise UserError(f"{options.program} cannot be compiled", "it is no session program")
    return method.program


def _searched(options: argparse.Namespace) -> dict[str, Any]:
    """Return which numbers are searched, with the ranges that the options give."""
    if not options.tune:
        return {}
    ranges: dict[str, tuple[float, float]] = {}
    names = []
    for text in options.tune:
        name, given, ends = text.partition("=")
        names.append(name.strip())
        if given:
            low, _, high = ends.partition(":")
            try:
                ranges[name.strip()] = (float(low), float(high))
            except ValueError:
                raise UserError(f"--tune {text!r} cannot be read", "a range is needed as in k=1:3") from None
    return {"include": names, "ranges": ranges or None}


def _bounds(options: argparse.Namespace) -> dict[str, float]:
    """Return the limits of objectives."""
    found = {}
    for text in options.limit:
        name, _, value = text.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise UserError(f"--limit {text!r} cannot be read", "a number is needed as in tokens=20000") from None
    return found


def _reflection(options: argparse.Namespace, lms: dict[str, Any]) -> Any:
    if options.reflection and options.prompts not in ("gepa", "mipro"):
        raise UserError("--reflection would do nothing", "no model writes prompts", "Add --prompts gepa or mipro.")
    if options.reflection:
        return make_models({"reflection": options.reflection}, options)["reflection"]
    return lms["participant"]


def _default_folder(options: argparse.Namespace, program: Any) -> Path:
    """Return a folder that the same command finds again; what may change from one call to the next is left out."""
    given = {name: str(getattr(options, name)) for name in _DECIDING}
    name = type(program).__name__.lower()
    return Path("salon-runs") / f"compiled-{name}-{blake2b(json.dumps(given).encode(), digest_size=3).hexdigest()}"


_DECIDING = (
    *("program", "bench", "data", "task_column", "rubric", "queries", "held_out", "groups", "prompts", "only"),
    *("objectives", "tune", "seed", "lm", "judge", "judged"),
)


def _dry_run(
    options: argparse.Namespace, program: Any, train: Any, held_out: Any, names: dict[str, str], searched: Any
) -> int:
    """Print what the compile is expected to take at most; nothing is spent."""
    from salon.estimate import Estimate, estimate_method, judging
    from salon.evals.methods import ProgramMethod
    from salon.optimize.compile_checks import check_process
    from salon.optimize.compile_plan import most_groups
    from salon.optimize.front import default_rule, pick
    from salon.optimize.objectives import objectives_of
    from salon.optimize.space import size, space_of
    from salon.optimize.study import check_limits

    goals = objectives_of(_objectives(options), options.groups)
    pick([], goals, options.pick or default_rule(goals))  # these refuse what is not possible
    check_limits(_bounds(options), goals)
    check_process(program, goals)
    space = space_of(program, **searched)
    trials = min(options.trials, size(space) or options.trials)
    sets = trials * len(train) + 2 * len(held_out)
    more = ""
    if options.prompts != "none":
        tuning = most_groups(options.prompts, options.trials, len(train))
        sets += tuning
        more = f" {tuning * options.groups} of them are for prompts; what {options.prompts} writes comes on top."
    sessions = options.groups * sets
    task = max((task.text for task in train.tasks), key=len)
    each = estimate_method(ProgramMethod("program", program), task, names) or Estimate(0, 0, 0, 0.0)
    expected = each * sessions
    if options.judged:
        judges = options.judge or [names["judge"]]
        expected += judging(judges[0]) * (sessions * len(judges))
    numbers = ", ".join(f"{name} {d.low:g} to {d.high:g}" for name, d in space.items())
    print(
        f"Expected at the untuned program's cost: {trials} variants of {type(program).__name__} ({numbers}), "
        f"{sessions} sessions. {str(expected).capitalize()}.{more} Variants that may win are measured twice. "
        "Nothing was spent."
    )
    return 0
