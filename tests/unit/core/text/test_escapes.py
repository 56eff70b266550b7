"""Text that others wrote does nothing to a terminal."""

from __future__ import annotations

import pytest

from phasegate.core.text.escapes import sanitize_for_terminal, strip_escapes

STRINGS = [
    "\x1b]0;title\x07",
    "\x1b]0;title\x1b\\",
    "\x1b]52;c;cm0gLXJm\x07",
    "\x1b]8;;http://x\x1b\\",
    "\x1bPq#0\x1b\\",
]
STRINGS += [
    "\x1b_Ga=T\x1b\\",
    "\x1b^pm\x1b\\",
    "\x1bXsos\x1b\\",
    "\x9d0;title\x9c",
    "\x9d0;title\x07",
    "\x90q\x9c",
]
CONTROLS = [
    f"\x1b[{parameters}{final}"
    for parameters in ("", "1", "31", "38;5;196", "?25")
    for final in "ABCDHJKSTfhlmnsu"
]
CONTROLS += [f"\x9b{parameters}{final}" for parameters in ("", "2", "0;0") for final in "ABHJKm"]
SINGLE = [
    "\x1bc",
    "\x1b7",
    "\x1b8",
    "\x1bM",
    "\x1b=",
    "\x1b(B",
    "\x1b)0",
    "\x1b#8",
    "\x1b%G",
    "\x1b N",
]
SINGLE += [
    chr(code) for code in range(0x80, 0xA0) if code not in (0x90, 0x98, 0x9B, 0x9D, 0x9E, 0x9F)
]
SEQUENCES = STRINGS + CONTROLS + SINGLE


def acts(text: str) -> bool:
    return any((char < " " and char not in "\n\t") or "\x7f" <= char <= "\x9f" for char in text)


def test_there_are_enough_of_them() -> None:
    assert len(SEQUENCES) >= 140


@pytest.mark.demand("P6.i")
@pytest.mark.parametrize("sequence", SEQUENCES)
def test_a_sequence_is_taken_out_whole(sequence: str) -> None:
    text = f"before {sequence}after"
    assert acts(text)
    assert strip_escapes(text) == ("before after", "before \x1bafter", False)
    assert sanitize_for_terminal(text) == "before after"


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_no_part_of_a_sequence_acts(sequence: str) -> None:
    for end in range(len(sequence) + 1):
        for text in (
            sequence[:end],
            f"\x1b{sequence[:end]}",
            f"{sequence[:end]}\ufffd\n",
            sequence[end:],
        ):
            assert not acts(sanitize_for_terminal(text))


@pytest.mark.parametrize(
    "control",
    ["\x00", "\x07", "\x08", "\x0b", "\x0c", "\x7f", "\u202e", "\u2066", "\u200f", "\u2028"],
)
def test_what_moves_the_cursor_or_turns_the_writing_is_shown_as_a_box(control: str) -> None:
    assert sanitize_for_terminal(f"a{control}b") == "a\ufffdb"


def test_a_carriage_return_starts_a_new_line_instead_of_writing_over() -> None:
    assert sanitize_for_terminal("rm -rf x\recho hello\r\nbye") == "rm -rf x\necho hello\nbye"


def test_a_lone_surrogate_can_be_written_afterwards() -> None:
    assert sanitize_for_terminal("a\udcffb").encode() == "a\ufffdb".encode()


def test_ordinary_text_is_left_alone() -> None:
    text = "naïve — 語 🎉 <b> [31m {x}\n\tcode\n"
    assert strip_escapes(text).text == sanitize_for_terminal(text) == text


@pytest.mark.parametrize("start", ["\x1b]0;x", "\x1bPx", "\x9dx"])
def test_a_string_that_is_not_ended_on_its_line_is_noticed_and_swallows_its_line_only(
    start: str,
) -> None:
    assert strip_escapes(f"a{start}\nb\n") == ("a\nb\n", "a\x1b\nb\n", True)
    assert strip_escapes(f"a{start}\r\nb\x1b\\c") == ("a\nbc", "a\x1b\nb\x1bc", True)
    assert strip_escapes(f"a{start}b\x1b[0mc") == ("ac", "a\x1b\x1bc", True)
