"""``salon report``: recorded sessions as one page that opens offline, without a language model."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

__all__ = ["command"]


def command(options: argparse.Namespace) -> int:
    """Write the report and print its path; return the exit code."""
    from salon.evals.report import REPORT_NAME, write_report
    from salon.modules.archive import read_session

    folders = [Path(folder) for folder in options.folders]
    sessions = [read_session(folder) for folder in folders]
    place = Path(options.out) if options.out else (folders[0] if len(folders) == 1 else Path()) / REPORT_NAME
    write_report(sessions, place)
    print(json.dumps({"report": str(place)}) if options.json else place)
    return 0
