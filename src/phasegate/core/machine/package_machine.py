"""State machine of a work package, from PLANNED to DONE or BLOCKED.

`decide_package_actions` returns the next actions; `apply_package_event` folds an event into the
state. Both are pure. The dispatcher runs the actions, records the resulting events and decides
again. After a crash it folds the recorded events and continues.

Agents of one package work in parallel; each has its own part and its own retries. No event of an
agent leads to DONE. That takes a harvest within scope, a passed manifest, a PASS of the reviewer
and a merge, in this order, in one round.

In a contest, several agents implement the whole package, each in its own checkout. Each attempt is
harvested and checked; the reviewer compares those that passed; the best one becomes the work of the
package, which then continues as without a contest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from phasegate.core.answer.vocabulary import TaskStatus, Verdict
from phasegate.core.machine import package_events as events
from phasegate.core.machine.package_events import first_line
from phasegate.core.machine.package_state import (
    AGENT_STEPS,
    PACKAGE_FORGE_STEPS,
    Attempt,
    Blocker,
    Contest,
    PackageAction,
    PackageRun,
    PackageStep,
    PendingWork,
)
from phasegate.core.machine.retry import count_retry, explain_give_up
from phasegate.core.plan.work_package import PackageState

_UNANSWERED = "the review passed without an answer to"
_RETRY_HINT = (
    "then fix the package, its plan or the check, "
    'or add instructions: phasegate resolve "what to do"'
)


def decide_package_actions(run: PackageRun) -> tuple[PackageAction, ...]:
    """Return the next actions. Several can run in parallel; none means to wait for open jobs."""
    if run.step not in AGENT_STEPS:
        return (PackageAction(run.step, run.round),)

    busy = {job.agent_index for job in run.open_jobs}
    return tuple(
        PackageAction(run.step, run.round, work)
        for work in run.pending
        if work.agent_index not in busy
    )


def fold_package_events(
    recorded: Iterable[events.AnyPackageEvent], limits: events.PackageLimits
) -> PackageRun:
    """Return the state of a package run after these events."""
    run = PackageRun(limits=limits)
    for event in recorded:
        run = apply_package_event(run, event)
    return run


def apply_package_event(run: PackageRun, event: events.AnyPackageEvent) -> PackageRun:  # noqa: C901 - one case per event
    """Fold one event into the run.

    An event that is not possible now changes nothing: the journal may contain late ones.
    """
    match event:
        case events.PackagePrepared() if run.step is PackageStep.PREPARE:
            return _after_preparation(run, event)
        case events.PackageJobStarted() if _is_pending_job(run, event):
            return replace(run, open_jobs=(*run.open_jobs, event))
        case events.PackageJobEnded():
            return _after_job(run, event)
        case events.Harvested() if run.step is PackageStep.HARVEST:
            return _after_harvest(run, event)
        case events.Validated() if run.step is PackageStep.VALIDATE and event.commit == run.commit:
            return _after_checks(run, event)
        case events.AttemptChecked() if run.step is PackageStep.CHECK_ATTEMPT:
            return _after_attempt_check(run, event)
        case events.AttemptsCompared() if run.step is PackageStep.COMPARE and not run.open_jobs:
            return _after_comparison(run, event.best)
        case events.AttemptSelected() if (
            run.step is PackageStep.SELECT_ATTEMPT and event.attempt == run.contest.selected
        ):
            return _after_selection(run)
        case events.Reviewed() if run.step is PackageStep.REVIEW and not run.open_jobs:
            return _after_review(run, event)
        case events.PackagePublished() if (
            run.step is PackageStep.PUBLISH and event.commit == run.commit
        ):
            return _after_publication(run, event)
        case events.PackageRemarksReceived(remarks) if run.step is PackageStep.AWAIT:
            return _after_remarks(run, remarks)
        case events.PackagePullWaits() if run.step is PackageStep.AWAIT:
            return replace(run, pull_request=replace(run.pull_request, wait=event))
        case events.PackageHeld() if run.step in PACKAGE_FORGE_STEPS:
            return _block(run, event.reason, event.remediation, is_held=True)
        case events.PackageMerged() if run.step in (PackageStep.MERGE, PackageStep.AWAIT):
            return replace(run, state=PackageState.DONE, step=PackageStep.CLEAN)
        case events.PackageNotMerged() if run.step in (PackageStep.MERGE, PackageStep.AWAIT):
            return _after_failed_merge(run, event.reason)
        case events.CheckoutsRemoved() if run.step is PackageStep.CLEAN:
            return replace(run, step=PackageStep.STOP)
        case events.PackageResolved() if run.state is PackageState.BLOCKED:
            return _resolve_blocker(run, event)
        case _:
            return run


def _after_preparation(run: PackageRun, prepared: events.PackagePrepared) -> PackageRun:
    """Start the first round, or choose among the attempts that were kept."""
    run = replace(
        run,
        state=PackageState.DOING,
        review=replace(run.review, delta_is_final=prepared.delta_is_final),
        pull_request=replace(run.pull_request, is_used=prepared.at_forge),
    )

    # Attempts that were kept when a blocker was resolved
    if run.contest.attempts:
        return _choose_attempt(run)

    return _start_round(replace(run, contest=Contest(entrants=prepared.entrants)))


def _start_round(run: PackageRun) -> PackageRun:
    """Start a round: each agent has to deliver its part, or its attempt at the whole."""
    agents = len(run.contest.entrants) or run.limits.agents
    return replace(
        run,
        state=PackageState.DOING,
        step=PackageStep.IMPLEMENT,
        pending=tuple(PendingWork(index) for index in range(agents)),
        replies="",
        reported_failed_tasks=(),
        review=replace(run.review, needs_full=False),
    )


def _next_round(run: PackageRun, findings: str, failure_key: str = "") -> PackageRun:
    """Start another round with these findings, or block the package if that would be futile."""
    run = replace(run, findings=findings)
    if failure_key and failure_key == run.previous.failure_key:
        return _block(
            run,
            f"the round failed in exactly the same way as the one before: {first_line(findings)}",
            f"see what was tried (phasegate show WPnn --evidence), {_RETRY_HINT}",
        )

    previous = replace(run.previous, commit=run.commit, failure_key=failure_key)
    run = replace(run, previous=previous)
    if run.round >= run.last_round:
        return _block(
            run,
            f"all {run.limits.rounds} review cycles are used up; "
            f"the last finding: {first_line(findings)}",
            "see `.phasegate/evidence` for the check results; fix the package or its plan",
        )

    return _start_round(replace(run, round=run.round + 1))


def _block(run: PackageRun, reason: str, remediation: str, *, is_held: bool = False) -> PackageRun:
    blocker = Blocker(
        reason=reason,
        remediation=remediation or "see the log: phasegate audit show",
        is_held=is_held,
    )
    return replace(run, state=PackageState.BLOCKED, step=PackageStep.STOP, blocker=blocker)


def _resolve_blocker(run: PackageRun, event: events.PackageResolved) -> PackageRun:
    """Publish a held package again; start any other one from its preparation, in a new round.

    Finished work whose files are allowed now is collected as it is.
    """
    if run.blocker.is_scope and event.takes_work and not run.contest.entrants:
        return replace(
            run, state=PackageState.DOING, step=PackageStep.HARVEST, blocker=Blocker(), findings=""
        )
    if run.blocker.is_held:
        return replace(run, state=PackageState.DOING, step=PackageStep.PUBLISH, blocker=Blocker())

    # Attempts that passed are not repeated: they are compared after the preparation
    contest = Contest()
    if run.contest.candidates:
        contest = Contest(entrants=run.contest.entrants, attempts=run.contest.attempts)

    return PackageRun(
        limits=run.limits,
        round=run.round + 1,
        rounds_before=run.round,
        resolved_blocker=run.blocker.reason,
        commit=run.commit,
        findings=run.findings,
        tasks=run.tasks,
        contest=contest,
        winning_agent=run.winning_agent,
        pull_request=run.pull_request,
    )


def _is_pending_job(run: PackageRun, started: events.PackageJobStarted) -> bool:
    """Return whether a job is for pending work that no other job is doing."""
    wanted = {
        (str(action.step), action.pending.agent_index) for action in decide_package_actions(run)
    }
    return (started.role, started.agent_index) in wanted and started.role in AGENT_STEPS


def _after_job(run: PackageRun, ended: events.PackageJobEnded) -> PackageRun:
    """Close a job. Its result counts only while its step lasts; a blocked package stays blocked."""
    job = next((job for job in run.open_jobs if job.job == ended.job), None)
    if job is None:
        return run

    run = replace(run, open_jobs=tuple(other for other in run.open_jobs if other is not job))
    if not run.contest.entrants:
        run = _record_tasks(run, ended.tasks)

    work = next((work for work in run.pending if work.agent_index == job.agent_index), None)
    if work is None or run.step != job.role:
        return run
    if ended.end is events.JobEndKind.DONE:
        return _after_delivery(run, work, ended)

    counters = count_retry(ended, work, run.limits)
    if counters is None:
        return _after_give_up(run, work, *explain_give_up(ended, work))

    retried = replace(work, **counters)
    if ended.end is not events.JobEndKind.LOST:
        retried = replace(retried, reason=ended.reason, answer=ended.answer or work.answer)
    pending = tuple(retried if other is work else other for other in run.pending)
    return replace(run, pending=pending)


def _record_tasks(run: PackageRun, tasks: tuple[tuple[str, TaskStatus], ...]) -> PackageRun:
    failed = [name for name, status in tasks if status is TaskStatus.FAILED]
    return replace(
        run,
        tasks=tuple(dict((*run.tasks, *tasks)).items()),
        reported_failed_tasks=tuple(dict.fromkeys((*run.reported_failed_tasks, *failed))),
    )


def _after_delivery(
    run: PackageRun, work: PendingWork, ended: events.PackageJobEnded
) -> PackageRun:
    """Remove delivered work; harvest when nothing is pending.

    The answer of a reviewer is applied by the next event, in the same recorded step.
    """
    if run.step is not PackageStep.IMPLEMENT:
        return run
    if run.contest.entrants:
        return _add_attempt(run, Attempt(work.agent_index, tasks=ended.tasks))

    pending = tuple(other for other in run.pending if other is not work)
    run = replace(run, replies=f"{run.replies}\n\n{ended.answer}".strip())
    return replace(run, pending=pending, step=run.step if pending else PackageStep.HARVEST)


def _after_give_up(run: PackageRun, work: PendingWork, reason: str, remediation: str) -> PackageRun:
    """Block the package, unless other agents of a contest can still deliver."""
    if not run.contest.entrants or run.step is not PackageStep.IMPLEMENT:
        return _block(run, reason, remediation)

    after = _add_attempt(run, Attempt(work.agent_index, failure=reason))
    if after.pending or any(not attempt.failure for attempt in after.contest.attempts):
        return after

    after = replace(after, contest=replace(after.contest, attempts=()))
    return _block(after, f"every attempt failed: {reason}", remediation)


def _add_attempt(run: PackageRun, attempt: Attempt) -> PackageRun:
    """Add an ended attempt; check all of them when the last one has ended."""
    pending = tuple(work for work in run.pending if work.agent_index != attempt.number)
    attempts = sorted((*run.contest.attempts, attempt), key=lambda other: other.number)
    return replace(
        run,
        pending=pending,
        contest=replace(run.contest, attempts=tuple(attempts)),
        step=run.step if pending else PackageStep.CHECK_ATTEMPT,
    )


def find_unchecked_attempt(run: PackageRun) -> Attempt | None:
    """Return the attempt to check next."""
    return next((attempt for attempt in run.contest.attempts if not attempt.is_checked), None)


def _after_attempt_check(run: PackageRun, checked: events.AttemptChecked) -> PackageRun:
    """Store the checks of an attempt of the contest."""
    numbers = [attempt.number for attempt in run.contest.attempts if not attempt.is_checked]
    if checked.attempt not in numbers:
        return run

    harvested = checked.harvested
    validated = checked.validated
    if harvested.violations or harvested.leaks:
        validated = None
    # Checks of another commit say nothing about this one
    if validated is not None and validated.commit != harvested.commit:
        validated = None

    attempts = tuple(
        replace(attempt, harvested=harvested, validated=validated)
        if attempt.number == checked.attempt
        else attempt
        for attempt in run.contest.attempts
    )
    run = replace(run, contest=replace(run.contest, attempts=attempts))
    if find_unchecked_attempt(run):
        return run

    return _choose_attempt(run)


def _choose_attempt(run: PackageRun) -> PackageRun:
    """Compare the attempts that passed; if one or none did, select the best by rank."""
    if len(run.contest.candidates) > 1:
        return replace(run, step=PackageStep.COMPARE, pending=(PendingWork(),))
    best = min(run.contest.attempts, key=lambda attempt: attempt.rank)
    return _select_attempt(run, best.number)


def _after_comparison(run: PackageRun, best: int) -> PackageRun:
    if all(attempt.number != best for attempt in run.contest.candidates.values()):
        return run
    return _select_attempt(run, best)


def _select_attempt(run: PackageRun, number: int) -> PackageRun:
    contest = replace(run.contest, selected=number)
    return replace(run, step=PackageStep.SELECT_ATTEMPT, contest=contest)


def _after_selection(run: PackageRun) -> PackageRun:
    """Make the selected attempt the work of the package, and continue with its harvest."""
    contest = run.contest
    best = next(attempt for attempt in contest.attempts if attempt.number == contest.selected)
    failed = tuple(name for name, status in best.tasks if status is TaskStatus.FAILED)
    return replace(
        run,
        step=PackageStep.HARVEST,
        tasks=best.tasks,
        reported_failed_tasks=failed,
        winning_agent=contest.entrants[contest.selected],
        contest=Contest(),
    )


def _after_harvest(run: PackageRun, harvested: events.Harvested) -> PackageRun:
    """Continue after collecting changes: block on a leak or violation, else check."""
    if harvested.leaks:
        reason = f"its changes contain a secret of the agent: {'; '.join(harvested.leaks)}"
        return _block(
            replace(run, findings=f"{reason}\nDo not write the key in any form. Start again."),
            reason,
            "revoke the key and set a new one; the checkout is created again, "
            "and its content is saved without the key",
        )

    if harvested.violations:
        reason = f"File scope violation: {'; '.join(harvested.violations)}"
        remedy = harvested.remedy or (
            'allow the path (phasegate scope allow WPnn PATH --reason "...") '
            "or remove it from the checkout"
        )
        blocked = _block(
            replace(run, findings=f"{reason}\nStay within the file scope as it is now."),
            reason,
            remedy,
        )
        return replace(blocked, blocker=replace(blocked.blocker, is_scope=True))

    if harvested.unchanged:
        return _block_unchanged(run, harvested.there)

    if not harvested.commit:
        if harvested.there:
            return _next_round(run, f"nothing was changed: unchanged: {', '.join(harvested.there)}")
        return _next_round(run, "nothing was changed: the deliverables are missing")

    documents = (harvested.remarks,) if harvested.remarks else ()
    return replace(
        run,
        step=PackageStep.VALIDATE,
        commit=harvested.commit,
        review=replace(run.review, documents=documents),
    )


def _block_unchanged(run: PackageRun, existing: tuple[str, ...]) -> PackageRun:
    """Block after a round that changed nothing: another one would cost the same, to no effect."""
    reason = "the round changed nothing"
    if run.findings:
        reason += f"; findings to address: {first_line(run.findings)}"
    if existing:
        reason += f"; unchanged: {', '.join(existing)}"

    return _block(run, reason, f"read the answer (phasegate show WPnn --answer), {_RETRY_HINT}")


def _after_checks(run: PackageRun, checked: events.Validated) -> PackageRun:
    """Continue after the checks: fix failures, publish, or start the review."""
    if checked.failures:
        return _after_failed_checks(run, checked)

    documents = (checked.evidence, *run.review.documents, checked.claims)
    documents = tuple(document for document in documents if document)
    review = replace(run.review, documents=documents, questions=checked.questions)
    run = replace(run, review=review)
    if run.pull_request.is_used:
        return replace(run, step=PackageStep.PUBLISH)

    return _start_review(run)


def _start_review(run: PackageRun) -> PackageRun:
    return replace(
        run, state=PackageState.FOR_REVIEW, step=PackageStep.REVIEW, pending=(PendingWork(),)
    )


def _after_failed_checks(run: PackageRun, checked: events.Validated) -> PackageRun:
    """Start another round, unless a program is missing for the second time.

    The agent already knew that it was missing, so more rounds would only cost.
    """
    if checked.governance:
        return _block(
            replace(run, findings="\n".join(checked.failures)),
            "; ".join(checked.governance),
            'permit it (phasegate scope allow WPnn dependency:NAME or PATH --reason "..."), '
            "or have it undone; then resolve",
        )

    still_missing = {*checked.without_program} & {*run.previous.without_program}
    findings = "\n".join(checked.failures)
    run = replace(run, previous=replace(run.previous, without_program=checked.without_program))

    missing_lines = [
        failure.partition("\n")[0]
        for failure in checked.failures
        if failure.partition(":")[0] in still_missing
    ]
    if missing_lines:
        return _block(
            replace(run, findings=findings),
            f"{'; '.join(missing_lines)}, again in this round",
            "install it, or change setup or the command",
        )

    return _next_round(run, findings, checked.alike)


def _after_review(run: PackageRun, reviewed: events.Reviewed) -> PackageRun:
    """Continue after a review: finish, review in full, or start another round."""
    run = replace(run, review=replace(run.review, reviewed_commit=run.commit))

    if reviewed.verdict is Verdict.PASS:
        if unanswered := find_unanswered(run.review.questions, reviewed.findings):
            return _ask_reviewer_again(run, unanswered)

        if reviewed.delta and not run.review.delta_is_final:
            review = replace(run.review, needs_full=True)
            return replace(run, review=review, pending=(PendingWork(),))

        review = replace(run.review, passed_commit=run.commit)
        step = PackageStep.AWAIT if run.pull_request.is_used else PackageStep.MERGE
        return replace(run, review=review, step=step)

    review = replace(run.review, findings=(*run.review.findings, reviewed.findings))
    run = replace(run, review=review)
    if reviewed.verdict is Verdict.NEEDS_CHANGES:
        return _next_round(run, reviewed.findings, reviewed.alike)

    reason = f"the reviewer's verdict is {reviewed.verdict}"
    return _block(
        replace(run, findings=reviewed.findings),
        "; ".join(text for text in (reason, events.first_finding(reviewed.findings)) if text),
        "decide on the findings (phasegate show WPnn --answer), then resolve",
    )


def find_unanswered(questions: tuple[str, ...], answer: str) -> list[str]:
    """Return the findings that a review does not answer: their id with some words after it."""
    return [
        question
        for question in questions
        if not re.search(rf"{re.escape(question.partition(' ')[0])}\W{{1,4}}\w[^\n]{{9,}}", answer)
    ]


def _ask_reviewer_again(run: PackageRun, unanswered: list[str]) -> PackageRun:
    """Ask for the answers once more; a second review without them blocks the package."""
    ids = ", ".join(question.partition(" ")[0] for question in unanswered)
    reason = f"{_UNANSWERED} {ids}"
    if any(work.reason.startswith(_UNANSWERED) for work in run.pending):
        return _block(
            replace(run, findings="\n".join(unanswered)),
            f"{reason}: {first_line(unanswered[0])}",
            "see `phasegate show WPnn --evidence`; accept a finding with "
            f'`phasegate evidence accept WPnn ID --reason "..."`, {_RETRY_HINT}',
        )

    return replace(run, pending=(PendingWork(asked_again=True, reason=reason),))


def _after_publication(run: PackageRun, published: events.PackagePublished) -> PackageRun:
    """Continue with the review, or wait for the merge if this commit has already passed it."""
    pull_request = replace(run.pull_request, published=published, unanswered=0, wait=None)
    run = _start_review(replace(run, pull_request=pull_request))
    if run.review.passed_commit == run.commit:
        return replace(run, step=PackageStep.AWAIT)

    return run


def _after_remarks(run: PackageRun, remarks: tuple[events.AcceptedRemark, ...]) -> PackageRun:
    pull_request = replace(
        run.pull_request,
        remarks=(*run.pull_request.remarks, *remarks),
        unanswered=len(remarks),
    )
    findings = "\n\n".join(remark.finding for remark in remarks)
    return _next_round(replace(run, pull_request=pull_request), findings)


def _after_failed_merge(run: PackageRun, reason: str) -> PackageRun:
    """Start one round to resolve a conflict; block the package the second time."""
    if run.merge_rounds:
        return _block(run, reason, "merge by hand on the package's branch")
    return _next_round(replace(run, merge_rounds=1), reason)
