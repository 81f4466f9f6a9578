"""``salon report``: sessions, an evaluation or a compile as one page that opens offline, without a language model."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from salon.errors import UserError

__all__ = ["command"]


def command(options: argparse.Namespace) -> int:
    """Write the report and print its path; return the exit code."""
    from salon.evals.evaluation_folder import is_evaluation
    from salon.evals.report import REPORT_NAME
    from salon.optimize.artifact import is_compiled
    from salon.optimize.compile_folder import FOLDER_NAME

    folders = [Path(folder) for folder in options.folders]
    place = Path(options.out) if options.out else (folders[0] if len(folders) == 1 else Path()) / REPORT_NAME
    evaluations = [folder for folder in folders if is_evaluation(folder)]
    compiled = [folder for folder in folders if is_compiled(folder)]
    for kind, found in (("an evaluation", evaluations), ("a compiled program", compiled)):
        if found and len(folders) > 1:
            raise UserError(f"{found[0]} is {kind}", "its report is a page of its own", "Give it alone.")
    for folder in folders:
        if (folder / FOLDER_NAME).exists() and folder not in compiled:
            todo = "Go on with it first: the same command as before."
            raise UserError(f"{folder} has a compile that is not finished", "there is no result yet", todo)
    if compiled:
        _of_compile(compiled[0], place)
    elif evaluations:
        _of_evaluation(evaluations[0], place)
    else:
        _of_sessions(folders, place)
    print(json.dumps({"report": str(place)}) if options.json else place)
    return 0


def _of_evaluation(folder: Path, place: Path) -> None:
    from salon.evals.evaluation_page import write_evaluation_page
    from salon.evals.results import Results

    write_evaluation_page(Results.load(folder), place.parent, place.name)


def _of_compile(folder: Path, place: Path) -> None:
    from salon.optimize.compiled_page import write_compiled_page

    write_compiled_page(folder, place)


def _of_sessions(folders: list[Path], place: Path) -> None:
    from salon.evals.report import write_report
    from salon.modules.archive import read_session

    write_report([read_session(folder) for folder in folders], place)
