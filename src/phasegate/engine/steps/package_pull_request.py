"""Publish a work package as a pull request onto its feature's branch, and merge it there."""

from __future__ import annotations

from phasegate.core.forge.outgoing_text import make_pull_title
from phasegate.core.forge.pull_body import PullBodyParts, render_pull_body
from phasegate.core.machine.package_events import (
    AnyPackageEvent,
    PackageHeld,
    PackageMerged,
    PackagePublished,
    PackagePullWaits,
    PackageRemarksReceived,
)
from phasegate.core.machine.package_state import PackageRun, PackageStep
from phasegate.engine.jobs.step import StepContext, StepResult
from phasegate.engine.jobs.trail_notes import TrailNoteBuilder
from phasegate.engine.steps.package_merge import prepare_package_merge
from phasegate.engine.steps.pull_request import (
    ForgeProblem,
    PullRequestSteps,
    PullTarget,
    delete_remote_branch,
)
from phasegate.engine.steps.workplace import PackageWorkspace
from phasegate.workspace.repository.merge import PreparedMerge, merge_trees
from phasegate.workspace.repository.refs import BRANCH_PREFIX, advance_branch
from phasegate.workspace.repository.remote import fetch_branch
from phasegate.workspace.repository.repository import is_ancestor, read_refs
from phasegate.workspace.repository.repository_locks import repository_lock


def run_forge_step(
    workspace: PackageWorkspace, run: PackageRun, context: StepContext
) -> StepResult[AnyPackageEvent]:
    """Run the package's current step on its forge."""
    steps = _PackagePullRequest(workspace, run, context)
    if run.step is PackageStep.PUBLISH:
        return steps.publish()
    return steps.poll()


class _PackagePullRequest(PullRequestSteps[AnyPackageEvent]):
    """Pull request of one package."""

    published = PackagePublished
    remarks_received = PackageRemarksReceived
    waits = PackagePullWaits
    merged = PackageMerged
    held = PackageHeld

    def __init__(self, workspace: PackageWorkspace, run: PackageRun, context: StepContext) -> None:
        self._workspace = workspace
        self._run = run
        self._context = context
        package = workspace.package
        target = PullTarget(
            name=workspace.name,
            branch=package.branch,
            head=run.commit,
            base=f"feat/{package.feature_slug}",
            title=make_pull_title(f"{package.work_package_id}: {package.title}"),
            status="the manifest passed",
            remarks=run.pull_request.remarks,
            unanswered=run.pull_request.unanswered,
        )
        if run.pull_request.published is not None:
            target = target._replace(
                number=run.pull_request.published.number,
                url=run.pull_request.published.url,
                published_head=run.pull_request.published.commit,
            )

        if run.pull_request.wait is not None:
            target = target._replace(
                wait_reason=run.pull_request.wait.reason, was_queued=run.pull_request.wait.queued
            )

        super().__init__(workspace.project, target, context.started_at)

    def check_before_publish(self) -> PackageHeld | None:
        """Hold the package if the local feature branch and the one on the forge have diverged."""
        problem = self._sync_base()
        return PackageHeld(*problem) if problem else None

    def render_body(self) -> str:
        """Render the description of the package's pull request."""
        package = self._workspace.package
        run = self._run
        head = run.commit[:12]
        tests = ", ".join(package.deliverables.tests)

        return render_pull_body(
            PullBodyParts(
                marker=self.marker,
                description=package.title,
                requirements=[
                    (name, package.work_package_id, head, tests) for name in package.requirements
                ],
                packages=[(package.work_package_id, f"{package.title} (round {run.round})", head)],
                gates=[("manifest", "passed", self._workspace.phase)],
            )
        )

    def _sync_base(self) -> ForgeProblem | None:
        """Fast-forward the local feature branch or the one on the forge, whichever is behind."""
        base = self.target.base
        repository = self.project.repository
        local = read_refs(repository, BRANCH_PREFIX + base)[BRANCH_PREFIX + base]
        remote = fetch_branch(repository, self.remote, base)
        if not remote or remote == local or is_ancestor(repository, remote, local):
            return self.push(base, local, remote)

        if not is_ancestor(repository, local, remote):
            return ForgeProblem(
                f"{base} has diverged from the forge",
                "merge one into the other, then resolve",
            )

        with repository_lock(repository) as lock:
            refusal = advance_branch(
                repository=repository,
                lock=lock,
                branch=base,
                old=local,
                new=remote,
                reason="as merged on the forge",
            )

        if refusal:
            return ForgeProblem(
                f"{base} cannot be updated: {refusal}",
                "check where it is checked out, then resolve",
            )
        return None

    def handle_conflict(self) -> StepResult[AnyPackageEvent]:
        repository = self.project.repository
        tip = fetch_branch(repository, self.remote, self.target.base)
        if not tip or not merge_trees(repository, tip, self.target.head).conflicts:
            return StepResult(())
        return self.check_before_merge()

    def check_before_merge(self) -> StepResult[AnyPackageEvent]:
        """Check the package on top of the packages that were merged before it."""
        if problem := self._sync_base():
            return self.hold(problem)

        notes = TrailNoteBuilder(self.project, self._context.workers)
        merge = prepare_package_merge(self._workspace, notes)
        stop = () if isinstance(merge, PreparedMerge) else (merge,)
        return StepResult(stop, trail_notes=notes.entries)

    def finish_merge(self, commit: str) -> StepResult[AnyPackageEvent]:
        """Fetch the merged feature branch, and delete the package's branch on the forge."""
        if problem := self._sync_base():
            return self.hold(problem)

        target = self.target
        return StepResult(
            (PackageMerged(commit),),
            notices=delete_remote_branch(self.project, target.branch, target.head),
        )
