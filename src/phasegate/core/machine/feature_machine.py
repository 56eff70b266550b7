"""A feature from its start to its merge.

`decide` says what is next, `apply` takes in what happened.

Both are pure. The engine carries an action out, records what came of it, and asks again; after a
crash it folds the recorded events and asks again, too. What a person orders is taken in here; what
came of a step, in `step_outcomes`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

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
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow import lifecycle
from phasegate.core.workflow.lifecycle import Refusal, Stage
from phasegate.core.workflow.phases import PhaseWork

OrderEvent = (
    events.Advanced
    | events.Retried
    | events.Escalated
    | events.Resolved
    | events.WentBack
    | events.Cancelled
    | events.CompletionRequested
)


def decide_feature_actions(
    feature: Feature, running: Collection[str] = ()
) -> tuple[FeatureAction, ...]:
    """What to do now. Nothing at all only while packages are running."""
    match feature.workflow.stage:
        case Stage.GATE_FAILED:
            return (FeatureAction(Step.RETRY),)
        case Stage.GATE_PASSED if not feature.closing:
            return (
                FeatureAction(Step.COMPLETE if feature.workflow.is_last_phase else Step.ADVANCE),
            )
        case Stage.WORKING | Stage.GATE_PASSED:
            return _decide_work(feature, running)
        case _:
            return (FeatureAction(Step.STOP),)


def _decide_work(feature: Feature, running: Collection[str]) -> tuple[FeatureAction, ...]:
    step = feature.todo[0]
    if step is not Step.PACKAGES:
        return (
            FeatureAction(
                step, note=feature.workflow.reason if feature.asked_again or feature.retries else ""
            ),
        )

    room = max(0, feature.limits.parallel - len(running))
    startable = tuple(name for name in list_workable_packages(feature) if name not in running)[
        :room
    ]
    if startable:
        return (FeatureAction(step, startable),)

    return ()


def fold_feature_events(recorded: Iterable[events.AnyFeatureEvent]) -> Feature | None:
    """The feature after these events; None before its start."""
    feature: Feature | None = None
    for event in recorded:
        feature = apply_feature_event(feature, event)
    return feature


def apply_feature_event(feature: Feature | None, event: events.AnyFeatureEvent) -> Feature | None:
    """The feature after one more event. An event that cannot happen now changes nothing."""
    after = apply_or_refuse(feature, event)
    if isinstance(after, Refusal):
        return feature
    return after


def apply_or_refuse(feature: Feature | None, event: events.AnyFeatureEvent) -> Feature | Refusal:
    """The feature after an event, or why it cannot happen now."""
    if isinstance(event, events.Started):
        return _start_feature(feature, event)
    if feature is None:
        return Refusal("no workflow was started", 'begin one: phasegate run feature "..."')
    if isinstance(event, OrderEvent):
        return _apply_order(feature, event)
    if not feature.workflow.is_active or feature.workflow.stage is Stage.BLOCKED:
        return Refusal(f"the workflow is {feature.workflow.stage}")

    return apply_outcome(feature, event) or Refusal(
        f"nothing of this kind is due: {type(event).__name__}"
    )


def _start_feature(before: Feature | None, event: events.Started) -> Feature | Refusal:
    existing = [before.workflow] if before else []
    keys = tuple(phase.key for phase in event.plan)
    workflow = lifecycle.start(existing, event.feature, event.type, keys, event.noun)
    if isinstance(workflow, Refusal):
        return workflow

    return _start_round(
        Feature(
            workflow=workflow,
            plan=event.plan,
            base=event.base,
            description=event.description,
            limits=event.limits,
        )
    )


def _apply_order(feature: Feature, event: OrderEvent) -> Feature | Refusal:  # noqa: C901 - one case an order
    """What a person, or the engine in their place, orders."""
    match event:
        case events.Advanced() if feature.closing:
            return Refusal("the workflow is being completed")
        case events.Advanced():
            return _apply_workflow_step(
                feature, lifecycle.advance(feature.workflow), _start_next_phase
            )
        case events.Retried():
            return _apply_workflow_step(feature, lifecycle.retry(feature.workflow), _start_round)
        case events.Escalated(why, remediation):
            remedy = remediation or "deal with it, then resolve"
            return _apply_workflow_step(
                feature,
                lifecycle.escalate(feature.workflow, why),
                lambda one: _set_remediation(one, remedy),
            )
        case events.Resolved(how):
            return _apply_workflow_step(
                feature,
                lifecycle.resolve(feature.workflow, how),
                lambda one: _resolve_blocker(one, how),
            )
        case events.Cancelled() | events.WentBack() if _is_merged(feature):
            return Refusal("the work is merged", "phasegate run ends the workflow")
        case events.WentBack(phase, why):
            at = feature.workflow.index
            return _apply_workflow_step(
                feature,
                lifecycle.go_back(feature.workflow, phase, why),
                lambda one: _go_back(one, why, at),
            )
        case events.Cancelled(reason):
            return _apply_workflow_step(
                feature, lifecycle.cancel(feature.workflow, reason), lambda one: one
            )
        case events.CompletionRequested():
            done = lifecycle.complete(feature.workflow)
            if isinstance(done, Refusal) or feature.closing:
                if isinstance(done, Refusal):
                    return done
                return feature

            closing = FORGE_CLOSING_STEPS if event.by_pull_request else CLOSING_STEPS
            steps = closing if feature.workflow.merges else (Step.CLEAN_UP,)
            return reset_retry_counters(
                replace_fields(feature, closing=True, todo=steps, findings="")
            )


def _is_merged(feature: Feature) -> bool:
    return feature.closing and feature.workflow.merges and feature.todo == (Step.CLEAN_UP,)


def _go_back(feature: Feature, why: str, left_index: int) -> Feature:
    """A phase begins anew.

    Packages that are done stay so where their plan stays; else it is made anew, and decides.
    """
    planned_at = next(
        (at for at, phase in enumerate(feature.plan) if phase.work is PhaseWork.PACKAGES), 0
    )
    is_kept = feature.workflow.index >= planned_at
    done = {
        name: state
        for name, state in feature.packages.items()
        if is_kept and state is PackageState.DONE
    }
    needs = {name: waits for name, waits in feature.needs.items() if name in done}
    if feature.closing:
        archived = feature.archive_round
    else:
        archived = feature.archive_round - 1

    empty = replace_fields(
        feature,
        packages=done,
        needs=needs,
        blocked={},
        findings="",
        remediation="",
        closing=False,
        sent_back=False,
    )

    empty = replace_fields(empty, written="", failed_as="")
    begun = _start_round(
        add_user_note(
            replace_fields(empty, archive_round=archived + 1, archive_rounds_before=archived),
            why,
            left_index,
        )
    )

    is_more_work = begun.phase.work is PhaseWork.PACKAGES and bool(done)
    if is_more_work:
        return replace_fields(begun, todo=(*FIX_STEPS, Step.REPORT, Step.GATE))

    return begun


def _resolve_blocker(feature: Feature, how: str) -> Feature:
    """The blocked step is tried again.

    Behind a gate that stopped, that is the phase, with the findings in hand.
    """
    again = {
        name: PackageState.PLANNED if state is PackageState.BLOCKED else state
        for name, state in feature.packages.items()
    }
    has_passed = feature.workflow.stage is Stage.GATE_PASSED
    spoken = add_user_note(feature, how, feature.workflow.index + has_passed)
    freed = reset_retry_counters(
        replace_fields(
            spoken,
            packages=again,
            blocked={},
            remediation="",
            written="",
            failed_as="",
            sent_back=False,
        )
    )

    # It passed before: nothing of the phase is due again
    if feature.workflow.stage is Stage.GATE_PASSED:
        # Whatever is on the branch now, a person has seen to it
        if feature.todo[:1] == (Step.MERGE,):
            return replace_fields(freed, judged="")
        if feature.todo[:1] in ((Step.PUBLISH,), (Step.AWAIT,)):
            return replace_fields(freed, judged="", todo=FORGE_STEPS)

        done = feature.archive_round
        is_due = feature.todo[:1] == (Step.ARCHIVE,)
        if is_due:
            return replace_fields(freed, archive_round=done + 1, archive_rounds_before=done)

        return freed

    if feature.todo:
        if feature.asks_for_word:
            return replace_fields(freed, attested=how, asks_for_word=False)
        return freed

    return _start_round(freed)


def _start_next_phase(feature: Feature) -> Feature:
    return _start_round(replace_fields(feature, findings="", written="", failed_as=""))


def _start_round(feature: Feature) -> Feature:
    """A round begins: nothing that was found before counts for it."""
    work = feature.phase.work
    is_first = feature.workflow.round == feature.workflow.rounds_before + 1
    mends = not is_first and work in (PhaseWork.REVIEW, PhaseWork.COMMANDS) and feature.can_fix
    steps = (*(FIX_STEPS if mends else ()), *STEPS_BY_WORK[work])
    empty = replace_fields(
        feature, verdict=None, commands={}, judged="", attested="", asks_for_word=False, report=""
    )

    return reset_retry_counters(replace_fields(empty, todo=steps))


def _apply_workflow_step(
    feature: Feature, step: lifecycle.WorkflowOrRefusal, then: Callable[[Feature], Feature]
) -> Feature | Refusal:
    if isinstance(step, Refusal):
        return step
    return then(replace_fields(feature, workflow=step, open_job=None))


def _set_remediation(feature: Feature, remediation: str) -> Feature:
    return replace_fields(feature, remediation=remediation)
