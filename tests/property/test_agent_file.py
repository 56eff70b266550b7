"""Any text whatsoever: the section goes in once, twice changes nothing more, and the author's lines stay."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext, suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from phasegate.core.prompt.agent_file import OWN_TITLES, Outline, read_agent_file, split_lines
from phasegate.errors import ConfigError
from phasegate.prompts.agent_files import build_expected_section, check_agent_file
from support.growth import assert_grows_no_faster_than_its_input

FRAGMENTS = st.sampled_from(
    [
        *[
            "",
            " ",
            "text",
            "more text",
            "    deep",
            "  shallow",
            "\ttab",
            "# ROLE",
            "## Deeper",
            " # One in",
            "#no",
        ],
        *[
            "# SELF-VALIDATION",
            "# SUGGESTED PROMPTS",
            "# PROMPT EMISSION PROTOCOL",
            "# SUGGESTED PROMPTS  ",
        ],
        *["SELF-VALIDATION", "SUGGESTED PROMPTS"],
        *[
            "# CONSTITUTIONAL GOVERNANCE",
            "# PROGRESS TRACKING (TASK LIST)",
            "---",
            "...",
            "***",
            "===",
            "- - -",
        ],
        *[
            "- item",
            "-",
            "* x",
            "2. two",
            "1) one",
            "  - nested",
            "-     far",
            "10. ten",
            "> quoted",
            "> # no",
        ],
        *[
            "```",
            "````",
            "~~~",
            "``` x",
            "`` ` ``",
            "  ```",
            "    ```",
            "   ~~~",
            "- ```",
            "```x```",
        ],
        *[
            "| a | b |",
            "a | b",
            "--- | ---",
            "<!-- x -->",
            "<!--",
            "-->",
            "[1] option",
            "  [2] option",
            "[1]: x",
        ],
        *[
            "phases: [01-requirements, 06-x]",
            "role: orchestrator",
            "role: sub-agent",
            "parent: p",
            "task: t",
        ],
        *[
            "role: sub-orchestrator",
            "name: discover-orchestrator",
            "\ufeff",
            "\u2028x",
            "\x0b",
            "é",
            "\x00",
        ],
    ]
)
NAMES = st.sampled_from(
    [
        "mine",
        "00-sdlc-orchestrator",
        "risk-assessor",
        "discover-orchestrator",
        "14-upgrade-engineer",
    ]
)
FRONT_MATTER = st.sampled_from(
    [
        *[
            "",
            "",
            "---\nphases: [02-tracing]\n---\n",
            "---\nrole: orchestrator\n---\n",
            "---\nnote: # ROLE\n---\n",
        ],
        *["---\nrole: sub-agent\nparent: p\ntask: t\n---\n", "---\nrole: sub-orchestrator\n...\n"],
    ]
)
# Whole blocks: every fence and comment is closed, so nothing made of them may be refused.
BLOCKS = st.sampled_from(
    [
        *[
            "",
            "text",
            "more text\nover two lines",
            "    deep",
            "  shallow",
            "# ROLE",
            "## Deeper",
            "#no",
            "> quoted\n> # no",
        ],
        *[
            "# SELF-VALIDATION",
            "# SUGGESTED PROMPTS",
            "# PROMPT EMISSION PROTOCOL",
            "# SUGGESTED PROMPTS  ",
        ],
        *[
            "SELF-VALIDATION\n===",
            "SUGGESTED PROMPTS\n===",
            "Two\nlines\n=",
            "Notes\n---",
            "***",
            "- - -",
        ],
        *["# CONSTITUTIONAL GOVERNANCE", "# PROGRESS TRACKING (TASK LIST)"],
        *[
            "- item",
            "-",
            "* x\nlazy",
            "2. two",
            "1) one\n\n   more of one",
            "- a\n  - nested",
            "- x\n\n  ```\n  # no\n  ```",
        ],
        *[
            "```\n# SELF-VALIDATION\n```",
            "~~~~\n~~~\n# no\n~~~~",
            "``` x\n```",
            "- ```\n  # no\n  ```",
            "```x``` y",
            "```\n<!--\n```",
        ],
        *[
            "| a | b |",
            "a | b\n--- | ---\nc | d",
            "<!-- x -->",
            "<!--\n# SUGGESTED PROMPTS\n```\n-->",
            "[1] option\n[2] option",
        ],
        *["[1]: x", "\u2028x", "\x0b", "é", "\x00"],
    ]
)


@st.composite
def documents(draw: st.DrawFn, front_matter: st.SearchStrategy[str] = FRONT_MATTER) -> str:
    """Whole texts that are dense in everything that matters here."""
    parts = draw(
        st.lists(st.tuples(BLOCKS, st.sampled_from(["\n", "\n\n", "\n\n\n"])), max_size=10)
    )
    text = draw(front_matter) + "".join(block + gap for block, gap in parts)
    last = draw(st.sampled_from(["", "The end.", "- the end"]))
    return draw(st.sampled_from(["", "\ufeff"])) + (text + last).replace(
        "\n", draw(st.sampled_from(["\n", "\r\n", "\r"]))
    )


@st.composite
def broken_documents(draw: st.DrawFn) -> str:
    """Any lines in any order: fences that never close, front matter that does not end, several sorts of line ends."""
    endings = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", ""])
    parts = draw(st.lists(st.tuples(FRAGMENTS, endings), max_size=16))
    return draw(FRONT_MATTER) + "".join(text + ending for text, ending in parts)


def authors_lines(text: str) -> list[str]:
    return said_lines("".join(read_agent_file(text).lines))


def said_lines(text: str) -> list[str]:
    return [line.rstrip("\r\n") for line in split_lines(text) if line.strip(" \t\r\n")]


def assert_stays(text: str, name: str) -> None:
    """A text that was synced is as it should be."""
    again = check_agent_file(text, name)
    assert again.corrected_text == text
    assert again.findings == []


@pytest.mark.demand("N10.h", "N10.m")
@given(text=documents(), name=NAMES)
def test_twice_gives_the_same_bytes_as_once(text: str, name: str) -> None:
    assert_stays(check_agent_file(text, name).corrected_text, name)


@pytest.mark.demand("N10.i", "N10.m")
@given(text=documents(), name=NAMES)
def test_the_section_is_there_once_and_the_authors_lines_stay(text: str, name: str) -> None:
    examined = check_agent_file(text, name)
    synced = read_agent_file(examined.corrected_text)
    assert [found.text for found in synced.sections] == [
        build_expected_section(read_agent_file(text), name).text
    ]
    assert authors_lines(examined.corrected_text) == authors_lines(text)
    assert (examined.findings == []) == (examined.corrected_text == text)


@pytest.mark.demand("N10.h", "N10.i")
@given(text=documents(), below=documents(st.just("")), name=NAMES)
def test_no_line_that_is_added_below_a_section_is_lost(text: str, below: str, name: str) -> None:
    assume(not any(mark in below for mark in (*OWN_TITLES, "\ufeff")))
    longer = f"{check_agent_file(text, name).corrected_text}\n\n{below}"
    synced = check_agent_file(longer, name)
    before, after = (
        Counter(said_lines(whole.lstrip("\ufeff"))) for whole in (longer, synced.corrected_text)
    )
    assert before <= after
    assert_stays(synced.corrected_text, name)


@pytest.mark.demand("N10.h")
@given(text=documents(), name=NAMES, cut=st.integers(0, 60))
def test_a_section_that_lost_lines_is_mended(text: str, name: str, cut: int) -> None:
    lines = check_agent_file(text, name).corrected_text.split("\n")
    torn = "\n".join(lines[:cut] + lines[cut + 3 :])
    assert_synced_or_refused_with_reason(torn, name)


@pytest.mark.demand("N10.h", "N10.m")
@given(text=st.one_of(broken_documents(), st.text()), name=NAMES)
def test_any_text_is_synced_or_refused_with_a_reason(text: str, name: str) -> None:
    assert_synced_or_refused_with_reason(text, name)


def assert_synced_or_refused_with_reason(text: str, name: str) -> None:
    # Only a fence or comment, which can swallow the section, may be a reason, or a mistake in the front matter.
    has_a_reason = any(mark in text for mark in ("```", "~~~", "<!--", "---"))
    once = ""
    with suppress(ConfigError) if has_a_reason else nullcontext():
        once = check_agent_file(text, name).corrected_text
    if once:
        assert_stays(once, name)


def test_broken_texts_are_both_synced_and_refused() -> None:
    assert_stays(
        check_agent_file("# SELF-VALIDATION\n- x\n```\n# no\n```\nIt.\r", "mine").corrected_text,
        "mine",
    )
    with pytest.raises(ConfigError):
        check_agent_file("- x\n~~~", "mine")


@pytest.mark.demand("N10.j")
@given(
    text=documents(st.just("")).filter(
        lambda text: "\x00" not in text and not text.startswith("\ufeff")
    )
)
def test_headings_are_where_a_commonmark_parser_sees_them(text: str) -> None:
    lines = split_lines(text)
    tokens = (
        MarkdownIt("commonmark")
        .enable("table")
        .parse("".join(f"{line.rstrip()}\n" for line in lines))
    )
    opened = [
        token
        for token in tokens
        if token.type == "heading_open" and token.markup == "#" and token.level == 0
    ]
    ours = {n for n in Outline(lines).titles if lines[n].startswith("#")}
    assert ours == {token.map[0] for token in opened if token.map}


@pytest.mark.parametrize(
    "unit",
    [f"# {title}\n\n- x\n\n" for title in OWN_TITLES]
    + ["# A\n", "- x\n", "[1]", "  ", "-\t", "- + "],
)
def test_time_grows_with_the_text_and_no_faster(unit: str) -> None:
    assert_grows_no_faster_than_its_input(
        lambda text: check_agent_file(text, "mine"), unit.__mul__, 1_000, 8_000
    )


def test_lists_in_lists_without_end_are_no_trouble() -> None:
    nested = "".join(f"{'  ' * depth}- x\n" for depth in range(600))
    text = f"{nested}\n# SELF-VALIDATION\n\n- a\n\nYou are it.\n"
    synced = check_agent_file(text, "mine").corrected_text
    assert synced.startswith(f"{nested}\n# SELF-VALIDATION\n\n- a\n\n# SUGGESTED PROMPTS\n")
    assert synced.endswith("```\n\nYou are it.\n")
