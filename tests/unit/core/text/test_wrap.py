"""Lines wrapped by words."""

from __future__ import annotations

from phasegate.core.text.elapsed import describe_age
from phasegate.core.text.wrap import wrap_line


def test_a_long_line_is_wrapped_at_spaces_and_indented() -> None:
    assert wrap_line("  why: one two three", 14) == ["  why: one two", "      three"]


def test_a_short_line_and_a_long_word_are_not_changed() -> None:
    assert wrap_line("short", 10) == ["short"]
    assert wrap_line("phasegate-has-a-long-word", 10) == ["phasegate-has-a-long-word"]


def test_colours_take_no_room() -> None:
    assert wrap_line("\x1b[31mBLOCKED\x1b[0m now", 12) == ["\x1b[31mBLOCKED\x1b[0m now"]


def test_an_age_has_one_unit() -> None:
    ages = [describe_age(seconds) for seconds in (-1, 42, 300, 3 * 3600, 5 * 86_400)]
    assert ages == ["0 s", "42 s", "5 min", "3 h", "5 days"]
