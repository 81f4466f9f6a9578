"""``python -m salon`` is the command ``salon``."""

from salon.cli import main

raise SystemExit(main())
