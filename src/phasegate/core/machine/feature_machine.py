"""State machine of a feature, from its start to its merge.

`decide_feature_actions` returns the next actions; `apply_feature_event` folds an event into the
state. Both are pure. The engine runs an action, records the resulting events and decides again.
After a crash the engine folds the recorded events and continues. Orders (by the user or the engine)
are applied here, results of steps in `feature_outcomes`. The moves between phases (`advance`,
`go_back`) are in `core.workflow.phase_transitions`, their order in `core.workflow.workflow_phases`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from phasegate.core.machine import feature_events as events
from phasegate.core.machine.feature_outcomes import apply_outcome, list_workable_packages
from phasegate.core.machine.feature_state import (
    CLOSING_STEPS,
    FIX_STEPS,
    FORGE_CLOSING_STEPS,
    FORGE_STEPS,
    STEPS_BY_WORK,
    Feature,
    FeatureAction,
    Step,
    add_user_note,
    replace_fields,
    reset_retry_counters,
)
from phasegate.core.machine.size_estimate import fold_plan
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow import phase_transitions
from phasegate.core.workflow.origin import ENGINE_ORIGIN
from phasegate.core.workflow.phase_transitions import Refusal, Stage
from phasegate.core.workflow.phases import PhaseWork

OrderEvent = (
    events.Advanced
    | events.Retried
    | events.Escalated
    | events.Resolved
    | events.WentBack
    | events.Amended
    | events.Cancelled
    | events.CompletionRequested
)


def decide_feature_actions(
    feature: Feature, running: Collection[str] = ()
) -> tuple[FeatureAction, ...]:
    """Return the actions to run now; an empty tuple only while packages are running."""
    match feature.workflow.stage:
        case Stage.GATE_FAILED:
            return (FeatureAction(Step.RETRY),)
        case Stage.GATE_PASSED if not feature.closing:
            if feature.workflow.is_last_phase:
                return (FeatureAction(Step.COMPLETE),)
            return (FeatureAction(Step.ADVANCE),)
        case Stage.WORKING | Stage.GATE_PASSED:
            return _decide_work(feature, running)
        case _:
            return (FeatureAction(Step.STOP),)


def _decide_work(feature: Feature, running: Collection[str]) -> tuple[FeatureAction, ...]:
    """Return the next step, or start as many packages as `limits.parallel` allows."""
    step = feature.todo[0]
    if step is not Step.PACKAGES:
        is_repeated = feature.asked_again or feature.retries
        return (FeatureAction(step, note=feature.workflow.reason if is_repeated else ""),)

    free_slots = max(0, feature.limits.parallel - len(running))
    startable = [name for name in list_workable_packages(feature) if name not in running]
    started = tuple(startable[:free_slots])
    if started:
        return (FeatureAction(step, started),)

    return ()


def fold_feature_events(recorded: Iterable[events.AnyFeatureEvent]) -> Feature | None:
    """Return the feature after these events, or None if it was never started."""
    feature: Feature | None = None
    for event in recorded:
        feature = apply_feature_event(feature, event)
    return feature


def apply_feature_event(feature: Feature | None, event: events.AnyFeatureEvent) -> Feature | None:
    """Fold one event into the feature. An event that is not possible now changes nothing."""
    after = apply_or_refuse(feature, event)
    if isinstance(after, Refusal):
        return feature
    return after


def apply_or_refuse(feature: Feature | None, event: events.AnyFeatureEvent) -> Feature | Refusal:
    """Fold one event into the feature, or return why it is not possible now."""
    if isinstance(event, events.Started):
        return _start_feature(feature, event)
    if feature is None:
        return Refusal("no workflow was started", 'start one: phasegate run feature "..."')
    if isinstance(event, OrderEvent):
        return _apply_order(feature, event)
    if isinstance(event, events.PhasesFolded):
        return _fold_phases(feature)
    if not feature.workflow.is_active or feature.workflow.stage is Stage.BLOCKED:
        return Refusal(f"the workflow is {feature.workflow.stage}")

    return apply_outcome(feature, event) or Refusal(f"unexpected event: {type(event).__name__}")


def _start_feature(before: Feature | None, event: events.Started) -> Feature | Refusal:
    """Start a workflow in its first phase, or return why it is refused."""
    existing = [before.workflow] if before else []
    keys = tuple(phase.key for phase in event.plan)
    workflow = phase_transitions.start(existing, event.feature, event.type, keys, event.noun)
    if isinstance(workflow, Refusal):
        return workflow

    return _start_round(
        Feature(
            workflow=workflow,
            plan=event.plan,
            base=event.base,
            description=event.description,
            limits=event.limits,
            fits_size=event.fits_size,
        )
    )


def _fold_phases(feature: Feature) -> Feature | Refusal:
    """Plan a small change in one phase, after the gate of the quick scan has passed."""
    is_estimated = feature.workflow.stage is Stage.GATE_PASSED and not feature.workflow.index
    plan = fold_plan(feature.plan) if feature.fits_size and is_estimated else None
    if plan is None:
        return Refusal("the phases of this workflow are fixed")

    keys = tuple(phase.key for phase in plan)
    return replace_fields(
        feature, plan=plan, workflow=replace(feature.workflow, phases=keys, used=())
    )


def _apply_order(feature: Feature, event: OrderEvent) -> Feature | Refusal:  # noqa: C901 - one case per order
    """Apply an order of the user, or of the engine on the user's behalf."""
    match event:
        case events.Advanced() if feature.closing:
            return Refusal("the workflow is being completed")
        case events.Advanced():
            return _apply_workflow_step(
                feature, phase_transitions.advance(feature.workflow), _start_next_phase
            )
        case events.Retried():
            retried = phase_transitions.retry(feature.workflow)
            return _apply_workflow_step(feature, retried, _start_round)
        case events.Escalated(why, remediation):
            remedy = remediation or "fix the cause, then resolve"
            return _apply_workflow_step(
                feature,
                phase_transitions.escalate(feature.workflow, why),
                lambda escalated: replace_fields(escalated, remediation=remedy),
            )
        case events.Resolved(how, by):
            # What the engine found is no decision of the user
            note = "" if by == ENGINE_ORIGIN else how
            return _apply_workflow_step(
                feature,
                phase_transitions.resolve(feature.workflow, how),
                lambda resolved: _resolve_blocker(resolved, note),
            )
        case events.Cancelled() | events.WentBack() | events.Amended() if _is_merged(feature):
            return Refusal("the work is already merged", "finish the workflow: phasegate run")
        case events.WentBack(phase, why):
            left_index = feature.workflow.index
            return _apply_workflow_step(
                feature,
                phase_transitions.go_back(feature.workflow, phase, why),
                lambda moved: _go_back(moved, why, left_index),
            )
        case events.Amended():
            return _amend(feature, event)
        case events.Cancelled(reason):
            cancelled = phase_transitions.cancel(feature.workflow, reason)
            return _apply_workflow_step(feature, cancelled, lambda changed: changed)
        case events.CompletionRequested():
            return _request_completion(feature, event)


def _request_completion(feature: Feature, event: events.CompletionRequested) -> Feature | Refusal:
    """Schedule the closing steps after the last gate, or return why not."""
    completed = phase_transitions.complete(feature.workflow)
    if isinstance(completed, Refusal):
        return completed
    if feature.closing:
        return feature

    if not feature.workflow.merges:
        steps: tuple[Step, ...] = (Step.CLEAN_UP,)
    elif event.by_pull_request:
        steps = FORGE_CLOSING_STEPS
    else:
        steps = CLOSING_STEPS

    return reset_retry_counters(replace_fields(feature, closing=True, todo=steps, findings=""))


def _is_merged(feature: Feature) -> bool:
    return feature.closing and feature.workflow.merges and feature.todo == (Step.CLEAN_UP,)


def _amend(feature: Feature, event: events.Amended) -> Feature | Refusal:
    """Change a requirement: the packages are planned again, and those that are the same stay.

    Before the packages, the agents of the current and the later phases learn of the change.
    """
    note = f"{event.requirement} is amended: {event.text}"
    workflow = feature.workflow
    if not workflow.is_active:
        return Refusal(f"cannot amend: the workflow is {workflow.stage}")
    if all(phase.work is not PhaseWork.PACKAGES for phase in feature.plan):
        return Refusal("cannot amend: this workflow has no work packages")

    index = _find_packages_index(feature)
    if workflow.index < index:
        return add_user_note(feature, note, workflow.index)

    return _apply_workflow_step(
        feature,
        phase_transitions.enter_phase(workflow, index),
        lambda moved: _go_back(moved, note, workflow.index, keeps_packages=False),
    )


def _find_packages_index(feature: Feature) -> int:
    """Return the phase of the work packages, or 0 if the workflow has none."""
    works = [phase.work for phase in feature.plan]
    if PhaseWork.PACKAGES in works:
        return works.index(PhaseWork.PACKAGES)
    return 0


def _go_back(
    feature: Feature, why: str, left_index: int, *, keeps_packages: bool = True
) -> Feature:
    """Start an earlier phase again.

    Finished packages are kept if their plan is kept. If the planning phase is repeated, the new
    plan decides about them. `left_index` is the phase that was left.
    """
    done = {}
    if keeps_packages and feature.workflow.index >= _find_packages_index(feature):
        done = {
            name: state for name, state in feature.packages.items() if state is PackageState.DONE
        }

    # An archive round in progress counts as used
    if feature.closing:
        used_archive_rounds = feature.archive_round
    else:
        used_archive_rounds = feature.archive_round - 1

    cleared = replace_fields(
        feature,
        packages=done,
        needs={name: needs for name, needs in feature.needs.items() if name in done},
        blocked={},
        findings="",
        remediation="",
        closing=False,
        sent_back=False,
        written_commit="",
        previous_failure_key="",
        archive_round=used_archive_rounds + 1,
        archive_rounds_before=used_archive_rounds,
    )
    started = _start_round(add_user_note(cleared, why, left_index))

    if done and started.phase.work is PhaseWork.PACKAGES:
        return replace_fields(started, todo=(*FIX_STEPS, Step.REPORT, Step.GATE))

    return started


def _resolve_blocker(feature: Feature, note: str) -> Feature:
    """Unblock the feature: retry the blocked step, or start a new round if no step is left.

    `note`: the user's decision, for the next agents.
    """
    packages = {
        name: PackageState.PLANNED if state is PackageState.BLOCKED else state
        for name, state in feature.packages.items()
    }
    gate_passed = feature.workflow.stage is Stage.GATE_PASSED
    # After a passed gate, the note is for the next phase
    noted = add_user_note(feature, note, feature.workflow.index + gate_passed)
    unblocked = reset_retry_counters(
        replace_fields(
            noted,
            packages=packages,
            blocked={},
            remediation="",
            written_commit="",
            previous_failure_key="",
            sent_back=False,
        )
    )

    if gate_passed:
        return _resolve_after_gate(unblocked)

    if not unblocked.todo:
        return _start_round(unblocked)
    if unblocked.awaits_attestation:
        return replace_fields(unblocked, attested=note, awaits_attestation=False)

    return unblocked


def _resolve_after_gate(feature: Feature) -> Feature:
    """Retry the closing step that was blocked; the phases before it stay passed."""
    next_step = feature.todo[:1]
    # The user takes responsibility for what is on the branch now: `evaluated_commit` is reset
    if next_step == (Step.MERGE,):
        return replace_fields(feature, evaluated_commit="")
    if next_step in ((Step.PUBLISH,), (Step.AWAIT,)):
        return replace_fields(feature, evaluated_commit="", todo=FORGE_STEPS, remark_rounds=0)

    if next_step == (Step.ARCHIVE,):
        archived = feature.archive_round
        return replace_fields(feature, archive_round=archived + 1, archive_rounds_before=archived)

    return feature


def _start_next_phase(feature: Feature) -> Feature:
    return _start_round(
        replace_fields(
            feature,
            findings="",
            replies="",
            previous_commit="",
            written_commit="",
            previous_failure_key="",
        )
    )


def _start_round(feature: Feature) -> Feature:
    """Start a round without evidence: results of earlier rounds do not count for it."""
    work = feature.phase.work
    is_first = feature.workflow.round == feature.workflow.rounds_before + 1
    steps = STEPS_BY_WORK[work]
    if not is_first and work in (PhaseWork.REVIEW, PhaseWork.COMMANDS) and feature.can_fix:
        steps = (*FIX_STEPS, *steps)

    return reset_retry_counters(
        replace_fields(
            feature,
            todo=steps,
            verdict=None,
            commands={},
            evaluated_commit="",
            attested="",
            awaits_attestation=False,
            is_review_waived=False,
            report="",
        )
    )


def _apply_workflow_step(
    feature: Feature, step: phase_transitions.WorkflowOrRefusal, then: Callable[[Feature], Feature]
) -> Feature | Refusal:
    if isinstance(step, Refusal):
        return step
    return then(replace_fields(feature, workflow=step, open_job=None))
