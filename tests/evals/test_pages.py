"""Pages: policy, escaping, and files that appear whole or not at all."""

from __future__ import annotations

import base64
import json
import re
from hashlib import sha256
from pathlib import Path

import jinja2
import pytest
from salon.evals.pages import environment, json_block, render_page, write_page

from salon import UserError
from salon.errors import OutputError


def test_only_the_style_and_script_of_the_package_may_run() -> None:
    page = render_page("page.html.j2", title="A page")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe" not in policy[1]
    for name in ("style", "script"):
        content = re.search(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)
        assert content
        digest = base64.b64encode(sha256(content[1].encode()).digest()).decode()
        assert f"{name}-src &#39;sha256-{digest}&#39;" in policy[1]


def test_nothing_on_a_page_points_outside() -> None:
    page = render_page("page.html.j2", title="A page")
    assert not re.findall(r"(?:src|href)=[\"'](?!#|data:)[^\"']*", page)
    assert "@import" not in page
    assert not re.search(r"url\(|fetch\(|XMLHttp|https?:", page)


@pytest.mark.parametrize("text", ["<b>", "{{ 7*7 }}", "{% raw %}", "${x}", "</title><script>", "a\ud800b", "\x00\x1b"])
def test_texts_are_texts_whatever_they_say(text: str) -> None:
    page = render_page("page.html.j2", title=text)
    page.encode()
    assert page.count("<script") == 1
    assert "49" not in page.split("<style>")[0]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\ud800-\udfff]", page)


def test_a_value_that_a_template_lacks_is_a_mistake() -> None:
    with pytest.raises(jinja2.UndefinedError):
        environment().from_string("{{ nothing }}").render()


def test_json_cannot_close_its_element() -> None:
    value = {"</script><!--": ["\u2028\u2029&amp;", "\ud800"]}
    block = json_block(value)
    assert not set("<>&\u2028\u2029") & set(block)
    assert json.loads(block) == value


def test_a_page_is_written_whole_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    write_page(path, "page.html.j2", title="one")
    write_page(path, "page.html.j2", title="two")
    assert "<title>two</title>" in path.read_text()
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]


def test_a_page_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(path, "page.html.j2", title="one")
    with pytest.raises(jinja2.UndefinedError):
        write_page(path, "report.html.j2", title="two")
    assert "<title>one</title>" in path.read_text()


def test_a_place_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.html").mkdir()
    for path in (tmp_path / "file" / "page.html", tmp_path / "folder.html"):
        with pytest.raises(OutputError, match="cannot be written") as caught:
            write_page(path, "page.html.j2", title="x")
        assert isinstance(caught.value, UserError)
        assert "\n" not in str(caught.value)
    assert {file.name for file in tmp_path.iterdir()} == {"file", "folder.html"}
