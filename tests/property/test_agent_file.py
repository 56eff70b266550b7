"""Any text whatsoever: the section goes in once, twice changes nothing more, and the author's lines stay."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from phasegate.errors import ConfigError
from phasegate.prompts.agent_files import due_section, examine
from phasegate.rules.agent_file import OWN_TITLES, read_agent_file
from phasegate.rules.markdown import LineKind, main_title, read_kinds, split_lines
from support.growth import assert_grows_no_faster_than_its_input

FRAGMENTS = st.sampled_from(
    [
        *["", " ", "text", "more text", "    deep", "  shallow", "\ttab", "# ROLE", "## Deeper", " # One in", "#no"],
        *["# SELF-VALIDATION", "# SUGGESTED PROMPTS", "# PROMPT EMISSION PROTOCOL", "# SUGGESTED PROMPTS  "],
        *["SELF-VALIDATION", "SUGGESTED PROMPTS"],
        *["# CONSTITUTIONAL GOVERNANCE", "# PROGRESS TRACKING (TASK LIST)", "---", "...", "***", "===", "- - -"],
        *["- item", "-", "* x", "2. two", "1) one", "  - nested", "-     far", "10. ten", "> quoted", "> # no"],
        *["```", "````", "~~~", "``` x", "`` ` ``", "  ```", "    ```", "   ~~~", "- ```", "```x```"],
        *["| a | b |", "a | b", "--- | ---", "<!-- x -->", "<!--", "-->", "[1] option", "  [2] option", "[1]: x"],
        *["phases: [01-requirements, 06-x]", "role: orchestrator", "role: sub-agent", "parent: p", "task: t"],
        *["role: sub-orchestrator", "name: discover-orchestrator", "\ufeff", "\u2028x", "\x0b", "é", "\x00"],
    ]
)
ENDINGS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", ""])
NAMES = st.sampled_from(
    ["mine", "00-sdlc-orchestrator", "risk-assessor", "discover-orchestrator", "14-upgrade-engineer"]
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Texts that are dense in everything that matters here."""
    parts = draw(st.lists(st.tuples(FRAGMENTS, ENDINGS), max_size=16))
    front = draw(
        st.sampled_from(["", "", "---\n", "---\nphases: [02-tracing]\n---\n", "---\nrole: orchestrator\n---\n"])
    )
    return draw(st.sampled_from(["", "\ufeff"])) + front + "".join(text + ending for text, ending in parts)


def authors_lines(text: str) -> list[str]:
    lines = read_agent_file(text).lines
    return [line.text for line in lines if line.text.strip(" \t")]


def said_lines(text: str) -> list[str]:
    return [line.text for line in split_lines(text) if line.text.strip(" \t")]


@pytest.mark.demand("N10.h", "N10.m")
@given(text=st.one_of(documents(), st.text()), name=NAMES)
def test_twice_gives_the_same_bytes_as_once(text: str, name: str) -> None:
    try:
        once = examine(text, name).text
    except ConfigError:
        return
    again = examine(once, name)
    assert again.text == once
    assert again.findings == []


@pytest.mark.demand("N10.i", "N10.m")
@given(text=documents(), name=NAMES)
def test_the_section_is_there_once_and_the_authors_lines_stay(text: str, name: str) -> None:
    try:
        examined = examine(text, name)
    except ConfigError:
        return
    synced = read_agent_file(examined.text)
    assert [found.text for found in synced.sections] == [due_section(read_agent_file(text), name).text]
    assert authors_lines(examined.text) == authors_lines(text)
    assert (examined.findings == []) == (examined.text == text)


@pytest.mark.demand("N10.h", "N10.i")
@given(text=documents(), below=documents(), name=NAMES)
def test_no_line_that_is_added_below_a_section_is_lost(text: str, below: str, name: str) -> None:
    assume(not any(mark in below for mark in (*OWN_TITLES, "\ufeff")))
    try:
        longer = f"{examine(text, name).text}\n\n{below}"
        synced = examine(longer, name)
    except ConfigError:
        return
    before, after = (Counter(said_lines(whole.lstrip("\ufeff"))) for whole in (longer, synced.text))
    assert before <= after
    assert examine(synced.text, name).text == synced.text


@pytest.mark.demand("N10.h")
@given(text=documents(), name=NAMES, cut=st.integers(0, 60))
def test_a_section_that_lost_or_gained_lines_is_mended(text: str, name: str, cut: int) -> None:
    """Stale sections of every sort: parts of the file are dropped, then synced twice."""
    try:
        lines = examine(text, name).text.split("\n")
        once = examine("\n".join(lines[:cut] + lines[cut + 3 :]), name).text
    except ConfigError:
        return
    assert examine(once, name).text == once


@pytest.mark.demand("N10.j")
@given(text=documents().filter(lambda text: "\x00" not in text and not text.startswith("\ufeff")))
def test_headings_are_where_a_commonmark_parser_sees_them(text: str) -> None:
    lines = split_lines(text)
    headings = [n for n, kind in enumerate(read_kinds(lines, 0).kinds) if kind is LineKind.HEADING]
    ours = {n for n in headings if main_title(lines[n].text) is not None}
    tokens = MarkdownIt("commonmark").enable("table").parse("".join(f"{line.text}\n" for line in lines))
    opened = [token for token in tokens if token.type == "heading_open" and token.markup == "#" and token.level == 0]
    assert ours == {token.map[0] for token in opened if token.map}


@pytest.mark.parametrize(
    "unit", [f"# {title}\n\n- x\n\n" for title in OWN_TITLES] + ["# A\n", "- x\n", "[1]", "  ", "-\t", "- + "]
)
def test_time_grows_with_the_text_and_no_faster(unit: str) -> None:
    assert_grows_no_faster_than_its_input(lambda text: examine(text, "mine"), unit.__mul__, 1_000, 8_000)


def test_lists_in_lists_without_end_are_no_trouble() -> None:
    nested = "".join(f"{'  ' * depth}- x\n" for depth in range(600))
    text = f"{nested}\n# SELF-VALIDATION\n\n- a\n\nYou are it.\n"
    synced = examine(text, "mine").text
    assert synced.startswith(f"{nested}\n# SELF-VALIDATION\n\n- a\n\n# SUGGESTED PROMPTS\n")
    assert synced.endswith("```\n\nYou are it.\n")
