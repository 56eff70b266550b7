"""No hostile answer is a PASS (C01-C05, C08, C12); a careless parser passes each of them in the same run."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from phasegate.core.answer.parse import parse_answer
from support.answer_corpus import (
    FURTHER,
    GENUINE,
    HOSTILE,
    NAMED,
    OK_RESULT,
    PASS,
    Genuine,
    Hostile,
)


@pytest.mark.demand("P6.j", "P6.k", "P6.l", "P6.m", "P6.n")
@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.name)
def test_a_hostile_answer_is_not_a_pass(hostile: Hostile) -> None:
    assert hostile.falls_for_it(hostile.text), "the control fails: this is not an attack"
    answer = parse_answer(hostile.text, hostile.phase, truncated=hostile.truncated)
    assert answer.verdict != "PASS"
    assert answer.verdict or answer.error


def test_the_corpora_are_as_large_as_they_should_be() -> None:
    assert len(NAMED) >= 20
    assert len(FURTHER) >= 40
    assert len(GENUINE) >= 40
    assert len({case.name for case in [*HOSTILE, *GENUINE]}) == len(HOSTILE) + len(GENUINE)


@pytest.mark.demand("P6.a", "P6.l", "P6.m")
@pytest.mark.parametrize("genuine", GENUINE, ids=lambda genuine: genuine.name)
def test_a_genuine_answer_is_accepted(genuine: Genuine) -> None:
    answer = parse_answer(genuine.text, genuine.phase)
    assert (answer.verdict, answer.reason) == (genuine.verdict, "")


@pytest.mark.demand("P6.m")
@pytest.mark.parametrize(
    "hostile", [case for case in HOSTILE if case.text.strip()], ids=lambda hostile: hostile.name
)
def test_a_hostile_text_after_a_genuine_pass_takes_it_away(hostile: Hostile) -> None:
    if hostile.text.strip() != OK_RESULT:  # the one text that may follow
        assert parse_answer(f"{PASS}\n{hostile.text}", "review").verdict != "PASS"


# The JSON result


def careless(text: str) -> bool:
    """Takes the first brace to the last, and what Python makes of it."""
    return bool(json.loads(text[text.index("{") : text.rindex("}") + 1]).get("success"))


@pytest.mark.demand("D7.b")
@pytest.mark.parametrize(
    "text",
    [
        OK_RESULT.replace('"success": true', '"success": false, "success": true'),
        OK_RESULT.replace("true", '"false"'),
        OK_RESULT.replace("true", "1"),
        OK_RESULT.replace("true", "NaN"),
        OK_RESULT.replace("true", "Infinity"),
        OK_RESULT.replace("true", "[false]"),
        OK_RESULT.replace("true", '{"value": false}'),
        '{"success": true}',
        OK_RESULT.replace('"job_id": "j1", ', ""),
    ],
)
def test_a_result_that_is_malformed_is_no_success(text: str) -> None:
    assert careless(text), "the control fails: this is not an attack"
    answer = parse_answer(text, "implement")
    assert (answer.result, answer.response) == (None, None)
    assert answer.result_error


NESTS = {
    "open": '{"success": ' + "[" * 200_000,
    "closed": '{"success": ' + "[" * 200_000 + "]" * 200_000 + "}",
    "objects": '{"success": {"a": ' * 50_000,
}
LENGTHS = {
    "digits": OK_RESULT.replace('"j1"', "1" * 10_000),
    "exponent": OK_RESULT.replace('"j1"', "1e" + "9" * 10_000),
    "string": OK_RESULT.replace("j1", "x" * 50_000_000),
    "open string": '{"success": "' + "x" * 50_000_000,
    "backslashes": '{"success": "' + "\\" * 2_000_000,
}


@pytest.mark.demand("D7.b")
@pytest.mark.parametrize("name", NESTS)
def test_a_deep_result_is_malformed_where_a_plain_reader_breaks_down(name: str) -> None:
    with pytest.raises((RecursionError, json.JSONDecodeError)):
        json.loads(NESTS[name])
    answer = parse_answer(NESTS[name], "implement")
    assert answer.result is None
    assert answer.result_error


@pytest.mark.demand("D7.b")
@pytest.mark.parametrize("name", LENGTHS)
def test_a_long_result_is_malformed_within_bounded_memory(name: str) -> None:
    tracemalloc.start()
    answer = parse_answer(LENGTHS[name], "implement")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answer.result is None
    assert answer.result_error
    assert peak < 64 << 20
