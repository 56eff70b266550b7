"""Lists and numbers in a sentence."""

from __future__ import annotations

import pytest

from phasegate.core.text.wording import join_names, pluralize, shorten


@pytest.mark.parametrize(
    ("names", "text"),
    [((), ""), (("a",), "a"), (("a", "b"), "a, b"), (("a", "b", "c", "d"), "a, b and 2 more")],
)
def test_a_long_list_says_how_many_names_it_leaves_out(names: tuple[str, ...], text: str) -> None:
    assert join_names(names, 2) == text


def test_a_text_is_cut_only_if_it_is_too_long_and_says_so() -> None:
    assert shorten("four", 4) == "four"
    assert shorten("fives", 4) == "five..."


def test_one_thing_is_not_plural() -> None:
    assert [pluralize(number, "phase") for number in (0, 1, 2)] == [
        "0 phases",
        "1 phase",
        "2 phases",
    ]
