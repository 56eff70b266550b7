"""The steps of one work package, each from values to events.

Checkouts, harvest, manifest, merge, and its agents.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from phasegate.config.settings import FinalReview, MergeMode, MergePer
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
from phasegate.core.machine.package_machine import (
    AGENT_STEPS,
    PackageRun,
    PackageStep,
    decide_package_actions,
)
from phasegate.engine.checks.manifest import PackageChecker
from phasegate.engine.jobs.assignment import JobAssignment, JobEnd
from phasegate.engine.jobs.step import AgentRequest, StepContext, StepResult
from phasegate.engine.project.agents import NamedAgent
from phasegate.engine.project.project import Project
from phasegate.engine.steps.briefing import build_package_job
from phasegate.engine.steps.contest import (
    assign_comparison,
    finish_comparison,
    judge_attempt,
    promote_best_attempt,
)
from phasegate.engine.steps.harvest import harvest_package
from phasegate.engine.steps.package_merge import merge_package
from phasegate.engine.steps.validate import (
    build_claim_events,
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
from phasegate.workspace.checkout import find_checkout
from phasegate.workspace.checkout_lifecycle import (
    UnsavedWork,
    ensure_feature_branch,
    remove_checkout,
    reset_checkout,
)
from phasegate.workspace.removal import remove_tree


def uses_package_pull_requests(project: Project) -> bool:
    """Whether each package is a pull request of its own."""
    merge = project.config.merge
    return merge.mode is MergeMode.PULL_REQUEST and merge.per is MergePer.PACKAGE


# Whose statuses are recorded of one answer
MAX_TASK_STATUSES = 1_000


class PackageSteps:
    """Fulfils `steps.Steps` for a package."""

    def __init__(
        self, workspace: PackageWorkspace, user_message: str = "", entrants: tuple[str, ...] = ()
    ) -> None:
        """`said`: by a person, to all agents of the feature.

        `entrants`: the agents of a contest, one an attempt.
        """
        self._workspace = workspace
        self._user_message = user_message
        self._entrants = entrants
        # Whose agents ended while we looked on
        self._observed_rounds: set[int] = set()

    def run(self, run: PackageRun, context: StepContext) -> StepResult[AnyPackageEvent]:
        match run.step:
            case PackageStep.PREPARE:
                return self._prepare()
            case PackageStep.HARVEST:
                return harvest_package(
                    self._workspace, run, context, is_resumed=run.round not in self._observed_rounds
                )
            case PackageStep.VALIDATE:
                said = select_latest_claims(context.claims, run.round)
                return validate_commit(
                    self._workspace, run.round, run.commit, said, context.workers
                )[1]
            case PackageStep.CHECK_ATTEMPT:
                return judge_attempt(self._workspace, run, context)
            case PackageStep.SELECT_ATTEMPT:
                return promote_best_attempt(self._workspace, run)
            case PackageStep.MERGE:
                return merge_package(self._workspace, context.workers)
            case PackageStep.PUBLISH | PackageStep.AWAIT:
                # Nothing of a forge is loaded where there is none.
                from phasegate.engine.steps.package_pull import run_forge_step

                return run_forge_step(self._workspace, run, context)
            case PackageStep.CLEAN:
                return self._clean()
            case step:
                raise AssertionError(f"{step} is not ours to carry out")

    def _prepare(self) -> StepResult[AnyPackageEvent]:
        project = self._workspace.project
        slug = self._workspace.package.feature_slug
        branch, commit = resolve_branch_and_head(project, f"feat/{slug}")
        if branch != f"feat/{slug}":
            commit = ensure_feature_branch(project.repository, slug, branch)

        # What no agent can fix is told before one is paid
        PackageChecker(project, self._workspace.package, commit).refuse_unusable_base()
        # A package that has work already goes on with it.
        goes_on = self._entrants and project.refs.fetch(self._workspace.package.branch)
        entrants = () if goes_on else self._entrants
        places = [self._workspace.for_attempt(number) for number in range(len(entrants))] or [
            self._workspace
        ]
        folders = ", ".join(
            checkout.folder.name for place in places for checkout in place.ensure_checkouts()
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
        place = self._workspace
        kept = []

        for index in range(place.agent_count):
            found = find_checkout(place.project.repository, place.assignment(index))
            if found is not None:
                removed = remove_checkout(
                    found, place.signature(), place.lent_secrets, keep_for_reuse=True
                )
                if isinstance(removed, UnsavedWork):
                    kept.append(f"{removed.folder} is kept: {removed.reason}")

        return StepResult((CheckoutsRemoved(),), notices=tuple(kept))

    # --- agents

    def list_agent_requests(self, run: PackageRun) -> tuple[AgentRequest, ...]:
        if run.step not in AGENT_STEPS:
            return ()

        judges = run.step is not PackageStep.IMPLEMENT
        maker = (run.winning_agent,) if run.winning_agent else ()
        return tuple(
            AgentRequest(
                role=str(action.step),
                phase=self._workspace.phase,
                round=action.round,
                agent_index=action.pending.agent_index,
                retries=action.pending.retries,
                asked_again=action.pending.asked_again,
                retry_reason=action.pending.reason,
                agent_override=""
                if judges
                else run.entrants[action.pending.agent_index]
                if run.entrants
                else run.winning_agent,
                is_attempt=bool(run.entrants) and not judges,
                authors=(run.entrants or maker) if judges else (),
                candidates=tuple(one.number for one in run.candidates.values())
                if run.step is PackageStep.COMPARE
                else (),
            )
            for action in decide_package_actions(run)
        )

    def assign_job(
        self,
        run: PackageRun,
        request: AgentRequest,
        agent: NamedAgent,
        job: str,
        context: StepContext,
    ) -> JobAssignment:
        place = self._workspace_for(request)
        said = "\n".join(filter(None, (self._user_message, *context.user_answers)))

        if request.role == PackageStep.COMPARE:
            assigned = assign_comparison(place, run, request, agent, job)
            # The package has no checkout of its own yet
            start = place.for_attempt(request.candidates[0]).base_commit()
            write_state_file(assigned.checkout, context.state_json, place.blobs_of(start))
            return assigned

        tracked = place.blobs_of(place.base_commit())
        if request.role == PackageStep.IMPLEMENT:
            checkout = place.ensure_checkout(request.agent_index)
            folder = checkout.folder
            programs = checkout.record.programs
            write_state_file(folder, context.state_json, tracked, checkout.record.set_aside)
        else:
            folder = copy_for_review(place.project, place.name, run.commit)
            programs = make_checkout_preparer(place.project, place.package)(
                folder, folder, place.base_commit()
            ).programs
            write_state_file(folder, context.state_json, tracked)

        return build_package_job(
            workspace=place,
            run=run,
            request=request,
            agent=agent,
            job=job,
            folder=folder,
            context=context,
            user_message=said,
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
        several = self._workspace.agent_count > 1 and request.role == PackageStep.IMPLEMENT
        if several:
            return f"{assigned.agent} (agent {request.agent_index})"
        return assigned.agent

    def apply_job_end(
        self, request: AgentRequest, assigned: JobAssignment, job_end: JobEnd
    ) -> StepResult[AnyPackageEvent]:
        end = PackageJobEnded(
            job=assigned.job_id,
            end=job_end.outcome,
            reason=job_end.reason,
            remediation=job_end.remediation,
            cleanup=job_end.cleanup_required,
        )

        if request.role == PackageStep.COMPARE:
            return StepResult(
                (*finish_comparison(self._workspace, request, end, job_end.answer),), job_end.rows
            )

        if request.role == PackageStep.REVIEW:
            verdict = job_end.answer.verdict
            is_delta = assigned.saved_tokens > 0
            text = job_end.answer.text
            if verdict:
                reviewed = Reviewed(verdict, text, is_delta, failure_key(text))
            else:
                reviewed = None

            judged = (reviewed,) if job_end.outcome is JobEndKind.DONE and reviewed else ()
            remove_tree(review_folder(self._workspace.project, self._workspace.name))
            return StepResult((end, *judged), job_end.rows)

        self._observed_rounds.add(request.round)
        end = msgspec.structs.replace(
            end, tasks=tuple(islice(job_end.answer.task_statuses.items(), MAX_TASK_STATUSES))
        )
        kept = self._reset_after_job(self._workspace_for(request), request.agent_index, job_end)
        said = build_claim_events(self._workspace, assigned, request.agent_index, job_end)

        return StepResult(events=(end,), rows=(*job_end.rows, *said), notices=kept)

    def _workspace_for(self, request: AgentRequest) -> PackageWorkspace:
        if request.is_attempt:
            return self._workspace.for_attempt(request.agent_index)
        return self._workspace

    def _reset_after_job(
        self, workspace: PackageWorkspace, index: int, ended: JobEnd
    ) -> tuple[str, ...]:
        if ended.cleanup_required:
            renewed = reset_checkout(workspace.ensure_checkout(index), workspace.checkout_options())
            # The package is blocked: a person sees to the rest
            if isinstance(renewed, UnsavedWork):
                return (f"{renewed.folder} is not reset: {renewed.reason}",)
        elif ended.outcome is not JobEndKind.DONE:
            # Else it is looked at first
            workspace.disarm_checkout(index)

        return ()

    def list_open_jobs(self, run: PackageRun) -> tuple[str, ...]:
        return tuple(job.job for job in run.open_jobs)

    def save_lost_work(self, run: PackageRun) -> None:
        for job in run.open_jobs:
            if job.role == PackageStep.IMPLEMENT:
                if run.entrants:
                    place = self._workspace.for_attempt(job.agent_index)
                else:
                    place = self._workspace

                place.renew_checkout(job.agent_index)

    def make_lost_event(self, job: str, reason: str, last_seen: str) -> PackageJobEnded:
        return PackageJobEnded(job=job, end=JobEndKind.LOST, reason=reason, last_seen=last_seen)
