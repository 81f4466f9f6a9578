"""What an evaluation is of: written beside its rows, and held against them when it is gone on with.

More methods, queries and runs may be added to a folder; what its rows rest on may not change: the benchmark with
its rubric, the seed, the judges, and each method with its models. What an earlier run of the evaluation had and the
last one leaves out is kept under ``earlier``, so that it, too, can be held against what comes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from salon.errors import LogError, OutputError, UserError

from ..data.benchmarks import Benchmark
from ..modules.files import write_file
from .judges import RubricJudge
from .methods import Method

__all__ = ["RECORD_NAME", "RECORD_VERSION", "keep_record", "read_record", "record_of"]

RECORD_NAME = "evaluation.json"
RECORD_VERSION = 1
_PACKAGES = ("salon", "dspy", "litellm", "sentence-transformers", "optuna", "datasets", "pandas")


def record_of(
    methods: Mapping[str, Method],
    benchmark: Benchmark,
    judge: RubricJudge | None,
    *,
    baseline: str | None,
    **settings: Any,
) -> dict[str, Any]:
    """Return the record of an evaluation.

    Raises:
        UserError: If the baseline is none of the methods.
    """
    if baseline is not None and baseline not in methods:
        raise UserError(f"The baseline {baseline!r} is none of the methods", todo=f"Give one of {', '.join(methods)}.")
    source = asdict(benchmark.source)
    models = {name: method.models() for name, method in methods.items()}
    judges = [str(lm.model) for lm in judge.lms.values()] if judge is not None else []
    return {
        "version": RECORD_VERSION,
        "benchmark": {
            "name": benchmark.name,
            "fingerprint": benchmark.fingerprint,
            "licence": benchmark.licence,
            "source": source,
            "rubric": asdict(benchmark.rubric),
            "tasks": [{"id": task.id, "text": task.text, "split": task.split} for task in benchmark.tasks],
        },
        "methods": {name: method.described() for name, method in methods.items()},
        "models": models,
        "baseline": baseline or ("direct" if "direct" in methods else next(iter(methods))),
        **settings,
        "judge": {
            "models": judges,
            "drawn": judge.drawn if judge is not None else None,
            "compare": bool(settings["compare"]),
            "similarity": settings["similar"],
        },
        "packages": {"python": sys.version.split()[0], **{name: version(name) for name in _PACKAGES}},
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def read_record(folder: Path) -> dict[str, Any]:
    """Return the record of an evaluation.

    Raises:
        OutputError: If the folder has none.
        LogError: If it is damaged or of another version.
    """
    path = folder / RECORD_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OutputError(f"There is no evaluation in {folder}", f"it has no {RECORD_NAME}") from None
    except (OSError, ValueError) as error:
        raise LogError(f"{path} cannot be read", str(error)) from error
    if not isinstance(content, dict) or content.get("version") != RECORD_VERSION:
        raise LogError(f"{path} cannot be read", "it is of another version of salon, or no evaluation")
    return content


def keep_record(record: dict[str, Any], folder: Path) -> None:
    """Write the record, after making sure that rows which are there rest on the same.

    Raises:
        OutputError: If they do not, or it cannot be written.
    """
    record = json.loads(json.dumps(record))
    if (folder / RECORD_NAME).exists():
        before = read_record(folder)
        try:
            told = _differences(before, record)
        except (LookupError, TypeError, AttributeError) as error:
            why = f"{type(error).__name__}: {error}"
            raise LogError(f"{folder / RECORD_NAME} is damaged", why, "Give another folder.") from error
        if told:
            raise OutputError(
                f"{folder} holds another evaluation",
                f"it has {' and '.join(told)}",
                "Give the same settings, or another folder.",
            )
        record = {**record, "started": before["started"], "earlier": _earlier(before, record)}
    write_file(folder / RECORD_NAME, json.dumps(record, indent=1))


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say what rows of an evaluation rest on that is not as it was."""
    odd = []
    for name, told in (("name", "another benchmark"), ("rubric", "another rubric")):
        if before["benchmark"][name] != now["benchmark"][name]:
            odd.append(told)
    had, has = _kept(before), _kept(now)
    if any(had["tasks"].get(name, text) != text for name, text in has["tasks"].items()):
        odd.append("another text of a task")
    odd += ["another seed"] if before["seed"] != now["seed"] else []
    if had["judge"] and has["judge"] and any(had["judge"][name] != has["judge"][name] for name in ("models", "drawn")):
        odd.append("other judges")
    for name in has["methods"]:
        if name in had["methods"] and _lasting(had["methods"][name]) != _lasting(has["methods"][name]):
            odd.append(f"other settings of {name}")
        elif name in had["models"] and _names(had["models"][name]) != _names(has["models"][name]):
            odd.append(f"other models of {name}")
    return odd


def _kept(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what rows rest on: methods and models by name, texts of tasks by id, and the judge, if there was one."""
    earlier = record.get("earlier") or {"methods": {}, "models": {}, "tasks": {}, "judge": None}
    return {
        "methods": {**earlier["methods"], **record["methods"]},
        "models": {**earlier["models"], **record["models"]},
        "tasks": {**earlier["tasks"], **{task["id"]: task["text"] for task in record["benchmark"]["tasks"]}},
        "judge": record["judge"] if record["judge"]["models"] else earlier["judge"],
    }


def _earlier(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return what rows rest on that a record does not name any more."""
    had, has = _kept(before), _kept(now)
    left = {part: {k: v for k, v in had[part].items() if k not in has[part]} for part in ("methods", "models", "tasks")}
    return {**left, "judge": None if has["judge"] else had["judge"]}


def _names(models: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {role: str(model.get("model")) for role, model in models.items()}


def _lasting(described: Mapping[str, Any]) -> Any:
    """Return a method's description without what changes no answer."""
    settings = described.get("settings")
    if not isinstance(settings, dict):
        return described
    return {**described, "settings": {name: v for name, v in settings.items() if name != "max_concurrency"}}
