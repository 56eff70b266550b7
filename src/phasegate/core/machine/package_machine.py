"""A work package from PLANNED to DONE or BLOCKED.

`decide` says what is next, `apply` takes in what came.

Both are pure. The dispatcher carries the actions out, records the events, and asks again; after a
crash it folds the recorded events and asks again, too. Agents of one package work side by side:
each owes its part, and is tried again and asked again by itself. No event of an agent leads to
DONE: that takes a harvest within scope, a passed manifest, a PASS of the reviewer and a merge, in
this order, in one round.

In a contest several agents do the whole package, each in a checkout of its own. Each attempt is
harvested and checked; the reviewer compares those that passed; the best one becomes the package's
work and goes on as any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from phasegate.core.answer.vocabulary import TaskStatus, Verdict
from phasegate.core.machine import package_events as events
from phasegate.core.machine.package_events import first_line
from phasegate.core.machine.retry import count_retry, explain_give_up
from phasegate.core.plan.work_package import PackageState

_RETRY_HINT = "then fix the package, its plan or the check, or tell the agent more: resolve, and dispatch again"


class PackageStep(StrEnum):
    PREPARE = "prepare"
    IMPLEMENT = "implement"
    HARVEST = "harvest"
    VALIDATE = "validate"
    # An attempt of a contest: harvest and manifest
    CHECK_ATTEMPT = "judge"
    # The attempts that passed
    COMPARE = "compare"
    # The best of them
    SELECT_ATTEMPT = "take"
    # As a pull request
    PUBLISH = "publish"
    REVIEW = "review"
    # The pull request's approval and merge
    AWAIT = "await"
    MERGE = "merge"
    CLEAN = "clean"
    STOP = "stop"


PACKAGE_FORGE_STEPS = (PackageStep.PUBLISH, PackageStep.AWAIT)
AGENT_STEPS = (PackageStep.IMPLEMENT, PackageStep.COMPARE, PackageStep.REVIEW)


class PendingWork(msgspec.Struct, frozen=True):
    """What an agent has yet to deliver, and how often it was tried.

    `reason` is why the last try did not count.
    """

    agent_index: int = 0
    retries: int = 0
    asked_again: bool = False
    reason: str = ""
    # For limits of the provider
    pauses: int = 0
    losses: int = 0


class Attempt(msgspec.Struct, frozen=True):
    """One attempt of a contest, once its agent has ended."""

    number: int
    # Why it came to nothing
    failure: str = ""
    # As its agent reported them
    tasks: tuple[tuple[str, TaskStatus], ...] = ()
    harvested: events.Harvested | None = None
    validated: events.Validated | None = None

    @property
    def is_checked(self) -> bool:
        return bool(self.failure) or self.harvested is not None

    @property
    def passed(self) -> bool:
        """Within scope, something changed, and every check of the manifest holds."""
        return self.validated is not None and not self.validated.failures

    @property
    def rank(self) -> tuple[int, int, int]:
        """The lower, the nearer to work that counts.

        Where none passed, the best goes on with its findings.
        """
        if self.validated is not None:
            return (0, len(self.validated.failures), self.number)
        if self.harvested is None:
            return (3, 0, self.number)
        return (2 if self.harvested.violations or self.harvested.leaks else 1, 0, self.number)


class PackageRun(msgspec.Struct, frozen=True):
    """Where a package stands, folded from its events."""

    limits: events.PackageLimits = events.PackageLimits()
    state: PackageState = PackageState.PLANNED
    step: PackageStep = PackageStep.PREPARE
    round: int = 1
    # Those before a person's last answer: the limit counts from there, the number goes on
    rounds_before: int = 0
    merge_rounds: int = 0
    # By the implementers of this round, or by its reviewer
    pending: tuple[PendingWork, ...] = ()
    open_jobs: tuple[events.PackageJobStarted, ...] = ()
    commit: str = ""
    findings: str = ""
    previous_commit: str = (
        # The commit that the round before ended with; none in the first one, and after a person's
        # answer
        ""
    )
    # The `failure_key` of the round before
    previous_failure_key: str = ""
    # The checks of the last round that had none
    without_program: tuple[str, ...] = ()
    # For the reviewer of this round: evidence, then what there is to remark
    review_documents: tuple[str, ...] = ()
    reason: str = ""
    remediation: str = ""
    # The last status of each, as reported
    tasks: tuple[tuple[str, TaskStatus], ...] = ()
    # Tasks that were FAILED in an answer of this round, whatever was said later
    reported_failed_tasks: tuple[str, ...] = ()
    # Of a contest that is not decided
    entrants: tuple[str, ...] = ()
    # Of it, those that have ended, by number
    attempts: tuple[Attempt, ...] = ()
    # The attempt that is to be taken
    selected_attempt: int = -1
    # The agent whose attempt was taken: later rounds are its own
    winning_agent: str = ""
    # The commit that was reviewed last
    reviewed_commit: str = ""
    # What reviewers found so far
    review_findings: tuple[str, ...] = ()
    # A review of the changes says PASS: one of the whole comes after it
    needs_full_review: bool = False
    delta_is_final: bool = False
    at_forge: bool = False
    pull: events.PackagePublished | None = None
    # Of people at the pull request, that rounds dealt with
    remarks: tuple[events.AcceptedRemark, ...] = ()
    # Of them, the last ones: to be answered when the work is published
    unanswered: int = 0
    # The commit that a review passed
    passed_commit: str = ""
    # A person sees to the pull request; nothing is wrong with the work
    is_held: bool = False

    @property
    def last_round(self) -> int:
        """The one after which a person decides."""
        return self.rounds_before + self.limits.rounds

    @property
    def can_review_delta(self) -> bool:
        """Whether a reviewer needs to be told no more than what changed since the last review."""
        return bool(self.reviewed_commit) and not self.needs_full_review

    @property
    def candidates(self) -> dict[str, Attempt]:
        """The attempts that passed, by a letter that does not tell who made them.

        Commits are in no order.
        """
        passed = sorted(
            (one for one in self.attempts if one.passed),
            key=lambda one: one.harvested.commit if one.harvested else "",
        )
        return {chr(ord("A") + index): one for index, one in enumerate(passed)}


class PackageAction(msgspec.Struct, frozen=True):
    """What to do next.

    `owed` is the part of it, and which try it is, where an agent is to do it.
    """

    step: PackageStep
    round: int
    pending: PendingWork = PendingWork()


def decide_package_actions(run: PackageRun) -> tuple[PackageAction, ...]:
    """What to do next.

    Several actions can be carried out side by side; none means that jobs are to be waited for.
    """
    if run.step not in AGENT_STEPS:
        return (PackageAction(run.step, run.round),)

    busy = {job.agent_index for job in run.open_jobs}
    return tuple(
        PackageAction(run.step, run.round, owed)
        for owed in run.pending
        if owed.agent_index not in busy
    )


def fold_package_events(
    recorded: Iterable[events.AnyPackageEvent], limits: events.PackageLimits
) -> PackageRun:
    """The run after these events, from the beginning."""
    run = PackageRun(limits=limits)
    for event in recorded:
        run = apply_package_event(run, event)
    return run


def apply_package_event(run: PackageRun, event: events.AnyPackageEvent) -> PackageRun:  # noqa: C901 - one case an event: a table, not a maze
    """The run after one more event.

    An event that cannot happen now changes nothing: the journal may hold late ones.
    """
    match event:
        case events.PackagePrepared() if run.step is PackageStep.PREPARE:
            return _after_preparation(run, event)
        case events.PackageJobStarted() if _is_pending_job(run, event):
            return replace(run, open_jobs=(*run.open_jobs, event))
        case events.PackageJobEnded() if job := next(
            (job for job in run.open_jobs if job.job == event.job), None
        ):
            return _after_job(run, job, event)
        case events.Harvested() if run.step is PackageStep.HARVEST:
            return _after_harvest(run, event)
        case events.Validated() if run.step is PackageStep.VALIDATE and event.commit == run.commit:
            return _after_checks(run, event)
        case events.AttemptChecked() if (
            run.step is PackageStep.CHECK_ATTEMPT and _is_attempt_unchecked(run, event.attempt)
        ):
            return _after_attempt_check(run, event)
        case events.AttemptsCompared() if run.step is PackageStep.COMPARE and not run.open_jobs:
            found = any(one.number == event.best for one in run.candidates.values())
            if found:
                return replace(run, step=PackageStep.SELECT_ATTEMPT, selected_attempt=event.best)
            return run
        case events.AttemptSelected() if (
            run.step is PackageStep.SELECT_ATTEMPT and event.attempt == run.selected_attempt
        ):
            return _after_selection(run)
        case events.Reviewed() if run.step is PackageStep.REVIEW and not run.open_jobs:
            return _after_review(run, event)
        case events.PackagePublished() if (
            run.step is PackageStep.PUBLISH and event.commit == run.commit
        ):
            if run.passed_commit == run.commit:
                step = PackageStep.AWAIT
            else:
                step = PackageStep.REVIEW

            return replace(
                run,
                state=PackageState.FOR_REVIEW,
                step=step,
                pending=(PendingWork(),),
                pull=event,
                unanswered=0,
            )
        case events.PackageRemarksReceived(remarks) if run.step is PackageStep.AWAIT:
            run = replace(run, remarks=(*run.remarks, *remarks), unanswered=len(remarks))
            return _next_round(run, "\n\n".join(one.finding for one in remarks))
        case events.PackageHeld() if run.step in PACKAGE_FORGE_STEPS:
            return replace(_block(run, event.reason, event.remediation), is_held=True)
        case events.PackageMerged() if run.step in (PackageStep.MERGE, PackageStep.AWAIT):
            return replace(run, state=PackageState.DONE, step=PackageStep.CLEAN, reason="")
        case events.PackageNotMerged() if run.step in (PackageStep.MERGE, PackageStep.AWAIT):
            return _after_failed_merge(run, event.reason)
        case events.CheckoutsRemoved() if run.step is PackageStep.CLEAN:
            return replace(run, step=PackageStep.STOP)
        case events.PackageResolved() if run.is_held:
            freed = replace(run, state=PackageState.DOING, step=PackageStep.PUBLISH, is_held=False)
            return replace(freed, reason="", remediation="")
        case events.PackageResolved() if run.state is PackageState.BLOCKED:
            kept = PackageRun(
                limits=run.limits,
                findings=run.findings,
                commit=run.commit,
                tasks=run.tasks,
                winning_agent=run.winning_agent,
            )

            # What passed is not made again: it is compared when the way is clear
            if run.candidates:
                kept = replace(kept, entrants=run.entrants, attempts=run.attempts)

            kept = replace(kept, pull=run.pull, remarks=run.remarks, unanswered=run.unanswered)
            return replace(kept, round=run.round + 1, rounds_before=run.round)
        case _:
            return run


def _after_preparation(run: PackageRun, prepared: events.PackagePrepared) -> PackageRun:
    run = replace(
        run,
        state=PackageState.DOING,
        delta_is_final=prepared.delta_is_final,
        at_forge=prepared.at_forge,
    )

    if run.attempts:
        return _choose_attempt(run)
    return _start_round(replace(run, entrants=prepared.entrants))


def _start_round(run: PackageRun) -> PackageRun:
    """A round begins: every agent of the package owes its part, or its attempt at the whole."""
    owed = tuple(PendingWork(index) for index in range(len(run.entrants) or run.limits.agents))
    fresh = replace(
        run, state=PackageState.DOING, step=PackageStep.IMPLEMENT, pending=owed, reason=""
    )
    return replace(fresh, reported_failed_tasks=(), needs_full_review=False)


def _is_pending_job(run: PackageRun, started: events.PackageJobStarted) -> bool:
    """Whether a job is for what an agent still owes and no other job is at."""
    wanted = {
        (str(action.step), action.pending.agent_index) for action in decide_package_actions(run)
    }
    return (started.role, started.agent_index) in wanted and started.role in AGENT_STEPS


def _after_job(
    run: PackageRun, job: events.PackageJobStarted, ended: events.PackageJobEnded
) -> PackageRun:
    """A job is closed; what it means counts only while its step lasts.

    A package that is blocked stays so.
    """
    run = replace(run, open_jobs=tuple(one for one in run.open_jobs if one is not job))

    if ended.tasks and not run.entrants:
        failed = (name for name, status in ended.tasks if status is TaskStatus.FAILED)
        doubted = tuple(dict.fromkeys((*run.reported_failed_tasks, *failed)))
        run = replace(
            run,
            tasks=tuple(dict((*run.tasks, *ended.tasks)).items()),
            reported_failed_tasks=doubted,
        )

    owed = next((one for one in run.pending if one.agent_index == job.agent_index), None)
    if owed is None or run.step != job.role:
        return run
    if ended.end is events.JobEndKind.DONE:
        return _after_delivery(run, owed, ended)

    counted = count_retry(ended, owed, run.limits)
    if counted is None:
        return _after_give_up(run, owed, *explain_give_up(ended, owed))

    if ended.end is events.JobEndKind.LOST:
        reason = owed.reason
    else:
        reason = ended.reason

    return _update_pending(run, replace(owed, **counted, reason=reason))


def _update_pending(run: PackageRun, again: PendingWork) -> PackageRun:
    owed = tuple(again if one.agent_index == again.agent_index else one for one in run.pending)
    return replace(run, pending=owed)


def _after_delivery(
    run: PackageRun, delivered: PendingWork, ended: events.PackageJobEnded
) -> PackageRun:
    """An agent has answered.

    A reviewer's answer is judged by the event that follows, in the same recorded step.
    """
    if run.step is not PackageStep.IMPLEMENT:
        return run
    if run.entrants:
        return _add_attempt(run, Attempt(delivered.agent_index, tasks=ended.tasks))

    owed = tuple(one for one in run.pending if one is not delivered)
    return replace(run, pending=owed, step=run.step if owed else PackageStep.HARVEST)


def _after_give_up(run: PackageRun, owed: PendingWork, reason: str, remediation: str) -> PackageRun:
    """An agent cannot deliver. That blocks the package, unless others are at the same task."""
    if not run.entrants or run.step is not PackageStep.IMPLEMENT:
        return _block(run, reason, remediation)

    after = _add_attempt(run, Attempt(owed.agent_index, failure=reason))
    if after.pending or any(not one.failure for one in after.attempts):
        return after

    return _block(replace(after, attempts=()), f"no attempt was made: {reason}", remediation)


def _add_attempt(run: PackageRun, attempt: Attempt) -> PackageRun:
    """An attempt has ended; when all have, what they left is judged."""
    owed = tuple(one for one in run.pending if one.agent_index != attempt.number)
    attempts = tuple(sorted((*run.attempts, attempt), key=lambda one: one.number))
    return replace(
        run, pending=owed, attempts=attempts, step=run.step if owed else PackageStep.CHECK_ATTEMPT
    )


def find_unchecked_attempt(run: PackageRun) -> Attempt | None:
    """The attempt that is to be judged next."""
    return next((one for one in run.attempts if not one.is_checked), None)


def _is_attempt_unchecked(run: PackageRun, number: int) -> bool:
    return any(one.number == number and not one.is_checked for one in run.attempts)


def _after_attempt_check(run: PackageRun, judged: events.AttemptChecked) -> PackageRun:
    harvested = judged.harvested
    validated = judged.validated
    strayed = harvested.violations or harvested.leaks
    if strayed or validated is None or validated.commit != harvested.commit:
        # Checks of another commit say nothing about this one
        validated = None

    attempts = tuple(
        replace(one, harvested=harvested, validated=validated)
        if one.number == judged.attempt
        else one
        for one in run.attempts
    )

    run = replace(run, attempts=attempts)
    if find_unchecked_attempt(run):
        return run

    return _choose_attempt(run)


def _choose_attempt(run: PackageRun) -> PackageRun:
    """Several that passed are compared; of one, or of none, there is nothing to choose."""
    if len(run.candidates) > 1:
        return replace(run, step=PackageStep.COMPARE, pending=(PendingWork(),))
    best = min(run.attempts, key=lambda one: one.rank)
    return replace(run, step=PackageStep.SELECT_ATTEMPT, selected_attempt=best.number)


def _after_selection(run: PackageRun) -> PackageRun:
    """The best attempt is the package's work now, and goes on as any other: from its harvest."""
    best = next(one for one in run.attempts if one.number == run.selected_attempt)
    doubted = tuple(name for name, status in best.tasks if status is TaskStatus.FAILED)
    run = replace(
        run,
        tasks=best.tasks,
        reported_failed_tasks=doubted,
        winning_agent=run.entrants[run.selected_attempt],
    )

    return replace(run, step=PackageStep.HARVEST, entrants=(), attempts=(), selected_attempt=-1)


def _after_harvest(run: PackageRun, harvested: events.Harvested) -> PackageRun:
    if harvested.leaks:
        reason = f"a secret of the agent is in its work: {'; '.join(harvested.leaks)}"
        return _block(
            replace(run, findings=f"{reason}\nWrite no key, in no form, and begin again."),
            reason,
            "revoke the key and set a new one; the checkout begins anew, and what was there is saved without the key",
        )

    if harvested.violations:
        reason = f"File scope violation: {'; '.join(harvested.violations)}"
        return _block(
            replace(run, findings=f"{reason}\nStay within the file scope as it is now."),
            reason,
            'allow the path (phasegate scope allow WPnn PATH --reason "...") or take it out of the checkout',
        )

    if harvested.unchanged:
        return _block(run, *_explain_no_change(run, harvested.there))

    if not harvested.commit:
        if harvested.there:
            same = f"unchanged: {', '.join(harvested.there)}"
        else:
            same = "the deliverables are not there"

        return _next_round(run, f"nothing was changed: {same}")

    papers = (harvested.remarks,) if harvested.remarks else ()
    return replace(run, step=PackageStep.VALIDATE, commit=harvested.commit, review_documents=papers)


def _after_checks(run: PackageRun, checked: events.Validated) -> PackageRun:
    lacking = _find_still_missing_programs(run, checked)
    if checked.failures:
        run = replace(
            run, without_program=checked.without_program, findings="\n".join(checked.failures)
        )
        if lacking:
            return _block(run, *lacking)
        return _next_round(run, run.findings, checked.alike)

    papers = tuple(
        paper for paper in (checked.evidence, *run.review_documents, checked.claims) if paper
    )
    if run.at_forge:
        return replace(run, step=PackageStep.PUBLISH, review_documents=papers)

    return replace(
        run,
        state=PackageState.FOR_REVIEW,
        step=PackageStep.REVIEW,
        pending=(PendingWork(),),
        review_documents=papers,
    )


def _find_still_missing_programs(
    run: PackageRun, checked: events.Validated
) -> tuple[str, str] | None:
    """A program that was missing and still is: the agent was told, and more rounds would only cost."""
    again = {name for name in checked.without_program if name in run.without_program}
    told = [
        failure.partition("\n")[0]
        for failure in checked.failures
        if failure.partition(":")[0] in again
    ]
    if not told:
        return None

    return f"{'; '.join(told)}, in this round again", "install it, or change setup or the command"


def _after_review(run: PackageRun, reviewed: events.Reviewed) -> PackageRun:
    run = replace(run, reviewed_commit=run.commit)
    if reviewed.verdict is Verdict.PASS and reviewed.delta and not run.delta_is_final:
        return replace(run, needs_full_review=True, pending=(PendingWork(),))

    if reviewed.verdict is Verdict.PASS:
        return replace(
            run,
            step=PackageStep.AWAIT if run.at_forge else PackageStep.MERGE,
            passed_commit=run.commit,
        )

    run = replace(run, review_findings=(*run.review_findings, reviewed.findings))
    if reviewed.verdict is Verdict.NEEDS_CHANGES:
        return _next_round(run, reviewed.findings, reviewed.alike)

    return _block(
        replace(run, findings=reviewed.findings),
        f"the reviewer says {reviewed.verdict}",
        "read the findings, and decide",
    )


def _after_failed_merge(run: PackageRun, reason: str) -> PackageRun:
    """One round may solve a conflict; the second is a person's."""
    if run.merge_rounds:
        return _block(run, reason, "merge by hand on the package's branch")
    return _next_round(replace(run, merge_rounds=1), reason)


def _explain_no_change(run: PackageRun, there: tuple[str, ...]) -> tuple[str, str]:
    """Reason and remedy of a round that changed nothing.

    Another one would cost the same and bring as little.
    """
    if run.findings:
        asked = f"; findings to address: {first_line(run.findings)}"
    else:
        asked = ""

    if there:
        same = f"; unchanged: {', '.join(there)}"
    else:
        same = ""

    return (
        f"the round changed nothing{asked}{same}",
        f"read why (phasegate show WPnn --answer), {_RETRY_HINT}",
    )


def _next_round(run: PackageRun, findings: str, alike: str = "") -> PackageRun:
    if alike and alike == run.previous_failure_key:
        return _block(
            replace(run, findings=findings),
            f"the round failed in exactly the same way as the one before: {first_line(findings)}",
            f"see what was tried (phasegate show WPnn --diff, --evidence, --answer), {_RETRY_HINT}",
        )

    run = replace(run, previous_commit=run.commit, previous_failure_key=alike)
    if run.round >= run.last_round:
        return _block(
            replace(run, findings=findings),
            f"all {run.limits.rounds} review cycles are used up; the last finding: {first_line(findings)}",
            "see `.phasegate/evidence` for what our checks found; fix the package or its plan",
        )

    return _start_round(replace(run, round=run.round + 1, findings=findings))


def _block(run: PackageRun, reason: str, remediation: str) -> PackageRun:
    return replace(
        run,
        state=PackageState.BLOCKED,
        step=PackageStep.STOP,
        reason=reason,
        remediation=remediation or "see the log: phasegate audit show",
    )
