"""The board: what a state file tells of a workflow, packages in columns, whatever the terminal and the texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.core.agents.harnesses import HARNESSES
from phasegate.core.display.status import (
    STATE_COLUMNS,
    FeatureCard,
    Worker,
    board_lines,
    build_phase_cards,
    count_by_state,
    cut_to_width,
    derive_package_standing,
    derive_standing,
    display_width,
    format_next_commands,
    pad_to_width,
    read_workflow_card,
    workflow_lines,
)
from phasegate.core.workflow.spending import Spending
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.engine.views.overview import PackageCard

PHASES = list(WORKFLOWS["feature"])


def plain(text: str, _: str) -> str:
    return text


def package(number: int, state: str, title: str = "Do it", **more: object) -> PackageCard:
    standing = derive_package_standing(state, has_worker=True)
    card = PackageCard(
        "001-a", f"WP{number:02}", title, state, standing, None, 1, "", "", "", Spending()
    )
    return card._replace(**more)


@pytest.mark.demand("W4.a")
def test_each_phase_is_shown_with_its_gate() -> None:
    state = {
        "active_workflow": {
            "type": "feature",
            "phases": PHASES,
            "current_phase_index": 2,
            "description": "Add it",
        }
    }
    workflow = read_workflow_card(state)
    assert workflow is not None
    lines = [*workflow_lines(workflow, plain)]
    assert lines[0] == "feature: Phase 02 - Impact Analysis"
    assert lines[1] == "  Add it"
    assert lines[2].split() == ["[x]", "Phase", "00", "-", "Quick", "Scan", "GATE-00", "PASSED"]
    assert lines[4].endswith("in progress")
    assert lines[5] == "  [ ] Phase 03 - Architecture"
    assert lines[-1] == "  then: phasegate run"
    assert len(lines) == 3 + len(PHASES)


def test_a_gate_that_the_state_file_says_is_passed_is_passed() -> None:
    told = {PHASES[0]: "completed", PHASES[1]: "nonsense"}
    workflow = read_workflow_card(
        {"active_workflow": {"phases": PHASES[:2], "current_phase_index": 0, "phase_status": told}}
    )
    assert workflow is not None
    assert [phase.status for phase in workflow.phases] == ["completed", "pending"]
    assert [*workflow_lines(workflow, plain)][-1] == "  then: phasegate run, or phasegate advance"


@pytest.mark.parametrize(
    ("stage", "position", "lines"),
    [
        ("working", 1, ["  [>] Phase 01 - Requirements  in progress", "  then: phasegate run"]),
        (
            "gate-failed",
            1,
            ["  [>] Phase 01 - Requirements  GATE-01 FAILED", "  why: why", "  what to do: mend"],
        ),
        (
            "gate-passed",
            0,
            ["  [x] Phase 00 - Quick Scan    GATE-00 PASSED", "  [ ] Phase 01 - Requirements"],
        ),
        (
            "gate-passed",
            1,
            ["  [x] Phase 01 - Requirements  GATE-01 PASSED", "  then: phasegate complete"],
        ),
        (
            "blocked",
            1,
            [
                "  [>] Phase 01 - Requirements  BLOCKED",
                "  why: why",
                '  then: phasegate resolve "how", and phasegate run',
            ],
        ),
        (
            "cancelled",
            1,
            ["feature 001-a: cancelled, round 2", "  [>] Phase 01 - Requirements", "  why: why"],
        ),
        (
            "completed",
            1,
            ["feature 001-a: completed, round 2", "  [x] Phase 01 - Requirements  GATE-01 PASSED"],
        ),
    ],
)
def test_each_stage_says_what_comes_next(stage: str, position: int, lines: list[str]) -> None:
    keys = PHASES[:2]
    phases = build_phase_cards(keys, position, stage, {})
    card = FeatureCard(
        "001-a",
        "feature",
        stage=stage,
        round=2,
        reason="why",
        remediation="mend",
        phase=keys[position],
        phases=phases,
    )
    shown = [*workflow_lines(card, plain)]
    assert [line for line in lines if line not in shown] == []
    assert any("then: " in line for line in shown) == (stage not in ("cancelled", "completed"))


@pytest.mark.parametrize(
    ("stage", "last", "held", "standing"),
    [
        ("working", False, True, "working"),
        ("working", False, False, "stopped"),
        ("gate-failed", False, False, "stopped"),
        ("gate-passed", False, False, "stopped"),
        ("gate-passed", True, False, "waiting"),
        ("gate-passed", True, True, "working"),
        ("blocked", False, False, "waiting"),
        ("completed", True, True, "ended"),
        ("cancelled", False, False, "ended"),
    ],
)
def test_a_feature_that_nobody_works_on_is_never_said_to_be_working(
    stage: str, last: bool, held: bool, standing: str
) -> None:
    assert derive_standing(stage, is_last_phase=last, has_worker=held) == standing


def test_a_stopped_feature_says_so_and_a_working_one_names_its_process() -> None:
    phases = build_phase_cards(PHASES[:2], 1, "working", {})
    card = FeatureCard("001-a", standing="stopped", stage="working", phase=PHASES[1], phases=phases)
    assert "  [>] Phase 01 - Requirements  stopped: no process is working on it" in [
        *workflow_lines(card, plain)
    ]
    working = card._replace(standing="working", worker=Worker(12, "run 001-a", "today"))
    *_, mark, last = workflow_lines(working, plain)
    assert mark.endswith("in progress")
    assert last == "  running: process 12 (run 001-a) since today"


@pytest.mark.parametrize(
    "state",
    [
        None,
        [],
        {},
        {"active_workflow": None},
        {"active_workflow": {"phases": [], "current_phase_index": 0}},
        {"a": 1},
    ],
)
def test_without_a_sound_workflow_there_is_none(state: object) -> None:
    assert read_workflow_card(state) is None


_ANY = st.recursive(
    st.none() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {"phases": st.just(PHASES[:3]) | _ANY, "current_phase_index": st.integers(-1, 4) | _ANY},
        optional=dict.fromkeys(("type", "artifact_folder", "description", "phase_status"), _ANY),
    )
)
def test_no_state_breaks_the_board_or_the_terminal(active: dict[str, object]) -> None:
    workflow = read_workflow_card({"active_workflow": active})
    if workflow is not None:
        assert all(line.isprintable() for line in workflow_lines(workflow, plain))


def test_packages_stand_in_the_column_of_their_state() -> None:
    rows = [
        package(1, "DONE"),
        package(2, "DOING", round=3),
        package(3, "BLOCKED"),
        package(4, "PLANNED"),
    ]
    head, first, *rest = board_lines(rows, 120, 9, plain)
    assert head.split() == [
        "PLANNED",
        "1",
        "DOING",
        "1",
        "FOR_REVIEW",
        "0",
        "DONE",
        "1",
        "BLOCKED",
        "1",
    ]
    for row in rows:
        assert first.index(row.id) == head.index(row.state)
    assert "WP02 Do it (round 3)" in first
    assert rest == []


def test_a_state_that_nobody_knows_is_not_lost() -> None:
    assert count_by_state([package(1, "ODD")])["ODD"] == 1
    assert any("WP01" in line for line in board_lines([package(1, "ODD")], 120, 9, plain))


def test_what_is_not_shown_is_counted() -> None:
    lines = [*board_lines([package(n, "DONE") for n in range(1, 31)], 120, 10, plain)]
    assert lines[-1] == "and 20 more: phasegate status --all"
    assert sum("WP" in line for line in lines) == 10


@given(
    st.lists(
        st.builds(
            package, st.integers(1, 9999), st.sampled_from(STATE_COLUMNS), st.text(max_size=60)
        ),
        max_size=12,
    ),
    st.integers(20, 200),
)
def test_no_line_is_wider_than_the_terminal_and_no_package_is_lost(
    rows: list[PackageCard], width: int
) -> None:
    rows = [row for row in rows if row.title.isprintable()]
    lines = [*board_lines(rows, width, 99, plain)]
    assert all(display_width(line) <= width for line in lines)
    assert all(any(row.id in line for line in lines) for row in rows)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=30), st.integers(2, 20))
def test_a_cell_is_as_wide_as_it_must_be(text: str, width: int) -> None:
    assert display_width(cut_to_width(text, width)) <= width
    assert display_width(pad_to_width(text, width)) == width


@pytest.mark.parametrize(
    ("naming", "expected"), [("", "complete"), (" --fleet", "run --merge --fleet")]
)
def test_behind_its_last_gate_a_feature_of_a_fleet_is_merged_by_a_run(
    naming: str, expected: str
) -> None:
    assert (
        format_next_commands("gate-passed", is_last_phase=True, command_suffix=naming)
        == f"phasegate {expected}"
    )


@pytest.mark.parametrize(
    "remedy",
    [
        "commit or stash your changes, then: phasegate run",
        "phasegate scope allow WP01 a.py --reason y && phasegate run --feature 001. Or resolve",
        *(row.sign_in_hint for row in HARNESSES.values() if row.sign_in_hint),
    ],
)
def test_what_run_looks_at_again_by_itself_needs_no_resolve(remedy: str) -> None:
    again = format_next_commands("blocked", is_last_phase=False, remediation=remedy)
    assert again == "phasegate run"
    decided = format_next_commands("blocked", is_last_phase=False, remediation="read the findings")
    assert decided == 'phasegate resolve "how", and phasegate run'
