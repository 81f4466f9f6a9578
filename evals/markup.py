"""HTML and SVG elements as escaped text; everything on a page that is not in a template is built here."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

__all__ = ["element", "join", "scroll_box"]

Attribute = str | float | bool | None


def element(name: str, *content: object, **attributes: Attribute) -> Markup:
    """Return an element; content and attribute values are escaped, unless they are markup already.

    Args:
        name: Its tag.
        content: Texts and elements in it.
        attributes: ``class_`` means ``class``, ``data_id`` means ``data-id``; None and False are left out, True
            stands alone.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _SHAPES and not content:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{join(content)}</{name}>")


def join(parts: Iterable[object]) -> Markup:
    """Return parts in a row, each escaped unless it is markup."""
    return Markup("").join(parts)  # type: ignore[arg-type]


def scroll_box(label: str, content: Markup) -> Markup:
    """Return a box that scrolls sideways when its content is wide, with the keyboard too."""
    return element("div", content, class_="scroll", role="group", aria_label=label, tabindex="0")


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if name.lower() in _CAMEL:
        name = _CAMEL[name.lower()]
    if value is True:
        return f" {name}"
    return f' {name}="{_short(value) if isinstance(value, float) else escape(value)}"'


_SHAPES = {"path", "rect"}  # SVG elements that may close themselves
_CAMEL = {"viewbox": "viewBox", "preserveaspectratio": "preserveAspectRatio"}


def _short(value: float) -> str:
    """Write a pixel with at most one decimal."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text
