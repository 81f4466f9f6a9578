"""How sure a model was of a value it wrote, read from the log-probabilities of the tokens it wrote it with.

A provider that returns log-probabilities gives, for each token of an answer, what the likeliest tokens in its
place would have been. The tokens are put together to the answer's text, the place of a field's value is looked
up in it, and each alternative in that place is read as the beginning of one of the values the field can have,
without leading spaces and quotes: ``7``, `` 7``, ``"7`` and ``7.0`` are all 7. What is no beginning of a value is
dropped, and the rest is brought back to a sum of 1.

Many tokenizers write numbers digit by digit, so that ``1`` begins both 1 and 10. Where the answer itself goes
through such a token, the alternatives of the next token decide. Where it does not, what comes next is unknown. If
``10`` is there as a token of its own, ``1`` is 1; else the probability is split between the values it may be like
that of their neighbours on the scale (1 and 10 like 2 and 9), and dropped where the neighbours have none.

The value in the text must be the one that was read from the answer. Where it is not, or there is no such place,
or no log-probability that is a number, a field has no odds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["expected", "log_odds", "odds_of", "values_of"]

Odds = dict[str, float]

_LEAD = " \t\r\n\"'"  # what may stand between a field's name and its value
_ENDED = re.compile(r"(?:\.0*)?(?!\w|\.\d)")  # what follows a value that is complete
_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)"(\s*+:)?', re.DOTALL)
_CLIP = 20.0  # log odds beyond which an option counts as certain
_DIGITS = 6  # that a probability is kept with


class _Token(NamedTuple):
    start: int
    text: str
    likely: Mapping[str, float]  # probabilities of the tokens that could stand here, its own among them


def values_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the values a field can have, as its JSON schema lists or bounds them.

    Raises:
        ValueError: If they are no choice and no whole numbers within bounds.
    """
    if "enum" in schema:
        return [str(value) for value in schema["enum"]]
    if schema.get("type") == "integer" and {"minimum", "maximum"} <= schema.keys():
        return [str(value) for value in range(schema["minimum"], schema["maximum"] + 1)]
    raise ValueError("only a choice or a number on a scale has odds")


def odds_of(logprobs: Any, written: Mapping[str, str], values: Mapping[str, Sequence[str]]) -> dict[str, Odds]:
    """Return how likely each value of each field was.

    Args:
        logprobs: The log-probabilities of an answer as DSPy returns them.
        written: The value that was read for each field.
        values: All values that each field can have.

    Returns:
        For each field whose value was found, the probability of each value that has one; they sum to 1.
    """
    tokens = _tokens(logprobs)
    text = "".join(token.text for token in tokens)
    found = {}
    for name, value in written.items():
        places = [at for at in _places(text, name) if _value_at(text, at, values[name]) == value]
        if places and (odds := _odds_at(tokens, places[-1], values[name])):
            found[name] = odds
    return found


def expected(odds: Mapping[str, float]) -> float:
    """Return the expected value of odds over numbers."""
    return sum(float(value) * p for value, p in odds.items()) / sum(odds.values())


def log_odds(odds: Mapping[str, float], one: str, other: str) -> float:
    """Return the natural logarithm of how much likelier one value was than another, from -20 to 20."""
    a, b = odds.get(one, 0.0), odds.get(other, 0.0)
    if not a or not b:
        return _CLIP * ((a > 0) - (b > 0))
    return max(-_CLIP, min(_CLIP, math.log(a) - math.log(b)))


def _tokens(logprobs: Any) -> list[_Token]:
    """Return the tokens of an answer with their alternatives; none where the provider's form is another."""
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    tokens, at = [], 0
    for entry in content if isinstance(content, list) else []:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("token"), str):
            return []
        listed = entry.get("top_logprobs")
        likely = dict(p for one in (listed if isinstance(listed, list) else []) if (p := _likely(one)))
        if (own := _likely(entry)) and own[0] not in likely:
            likely[own[0]] = own[1]
        tokens.append(_Token(at, entry["token"], likely))
        at += len(entry["token"])
    return tokens


def _likely(entry: Any) -> tuple[str, float] | None:
    token, value = (entry.get("token"), entry.get("logprob")) if isinstance(entry, Mapping) else (None, None)
    if not isinstance(token, str) or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if math.isnan(value) else (token, math.exp(min(float(value), 0.0)))


def _places(text: str, name: str) -> Iterator[int]:
    """Yield where values of a field begin: after its heading, or after its name in a JSON object."""
    for heading in re.finditer(rf"\[\[ ## {re.escape(name)} ## \]\]", text):
        yield _begins(text, heading.end())
    for string in _STRING.finditer(text, max(text.find("{"), 0)):
        if string[1] == name and string[2]:
            yield _begins(text, string.end())


def _begins(text: str, at: int) -> int:
    while at < len(text) and text[at] in _LEAD:
        at += 1
    return at


def _value_at(text: str, at: int, values: Sequence[str]) -> str | None:
    """Return the value that stands in a place of the text."""
    longest = max(map(len, values))
    here = text[at : at + longest].casefold()
    known = [v for v in values if here.startswith(v.casefold()) and _ENDED.match(text, at + len(v))]
    return max(known, key=len, default=None)


def _odds_at(tokens: Sequence[_Token], at: int, values: Sequence[str]) -> Odds:
    """Return the odds of the values in a place of the text."""
    place = next(n for n, token in enumerate(tokens) if token.start <= at < token.start + len(token.text))
    lead = tokens[place].text[: at - tokens[place].start]
    mass, unclear = _read(tokens, place, "", lead, values)
    shared = dict(mass)
    for several, p in unclear:
        left = [value for value in several if value not in mass] or several
        weights = {left[0]: 1.0} if len(left) == 1 else {v: _beside(v, several, values, mass) for v in left}
        if whole := sum(weights.values()):
            for value, weight in weights.items():
                shared[value] = shared.get(value, 0.0) + p * weight / whole
    total = sum(shared.values())
    if not total:
        return {}
    return {v: p for v in values if (p := float(f"{shared.get(v, 0.0) / total:.{_DIGITS}g}"))}


def _read(
    tokens: Sequence[_Token], place: int, before: str, lead: str, values: Sequence[str]
) -> tuple[Odds, list[tuple[list[str], float]]]:
    """Read the alternatives of a token as values.

    Returns:
        The probability of each value, and that of tokens that may be several values, with those values.
    """
    mass: Odds = {}
    unclear: list[tuple[list[str], float]] = []
    for token, p in tokens[place].likely.items():
        own = token == tokens[place].text
        said = token[len(lead) :] if token.startswith(lead) else token
        begun = before + (said if before else said.lstrip(_LEAD))
        several = _meant(begun, values)
        if len(several) == 1:
            mass[several[0]] = mass.get(several[0], 0.0) + p
        elif several and own and place + 1 < len(tokens):
            below, _ = _read(tokens, place + 1, begun, "", values)
            whole = sum(below.values())
            for value, part in below.items():
                mass[value] = mass.get(value, 0.0) + p * part / whole
        elif several:
            unclear.append((several, p))
    return mass, unclear


def _meant(begun: str, values: Sequence[str]) -> list[str]:
    """Return the values that a text may be the beginning of; none for an empty text, which may be any."""
    said = begun.casefold()
    if not said:
        return []
    return [v for v in values if v.casefold().startswith(said) or _complete(said, v.casefold())]


def _complete(said: str, value: str) -> bool:
    return said.startswith(value) and bool(_ENDED.match(said, len(value)))


def _beside(value: str, several: Sequence[str], values: Sequence[str], mass: Mapping[str, float]) -> float:
    """Return the probability of a number's neighbours on the scale."""
    place = values.index(value)
    beside = [v for v in (*values[max(place - 1, 0) : place], *values[place + 1 : place + 2]) if v not in several]
    return sum(mass.get(v, 0.0) for v in beside if value.isdigit())
