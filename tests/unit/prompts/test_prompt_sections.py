"""What the prompt sections tell an agent to print is what `phasegate next` prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phasegate import check_block, next_steps, resolve_display_name
from phasegate.core.answer.block import parse_status
from phasegate.core.prompt.agent_file import PromptSection, read_agent_file
from phasegate.core.prompt.agent_role import AgentKind
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.errors import ConfigError
from phasegate.prompts.agent_files import build_expected_section, load_shipped_files

# The text that the module design of the orchestrator prescribes, word for word.
PROTOCOL = (Path(__file__).parents[2] / "fixtures/interface/protocol.md").read_text()
ALL_PHASES = sorted({key for phases in WORKFLOWS.values() for key in phases})
FENCES = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(front: str, name: str = "mine") -> PromptSection:
    return build_expected_section(read_agent_file(f"---\n{front}\n---\n"), name)


def active(phases: tuple[str, ...], index: int) -> dict[str, object]:
    return {
        "active_workflow": {"type": "feature", "phases": [*phases], "current_phase_index": index}
    }


def printed(text: str, key: str, phases: tuple[str, ...]) -> str:
    """What an agent of phase `key` prints that follows its section by hand, with this list of phases in the state."""
    if key not in phases:
        return FENCES.findall(text)[-1]
    position = phases.index(key)
    last = position + 1 == len(phases)
    own = text.partition(f"`{key}`, when {'it is the last phase' if last else 'a phase follows'}:")[
        2
    ]
    block: str = FENCES.findall(own)[0]
    return (
        block
        if last
        else block.replace("{next_phase_name}", resolve_display_name(phases[position + 1]))
    )


@pytest.mark.demand("N10.g")
def test_the_protocol_is_the_specified_text_word_for_word() -> None:
    assert section("role: orchestrator") == PromptSection("PROMPT EMISSION PROTOCOL", PROTOCOL)


@pytest.mark.demand("N9.a", "N9.b", "N9.c", "N9.d", "N9.e", "N6.a", "N6.b")
@pytest.mark.parametrize("key", [*ALL_PHASES, "R1-behavior-extraction"])
def test_a_phase_agent_that_follows_its_section_prints_what_the_hook_prints(key: str) -> None:
    text = section(f"phases: [{key}]").text
    for phases in [*WORKFLOWS.values(), (key,), (key, "17-odd-one"), ("00-x", key)]:
        for index in range(len(phases)):
            assert printed(text, key, phases) == next_steps(active(phases, index), phase=key)


@pytest.mark.demand("N8.e", "N8.f")
@pytest.mark.parametrize("key", ALL_PHASES)
def test_without_a_usable_state_the_section_prescribes_the_fallback(key: str) -> None:
    assert FENCES.findall(section(f"phases: [{key}]").text)[-1] == next_steps(None, phase=key)


def test_an_agent_of_two_phases_has_the_blocks_of_both() -> None:
    phases = WORKFLOWS["upgrade"]
    text = section("phases: [16-upgrade-plan, 16-upgrade-execute]").text
    for key in ("16-upgrade-plan", "16-upgrade-execute"):
        assert printed(text, key, phases) == next_steps(active(phases, 0), phase=key)
        assert f"`phasegate next --phase {key}`" in text


@pytest.mark.demand("N9.b", "N9.c", "N9.d", "N9.e", "N10.m")
def test_an_agent_of_any_phase_finds_its_own_review_in_the_table() -> None:
    text = section("name: mine").text
    follows, last, fallback = FENCES.findall(text)
    for key in ALL_PHASES:
        review = re.search(rf"^\| {key} \| (.+) \|$", text, re.MULTILINE)
        assert review is not None
        named = follows.replace("{next_phase_name}", resolve_display_name("17-x")).replace(
            "{review_action}", review[1]
        )
        assert named == next_steps(active((key, "17-x"), 0))
        assert last.replace("{review_action}", review[1]) == next_steps(active((key,), 0))
    assert fallback == next_steps(None, phase="01-requirements")


@pytest.mark.demand("N9.f")
def test_the_discover_orchestrator_prints_its_fixed_block() -> None:
    text = section("role: sub-orchestrator", "discover-orchestrator").text
    assert FENCES.findall(text) == [next_steps(None, phase="discover")]


@pytest.mark.demand("N2.a", "N2.b")
def test_a_sub_agent_reports_its_task_to_its_parent_and_offers_no_menu() -> None:
    text = section("role: sub-agent\nparent: tracing-orchestrator\ntask: Symptom analysis").text
    (block,) = FENCES.findall(text)
    assert parse_status(block) == ("Symptom analysis", "tracing-orchestrator")
    assert "[1]" not in text


def test_words_that_could_be_read_in_two_ways_make_no_status_block() -> None:
    with pytest.raises(ConfigError, match="do not fit in a status block"):
        section("role: sub-agent\nparent: C\ntask: A complete. Returning results to B")


@pytest.mark.demand("N10.a")
def test_every_block_in_a_shipped_section_is_valid() -> None:
    for file in load_shipped_files():
        parts = read_agent_file(file.text)
        blocks = FENCES.findall(build_expected_section(parts, file.name).text)
        kind = "status" if file.role.kind is AgentKind.SUB_AGENT else "next-steps"
        assert [check_block(block, kind) for block in blocks] == [[]] * len(blocks)
        assert bool(blocks) != (file.role.kind is AgentKind.ORCHESTRATOR)


@pytest.mark.demand("N10.h")
def test_every_section_ends_so_that_a_closing_line_after_it_is_told_apart() -> None:
    for file in load_shipped_files():
        text = build_expected_section(read_agent_file(file.text), file.name).text
        assert text.endswith("\n```\n") or text == PROTOCOL
        assert text.isascii()
        assert "{{" not in text
