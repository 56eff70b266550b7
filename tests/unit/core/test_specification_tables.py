"""Rows of the interface and module specifications that no other test takes one by one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from phasegate import check_block, next_steps
from phasegate.core.answer.block import render_menu, render_status
from phasegate.core.display.next_steps import EVENTS
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.prompts import agent_files
from support.next_steps_samples import block, everything_emitted, state
from support.published_expressions import ITEM, PROMPT_BLOCK

GOOD = block(
    "Continue to Phase 04 - Design", "Review architecture and ADRs", "Show workflow status"
)
AGENT_FILES = Path(agent_files.__file__).with_name("agent_files")

FORMAT_RULES = {
    "Delimiter": ("---\n", "--- \n", "wrong-delimiter"),
    "Header": ("SUGGESTED NEXT STEPS:", "Suggested next steps:", "wrong-header"),
    "Item prefix": ("  [2] ", "   [2] ", "item-prefix"),
    "Numbering": ("[3]", "[5]", "numbering"),
    "Item count": (
        "  [2] Review architecture and ADRs\n  [3] Show workflow status\n",
        "",
        "too-few-items",
    ),
    "Character set": ("Phase 04 - Design", "Phase 04 \u2013 Design", "non-ascii"),
    "Line endings": ("status\n", "status\r\n", "crlf"),
    "Blank lines": ("STEPS:\n", "STEPS:\n\n", "blank-line"),
}


@pytest.mark.demand("N1.a", "N1.b", "N1.c", "N1.d", "N1.e", "N1.f", "N1.g", "N1.h")
@pytest.mark.parametrize(("sound", "broken", "error"), FORMAT_RULES.values(), ids=FORMAT_RULES)
def test_each_format_rule_is_kept_and_its_breach_is_named(
    sound: str, broken: str, error: str
) -> None:
    assert check_block(GOOD, "next-steps") == []
    assert sound in GOOD
    assert check_block(GOOD.replace(sound, broken), "next-steps") == [error]


@pytest.mark.demand("N1.i")
def test_the_placement_rule_wants_the_block_at_the_end() -> None:
    assert check_block(f"Report.\n\n{GOOD}", "next-steps") == []
    assert check_block(f"{GOOD}\nReport.\n", "next-steps") == ["not-last"]


STATUS = render_status("Risk assessment", "impact-analysis-orchestrator")
STATUS_RULES = {
    "Delimiter": ("---\n", "----\n", "wrong-delimiter"),
    "Header": ("STATUS: ", "STATUS:", "wrong-header"),
    "Content": ("orchestrator.\n", "orchestrator.\nMore.\n", "wrong-delimiter"),
    "No items": ("orchestrator.\n", "orchestrator.\n  [1] Go on\n", "menu-in-status"),
}


@pytest.mark.demand("N2.a", "N2.b")
@pytest.mark.parametrize(("sound", "broken", "error"), STATUS_RULES.values(), ids=STATUS_RULES)
def test_each_status_rule_is_kept_and_its_breach_is_named(
    sound: str, broken: str, error: str
) -> None:
    assert check_block(STATUS, "status") == []
    assert sound in STATUS
    assert check_block(STATUS.replace(sound, broken), "status") == [error]


TIERS = {"Primary": (0, 1), "Alternative": (1, -1), "Utility": (-1, None)}


@pytest.mark.demand("N4.a", "N4.b", "N4.c")
@pytest.mark.parametrize("tier", TIERS)
def test_each_tier_has_its_place_and_count(tier: str) -> None:
    start, end = TIERS[tier]
    counts = {"Primary": {1}, "Alternative": {1, 2}, "Utility": {1}}[tier]
    for what, _, text in everything_emitted():
        if what not in {"gate-failed", "workflow-cancelled"}:
            items = [words for _, words in re.findall(ITEM, text, re.MULTILINE)]
            assert len(items[start:end]) in counts


def without(field: str) -> dict[str, Any]:
    here = state("fix", 1)
    here["active_workflow"][field] = None
    return here


@pytest.mark.demand("N8.b", "N8.c")
@pytest.mark.parametrize(
    ("field", "event", "speaks"),
    [
        ("type", "workflow-initialized", False),
        ("phases", "gate-passed", False),
        ("current_phase_index", "gate-passed", False),
        ("artifact_folder", "gate-passed", True),
        ("phase_status", "gate-passed", True),
    ],
)
def test_each_field_of_the_read_contract_is_needed_where_it_is_used(
    field: str, event: str, speaks: bool
) -> None:
    assert next_steps(state("fix", 1), event=event) is not None
    assert (next_steps(without(field), event=event) is not None) == speaks


@pytest.mark.demand("N8.c")
def test_a_null_workflow_means_that_none_is_active() -> None:
    assert next_steps({"active_workflow": None}) is None


SEARCHES = {
    "any prompt block": ("SUGGESTED NEXT STEPS:", GOOD),
    "a sub-agent's status": ("STATUS:", STATUS),
    "a tier": ("[1]", GOOD),
    "the prompt section of an agent file": (
        "# SUGGESTED PROMPTS",
        (AGENT_FILES / "03-system-designer.md").read_text(),
    ),
}


@pytest.mark.demand("N12.a", "N10.a")
@pytest.mark.parametrize(("wanted", "text"), SEARCHES.values(), ids=SEARCHES)
def test_each_search_string_finds_its_text_once(wanted: str, text: str) -> None:
    lines = [line for line in text.splitlines() if line.strip().startswith(wanted)]
    assert lines if wanted == "[1]" else len(lines) >= 1


CHECKLIST = {
    "Format": lambda text: re.fullmatch(PROMPT_BLOCK, text.rstrip("\n")) is not None,
    "ASCII only": str.isascii,
    "No Windows line ends": lambda text: "\r" not in text,
}


@pytest.mark.demand("N1.f", "N1.g", "N12.a")
@pytest.mark.parametrize("check", CHECKLIST.values(), ids=CHECKLIST)
def test_each_check_of_the_emission_checklist_holds_for_everything_emitted(check: Any) -> None:
    assert all(check(text) for _, _, text in everything_emitted())


@pytest.mark.demand("N7.h")
def test_there_are_exactly_five_emission_points_the_last_in_two_variants() -> None:
    points = {event.removesuffix("-cancelled").removesuffix("-completed") for event in EVENTS}
    assert len(points) == 5


@pytest.mark.demand("N5.a")
def test_phase_names_come_from_the_keys_and_not_from_a_list() -> None:
    said = next_steps(
        state(phases=["01-requirements", "77-made-up-phase"], current_phase="01-requirements")
    )
    assert "Continue to Phase 77 - Made Up Phase" in str(said)


@pytest.mark.demand("N7.a")
@pytest.mark.parametrize("type_", [name for name in WORKFLOWS if not name.startswith("test-")])
def test_the_first_phase_of_every_described_workflow_is_named_at_its_start(type_: str) -> None:
    first = render_menu(["x", "y"]).splitlines()[0]
    said = str(next_steps(state(type_), event="workflow-initialized"))
    assert said.startswith(first)
    assert WORKFLOWS[type_][0][:2] in said
