"""Results of feature steps: each event is applied only while its step is due.

No event carries the outcome of a gate. The gate is evaluated here, from the evidence of the round,
so that no sequence of events passes a gate without its evidence.
"""

from __future__ import annotations

import msgspec

from phasegate.core.answer.prose import find_minor_findings
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
from phasegate.core.machine.package_events import JobEndKind, first_finding, first_line
from phasegate.core.machine.retry import count_retry, explain_give_up
from phasegate.core.machine.wait_reasons import WAITING_AT_FORGE_SUFFIX
from phasegate.core.plan.dependencies import compute_waves, find_ready_packages, number_key
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow import phase_transitions
from phasegate.core.workflow.gate import GateEvidence, GateRequirements, GateResult, evaluate_gate
from phasegate.core.workflow.phase_transitions import Refusal, Stage, Workflow
from phasegate.core.workflow.phases import PhaseWork

_ENDED_STATES = (PackageState.DONE, PackageState.BLOCKED)
# The other states are of unfinished packages
_PACKAGE_RESULTS = {PackageState.DONE: True, PackageState.BLOCKED: False}
_RETRY_HINT = (
    "then fix the documents or the check on the feature's branch, "
    'or add instructions: phasegate resolve "what to do"'
)
_NO_PACKAGES_HINT = (
    "this workflow has no work packages: change the feature's branch yourself, then resolve"
)


def apply_outcome(feature: Feature, event: events.AnyFeatureEvent) -> Feature | None:  # noqa: C901 - one case per event
    """Apply the result of the current step, or return None if the event does not belong to it."""
    due = feature.todo[0] if feature.todo else Step.STOP

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
            return _after_scope_violation(feature, violations)
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
        case events.ReviewWaived() if due is Step.REVIEW:
            return _after_waived_review(feature, event)
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
                    pull_wait=None,
                    evaluated_commit=head,
                    unanswered=0,
                )
            )
        case events.PullWaits(reason) if due is Step.AWAIT and feature.pull is not None:
            published = f"{feature.pull.url}{WAITING_AT_FORGE_SUFFIX}"
            return replace_fields(_set_reason(feature, f"{reason}; {published}"), pull_wait=event)
        case events.RemarksReceived() if due is Step.AWAIT:
            return _after_remarks(feature, event)
        case events.Completed() if due is Step.CLEAN_UP:
            return replace_fields(
                feature,
                workflow=_expect_workflow(phase_transitions.complete(feature.workflow)),
                todo=(),
            )
        case _:
            return None


def _after_scope_violation(feature: Feature, violations: tuple[str, ...]) -> Feature:
    """Block the feature; once resolved, the writer starts again."""
    remedy = "check the job's log to see what it wrote, then resolve: the job is started again"
    blocked = _block(feature, f"File scope violation: {'; '.join(violations)}", remedy)

    if not feature.closing:
        steps = STEPS_BY_WORK[PhaseWork.PLANNING]
    elif Step.MERGE in feature.todo:
        steps = CLOSING_STEPS
    else:
        steps = FORGE_CLOSING_STEPS

    return replace_fields(blocked, todo=steps, verdict=None, report="")


def _after_job(feature: Feature, ended: events.JobEnded, due: Step, commit: str) -> Feature:
    """Continue after an agent run: use its answer, retry, or block."""
    if ended.end is JobEndKind.DONE:
        return _after_answer(reset_retry_counters(feature), ended, due, commit)

    counters = count_retry(ended, feature, feature.limits)
    if counters is None:
        return _block(feature, *explain_give_up(ended, feature))

    after = replace_fields(feature, **counters)
    if ended.end is JobEndKind.UNREADABLE:
        after = replace_fields(after, last_answer=ended.text)
    if ended.end is JobEndKind.LOST:
        return after

    return _set_reason(after, ended.reason)


def _after_answer(feature: Feature, ended: events.JobEnded, due: Step, commit: str) -> Feature:
    """Apply the verdict of a job that was completed.

    A writer's own PASS is not evidence; only its NEEDS_REVISION counts. Verdicts of critics and
    reviewers are evidence for the gate.
    """
    if due is Step.WRITE:
        feature = replace_fields(feature, replies=ended.text)
        if ended.verdict is not Verdict.NEEDS_REVISION:
            return _finish_step(feature)
        return _drop_step(
            _finish_step(replace_fields(feature, verdict=ended.verdict, report=ended.text)),
            Step.CRITICISE,
        )

    if due is Step.ARCHIVE:
        if ended.verdict is Verdict.PASS:
            return _finish_step(feature)

        if ended.verdict is Verdict.NEEDS_CHANGES and feature.round < feature.last_round:
            return replace_fields(
                feature, archive_round=feature.archive_round + 1, findings=ended.text
            )

        return _block(
            feature,
            f"the archivist's verdict is {ended.verdict}",
            "read its answer, fix it, then resolve",
        )

    text = f"{feature.report}\n{ended.text}".strip()
    return _finish_step(
        replace_fields(feature, verdict=ended.verdict, report=text, evaluated_commit=commit)
    )


def _after_writing(feature: Feature, event: events.DocumentsWritten) -> Feature:
    """Continue with the critic, unless documents are missing.

    A writer that had findings to address and changed nothing blocks the feature: a critic would
    only repeat them.
    """
    if event.unchanged:
        if feature.findings:
            open_findings = f"; findings to address: {first_line(feature.findings)}"
        else:
            open_findings = ""

        remedy = f"read the answer (phasegate show {feature.phase.key} --answer), {_RETRY_HINT}"
        blocked = _block(feature, f"the round changed nothing{open_findings}", remedy)
        return replace_fields(blocked, todo=())

    after = _finish_step(replace_fields(feature, written_commit=event.commit))
    if event.missing:
        return _drop_step(after, Step.CRITICISE)

    return after


def _after_plan(feature: Feature, event: events.PackagesPlanned) -> Feature:
    """Add the planned packages; block if the plan has problems or none."""
    if event.problems or not event.packages:
        reasons = "; ".join(event.problems) or "the plan has no packages"
        return _block(
            feature,
            f"no packages can be planned: {reasons}",
            "fix tasks.md on the feature's branch, then resolve",
        )

    planned = dict.fromkeys(event.packages, PackageState.PLANNED)
    after = _finish_step(
        replace_fields(
            feature,
            needs={**feature.needs, **event.packages},
            packages={**planned, **feature.packages},
        )
    )
    if _are_all_packages_done(after):
        return _finish_step(after)

    if unstartable := _find_unstartable_packages(after):
        reason = (
            f"{', '.join(unstartable)} can never start: "
            "a dependency cycle, or a dependency that is not a package"
        )
        return _block(feature, reason, "fix the plan, then resolve")

    return after


def _find_unstartable_packages(feature: Feature) -> tuple[str, ...]:
    """Return packages that depend on each other in a cycle, or on an unknown package."""
    startable = {name for wave in compute_waves(feature.needs) for name in wave}
    return tuple(sorted(feature.needs.keys() - startable))


def _after_package(feature: Feature, event: events.PackageEnded) -> Feature:
    """Store a package's end; finish the step when all packages are done."""
    if event.state not in _ENDED_STATES:
        return feature

    packages = {**feature.packages, event.package: event.state}
    if event.state is PackageState.BLOCKED:
        why = {event.package: event.reason}
    else:
        why = {}

    reviewed = {**feature.reviewed_commits}
    if event.state is PackageState.DONE and event.commit:
        reviewed[event.package] = event.commit

    after = replace_fields(
        feature,
        packages=packages,
        blocked={**feature.blocked, **why},
        reviewed_commits=reviewed,
    )
    if _are_all_packages_done(after):
        return _finish_step(after)
    if list_workable_packages(after):
        return replace_fields(after, remediation=event.remediation or feature.remediation)

    reasons = (
        f"{name} ({reason})" if reason else name for name, reason in sorted(after.blocked.items())
    )
    return _block(after, f"blocked: {', '.join(reasons)}", event.remediation or feature.remediation)


def list_workable_packages(feature: Feature) -> tuple[str, ...]:
    """Return the packages in progress and those whose dependencies are all done."""
    states = feature.packages
    needs = {name: frozenset(others) for name, others in feature.needs.items()}
    ready = find_ready_packages(needs, states)
    return tuple(
        name
        for name in sorted(states, key=number_key)
        if states[name] is PackageState.DOING or name in ready
    )


def _are_all_packages_done(feature: Feature) -> bool:
    return all(state is PackageState.DONE for state in feature.packages.values())


def _after_waived_review(feature: Feature, event: events.ReviewWaived) -> Feature | None:
    """Skip the code review of the whole feature; only if its one package was reviewed."""
    if feature.phase.work is not PhaseWork.REVIEW or feature.open_job is not None:
        return None
    if not event.package or event.package != feature.sole_reviewed_package:
        return None

    report = (
        f"The review of {event.package} covers the whole feature: it is the only package, "
        f"and no code was added since its review of {feature.reviewed_commits[event.package][:12]}."
    )
    return _finish_step(
        replace_fields(feature, is_review_waived=True, evaluated_commit=event.commit, report=report)
    )


def _after_commands(feature: Feature, event: events.CommandsRan) -> Feature:
    """Continue after a phase's commands: pass, ask for attestation, fix or block."""
    if not event.results and not feature.attested:
        remedy = (
            f'set commands = ["..."] in [phases."{feature.phase.key}"] of phasegate.toml, '
            'or describe how it was checked: phasegate resolve "how"'
        )
        blocked = _block(feature, f"{feature.phase.key} has no command to run", remedy)
        return replace_fields(blocked, awaits_attestation=True)

    if not event.results:
        report = f"Attested by the user: {feature.attested}"
        return _drop_step(
            _finish_step(replace_fields(feature, commands={ATTESTATION: True}, report=report)),
            Step.REVIEW,
        )

    if event.lacking:
        remedy = "install it, then resolve: the commands are run again"
        return _block(feature, f"no agent can fix this: {'; '.join(event.lacking)}", remedy)

    is_waived = feature.fits_size and not event.needs_review and all(event.results.values())
    after = _finish_step(
        replace_fields(
            feature,
            commands=event.results,
            report=event.findings,
            attested="",
            evaluated_commit=event.commit,
            is_review_waived=is_waived,
        )
    )
    if all(event.results.values()) and not is_waived:
        return after

    return _drop_step(after, Step.REVIEW)


def _after_gate(feature: Feature, event: events.GateChecked) -> Feature:
    """Apply the gate: pass the phase, start another round, or block."""
    result = evaluate_phase_gate(feature, event)
    if feature.phase.work is PhaseWork.PLANNING or feature.can_fix:
        limit = feature.limits.revisions
    else:
        limit = 1

    workflow = _expect_workflow(phase_transitions.apply_gate(feature.workflow, result, limit))
    findings = "\n\n".join(
        part for part in (event.findings, _select_objections(feature), *result.reasons) if part
    )
    if workflow.stage is not Stage.GATE_PASSED:
        parts = (workflow.reason, find_gate_finding(feature, event))
        reason = "; ".join(part for part in parts if part)
        workflow = msgspec.structs.replace(workflow, reason=reason)

    remedy = ""
    if workflow.stage is Stage.BLOCKED:
        remedy = (
            f"decide on the findings (phasegate show {feature.phase.key} --evidence), then resolve"
        )

    if (
        workflow.stage is Stage.GATE_FAILED
        and event.alike
        and event.alike == feature.previous_failure_key
    ):
        reason = (
            "the gate failed in exactly the same way as in the previous round: "
            f"{first_line(findings)}"
        )
        remedy = f"see what was tried (phasegate show {feature.phase.key} --answer), {_RETRY_HINT}"
        workflow = _expect_workflow(phase_transitions.escalate(workflow, reason))

    is_answered = workflow.stage is Stage.GATE_PASSED and workflow.index >= feature.user_notes_index
    return replace_fields(
        feature,
        workflow=workflow,
        todo=(),
        findings=findings,
        previous_commit=feature.evaluated_commit,
        remediation=remedy,
        user_notes="" if is_answered else feature.user_notes,
        previous_failure_key=event.alike if workflow.stage is Stage.GATE_FAILED else "",
    )


def _after_remarks(feature: Feature, event: events.RemarksReceived) -> Feature:
    """Turn new remarks of reviewers into one more package, then update the pull request.

    Each package has its own checks and its own review, so `evaluated_commit` is reset: the branch
    is evaluated again when it is published.
    """
    known = {remark.id for remark in feature.remarks}
    new = tuple(remark for remark in event.remarks if remark.id not in known)
    if not new:
        return feature

    findings = "\n\n".join(remark.finding for remark in new)
    accepted = replace_fields(
        _set_reason(feature, ""),
        remarks=(*feature.remarks, *new),
        unanswered=len(new),
        findings=findings,
        remark_rounds=feature.remark_rounds + 1,
    )

    if not feature.can_fix:
        return replace_fields(
            _block(accepted, f"remarks on the pull request:\n{findings}", _NO_PACKAGES_HINT),
            todo=FORGE_STEPS,
        )

    return replace_fields(accepted, todo=(*FIX_STEPS, *FORGE_STEPS), evaluated_commit="")


def _after_sent_back(feature: Feature, event: events.SentBack) -> Feature:
    """Turn the failing tests into one more package; block the feature the second time."""
    if feature.sent_back or not feature.can_fix:
        return _block(feature, f"{event.reason}:\n{event.findings}", event.remediation)

    findings = f"{event.reason}:\n{event.findings}"
    # The fix has to be published again
    remaining = FORGE_STEPS if feature.todo[0] is Step.AWAIT else feature.todo

    return replace_fields(
        feature,
        sent_back=True,
        findings=findings,
        evaluated_commit="",
        todo=(*FIX_STEPS, *remaining),
    )


def _select_objections(feature: Feature) -> str:
    """Return the report of the round's critic or reviewer, or an empty text if it only approves."""
    is_approval = feature.verdict is Verdict.PASS and not find_minor_findings(feature.report)
    if is_approval and feature.phase.work is not PhaseWork.COMMANDS:
        return ""
    return feature.report


def find_gate_finding(feature: Feature, event: events.GateChecked) -> str:
    """Return the first finding for a failed gate: of our checks, else of the critic."""
    findings = event.findings
    if not findings and feature.verdict is not Verdict.PASS:
        findings = feature.report
    return first_finding(findings)


def evaluate_phase_gate(feature: Feature, event: events.GateChecked) -> GateResult:
    """Evaluate the gate of the phase from the evidence of this round."""
    checks: dict[str, bool | None] = {**feature.commands, **event.checks}
    required = (*event.checks, *feature.commands)

    match feature.phase.work:
        case PhaseWork.PACKAGES:
            checks |= {
                name: _PACKAGE_RESULTS.get(state) for name, state in feature.packages.items()
            }
            required = (*event.checks, *(feature.packages or ("packages",)))
        case PhaseWork.COMMANDS:
            required = (*event.checks, *(feature.commands or ("commands",)))

    is_attested = feature.commands.get(ATTESTATION) is True
    is_decided = is_attested or feature.is_review_waived
    demands = GateRequirements(
        artifacts=feature.phase.artifacts,
        commands=required,
        verdict=feature.phase.work is not PhaseWork.PACKAGES and not is_decided,
    )
    evidence = GateEvidence(
        artifacts=frozenset(event.artifacts), commands=checks, verdict=feature.verdict
    )

    return evaluate_gate(demands, evidence)


def _block(feature: Feature, reason: str, remediation: str) -> Feature:
    blocked = _expect_workflow(
        phase_transitions.escalate(feature.workflow, reason or "the reason is unknown")
    )
    remedy = remediation or "see the log, then resolve"
    return reset_retry_counters(replace_fields(feature, workflow=blocked, remediation=remedy))


def _expect_workflow(step: phase_transitions.WorkflowOrRefusal) -> Workflow:
    """Return the workflow of a transition that cannot be refused at this point."""
    if isinstance(step, Refusal):
        raise AssertionError(step.reason)
    return step


def _finish_step(feature: Feature) -> Feature:
    return replace_fields(feature, todo=feature.todo[1:])


def _drop_step(feature: Feature, step: Step) -> Feature:
    return replace_fields(feature, todo=tuple(other for other in feature.todo if other is not step))


def _set_reason(feature: Feature, reason: str) -> Feature:
    return replace_fields(
        feature, workflow=msgspec.structs.replace(feature.workflow, reason=reason)
    )
