"""Where the prompt section goes, for every shape of agent file."""

from __future__ import annotations

import pytest

from phasegate.core.prompt.agent_file import (
    PROMPTS_TITLE,
    PROTOCOL_TITLE,
    PromptSection,
    find_section_problems,
    insert_section,
    read_agent_file,
)
from phasegate.errors import ConfigError
from support.agent_file_shapes import HERE, PROTOCOL_PLACES, SHAPES, unmarked

SECTION = PromptSection(
    PROMPTS_TITLE, "# SUGGESTED PROMPTS\n\nSay what comes next:\n\n```\n---\nSTATUS: x\n---\n```\n"
)
EMISSION = PromptSection(
    PROTOCOL_TITLE, "# PROMPT EMISSION PROTOCOL\n\nEmit:\n  [1] Go on\n  [2] View project status\n"
)


def put(text: str, section: PromptSection = SECTION) -> str:
    return insert_section(read_agent_file(text, section), section)


def says(text: str, section: PromptSection = SECTION) -> list[str]:
    return find_section_problems(read_agent_file(text, section), section)


def expected(shape: str, section: PromptSection = SECTION) -> str:
    return shape.replace(HERE, section.text)


@pytest.mark.demand("N10.b", "N10.c", "N10.d", "N10.e", "N10.j")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_section_goes_to_its_place_in_every_shape(shape: str) -> None:
    assert put(unmarked(shape)) == expected(shape)


@pytest.mark.demand("N10.h")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_file_in_order_stays_as_it_is(shape: str) -> None:
    text = expected(shape)
    assert put(text) == text
    assert says(text) == []


@pytest.mark.demand("N10.b", "N10.c", "N10.d")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_a_file_keeps_its_line_endings(shape: str, ending: str) -> None:
    before = unmarked(shape).replace("\n", ending)
    if not before.strip():
        return  # nothing says which ending it has
    assert put(before) == expected(shape).replace("\n", ending)


@pytest.mark.demand("N10.b", "N10.c", "N10.d")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_byte_order_mark_stays_where_it_is(shape: str) -> None:
    assert put("\ufeff" + unmarked(shape)) == "\ufeff" + expected(shape)


@pytest.mark.demand("N10.b", "N10.h")
def test_a_missing_final_newline_is_the_closing_lines_own() -> None:
    synced = put("# SELF-VALIDATION\n\n- a\n\nYou are it.")
    assert synced == f"# SELF-VALIDATION\n\n- a\n\n{SECTION.text}\nYou are it."
    assert put(synced) == synced


@pytest.mark.demand("N10.d", "N10.h")
def test_a_last_line_without_newline_is_ended_before_the_section() -> None:
    assert put("# SELF-VALIDATION\n\n- a") == f"# SELF-VALIDATION\n\n- a\n\n{SECTION.text}"


@pytest.mark.demand("N10.h", "N10.i")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_stale_section_is_replaced_in_place(shape: str) -> None:
    stale = shape.replace(HERE, "# SUGGESTED PROMPTS\n\nold\n\n## deeper\n\n```\n# old\n```\n")
    assert says(stale) == ["stale: # SUGGESTED PROMPTS"]
    assert put(stale) == expected(shape)


@pytest.mark.demand("N10.h")
@pytest.mark.parametrize(
    "after",
    ["Skills\n======\n\n| a |\n|---|\n", "Skills\nand more\n===\n\n- mine\n\nYou are it.\n"],
)
def test_an_underlined_heading_ends_our_section_and_its_text_stays(after: str) -> None:
    assert (
        put(f"# SELF-VALIDATION\n\n- a\n\n# SUGGESTED PROMPTS\n\nold\n\n{after}").count(after) == 1
    )


@pytest.mark.demand("N10.h")
def test_a_section_of_ours_under_an_underlined_heading_is_replaced() -> None:
    stale = "# ROLE\n\n- x\n\nSUGGESTED PROMPTS\n=====\n\n- old\n"
    assert says(stale) == ["stale: # SUGGESTED PROMPTS"]
    assert put(stale) == f"# ROLE\n\n- x\n\n{SECTION.text}"


BELOW = [
    "## Notes\n\n- mine\n",
    "- mine\n",
    "```\nmine\n---\n```\n",
    "| mine |\n|---|\n",
    "mine\n\n- and this\n",
]


@pytest.mark.demand("N10.h", "N10.i")
@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize(
    "ours", [SECTION.text, SECTION.text.replace("Say what", "Show what")], ids=["due", "older"]
)
def test_what_the_author_wrote_below_our_section_stays(below: str, ours: str) -> None:
    synced = put(f"# ROLE\n\n- x\n\n{ours}\n{below}")
    assert synced == f"# ROLE\n\n- x\n\n{below}\n{SECTION.text}"
    assert put(synced) == synced


@pytest.mark.demand("N10.h")
@pytest.mark.parametrize("below", BELOW)
def test_what_stands_below_the_protocol_stays(below: str) -> None:
    before = f"# CONSTITUTIONAL GOVERNANCE\n\n- a\n\n{EMISSION.text}\n{below}\n# PROGRESS TRACKING (TASK LIST)\n\n- b\n"
    synced = put(before, EMISSION)
    assert below in synced
    assert put(synced, EMISSION) == synced


@pytest.mark.demand("N10.b", "N10.i")
def test_a_section_at_the_wrong_place_is_moved() -> None:
    wrong = f"# ROLE\n\ntext\n\n{SECTION.text}\n# SELF-VALIDATION\n\n- a\n\nYou are it.\n"
    assert says(wrong) == ["misplaced: # SUGGESTED PROMPTS"]
    assert (
        put(wrong) == f"# ROLE\n\ntext\n\n# SELF-VALIDATION\n\n- a\n\n{SECTION.text}\nYou are it.\n"
    )


@pytest.mark.demand("N10.h", "N10.i")
def test_of_two_sections_one_remains() -> None:
    twice = f"# A\n\n{SECTION.text}\n# B\n\n{SECTION.text}\nYou are it.\n"
    assert says(twice) == ["repeated: # SUGGESTED PROMPTS"]
    assert put(twice) == f"# A\n\n# B\n\n{SECTION.text}\nYou are it.\n"


@pytest.mark.demand("N10.i")
def test_a_missing_section_is_said_to_be_missing() -> None:
    assert says("# ROLE\n\nYou are it.\n") == ["missing: # SUGGESTED PROMPTS"]


@pytest.mark.demand("N10.f", "N10.h", "N10.j")
@pytest.mark.parametrize("shape", PROTOCOL_PLACES.values(), ids=PROTOCOL_PLACES.keys())
def test_the_protocol_goes_between_governance_and_progress_tracking(shape: str) -> None:
    synced = put(unmarked(shape), EMISSION)
    assert synced == expected(shape, EMISSION)
    assert put(synced, EMISSION) == synced


@pytest.mark.demand("N10.f", "N10.i")
def test_the_orchestrator_has_its_protocol_instead_of_suggested_prompts() -> None:
    text = f"# CONSTITUTIONAL GOVERNANCE\n\nlaw\n\n{SECTION.text}\nBye.\n"
    assert says(text, EMISSION) == [
        "foreign: # SUGGESTED PROMPTS",
        "missing: # PROMPT EMISSION PROTOCOL",
    ]
    assert "# SUGGESTED PROMPTS" not in put(text, EMISSION)


@pytest.mark.parametrize("opening", ["```", "~~~~", "<!--"])
def test_a_file_that_ends_inside_a_fence_or_comment_is_refused_by_line(opening: str) -> None:
    with pytest.raises(ConfigError, match="opens in line 3 is never closed"):
        read_agent_file(f"# A\n\n{opening}\n# SELF-VALIDATION\n")


def test_front_matter_is_not_touched_nor_read_as_markdown() -> None:
    front = "---\nname: x\n# SELF-VALIDATION\nnotes: |\n  ```\n---\n"
    assert put(f"{front}\n- a\n\nYou are it.\n") == f"{front}\n- a\n\n{SECTION.text}\nYou are it.\n"
