"""The validator and parser of both blocks: one named error per broken rule."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate import check_block
from phasegate.core.answer.block import (
    BLOCK_ERRORS,
    parse_menu,
    parse_status,
    render_menu,
    render_status,
)
from support.growth import assert_grows_no_faster_than_its_input
from support.published_expressions import PROMPT_BLOCK, STATUS_BLOCK

# Real processes or a model check: in `make test`, not in `make test-fast`.
pytestmark = pytest.mark.slow

GOOD = "---\nSUGGESTED NEXT STEPS:\n  [1] Go on\n  [2] Review\n  [3] Show workflow status\n---\n"
STATUS = "---\nSTATUS: Risk assessment complete. Returning results to impact-analysis-orchestrator.\n---\n"


@pytest.mark.demand("N1.a", "N1.b", "N1.c")
def test_the_canonical_block_is_rendered_byte_for_byte() -> None:
    assert render_menu(["Go on", "Review", "Show workflow status"]) == GOOD
    assert check_block(GOOD, "next-steps") == []


@pytest.mark.demand("N2.a")
def test_the_status_block_is_rendered_byte_for_byte() -> None:
    assert render_status("Risk assessment", "impact-analysis-orchestrator") == STATUS
    assert check_block(STATUS, "status") == []
    assert re.search(STATUS_BLOCK, STATUS, re.MULTILINE)


BROKEN = {
    "four hyphens open": (GOOD.replace("---\nS", "----\nS"), ["wrong-delimiter"]),
    "an em dash closes": (GOOD[:-4] + "\u2014\u2014\u2014\n", ["wrong-delimiter"]),
    "a blank behind the delimiter": (GOOD[:-1] + " \n", ["wrong-delimiter"]),
    "a blank before the delimiter": (" " + GOOD, ["wrong-delimiter"]),
    "nothing closes": (GOOD[:-4], ["wrong-delimiter"]),
    "nothing opens": (GOOD[4:], ["wrong-delimiter"]),
    "a small header": (
        GOOD.replace("SUGGESTED NEXT STEPS:", "Suggested Next Steps:"),
        ["wrong-header"],
    ),
    "no colon": (GOOD.replace("STEPS:", "STEPS"), ["wrong-header"]),
    "another header": (GOOD.replace("SUGGESTED NEXT STEPS:", "NEXT STEPS:"), ["wrong-header"]),
    "one blank before an item": (GOOD.replace("  [2]", " [2]"), ["item-prefix"]),
    "a tab before an item": (GOOD.replace("  [2]", "\t[2]"), ["item-prefix", "non-ascii"]),
    "two blanks behind the number": (GOOD.replace("[2] ", "[2]  "), ["item-prefix"]),
    "no text": (GOOD.replace("[2] Review", "[2] "), ["item-prefix"]),
    "another bracket": (GOOD.replace("[2]", "(2)"), ["item-prefix", "numbering"]),
    "a gap in the numbers": (GOOD.replace("[3]", "[4]"), ["numbering"]),
    "numbers from zero": (GOOD.replace("[1]", "[0]"), ["numbering"]),
    "a number twice": (GOOD.replace("[3]", "[2]"), ["numbering"]),
    "one item": ("---\nSUGGESTED NEXT STEPS:\n  [1] Go on\n---\n", ["too-few-items"]),
    "no items": ("---\nSUGGESTED NEXT STEPS:\n---\n", ["too-few-items"]),
    "five items": (GOOD[:-4] + "  [4] a\n  [5] b\n---\n", ["too-many-items"]),
    "an arrow": (GOOD.replace("Go on", "Go \u2192 on"), ["non-ascii"]),
    "an escape sequence": (GOOD.replace("Go on", "\x1b[31mGo on"), ["non-ascii"]),
    "a lone surrogate": (GOOD.replace("Go on", "Go \udcff"), ["non-ascii"]),
    "Windows line ends": (GOOD.replace("\n", "\r\n"), ["crlf"]),
    "old Macintosh line ends": (GOOD.replace("\n", "\r"), ["crlf"]),
    "old Macintosh line ends after prose": ("Done.\n" + GOOD.replace("\n", "\r"), ["crlf"]),
    "old Macintosh line ends and a gap": (
        GOOD.replace("\n", "\r").replace("[3]", "[4]"),
        ["numbering", "crlf"],
    ),
    "prose with old line ends": ("50 %\r100 %\rAll done.\n", ["no-block"]),
    "one Windows line end": (GOOD.replace("Review\n", "Review\r\n"), ["crlf"]),
    "a blank line between items": (GOOD.replace("  [2]", "\n  [2]"), ["blank-line"]),
    "a blank line under the delimiter": (GOOD.replace("---\nS", "---\n\nS"), ["blank-line"]),
    "many blank lines under the delimiter": (
        GOOD.replace("---\nS", "---\n\n\n\n\n\n\nS"),
        ["blank-line"],
    ),
    "words after the block": (GOOD + "Good luck!\n", ["not-last"]),
    "prose only": ("All done.\n", ["no-block"]),
    "nothing": ("", ["no-block"]),
    "front matter only": ("---\ntitle: x\n---\n", ["no-block"]),
    "a status where steps are due": (STATUS, ["no-block"]),
}


@pytest.mark.demand("N3.a", "N3.b", "N3.c", "N3.d", "N3.e", "N3.f", "N1.f", "N1.g", "N1.h", "N1.i")
@pytest.mark.parametrize(("text", "errors"), BROKEN.values(), ids=BROKEN)
def test_each_broken_rule_of_the_menu_has_its_name(text: str, errors: list[str]) -> None:
    assert check_block(text, "next-steps") == errors
    assert parse_menu(text) is None


BROKEN_STATUS = {
    "a menu inside": (STATUS[:-4] + "  [1] Go on\n---\n", ["menu-in-status"]),
    "a menu instead": (GOOD, ["menu-in-status"]),
    "a menu after": (STATUS + GOOD, ["not-last", "menu-in-status"]),
    "a menu before": (GOOD + "\n" + STATUS, ["menu-in-status"]),
    "a small header": (STATUS.replace("STATUS:", "Status:"), ["wrong-header"]),
    "no sentence": ("---\nSTATUS: \n---\n", ["wrong-header"]),
    "two lines": (STATUS[:-4] + "And more.\n---\n", ["wrong-delimiter"]),
    "an arrow": (STATUS.replace("Risk", "Risk\u2192"), ["non-ascii"]),
    "Windows line ends": (STATUS.replace("\n", "\r\n"), ["crlf"]),
    "old Macintosh line ends": (STATUS.replace("\n", "\r"), ["crlf"]),
    "words after": (STATUS + "Bye.\n", ["not-last"]),
    "prose only": ("Done.\n", ["no-block"]),
}


@pytest.mark.demand("N3.g", "N2.b")
@pytest.mark.parametrize(("text", "errors"), BROKEN_STATUS.values(), ids=BROKEN_STATUS)
def test_each_broken_rule_of_the_status_has_its_name(text: str, errors: list[str]) -> None:
    assert check_block(text, "status") == errors
    assert parse_status(text) is None


@pytest.mark.demand("N3.h")
def test_the_block_is_found_from_the_end() -> None:
    output = (
        f"---\ntitle: Design\n---\n\n# Design\n\n```\n{GOOD}```\n\nThat was a quotation.\n\n{GOOD}"
    )
    assert check_block(output, "next-steps") == []
    assert parse_menu(output) == ("Go on", "Review", "Show workflow status")


@pytest.mark.demand("N3.h")
def test_a_quoted_block_in_the_middle_is_not_the_outputs_block() -> None:
    assert check_block(f"The file says:\n{GOOD}\nI did nothing.\n", "next-steps") == ["not-last"]


@pytest.mark.demand("N1.i")
def test_text_before_the_block_may_be_in_any_language() -> None:
    assert check_block("Готово \u2705\r\n\r\n" + GOOD, "next-steps") == []


words = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1).filter(
    lambda text: text[0] != " "
)


@pytest.mark.demand("N3.i", "N12.a")
@given(st.lists(words, min_size=2, max_size=4))
def test_a_rendered_menu_is_parsed_back(items: list[str]) -> None:
    text = render_menu(items)
    assert parse_menu(text) == tuple(items)
    assert re.search(PROMPT_BLOCK, text, re.MULTILINE)


@pytest.mark.demand("N3.i")
@given(words, words)
def test_a_rendered_status_is_parsed_back(task: str, parent: str) -> None:
    assert parse_status(render_status(task, parent)) == (task, parent)


@given(st.lists(st.text(), max_size=6))
def test_items_that_would_break_a_block_are_refused(items: list[str]) -> None:
    try:
        text = render_menu(items)
    except ValueError:
        return
    assert parse_menu(text) == tuple(items)
    assert re.search(PROMPT_BLOCK, text, re.MULTILINE)


def test_a_status_that_could_be_read_in_two_ways_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid task or parent"):
        render_status("A complete. Returning results to B", "C")


pieces = st.sampled_from(
    [
        "---",
        "\n",
        "\r",
        " ",
        "SUGGESTED NEXT STEPS:",
        "STATUS: ",
        "[1]",
        "  [2] x",
        "[99999999]",
        "\u2014",
        "\x00",
        "\ud800",
    ]
)


@given(
    st.one_of(st.text(), st.lists(pieces).map("".join)), st.sampled_from(["next-steps", "status"])
)
def test_any_text_gets_an_answer(text: str, kind: str) -> None:
    errors = check_block(text, kind)
    assert errors == [name for name in BLOCK_ERRORS if name in errors]
    if not errors and kind == "next-steps":
        assert re.search(PROMPT_BLOCK, text.rstrip("\n \t\x0b\x0c\r"), re.MULTILINE)


@given(st.binary())
def test_any_bytes_get_an_answer(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    assert isinstance(check_block(text, "next-steps"), list)
    assert isinstance(check_block(text, "status"), list)


FLOODS = [
    "---\n",
    "\n",
    "  [1] x\n",
    "SUGGESTED NEXT STEPS:\n",
    "STATUS: x\n",
    "- ",
    "[" * 50 + "\n",
    "---\n\n",
    "x",
]


@pytest.mark.demand("N3.h")
@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("kind", ["next-steps", "status"])
def test_the_check_grows_with_the_text_and_no_faster(flood: str, kind: str) -> None:
    def flooded(size: int) -> str:
        return "---\n" + flood * (size // len(flood)) + "---\n"

    assert_grows_no_faster_than_its_input(
        lambda text: check_block(text, kind), flooded, 50_000, 400_000
    )
