"""Pages in a real browser, and sessions large enough to look at."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from salon.modules import Embedder, Roundtable, Session

from salon.testing import ChatRequest

_SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1400,1000",
)  # fmt: skip
NAMES = tuple(f"Guest {chr(65 + n)}" for n in range(13))


class Browser:
    """A browser, and what it complained about and asked for."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path) -> Browser:
        """Open a file; what an earlier page did is forgotten."""
        self.driver.get("about:blank")
        self.complaints()
        self.requests()
        self.driver.get(page.as_uri())
        return self

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page and return its value."""
        return self.driver.execute_script(script, *arguments)

    def texts(self, selector: str) -> list[str]:
        """Return the text content of all elements that a selector finds."""
        return list(self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector))

    def complaints(self) -> list[str]:
        """Return what the console said since it was asked last, except plain information."""
        log = self.driver.get_log("browser")
        return [entry["message"] for entry in log if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for since this was asked last."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(("file:", "data:", "about:"))]

    def scheme(self, name: str) -> None:
        """Prefer the light or the dark scheme."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def size(self, width: int, height: int = 900) -> None:
        """Take a screen of this size, as a phone would."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Chromium that fetches nothing by itself."""
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.skip("needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium (pip install '.[dev]')")
    service = pytest.importorskip("selenium.webdriver.chrome.service")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for switch in (*_SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=service.Service(chromedriver))
    yield started
    started.quit()


@pytest.fixture
def browser(driver: Any) -> Iterator[Browser]:
    """A browser with a wide, light screen."""
    opened = Browser(driver)
    opened.scheme("light")
    opened.size(1400)
    yield opened
    driver.get("about:blank")


@pytest.fixture
def gathering(made: Callable[..., Session]) -> Callable[..., Session]:
    """Make a session of 13 personas with thoughts, remarks, ideas and votes that cite each other."""

    def session(turns: int = 12, names: Sequence[str] = NAMES) -> Session:
        draw = random.Random(1)
        said: list[tuple[str, int, str, list[str]]] = []
        seen: list[str] = []
        counts = {"thought": 0, "comment": 0, "idea": 0, "vote": 0}

        def say(kind: str, author: int, cites: list[str]) -> None:
            counts[kind] += 1
            said.append((kind, author, f"{kind} number {counts[kind]} by {author}", cites))
            if kind != "vote":
                seen.append(f"{kind[0].upper()}{counts[kind]}")

        def some(most: int) -> list[str]:
            return draw.sample(seen[-40:], min(len(seen), draw.randint(0, most)))

        for turn in range(turns):
            for author in range(1, len(names) + 1):
                say("thought", author, some(2))
            say("comment", turn % len(names) + 1, some(3))
        for author in range(1, len(names) + 1):
            say("idea", author, some(4))
        for author in range(1, len(names) + 1):
            say("vote", author, [f"I{draw.randint(1, counts['idea'])}"])
        return made(names, said)

    return session


# ---------------------------------------------------------------- scripted models

_KINDS = {
    "used": "use", "originality": "rate", "thought": "think", "comment": "speak", "title": "propose", "votes": "vote",
    "action": "facilitate", "summary": "summarise", "people": "cast", "sketch": "sketch",
}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A call as a scripted model sees it.

    Attributes:
        kind: think, speak, propose, vote, facilitate, summarise, cast, sketch, use or rate.
        who: Id of the persona it is for.
        text: The prompt.
        mark: A word that only this prompt has.
    """

    kind: str
    who: str
    text: str

    @property
    def mark(self) -> str:
        return f"x{zlib.crc32(self.text.encode('utf-8', 'replace')):08x}"

    def section(self, name: str) -> str:
        """Return a section of the prompt; empty if it has none."""
        return self.text.partition(f"[[ ## {name} ## ]]\n")[2].partition("\n\n")[0].strip()

    def shown(self) -> dict[str, str]:
        """Return what the transcript shows, by id."""
        lines = (line.partition(": ") for line in self.section("transcript").splitlines())
        return {head.split()[0]: text for head, _, text in lines}


class Model:
    """A model whose answer to a prompt never changes: scripted by kind of call, plain where the script is silent."""

    def __init__(self, **replies: Any) -> None:
        self.replies = replies
        self.asked: list[Asked] = []

    def __call__(self, request: ChatRequest) -> Any:
        kind = next(kind for name, kind in _KINDS.items() if name in request.fields)
        seat = re.search(r"Sketch of seat (P\d+)\.", request.text.rpartition("[[ ## persona ## ]]")[2])
        call = Asked(kind, seat[1] if seat else "", request.text)
        self.asked.append(call)
        reply = self.replies.get(kind, {})
        reply = reply(call) if callable(reply) else reply
        return {**self._plain(call), **reply} if isinstance(reply, dict) else reply

    def of(self, kind: str) -> list[Asked]:
        """Return the calls of a kind."""
        return [call for call in self.asked if call.kind == kind]

    def _plain(self, call: Asked) -> dict[str, Any]:
        mark = call.mark
        plain: dict[str, dict[str, Any]] = {
            "think": {"thought": f"thought-{mark}", "cites": [], "eagerness": 5, "wants": "comment"},
            "speak": {"comment": f"remark-{mark} is made", "cites": [], "nominates": ""},
            "propose": {"title": f"title-{mark}", "description": f"a{mark} b{mark} c{mark}", "cites": []},
            "vote": {"reason": "so", "votes": []},
            "facilitate": {"reason": "well", "action": "no_action", "target": "", "message": ""},
            "summarise": {"summary": f"summary-{mark}"},
            "cast": {"people": [{"name": f"Guest{n}", "role": f"role{n}"} for n in range(1, 4)]},
            "sketch": {"sketch": f"sketch-{mark} of-{mark} one-{mark}"},
            "use": {"reason": "nothing is taken up", "used": "no"},
            "rate": {"reason": "ordinary", "relevance": 6, "originality": 4, "feasibility": 7, "clarity": 7},
        }
        return plain[call.kind]


@pytest.fixture
def scripted() -> Callable[..., Model]:
    """Make a scripted model: replies by kind of call, each a value or a function of the call."""
    return Model


@pytest.fixture
def worded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Embed texts as bags of words: equal texts are equal, texts without a common word have distance 1."""

    def encode(texts: list[str]) -> Any:
        vectors = np.zeros((len(texts), 8192), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word in text.lower().replace(".", " ").split():
                row[zlib.crc32(word.encode("utf-8", "replace")) % 8192] += 1
        return vectors

    monkeypatch.setattr(Embedder, "_encoder", lambda _: encode)


@pytest.fixture
def talked(worded: None) -> Callable[..., Session]:
    """Hold a roundtable of Ann, Bo and Cy through an LM: four turns and three ideas each, unless told otherwise."""

    def hold(
        lm: Any,
        out: Path,
        names: Sequence[str] = ("Ann", "Bo", "Cy"),
        seed: int = 0,
        prompt_tokens: int = 6000,
        **settings: Any,
    ) -> Session:
        people = [{"name": name, "sketch": f"Sketch of seat P{n}."} for n, name in enumerate(names, 1)]
        given = {"turns": 4, "ideas": 3, "votes": 1, "facilitator": False, **settings}
        program = Roundtable(personas=people, lms={"participant": lm, "facilitator": lm}, **given)
        program.duplicate.value, program.prompt_tokens.value = 1.0, prompt_tokens
        return asyncio.run(program.hold(topic="Tea", seed=seed, out=out))

    return hold
