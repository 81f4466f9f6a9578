"""``salon export``: a recorded session in other forms, finished or not, without a language model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from salon.errors import UserError

__all__ = ["command"]


def command(options: argparse.Namespace) -> int:
    """Print one form, or write several and print their paths; return the exit code."""
    from salon.modules.archive import read_session
    from salon.modules.exports import FORMATS, export
    from salon.modules.files import write_file
    from salon.modules.graphs import GRAPHS

    names = list(dict.fromkeys(options.names)) or list(FORMATS)
    if unknown := [name for name in names if name not in FORMATS]:
        raise UserError(f"There is no form {unknown[0]!r}", "a session has other ones", f"Name {', '.join(FORMATS)}.")
    if options.idea is not None and not GRAPHS.keys() & set(names):
        raise UserError("--idea has no use here", "it restricts graphs", f"Name {', '.join(GRAPHS)}.")
    session = read_session(options.folder)
    contents = {name: export(session, name, options.idea) for name in names}
    if len(options.names) == 1 and options.out is None:
        sys.stdout.write(contents[names[0]])
        return 0
    place = Path(options.out or options.folder)
    for name, content in contents.items():
        write_file(place / name, content)
        print(place / name)
    return 0
