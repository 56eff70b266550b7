"""A work package at its forge.

Published onto its feature's branch, then one look at a time until it is merged.
"""

from __future__ import annotations

from phasegate.core.forge.pull_request import (
    PullBodyParts,
    PullStep,
    decide_pull_step,
    format_remark_finding,
    render_pull_body,
)
from phasegate.core.machine.package_events import (
    AcceptedRemark,
    AnyPackageEvent,
    PackageHeld,
    PackageMerged,
    PackagePublished,
    PackageRemarksReceived,
)
from phasegate.core.machine.package_machine import PackageRun, PackageStep
from phasegate.engine.jobs.step import StepContext, StepResult
from phasegate.engine.jobs.trail_notes import TrailNoteBuilder
from phasegate.engine.steps.package_merge import prepare_package_merge
from phasegate.engine.steps.pull_request import ForgeProblem, PullRequestPublisher, make_pull_title
from phasegate.engine.steps.workplace import PackageWorkspace
from phasegate.errors import EnvironmentUnavailable
from phasegate.forge.port import MergeOutcome
from phasegate.workspace.merge import PreparedMerge
from phasegate.workspace.refs import BRANCH_PREFIX, advance_branch
from phasegate.workspace.remote import fetch_branch, get_remote_branch, push_branch
from phasegate.workspace.repository import is_ancestor, read_refs
from phasegate.workspace.repository_locks import repository_lock


def run_forge_step(
    workspace: PackageWorkspace, run: PackageRun, context: StepContext
) -> StepResult[AnyPackageEvent]:
    """The step of a package that is due at its forge."""
    steps = _PackagePullRequest(workspace, run, context)
    if run.step is PackageStep.PUBLISH:
        return steps.publish()
    return steps.poll()


class _PackagePullRequest:
    def __init__(self, workspace: PackageWorkspace, run: PackageRun, context: StepContext) -> None:
        self._workspace = workspace
        self._run = run
        self._context = context
        self._package = workspace.package
        self._target = f"feat/{workspace.package.feature_slug}"
        self._publisher = PullRequestPublisher(
            workspace.project, workspace.name, context.started_at
        )

    def publish(self) -> StepResult[AnyPackageEvent]:
        """Push what passed the manifest, onto a feature's branch that is the same here and there."""
        run = self._run
        publisher = self._publisher
        branch = self._package.branch
        stopped = self._sync_target_branch() or publisher.push(
            branch, run.commit, run.pull.commit if run.pull else ""
        )
        if stopped:
            return StepResult((PackageHeld(*stopped),))

        title = make_pull_title(
            f"{self._package.feature_slug} {self._package.work_package_id}", self._package.title
        )
        pull = publisher.ensure_pull_request(branch, self._target, title, self._render_body())
        if isinstance(pull, ForgeProblem):
            return StepResult((PackageHeld(*pull),))

        publisher.connection.forge.set_status(run.commit, True, "the manifest passed")
        publisher.answer_remarks(pull, run.remarks[len(run.remarks) - run.unanswered :], run.commit)

        return StepResult((PackagePublished(pull.number, pull.url, run.commit),))

    def _render_body(self) -> str:
        package = self._package
        run = self._run
        head = run.commit[:12]
        tests = ", ".join(package.deliverables.tests)

        return render_pull_body(
            PullBodyParts(
                marker=self._publisher.marker,
                description=package.title,
                requirements=[
                    (name, package.work_package_id, head, tests) for name in package.requirements
                ],
                packages=[(package.work_package_id, f"{package.title} (round {run.round})", head)],
                gates=[("manifest", "passed", self._workspace.phase)],
            )
        )

    def _sync_target_branch(self) -> ForgeProblem | None:
        """The feature's branch is the same here and at the forge.

        Whichever is behind is moved forward.
        """
        repository = self._workspace.project.repository
        remote = self._publisher.connection.remote
        here = read_refs(repository, BRANCH_PREFIX + self._target)[BRANCH_PREFIX + self._target]
        there = fetch_branch(repository, remote, self._target)
        if not there or there == here or is_ancestor(repository, there, here):
            return self._publisher.push(self._target, here, there)

        if is_ancestor(repository, here, there):
            with repository_lock(repository) as lock:
                moved = advance_branch(
                    repository=repository,
                    lock=lock,
                    branch=self._target,
                    old=here,
                    new=there,
                    reason="as merged at the forge",
                )

            if moved:
                return ForgeProblem(
                    f"{self._target} cannot be moved: {moved}", "see who has it, then resolve"
                )

            return None

        return ForgeProblem(
            f"{self._target} here and at the forge have both moved on",
            "merge one into the other, then resolve",
        )

    def poll(self) -> StepResult[AnyPackageEvent]:
        """One look at the pull request; no event where nothing is to be done yet."""
        run = self._run
        assert run.pull is not None, "it was published before"
        look = self._publisher.connection.forge.fetch_pull(run.pull.number)
        known = frozenset(one.id for one in run.remarks)
        automatic = self._workspace.project.config.merge.auto_merge
        found = decide_pull_step(
            look, head=run.commit, base=self._target, handled_remarks=known, auto_merge=automatic
        )

        match found.step:
            case PullStep.STOP:
                return StepResult((PackageHeld(found.reason, found.remedy),))
            case PullStep.FIX:
                remarks = tuple(
                    AcceptedRemark(one.id, one.thread, format_remark_finding(one))
                    for one in found.remarks
                )
                return StepResult((PackageRemarksReceived(remarks),))
            case PullStep.MERGE:
                return self._merge(run.pull)
            case PullStep.MERGED:
                return self._confirm_merge(found.reason)
            case _:
                return StepResult((), notices=(f"waits for {run.pull.url}: {found.reason}",))

    def _merge(self, pull: PackagePublished) -> StepResult[AnyPackageEvent]:
        """Checked on top of what was merged before it.

        Then the forge merges it at the head that was judged.
        """
        if stopped := self._sync_target_branch():
            return StepResult((PackageHeld(*stopped),))

        notes = TrailNoteBuilder(self._workspace.project, self._context.workers)
        made = prepare_package_merge(self._workspace, notes)
        if not isinstance(made, PreparedMerge):
            return StepResult((made,), trail_notes=notes.entries)

        settings = self._workspace.project.config.merge
        answer = self._publisher.connection.forge.merge_pull(
            pull.number, pull.commit, settings.method, queue=settings.use_merge_queue
        )
        if answer.outcome is MergeOutcome.MERGED:
            return self._confirm_merge(answer.detail)._replace(trail_notes=notes.entries)

        if answer.outcome is MergeOutcome.REFUSED:
            return StepResult(
                (
                    PackageHeld(
                        f"the forge refuses the merge: {answer.detail}",
                        "see its rules, then resolve",
                    ),
                )
            )

        return StepResult(
            (), notices=(f"waits for {pull.url}: {answer.outcome} {answer.detail}".rstrip(),)
        )

    def _confirm_merge(self, commit: str) -> StepResult[AnyPackageEvent]:
        """The forge says that it merged: the feature's branch there must hold that, and comes here."""
        if not self._publisher.find_head_containing(self._target, commit):
            reason = f"the forge says that it merged as {commit[:12] or 'nothing'}, and {self._target} has not that"
            return StepResult((PackageHeld(reason, "look at the forge, then resolve"),))
        if stopped := self._sync_target_branch():
            return StepResult((PackageHeld(*stopped),))
        return StepResult((PackageMerged(commit),), notices=self._delete_remote_branch())

    def _delete_remote_branch(self) -> tuple[str, ...]:
        """The package's branch at the forge is removed, if it is where we left it.

        It stops nothing.
        """
        branch = self._package.branch
        commit = self._run.commit
        remote = self._publisher.connection.remote
        repository = self._workspace.project.repository

        try:
            if get_remote_branch(repository, remote, branch) == commit:
                push_branch(repository, remote, branch, commit, None)
        except EnvironmentUnavailable as error:
            return (f"{branch} may be left at the forge: {error.message}",)

        return ()
