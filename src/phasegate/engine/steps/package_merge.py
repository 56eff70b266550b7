"""Merge a package into its feature's branch: merge in memory, check the result, move the ref."""

from __future__ import annotations

from collections.abc import Sequence

from phasegate.core.machine.package_events import AnyPackageEvent, PackageMerged, PackageNotMerged
from phasegate.engine.checks.evidence_text import describe_evidence, describe_failures
from phasegate.engine.checks.manifest import PackageChecker
from phasegate.engine.jobs.step import LastJob, StepResult
from phasegate.engine.jobs.trail_notes import TrailNoteBuilder
from phasegate.engine.steps.harvest import summarize_paths
from phasegate.engine.steps.workplace import PackageWorkspace
from phasegate.errors import StateConflict
from phasegate.prompts.shipped_texts import render_note
from phasegate.workspace.repository.merge import (
    AlreadyMerged,
    MergeConflict,
    PreparedMerge,
    prepare_merge,
)

MAX_MERGE_ATTEMPTS = 20


def merge_package(
    workspace: PackageWorkspace, workers: Sequence[LastJob]
) -> StepResult[AnyPackageEvent]:
    """Merge a package into its feature's branch, by compare-and-swap."""
    notes = TrailNoteBuilder(workspace.project, workers)
    for _ in range(MAX_MERGE_ATTEMPTS):
        if (result := _try_package_merge(workspace, notes)) is not None:
            return StepResult((result,), trail_notes=notes.entries)
    raise StateConflict(
        f"feat/{workspace.package.feature_slug} was updated concurrently too often",
        "run `phasegate dispatch` again",
    )


def prepare_package_merge(
    workspace: PackageWorkspace, notes: TrailNoteBuilder
) -> PreparedMerge | PackageMerged | PackageNotMerged:
    """Merge a package with its feature's branch in memory, and check the result."""
    package = workspace.package
    target = f"feat/{package.feature_slug}"
    merge = prepare_merge(
        workspace.project.repository,
        package.branch,
        target,
        _merge_message(workspace),
        workspace.signature(),
    )
    if isinstance(merge, AlreadyMerged):
        return PackageMerged(merge.commit)

    if isinstance(merge, MergeConflict):
        for index in range(workspace.agent_count):
            workspace.renew_checkout(index)
        return PackageNotMerged(
            render_note(
                "conflict", TARGET=target, REASON=f"conflicts in {summarize_paths(merge.paths)}"
            )
        )

    if merge.target_commit != workspace.base_commit():
        # Compare with the current head of the target: this package is not responsible for what
        # other packages merged since it started.
        checker = PackageChecker(
            workspace.project, package, merge.target_commit, workspace.approved
        )
        evidence = checker.check_commit(merge.commit)
        notes.add_checks(
            evidence,
            merge.commit,
            workspace.project.document_store.put(describe_evidence(evidence).encode()),
        )
        if not evidence.has_passed:
            return PackageNotMerged("\n".join(describe_failures(evidence)))

    return merge


def _merge_message(workspace: PackageWorkspace) -> str:
    return (
        f"{workspace.package.work_package_id}: merge into feat/{workspace.package.feature_slug}\n"
    )


def _try_package_merge(
    workspace: PackageWorkspace, notes: TrailNoteBuilder
) -> PackageMerged | PackageNotMerged | None:
    """Try to merge once. Return None if the ref has moved."""
    merge = prepare_package_merge(workspace, notes)
    if not isinstance(merge, PreparedMerge):
        return merge
    if not workspace.project.refs.move(merge.target, merge.target_commit, merge.commit):
        return None

    notes.add_merge(merge.commit, _merge_message(workspace))
    return PackageMerged(merge.commit)
