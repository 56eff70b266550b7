"""A feature from its start to its merge (W1-W8): `decide` says what is next, `apply` takes in what happened.

Both are pure. The engine carries an action out, records what came of it, and asks again; after a crash it folds the
recorded events and asks again, too. No event carries a gate's outcome: it is judged here, from the evidence of the
round, so that no sequence of events passes a gate without its evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import msgspec

from phasegate.rules import lifecycle
from phasegate.rules.answer_words import Verdict
from phasegate.rules.dependencies import ready, waves
from phasegate.rules.feature_events import (
    Advanced,
    Cancelled,
    Completed,
    CompletionAsked,
    Escalated,
    GateChecked,
    Happened,
    JobEnded,
    JobStarted,
    Merged,
    NotMerged,
    PackageEnded,
    PackageStarted,
    Planned,
    Ran,
    Reported,
    Resolved,
    Retried,
    Started,
    Strayed,
    Written,
)
from phasegate.rules.feature_state import ATTESTATION, CLOSING, MENDING, ROLES, STEPS, Action, Feature, Step
from phasegate.rules.gate import Demands, Evidence, GateResult, judge_gate
from phasegate.rules.lifecycle import Refusal, Stage, Workflow
from phasegate.rules.package_run import End
from phasegate.rules.phase import Work
from phasegate.rules.work_package import State

_ENDED = (State.DONE, State.BLOCKED)


def decide(feature: Feature, running: Collection[str] = ()) -> tuple[Action, ...]:
    """What to do now. Nothing at all only while packages are running."""
    match feature.workflow.stage:
        case Stage.GATE_FAILED:
            return (Action(Step.RETRY),)
        case Stage.GATE_PASSED if not feature.closing:
            return (Action(Step.COMPLETE if feature.workflow.is_last_phase else Step.ADVANCE),)
        case Stage.WORKING | Stage.GATE_PASSED:
            return _work(feature, running)
        case _:
            return (Action(Step.STOP),)


def _work(feature: Feature, running: Collection[str]) -> tuple[Action, ...]:
    step = feature.todo[0]
    if step is not Step.PACKAGES:
        return (Action(step, note=feature.workflow.reason if feature.asked_again or feature.retries else ""),)
    room = max(0, feature.limits.parallel - len(running))
    startable = tuple(name for name in open_packages(feature) if name not in running)[:room]
    return (Action(step, startable),) if startable else ()


def open_packages(feature: Feature) -> tuple[str, ...]:
    """The packages that can be worked on: those in work, and those that wait for nothing more."""
    states = feature.packages
    can = ready({name: frozenset(waits) for name, waits in feature.needs.items()}, states)
    return tuple(name for name in sorted(states) if states[name] is State.DOING or name in can)


def _all_done(feature: Feature) -> bool:
    return all(state is State.DONE for state in feature.packages.values())


def fold(events: Iterable[Happened]) -> Feature | None:
    """The feature after these events; None before its start."""
    feature: Feature | None = None
    for event in events:
        feature = apply(feature, event)
    return feature


def apply(feature: Feature | None, event: Happened) -> Feature | None:
    """The feature after one more event. An event that cannot happen now changes nothing."""
    after = take(feature, event)
    return feature if isinstance(after, Refusal) else after


def take(feature: Feature | None, event: Happened) -> Feature | Refusal:
    """The feature after an event, or why it cannot happen now."""
    if isinstance(event, Started):
        return _started(feature, event)
    if feature is None:
        return Refusal("no workflow was started", 'begin one: phasegate run feature "..."')
    if isinstance(event, Advanced | Retried | Escalated | Resolved | Cancelled | CompletionAsked):
        return _ordered(feature, event)
    if not feature.workflow.active or feature.workflow.stage is Stage.BLOCKED:
        return Refusal(f"the workflow is {feature.workflow.stage}")
    return _worked(feature, event) or Refusal(f"nothing of this kind is due: {type(event).__name__}")


def _started(before: Feature | None, event: Started) -> Feature | Refusal:
    existing = [before.workflow] if before else []
    keys = tuple(phase.key for phase in event.plan)
    workflow = lifecycle.start(existing, event.feature, event.type, keys, event.noun)
    if isinstance(workflow, Refusal):
        return workflow
    return _begun(Feature(workflow, event.plan, event.base, event.description, event.limits))


def _ordered(
    feature: Feature, event: Advanced | Retried | Escalated | Resolved | Cancelled | CompletionAsked
) -> Feature | Refusal:
    """What a person, or the engine in their place, orders."""
    match event:
        case Advanced() if feature.closing:
            return Refusal("the workflow is being completed")
        case Advanced():
            return _if_taken(feature, lifecycle.advance(feature.workflow), _next_phase)
        case Retried():
            return _if_taken(feature, lifecycle.retry(feature.workflow), _begun)
        case Escalated(why, remediation):
            remedy = remediation or "deal with it, then resolve"
            return _if_taken(feature, lifecycle.escalate(feature.workflow, why), lambda one: _with(one, remedy))
        case Resolved(how):
            return _if_taken(feature, lifecycle.resolve(feature.workflow, how), lambda one: _resolved(one, how))
        case Cancelled() if feature.closing and feature.workflow.merges and feature.todo == (Step.TIDY,):
            return Refusal("the work is merged", "phasegate run ends the workflow")
        case Cancelled(reason):
            return _if_taken(feature, lifecycle.cancel(feature.workflow, reason), lambda one: one)
        case CompletionAsked():
            done = lifecycle.complete(feature.workflow)
            if isinstance(done, Refusal) or feature.closing:
                return done if isinstance(done, Refusal) else feature
            steps = CLOSING if feature.workflow.merges else (Step.TIDY,)
            return _fresh(_changed(feature, closing=True, todo=steps, findings=""))


def _worked(feature: Feature, event: Happened) -> Feature | None:  # noqa: C901 - one case an event: a table, not a maze
    """What came of the step that was due; None if it was not."""
    due = feature.todo[0] if feature.todo else Step.STOP
    match event:
        case JobStarted(_, role) if ROLES.get(due) == role and feature.open_job is None:
            return _changed(feature, open_job=event)
        case JobEnded(job) if feature.open_job is not None and feature.open_job.job == job:
            return _after_job(_changed(feature, open_job=None), event, due)
        case Written(_, missing) if due is Step.HARVEST:
            return _dropped(_done(feature), Step.CRITICISE) if missing else _done(feature)
        case Strayed(violations) if due is Step.HARVEST:
            remedy = "see what it wrote in the job's log, then resolve: the run begins again"
            stopped = _stopped(feature, f"File scope violation: {'; '.join(violations)}", remedy)
            return _changed(stopped, todo=CLOSING if feature.closing else STEPS[Work.PLANNING], verdict=None, report="")
        case Planned() if due in (Step.PLAN, Step.MEND):
            return _after_plan(feature, event)
        case PackageStarted(package) if due is Step.PACKAGES and package in open_packages(feature):
            return _changed(feature, packages={**feature.packages, package: State.DOING})
        case PackageEnded(package) if due is Step.PACKAGES and feature.packages.get(package) is State.DOING:
            return _after_package(feature, event)
        case Ran() if due is Step.COMMANDS:
            return _after_commands(feature, event)
        case Reported() if due is Step.REPORT:
            return _done(feature)
        case GateChecked() if due is Step.GATE:
            return _after_gate(feature, event)
        case Merged(commit) if due is Step.MERGE:
            return _done(_changed(feature, merged=commit))
        case NotMerged(reason, remediation) if due is Step.MERGE:
            return _stopped(feature, reason, remediation)
        case Completed() if due is Step.TIDY:
            return _changed(feature, workflow=_sure(lifecycle.complete(feature.workflow)), todo=())
        case _:
            return None


def _after_job(feature: Feature, ended: JobEnded, due: Step) -> Feature:
    match ended.end:
        case End.DONE:
            return _answered(_fresh(feature), ended, due)
        case End.LOST:
            return feature
        case End.TRANSIENT if feature.retries < feature.limits.retries:
            return _noted(_changed(feature, retries=feature.retries + 1), ended.reason)
        case End.LIMITED if feature.pauses < feature.limits.pauses:
            return _noted(_changed(feature, pauses=feature.pauses + 1), ended.reason)
        case End.UNREADABLE if not feature.asked_again:
            return _noted(_changed(feature, asked_again=True), ended.reason)
        case _:
            return _stopped(feature, ended.reason or f"the agent ended as {ended.end}", ended.remediation)


def _answered(feature: Feature, ended: JobEnded, due: Step) -> Feature:
    """A writer's PASS is no evidence, only its own doubt counts; what a critic or reviewer says is for the gate."""
    if due is Step.WRITE:
        if ended.verdict is not Verdict.NEEDS_REVISION:
            return _done(feature)
        return _dropped(_done(_changed(feature, verdict=ended.verdict, report=ended.text)), Step.CRITICISE)
    if due is Step.ARCHIVE:
        if ended.verdict is Verdict.PASS:
            return _done(feature)
        again = feature.round < feature.last_round
        if ended.verdict is Verdict.NEEDS_CHANGES and again:
            return _changed(feature, archive_round=feature.archive_round + 1, findings=ended.text)
        return _stopped(feature, f"the archivist says {ended.verdict}", "read its answer, mend it, then resolve")
    text = f"{feature.report}\n{ended.text}".strip()
    return _done(_changed(feature, verdict=ended.verdict, report=text))


def _after_plan(feature: Feature, event: Planned) -> Feature:
    if event.problems or not event.packages:
        reasons = "; ".join(event.problems) or "the plan has no packages"
        return _stopped(
            feature, f"no packages can be made: {reasons}", "mend tasks.md on the feature's branch, resolve"
        )
    fresh = dict.fromkeys(event.packages, State.PLANNED)
    needs = {**feature.needs, **event.packages}
    after = _done(_changed(feature, needs=needs, packages={**fresh, **feature.packages}))
    if _all_done(after):
        return _done(after)
    if waiting := _never_open(after):
        reason = f"{', '.join(waiting)} can never begin: they wait for each other, or for what is no package"
        return _stopped(feature, reason, "mend the plan, then resolve")
    return after


def _never_open(feature: Feature) -> tuple[str, ...]:
    """The packages that wait for each other, or for what is no package."""
    placed = {name for wave in waves(feature.needs) for name in wave}
    return tuple(sorted(feature.needs.keys() - placed))


def _after_package(feature: Feature, event: PackageEnded) -> Feature:
    if event.state not in _ENDED:
        return feature
    packages = {**feature.packages, event.package: event.state}
    why = {event.package: event.reason} if event.state is State.BLOCKED else {}
    after = _changed(feature, packages=packages, blocked={**feature.blocked, **why})
    if _all_done(after):
        return _done(after)
    if open_packages(after):
        return _changed(after, remediation=event.remediation or feature.remediation)
    reasons = (f"{name} ({reason})" if reason else name for name, reason in sorted(after.blocked.items()))
    return _stopped(after, f"blocked: {', '.join(reasons)}", event.remediation or feature.remediation)


def _after_commands(feature: Feature, event: Ran) -> Feature:
    if not event.results and not feature.attested:
        remedy = (
            f'set commands = ["..."] in [phases."{feature.phase.key}"] of phasegate.toml, '
            "or say how it was checked: resolve"
        )
        stopped = _stopped(feature, f"{feature.phase.key} has no command to run", remedy)
        return _changed(stopped, asks_for_word=True)
    if not event.results:
        report = f"Attested by a person: {feature.attested}"
        return _dropped(_done(_changed(feature, commands={ATTESTATION: True}, report=report)), Step.REVIEW)
    after = _done(_changed(feature, commands=event.results, report=event.findings, attested=""))
    return after if all(event.results.values()) else _dropped(after, Step.REVIEW)


def _after_gate(feature: Feature, event: GateChecked) -> Feature:
    result = judged(feature, event)
    limit = feature.limits.revisions if feature.phase.work is Work.PLANNING or feature.can_mend else 1
    workflow = _sure(lifecycle.apply_gate(feature.workflow, result, limit))
    findings = "\n\n".join(part for part in (feature.report, event.findings, *result.reasons) if part)
    remedy = "read the findings, decide, then resolve" if workflow.stage is Stage.BLOCKED else ""
    return _changed(feature, workflow=workflow, todo=(), findings=findings, remediation=remedy)


def judged(feature: Feature, event: GateChecked) -> GateResult:
    """The gate of the phase, from what this round brought."""
    checks = {**feature.commands, **event.checks}
    demanded = (*event.checks, *feature.commands)
    match feature.phase.work:
        case Work.PACKAGES:
            checks |= {name: state is State.DONE for name, state in feature.packages.items()}
            demanded = (*event.checks, *(feature.packages or ("packages",)))
        case Work.COMMANDS:
            demanded = (*event.checks, *(feature.commands or ("commands",)))
    attested = feature.commands.get(ATTESTATION) is True
    demands = Demands(feature.phase.artifacts, demanded, feature.phase.work is not Work.PACKAGES and not attested)
    return judge_gate(demands, Evidence(frozenset(event.artifacts), checks, feature.verdict))


def _resolved(feature: Feature, how: str) -> Feature:
    """The blocked step is tried again. Behind a gate that stopped, that is the phase, with the findings in hand."""
    again = {name: State.PLANNED if state is State.BLOCKED else state for name, state in feature.packages.items()}
    fresh = _fresh(_changed(feature, packages=again, blocked={}, remediation=""))
    if feature.workflow.stage is Stage.GATE_PASSED:  # it passed before: nothing of the phase is due again
        done = feature.archive_round
        is_due = feature.todo[:1] == (Step.ARCHIVE,)
        return _changed(fresh, archive_round=done + 1, archive_rounds_before=done) if is_due else fresh
    if feature.todo:
        return _changed(fresh, attested=how, asks_for_word=False) if feature.asks_for_word else fresh
    return _begun(_changed(fresh, findings=f"{feature.findings}\n\nA person decided: {how}".strip()))


def _next_phase(feature: Feature) -> Feature:
    return _begun(_changed(feature, findings=""))


def _begun(feature: Feature) -> Feature:
    """A round begins: nothing that was found before counts for it."""
    work = feature.phase.work
    is_first = feature.workflow.round == feature.workflow.rounds_before + 1
    mends = not is_first and work in (Work.REVIEW, Work.COMMANDS) and feature.can_mend
    steps = (*(MENDING if mends else ()), *STEPS[work])
    return _fresh(_changed(feature, todo=steps, verdict=None, commands={}, attested="", asks_for_word=False, report=""))


def _if_taken(feature: Feature, step: lifecycle.Step, then: Callable[[Feature], Feature]) -> Feature | Refusal:
    return step if isinstance(step, Refusal) else then(_changed(feature, workflow=step, open_job=None))


def _stopped(feature: Feature, reason: str, remediation: str) -> Feature:
    blocked = _sure(lifecycle.escalate(feature.workflow, reason or "it is not known why"))
    remedy = remediation or "look into the log, then resolve"
    return _fresh(_changed(feature, workflow=blocked, remediation=remedy))


def _sure(step: lifecycle.Step) -> Workflow:
    """The step of a workflow that is known to be possible here."""
    if isinstance(step, Refusal):
        raise AssertionError(step.reason)
    return step


def _done(feature: Feature) -> Feature:
    return _changed(feature, todo=feature.todo[1:])


def _dropped(feature: Feature, step: Step) -> Feature:
    return _changed(feature, todo=tuple(one for one in feature.todo if one is not step))


def _fresh(feature: Feature) -> Feature:
    return _changed(feature, retries=0, asked_again=False, pauses=0)


def _noted(feature: Feature, reason: str) -> Feature:
    return _changed(feature, workflow=msgspec.structs.replace(feature.workflow, reason=reason))


def _with(feature: Feature, remediation: str) -> Feature:
    return _changed(feature, remediation=remediation)


def _changed(feature: Feature, **fields: object) -> Feature:
    return msgspec.structs.replace(feature, **fields)
