"""The tables of look-alikes are as complete as Unicode's own."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest

from phasegate.core.answer.lookalikes import (
    INVISIBLE,
    REVIEW_PATTERN,
    find_encoded_reviews,
    spells_review,
)

EVERY = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]


def is_found(text: str) -> bool:
    match = re.match(f"<{REVIEW_PATTERN}", text)
    return match is not None and spells_review(match[0])


@pytest.mark.demand("P6.m")
def test_every_blank_control_and_format_character_is_invisible() -> None:
    pattern = re.compile(f"[{INVISIBLE}]")
    kinds = ("Cc", "Cf", "Zs", "Zl", "Zp")
    assert [
        hex(ord(c)) for c in EVERY if unicodedata.category(c) in kinds and not pattern.match(c)
    ] == []
    assert not any(pattern.match(c) for c in "review<>/\\abcéе語＜")


@pytest.mark.demand("P6.m")
@pytest.mark.parametrize("letter", "reviw")
def test_every_compatible_form_of_a_letter_is_found(letter: str) -> None:
    forms = [c for c in EVERY if unicodedata.normalize("NFKC", c).casefold() == letter]
    assert len(forms) > 30
    assert [c for c in forms if not is_found("<" + "review".replace(letter, c))] == []


@pytest.mark.demand("P6.m")
def test_the_forms_of_the_bracket_are_found() -> None:
    forms = [c for c in EVERY if unicodedata.normalize("NFKC", c) == "<" and c != "<"]
    assert forms
    assert all(list(find_encoded_reviews(f"a {c}/review>")) == [2] for c in forms)


def test_a_bracket_before_another_does_not_hide_it() -> None:
    assert list(find_encoded_reviews("＜＜ｒｅｖｉｅｗ")) == [1]
    assert list(find_encoded_reviews("⟨語語＜review")) == [3]


def test_other_words_are_not_found() -> None:
    assert not any(
        is_found(text)
        for text in ("<preview", "<revised", "<語語語語語語", "<Überblick", "<rev", "<ревью")
    )
