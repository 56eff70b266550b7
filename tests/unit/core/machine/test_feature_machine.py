"""Each rule of a feature's way, one by one (W3, W4, W7)."""

from __future__ import annotations

import pytest

from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.machine.feature_events import (
    Advanced,
    AnyFeatureEvent,
    Cancelled,
    CommandsRan,
    CompletionRequested,
    DocumentsWritten,
    Escalated,
    FeatureLimits,
    GateChecked,
    JobEnded,
    JobStarted,
    Merged,
    NotMerged,
    PackageEnded,
    PackagesPlanned,
    PackageStarted,
    PhasePlan,
    ReportWritten,
    Resolved,
    Retried,
    ScopeViolated,
    Started,
)
from phasegate.core.machine.feature_machine import (
    apply_feature_event,
    apply_or_refuse,
    decide_feature_actions,
    fold_feature_events,
)
from phasegate.core.machine.feature_state import (
    ATTESTATION,
    CLOSING_STEPS,
    STEPS_BY_WORK,
    Feature,
    FeatureAction,
    Step,
)
from phasegate.core.machine.package_events import JobEndKind
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.phase_transitions import Refusal, Stage
from phasegate.core.workflow.phases import PhaseWork

PLANNING = PhasePlan("01-requirements", PhaseWork.PLANNING, ("spec.md",))
PACKAGES = PhasePlan("06-implementation", PhaseWork.PACKAGES, ("IMPLEMENTATION.md",))
REVIEW = PhasePlan("08-code-review", PhaseWork.REVIEW, ("REVIEW-08.md",))
COMMANDS = PhasePlan("11-local-testing", PhaseWork.COMMANDS, ("REVIEW-11.md",), ("test",))
DEPLOY = PhasePlan("13-test-deploy", PhaseWork.COMMANDS, ("REVIEW-13.md",))


def after(
    *events: AnyFeatureEvent,
    plan: tuple[PhasePlan, ...],
    limits: FeatureLimits | None = None,
    type_: str = "quick",
) -> Feature:
    started = Started("001-a", type_, plan, "main", "A thing", None, limits or FeatureLimits())
    feature = fold_feature_events((started, *events))
    assert feature is not None
    return feature


def job(
    role: str, verdict: Verdict | None = Verdict.PASS, text: str = ""
) -> tuple[AnyFeatureEvent, ...]:
    return JobStarted(f"{role}-job", role), JobEnded(
        f"{role}-job", JobEndKind.DONE, verdict=verdict, text=text
    )


def ends(role: str, end: JobEndKind, reason: str = "why") -> tuple[AnyFeatureEvent, ...]:
    return JobStarted(f"{role}-job", role), JobEnded(f"{role}-job", end, reason)


def step_of(feature: Feature) -> Step:
    return decide_feature_actions(feature)[0].step


def refusal(feature: Feature | None, event: AnyFeatureEvent) -> Refusal:
    taken = apply_or_refuse(feature, event)
    assert isinstance(taken, Refusal)
    return taken


WRITTEN = (*job("plan"), DocumentsWritten("c1"))
PLANNED = (*WRITTEN, *job("challenge"), GateChecked(("spec.md",)))
BUILT = (
    PackagesPlanned({"WP01": ()}),
    PackageStarted("WP01"),
    PackageEnded("WP01", PackageState.DONE),
    ReportWritten("c2"),
    GateChecked(("IMPLEMENTATION.md",)),
    Advanced(),
)


@pytest.mark.demand("W7.b")
def test_a_planning_phase_is_written_taken_over_criticised_and_then_judged() -> None:
    feature = after(plan=(PLANNING,))
    assert (
        feature.todo
        == STEPS_BY_WORK[PhaseWork.PLANNING]
        == (Step.WRITE, Step.HARVEST, Step.CRITICISE, Step.GATE)
    )
    assert step_of(after(*PLANNED, plan=(PLANNING, REVIEW))) is Step.ADVANCE


@pytest.mark.demand("P6.f")
def test_a_writer_who_says_pass_passes_nothing() -> None:
    feature = after(*WRITTEN, plan=(PLANNING,))
    assert (step_of(feature), feature.verdict) == (Step.CRITICISE, None)


@pytest.mark.demand("P6.f")
def test_a_writer_who_is_not_ready_fails_the_gate_without_a_critic() -> None:
    feature = after(
        *job("plan", Verdict.NEEDS_REVISION),
        DocumentsWritten("c"),
        GateChecked(("spec.md",)),
        plan=(PLANNING,),
    )
    assert (feature.workflow.stage, feature.workflow.reason) == (
        Stage.GATE_FAILED,
        "the verdict is NEEDS_REVISION",
    )


@pytest.mark.demand("W7.i")
def test_documents_that_are_missing_fail_the_gate_before_a_critic_is_asked() -> None:
    feature = after(*job("plan"), DocumentsWritten("c", ("spec.md",)), plan=(PLANNING,))
    assert step_of(feature) is Step.GATE
    failed = apply_feature_event(feature, GateChecked(()))
    assert failed is not None
    assert failed.workflow.reason == "spec.md is missing"


@pytest.mark.demand("W3.c")
def test_the_next_round_has_the_findings_and_nothing_that_counted_before() -> None:
    failed = after(
        *WRITTEN, *job("challenge", Verdict.NEEDS_REVISION, "too thin"), plan=(PLANNING,)
    )
    failed = apply_feature_event(apply_feature_event(failed, GateChecked(("spec.md",))), Retried())  # type: ignore[assignment]
    assert (failed.workflow.round, failed.verdict, failed.report) == (2, None, "")
    assert "too thin" in failed.findings
    assert failed.todo == STEPS_BY_WORK[PhaseWork.PLANNING]


@pytest.mark.demand("W3.g")
@pytest.mark.parametrize("verdict", [Verdict.REJECTED, Verdict.MAJOR_ISSUES])
def test_a_rejecting_judge_stops_for_a_person_in_the_first_round(verdict: Verdict) -> None:
    feature = after(
        *WRITTEN, *job("challenge", verdict), GateChecked(("spec.md",)), plan=(PLANNING,)
    )
    assert feature.workflow.stage is Stage.BLOCKED
    assert str(verdict) in feature.workflow.reason


@pytest.mark.demand("W3.e")
def test_a_used_up_limit_stops_for_a_person() -> None:
    one_round = (*WRITTEN, *job("challenge", Verdict.NEEDS_REVISION), GateChecked(("spec.md",)))
    feature = after(
        *one_round, Retried(), *one_round, plan=(PLANNING,), limits=FeatureLimits(revisions=2)
    )
    assert feature.workflow.stage is Stage.BLOCKED
    assert feature.workflow.reason.endswith("all 2 rounds are used up")


@pytest.mark.demand("W4.b")
def test_after_a_gate_that_stopped_resolve_begins_the_phase_with_the_persons_word() -> None:
    blocked = after(
        *WRITTEN, *job("challenge", Verdict.REJECTED), GateChecked(("spec.md",)), plan=(PLANNING,)
    )
    feature = apply_feature_event(blocked, Resolved("leave out the login"))
    assert feature is not None
    assert (step_of(feature), feature.workflow.round) == (Step.WRITE, 2)
    assert (feature.findings, feature.user_notes) == (
        "the verdict is REJECTED",
        "leave out the login",
    )


@pytest.mark.demand("W4.b", "W3.e")
def test_after_a_persons_answer_all_rounds_are_there_again_and_their_numbers_go_on() -> None:
    one_round = (*WRITTEN, *job("challenge", Verdict.NEEDS_REVISION), GateChecked(("spec.md",)))
    used_up = (*one_round, Retried(), *one_round)
    feature = after(
        *used_up,
        Resolved("try again"),
        *used_up,
        plan=(PLANNING,),
        limits=FeatureLimits(revisions=2),
    )
    assert (feature.workflow.stage, feature.round, feature.last_round) == (Stage.BLOCKED, 4, 4)
    assert feature.workflow.reason.endswith("all 2 rounds are used up")
    going_on = apply_feature_event(feature, Resolved("once more"))
    assert going_on is not None
    assert (going_on.round, going_on.last_round) == (5, 6)
    passed = (*WRITTEN, *job("challenge"), GateChecked(("spec.md",)), Advanced())
    then = after(
        *used_up,
        Resolved("ok"),
        *passed,
        plan=(PLANNING, REVIEW),
        limits=FeatureLimits(revisions=2),
    )
    assert (then.phase, then.round, then.last_round) == (REVIEW, 1, 2)


@pytest.mark.demand("W4.b")
def test_the_archivist_is_asked_in_a_new_round_after_a_persons_answer_and_not_after_a_merge_that_failed() -> (
    None
):
    asked = (*PLANNED, CompletionRequested())
    no = job("archive", Verdict.NEEDS_CHANGES, "no entry")
    stopped = after(*asked, *no, *no, plan=(PLANNING,), limits=FeatureLimits(revisions=2))
    assert (stopped.workflow.stage, stopped.round) == (Stage.BLOCKED, 2)
    feature = apply_feature_event(stopped, Resolved("it is fine"))
    assert feature is not None
    assert (step_of(feature), feature.round, feature.last_round) == (Step.ARCHIVE, 3, 4)
    blocked = after(
        *asked, *job("archive"), DocumentsWritten("c"), NotMerged("dirty"), plan=(PLANNING,)
    )
    going_on = apply_feature_event(blocked, Resolved("committed"))
    assert going_on is not None
    assert (step_of(going_on), going_on.round) == (Step.MERGE, 1)


@pytest.mark.demand("W4.b", "W7.e")
def test_after_a_persons_answer_a_review_looks_again_before_anything_is_mended() -> None:
    done = (
        PackagesPlanned({"WP01": ()}),
        PackageStarted("WP01"),
        PackageEnded("WP01", PackageState.DONE),
        ReportWritten("c"),
    )
    built = (*done, GateChecked(("IMPLEMENTATION.md",)), Advanced())
    bad = (*job("review", Verdict.MAJOR_ISSUES), ReportWritten("c"), GateChecked(("REVIEW-08.md",)))
    feature = after(*built, *bad, Resolved("mended by hand"), plan=(PACKAGES, REVIEW))
    assert (step_of(feature), feature.round) == (Step.REVIEW, 2)
    poor = (
        *job("review", Verdict.NEEDS_CHANGES),
        ReportWritten("c"),
        GateChecked(("REVIEW-08.md",)),
        Retried(),
    )
    again = after(*built, *bad, Resolved("mended by hand"), *poor, plan=(PACKAGES, REVIEW))
    assert (step_of(again), again.round) == (Step.FIX, 3)


@pytest.mark.demand("W4.b")
def test_resolve_tries_the_step_that_was_blocked_and_no_earlier_one() -> None:
    feature = after(*WRITTEN, *ends("challenge", JobEndKind.FAILED), plan=(PLANNING,))
    assert feature.workflow.stage is Stage.BLOCKED
    assert step_of(apply_feature_event(feature, Resolved("mended")) or feature) is Step.CRITICISE


@pytest.mark.demand("W4.b")
def test_resolve_behind_a_passed_gate_leads_on_and_repeats_nothing_of_the_phase() -> None:
    feature = after(*PLANNED, Escalated("wait"), Resolved("go"), plan=(PLANNING, REVIEW))
    assert step_of(feature) is Step.ADVANCE
    assert apply_or_refuse(feature, JobStarted("late", "plan")) == Refusal(
        "unexpected event: JobStarted"
    )


@pytest.mark.demand("D10.a")
def test_a_transient_end_is_tried_again_up_to_the_limit_with_its_reason() -> None:
    once = after(
        *ends("plan", JobEndKind.TRANSIENT, "rate limit"),
        plan=(PLANNING,),
        limits=FeatureLimits(retries=1),
    )
    assert decide_feature_actions(once) == (FeatureAction(Step.WRITE, note="rate limit"),)
    twice = after(
        *ends("plan", JobEndKind.TRANSIENT) * 2, plan=(PLANNING,), limits=FeatureLimits(retries=1)
    )
    assert twice.workflow.stage is Stage.BLOCKED


@pytest.mark.demand("P6.h")
def test_an_unreadable_answer_is_asked_for_once_more_and_then_stops() -> None:
    once = after(*ends("plan", JobEndKind.UNREADABLE, "no marker"), plan=(PLANNING,))
    assert decide_feature_actions(once) == (FeatureAction(Step.WRITE, note="no marker"),)
    assert (
        after(*ends("plan", JobEndKind.UNREADABLE) * 2, plan=(PLANNING,)).workflow.stage
        is Stage.BLOCKED
    )


@pytest.mark.demand("W5.a")
def test_a_lost_run_is_run_again_and_counts_as_no_try() -> None:
    lost = JobEnded("job", JobEndKind.LOST, "the run died", last_seen="2026-01-01T00:00:00.000Z")
    feature = after(*(JobStarted("job", "plan"), lost) * 3, plan=(PLANNING,))
    assert (step_of(feature), feature.retries, feature.losses) == (Step.WRITE, 0, 3)
    blocked = after(*(JobStarted("job", "plan"), lost) * 4, plan=(PLANNING,))
    assert (
        blocked.workflow.reason == "the agent's run was lost 4 times; the last time: the run died"
    )
    assert blocked.remediation
    resolved = apply_feature_event(blocked, Resolved("more memory"))
    assert resolved is not None
    assert (step_of(resolved), resolved.losses) == (Step.WRITE, 0)


def test_losses_recorded_before_they_were_counted_block_nothing() -> None:
    feature = after(*ends("plan", JobEndKind.LOST) * 9, plan=(PLANNING,))
    assert (step_of(feature), feature.losses) == (Step.WRITE, 0)


@pytest.mark.demand("W8.b")
def test_a_writer_that_strays_is_blocked_and_writes_again_after_resolve() -> None:
    feature = after(
        *job("plan", Verdict.NEEDS_REVISION),
        ScopeViolated(("src/a.py: outside",)),
        plan=(PLANNING,),
    )
    assert feature.workflow.stage is Stage.BLOCKED
    assert feature.workflow.reason == "File scope violation: src/a.py: outside"
    again = apply_feature_event(feature, Resolved("told it so"))
    assert again is not None
    assert (again.todo, again.verdict) == (
        STEPS_BY_WORK[PhaseWork.PLANNING],
        None,
    )  # its critic is asked again, too


@pytest.mark.demand("W7.c")
def test_a_packages_phase_passes_when_all_its_packages_are_done() -> None:
    feature = after(*BUILT, plan=(PACKAGES, REVIEW))
    assert (feature.workflow.phase, step_of(feature)) == ("08-code-review", Step.REVIEW)


@pytest.mark.demand("D5.b")
def test_a_blocked_package_lets_the_others_end_and_stops_then() -> None:
    begun = (
        PackagesPlanned({"WP01": (), "WP02": (), "WP03": ("WP01",)}),
        PackageStarted("WP01"),
        PackageStarted("WP02"),
    )
    first = after(
        *begun, PackageEnded("WP01", PackageState.BLOCKED, "no luck", "help it"), plan=(PACKAGES,)
    )
    assert first.workflow.stage is Stage.WORKING
    both = apply_feature_event(first, PackageEnded("WP02", PackageState.DONE))
    assert both is not None
    assert (both.workflow.reason, both.remediation) == ("blocked: WP01 (no luck)", "help it")
    again = apply_feature_event(both, Resolved("helped"))
    assert again is not None
    assert decide_feature_actions(again) == (FeatureAction(Step.PACKAGES, ("WP01",)),)


@pytest.mark.demand("W7.l")
@pytest.mark.parametrize(
    "packages", [{}, {"WP01": ("WP02",), "WP02": ("WP01",)}, {"WP01": ("WP09",), "WP02": ()}]
)
def test_a_plan_that_can_never_be_carried_out_stops_before_any_agent_starts(
    packages: dict[str, tuple[str, ...]],
) -> None:
    feature = after(PackagesPlanned(packages), plan=(PACKAGES,))
    assert feature.workflow.stage is Stage.BLOCKED
    assert (
        step_of(apply_feature_event(feature, Resolved("mended the plan")) or feature) is Step.PLAN
    )


@pytest.mark.demand("W3.c")
def test_code_is_mended_only_where_packages_were_planned_before() -> None:
    failing = (
        CommandsRan({"test": False}, "1 failed"),
        ReportWritten("c"),
        GateChecked(("REVIEW-11.md",)),
    )
    with_packages = after(*BUILT, *failing, Retried(), plan=(PACKAGES, COMMANDS))
    assert with_packages.todo[:2] == (Step.FIX, Step.PACKAGES)
    assert "1 failed" in with_packages.findings
    without = after(*failing, plan=(COMMANDS,), type_="test-run")
    assert without.workflow.stage is Stage.BLOCKED


@pytest.mark.demand("W7.e")
def test_a_failing_command_fails_the_gate_and_no_reviewer_is_asked() -> None:
    feature = after(*BUILT, CommandsRan({"build": True, "test": False}), plan=(PACKAGES, COMMANDS))
    assert feature.todo == (Step.REPORT, Step.GATE)
    failed = apply_feature_event(
        apply_feature_event(feature, ReportWritten("c")), GateChecked(("REVIEW-11.md",))
    )
    assert failed is not None
    assert failed.workflow.reason == "test failed"


@pytest.mark.demand("W3.f")
def test_no_verdict_passes_a_phase_whose_commands_were_not_run() -> None:
    feature = after(plan=(COMMANDS,))
    for event in (*job("review"), ReportWritten("c"), GateChecked(("REVIEW-11.md",))):
        assert apply_feature_event(feature, event) == feature


@pytest.mark.demand("W7.g")
def test_a_phase_without_a_command_asks_a_person_whose_word_is_the_evidence() -> None:
    asked = after(CommandsRan({}), plan=(DEPLOY,))
    assert (asked.workflow.stage, asked.workflow.reason) == (
        Stage.BLOCKED,
        "13-test-deploy has no command to run",
    )
    attested = after(
        CommandsRan({}),
        Resolved("looked at it"),
        CommandsRan({}),
        ReportWritten("c"),
        plan=(DEPLOY,),
    )
    assert (attested.commands, attested.report) == (
        {ATTESTATION: True},
        "Attested by the user: looked at it",
    )
    passed = apply_feature_event(attested, GateChecked(("REVIEW-13.md",)))
    assert passed is not None
    assert passed.workflow.stage is Stage.GATE_PASSED


@pytest.mark.demand("W7.g")
def test_a_word_about_something_else_is_no_attestation() -> None:
    """Somebody stopped the phase for another reason: how that was resolved says nothing about the deployment."""
    feature = after(
        Escalated("the key is missing"),
        Resolved("the key is there"),
        CommandsRan({}),
        plan=(DEPLOY,),
    )
    assert feature.workflow.reason == "13-test-deploy has no command to run"


@pytest.mark.demand("W7.g")
def test_commands_that_appeared_meanwhile_count_more_than_the_word() -> None:
    feature = after(
        CommandsRan({}), Resolved("set the commands"), CommandsRan({"deploy": True}), plan=(DEPLOY,)
    )
    assert (step_of(feature), feature.attested) == (Step.REVIEW, "")


@pytest.mark.demand("W7.h")
def test_completion_archives_takes_over_merges_and_tidies_up() -> None:
    feature = after(*PLANNED, CompletionRequested(), plan=(PLANNING,))
    assert feature.todo == CLOSING_STEPS == (Step.ARCHIVE, Step.HARVEST, Step.MERGE, Step.CLEAN_UP)


@pytest.mark.demand("W1.g")
def test_a_test_run_completes_without_a_merge() -> None:
    done = (
        CommandsRan({"test": True}),
        *job("review"),
        ReportWritten("c"),
        GateChecked(("REVIEW-11.md",)),
        CompletionRequested(),
    )
    assert after(*done, plan=(COMMANDS,), type_="test-run").todo == (Step.CLEAN_UP,)


@pytest.mark.demand("W3.c", "W3.e")
def test_an_archivist_may_be_asked_again_within_the_limit() -> None:
    asked = (*PLANNED, CompletionRequested())
    again = after(*asked, *job("archive", Verdict.NEEDS_CHANGES, "no entry"), plan=(PLANNING,))
    assert (step_of(again), again.archive_round, again.findings) == (Step.ARCHIVE, 2, "no entry")
    stopped = after(*asked, *job("archive", Verdict.MAJOR_ISSUES), plan=(PLANNING,))
    assert stopped.workflow.stage is Stage.BLOCKED


@pytest.mark.demand("W8.h")
def test_a_merge_that_was_not_possible_is_tried_again_after_resolve_and_nothing_else_is() -> None:
    closing = (*PLANNED, CompletionRequested(), *job("archive"), DocumentsWritten("c"))
    blocked = after(*closing, NotMerged("dirty", "commit it"), plan=(PLANNING,))
    assert (blocked.workflow.stage, blocked.remediation) == (Stage.BLOCKED, "commit it")
    assert step_of(apply_feature_event(blocked, Resolved("committed")) or blocked) is Step.MERGE


@pytest.mark.demand("W4.c")
def test_what_is_merged_cannot_be_cancelled() -> None:
    closing = (*PLANNED, CompletionRequested(), *job("archive"), DocumentsWritten("c"))
    assert isinstance(apply_or_refuse(after(*closing, plan=(PLANNING,)), Cancelled("no")), Feature)
    merged = after(*closing, Merged("c"), plan=(PLANNING,))
    assert refusal(merged, Cancelled("no")) == Refusal(
        "the work is already merged", "finish the workflow: phasegate run"
    )


@pytest.mark.demand("W4.a")
def test_orders_are_refused_where_they_make_no_sense() -> None:
    working = after(plan=(PLANNING, REVIEW))
    assert "GATE-01 has not passed" in refusal(working, Advanced()).reason
    assert "no gate has failed" in refusal(working, Retried()).reason
    assert "nothing is blocked" in refusal(working, Resolved("x")).reason
    assert (
        "the gate of its last phase has not passed"
        in refusal(working, CompletionRequested()).reason
    )
    assert "a cancellation needs a reason" in refusal(working, Cancelled(" ")).reason
    assert "an escalation needs a reason" in refusal(working, Escalated("")).reason
    assert "no workflow was started" in refusal(None, Advanced()).reason


@pytest.mark.demand("W4.e")
def test_a_feature_has_one_active_workflow_at_most() -> None:
    working = after(plan=(PLANNING,))
    assert (
        "has an active workflow"
        in refusal(working, Started("001-a", "fix", (PLANNING,), "main")).reason
    )
    ended = after(Cancelled("enough"), plan=(PLANNING,))
    assert isinstance(apply_or_refuse(ended, Started("001-a", "fix", (PLANNING,), "main")), Feature)


@pytest.mark.demand("W4.l")
def test_every_decision_of_a_person_is_kept_in_order_and_the_last_one_is_the_last() -> None:
    """Also one that is a part of an earlier one, and one that goes back to an earlier one."""
    decisions = ("use no cache", "no", "use a cache", "use no cache", "use no cache")
    orders = [order for how in decisions for order in (Escalated("why"), Resolved(how))]
    feature = after(*orders, plan=(PLANNING,))
    assert feature.decisions.split("\n") == ["use no cache", "no", "use a cache", "use no cache"]
