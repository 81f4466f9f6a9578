"""Mermaid itself reads the exported graphs, and draws hostile texts as texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from salon.modules import Session
from salon.modules.graphs import mermaid

LIBRARY = Path(__file__).parents[2] / "build/mermaid/node_modules/mermaid/dist/mermaid.min.js"
PARSE = """
const [text, done] = arguments;
mermaid.parse(text).then(() => done(""), error => done(String(error)));
"""
DRAW = """
const [text, done] = arguments;
mermaid.render("drawing", text).then(({ svg }) => {
  document.body.innerHTML = svg;
  done("");
}, error => done(String(error)));
"""


@pytest.fixture
def drawing(browser: Any, tmp_path: Path) -> Callable[..., str]:
    """Have Mermaid parse or draw a text at a level of security; return its complaint."""
    if not LIBRARY.exists():
        pytest.skip("needs mermaid (npm install --prefix build/mermaid mermaid@11)")
    page = tmp_path / "mermaid.html"
    head = f"<!doctype html><meta charset='utf-8'><title>t</title><script src='{LIBRARY.as_uri()}'></script>"
    page.write_text(f"{head}<body></body>", encoding="utf-8")

    def run(script: str, text: str, security: str = "strict") -> str:
        browser.open(page)
        settings = {"startOnLoad": False, "securityLevel": security, "maxTextSize": 10**7, "maxEdges": 10**5}
        browser.run("mermaid.initialize(arguments[0])", settings)
        return str(browser.driver.execute_async_script(script, text))

    return run


def test_mermaid_reads_what_is_exported(drawing: Callable[..., str], gathering: Callable[..., Session]) -> None:
    session = gathering(4)
    assert drawing(PARSE, mermaid(session)) == ""
    for idea in session.ideas:
        assert drawing(PARSE, mermaid(session, idea.id)) == ""


def test_mermaid_knows_what_is_no_graph(drawing: Callable[..., str]) -> None:
    assert drawing(PARSE, 'flowchart LR\n  A["open')


@pytest.mark.parametrize("security", ["strict", "loose"])
def test_hostile_texts_are_drawn_as_texts(
    drawing: Callable[..., str], hostile: Session, browser: Any, security: str
) -> None:
    assert drawing(DRAW, mermaid(hostile), security) == ""
    assert browser.run("return document.querySelectorAll('svg#drawing .node').length") == len(
        [entity for entity in hostile.entities.values() if entity.prefix != "V"]
    )
    for kind in ("script", "img", "iframe", "a", "foreignObject b", "[onclick]", "[onerror]"):
        assert browser.run("return document.body.querySelectorAll(arguments[0]).length", kind) == 0, kind
    links = "return [...document.querySelectorAll('*')].filter(e => [...e.attributes].some(" \
        "a => /href$/.test(a.name) && !a.value.startsWith('#'))).length"  # fmt: skip
    assert browser.run(links) == 0
    assert browser.complaints() == []
    assert browser.requests() == []
    shown = browser.texts("svg#drawing .node")
    assert any("alert(1)" in text for text in shown)


def test_a_single_idea_of_hostile_texts_is_drawn(drawing: Callable[..., str], hostile: Session) -> None:
    for idea in hostile.ideas[:5]:
        assert drawing(DRAW, mermaid(hostile, idea.id)) == ""
