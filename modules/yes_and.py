"""YesAnd: a person brainstorms with a few experts who speak only when confident of adding something.

After YES AND (Ghosh and Rintel, CHI EA 2025). On every message of the person all experts rate at once, from 0
to 10, how sure they are that they can add something. Turn order then follows conversation analysis:

1. an expert that the last speaker nominated has the floor, whatever its rating, and may decline it;
2. else the most confident one at or above the threshold; ties go to whoever spoke least, then to seat order;
3. else the last speaker goes on, if it is at or above the threshold itself;
4. else the Sage sums up what was said as the seed of an approach.

The others are a "hmm". The floor is the person's again after a question to it, after the Sage, and after
``max_agent_turns`` turns of experts. What the person says in between is heard before the next speaker is
chosen, and ratings that are in flight then are cancelled. In ``fixed`` order everyone answers in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import dspy

from salon.errors import UserError

from ..signatures.personas import CastExperts, Persona, SketchPersona
from ..signatures.yes_and import Contribute, PlayPerson, RateConfidence, SumUp
from .chat import Chat
from .checks import checked_personas, checked_text
from .embedding import Embedder
from .log import read_log
from .program import SessionProgram
from .run import Control, Run
from .session import Session, Status
from .tunable import Tunable
from .yes_and_session import YesAndSession

__all__ = ["DEFAULT_EXPERTS", "YesAnd"]

DEFAULT_EXPERTS = (
    Persona(
        name="Designer",
        sketch="Shapes products from what people really do with their hands, eyes and time; sketches before arguing, "
        "notices what is awkward, and asks who is left out.",
    ),
    Persona(
        name="Machine Learning Researcher",
        sketch="Knows what models can learn from which data and where they fail; thinks in signals, errors and "
        "feedback, and distrusts a demo without an evaluation.",
    ),
    Persona(
        name="Engineer",
        sketch="Builds things that keep working: parts, interfaces, cost, upkeep; asks what breaks first and finds "
        "the simplest mechanism that would do.",
    ),
)


class YesAnd(SessionProgram):
    """A conversation of one person with experts that speak when they are confident.

    Args:
        experts: None for a Designer, a Machine Learning Researcher and an Engineer; a number to have experts
            invented for the problem; or the experts (``salon.data.load_personas`` reads a pool).
        threshold: Confidence from which an expert speaks, 0 to 10.
        max_agent_turns: Turns of experts before the floor is the person's again.
        order: ``confidence``, or ``fixed``: everyone answers every message, in seat order.
        calibrate: Whether to use each expert's rating relative to its own earlier ones, so that a threshold
            means the same with any model; raw ratings are kept in any case.
        messages: Messages of a simulated person.
        lms: LMs by role (``participant``, ``sage``, ``person``), expert id or name.
        embedder: Embedding model for measures and for experts that are invented.
        max_concurrency: Most calls in flight at once.

    As a program it takes ``problem`` and ``person``: a list of messages, a text that briefs a simulated person,
    or a callable that gets the session and returns the next message, or None to end. A message ``/sage`` calls
    the Sage, ``/ask NAME`` gives an expert the floor. ``open`` starts a chat instead.
    """

    inputs: ClassVar[tuple[str, ...]] = ("problem", "person")
    roles: ClassVar[tuple[str, ...]] = ("participant", "sage", "person")

    def __init__(
        self,
        experts: int | Sequence[Persona | Mapping[str, Any]] | None = None,
        threshold: float = 7,
        max_agent_turns: int = 4,
        order: Literal["confidence", "fixed"] = "confidence",
        calibrate: bool = False,
        messages: int = 3,
        lms: dict[str, Any] | None = None,
        embedder: str | Embedder | None = None,
        max_concurrency: int = 32,
    ) -> None:
        super().__init__(lms, embedder, max_concurrency)
        if order not in ("confidence", "fixed"):
            raise UserError(f"order={order!r} is not known", "it is confidence or fixed")
        self.experts = checked_personas(DEFAULT_EXPERTS if experts is None else experts, 1, "a conversation")
        self.order = order
        self.threshold = Tunable(threshold, 0, 10, "confidence", whole=False, search=(4, 9, 0.5))
        self.max_agent_turns = Tunable(max_agent_turns, 1, 50, "turns", whole=True, search=(1, 6))
        self.calibrate = Tunable(int(calibrate), 0, 1, "off or on", search=(0, 1))
        self.messages = Tunable(messages, 0, 100, "messages of a simulated person", whole=True)
        self.distinct = Tunable(0.90, 0.5, 1, "cosine")
        self.prompt_tokens = Tunable(6000, 1500, 1_000_000, "tokens", log=True)
        self.temperature = Tunable(1.0, 0, 2, search=(0.5, 1.3, 0.1))
        self.cast = dspy.Predict(CastExperts)
        self.sketch = dspy.Predict(SketchPersona)
        self.rate = dspy.Predict(RateConfidence)
        self.contribute = dspy.Predict(Contribute)
        self.sum_up = dspy.Predict(SumUp)
        self.play_person = dspy.Predict(PlayPerson)

    def settings(self) -> dict[str, Any]:
        """Return the constructor arguments that make this program again, as JSON values."""
        experts = self.experts
        return {
            "experts": experts if isinstance(experts, int) else [p.model_dump() for p in experts],
            "threshold": self.threshold.value,
            "max_agent_turns": self.max_agent_turns.value,
            "order": self.order,
            "calibrate": bool(self.calibrate.value),
            "messages": self.messages.value,
            "embedder": self.embedder.model,
            "max_concurrency": self.max_concurrency,
        }

    def checked(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the problem, cleaned, and the person where it can be written down.

        Raises:
            UserError: If the problem is missing or too long, or the person is none of the three forms.
        """
        person = inputs.get("person")
        rest = {name: value for name, value in inputs.items() if name != "person"}
        problem = checked_text("YesAnd", rest, "problem", self.prompt_tokens.value)
        if person is None or isinstance(person, str):
            return {**problem, "person": person}
        if isinstance(person, Sequence) and all(isinstance(text, str) for text in person):
            return {**problem, "person": list(person)}
        raise UserError(f"{person!r} is no person", "a list of messages, a brief or a callable is needed")

    async def hold(self, *, person: Any = None, control: Control | None = None, **arguments: Any) -> Session:
        """Hold a conversation; see ``SessionProgram.hold``."""
        control = control or Control()
        if callable(person):
            control.person, person = person, None
        return await super().hold(person=person, control=control, **arguments)

    def idle_tunables(self, always: bool = False) -> set[str]:
        """Return the floor's numbers where the order is fixed."""
        return {"threshold", "max_agent_turns", "calibrate"} if self.order == "fixed" else set()

    def open(self, problem: str, **arguments: Any) -> Chat:
        """Start a chat about a problem; arguments as for ``hold``, e.g. ``seed``, ``out`` and ``listen``."""
        listen = arguments.pop("listen", None)
        return Chat(self, {"problem": problem, **arguments}, listen)

    def calls(self) -> int:
        """Return the most calls a conversation with a simulated person takes; in fixed order it takes just these."""
        seats = self.experts if isinstance(self.experts, int) else len(self.experts)
        invented = seats + 1 if isinstance(self.experts, int) else 0
        turns = seats if self.order == "fixed" else int(self.max_agent_turns) * (seats + 1) + seats + 1
        return invented + int(self.messages) * (1 + turns) + 1

    @classmethod
    def resume(cls, folder: str | Path, lms: dict[str, Any] | None = None, **arguments: Any) -> Chat:
        """Go on with a saved chat; its earlier events come first, in ``opening``, and cost nothing.

        Args:
            folder: Where it was saved, or held with ``out``; new words are written there too.
            lms: LMs by role or expert.
            arguments: Further arguments of ``hold``, e.g. ``budget``.

        Raises:
            OutputError: If the folder holds no session.
            UserError: If it is a session of another program.
        """
        from .archive import program_of  # which knows all programs, this one too

        recorded = read_log(Path(folder))
        content = recorded.header["program"]
        if content["name"] != cls.__name__:
            raise UserError(f"{folder} holds a session of {content['name']}", f"a {cls.__name__} is needed")
        program = program_of(content)
        program.lms = dict(lms or {})
        inputs = {"problem": recorded.header["inputs"]["problem"], "seed": recorded.header["seed"]}
        return Chat(program, {**inputs, "out": folder, "recorded": recorded, **arguments})

    async def _session(self, run: Run) -> tuple[Status, str]:
        return await YesAndSession(self, run).held()
