"""New instructions, written by a model that is shown the old one and what came of it.

All calls go through a ledger: they are on one account with the sessions, kept on disk, and never made twice. What
the model is shown is bounded, so that a long session does not outgrow a small model. An answer that cannot be
read, or none, leaves an instruction as it is; whether a new one is any good is for the sessions to show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from salon.errors import BudgetSpent

from ..evals.ledger import Ledger, together
from ..modules.text import clean, fitted, neutral
from ..signatures.tuning import ImproveInstruction

__all__ = ["ROLE", "Proposer"]

ROLE = "reflection"
MEND = "Mend what the feedback names, and keep what works."
ANGLES = (
    "Make it shorter and more concrete.",
    "Turn it into a method of two or three steps that leads away from the obvious.",
    "Say how to come to an answer that no other session would give.",
    "Say what a strong answer has, and what a weak one looks like.",
    "Give it a point of view from which the step is to be done.",
)
"""What fresh proposals are asked to see to, in turn."""
_GIVEN = 60  # tokens of each input that is shown
_ANSWERED = 160  # tokens of each output
_FEEDBACK = 450  # tokens of the feedback on one example
_EXAMPLES = 3


class Proposer:
    """Writes new instructions for predictors.

    Args:
        ledger: Makes the calls, under the role ``reflection``.
        program: A module with the predictors, which tells what each is given and answers.
        how: Name of the optimizer, which the keys of its calls start with.
    """

    def __init__(self, ledger: Ledger, program: dspy.Module, how: str) -> None:
        self._ledger, self._how = ledger, how
        self._steps = {name: _step(name, predictor.signature) for name, predictor in program.named_predictors()}
        self._ask = dspy.Predict(ImproveInstruction)
        self._counts: Counter[str] = Counter()
        self.failed: list[str] = []

    async def mended(self, name: str, instruction: str, examples: Sequence[Mapping[str, Any]]) -> str:
        """Return a better instruction, given GEPA's examples with feedback.

        Args:
            name: The predictor.
            instruction: Its instruction.
            examples: Mappings with ``Inputs``, ``Generated Outputs`` and ``Feedback``.

        Raises:
            BudgetSpent: If the call does not fit the budget any more.
            CallFailure: If no call can succeed (model name, key).
        """
        shown = [
            f"Example {n}. {_given(one['Inputs'])}\n{_answered(one['Generated Outputs'])}\n"
            f"Feedback: {_folded(str(one['Feedback']))}"
            for n, one in enumerate(examples[:_EXAMPLES], 1)
        ]
        return await self._asked(name, instruction, shown, MEND)

    @property
    def asked(self) -> int:
        """How many instructions were asked for."""
        return sum(self._counts.values())

    async def fresh(
        self, name: str, instruction: str, demos: Sequence[Mapping[str, Any]], tasks: Sequence[str], count: int
    ) -> list[str]:
        """Return so many other instructions, each with a different thing to see to.

        Args:
            name: The predictor.
            instruction: Its instruction.
            demos: Calls of good sessions, with inputs and outputs together.
            tasks: Some tasks that sessions are held on.
            count: How many.

        Raises:
            BudgetSpent: If a call does not fit the budget any more.
            CallFailure: If no call can succeed (model name, key).
        """
        topics = "; ".join(fitted(neutral(task), _GIVEN) for task in tasks[:_EXAMPLES])
        shown = [f"Sessions are held on tasks like: {topics}"]
        shown += [f"Example {n} of a good session. {_given(demo)}" for n, demo in enumerate(demos[:_EXAMPLES], 1)]
        return await together(self._asked(name, instruction, shown, ANGLES[n % len(ANGLES)]) for n in range(count))

    async def _asked(self, name: str, instruction: str, shown: Sequence[str], request: str) -> str:
        self._counts[name] += 1
        answer = await self._ledger.ask(
            self._ask,
            f"{self._how}/{name}/{self._counts[name]}",
            ROLE,
            step=self._steps[name],
            instruction=_inert(instruction),
            material="\n\n".join(shown),
            request=request,
        )
        if answer.refused:
            raise BudgetSpent("The tuning cannot go on", answer.error)
        if answer.error:
            self.failed.append(f"{name}: {answer.error}")
            return instruction
        return _inert(answer.better) or instruction


def _step(name: str, signature: Any) -> str:
    def listed(fields: Mapping[str, Any]) -> str:
        return ", ".join(f"{field} ({known.json_schema_extra['desc']})" for field, known in fields.items())

    return f"{name}. It is given: {listed(signature.input_fields)}. It answers: {listed(signature.output_fields)}."


def _inert(text: str) -> str:
    """Return a text of several lines in which nothing can pass for a part of a prompt."""
    return "\n".join(neutral(line) for line in clean(text).splitlines()).strip()


def _given(inputs: Mapping[str, Any]) -> str:
    parts = (f"{name}: {fitted(neutral(str(value)), _GIVEN)}" for name, value in inputs.items() if name != "augmented")
    return f"Given: {'; '.join(parts)}"


def _answered(outputs: Mapping[str, Any] | str) -> str:
    if isinstance(outputs, str):
        return f"Answered: {fitted(neutral(outputs), _ANSWERED)}"
    parts = (f"{name}: {fitted(neutral(str(value)), _ANSWERED)}" for name, value in outputs.items())
    return f"Answered: {'; '.join(parts)}"


def _folded(text: str) -> str:
    return fitted(" ".join(neutral(line) for line in text.splitlines()), _FEEDBACK)
