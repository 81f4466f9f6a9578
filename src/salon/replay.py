"""``salon replay``: a recorded session, shown again from its log alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from salon.errors import LogError

__all__ = ["command"]


def command(options: argparse.Namespace) -> int:
    """Show the session; return the exit code."""
    from salon.modules import archive
    from salon.modules.log import read_log
    from salon.running import COMMANDS, report
    from salon.view import SessionView, stderr_console

    folder = Path(options.folder)
    recorded = read_log(folder)
    try:
        with SessionView(stderr_console()) as view:
            session = archive.replay(folder, listen=view)
    except LogError:
        if recorded.end is not None:
            raise
        raise LogError(
            f"The session in {folder} was interrupted here",
            "its log ends before the session did",
            f"Go on with it: salon {COMMANDS.get(recorded.header['program']['name'], 'brainstorm')} --resume {folder}",
        ) from None
    return report(session, folder, options.json, COMMANDS.get(session.name, "brainstorm"))
