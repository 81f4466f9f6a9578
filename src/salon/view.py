"""How a session looks while it runs: what is said, line by line, above a status line that is kept current.

Without a terminal only the lines are written.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from salon.lines import line_of, spark
from salon.modules.budget import Usage
from salon.modules.calls import CallProgress
from salon.modules.events import Event, Idea, Joined, Phase, Round

__all__ = ["SessionView"]

_VERBS = {
    "cast": "casting the personas",
    "sketch": "sketching the personas",
    "resketch": "sketching once more",
    "think": "thinking",
    "speak": "speaking",
    "propose": "proposing",
    "vote": "voting",
    "facilitate": "looking on",
    "draft": "answering",
    "revise": "revising",
    "choose": "choosing",
    "rate": "weighing whether to speak",
    "contribute": "speaking",
    "sum_up": "summing up",
    "play": "typing",
    "summary-phase": "summing up",
    "summary-compaction": "summing up",
}


class SessionView:
    """Shows events and calls of one session; a context manager, and the listener to pass to ``hold``.

    Args:
        console: Where to show it.
        expected_calls: How many calls the session is expected to take, for the time left; 0 if unknown.
        max_seconds: The session's budget of seconds, if it has one.
    """

    def __init__(self, console: Console, expected_calls: int = 0, max_seconds: float | None = None) -> None:
        self.console = console
        self.expected, self.max_seconds = expected_calls, max_seconds
        self.usage = Usage()
        self.labels: dict[str, str] = {}
        self.busy: dict[str, CallProgress] = {}
        self.phase, self.turn, self.minute, self.ideas, self.answered = "starting", 0, 0.0, 0, 0
        self.note = ""
        self.started = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> SessionView:
        if self.console.is_terminal:
            self._live = Live(console=self.console, get_renderable=self._status, refresh_per_second=5, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, item: Event | CallProgress) -> None:
        """Take in one event or call."""
        if isinstance(item, CallProgress):
            self._call(item)
        else:
            self._event(item)

    def say(self, text: str) -> None:
        """Show a note in the status line, or as a line where there is none."""
        self.note = text
        if self._live is None:
            self.console.print(Text(text), highlight=False)

    def _call(self, call: CallProgress) -> None:
        self.usage = call.spent
        if call.ended:
            self.busy.pop(call.key, None)
            self.answered += 1
        else:
            self.busy[call.key] = call

    def _event(self, event: Event) -> None:
        self.turn, self.minute = event.turn, event.minute
        if isinstance(event, Joined):
            self.labels[event.persona] = event.label
        if isinstance(event, Phase):
            self.phase = event.phase
        self.ideas += isinstance(event, Idea)
        line = line_of(event, self.labels)
        if line is not None:
            self.console.print(line, highlight=False, soft_wrap=self._live is None)

    def _status(self) -> Group:
        """Return the status lines: who does what, and the account."""
        spent = self.usage
        cost = f"${spent.usd:.4f}" if spent.usd else ("price unknown" if spent.unpriced else "$0")
        account = (
            f"{self.phase} · turn {self.turn} · {self._time()} · ideas {self.ideas} · "
            f"{spent.calls} calls · {spent.tokens:,} tokens · {cost} · clock {self.minute:.1f} min"
        )
        lines = [Text(self._doing(), "italic", no_wrap=True, overflow="ellipsis")]
        lines.append(Text(account, "reverse", no_wrap=True, overflow="ellipsis"))
        lines.append(Text(self.note or " ", "bold yellow"))  # always there: a change of height leaves traces
        return Group(*lines)

    def _doing(self) -> str:
        doing: dict[str, list[str]] = {}
        for call in list(self.busy.values()):
            doing.setdefault(call.purpose, []).append(self.labels.get(call.speaker, call.speaker))
        parts = []
        for purpose, names in doing.items():
            who = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            verb = _VERBS.get(purpose, purpose)
            parts.append(verb if purpose in ("cast", "sketch", "resketch") else f"{who} {verb}")
        return "; ".join(parts) or "…"

    def _time(self) -> str:
        elapsed = time.monotonic() - self.started
        left: list[float] = []
        if self.expected and self.answered:
            left.append(elapsed / self.answered * max(self.expected - self.answered, 0))
        if self.max_seconds is not None:
            left.append(max(self.max_seconds - elapsed, 0))
        return f"{_clock(elapsed)}" + (f", about {_clock(min(left))} left" if left else "")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def stderr_console() -> Console:
    """Return the console for progress."""
    return Console(stderr=True)


def print_result(console: Console, session: Any) -> None:
    """Print what a session brought: the answer of a debate, else the ranked ideas."""
    if session.name == "Debate":
        _print_answer(console, session)
        return
    for idea in session.ideas:
        votes = f"  {idea.votes} vote{'' if idea.votes == 1 else 's'}" if session.name == "Roundtable" else ""
        sources = f", from {', '.join(idea.cites)}" if idea.cites else ""
        voters = f"; voted for by {', '.join(idea.voters)}" if idea.voters else ""
        lines = [
            Text.assemble((f"{idea.rank}. {idea.title}", "bold"), votes),
            Text(f"   {idea.description}"),
            Text(f"   {idea.id}, by {idea.author}{sources}{voters}", "dim"),
        ]
        for line in lines:
            console.print(line, soft_wrap=not console.is_terminal, highlight=False)


def _print_answer(console: Console, session: Any) -> None:
    """Print the chosen answer and how diversity moved over the rounds."""
    if session.ideas:
        console.print(Text(session.ideas[0].description), soft_wrap=not console.is_terminal, highlight=False)
    distances = [event.distance for event in session.events if isinstance(event, Round) and event.distance is not None]
    if distances:
        course = " → ".join(f"{distance:.3f}" for distance in distances)
        line = f"\nMean distance of the answers by round: {course}  {spark(distances)}"
        console.print(Text(line, "dim"), highlight=False)
