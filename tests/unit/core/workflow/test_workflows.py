"""Phase keys, display names and workflows, row by row."""

from __future__ import annotations

import pytest

from phasegate.core.workflow.phases import PHASES, PhaseWork, get_phase, required_artifacts
from phasegate.core.workflow.workflow_phases import (
    UNMERGED_WORKFLOWS,
    WORKFLOWS,
    find_phases_problem,
    gate_name,
    is_phase_named,
    resolve_display_name,
    workflow_noun,
)

DISPLAY_NAMES = [
    ("00-quick-scan", "Phase 00 - Quick Scan"),
    ("01-requirements", "Phase 01 - Requirements"),
    ("02-impact-analysis", "Phase 02 - Impact Analysis"),
    ("02-tracing", "Phase 02 - Tracing"),
    ("03-architecture", "Phase 03 - Architecture"),
    ("04-design", "Phase 04 - Design"),
    ("05-test-strategy", "Phase 05 - Test Strategy"),
    ("06-implementation", "Phase 06 - Implementation"),
    ("07-testing", "Phase 07 - Testing"),
    ("08-code-review", "Phase 08 - Code Review"),
    ("09-validation", "Phase 09 - Validation"),
    pytest.param("10-cicd", "Phase 10 - Cicd", marks=pytest.mark.demand("N5.d")),
    ("11-local-testing", "Phase 11 - Local Testing"),
    ("12-remote-build", "Phase 12 - Remote Build"),
    ("13-test-deploy", "Phase 13 - Test Deploy"),
    ("14-production", "Phase 14 - Production"),
    ("15-operations", "Phase 15 - Operations"),
    ("16-upgrade-plan", "Phase 16 - Upgrade Plan"),
    ("16-upgrade-execute", "Phase 16 - Upgrade Execute"),
    pytest.param(
        "R1-behavior-extraction", "Phase R1 - Behavior Extraction", marks=pytest.mark.demand("N5.b")
    ),
    pytest.param("discovery", "Phase discovery", marks=pytest.mark.demand("N5.c")),
]


@pytest.mark.demand("N5.a")
@pytest.mark.parametrize(("key", "name"), DISPLAY_NAMES)
def test_every_phase_key_has_its_display_name(key: str, name: str) -> None:
    assert resolve_display_name(key) == name


WORKFLOW_NUMBERS = [
    pytest.param("feature", "00 01 02 03 04 05 06 11 07 10 08", marks=pytest.mark.demand("W1.b")),
    pytest.param("fix", "01 02 05 06 11 07 10 08", marks=pytest.mark.demand("W1.c")),
    pytest.param("test-run", "11 07", marks=pytest.mark.demand("W1.d")),
    pytest.param("test-generate", "05 06 11 07 08", marks=pytest.mark.demand("W1.d")),
    pytest.param(
        "full-lifecycle",
        "01 03 04 05 06 11 07 08 09 10 12 13 14 15",
        marks=pytest.mark.demand("W1.e"),
    ),
    pytest.param("upgrade", "16 16 08", marks=pytest.mark.demand("W1.f")),
    pytest.param("quick", "01 06 08", marks=pytest.mark.demand("W1.h")),
]


@pytest.mark.demand("W1.a")
@pytest.mark.parametrize(("workflow", "numbers"), WORKFLOW_NUMBERS)
def test_every_workflow_has_its_phases_in_order(workflow: str, numbers: str) -> None:
    assert [key[:2] for key in WORKFLOWS[workflow]] == numbers.split()
    assert find_phases_problem(WORKFLOWS[workflow]) is None


@pytest.mark.demand("W1.c", "W1.f")
def test_phases_that_share_a_number_are_told_apart() -> None:
    assert "02-impact-analysis" in WORKFLOWS["feature"]
    assert "02-tracing" in WORKFLOWS["fix"]
    assert WORKFLOWS["upgrade"][:2] == ("16-upgrade-plan", "16-upgrade-execute")


@pytest.mark.demand("W1.g")
def test_only_a_run_of_the_tests_has_nothing_to_merge() -> None:
    assert {"test-run"} == UNMERGED_WORKFLOWS & WORKFLOWS.keys()


@pytest.mark.parametrize(
    ("workflow", "own", "noun"),
    [
        ("feature", None, "feature"),
        ("fix", None, "bug"),
        ("full-lifecycle", None, "project"),
        ("upgrade", None, "upgrade target"),
        ("test-run", None, None),
        ("test-generate", None, None),
        ("quick", None, "feature"),
        ("spike", "question", "question"),
        ("spike", None, "feature"),
        ("fix", "question", "bug"),
    ],
)
def test_every_workflow_type_has_its_noun(workflow: str, own: str | None, noun: str | None) -> None:
    assert workflow_noun(workflow, own) == noun


@pytest.mark.demand("W1.i")
@pytest.mark.parametrize(
    ("phases", "complaint"),
    [
        ((), "at least one phase"),
        (("06",), "not a phase key"),
        (("06-implementation", "06-implementation"), "listed twice"),
        (("06-a\n---",), "not a phase key"),
        (("06-größe",), "not a phase key"),
        (("-x",), "not a phase key"),
        (("../x-y",), "not a phase key"),
    ],
)
def test_a_workflow_that_cannot_work_is_refused_in_words(
    phases: tuple[str, ...], complaint: str
) -> None:
    assert complaint in str(find_phases_problem(phases))


@pytest.mark.demand("W3.a")
def test_a_gate_is_named_after_its_phase() -> None:
    assert gate_name("08-code-review") == "GATE-08"
    assert gate_name("R1-behavior-extraction") == "GATE-R1"


@pytest.mark.demand("W7.i", "W7.j")
@pytest.mark.parametrize(
    ("key", "artifacts"),
    [
        ("00-quick-scan", ("quick-scan.md",)),
        ("01-requirements", ("proposal.md", "spec.md")),
        ("02-impact-analysis", ("impact-analysis.md",)),
        ("02-tracing", ("trace-analysis.md",)),
        ("03-architecture", ("architecture.md",)),
        ("04-design", ("plan.md", "specs/")),
        ("05-test-strategy", ("test-strategy.md",)),
        ("06-implementation", ("IMPLEMENTATION.md",)),
        *(
            (f"{number}-{name}", (f"REVIEW-{number}.md",))
            for number, name in [("07", "testing"), ("15", "operations")]
        ),
        ("16-upgrade-plan", ("upgrade-plan.md",)),
        ("16-upgrade-execute", ("upgrade-log.md",)),
    ],
)
def test_a_phase_owes_its_documents(key: str, artifacts: tuple[str, ...]) -> None:
    assert PHASES[key].artifacts == artifacts


@pytest.mark.demand("W7.l")
@pytest.mark.parametrize(
    ("workflow", "key"),
    [
        ("feature", "05-test-strategy"),
        ("fix", "05-test-strategy"),
        ("upgrade", "16-upgrade-plan"),
        ("quick", "01-requirements"),
    ],
)
def test_the_last_planning_phase_before_the_packages_owes_the_tasks(
    workflow: str, key: str
) -> None:
    phases = WORKFLOWS[workflow]
    assert [phase for phase in phases if "tasks.md" in required_artifacts(phase, phases)] == [key]


@pytest.mark.demand("W7.b", "W7.c", "W7.d", "W7.e")
def test_every_phase_of_every_workflow_says_how_it_is_carried_out() -> None:
    work = {key: get_phase(key).work for phases in WORKFLOWS.values() for key in phases}
    assert {key[:2] for key, kind in work.items() if kind is PhaseWork.PLANNING} == {
        "00",
        "01",
        "02",
        "03",
        "04",
        "05",
        "16",
    }
    assert {key for key, kind in work.items() if kind is PhaseWork.PACKAGES} == {
        "06-implementation",
        "16-upgrade-execute",
    }
    assert {key[:2] for key, kind in work.items() if kind is PhaseWork.REVIEW} == {"08", "09"}
    assert {key[:2] for key, kind in work.items() if kind is PhaseWork.COMMANDS} == {
        "07",
        "10",
        "11",
        "12",
        "13",
        "14",
        "15",
    }


def test_a_phase_of_ones_own_is_reviewed() -> None:
    assert get_phase("42-audit").work is PhaseWork.REVIEW
    assert get_phase("42-audit").artifacts == ("REVIEW-42.md",)


@pytest.mark.parametrize("text", ["01-requirements", "Requirements", "01", "1"])
def test_a_phase_is_named_by_its_key_name_or_number(text: str) -> None:
    assert is_phase_named("01-requirements", text)
    assert not is_phase_named("11-local-testing", text)
