"""A feature from its start to its merge: `decide` says what is next, `apply` takes in what happened.

Both are pure. The engine carries an action out, records what came of it, and asks again; after a crash it folds the
recorded events and asks again, too. What a person orders is taken in here; what came of a step, in `step_outcomes`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from phasegate.core.machine import feature_events as events
from phasegate.core.machine.feature_outcomes import open_packages, outcome
from phasegate.core.machine.feature_state import (
    AT_FORGE,
    CLOSING,
    CLOSING_AT_FORGE,
    MENDING,
    STEPS,
    Feature,
    FeatureAction,
    Step,
    changed,
    fresh,
    told,
)
from phasegate.core.plan.work_package import State
from phasegate.core.workflow import lifecycle
from phasegate.core.workflow.lifecycle import Refusal, Stage
from phasegate.core.workflow.phases import Work

Ordered = (
    events.Advanced
    | events.Retried
    | events.Escalated
    | events.Resolved
    | events.WentBack
    | events.Cancelled
    | events.CompletionAsked
)


def decide(feature: Feature, running: Collection[str] = ()) -> tuple[FeatureAction, ...]:
    """What to do now. Nothing at all only while packages are running."""
    match feature.workflow.stage:
        case Stage.GATE_FAILED:
            return (FeatureAction(Step.RETRY),)
        case Stage.GATE_PASSED if not feature.closing:
            return (FeatureAction(Step.COMPLETE if feature.workflow.is_last_phase else Step.ADVANCE),)
        case Stage.WORKING | Stage.GATE_PASSED:
            return _work(feature, running)
        case _:
            return (FeatureAction(Step.STOP),)


def _work(feature: Feature, running: Collection[str]) -> tuple[FeatureAction, ...]:
    step = feature.todo[0]
    if step is not Step.PACKAGES:
        return (FeatureAction(step, note=feature.workflow.reason if feature.asked_again or feature.retries else ""),)
    room = max(0, feature.limits.parallel - len(running))
    startable = tuple(name for name in open_packages(feature) if name not in running)[:room]
    return (FeatureAction(step, startable),) if startable else ()


def fold(happened: Iterable[events.Happened]) -> Feature | None:
    """The feature after these events; None before its start."""
    feature: Feature | None = None
    for event in happened:
        feature = apply(feature, event)
    return feature


def apply(feature: Feature | None, event: events.Happened) -> Feature | None:
    """The feature after one more event. An event that cannot happen now changes nothing."""
    after = take(feature, event)
    return feature if isinstance(after, Refusal) else after


def take(feature: Feature | None, event: events.Happened) -> Feature | Refusal:
    """The feature after an event, or why it cannot happen now."""
    if isinstance(event, events.Started):
        return _started(feature, event)
    if feature is None:
        return Refusal("no workflow was started", 'begin one: phasegate run feature "..."')
    if isinstance(event, Ordered):
        return _ordered(feature, event)
    if not feature.workflow.active or feature.workflow.stage is Stage.BLOCKED:
        return Refusal(f"the workflow is {feature.workflow.stage}")
    return outcome(feature, event) or Refusal(f"nothing of this kind is due: {type(event).__name__}")


def _started(before: Feature | None, event: events.Started) -> Feature | Refusal:
    existing = [before.workflow] if before else []
    keys = tuple(phase.key for phase in event.plan)
    workflow = lifecycle.start(existing, event.feature, event.type, keys, event.noun)
    if isinstance(workflow, Refusal):
        return workflow
    return _begun(Feature(workflow, event.plan, event.base, event.description, event.limits))


def _ordered(feature: Feature, event: Ordered) -> Feature | Refusal:  # noqa: C901 - one case an order
    """What a person, or the engine in their place, orders."""
    match event:
        case events.Advanced() if feature.closing:
            return Refusal("the workflow is being completed")
        case events.Advanced():
            return _if_taken(feature, lifecycle.advance(feature.workflow), _next_phase)
        case events.Retried():
            return _if_taken(feature, lifecycle.retry(feature.workflow), _begun)
        case events.Escalated(why, remediation):
            remedy = remediation or "deal with it, then resolve"
            return _if_taken(feature, lifecycle.escalate(feature.workflow, why), lambda one: _with(one, remedy))
        case events.Resolved(how):
            return _if_taken(feature, lifecycle.resolve(feature.workflow, how), lambda one: _resolved(one, how))
        case events.Cancelled() | events.WentBack() if _is_merged(feature):
            return Refusal("the work is merged", "phasegate run ends the workflow")
        case events.WentBack(phase, why):
            at = feature.workflow.index
            return _if_taken(
                feature, lifecycle.back(feature.workflow, phase, why), lambda one: _gone_back(one, why, at)
            )
        case events.Cancelled(reason):
            return _if_taken(feature, lifecycle.cancel(feature.workflow, reason), lambda one: one)
        case events.CompletionAsked():
            done = lifecycle.complete(feature.workflow)
            if isinstance(done, Refusal) or feature.closing:
                return done if isinstance(done, Refusal) else feature
            closing = CLOSING_AT_FORGE if event.by_pull_request else CLOSING
            steps = closing if feature.workflow.merges else (Step.TIDY,)
            return fresh(changed(feature, closing=True, todo=steps, findings=""))


def _is_merged(feature: Feature) -> bool:
    return feature.closing and feature.workflow.merges and feature.todo == (Step.TIDY,)


def _gone_back(feature: Feature, why: str, left: int) -> Feature:
    """A phase begins anew. Packages that are done stay so where their plan stays; else it is made anew, and decides."""
    planned_at = next((at for at, phase in enumerate(feature.plan) if phase.work is Work.PACKAGES), 0)
    is_kept = feature.workflow.index >= planned_at
    done = {name: state for name, state in feature.packages.items() if is_kept and state is State.DONE}
    needs = {name: waits for name, waits in feature.needs.items() if name in done}
    archived = feature.archive_round if feature.closing else feature.archive_round - 1
    empty = changed(
        feature, packages=done, needs=needs, blocked={}, findings="", remediation="", closing=False, sent_back=False
    )
    empty = changed(empty, written="", failed_as="")
    begun = _begun(told(changed(empty, archive_round=archived + 1, archive_rounds_before=archived), why, left))
    is_more_work = begun.phase.work is Work.PACKAGES and bool(done)
    return changed(begun, todo=(*MENDING, Step.REPORT, Step.GATE)) if is_more_work else begun


def _resolved(feature: Feature, how: str) -> Feature:
    """The blocked step is tried again. Behind a gate that stopped, that is the phase, with the findings in hand."""
    again = {name: State.PLANNED if state is State.BLOCKED else state for name, state in feature.packages.items()}
    has_passed = feature.workflow.stage is Stage.GATE_PASSED
    spoken = told(feature, how, feature.workflow.index + has_passed)
    freed = fresh(
        changed(spoken, packages=again, blocked={}, remediation="", written="", failed_as="", sent_back=False)
    )
    if feature.workflow.stage is Stage.GATE_PASSED:  # it passed before: nothing of the phase is due again
        if feature.todo[:1] == (Step.MERGE,):  # whatever is on the branch now, a person has seen to it
            return changed(freed, judged="")
        if feature.todo[:1] in ((Step.PUBLISH,), (Step.AWAIT,)):
            return changed(freed, judged="", todo=AT_FORGE)
        done = feature.archive_round
        is_due = feature.todo[:1] == (Step.ARCHIVE,)
        return changed(freed, archive_round=done + 1, archive_rounds_before=done) if is_due else freed
    if feature.todo:
        return changed(freed, attested=how, asks_for_word=False) if feature.asks_for_word else freed
    return _begun(freed)


def _next_phase(feature: Feature) -> Feature:
    return _begun(changed(feature, findings="", written="", failed_as=""))


def _begun(feature: Feature) -> Feature:
    """A round begins: nothing that was found before counts for it."""
    work = feature.phase.work
    is_first = feature.workflow.round == feature.workflow.rounds_before + 1
    mends = not is_first and work in (Work.REVIEW, Work.COMMANDS) and feature.can_mend
    steps = (*(MENDING if mends else ()), *STEPS[work])
    empty = changed(feature, verdict=None, commands={}, judged="", attested="", asks_for_word=False, report="")
    return fresh(changed(empty, todo=steps))


def _if_taken(feature: Feature, step: lifecycle.Step, then: Callable[[Feature], Feature]) -> Feature | Refusal:
    return step if isinstance(step, Refusal) else then(changed(feature, workflow=step, open_job=None))


def _with(feature: Feature, remediation: str) -> Feature:
    return changed(feature, remediation=remediation)
