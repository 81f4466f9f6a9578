"""A session program as DSPy's optimizers see it: a module that answers a task with a group of sessions.

Its predictors are the program's own, by the program's own names, or only those that are to be tuned. Each call
adds the calls of the sessions to DSPy's trace, which reflection and demonstrations are made from; long inputs are
cut in their middle there, so that a demonstration stays within its tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import dspy

from ..data.benchmarks import Task
from ..modules.program import SessionProgram
from ..modules.streams import stream
from ..modules.text import tokens
from .groups import Asked, Group, Groups

__all__ = ["GroupModule", "bounded", "example_of"]

_LEAST = 40  # tokens that an input keeps


class GroupModule(dspy.Module):
    """Answers a task with a group of sessions.

    Args:
        program: The session program.
        groups: Holds the sessions.
        tasks: The tasks by text.
        tuned: Names of the predictors that an optimizer may change.
        demo_tokens: Most tokens of a call in the trace.
        traced: What the trace has: ``all`` calls, or one of each predictor in the ``best`` session.

    Calling it takes ``task`` and returns a prediction with ``answers``, ``failures``, ``usage`` and the ``group``.
    """

    def __init__(
        self,
        program: SessionProgram,
        groups: Groups,
        tasks: Mapping[str, Task],
        tuned: Collection[str],
        demo_tokens: int,
        traced: Literal["all", "best"] = "all",
    ) -> None:
        super().__init__()
        self.program = program
        self._parts = (groups, tasks, tuned, demo_tokens, traced)

    def named_parameters(self) -> list[tuple[str, Any]]:
        """Return the predictors that may be changed, by their names in the program."""
        return [(name, p) for name, p in self.program.named_predictors() if name in self._parts[2]]

    def __deepcopy__(self, memo: dict[int, Any]) -> GroupModule:
        """Copy the program with its predictors; LMs, the embedder and the sessions held so far are shared."""
        return GroupModule(self.program.changed(), *self._parts)

    def forward(self, task: str) -> dspy.Prediction:
        """Hold, or look up, the sessions on a task.

        Raises:
            Halt: If the tuning is over.
        """
        groups, tasks, _, limit, traced = self._parts
        group = groups.wait(self.program, tasks[task])
        trace = dspy.settings.trace
        if trace is not None:
            own = dict(self.program.named_predictors())
            for call in group.answered if traced == "all" else _demos(group, limit, groups.seed):
                inputs = bounded(call.inputs, limit - _size(call.outputs))
                trace.append((own[call.predictor], inputs, dspy.Prediction(**call.outputs)))
        return dspy.Prediction(
            answers=list(group.answers.values()), failures=dict(group.failures), usage=group.usage, group=group
        )


def example_of(task: Task) -> dspy.Example:
    """Return a task as an example for ``GroupModule``."""
    return dspy.Example(task=task.text, id=task.id).with_inputs("task")


def bounded(inputs: Mapping[str, Any], limit: int) -> dict[str, str]:
    """Return inputs of together at most so many tokens: the longest are cut in their middle, to one length.

    Each keeps 40 tokens in any case, also where that is more than the limit.
    """
    texts = {name: str(value) for name, value in inputs.items()}
    sizes = sorted(map(tokens, texts.values()))
    most, left = 0, limit
    for n, size in enumerate(sizes):
        most = max(left // (len(sizes) - n), _LEAST)
        if size > most:
            break
        left -= size
    return {name: _cut(text, most) if tokens(text) > most else text for name, text in texts.items()}


def _demos(group: Group, limit: int, seed: int) -> list[Asked]:
    """Return one call of each predictor in the best session, drawn from those that are not too long.

    Of several, DSPy would draw one by a hash that is not the same in the next run.
    """
    found: dict[str, list[Asked]] = {}
    for call in group.answered:
        if call.session == group.best and _size(call.outputs) < limit:
            found.setdefault(call.predictor, []).append(call)
    return [stream(seed, "demo", group.task.id, name).choice(calls) for name, calls in found.items()]


def _size(outputs: Mapping[str, Any]) -> int:
    return sum(tokens(str(value)) for value in outputs.values())


def _cut(text: str, limit: int) -> str:
    data = text.encode("utf-8", "replace")
    half = max((3 * limit - 7) // 2, 1)
    return f"{data[:half].decode('utf-8', 'ignore').rstrip()} […] {data[-half:].decode('utf-8', 'ignore').lstrip()}"
