"""A package's work into its feature's branch.

Merged on paper, checked as merged, then the ref moves.
"""

from __future__ import annotations

from collections.abc import Sequence

from phasegate.core.machine.package_events import AnyPackageEvent, PackageMerged, PackageNotMerged
from phasegate.engine.checks.manifest import PackageChecker, describe_evidence, describe_failures
from phasegate.engine.jobs.step import StepResult, UnitWorker
from phasegate.engine.jobs.trail_notes import TrailNoteBuilder
from phasegate.engine.steps.harvest import summarize_paths
from phasegate.engine.steps.workplace import PackageWorkspace
from phasegate.errors import StateConflict
from phasegate.prompts.shipped_texts import render_note
from phasegate.workspace.merge import AlreadyMerged, MergeConflict, PreparedMerge, prepare_merge

MAX_MERGE_ATTEMPTS = 20


def merge_package(
    workspace: PackageWorkspace, workers: Sequence[UnitWorker]
) -> StepResult[AnyPackageEvent]:
    """Merge a package's work into its feature's branch, by compare and swap."""
    notes = TrailNoteBuilder(workspace.project, workers)
    for _ in range(MAX_MERGE_ATTEMPTS):
        if (done := _try_package_merge(workspace, notes)) is not None:
            return StepResult((done,), trail_notes=notes.entries)
    raise StateConflict(f"feat/{workspace.package.feature_slug} keeps moving", "dispatch again")


def prepare_package_merge(
    workspace: PackageWorkspace, notes: TrailNoteBuilder
) -> PreparedMerge | PackageMerged | PackageNotMerged:
    """A package merged with its feature's branch on paper, and checked so."""
    package, repository, target = (
        workspace.package,
        workspace.project.repository,
        f"feat/{workspace.package.feature_slug}",
    )
    made = prepare_merge(
        repository, package.branch, target, _merge_message(workspace), workspace.signature()
    )
    if isinstance(made, AlreadyMerged):
        return PackageMerged(made.commit)

    if isinstance(made, MergeConflict):
        for index in range(workspace.agent_count):
            workspace.renew_checkout(index)
        return PackageNotMerged(
            render_note(
                "conflict", TARGET=target, REASON=f"conflicts in {summarize_paths(made.paths)}"
            )
        )

    if made.target_commit != workspace.base_commit():
        # Measured from where the branch is now: what others merged meanwhile is not this package's
        # to answer for.
        evidence = PackageChecker(workspace.project, package, made.target_commit).check_commit(
            made.commit
        )
        notes.add_checks(
            evidence,
            made.commit,
            workspace.project.document_store.put(describe_evidence(evidence).encode()),
        )
        if not evidence.has_passed:
            return PackageNotMerged("\n".join(describe_failures(evidence)))

    return made


def _merge_message(workspace: PackageWorkspace) -> str:
    return (
        f"{workspace.package.work_package_id}: merge into feat/{workspace.package.feature_slug}\n"
    )


def _try_package_merge(
    workspace: PackageWorkspace, notes: TrailNoteBuilder
) -> PackageMerged | PackageNotMerged | None:
    """None if the ref has moved in the meantime."""
    made = prepare_package_merge(workspace, notes)
    if not isinstance(made, PreparedMerge):
        return made
    if not workspace.project.refs.move(made.target, made.target_commit, made.commit):
        return None

    notes.add_merge(made.commit, _merge_message(workspace))
    return PackageMerged(made.commit)
