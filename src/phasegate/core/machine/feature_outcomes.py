"""What came of a step of a feature: each event is taken in only while its step is due.

No event carries a gate's outcome: it is judged here, from the evidence of the round, so that no
sequence of events passes a gate without its evidence.
"""

from __future__ import annotations

import msgspec

from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.machine import feature_events as events
from phasegate.core.machine.feature_state import (
    ATTESTATION,
    CLOSING_STEPS,
    FIX_STEPS,
    FORGE_CLOSING_STEPS,
    FORGE_STEPS,
    ROLE_BY_STEP,
    STEPS_BY_WORK,
    Feature,
    Step,
    replace_fields,
    reset_retry_counters,
)
from phasegate.core.machine.package_events import JobEndKind, first_line
from phasegate.core.machine.retry import count_retry, explain_give_up
from phasegate.core.machine.wait_reasons import WAITING_AT_FORGE_SUFFIX
from phasegate.core.plan.dependencies import compute_waves, find_ready_packages
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow import lifecycle
from phasegate.core.workflow.gate import GateDemands, GateEvidence, GateResult, evaluate_gate
from phasegate.core.workflow.lifecycle import Refusal, Stage, Workflow
from phasegate.core.workflow.phases import PhaseWork

_ENDED_STATES = (PackageState.DONE, PackageState.BLOCKED)
_RETRY_HINT = "then fix the documents or the check on the feature's branch, or tell the agents more: resolve, and run again"
_NO_PACKAGES_HINT = (
    "this workflow has no work packages: change the feature's branch yourself, then resolve"
)


def apply_outcome(feature: Feature, event: events.AnyFeatureEvent) -> Feature | None:  # noqa: C901 - one case an event: a table, not a maze
    """What came of the step that was due; None if it was not."""
    if feature.todo:
        due = feature.todo[0]
    else:
        due = Step.STOP

    match event:
        case events.JobStarted(_, role) if (
            ROLE_BY_STEP.get(due) == role and feature.open_job is None
        ):
            return replace_fields(feature, open_job=event)
        case events.JobEnded(job) if feature.open_job is not None and feature.open_job.job == job:
            return _after_job(
                replace_fields(feature, open_job=None), event, due, feature.open_job.commit
            )
        case events.DocumentsWritten() if due is Step.HARVEST:
            return _after_writing(feature, event)
        case events.ScopeViolated(violations) if due is Step.HARVEST:
            remedy = "see what it wrote in the job's log, then resolve: the run begins again"
            stopped = _block(feature, f"File scope violation: {'; '.join(violations)}", remedy)
            closing = CLOSING_STEPS if Step.MERGE in feature.todo else FORGE_CLOSING_STEPS
            return replace_fields(
                stopped,
                todo=closing if feature.closing else STEPS_BY_WORK[PhaseWork.PLANNING],
                verdict=None,
                report="",
            )
        case events.PackagesPlanned() if due in (Step.PLAN, Step.FIX):
            return _after_plan(feature, event)
        case events.PackageStarted(package) if (
            due is Step.PACKAGES and package in list_workable_packages(feature)
        ):
            return replace_fields(
                feature, packages={**feature.packages, package: PackageState.DOING}
            )
        case events.PackageEnded(package) if (
            due is Step.PACKAGES and feature.packages.get(package) is PackageState.DOING
        ):
            return _after_package(feature, event)
        case events.CommandsRan() if due is Step.COMMANDS:
            return _after_commands(feature, event)
        case events.ReportWritten() if due is Step.REPORT:
            return _finish_step(feature)
        case events.GateChecked() if due is Step.GATE:
            return _after_gate(feature, event)
        case events.Merged(commit) if due in (Step.MERGE, Step.AWAIT):
            return _finish_step(replace_fields(feature, merged=commit))
        case events.NotMerged(reason, remediation) if due in (Step.MERGE, Step.PUBLISH, Step.AWAIT):
            return _block(feature, reason, remediation)
        case events.SentBack() if due in (Step.MERGE, Step.PUBLISH, Step.AWAIT):
            return _after_sent_back(feature, event)
        case events.PullOpened(_, url, head) if due is Step.PUBLISH:
            return _finish_step(
                replace_fields(
                    _set_reason(feature, url + WAITING_AT_FORGE_SUFFIX),
                    pull=event,
                    judged=head,
                    unanswered=0,
                )
            )
        case events.RemarksReceived() if due is Step.AWAIT:
            return _after_remarks(feature, event)
        case events.Completed() if due is Step.CLEAN_UP:
            return replace_fields(
                feature, workflow=_expect_workflow(lifecycle.complete(feature.workflow)), todo=()
            )
        case _:
            return None


def _after_job(feature: Feature, ended: events.JobEnded, due: Step, commit: str) -> Feature:
    if ended.end is JobEndKind.DONE:
        return _after_answer(reset_retry_counters(feature), ended, due, commit)

    counted = count_retry(ended, feature, feature.limits)
    if counted is None:
        return _block(feature, *explain_give_up(ended, feature))

    after = replace_fields(feature, **counted)
    if ended.end is JobEndKind.LOST:
        return after

    return _set_reason(after, ended.reason)


def _after_answer(feature: Feature, ended: events.JobEnded, due: Step, commit: str) -> Feature:
    """A writer's PASS is no evidence, only its own doubt counts.

    What a critic or reviewer says is for the gate.
    """
    if due is Step.WRITE:
        if ended.verdict is not Verdict.NEEDS_REVISION:
            return _finish_step(feature)
        return _drop_step(
            _finish_step(replace_fields(feature, verdict=ended.verdict, report=ended.text)),
            Step.CRITICISE,
        )

    if due is Step.ARCHIVE:
        if ended.verdict is Verdict.PASS:
            return _finish_step(feature)

        again = feature.round < feature.last_round
        if ended.verdict is Verdict.NEEDS_CHANGES and again:
            return replace_fields(
                feature, archive_round=feature.archive_round + 1, findings=ended.text
            )

        return _block(
            feature, f"the archivist says {ended.verdict}", "read its answer, fix it, then resolve"
        )

    text = f"{feature.report}\n{ended.text}".strip()
    return _finish_step(replace_fields(feature, verdict=ended.verdict, report=text, judged=commit))


def _after_writing(feature: Feature, event: events.DocumentsWritten) -> Feature:
    """A writer that was told what is wrong and changed nothing: a critic would say the same again."""
    if event.unchanged:
        if feature.findings:
            asked = f"; it was to answer: {first_line(feature.findings)}"
        else:
            asked = ""

        remedy = f"read why (phasegate show {feature.phase.key} --answer), {_RETRY_HINT}"
        return replace_fields(_block(feature, f"the round changed nothing{asked}", remedy), todo=())

    after = _finish_step(replace_fields(feature, written=event.commit))
    if event.missing:
        return _drop_step(after, Step.CRITICISE)

    return after


def _after_plan(feature: Feature, event: events.PackagesPlanned) -> Feature:
    if event.problems or not event.packages:
        reasons = "; ".join(event.problems) or "the plan has no packages"
        return _block(
            feature,
            f"no packages can be made: {reasons}",
            "fix tasks.md on the feature's branch, then resolve",
        )

    fresh = dict.fromkeys(event.packages, PackageState.PLANNED)
    needs = {**feature.needs, **event.packages}
    after = _finish_step(
        replace_fields(feature, needs=needs, packages={**fresh, **feature.packages})
    )
    if _are_all_packages_done(after):
        return _finish_step(after)
    if waiting := _find_unstartable_packages(after):
        reason = f"{', '.join(waiting)} can never begin: a dependency cycle, or a dependency that is not a package"
        return _block(feature, reason, "fix the plan, then resolve")

    return after


def _find_unstartable_packages(feature: Feature) -> tuple[str, ...]:
    """The packages that wait for each other, or for what is no package."""
    placed = {name for wave in compute_waves(feature.needs) for name in wave}
    return tuple(sorted(feature.needs.keys() - placed))


def _after_package(feature: Feature, event: events.PackageEnded) -> Feature:
    if event.state not in _ENDED_STATES:
        return feature

    packages = {**feature.packages, event.package: event.state}
    if event.state is PackageState.BLOCKED:
        why = {event.package: event.reason}
    else:
        why = {}

    after = replace_fields(feature, packages=packages, blocked={**feature.blocked, **why})
    if _are_all_packages_done(after):
        return _finish_step(after)
    if list_workable_packages(after):
        return replace_fields(after, remediation=event.remediation or feature.remediation)

    reasons = (
        f"{name} ({reason})" if reason else name for name, reason in sorted(after.blocked.items())
    )
    return _block(after, f"blocked: {', '.join(reasons)}", event.remediation or feature.remediation)


def list_workable_packages(feature: Feature) -> tuple[str, ...]:
    """The packages that can be worked on: those in work, and those that wait for nothing more."""
    states = feature.packages
    can = find_ready_packages(
        {name: frozenset(waits) for name, waits in feature.needs.items()}, states
    )
    return tuple(
        name for name in sorted(states) if states[name] is PackageState.DOING or name in can
    )


def _are_all_packages_done(feature: Feature) -> bool:
    return all(state is PackageState.DONE for state in feature.packages.values())


def _after_commands(feature: Feature, event: events.CommandsRan) -> Feature:
    if not event.results and not feature.attested:
        remedy = (
            f'set commands = ["..."] in [phases."{feature.phase.key}"] of phasegate.toml, '
            "or say how it was checked: resolve"
        )
        stopped = _block(feature, f"{feature.phase.key} has no command to run", remedy)
        return replace_fields(stopped, asks_for_word=True)

    if not event.results:
        report = f"Attested by a person: {feature.attested}"
        return _drop_step(
            _finish_step(replace_fields(feature, commands={ATTESTATION: True}, report=report)),
            Step.REVIEW,
        )

    if event.lacking:
        remedy = "install it, then resolve: the commands are run again"
        return _block(feature, f"no agent can mend this: {'; '.join(event.lacking)}", remedy)

    after = _finish_step(
        replace_fields(
            feature, commands=event.results, report=event.findings, attested="", judged=event.commit
        )
    )
    if all(event.results.values()):
        return after

    return _drop_step(after, Step.REVIEW)


def _after_gate(feature: Feature, event: events.GateChecked) -> Feature:
    result = evaluate_phase_gate(feature, event)
    if feature.phase.work is PhaseWork.PLANNING or feature.can_fix:
        limit = feature.limits.revisions
    else:
        limit = 1

    workflow = _expect_workflow(lifecycle.apply_gate(feature.workflow, result, limit))
    findings = "\n\n".join(
        part for part in (event.findings, feature.report, *result.reasons) if part
    )
    if workflow.stage is Stage.BLOCKED:
        remedy = "read the findings, decide, then resolve"
    else:
        remedy = ""

    if workflow.stage is Stage.GATE_FAILED and event.alike and event.alike == feature.failed_as:
        reason = f"the gate failed in exactly the same way as in the round before: {first_line(findings)}"
        remedy = f"see what was tried (phasegate show {feature.phase.key} --answer, --evidence), {_RETRY_HINT}"
        workflow = _expect_workflow(lifecycle.escalate(workflow, reason))

    is_answered = workflow.stage is Stage.GATE_PASSED and workflow.index >= feature.said_at
    said = "" if is_answered else feature.said
    after = replace_fields(
        feature, workflow=workflow, todo=(), findings=findings, remediation=remedy, said=said
    )

    return replace_fields(
        after, failed_as=event.alike if workflow.stage is Stage.GATE_FAILED else ""
    )


def _after_remarks(feature: Feature, event: events.RemarksReceived) -> Feature:
    """Remarks of people at the forge are the findings of one more package.

    Then the pull request is brought up to date.

    Each package has its own checks and its own review, so the branch is judged again when it is
    published.
    """
    known = {one.id for one in feature.remarks}
    new = tuple(one for one in event.remarks if one.id not in known)
    if not new:
        return feature

    findings = "\n\n".join(one.finding for one in new)
    taken = replace_fields(
        _set_reason(feature, ""),
        remarks=(*feature.remarks, *new),
        unanswered=len(new),
        findings=findings,
    )

    if not feature.can_fix:
        return replace_fields(
            _block(taken, f"remarks at the pull request:\n{findings}", _NO_PACKAGES_HINT),
            todo=FORGE_STEPS,
        )

    return replace_fields(taken, todo=(*FIX_STEPS, *FORGE_STEPS), judged="")


def _after_sent_back(feature: Feature, event: events.SentBack) -> Feature:
    """The failing tests are the findings of one more package, once.

    The second time they are a person's.
    """
    if feature.sent_back or not feature.can_fix:
        return _block(feature, f"{event.reason}:\n{event.findings}", event.remediation)

    findings = f"{event.reason}:\n{event.findings}"
    # What changes is published anew
    rest = FORGE_STEPS if feature.todo[0] is Step.AWAIT else feature.todo

    return replace_fields(
        feature, sent_back=True, findings=findings, judged="", todo=(*FIX_STEPS, *rest)
    )


def evaluate_phase_gate(feature: Feature, event: events.GateChecked) -> GateResult:
    """The gate of the phase, from what this round brought."""
    checks = {**feature.commands, **event.checks}
    demanded = (*event.checks, *feature.commands)

    match feature.phase.work:
        case PhaseWork.PACKAGES:
            checks |= {name: state is PackageState.DONE for name, state in feature.packages.items()}
            demanded = (*event.checks, *(feature.packages or ("packages",)))
        case PhaseWork.COMMANDS:
            demanded = (*event.checks, *(feature.commands or ("commands",)))

    attested = feature.commands.get(ATTESTATION) is True
    demands = GateDemands(
        feature.phase.artifacts,
        demanded,
        feature.phase.work is not PhaseWork.PACKAGES and not attested,
    )

    return evaluate_gate(demands, GateEvidence(frozenset(event.artifacts), checks, feature.verdict))


def _block(feature: Feature, reason: str, remediation: str) -> Feature:
    blocked = _expect_workflow(
        lifecycle.escalate(feature.workflow, reason or "the reason is unknown")
    )
    remedy = remediation or "see the log, then resolve"
    return reset_retry_counters(replace_fields(feature, workflow=blocked, remediation=remedy))


def _expect_workflow(step: lifecycle.WorkflowOrRefusal) -> Workflow:
    """The step of a workflow that is known to be possible here."""
    if isinstance(step, Refusal):
        raise AssertionError(step.reason)
    return step


def _finish_step(feature: Feature) -> Feature:
    return replace_fields(feature, todo=feature.todo[1:])


def _drop_step(feature: Feature, step: Step) -> Feature:
    return replace_fields(feature, todo=tuple(one for one in feature.todo if one is not step))


def _set_reason(feature: Feature, reason: str) -> Feature:
    return replace_fields(
        feature, workflow=msgspec.structs.replace(feature.workflow, reason=reason)
    )
