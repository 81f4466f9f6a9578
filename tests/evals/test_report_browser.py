"""The report in a real browser: lineage, keyboard, schemes, width, and texts that would like to be code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from salon.evals.report import write_report
from salon.modules import Session
from salon.modules.events import wording
from salon.modules.text import clean

pytestmark = pytest.mark.usefixtures("quick_embeddings")
LIT = "return [...document.querySelectorAll('svg.lineage .lit[data-id]')].map(node => node.dataset.id)"
EDGES = "return [...document.querySelectorAll('svg.lineage .lit[data-edge]')].map(edge => edge.dataset.edge)"
KEY = "arguments[0].dispatchEvent(new KeyboardEvent('keydown', {key: arguments[1], bubbles: true}))"
PANEL = "#panel-body .ancestors:not(.result) .text"


@pytest.fixture
def shown(browser: Any, tmp_path: Path) -> Callable[..., Any]:
    """Write the report of sessions and open it."""

    def show(*sessions: Session) -> Any:
        write_report(sessions, tmp_path / "report.html")
        return browser.open(tmp_path / "report.html")

    return show


def edges_behind(session: Session, idea: str) -> set[str]:
    reached = session.lineage.ancestors(idea) | {idea}
    return {f"{cited} {name}" for name in reached for cited in session.lineage.cites[name]}


def test_a_page_of_13_personas_opens_without_complaint_or_request(
    shown: Callable[..., Any], gathering: Callable[..., Session]
) -> None:
    page = shown(gathering())
    assert page.run("return document.querySelectorAll('.cards > .idea').length") == 13
    assert page.complaints() == []
    assert page.requests() == []
    assert page.run("return document.querySelectorAll('svg.lineage [data-id]').length") == len(gathering().entities)


def test_an_idea_lights_exactly_its_ancestors(shown: Callable[..., Any], gathering: Callable[..., Session]) -> None:
    session = gathering()
    page = shown(session)
    for idea in session.ideas:
        ancestors = session.lineage.ancestors(idea.id)
        page.run("document.querySelector(`[data-lineage='${arguments[0]}']`).click()", idea.id)
        assert set(page.run(LIT)) == ancestors
        assert set(page.run(EDGES)) == edges_behind(session, idea.id)
        in_order = [wording(entity) for name, entity in session.entities.items() if name in ancestors]
        assert page.texts(PANEL) == in_order
        assert page.texts("#panel-body .result .text") == [wording(session.entities[idea.id])]
    assert page.complaints() == []


def test_the_drawing_answers_to_mouse_and_keyboard(
    shown: Callable[..., Any], gathering: Callable[..., Session]
) -> None:
    session = gathering()
    page = shown(session)
    idea = max(session.board, key=lambda i: len(session.lineage.ancestors(i.id))).id
    node = page.run(f"return document.querySelector('svg.lineage [data-id={idea}]')")
    for start in (
        lambda: page.run(KEY, node, "Enter"),
        lambda: page.run(KEY, node, " "),
        lambda: page.run("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", node),
    ):
        start()
        assert set(page.run(LIT)) == session.lineage.ancestors(idea)
        assert page.run(
            "return document.activeElement && getComputedStyle(document.getElementById('panel')).visibility"
        )
        page.run(KEY, node, "Escape")
        assert page.run(LIT) == []
        assert page.texts(PANEL) == []
        assert page.run("return getComputedStyle(document.getElementById('panel')).visibility") == "hidden"
        assert page.run("return document.activeElement.dataset.id") == idea


def test_real_keys_reach_a_button_and_give_the_focus_back(
    shown: Callable[..., Any], gathering: Callable[..., Session]
) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    session = gathering()
    page = shown(session)
    button = page.run("const b = document.querySelector('[data-lineage]'); b.focus(); return b")
    button.send_keys(keys.ENTER)
    assert set(page.run(LIT)) == session.lineage.ancestors(session.ideas[0].id)
    button.send_keys(keys.ESCAPE)
    assert page.run(LIT) == []
    assert page.run("return document.activeElement === arguments[0]", button)


def test_an_anchor_in_a_folded_part_unfolds_it(shown: Callable[..., Any], gathering: Callable[..., Session]) -> None:
    page = shown(gathering())
    assert not page.run("return document.getElementById('T3').closest('details').open")
    page.run("location.hash = '#T3'")
    page.driver.execute_async_script("setTimeout(arguments[0], 100)")
    assert page.run("return document.getElementById('T3').closest('details').open")


def test_the_scheme_follows_the_reader(shown: Callable[..., Any], gathering: Callable[..., Session]) -> None:
    page = shown(gathering())
    paper = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(paper)
    page.scheme("dark")
    assert page.run(paper) != light


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_never_scrolls_sideways(
    shown: Callable[..., Any], gathering: Callable[..., Session], hostile: Session, width: int
) -> None:
    for sessions in ([gathering()], [hostile], [gathering(), gathering(2)]):
        page = shown(*sessions)
        page.size(width)
        page.run("document.querySelector('[data-lineage]')?.click()")
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), page.run(
            "return [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth"
            " && !e.closest('.scroll, .panel')).slice(0, 5).map(e => e.outerHTML.slice(0, 200))"
        )


def test_paper_gets_everything_unfolded(shown: Callable[..., Any], gathering: Callable[..., Session]) -> None:
    page = shown(gathering())
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert page.run("return document.querySelectorAll('details:not([open])').length") == 0
    page.run("dispatchEvent(new Event('afterprint'))")
    assert page.run("return document.querySelectorAll('details[open]').length") == 0


def test_hostile_texts_come_out_as_texts(shown: Callable[..., Any], hostile: Session) -> None:
    page = shown(hostile)
    assert page.complaints() == []
    assert page.requests() == []
    assert page.run("return document.querySelectorAll('script').length") == 2
    assert page.run("return document.querySelectorAll('img, iframe, object, embed, form, b:not(.who)').length") == 0
    links = page.run("return [...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href'))")
    assert all(link.startswith("#") for link in links)
    assert page.run(
        "return [...document.querySelectorAll('*')].every(e => [...e.attributes].every(a => !a.name.startsWith('on')))"
    )
    for name, entity in hostile.entities.items():
        if entity.prefix in "TCI":
            text = page.run(f"return document.querySelector('#{name} .text').textContent")
            assert " ".join(text.split()) == " ".join(clean(wording(entity)).split()), name


def test_hostile_texts_stay_texts_in_the_panel(shown: Callable[..., Any], hostile: Session) -> None:
    page = shown(hostile)
    for idea in hostile.ideas:
        page.run("document.querySelector(`[data-lineage='${arguments[0]}']`).click()", idea.id)
        assert set(page.run(LIT)) == hostile.lineage.ancestors(idea.id)
    assert page.run("return document.querySelectorAll('#panel img, #panel script').length") == 0
    assert page.complaints() == []


def test_a_comparison_opens_without_complaint(
    shown: Callable[..., Any], gathering: Callable[..., Session], hostile: Session
) -> None:
    page = shown(gathering(), hostile, gathering(1))
    assert page.run("return document.querySelectorAll('section.one').length") == 3
    assert page.complaints() == []
    assert page.requests() == []


def test_contrast_holds_in_both_schemes(
    shown: Callable[..., Any], gathering: Callable[..., Session], contrast: str
) -> None:
    page = shown(gathering())
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        assert page.run(contrast) == [], scheme
