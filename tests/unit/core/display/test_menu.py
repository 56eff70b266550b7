"""Which menu fits and what it offers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate import check_block
from phasegate.core.display.menu import (
    MENU_ENTRIES,
    MenuEntry,
    MenuKind,
    choose_menu,
    is_code_file,
    parse_choice,
    render_box,
    render_headline,
)
from phasegate.core.workflow.workflow_phases import WORKFLOWS

ACTIVE = {
    "active_workflow": {"type": "fix", "phases": list(WORKFLOWS["fix"]), "current_phase_index": 1}
}


@pytest.mark.demand("N11.a")
@pytest.mark.parametrize(
    ("state", "configured", "has_code", "scenario"),
    [
        (None, False, False, MenuKind.NEW),
        (None, False, True, MenuKind.EXISTING),
        (None, True, False, MenuKind.IDLE),
        (None, True, True, MenuKind.IDLE),
        ({"active_workflow": None}, True, True, MenuKind.IDLE),
        ({"active_workflow": {"phases": [], "current_phase_index": 0}}, True, True, MenuKind.IDLE),
        (ACTIVE, True, True, MenuKind.ACTIVE),
        (ACTIVE, False, False, MenuKind.ACTIVE),
    ],
)
def test_the_menu_fits_the_situation(
    state: object, configured: bool, has_code: bool, scenario: MenuKind
) -> None:
    assert choose_menu(state, configured, has_code) is scenario


@pytest.mark.parametrize(
    ("stage", "scenario"), [("blocked", MenuKind.BLOCKED), ("gate-failed", MenuKind.ACTIVE)]
)
def test_a_blocker_has_a_menu_of_its_own(stage: str, scenario: MenuKind) -> None:
    active = ACTIVE["active_workflow"]
    names = ("artifact_folder", "current_phase_index")
    own = {"stage": stage, **{name: active[name] for name in names if name in active}}
    assert choose_menu(ACTIVE, True, True, own) is scenario


@pytest.mark.demand("N11.d", "N11.e")
def test_idle_and_active_menus_offer_what_is_specified_in_its_order() -> None:
    offered = {
        scenario: [entry.label for entry in entries] for scenario, entries in MENU_ENTRIES.items()
    }
    idle = [
        "New Feature",
        "Fix",
        "Run Tests",
        "Generate Tests",
        "Full Lifecycle",
        "View Status",
        "Upgrade",
    ]
    assert offered[MenuKind.IDLE] == idle
    assert offered[MenuKind.ACTIVE] == [
        "Continue",
        "Gate Check",
        "View Status",
        "Escalate",
        "Cancel",
    ]
    assert offered[MenuKind.BLOCKED] == ["Resolve", *offered[MenuKind.ACTIVE]]
    assert set(offered) == set(MenuKind)


def test_every_workflow_that_the_idle_menu_starts_exists() -> None:
    started = [
        entry.command[1]
        for entry in MENU_ENTRIES[MenuKind.IDLE]
        if entry.command[0] in ("start", "run")
    ]
    assert len(started) == 6
    assert set(started) <= set(WORKFLOWS)


@pytest.mark.demand("N11.b", "N11.c")
@pytest.mark.parametrize("scenario", MenuKind)
def test_a_menu_is_a_box_of_ascii_and_no_block(scenario: MenuKind) -> None:
    box = render_box(
        render_headline(scenario, ACTIVE), [entry.label for entry in MENU_ENTRIES[scenario]]
    )
    lines = box.split("\n")
    assert box.isascii()
    assert {len(line) for line in lines} == {len(lines[0])}
    assert lines[0] == lines[2] == lines[-1] == f"+{'-' * (len(lines[0]) - 2)}+"
    assert all(line.startswith("| ") and line.endswith(" |") for line in (lines[1], *lines[3:-1]))
    assert check_block(box) == ["no-block"]


@pytest.mark.demand("N11.a")
def test_the_active_menu_names_workflow_and_phase() -> None:
    assert render_headline(MenuKind.ACTIVE, ACTIVE) == "PHASEGATE - fix: Phase 02 - Tracing"
    odd = {"active_workflow": {**ACTIVE["active_workflow"], "type": "\x1b[2J"}}
    assert render_headline(MenuKind.ACTIVE, odd) == "PHASEGATE - workflow: Phase 02 - Tracing"


KEYS = st.sampled_from(["active_workflow", "phases", "current_phase_index", "type", "x"])
PLAIN = st.none() | st.booleans() | st.integers() | st.text()


@given(state=st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)))
def test_no_state_breaks_the_menu(state: object) -> None:
    assert render_headline(choose_menu(state, True, True), state).startswith("PHASEGATE - ")


LABELS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=200)


@given(title=LABELS, labels=st.lists(LABELS, max_size=9))
def test_a_box_has_straight_sides_and_fits_a_terminal(title: str, labels: list[str]) -> None:
    (width,) = {len(line) for line in render_box(title, labels).split("\n")}
    assert width <= 80


@given(answer=st.text())
def test_an_answer_is_the_number_of_an_entry_or_nothing(answer: str) -> None:
    entries = [MenuEntry(str(number), ("x",)) for number in range(1, 4)]
    chosen = parse_choice(answer, entries)
    assert chosen is None or chosen.label == answer.strip()


@pytest.mark.parametrize(
    "answer", ["0", "4", "-1", "1.0", "\u0661", "1 2", "01", "q", "", "9" * 5000]
)
def test_a_wrong_answer_chooses_nothing(answer: str) -> None:
    assert parse_choice(answer, [MenuEntry("a", ("x",))] * 3) is None


CODE = {
    "main.py": True,
    "Makefile": True,
    "README.md": False,
    "LICENSE": False,
    ".env.py": False,
    "A.TXT": False,
}


@pytest.mark.parametrize("name", CODE)
def test_documents_are_no_code(name: str) -> None:
    assert is_code_file(name) is CODE[name]
