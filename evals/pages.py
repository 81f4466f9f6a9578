"""Pages: one HTML file each, with everything in it, that opens offline and asks nothing of anyone.

Templates extend ``page.html.j2``, which holds style, script and a content security policy: only the style and
the script of this package run, told by their hashes, and nothing can be fetched. All values are escaped;
control characters and lone surrogates, which no file can hold, become U+FFFD.
"""

from __future__ import annotations

import base64
import json
import os
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from salon.errors import OutputError

from ..modules.text import clean
from .scales import number

__all__ = ["environment", "json_block", "render_page", "write_page"]

_FOLDER = Path(__file__).parent


@cache
def environment() -> Environment:
    """Return the environment of all pages."""
    made = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )
    made.filters.update(number=number, date=_date)
    style, script = (_asset(name) for name in ("page.css", "page.js"))
    made.globals.update(
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
    )
    return made


def render_page(template: str, **context: Any) -> str:
    """Return a page.

    Args:
        template: Name of a template that extends ``page.html.j2``.
        context: Its values.
    """
    return clean(environment().get_template(template).render(context)) + "\n"


def write_page(path: Path, template: str, **context: Any) -> None:
    """Write a page; the file appears whole or not at all.

    Raises:
        OutputError: If it cannot be written.
    """
    page = render_page(template, **context)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            fresh.write_text(page, encoding="utf-8", newline="\n")
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise OutputError(f"{path} cannot be written", why, "Give another file with --out.") from error


def json_block(value: Any) -> Markup:
    """Return JSON that no text in it can break out of, for a script element of type ``application/json``."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _date(text: str) -> str:
    """Write a time stamp for a reader; what is none stays as it is."""
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{stamp.day} {stamp:%B %Y, %H:%M} {stamp.tzname() or ''}".rstrip()


def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8").strip()


def _hash(text: str) -> str:
    """Return the hash of a style or a script as it stands in the page, between two line breaks."""
    content = "\n" + text + "\n"
    return f"sha256-{base64.b64encode(sha256(content.encode()).digest()).decode()}"
