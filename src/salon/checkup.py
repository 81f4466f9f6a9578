"""``salon doctor``: check after check, each with what to do if it fails."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

__all__ = ["command"]


def command(options: argparse.Namespace) -> int:
    """Run the checks; return 0 if all is well, else 1."""
    from salon.doctor import examine, healthy, render

    model = (options.lm or [None])[-1]
    checks = []
    for check in examine(model, options.api_base, options.api_key):
        checks.append(check)
        if not options.json:
            print(render([check]), flush=True)
    if options.json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
    return 0 if healthy(checks) else 1
