"""``salon eval``: methods on a benchmark, with judges; and ``salon eval calibrate``: a judge against people."""

from __future__ import annotations

import argparse
import asyncio
import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

from salon.errors import UserError
from salon.running import budget, make_models

__all__ = ["OWN_JUDGE", "ROLES", "benchmark_of", "command", "concurrency", "judges_of", "role_names"]

ROLES = ("participant", "facilitator", "sage", "person", "judge")
OWN_JUDGE = (
    "The judge is the model that answers: it may favour its own ways. Name another with --judge, and compare methods, "
    "not levels."
)


def command(options: argparse.Namespace) -> int:
    """Evaluate, or calibrate a judge, as the options say; return the exit code."""
    if options.what == "calibrate":
        from salon.calibrating import calibrate

        return calibrate(options)
    return _evaluate(options)


def _evaluate(options: argparse.Namespace) -> int:
    from salon.eval_view import EvaluationView
    from salon.evals.runner import aevaluate
    from salon.view import stderr_console

    names = role_names(options)
    data = benchmark_of(options)
    methods = _methods(options)
    if options.dry_run:
        return _dry_run(options, methods, data, names)
    lms = make_models(names, options)
    for method in methods.values():
        _seat(method, lms)
    judges = judges_of(options, lms)
    folder = Path(options.out) if options.out else _default_folder(options, data)
    console = stderr_console()
    console.print(f"The evaluation is in {folder}; the same command goes on with it", highlight=False, soft_wrap=True)
    if judges is not False and not options.judge:
        console.print(OWN_JUDGE, style="dim", highlight=False, soft_wrap=True)
    with EvaluationView(console) as view:
        results = asyncio.run(
            aevaluate(
                methods,
                data,
                out=folder,
                runs=options.runs,
                groups=options.groups or min(options.runs, 5),
                judge=judges,
                drawn=options.drawn,
                compare=options.pairs,
                similar=options.similar,
                baseline=options.baseline,
                threshold=options.threshold,
                seed=options.seed or 0,
                budget=budget(options),
                embedder=options.embedder,
                max_concurrency=concurrency(options, names),
                engine=_engine(options),
                tell=view,
            )
        )
    return _report(options, results, folder)


def _report(options: argparse.Namespace, results: Any, folder: Path) -> int:
    """Print the result and write its page; return the exit code."""
    from salon.evals.evaluation_page import write_evaluation_page
    from salon.view import stderr_console

    page = write_evaluation_page(results, folder)
    if options.json:
        print(json.dumps(results.as_json()))
    else:
        print(results.markdown())
        if options.ablation:
            from salon.evals.ablations import ablation_table

            print(ablation_table(results, options.ablation))
    console = stderr_console()
    console.print(f"Page: {page}. Tables: {folder}", highlight=False, soft_wrap=True)
    if results.left:
        console.print(f"Not finished: {results.left}. The same command goes on.", highlight=False, soft_wrap=True)
    return 1 if results.left or not results.answered else 0


def benchmark_of(options: argparse.Namespace) -> Any:
    """Load the benchmark that the options name, with as many queries as they say."""
    from salon.data.benchmarks import load_benchmark

    if options.queries < 1:
        raise UserError(f"--queries {options.queries} is not possible", "at least one is needed")
    return load_benchmark(
        options.bench,
        options.data,
        options.split,
        options.queries,
        options.seed or 0,
        task_column=options.task_column,
        rubric=options.rubric,
    )


def role_names(options: argparse.Namespace) -> dict[str, str]:
    """Return the model of each role."""
    from salon.running import model_names

    return model_names(options, ROLES)


def concurrency(options: argparse.Namespace, names: dict[str, str]) -> int:
    """Return how many calls may be in flight: as many as the embedded model has slots for, or 32."""
    if options.concurrency is not None:
        return int(options.concurrency)
    return 4 if any(name.startswith("embedded") for name in names.values()) else 32


def judges_of(options: argparse.Namespace, lms: dict[str, Any]) -> Any:
    """Return the LMs of the panel; False if nothing is to be judged."""
    if not options.judged:
        return False
    if not options.judge:
        return [lms["judge"]]
    named = {str(at): name for at, name in enumerate(options.judge)}
    return list(make_models(named, options).values())


def _methods(options: argparse.Namespace) -> dict[str, Any]:
    from salon.evals.methods import as_method, methods_of

    if options.ablation and options.methods:
        raise UserError("--ablation says which methods there are", "--methods was given too", "Leave one out.")
    if options.ablation:
        from salon.evals.ablations import ablation

        return {name: as_method(name, program) for name, program in ablation(options.ablation).items()}
    return dict(methods_of(options.methods or "debate,voting-lens,direct"))


def _seat(method: Any, lms: dict[str, Any]) -> None:
    """Give a method its LMs, now that they are made."""
    from salon.evals.methods import with_lms

    with_lms(method, lms)


def _engine(options: argparse.Namespace) -> Any:
    if options.engine == "local":
        if options.address:
            raise UserError("--address is that of a Ray cluster", "the engine is local", "Add --engine ray.")
        return None
    from salon.evals.cluster import ray_engine

    return ray_engine(options.address)


def _default_folder(options: argparse.Namespace, data: Any) -> Path:
    """Return a folder that the same command finds again."""
    fixed = ("bench", "data", "split", "methods", "ablation", "lm", "judge", "drawn", "rubric", "seed", "embedder")
    text = json.dumps([str(getattr(options, name)) for name in fixed])
    return Path("salon-runs") / f"eval-{data.name}-{blake2b(text.encode(), digest_size=3).hexdigest()}"


def _dry_run(options: argparse.Namespace, methods: dict[str, Any], data: Any, names: dict[str, str]) -> int:
    """Print what the evaluation is expected to take; nothing is spent."""
    from salon.estimate import Estimate, estimate_method, judging

    jobs, total, unknown = len(data) * options.runs, Estimate(0, 0, 0, 0.0), []
    task = max((task.text for task in data.tasks), key=len)
    for name, method in methods.items():
        expected = estimate_method(method, task, names)
        if expected is None:
            unknown.append(name)
        else:
            total += expected * jobs
    if options.judged:
        panel = options.judge or [names["judge"]]
        each = options.drawn or len(panel)
        pairs = len(methods) * (len(methods) - 1) * len(data) * min(options.pairs, options.runs)
        total += judging(panel[0]) * (jobs * len(methods) * each + pairs)
    more = f", and what {', '.join(unknown)} takes, which is not known" if unknown else ""
    print(
        f"Expected: {len(methods)} methods, {len(data)} queries, {options.runs} runs: {jobs * len(methods)} answers. "
        f"{str(total).capitalize()}{more}. Nothing was spent."
    )
    return 0
