"""Odds: what the log-probabilities of an answer's tokens say of its values, for every way to cut text into tokens."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from salon.modules.odds import expected, log_odds, odds_of, values_of
from salon.signatures.fields import Confidence, Rating, Short
from salon.signatures.judging import Side

SCALE = [str(n) for n in range(1, 11)]


def token(text: str, likely: dict[str, float] | None = None) -> dict[str, Any]:
    tops = [{"token": t, "logprob": math.log(p) if p else -9999.0} for t, p in (likely or {text: 1.0}).items()]
    own = next((top["logprob"] for top in tops if top["token"] == text), -5.0)
    return {"token": text, "logprob": own, "top_logprobs": tops}


def odds(*tokens: Any, value: str = "7", values: list[str] = SCALE, name: str = "score") -> dict[str, float]:
    content = [t if isinstance(t, dict) else token(t) for t in tokens]
    return odds_of({"content": content}, {name: value}, {name: values}).get(name, {})


def test_the_alternatives_of_a_value_are_its_odds() -> None:
    found = odds('{"score": ', token("7", {"7": 0.5, "8": 0.3, "9": 0.2}), "}")
    assert found == pytest.approx({"7": 0.5, "8": 0.3, "9": 0.2})
    assert expected(found) == pytest.approx(7 * 0.5 + 8 * 0.3 + 9 * 0.2)


def test_what_is_no_value_is_dropped_and_the_rest_sums_to_one() -> None:
    likely = {"7": 0.2, "0": 0.1, "11": 0.1, "x": 0.1, '"': 0.1, " ": 0.1, "": 0.1, "8": 0.2}
    assert odds('{"score": ', token("7", likely), "}") == pytest.approx({"7": 0.5, "8": 0.5})


@pytest.mark.parametrize(
    "tokens",
    [
        ('{"score":', token(" 7", {" 7": 0.6, " 8": 0.4}), "}"),
        ('{"score": ', token('"7', {'"7': 0.6, '"8': 0.4}), '"}'),
        ('{"score": "', token("7", {"7": 0.6, "8": 0.4}), '/10"}'),
        ('{"score": ', token("7", {"7": 0.6, "8": 0.4}), ".0", "}"),
        ('{"score": ', token("7.0", {"7.0": 0.6, "8.0": 0.4}), "}"),
        ('{"score": ', token("7}", {"7}": 0.6, "8}": 0.4})),
        ('{"score', token('":7', {'":7': 0.6, '":8': 0.4}), "}"),
        ("[[ ## score ## ]]\n", token("7", {"7": 0.6, "8": 0.4}), "\n\n[[ ## completed ## ]]"),
        ("[[ ## score ## ]]", token("\n7", {"\n7": 0.6, "\n8": 0.4}), "\n"),
        ("```json\n{\n", '  "', "sc", "ore", '":', "\t", token("7", {"7": 0.6, "8": 0.4}), "\n}```", ""),
        ('{"score": 7, "other": 1, "score": ', token("7", {"7": 0.6, "8": 0.4}), "}"),
    ],
)
def test_spaces_quotes_and_decimals_around_a_value_mean_nothing(tokens: tuple[Any, ...]) -> None:
    assert odds(*tokens) == pytest.approx({"7": 0.6, "8": 0.4})


def test_the_token_after_a_first_digit_decides_where_it_was_written() -> None:
    first = token("1", {"1": 0.5, "9": 0.5})
    after = token("0", {"0": 0.8, "}": 0.2})
    assert odds('{"score": ', first, after, "}", value="10") == pytest.approx({"9": 0.5, "10": 0.4, "1": 0.1})
    assert odds('{"score": ', first, token("}", {"0": 0.8, "}": 0.2}), value="1") == pytest.approx(
        {"9": 0.5, "10": 0.4, "1": 0.1}
    )


def test_a_first_digit_that_was_not_written_is_split_like_its_neighbours() -> None:
    high = odds('{"score": ', token("9", {"9": 0.6, "8": 0.2, "1": 0.2}), "}", value="9")
    assert high == pytest.approx({"9": 0.6, "8": 0.2, "10": 0.2})
    low = odds('{"score": ', token("2", {"2": 0.8, "1": 0.2}), "}", value="2")
    assert low == pytest.approx({"2": 0.8, "1": 0.2})
    both = odds('{"score": ', token("9", {"9": 0.6, "2": 0.2, "1": 0.2}), "}", value="9")
    assert both == pytest.approx({"9": 0.6, "2": 0.2, "10": 0.15, "1": 0.05})
    nowhere = odds('{"score": ', token("5", {"5": 0.8, "1": 0.2}), "}", value="5")
    assert nowhere == {"5": 1.0}


def test_a_first_digit_is_itself_where_ten_is_a_token() -> None:
    found = odds('{"score": ', token("9", {"9": 0.4, "10": 0.4, "1": 0.2}), "}", value="9")
    assert found == pytest.approx({"9": 0.4, "10": 0.4, "1": 0.2})


def test_words_are_told_by_their_beginnings() -> None:
    likely = {"fir": 0.5, "sec": 0.25, "Second": 0.05, "s": 0.2}
    found = odds('{"pick": "', token("fir", likely), "st", '"}', value="first", values=["first", "second"], name="pick")
    assert found == pytest.approx({"first": 0.5, "second": 0.5})


@pytest.mark.parametrize(
    "tokens",
    [
        ('{"other": ', token("7"), "}"),
        ('{"score": ', token("8", {"8": 0.5, "7": 0.5}), "}"),
        ('{"score": ', token("7", {"7": 0.5, "8": 0.5}), ".5}"),
        ('{"score": ', token("7", {"7": 0.5, "8": 0.5}), "5}"),
        ('{"score": ', token("12"), "}"),
        ('{"score": ', token("seven"), "}"),
        ('{"score": "about ', token("7"), '"}'),
        ('{"reason": "she said \\"score\\": ', token("7"), '", "score": null}'),
        ("{'score': ", token("7"), "}"),
        ('"score": ',),
        ("",),
        (),
        ('{"score": ', {"token": "7", "logprob": float("nan"), "top_logprobs": None}, "}"),
        ('{"score": ', {"token": "7", "logprob": None, "top_logprobs": "many"}, "}"),
        ('{"score": ', {"token": 7, "logprob": 0.0}, "}"),
    ],
)
def test_a_value_that_is_not_there_as_it_was_read_has_no_odds(tokens: tuple[Any, ...]) -> None:
    assert odds(*tokens) == {}


@pytest.mark.parametrize("logprobs", [None, [], {}, {"content": None}, {"content": "x"}, {"content": [None]}, 3, "x"])
def test_what_is_no_list_of_tokens_has_no_odds(logprobs: Any) -> None:
    assert odds_of(logprobs, {"score": "7"}, {"score": SCALE}) == {}


def test_a_long_answer_is_read_in_linear_time() -> None:
    prose = token('{"reason": "' + 'a \\" { [' * 20_000 + '", "score": ')
    assert odds(prose, token("7", {"7": 0.5, "8": 0.5}), "}") == {"7": 0.5, "8": 0.5}
    assert odds('{"' * 30_000, "7") == {}


def test_values_come_from_a_fields_schema() -> None:
    assert values_of(Rating.schema()) == SCALE
    assert values_of(Confidence.schema()) == ["0", *SCALE]
    assert values_of(Side.schema()) == ["first", "second"]
    with pytest.raises(ValueError, match="odds"):
        values_of(Short.schema())


def test_log_odds_are_bounded() -> None:
    assert log_odds({"a": 0.8, "b": 0.2}, "a", "b") == pytest.approx(math.log(4))
    assert log_odds({"a": 0.8, "b": 0.2}, "b", "a") == -log_odds({"a": 0.8, "b": 0.2}, "a", "b")
    assert log_odds({"a": 1.0}, "a", "b") == 20.0
    assert log_odds({"a": 1.0}, "b", "a") == -20.0
    assert log_odds({"c": 1.0}, "a", "b") == 0.0
    assert log_odds({"a": 1.0, "b": 1e-300}, "a", "b") == 20.0


@given(
    st.dictionaries(st.sampled_from(SCALE), st.floats(1e-6, 1.0), min_size=1),
    st.data(),
    st.booleans(),
    st.text(st.sampled_from('abc "\\{}[]#:,\n1709é漢'), max_size=30),
    st.sampled_from(["", " ", "\n  "]),
)
@settings(max_examples=300, deadline=None)
def test_odds_survive_any_way_to_cut_the_text_around_the_value(
    weights: dict[str, float], data: st.DataObject, digits: bool, reason: str, space: str
) -> None:
    whole = sum(weights.values())
    likely = {value: weight / whole for value, weight in weights.items()}
    value = data.draw(st.sampled_from(sorted(likely)))
    head, tail = json.dumps({"reason": reason})[:-1] + f', "score":{space}', ', "end": 1}'

    def cut(text: str) -> list[str]:
        places = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=5)) | {0, len(text)})
        return [text[a:b] for a, b in itertools.pairwise(places)]

    parts = [value]
    if digits and value == "10":
        parts = ["1", "0"]
    if digits:
        one = likely.get("1", 0.0) + likely.get("10", 0.0)
        first = {v: p for v, p in likely.items() if v not in ("1", "10")} | ({"1": one} if one else {})
        written = [token(parts[0], first)]
        if value in ("1", "10"):
            after = {"0": likely.get("10", 0.0) / one, ",": likely.get("1", 0.0) / one}
            written += [token("0" if value == "10" else ",", {t: p for t, p in after.items() if p})]
            tail = tail if value == "10" else tail[1:]
    else:
        written = [token(value, likely)]
    found = odds(*cut(head), *written, *cut(tail), value=value)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-4)
    begun = likely.keys() & ({"1", "10"} if digits else {"1"})
    if value in ("1", "10") or not begun or (not digits and "10" in likely):
        assert found == pytest.approx(likely, rel=1e-4, abs=1e-6)
        assert expected(found) == pytest.approx(sum(float(v) * p for v, p in likely.items()), rel=1e-4)
    else:
        assert found.keys() - {"1", "10"} == likely.keys() - {"1", "10"}
    assert 1 <= expected(found) <= 10


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), st.lists) | st.text())
def test_no_form_of_log_probabilities_is_an_error(odd: Any) -> None:
    content = [{"token": '{"score": 7}', "logprob": odd, "top_logprobs": odd}, {"token": odd, "logprob": 0.0}]
    for logprobs in (odd, {"content": odd}, {"content": content}, {"content": content[:1]}):
        found = odds_of(logprobs, {"score": "7"}, {"score": SCALE})
        assert all(0 < p <= 1 for values in found.values() for p in values.values())
