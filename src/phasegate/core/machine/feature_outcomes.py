"""What came of a step of a feature: each event is taken in only while its step is due.

No event carries a gate's outcome: it is judged here, from the evidence of the round, so that no sequence of events
passes a gate without its evidence.
"""

from __future__ import annotations

import msgspec

from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.machine import feature_events as events
from phasegate.core.machine.feature_state import (
    AT_FORGE,
    ATTESTATION,
    CLOSING,
    CLOSING_AT_FORGE,
    MENDING,
    ROLES,
    STEPS,
    Feature,
    Step,
    changed,
    fresh,
)
from phasegate.core.machine.package_events import End, first_line
from phasegate.core.machine.retry import given_up, run_again
from phasegate.core.machine.wait_reasons import AT_A_FORGE
from phasegate.core.plan.dependencies import ready, waves
from phasegate.core.plan.work_package import State
from phasegate.core.workflow import lifecycle
from phasegate.core.workflow.gate import Demands, GateEvidence, GateResult, judge_gate
from phasegate.core.workflow.lifecycle import Refusal, Stage, Workflow
from phasegate.core.workflow.phases import Work

_ENDED = (State.DONE, State.BLOCKED)
_THEN = "then fix the documents or the check on the feature's branch, or tell the agents more: resolve, and run again"
_NO_PACKAGES = "this workflow has no work packages: change the feature's branch yourself, then resolve"


def outcome(feature: Feature, event: events.Happened) -> Feature | None:  # noqa: C901 - one case an event: a table, not a maze
    """What came of the step that was due; None if it was not."""
    due = feature.todo[0] if feature.todo else Step.STOP
    match event:
        case events.JobStarted(_, role) if ROLES.get(due) == role and feature.open_job is None:
            return changed(feature, open_job=event)
        case events.JobEnded(job) if feature.open_job is not None and feature.open_job.job == job:
            return _after_job(changed(feature, open_job=None), event, due, feature.open_job.commit)
        case events.Written() if due is Step.HARVEST:
            return _after_writing(feature, event)
        case events.Strayed(violations) if due is Step.HARVEST:
            remedy = "see what it wrote in the job's log, then resolve: the run begins again"
            stopped = _stopped(feature, f"File scope violation: {'; '.join(violations)}", remedy)
            closing = CLOSING if Step.MERGE in feature.todo else CLOSING_AT_FORGE
            return changed(stopped, todo=closing if feature.closing else STEPS[Work.PLANNING], verdict=None, report="")
        case events.Planned() if due in (Step.PLAN, Step.MEND):
            return _after_plan(feature, event)
        case events.PackageStarted(package) if due is Step.PACKAGES and package in open_packages(feature):
            return changed(feature, packages={**feature.packages, package: State.DOING})
        case events.PackageEnded(package) if due is Step.PACKAGES and feature.packages.get(package) is State.DOING:
            return _after_package(feature, event)
        case events.Ran() if due is Step.COMMANDS:
            return _after_commands(feature, event)
        case events.Reported() if due is Step.REPORT:
            return _done(feature)
        case events.GateChecked() if due is Step.GATE:
            return _after_gate(feature, event)
        case events.Merged(commit) if due in (Step.MERGE, Step.AWAIT):
            return _done(changed(feature, merged=commit))
        case events.NotMerged(reason, remediation) if due in (Step.MERGE, Step.PUBLISH, Step.AWAIT):
            return _stopped(feature, reason, remediation)
        case events.SentBack() if due in (Step.MERGE, Step.PUBLISH, Step.AWAIT):
            return _after_sent_back(feature, event)
        case events.PullOpened(_, url, head) if due is Step.PUBLISH:
            return _done(changed(_noted(feature, url + AT_A_FORGE), pull=event, judged=head, unanswered=0))
        case events.Remarked() if due is Step.AWAIT:
            return _after_remarks(feature, event)
        case events.Completed() if due is Step.TIDY:
            return changed(feature, workflow=_sure(lifecycle.complete(feature.workflow)), todo=())
        case _:
            return None


def _after_job(feature: Feature, ended: events.JobEnded, due: Step, commit: str) -> Feature:
    if ended.end is End.DONE:
        return _answered(fresh(feature), ended, due, commit)
    counted = run_again(ended, feature, feature.limits)
    if counted is None:
        return _stopped(feature, *given_up(ended, feature))
    after = changed(feature, **counted)
    return after if ended.end is End.LOST else _noted(after, ended.reason)


def _answered(feature: Feature, ended: events.JobEnded, due: Step, commit: str) -> Feature:
    """A writer's PASS is no evidence, only its own doubt counts; what a critic or reviewer says is for the gate."""
    if due is Step.WRITE:
        if ended.verdict is not Verdict.NEEDS_REVISION:
            return _done(feature)
        return _dropped(_done(changed(feature, verdict=ended.verdict, report=ended.text)), Step.CRITICISE)
    if due is Step.ARCHIVE:
        if ended.verdict is Verdict.PASS:
            return _done(feature)
        again = feature.round < feature.last_round
        if ended.verdict is Verdict.NEEDS_CHANGES and again:
            return changed(feature, archive_round=feature.archive_round + 1, findings=ended.text)
        return _stopped(feature, f"the archivist says {ended.verdict}", "read its answer, fix it, then resolve")
    text = f"{feature.report}\n{ended.text}".strip()
    return _done(changed(feature, verdict=ended.verdict, report=text, judged=commit))


def _after_writing(feature: Feature, event: events.Written) -> Feature:
    """A writer that was told what is wrong and changed nothing: a critic would say the same again."""
    if event.unchanged:
        asked = f"; it was to answer: {first_line(feature.findings)}" if feature.findings else ""
        remedy = f"read why (phasegate show {feature.phase.key} --answer), {_THEN}"
        return changed(_stopped(feature, f"the round changed nothing{asked}", remedy), todo=())
    after = _done(changed(feature, written=event.commit))
    return _dropped(after, Step.CRITICISE) if event.missing else after


def _after_plan(feature: Feature, event: events.Planned) -> Feature:
    if event.problems or not event.packages:
        reasons = "; ".join(event.problems) or "the plan has no packages"
        return _stopped(
            feature, f"no packages can be made: {reasons}", "fix tasks.md on the feature's branch, then resolve"
        )
    fresh = dict.fromkeys(event.packages, State.PLANNED)
    needs = {**feature.needs, **event.packages}
    after = _done(changed(feature, needs=needs, packages={**fresh, **feature.packages}))
    if _all_done(after):
        return _done(after)
    if waiting := _never_open(after):
        reason = f"{', '.join(waiting)} can never begin: a dependency cycle, or a dependency that is not a package"
        return _stopped(feature, reason, "fix the plan, then resolve")
    return after


def _never_open(feature: Feature) -> tuple[str, ...]:
    """The packages that wait for each other, or for what is no package."""
    placed = {name for wave in waves(feature.needs) for name in wave}
    return tuple(sorted(feature.needs.keys() - placed))


def _after_package(feature: Feature, event: events.PackageEnded) -> Feature:
    if event.state not in _ENDED:
        return feature
    packages = {**feature.packages, event.package: event.state}
    why = {event.package: event.reason} if event.state is State.BLOCKED else {}
    after = changed(feature, packages=packages, blocked={**feature.blocked, **why})
    if _all_done(after):
        return _done(after)
    if open_packages(after):
        return changed(after, remediation=event.remediation or feature.remediation)
    reasons = (f"{name} ({reason})" if reason else name for name, reason in sorted(after.blocked.items()))
    return _stopped(after, f"blocked: {', '.join(reasons)}", event.remediation or feature.remediation)


def open_packages(feature: Feature) -> tuple[str, ...]:
    """The packages that can be worked on: those in work, and those that wait for nothing more."""
    states = feature.packages
    can = ready({name: frozenset(waits) for name, waits in feature.needs.items()}, states)
    return tuple(name for name in sorted(states) if states[name] is State.DOING or name in can)


def _all_done(feature: Feature) -> bool:
    return all(state is State.DONE for state in feature.packages.values())


def _after_commands(feature: Feature, event: events.Ran) -> Feature:
    if not event.results and not feature.attested:
        remedy = (
            f'set commands = ["..."] in [phases."{feature.phase.key}"] of phasegate.toml, '
            "or say how it was checked: resolve"
        )
        stopped = _stopped(feature, f"{feature.phase.key} has no command to run", remedy)
        return changed(stopped, asks_for_word=True)
    if not event.results:
        report = f"Attested by a person: {feature.attested}"
        return _dropped(_done(changed(feature, commands={ATTESTATION: True}, report=report)), Step.REVIEW)
    if event.lacking:
        remedy = "install it, then resolve: the commands are run again"
        return _stopped(feature, f"no agent can mend this: {'; '.join(event.lacking)}", remedy)
    after = _done(changed(feature, commands=event.results, report=event.findings, attested="", judged=event.commit))
    return after if all(event.results.values()) else _dropped(after, Step.REVIEW)


def _after_gate(feature: Feature, event: events.GateChecked) -> Feature:
    result = judged(feature, event)
    limit = feature.limits.revisions if feature.phase.work is Work.PLANNING or feature.can_mend else 1
    workflow = _sure(lifecycle.apply_gate(feature.workflow, result, limit))
    findings = "\n\n".join(part for part in (event.findings, feature.report, *result.reasons) if part)
    remedy = "read the findings, decide, then resolve" if workflow.stage is Stage.BLOCKED else ""
    if workflow.stage is Stage.GATE_FAILED and event.alike and event.alike == feature.failed_as:
        reason = f"the gate failed in exactly the same way as in the round before: {first_line(findings)}"
        remedy = f"see what was tried (phasegate show {feature.phase.key} --answer, --evidence), {_THEN}"
        workflow = _sure(lifecycle.escalate(workflow, reason))
    is_answered = workflow.stage is Stage.GATE_PASSED and workflow.index >= feature.said_at
    said = "" if is_answered else feature.said
    after = changed(feature, workflow=workflow, todo=(), findings=findings, remediation=remedy, said=said)
    return changed(after, failed_as=event.alike if workflow.stage is Stage.GATE_FAILED else "")


def _after_remarks(feature: Feature, event: events.Remarked) -> Feature:
    """Remarks of people at the forge are the findings of one more package; then the pull request is brought up to date.

    Each package has its own checks and its own review, so the branch is judged again when it is published.
    """
    known = {one.id for one in feature.remarks}
    new = tuple(one for one in event.remarks if one.id not in known)
    if not new:
        return feature
    findings = "\n\n".join(one.finding for one in new)
    taken = changed(_noted(feature, ""), remarks=(*feature.remarks, *new), unanswered=len(new), findings=findings)
    if not feature.can_mend:
        return changed(_stopped(taken, f"remarks at the pull request:\n{findings}", _NO_PACKAGES), todo=AT_FORGE)
    return changed(taken, todo=(*MENDING, *AT_FORGE), judged="")


def _after_sent_back(feature: Feature, event: events.SentBack) -> Feature:
    """The failing tests are the findings of one more package, once; the second time they are a person's."""
    if feature.sent_back or not feature.can_mend:
        return _stopped(feature, f"{event.reason}:\n{event.findings}", event.remediation)
    findings = f"{event.reason}:\n{event.findings}"
    rest = AT_FORGE if feature.todo[0] is Step.AWAIT else feature.todo  # what changes is published anew
    return changed(feature, sent_back=True, findings=findings, judged="", todo=(*MENDING, *rest))


def judged(feature: Feature, event: events.GateChecked) -> GateResult:
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
    return judge_gate(demands, GateEvidence(frozenset(event.artifacts), checks, feature.verdict))


def _stopped(feature: Feature, reason: str, remediation: str) -> Feature:
    blocked = _sure(lifecycle.escalate(feature.workflow, reason or "the reason is unknown"))
    remedy = remediation or "see the log, then resolve"
    return fresh(changed(feature, workflow=blocked, remediation=remedy))


def _sure(step: lifecycle.Step) -> Workflow:
    """The step of a workflow that is known to be possible here."""
    if isinstance(step, Refusal):
        raise AssertionError(step.reason)
    return step


def _done(feature: Feature) -> Feature:
    return changed(feature, todo=feature.todo[1:])


def _dropped(feature: Feature, step: Step) -> Feature:
    return changed(feature, todo=tuple(one for one in feature.todo if one is not step))


def _noted(feature: Feature, reason: str) -> Feature:
    return changed(feature, workflow=msgspec.structs.replace(feature.workflow, reason=reason))
