"""The suggested next steps, text by text."""

from __future__ import annotations

import copy
import re

import pytest

from phasegate import next_steps
from phasegate.core.display.next_steps import EVENTS
from support.next_steps_samples import block, everything_emitted, state
from support.published_expressions import ITEM, PROMPT_BLOCK

FALLBACK = (
    "---\nSUGGESTED NEXT STEPS:\n  [1] Show project status\n  [2] Start a new workflow\n---\n"
)


@pytest.mark.demand("N7.a")
@pytest.mark.parametrize(
    ("type_", "first_line"),
    [
        ("feature", "Describe your feature to begin Phase 00 - Quick Scan"),
        ("fix", "Describe your bug to begin Phase 01 - Requirements"),
        ("full-lifecycle", "Describe your project to begin Phase 01 - Requirements"),
        ("upgrade", "Describe your upgrade target to begin Phase 16 - Upgrade Plan"),
        ("quick", "Describe your feature to begin Phase 01 - Requirements"),
    ],
)
def test_a_new_workflow_asks_for_its_description(type_: str, first_line: str) -> None:
    said = next_steps(state(type_), event="workflow-initialized")
    assert said == block(first_line, "Show workflow phases", "Show workflow status")


@pytest.mark.demand("N7.b")
@pytest.mark.parametrize("type_", ["test-run", "test-generate"])
def test_a_workflow_that_starts_by_itself_asks_for_nothing(type_: str) -> None:
    assert next_steps(state(type_), event="workflow-initialized") is None
    assert next_steps(state(type_), event="gate-passed") is not None


@pytest.mark.demand("N8.i")
def test_a_workflow_of_ones_own_uses_its_noun_or_feature() -> None:
    assert "Describe your feature to" in str(
        next_steps(state("spike"), event="workflow-initialized")
    )
    assert "Describe your question to" in str(
        next_steps(state("spike", noun="question"), event="workflow-initialized")
    )
    assert next_steps(state("spike", noun="a\n---"), event="workflow-initialized") is None


PHASE_NOUNS = [
    ("00-quick-scan", "quick scan"),
    ("01-requirements", "requirements"),
    ("02-impact-analysis", "impact analysis"),
    ("02-tracing", "trace analysis"),
    ("03-architecture", "architecture"),
    ("04-design", "design"),
    ("05-test-strategy", "test strategy"),
    ("06-implementation", "implementation"),
    ("07-testing", "integration test"),
    ("08-code-review", "code review"),
    ("09-validation", "security validation"),
    ("10-cicd", "CI/CD pipeline"),
    ("11-local-testing", "local testing"),
    ("12-remote-build", "remote build"),
    ("13-test-deploy", "staging deployment"),
    ("14-production", "release"),
    ("15-operations", "operations"),
    ("16-upgrade-plan", "upgrade plan"),
    ("16-upgrade-execute", "upgrade execution"),
    pytest.param("42-threat-model", "threat model", marks=pytest.mark.demand("N8.h")),
]


@pytest.mark.demand("N7.c", "N6.a")
@pytest.mark.parametrize(("key", "noun"), PHASE_NOUNS)
def test_a_passed_gate_leads_to_the_next_phase(key: str, noun: str) -> None:
    said = next_steps(state(phases=[key, "04-design"], current_phase=key), event="gate-passed")
    assert said == block(
        "Continue to Phase 04 - Design", f"Review {noun} artifacts", "Show workflow status"
    )


@pytest.mark.demand("N7.c", "N6.b")
def test_the_last_passed_gate_leads_to_completion() -> None:
    said = next_steps(state("upgrade", 2), event="gate-passed")
    assert said == block(
        "Complete workflow and merge to main",
        "Review all workflow artifacts",
        "Show workflow status",
    )


@pytest.mark.parametrize(
    ("event", "items"),
    [
        pytest.param(
            "gate-failed",
            ("Review gate failure details", "Retry gate check", "Escalate to human"),
            marks=pytest.mark.demand("N7.d", "N4.f"),
        ),
        pytest.param(
            "blocker",
            ("Resolve blocker and retry", "Cancel workflow", "Show workflow status"),
            marks=pytest.mark.demand("N7.e"),
        ),
        pytest.param(
            "workflow-completed",
            ("Start a new feature", "Run tests", "View project status"),
            marks=pytest.mark.demand("N7.f", "N4.g"),
        ),
        pytest.param(
            "workflow-cancelled",
            ("Start a new feature", "View project status"),
            marks=pytest.mark.demand("N7.g", "N4.f"),
        ),
    ],
)
def test_the_fixed_emission_points_have_their_texts(event: str, items: tuple[str, ...]) -> None:
    assert next_steps(state(), event=event) == block(*items)


OWN_REVIEWS = [
    pytest.param("00-quick-scan", "Review scope estimate", marks=pytest.mark.demand("N9.b")),
    pytest.param(
        "01-requirements", "Review requirements documents", marks=pytest.mark.demand("N9.b")
    ),
    pytest.param(
        "02-impact-analysis", "Review impact analysis report", marks=pytest.mark.demand("N9.b")
    ),
    pytest.param("02-tracing", "Review trace analysis report", marks=pytest.mark.demand("N9.b")),
    pytest.param(
        "03-architecture", "Review architecture and ADRs", marks=pytest.mark.demand("N9.b")
    ),
    pytest.param("04-design", "Review design specifications", marks=pytest.mark.demand("N9.b")),
    pytest.param(
        "05-test-strategy", "Review test strategy and test cases", marks=pytest.mark.demand("N9.b")
    ),
    pytest.param(
        "06-implementation",
        "Review implementation and test results",
        marks=pytest.mark.demand("N9.c"),
    ),
    pytest.param("07-testing", "Review integration test report", marks=pytest.mark.demand("N9.c")),
    pytest.param("08-code-review", "Review code review report", marks=pytest.mark.demand("N9.c")),
    pytest.param("09-validation", "Review security scan results", marks=pytest.mark.demand("N9.c")),
    pytest.param("10-cicd", "Review pipeline configuration", marks=pytest.mark.demand("N9.c")),
    pytest.param(
        "11-local-testing",
        "Review build and health check results",
        marks=pytest.mark.demand("N9.d"),
    ),
    pytest.param(
        "12-remote-build", "Review remote deployment status", marks=pytest.mark.demand("N9.d")
    ),
    pytest.param(
        "13-test-deploy", "Review staging deployment logs", marks=pytest.mark.demand("N9.d")
    ),
    pytest.param("14-production", "Review release notes", marks=pytest.mark.demand("N9.d")),
    pytest.param(
        "15-operations", "Review monitoring configuration", marks=pytest.mark.demand("N9.d")
    ),
    pytest.param(
        "16-upgrade-plan",
        "Review upgrade analysis and migration plan",
        marks=pytest.mark.demand("N9.e"),
    ),
    pytest.param(
        "16-upgrade-execute", "Review upgrade execution log", marks=pytest.mark.demand("N9.e")
    ),
    pytest.param(
        "42-threat-model", "Review threat model artifacts", marks=pytest.mark.demand("N8.h")
    ),
]


@pytest.mark.demand("N9.a")
@pytest.mark.parametrize(("key", "review"), OWN_REVIEWS)
def test_a_phase_agent_suggests_its_own_review(key: str, review: str) -> None:
    said = next_steps(state(phases=[key], current_phase=key), phase=key)
    assert said == block("Complete workflow and merge to main", review, "Show workflow status")
    assert said == next_steps(state(phases=[key], current_phase=key))


@pytest.mark.demand("N9.f")
@pytest.mark.parametrize("some_state", [None, {"active_workflow": None}, state()])
def test_discovery_works_outside_any_workflow(some_state: object) -> None:
    said = next_steps(some_state, phase="discover")
    assert said == block("Start a new feature", "Review discovery report", "View project status")


@pytest.mark.demand("N8.g")
def test_a_phase_agents_next_phase_follows_from_its_own_position() -> None:
    said = next_steps(state("feature", index=5), phase="03-architecture")
    assert str(said).splitlines()[2] == "  [1] Continue to Phase 04 - Design"


@pytest.mark.demand("N6.a", "N6.b")
def test_a_phase_that_is_listed_twice_is_at_the_current_position() -> None:
    twice = {
        "phases": ["06-implementation", "08-code-review", "06-implementation"],
        "current_phase_index": 2,
    }
    for phase in (None, "06-implementation"):
        assert "[1] Complete workflow" in (
            next_steps({"active_workflow": twice}, phase=phase) or ""
        )
    assert "[1] Continue to Phase 06" in (
        next_steps({"active_workflow": twice}, phase="08-code-review") or ""
    )


@pytest.mark.demand("N8.f")
def test_a_phase_outside_the_workflow_gets_the_fallback() -> None:
    assert next_steps(state(), phase="15-operations") == FALLBACK


UNUSABLE = {
    "nothing": None,
    "a list": [],
    "a number": 3,
    "no workflow": {},
    "null workflow": {"active_workflow": None},
    "a text as workflow": {"active_workflow": "feature"},
    "no phases": {"active_workflow": {"type": "feature", "current_phase_index": 0}},
    "empty phases": state(phases=[]),
    "phases as text": state(phases="01-requirements"),
    "a phase that is not a text": state(phases=[1, 2], current_phase=1),
    "an empty key": state(phases=["", "x"], current_phase=""),
    "a key with a line break": state(phases=["01-a\n---"], current_phase="01-a\n---"),
    "a key beyond ASCII": state(phases=["01-größe"], current_phase="01-größe"),
    "a later key beyond ASCII": state(
        phases=["01-requirements", "02-\u202e"], current_phase="01-requirements"
    ),
    "no index": {"active_workflow": {"type": "feature", "phases": ["01-requirements"]}},
    "index -1": state(current_phase_index=-1),
    "index far out": state(current_phase_index=10**9),
    "index 1.5": state(current_phase_index=1.5),
    "index as text": state(current_phase_index="0"),
    "index true": state(current_phase_index=True, current_phase="01-requirements"),
    "index and phase disagree": state(current_phase="08-code-review"),
}


@pytest.mark.demand("N8.c", "N8.k", "N8.j", "N8.l")
@pytest.mark.parametrize("unusable", UNUSABLE.values(), ids=UNUSABLE)
def test_unusable_state_is_met_with_silence(unusable: object) -> None:
    assert next_steps(unusable) is None
    for event in ("workflow-initialized", "gate-passed", "gate-failed", "blocker"):
        assert next_steps(unusable, event=event) is None


@pytest.mark.demand("N8.d")
@pytest.mark.parametrize("unusable", UNUSABLE.values(), ids=UNUSABLE)
def test_the_end_of_a_workflow_speaks_in_any_state(unusable: object) -> None:
    assert next_steps(unusable, event="workflow-completed") == next_steps(
        state(), event="workflow-completed"
    )
    assert next_steps(unusable, event="workflow-cancelled") == next_steps(
        state(), event="workflow-cancelled"
    )


@pytest.mark.demand("N8.e")
@pytest.mark.parametrize("unusable", UNUSABLE.values(), ids=UNUSABLE)
def test_a_phase_agent_falls_back_in_unusable_state(unusable: object) -> None:
    assert next_steps(unusable, phase="03-architecture") == FALLBACK


@pytest.mark.demand("N8.b")
def test_fields_that_are_not_needed_may_be_absent() -> None:
    active = state()["active_workflow"]
    for name in ("artifact_folder", "phase_status", "current_phase", "type"):
        del active[name]
    assert next_steps({"active_workflow": active}) == next_steps(state())


@pytest.mark.demand("N8.a")
def test_the_state_is_only_read() -> None:
    before = state()
    after = copy.deepcopy(before)
    for event in EVENTS:
        next_steps(after, event=event)
    assert after == before


@pytest.mark.parametrize(
    ("stage", "event"), [("gate-failed", "gate-failed"), ("blocked", "blocker")]
)
@pytest.mark.demand("N8.m")
def test_after_a_failed_gate_or_at_a_blocker_nobody_is_told_to_continue(
    stage: str, event: str
) -> None:
    stopped = copy.deepcopy(state("feature"))
    going_on = next_steps(stopped)
    assert going_on is not None
    assert "Continue to" in going_on
    active = stopped["active_workflow"]
    own = {
        "artifact_folder": active.get("artifact_folder"),
        "current_phase_index": active["current_phase_index"],
        "stage": stage,
    }
    assert next_steps(stopped, own_state=own) == next_steps(stopped, event=event)
    assert next_steps(stopped, phase="01-requirements", own_state=own) == next_steps(
        state("feature"), phase="01-requirements"
    )
    stale = {**own, "current_phase_index": active["current_phase_index"] + 1}
    assert next_steps(stopped, own_state=stale) == going_on, "another tool has moved on"


def test_an_unknown_event_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="workflow-initialized"):
        next_steps(state(), event="gate-opened")


@pytest.mark.demand("N12.a", "N12.b", "N4.d", "N7.h", "N1.d", "N1.e")
def test_the_published_expressions_match_everything_emitted() -> None:
    for what, where, text in everything_emitted():
        assert re.findall(PROMPT_BLOCK, text, re.MULTILINE) == [text.removesuffix("\n")], (
            what,
            where,
        )
        numbers = [int(number) for number, _ in re.findall(ITEM, text, re.MULTILINE)]
        assert numbers == list(range(1, len(numbers) + 1)), (what, where)


@pytest.mark.demand("N4.a", "N4.b", "N4.c", "N4.e", "N4.g")
def test_tiered_blocks_have_one_primary_and_end_in_the_utility() -> None:
    utility = {"workflow-completed": "View project status"}
    tiered = [
        entry
        for entry in everything_emitted()
        if entry[0] not in {"gate-failed", "workflow-cancelled"}
    ]
    for what, where, text in tiered:
        items = [words for _, words in re.findall(ITEM, text, re.MULTILINE)]
        assert 3 <= len(items) <= 4, (what, where)
        assert items[-1] == utility.get(what, "Show workflow status"), (what, where)
        assert items[-1] not in items[:-1]
