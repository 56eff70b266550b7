"""Steps of one work package: checkouts, agents, harvest, checks and merge."""

from __future__ import annotations

from itertools import islice

import msgspec

from phasegate.config.settings import FinalReview, MergeMode, MergePer
from phasegate.core.answer.prose import cut_markers, cut_result
from phasegate.core.machine.package_events import (
    AnyPackageEvent,
    CheckoutsRemoved,
    JobEndKind,
    PackageJobEnded,
    PackageJobStarted,
    PackagePrepared,
    Reviewed,
    failure_key,
)
from phasegate.core.machine.package_machine import decide_package_actions
from phasegate.core.machine.package_state import AGENT_STEPS, PackageAction, PackageRun, PackageStep
from phasegate.engine.checks.manifest import PackageChecker
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.jobs.job_end import JobEnd
from phasegate.engine.jobs.step import AgentRequest, LastJob, StepContext, StepResult
from phasegate.engine.jobs.trail_notes import TrailNoteBuilder
from phasegate.engine.project.agents import NamedAgent
from phasegate.engine.project.project import Project
from phasegate.engine.steps.briefing import build_package_job
from phasegate.engine.steps.compare_attempts import (
    assign_comparison,
    finish_comparison,
    judge_attempt,
    promote_best_attempt,
)
from phasegate.engine.steps.harvest import harvest_package
from phasegate.engine.steps.package_merge import merge_package
from phasegate.engine.steps.validate_package import (
    build_claim_events,
    compare_failure_claims,
    select_latest_claims,
    validate_commit,
)
from phasegate.engine.steps.workplace import (
    PackageWorkspace,
    copy_for_review,
    make_checkout_preparer,
    resolve_branch_and_head,
    review_folder,
    write_state_file,
)
from phasegate.workspace.checkout.checkout import find_checkout
from phasegate.workspace.checkout.removal import remove_tree
from phasegate.workspace.checkout_lifecycle import (
    UnsavedWork,
    ensure_feature_branch,
    remove_checkout,
    reset_checkout,
)


def uses_package_pull_requests(project: Project) -> bool:
    """Return whether each package gets its own pull request."""
    merge = project.config.merge
    return merge.mode is MergeMode.PULL_REQUEST and merge.per is MergePer.PACKAGE


MAX_ANSWER_CHARS = 20_000
# Task statuses that are recorded per answer; an agent may report any number.
MAX_TASK_STATUSES = 1_000


def _select_stored_answer(request: AgentRequest, job_end: JobEnd) -> str:
    """Return the text of an answer that later prompts need.

    These are the implementer's replies to findings, and an answer that could not be used. Users
    are shown why an implementer is blocked.
    """
    text = job_end.answer.text
    if job_end.outcome is JobEndKind.UNREADABLE:
        return text[-MAX_ANSWER_CHARS:]
    has_report = job_end.outcome in (JobEndKind.DONE, JobEndKind.BLOCKED)
    if has_report and request.role == PackageStep.IMPLEMENT:
        return cut_result(f"{request.previous_answer}\n{text}")[:MAX_ANSWER_CHARS]
    return ""


class PackageSteps:
    """Steps of a package; implements `UnitSteps`."""

    def __init__(
        self, workspace: PackageWorkspace, user_message: str = "", entrants: tuple[str, ...] = ()
    ) -> None:
        """Create the steps of a package.

        `user_message`: the user's message to all agents of the feature. `entrants`: the agents of a
        contest, one per attempt.
        """
        self._workspace = workspace
        self._user_message = user_message
        self._entrants = entrants
        # Rounds whose agents ended in this process; the others are resumed after a restart.
        self._observed_rounds: set[int] = set()

    def run(self, run: PackageRun, context: StepContext) -> StepResult[AnyPackageEvent]:
        """Run the due step of the package, and return its events."""
        self._workspace.approved = tuple(one.path for one in context.scope_exceptions)
        self._workspace.acceptance = context.acceptance
        match run.step:
            case PackageStep.PREPARE:
                return self._prepare()
            case PackageStep.HARVEST:
                return harvest_package(
                    self._workspace, run, context, is_resumed=run.round not in self._observed_rounds
                )
            case PackageStep.VALIDATE:
                claims = select_latest_claims(context.claims, run.round)
                return validate_commit(self._workspace, run.round, run.commit, claims, context)[1]
            case PackageStep.CHECK_ATTEMPT:
                return judge_attempt(self._workspace, run, context)
            case PackageStep.SELECT_ATTEMPT:
                return promote_best_attempt(self._workspace, run)
            case PackageStep.MERGE:
                return merge_package(self._workspace, context.workers)
            case PackageStep.PUBLISH | PackageStep.AWAIT:
                # Imported only here: runs without a forge do not load its modules.
                from phasegate.engine.steps.package_pull_request import run_forge_step

                return run_forge_step(self._workspace, run, context)
            case PackageStep.CLEAN:
                return self._clean()
            case step:
                raise AssertionError(f"unexpected step {step}")

    def _prepare(self) -> StepResult[AnyPackageEvent]:
        """Create branch and checkouts; raise if the base cannot be used."""
        project = self._workspace.project
        slug = self._workspace.package.feature_slug
        branch, commit = resolve_branch_and_head(project, f"feat/{slug}")
        if branch != f"feat/{slug}":
            commit = ensure_feature_branch(project.repository, slug, branch)

        # Report problems that no agent can fix before an agent is paid.
        PackageChecker(project, self._workspace.package, commit).refuse_unusable_base()

        # A package that already has commits continues with them instead of a contest.
        entrants = self._entrants
        if entrants and project.refs.fetch(self._workspace.package.branch):
            entrants = ()

        attempts = [self._workspace.for_attempt(number) for number in range(len(entrants))]
        folders = ", ".join(
            checkout.folder.name
            for workspace in attempts or [self._workspace]
            for checkout in workspace.ensure_checkouts()
        )
        is_delta_final = project.config.run.final_review is FinalReview.DELTA

        return StepResult(
            (
                PackagePrepared(
                    commit, entrants, is_delta_final, uses_package_pull_requests(project)
                ),
            ),
            notices=(f"worktree ready at {project.config.paths.worktrees}/{folders}",),
        )

    def _clean(self) -> StepResult[AnyPackageEvent]:
        """Remove the package's checkouts, and report those with unsaved work."""
        workspace = self._workspace
        kept = []

        for index in range(workspace.agent_count):
            checkout = find_checkout(workspace.project.repository, workspace.assignment(index))
            if checkout is not None:
                removed = remove_checkout(
                    checkout, workspace.signature(), workspace.lent_secrets, keep_for_reuse=True
                )
                if isinstance(removed, UnsavedWork):
                    kept.append(f"{removed.folder} is kept: {removed.reason}")

        return StepResult((CheckoutsRemoved(),), notices=tuple(kept))

    # --- agents

    def list_agent_requests(self, run: PackageRun) -> tuple[AgentRequest, ...]:
        if run.step not in AGENT_STEPS:
            return ()

        return tuple(
            self._make_agent_request(run, action) for action in decide_package_actions(run)
        )

    def _make_agent_request(self, run: PackageRun, action: PackageAction) -> AgentRequest:
        """Create the request of a pending agent run."""
        pending = action.pending
        request = AgentRequest(
            role=str(action.step),
            phase=self._workspace.phase,
            round=action.round,
            agent_index=pending.agent_index,
            retries=pending.retries,
            asked_again=pending.asked_again,
            retry_reason=pending.reason,
            attempt=pending.retries + pending.asked_again + pending.pauses + pending.losses,
            previous_answer=pending.answer,
        )

        if run.step is PackageStep.IMPLEMENT and run.contest.entrants:
            entrant = run.contest.entrants[pending.agent_index]
            return request._replace(agent_override=entrant, is_attempt=True)
        if run.step is PackageStep.IMPLEMENT:
            return request._replace(agent_override=run.winning_agent)

        winner = (run.winning_agent,) if run.winning_agent else ()
        candidates = run.contest.candidates.values() if run.step is PackageStep.COMPARE else ()
        return request._replace(
            authors=run.contest.entrants or winner,
            candidates=tuple(attempt.number for attempt in candidates),
        )

    def assign_job(
        self,
        run: PackageRun,
        request: AgentRequest,
        agent: NamedAgent,
        job: str,
        context: StepContext,
    ) -> JobAssignment:
        """Build the assignment of a job for an agent."""
        self._workspace.acceptance = context.acceptance
        workspace = self._workspace_for(request)
        user_words = [self._user_message, *context.user_answers]
        if request.role == PackageStep.IMPLEMENT:
            # A reviewer has them among the remarks
            user_words += [one.describe() for one in context.scope_exceptions]
        user_message = "\n".join(filter(None, user_words))

        if request.role == PackageStep.COMPARE:
            assigned = assign_comparison(workspace, run, request, agent, job, user_message)
            # The package has no checkout yet, only its attempts have.
            start = workspace.for_attempt(request.candidates[0]).base_commit()
            write_state_file(assigned.checkout, context.state_json, workspace.blobs_of(start))
            return assigned

        tracked = workspace.blobs_of(workspace.base_commit())
        if request.role == PackageStep.IMPLEMENT:
            checkout = workspace.ensure_checkout(request.agent_index)
            folder = checkout.folder
            programs = checkout.record.programs
            write_state_file(folder, context.state_json, tracked, checkout.record.set_aside)
        else:
            folder = copy_for_review(workspace.project, workspace.name, run.commit)
            programs = make_checkout_preparer(workspace.project, workspace.package)(
                folder, folder, workspace.base_commit()
            ).programs
            write_state_file(folder, context.state_json, tracked)

        return build_package_job(
            workspace=workspace,
            run=run,
            request=request,
            agent=agent,
            job=job,
            folder=folder,
            context=context,
            user_message=user_message,
            programs=programs,
        )

    def make_started_event(
        self, request: AgentRequest, assigned: JobAssignment
    ) -> PackageJobStarted:
        return PackageJobStarted(
            job=assigned.job_id,
            role=request.role,
            round=request.round,
            agent_index=request.agent_index,
            agent=self.describe_agent(request, assigned),
            saved_tokens=assigned.saved_tokens,
        )

    def describe_agent(self, request: AgentRequest, assigned: JobAssignment) -> str:
        if request.is_attempt:
            return f"{assigned.agent} (attempt {request.agent_index + 1})"
        if self._workspace.agent_count > 1 and request.role == PackageStep.IMPLEMENT:
            return f"{assigned.agent} (agent {request.agent_index})"
        return assigned.agent

    def apply_job_end(
        self, request: AgentRequest, assigned: JobAssignment, job_end: JobEnd
    ) -> StepResult[AnyPackageEvent]:
        """Return the events of an ended job, by its role."""
        end = PackageJobEnded(
            job=assigned.job_id,
            end=job_end.outcome,
            reason=job_end.reason,
            remediation=job_end.remediation,
            cleanup=job_end.cleanup_required,
            answer=_select_stored_answer(request, job_end),
        )

        if request.role == PackageStep.COMPARE:
            return StepResult(
                (*finish_comparison(self._workspace, request, end, job_end.answer),), job_end.rows
            )

        if request.role == PackageStep.REVIEW:
            remove_tree(review_folder(self._workspace.project, self._workspace.name))
            verdict = job_end.answer.verdict
            if not verdict or job_end.outcome is not JobEndKind.DONE:
                return StepResult((end,), job_end.rows)

            text = cut_markers(f"{request.previous_answer}\n{job_end.answer.text}")
            is_delta = assigned.saved_tokens > 0
            reviewed = Reviewed(verdict, text, is_delta, failure_key(text))
            return StepResult((end, reviewed), job_end.rows)

        self._observed_rounds.add(request.round)
        end = msgspec.structs.replace(
            end, tasks=tuple(islice(job_end.answer.task_statuses.items(), MAX_TASK_STATUSES))
        )
        index = request.agent_index
        workspace = self._workspace_for(request)
        worker = LastJob(assigned.job_id, assigned.agent, index)
        notes = TrailNoteBuilder(workspace.project, (worker,))
        claims = (
            *build_claim_events(self._workspace, assigned, index, job_end),
            *compare_failure_claims(workspace, assigned, index, job_end, notes),
        )
        kept = self._clean_up_after_job(workspace, index, job_end, notes)

        return StepResult(
            events=(end,),
            rows=(*job_end.rows, *claims),
            notices=kept,
            trail_notes=notes.entries,
        )

    def _workspace_for(self, request: AgentRequest) -> PackageWorkspace:
        if request.is_attempt:
            return self._workspace.for_attempt(request.agent_index)
        return self._workspace

    def _clean_up_after_job(
        self, workspace: PackageWorkspace, index: int, ended: JobEnd, notes: TrailNoteBuilder
    ) -> tuple[str, ...]:
        """Reset the checkout if that is required, else remove the agent's git hooks and settings.

        Return notices for the user.
        """
        if ended.cleanup_required:
            checkout = workspace.ensure_checkout(index)
            reset = reset_checkout(checkout, workspace.checkout_options())
            # The package is blocked: the user has to decide about the checkout.
            if isinstance(reset, UnsavedWork):
                return (f"{reset.folder} is not reset: {reset.reason}",)
            notes.add_reset(checkout.folder)
        elif ended.outcome is not JobEndKind.DONE:
            # After DONE, the harvest inspects the git directory first.
            workspace.remove_dangerous_git_files(index)

        return ()

    def list_open_jobs(self, run: PackageRun) -> tuple[str, ...]:
        return tuple(job.job for job in run.open_jobs)

    def save_lost_work(self, run: PackageRun) -> None:
        for job in run.open_jobs:
            if job.role == PackageStep.IMPLEMENT:
                workspace = self._workspace
                if run.contest.entrants:
                    workspace = workspace.for_attempt(job.agent_index)

                workspace.renew_checkout(job.agent_index)

    def make_lost_event(self, job: str, reason: str, last_seen: str) -> PackageJobEnded:
        return PackageJobEnded(job=job, end=JobEndKind.LOST, reason=reason, last_seen=last_seen)
