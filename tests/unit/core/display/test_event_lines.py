"""What people are told of a feature's events: one line each, and one block at each emission point (W3, N7)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.display.event_lines import (
    EventText,
    render_event,
    render_package_event,
    render_stop_summary,
    select_open_findings,
)
from phasegate.core.display.next_steps import next_steps
from phasegate.core.machine.feature_events import (
    Advanced,
    AnyFeatureEvent,
    Cancelled,
    CommandsRan,
    Completed,
    CompletionRequested,
    DocumentsWritten,
    Escalated,
    GateChecked,
    JobEnded,
    JobStarted,
    Merged,
    NotMerged,
    PackageEnded,
    PackagesPlanned,
    PackageStarted,
    PhasePlan,
    Resolved,
    Retried,
    ScopeViolated,
    Started,
)
from phasegate.core.machine.feature_machine import apply_feature_event
from phasegate.core.machine.feature_state import Feature
from phasegate.core.machine.package_events import JobEndKind, Reviewed, Validated
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.phase_transitions import Stage
from phasegate.core.workflow.phases import PhaseWork

PLAN = (PhasePlan("01-requirements", PhaseWork.PLANNING, ("spec.md",)),)
STARTED = Started("001-a", "feature", PLAN, "main", "A")
STATE = {
    "active_workflow": {"type": "feature", "phases": ["01-requirements"], "current_phase_index": 0}
}


def told(*events: AnyFeatureEvent, start: Started = STARTED) -> list[EventText]:
    """What is told of a sequence of events, the start included."""
    feature: Feature | None = None
    heard = []
    for event in (start, *events):
        before, feature = feature, apply_feature_event(feature, event)
        assert feature is not None
        heard.append(render_event(before, event, feature))
    return heard


def blocks(heard: Iterable[EventText]) -> list[str]:
    return [one.block for one in heard if one.block]


def of(event: str) -> str:
    block = next_steps(STATE, event)
    assert block is not None
    return block


WRITE = (
    JobStarted("j1", "plan", "ann"),
    JobEnded("j1", JobEndKind.DONE, verdict=Verdict.PASS),
    DocumentsWritten("c"),
)


def judged(verdict: Verdict) -> tuple[AnyFeatureEvent, ...]:
    return (
        JobStarted("j2", "challenge", "bob"),
        JobEnded("j2", JobEndKind.DONE, verdict=verdict),
        GateChecked(("spec.md",)),
    )


@pytest.mark.demand("N7.a", "N7.c", "N7.d", "N7.f", "N7.h", "W3.a")
def test_each_event_of_the_lifecycle_is_told_with_one_block_and_no_other_is() -> None:
    closing = (
        JobStarted("j3", "archive", "ann"),
        JobEnded("j3", JobEndKind.DONE, verdict=Verdict.PASS),
        DocumentsWritten("c"),
    )
    failed = (*WRITE, *judged(Verdict.NEEDS_REVISION), Retried())
    way = (
        *failed,
        *WRITE,
        *judged(Verdict.PASS),
        CompletionRequested(),
        *closing,
        Merged("0123456789abcdef"),
        Completed(),
    )
    heard = told(*way)
    expected = ["workflow-initialized", "gate-failed", "gate-passed", "workflow-completed"]
    assert blocks(heard) == [of(event) for event in expected]
    assert [one.line for one in heard if one.line.startswith("GATE-")] == [
        "GATE-01 FAILED: the verdict is NEEDS_REVISION",
        "GATE-01 PASSED",
    ]
    assert "merged into main at 0123456789ab" in [one.line for one in heard]


def test_lines_say_what_happened_in_plain_words() -> None:
    written = DocumentsWritten("c", documents=3)
    lines = [one.line for one in told(*WRITE[:2], written, *judged(Verdict.NEEDS_REVISION))]
    assert lines[1:] == [
        "01-requirements: round 1, plan by ann",
        "",
        "01-requirements: plan written (3 documents)",
        "01-requirements: round 1, challenge by bob",
        "01-requirements: critic: NEEDS_REVISION",
        "GATE-01 FAILED: the verdict is NEEDS_REVISION",
    ]
    passed = Validated("c", tests="3 tests ran and passed (unittest)")
    assert render_package_event("WP01", passed) == (
        "WP01: checks passed: 3 tests ran and passed (unittest)"
    )
    assert render_package_event("WP01", Reviewed(Verdict.PASS)) == "WP01: review: PASS"


@pytest.mark.demand("N7.e", "N7.h")
def test_a_gate_that_stops_for_a_person_is_one_event_with_one_block() -> None:
    *_, last = told(*WRITE, *judged(Verdict.REJECTED))
    assert last == EventText("GATE-01 FAILED: the verdict is REJECTED", of("blocker"))


def criticised(verdict: Verdict, text: str, found: str = "") -> tuple[AnyFeatureEvent, ...]:
    ended = JobEnded("j2", JobEndKind.DONE, verdict=verdict, text=text)
    checked = GateChecked(("spec.md",), {"plan of tasks": not found}, found)
    return JobStarted("j2", "challenge", "bob"), ended, checked


def test_a_failed_gate_is_told_with_the_finding_that_the_agent_gets_and_not_with_a_pass() -> None:
    *_, last = told(*WRITE, *criticised(Verdict.PASS, "All good. PASS", "tasks.md, line 3: no id"))
    assert last.line == "GATE-01 FAILED: plan of tasks failed; tasks.md, line 3: no id"
    *_, last = told(*WRITE, *criticised(Verdict.NEEDS_REVISION, "The login has no test."))
    assert last.line == "GATE-01 FAILED: the verdict is NEEDS_REVISION; The login has no test."


def test_a_plan_that_is_wrong_to_the_last_round_is_shown_to_the_person_who_must_decide() -> None:
    feature: Feature | None = None
    wrong = (*WRITE, *criticised(Verdict.PASS, "All good.", "tasks.md, line 3: no id"))
    for event in (STARTED, *wrong, Retried(), *wrong, Retried(), *wrong):
        feature = apply_feature_event(feature, event)
    assert feature is not None
    assert feature.workflow.stage is Stage.BLOCKED
    assert select_open_findings(feature).startswith("tasks.md, line 3: no id")
    assert any("tasks.md, line 3: no id" in line for line in render_stop_summary(feature))


@pytest.mark.demand("N7.e")
@pytest.mark.parametrize(
    "event",
    [Escalated("why"), JobEnded("j1", JobEndKind.FAILED, "it crashed")],
    ids=["order", "agent"],
)
def test_every_other_stop_has_the_block_of_a_blocker(event: AnyFeatureEvent) -> None:
    *_, last = told(JobStarted("j1", "plan", "ann"), event)
    assert last.block == of("blocker")


@pytest.mark.demand("N7.h")
def test_a_resolved_blocker_behind_a_passed_gate_does_not_tell_the_gate_again() -> None:
    heard = told(*WRITE, *judged(Verdict.PASS), Escalated("wait"), Resolved("go"))
    assert blocks(heard) == [of("workflow-initialized"), of("gate-passed"), of("blocker")]
    assert heard[-1] == EventText("01-requirements: resolved: go")


@pytest.mark.demand("N7.g")
def test_a_cancellation_has_its_own_block() -> None:
    *_, last = told(Cancelled("enough"))
    assert last == EventText("001-a: cancelled: enough", of("workflow-cancelled"))


@pytest.mark.demand("N7.a")
def test_a_start_says_how_the_feature_is_described_before_the_fixed_words_of_its_block() -> None:
    (first,) = told(start=Started("001-a", "quick", PLAN, "main", "Add it,\nplease"))
    assert (
        first.line
        == "001-a: workflow quick starts with Phase 01 - Requirements, description: Add it, please"
    )
    assert first.block == of("workflow-initialized")


@pytest.mark.demand("N7.b")
def test_a_workflow_that_starts_by_itself_has_no_block_at_its_start() -> None:
    (first,) = told(start=Started("001-a", "test-run", PLAN, "main"))
    assert first == EventText("001-a: workflow test-run starts with Phase 01 - Requirements")


@pytest.mark.demand("N7.h", "W5.b")
def test_an_event_that_is_not_taken_in_is_told_without_a_block() -> None:
    *_, last = told(JobEnded("foreign", JobEndKind.FAILED, "late"))
    assert last.block == ""


def test_lines_say_what_happened_in_a_few_words() -> None:
    packages = (
        PhasePlan("06-implementation", PhaseWork.PACKAGES, ()),
        PhasePlan("11-local-testing", PhaseWork.COMMANDS, ()),
    )
    start = Started("001-a", "quick", packages, "main", "A")
    way = (
        PackagesPlanned({"WP01": ()}),
        PackageStarted("WP01"),
        PackageEnded("WP01", PackageState.BLOCKED, "no\nluck"),
    )
    assert [one.line for one in told(*way, start=start)[1:]] == [
        "06-implementation: packages WP01",
        "WP01: started",
        "WP01: BLOCKED: no luck",
    ]
    assert told(CommandsRan({"build": True, "test": False}), start=start)[-1].line == (
        "06-implementation: build passed, test FAILED"
    )
    assert (
        told(*WRITE[:2], ScopeViolated(("a.py: outside",)))[-1].line
        == "01-requirements: a.py: outside"
    )
    assert told(NotMerged("x" * 400))[-1].line == f"not merged: {'x' * 300} ..."
    assert told(Advanced())[-1] == EventText()
