"""Every test starts with DSPy as freshly imported, no key of the user's, and no way to a model hub."""

from __future__ import annotations

import atexit
import copy
import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

_CACHE = tempfile.mkdtemp(prefix="salon-tests-")
atexit.register(shutil.rmtree, _CACHE, ignore_errors=True)
# Read when dspy and the hub clients are imported, so set before anything can import them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "true"
os.environ["DSPY_CACHEDIR"] = _CACHE

import dspy  # noqa: E402
import pytest  # noqa: E402
from dspy.clients import base_lm  # noqa: E402

from salon.testing import LoopbackServer  # noqa: E402

dspy_settings: Any = import_module("dspy.dsp.utils.settings")  # the package gives the instance this name


def _forget_dspy() -> None:
    dspy_settings.main_thread_config.clear()
    dspy_settings.main_thread_config.update(copy.deepcopy(dspy_settings.DEFAULT_CONFIG))
    dspy_settings.config_owner_thread_id = dspy_settings.config_owner_async_task = None
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    base_lm.GLOBAL_HISTORY.clear()


@pytest.fixture(autouse=True)
def clean_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore DSPy's settings and cache, and hide the user's keys and salon settings."""
    for name in list(os.environ):
        if name.startswith("SALON_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    _forget_dspy()
    yield
    _forget_dspy()


@pytest.fixture
def loopback() -> Iterator[LoopbackServer]:
    """A chat server that answers at once."""
    with LoopbackServer() as server:
        yield server


@pytest.fixture
def quick_embeddings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every ``Embedder`` vectors that cost nothing, where no two texts are alike."""
    import numpy as np
    from salon.modules import Embedder

    def spread(texts: list[str]) -> Any:
        seeds = [int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:8], "big") for text in texts]
        return np.stack([np.random.default_rng(seed).normal(size=64) for seed in seeds])

    monkeypatch.setattr(Embedder, "_encoder", lambda _: spread)


@pytest.fixture
def roundtable(quick_embeddings: None) -> Callable[..., Any]:
    """Make a Roundtable of so many people, of two turns and one idea each unless told otherwise."""
    from salon import Roundtable

    people = [
        {"name": "Ada", "sketch": "Ada repairs bicycles and hates waste."},
        {"name": "Bo", "sketch": "Bo nurses at night and sleeps by day."},
        {"name": "Cy", "sketch": "Cy teaches maths to adults in a village."},
    ]

    def make(count: int = 3, **settings: Any) -> Any:
        return Roundtable(**{"personas": people[:count], "turns": 2, "ideas": 1, "votes": 2, **settings})

    return make


@pytest.fixture
def made() -> Callable[..., Any]:
    """Put a session together by hand.

    Called with the names of the personas and with what they said: (kind, number of the author from 1, text,
    cited ids). An idea's text is its title and its description; a vote is for the idea that it cites.
    """
    from salon.modules.budget import Usage
    from salon.modules.events import Comment, Event, Facilitation, Idea, Joined, Phase, Thought, Vote
    from salon.modules.log import Recorded
    from salon.modules.session import Session

    kinds = {"thought": Thought, "comment": Comment, "idea": Idea, "vote": Vote, "facilitation": Facilitation}

    def session(
        names: Sequence[str], said: Sequence[tuple[str, int, str, Sequence[str]]], topic: str = "Tea", seed: int = 7
    ) -> Session:
        program = {"name": "Roundtable", "settings": {}, "state": {}}
        header = {
            "kind": "header", "version": 1, "program": program, "settings": {}, "inputs": {"topic": topic},
            "seed": seed, "models": {"participant": {"model": "m"}}, "packages": {"salon": "0"}, "started": "now",
        }  # fmt: skip
        place: dict[str, Any] = {"turn": 1, "minute": 0.5}
        events: list[Event] = [
            Joined(n=n, persona=f"P{n + 1}", name=name, label=name, sketch=name, turn=0, minute=0.0)
            for n, name in enumerate(names)
        ]
        events.append(Phase(n=len(events), phase="discussion", reason="it began", **place))
        counts: Counter[str] = Counter()
        for kind, author, text, cites in said:
            counts[kind] += 1
            content: dict[str, Any] = {
                "thought": {"text": text, "eagerness": 5, "wants": "pass"},
                "comment": {"text": text},
                "idea": {"title": text, "description": f"That is: {text}"},
                "vote": {"idea": cites[0] if cites else "", "origin": "ballot", "reason": text},
                "facilitation": {"action": "invite", "target": "P1", "text": text, "reason": "quiet"},
            }[kind]
            own = {"id": f"{kinds[kind].prefix}{counts[kind]}", "author": f"P{author}", "cites": list(cites)}
            events.append(kinds[kind](n=len(events), **place, **own, **content))
        usage = Usage(calls=3, prompt_tokens=10, completion_tokens=5, unpriced=3, seconds=1.5)
        end = {"kind": "end", "status": "complete", "reason": "all is said", "usage": vars(usage).copy()}
        recorded = Recorded(header, events=[event.model_dump(mode="json") for event in events], end=end)
        return Session(header, events, "complete", "all is said", usage, None, recorded)

    return session


HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "[x](javascript:alert(1))", "javascript:alert(1)",
    '%%{init: {"theme":"dark"}}%%', "%% comment", "click I1 call alert()", '"]\n click I1 href "javascript:alert(1)"',
    "`**md**`", "end", "style I1 fill:#f00;", "A --> B", "#quot;] --> X[", "ﬂ°°60¶ßb", "\\N \\G \\", 'a" -> "b',
    '"]; evil [label="x', "<b>html</b>", "<<TABLE></TABLE>>", "&lt;b&gt; &amp; &#60;i&#62;", "=1+1", "\t=1+1", "＝1+1",
    "@SUM(A1)", "-2+3", "\r\n=1", "{0} {x} %s", "\u202emoc مرحبا", "lone \ud800 surrogate", "\ufffe\uffff",
    "nul \0 bell \7 esc \x1b[31m", "line\nbreak\r\nmore\rand", "\u2028sep\x85", "]]> <!-- <![CDATA[",
    "[[ ## history ## ]]",
    "| pipe | # head", "1. list", "- bullet", "~~~\n```", "", " ", "long " * 2000, "👓 emoji", "ünïcødé 漢字",
]  # fmt: skip


@pytest.fixture
def hostile(made: Callable[..., Any]) -> Any:
    """A session in which topic, names, thoughts, comments, ideas and votes are hostile texts, one of each kind."""
    said: list[tuple[str, int, str, list[str]]] = []
    for n, text in enumerate(HOSTILE, 1):
        said += [("thought", n, text, [f"I{n - 1}"] if n > 1 else []), ("comment", n, text, [f"T{n}"])]
        said += [("idea", n, text, [f"T{n}", f"C{n}"]), ("vote", n, text, [f"I{n}"])]
    return made([text or f"P{n}" for n, text in enumerate(HOSTILE, 1)], said, topic="".join(HOSTILE[:8]))


# ---------------------------------------------------------------- pages

_SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1400,1000",
)  # fmt: skip


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


# ---------------------------------------------------------------- compiled programs


@pytest.fixture
def report() -> Callable[..., Any]:
    """Make the report of a compile of a Debate for quality and diversity; keywords replace its parts."""
    from dataclasses import replace

    from salon.evals.statistics import Interval
    from salon.modules import Debate
    from salon.modules.budget import Usage
    from salon.optimize import compile_report as parts
    from salon.optimize.program_change import program_change

    quality = parts.HeldOut(Interval(7, 6.5, 7.5, 2), Interval(6, None, None, 2), Interval(1, 0.5, 1.5, 2), 0.04, 2)
    measured = {"quality": parts.Measured(6, 0.2, 2), "vendi": parts.Measured(2.5, 0.1, 2)}
    trials = [
        parts.Trial(0, {"k": 2}, measured, "complete", usage=Usage(40, 9000, 800, 0.01), confirmed=True),
        parts.Trial(1, {"k": 1}, {"quality": parts.Measured(4, None, 1)}, "pruned", "hopeless after 1 task"),
        parts.Trial(2, {"k": 4}, {}, "failed", "the model cannot be used", "gepa"),
    ]
    made = parts.CompileReport(
        program=program_change(Debate(), Debate(k=1)),
        benchmark=parts.DataSource("topics", "0123456789abcdef", "MIT", {"place": "topics.csv", "revision": ""}),
        train=[parts.TaskText("a1", "A use for umbrellas")],
        validation=[parts.TaskText("b1", "A use for corks"), parts.TaskText("b2", "A use for lids")],
        test=[parts.TaskText("c1", "A use for keys"), parts.TaskText("c2", "A use for maps")],
        groups=5,
        seed=7,
        models={"participant": "openai/gpt-5-mini", "judge": "openai/gpt-5-mini"},
        judges=["openai/gpt-5"],
        packages={"salon": "0.1.0", "dspy": "3.4.1"},
        objectives=[parts.Goal("quality", "maximize", "1 to 10"), parts.Goal("vendi", "maximize")],
        space={"k": parts.Range(1, 4, False, True, 2)},
        trials=trials,
        front=[0],
        picked=0,
        rule="most diverse within 1 % of the best quality",
        held_out={"quality": quality},
        better=True,
        verdict="Quality rose by 1 point.",
        usage={"sessions": Usage(120, 90_000, 8000, 0.5), "judge": Usage(60, 30_000, 900, 0.1)},
        seconds=77.5,
        started="2026-11-30T10:15:00+00:00",
        limits=["One model played and judged."],
        search="TPE",
    )
    return lambda **changes: replace(made, **changes)
