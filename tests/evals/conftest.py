"""Sessions large enough to look at, scripted models, and folders of evaluations."""

from __future__ import annotations

import asyncio
import json
import random
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from salon.modules import Embedder, Roundtable, Session

from salon.testing import ChatRequest

NAMES = tuple(f"Guest {chr(65 + n)}" for n in range(13))


CONTRAST = """
const parsed = colour => colour.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const over = (top, base) => {
  const a = top[3] ?? 1;
  return [0, 1, 2].map(i => top[i] * a + base[i] * (1 - a));
};
const behind = element => {
  const chain = [];
  for (let e = element; e; e = e.parentElement) chain.unshift(parsed(getComputedStyle(e).backgroundColor));
  return chain.reduce((base, top) => over(top, base), [255, 255, 255]);
};
const bad = [];
for (const element of document.querySelectorAll('body *')) {
  const text = [...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  const unseen = element.closest('script, style, .hidden, .skip, title, desc');
  if (!text || unseen || !element.getClientRects().length) continue;
  const style = getComputedStyle(element);
  const colour = parsed(element.namespaceURI.endsWith('svg') ? style.fill : style.color);
  const [a, b] = [light(over(colour, behind(element))), light(behind(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) bad.push(`${ratio.toFixed(2)} ${element.outerHTML.slice(0, 120)}`);
}
return bad.slice(0, 10);
"""


@pytest.fixture
def contrast() -> str:
    """A script that returns the elements whose text can hardly be told from what is behind it."""
    return CONTRAST


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


# ---------------------------------------------------------------- evaluations


class Folder:
    """Writes the folder of an evaluation, as its runner does, from functions of method, query and run.

    Args:
        place: The folder.
        methods: Names of the methods.
        texts: Text of each query; their ids are Q1, Q2 and so on.
        runs: Runs of each method and query.
        size: Runs in a group.
        judges: Names of the judges' models.
        answer: Answer of a run; None leaves the job undone.
        failed: Why a run failed; empty if it did not.
        value: Value that a judge gives; None for a rating that failed.
        usd: Price of a job.
        changes: Other content of ``evaluation.json``.
    """

    def __init__(
        self,
        place: Path,
        methods: Sequence[str] = ("direct", "debate"),
        texts: Sequence[str] = ("Use old umbrellas", "Move a piano", "Teach owls"),
        runs: int = 4,
        size: int = 2,
        judges: Sequence[str] = ("judge/a",),
        answer: Callable[[str, str, int], str | None] | None = None,
        failed: Callable[[str, str, int], str] = lambda method, query, run: "",
        value: Callable[[str, str, int, str], float | None] | None = None,
        usd: float | None = 0.001,
        **changes: Any,
    ) -> None:
        self.place, self.methods, self.runs, self.size, self.judges = place, list(methods), runs, size, list(judges)
        self.queries = {f"Q{n}": text for n, text in enumerate(texts, 1)}
        self._draw = random.Random(0)
        self._answer, self._failed, self._value, self._usd = answer or self._any_answer, failed, value, usd
        place.mkdir(parents=True, exist_ok=True)
        names = ("originality", "feasibility", "clarity")
        rubric = {
            "name": "ideas", "dimensions": [{"name": n, "description": f"its {n}", "scored": True} for n in names]
        }  # fmt: skip
        tasks = [{"id": name, "text": text, "split": "test"} for name, text in self.queries.items()]
        source = {"place": "topics.csv", "revision": "", "sha256": "0" * 64}
        self.content: dict[str, Any] = {
            "version": 1, "salon": "0",
            "benchmark": {
                "name": "topics", "fingerprint": "f", "licence": "MIT", "source": source, "rubric": rubric,
                "tasks": tasks,
            },
            "methods": {name: {"name": name.title(), "settings": {"agents": 5}, "state": {}} for name in methods},
            "models": {name: {"participant": {"model": "author/m"}} for name in methods},
            "baseline": "direct" if "direct" in methods else None, "seed": 7, "runs": runs, "groups": size,
            "threshold": 6.0, "judge": {"models": list(judges), "drawn": None, "compare": True, "similarity": False},
            "embedder": None, "packages": {"python": "3.11"}, "started": "2026-11-30T10:00:00+00:00", **changes,
        }  # fmt: skip
        (place / "evaluation.json").write_text(json.dumps(self.content))
        jobs = ((m, q, r) for r in range(1, runs + 1) for q in self.queries for m in self.methods)
        self.rows = [row for job in jobs if (row := self._row(*job)) is not None]
        self.write("jobs.jsonl", self.rows)

    def write(self, name: str, lines: Sequence[dict[str, Any]], mode: str = "w") -> None:
        """Write lines of a file, or add some (``mode="a"``)."""
        with (self.place / name).open(mode) as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def compare(self, score: Callable[[str, str, str, int], float | None], runs: int = 1) -> None:
        """Write the comparison of all methods, scored by a function of both methods, the query and the run."""
        lines = []
        for run in range(1, runs + 1):
            for query in self.queries:
                for at, a in enumerate(self.methods):
                    for b in self.methods[at + 1 :]:
                        won = score(a, b, query, run)
                        known: dict[str, Any] = {"forward": won, "backward": won, "score": won, "log_odds": None}
                        error = "" if won is not None else "no answer could be read"
                        lines.append(
                            {"query": query, "run": run, "a": a, "b": b, "judge": "judge/a", **known, "error": error}
                        )
        self.write("pairs.jsonl", lines)

    def _row(self, method: str, query: str, run: int) -> dict[str, Any] | None:
        answer, reason = self._answer(method, query, run), self._failed(method, query, run)
        if answer is None:
            return None
        base = {
            "method": method, "query": query, "run": run, "seed": 1000 + run, "calls": 3, "prompt_tokens": 400,
            "completion_tokens": 100 + run, "usd": self._usd, "seconds": 2.5, "depth": None, "absorption": None,
            "balance": None, "judge_calls": 0, "judge_tokens": 0, "judge_usd": 0.0,
        }  # fmt: skip
        if reason:
            return {**base, "status": "failed", "reason": reason, "answer": "", "ratings": []}
        ratings = [self._rating(method, query, run, judge) for judge in self.judges]
        spent = {"judge_calls": len(ratings), "judge_tokens": 200 * len(ratings)}
        return {**base, **spent, "status": "ok", "reason": "all was said", "answer": answer, "ratings": ratings}

    def _rating(self, method: str, query: str, run: int, judge: str) -> dict[str, Any]:
        given = self._value(method, query, run, judge) if self._value else round(self._draw.uniform(3, 9), 2)
        if given is None:
            return {"judge": judge, "scores": {}, "value": None, "how": "", "reason": "", "error": "it said nothing"}
        scores = {"originality": given - 0.5, "feasibility": given + 0.5, "clarity": given}
        reason = f"{judge} thinks {given:g} of {method}"
        return {"judge": judge, "scores": scores, "value": given, "how": "integers", "reason": reason, "error": ""}

    def _any_answer(self, method: str, query: str, run: int) -> str:
        words = [f"{method}{query}", *(f"w{self._draw.randrange(60)}" for _ in range(30))]
        return " ".join(words)


@pytest.fixture
def evaluated(tmp_path: Path) -> Callable[..., Folder]:
    """Write the folder of an evaluation; arguments as for ``Folder``, without the place."""
    count = iter(range(1000))
    return lambda **settings: Folder(tmp_path / f"evaluation{next(count)}", **settings)
