"""A seeded sample of mutated answers; `tests/support/answer_fuzz.py` runs as long as one likes (C11)."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.core.answer.parse import parse_answer
from support.answer_fuzz import ATOMS, PHASES, Mutant, complaint, mutants
from support.slow_answer import slow_verdict


def check(seed: int, count: int) -> None:
    passed = refused = 0
    for mutant in islice(mutants(seed), count):
        assert complaint(mutant) == "", repr(mutant)
        verdict, _ = slow_verdict(mutant.text, mutant.phase, mutant.truncated)
        passed += verdict == "PASS" and not mutant.is_genuine
        refused += verdict != "PASS"
    # Neither side may be empty, or nothing would be shown.
    assert passed > count / 50
    assert refused > count / 2


@pytest.mark.demand("P6.j", "P6.k", "P6.l", "P6.m", "P6.n")
@pytest.mark.parametrize("seed", range(4))
def test_mutated_answers_are_read_as_the_slow_grammar_reads_them(seed: int) -> None:
    check(seed, 2_500)


@pytest.mark.long
@pytest.mark.demand("P6.j", "P6.k", "P6.l", "P6.m", "P6.n")
@pytest.mark.parametrize("seed", range(100, 140))
def test_a_million_mutated_answers_are_read_as_the_slow_grammar_reads_them(seed: int) -> None:
    check(seed, 25_000)


@pytest.mark.demand("P6.j", "P6.m")
@given(
    st.lists(st.sampled_from([*ATOMS, "\n", "\n"]), max_size=30),
    st.sampled_from(PHASES),
    st.booleans(),
)
def test_any_row_of_delimiters_is_read_as_the_slow_grammar_reads_it(
    parts: list[str], phase: str, lost: bool
) -> None:
    mutant = Mutant("".join(parts), phase, lost, False)
    assert complaint(mutant) == ""


@given(st.text(), st.sampled_from(PHASES))
def test_no_text_raises(text: str, phase: str) -> None:
    answer = parse_answer(text, phase)
    assert answer.verdict is None or answer.error is None
