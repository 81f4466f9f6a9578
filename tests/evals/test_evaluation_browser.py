"""The page of an evaluation in a real browser: silence, no request, both schemes, phone and paper."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from salon.evals.evaluation_page import write_evaluation_page
from salon.evals.results import Results
from salon.modules import Session
from salon.modules.events import wording
from salon.modules.text import clean

pytestmark = pytest.mark.usefixtures("quick_embeddings")
METHODS = ("direct", "self-refine", "voting", "debate", "roundtable", "verbalized", "debate(agents=3, rounds=1)")


@pytest.fixture
def shown(browser: Any, evaluated: Callable[..., Any]) -> Callable[..., Any]:
    """Write the page of an evaluation and open it."""

    def show(methods: Sequence[str] = METHODS, texts: Sequence[str] = (), **settings: Any) -> Any:
        many = list(texts) or [f"Think up something for occasion number {n}" for n in range(1, 41)]
        folder = evaluated(methods=methods, texts=many, **settings)
        folder.compare(lambda a, b, q, r: (len(a) > len(b)) * 1.0 if q < "Q2" else 0.5)
        return browser.open(write_evaluation_page(Results.load(folder.place), folder.place))

    return show


def rough(method: str, query: str, run: int) -> str:
    return "the server closed the connection" if (method, run) == ("roundtable", 1) and query < "Q3" else ""


def test_it_opens_without_complaint_or_request(shown: Callable[..., Any]) -> None:
    page = shown(failed=rough)
    assert page.complaints() == []
    assert page.requests() == []
    assert page.run("return document.querySelectorAll('#summary tbody tr').length") == len(METHODS)
    assert page.run("return document.querySelectorAll('#trade-off .plot .mark').length") == len(METHODS)
    assert page.run("return document.querySelectorAll('#wins tbody tr').length") == len(METHODS)
    assert page.run("return document.querySelectorAll('#answers .card').length") == 10


def test_the_contents_lead_to_every_section(shown: Callable[..., Any]) -> None:
    page = shown()
    links = page.run("return [...document.querySelectorAll('.toc a')].map(a => a.hash.slice(1))")
    assert links == page.run("return [...document.querySelectorAll('main > section')].map(s => s.id)")


@pytest.mark.parametrize("width", [400, 1400])
def test_it_never_scrolls_sideways(shown: Callable[..., Any], hostile: Session, width: int) -> None:
    texts = [text for entity in hostile.entities.values() if (text := wording(entity)).strip()]
    draw = iter(itertools.cycle(texts))
    for settings in (
        {"failed": rough},
        {"methods": ("direct",), "texts": ["One"]},
        {"methods": tuple(dict.fromkeys(texts[:6])), "texts": texts, "runs": 2, "answer": lambda m, q, r: next(draw)},
    ):
        page = shown(**settings)
        page.size(width)
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), page.run(
            "return [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth"
            " && !e.closest('.scroll, .panel')).slice(0, 5).map(e => e.outerHTML.slice(0, 200))"
        )


def test_labels_of_the_scatter_cover_no_mark(shown: Callable[..., Any]) -> None:
    page = shown(methods=METHODS[:4])
    assert (
        page.run("""
        const box = e => e.getBoundingClientRect();
        const plot = document.querySelector('#trade-off .plot');
        const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
        const labels = [...plot.querySelectorAll('text.label')].map(box);
        const marks = [...plot.querySelectorAll('.mark')].map(box);
        return labels.filter(l => marks.some(m => meet(l, m))).length
        """)
        == 0
    )


def test_paper_gets_everything_unfolded(shown: Callable[..., Any]) -> None:
    page = shown(answer=lambda m, q, r: f"{m} {q} {r} " + "word " * 300)
    assert page.run("return document.querySelectorAll('details:not([open])').length") > 0
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert page.run("return document.querySelectorAll('details:not([open])').length") == 0


def test_the_schemes_differ_and_both_can_be_read(shown: Callable[..., Any], contrast: str) -> None:
    page, papers = shown(failed=rough), set()
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        papers.add(page.run("return getComputedStyle(document.body).backgroundColor"))
        assert page.run(contrast) == [], scheme
    assert len(papers) == 2


def test_hostile_texts_come_out_as_texts(shown: Callable[..., Any], hostile: Session) -> None:
    texts = [text for entity in hostile.entities.values() if (text := wording(entity)).strip()]
    draw = iter(itertools.cycle(texts))
    methods = tuple(dict.fromkeys(("direct", *texts[:3])))
    page = shown(methods=methods, texts=texts, runs=2, answer=lambda m, q, r: next(draw))
    assert page.complaints() == []
    assert page.requests() == []
    assert page.run("return document.querySelectorAll('script').length") == 1
    assert page.run("return document.querySelectorAll('img, iframe, object, embed, form').length") == 0
    links = page.run("return [...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href'))")
    assert all(link.startswith("#") for link in links)
    heads = page.texts("#summary tbody th bdi")
    assert [" ".join(head.split()) for head in heads] == [" ".join(clean(name).split()) for name in methods]
