"""The end of a feature: its branch merged into its base, and what is done with put away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phasegate.checks.evidence import Evidence
from phasegate.checks.excerpt import format_names
from phasegate.config.settings import MAX_ATTEMPTS, CommitHookPolicy
from phasegate.core.machine.feature_events import Completed, Merged, NotMerged, SentBack
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.overlap import explain_failed_combination
from phasegate.engine.checks.manifest import describe_evidence, describe_failures
from phasegate.engine.checks.phase_commands import check_merge
from phasegate.engine.jobs.trail_notes import TrailNoteBuilder
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import collect_lent_secrets
from phasegate.engine.steps.briefing import CHANGELOG
from phasegate.engine.steps.workplace import review_folder
from phasegate.errors import BranchUpdateBlocked
from phasegate.workspace.checkout import Assignment, Checkout, find_checkout
from phasegate.workspace.checkout_lifecycle import (
    UnsavedWork,
    delete_merged_branch,
    remove_checkout,
)
from phasegate.workspace.commit_log import list_merged_subjects
from phasegate.workspace.merge import (
    AlreadyMerged,
    MergeConflict,
    SigningFailed,
    list_commit_hooks,
    prepare_merge,
    sign_merge,
)
from phasegate.workspace.objects import write_tree_commit
from phasegate.workspace.refs import BRANCH_PREFIX
from phasegate.workspace.removal import remove_tree
from phasegate.workspace.repository import read_refs

_MAX_ATTEMPTS = 20
_SIGNING_REMEDY = "unlock the key, or fix gpg.format, user.signingkey and gpg.program, then resolve: the merge is tried again"
MAX_AGENTS = 64


def merge_feature(
    project: Project, feature: Feature, notes: TrailNoteBuilder
) -> Merged | NotMerged | SentBack:
    """Merge a feature's branch into its base.

    Tested as merged, by compare and swap, over nobody's commits.

    Only the archive may have come after the commit that the last reviewer saw.
    """
    branch = FeatureBranch(project, feature.workflow.feature)
    base = feature.base
    if hooked := check_commit_hooks(project, branch.name, base):
        return hooked

    title = f"{branch.slug}: {' '.join(feature.description.split()) or feature.workflow.type}"
    if not project.config.run.merge_feature_folder:
        gone = {f"{branch.folder}/{name}": None for name in branch.list_files()}
        branch.commit_files(gone, f"archive: {branch.folder} is not delivered\n")

    for _ in range(_MAX_ATTEMPTS):
        done = _try_feature_merge(branch, base, title, feature.judged, notes)
        if done is not None:
            return done

    return NotMerged(f"{base} keeps moving", "resolve when it is quiet: the merge is tried again")


def _try_feature_merge(
    branch: FeatureBranch, base: str, title: str, reviewed_commit: str, notes: TrailNoteBuilder
) -> Merged | NotMerged | SentBack | None:
    project, repository = branch.project, branch.project.repository
    message = f"{title}\n\nMerge {branch.name} into {base}.\n"
    made = prepare_merge(repository, branch.name, base, message, project.make_signature())
    if isinstance(made, AlreadyMerged):
        return Merged(made.commit)

    if isinstance(made, MergeConflict):
        paths = ", ".join(made.paths)
        return NotMerged(
            f"{branch.name} and {base} changed the same lines: {paths}",
            _manual_merge_remedy(branch, base),
        )

    if later := branch.list_changes_since(
        reviewed_commit, made.source_commit, CHANGELOG, branch.folder
    ):
        return NotMerged(
            f"changed on {branch.name} after its last review: {format_names(later)}",
            "look at what changed there, and resolve if it is to be merged",
        )

    evidence = check_merge(project, branch.slug, made.target_commit, made.commit)
    notes.add_checks(
        evidence, made.commit, project.document_store.put(describe_evidence(evidence).encode())
    )

    if evidence.failures:
        return handle_failed_merge_checks(
            branch=branch,
            base=base,
            base_tip=made.target_commit,
            source=made.source_commit,
            tree=made.tree,
            evidence=evidence,
        )

    made_so = sign_merge(repository, made, message, project.make_signature())
    if isinstance(made_so, SigningFailed):
        return NotMerged(
            f"your commits are to be signed (commit.gpgsign), and signing failed: {made_so.reason}",
            _SIGNING_REMEDY,
        )

    made = made_so
    try:
        if not project.refs.move(base, made.target_commit, made.commit):
            return None
    except BranchUpdateBlocked as error:
        return NotMerged(
            str(error), "commit or stash what is there, then resolve: the merge is tried again"
        )

    notes.add_merge(made.commit, message)
    return Merged(made.commit)


def _manual_merge_remedy(branch: FeatureBranch, base: str) -> str:
    return f"merge {base} into {branch.name} and solve it there, then resolve: the merge is tried again"


def list_work_names(feature: Feature) -> tuple[str, ...]:
    """All that checkouts and branches of a feature are named after."""
    return (*feature.packages, *feature.workflow.phases, "archive", "feature")


def clean_up_feature(project: Project, feature: Feature) -> Completed:
    """Put away checkouts, rooms, and branches that the base has; what holds more is kept and named."""
    slug = feature.workflow.feature
    names = list_work_names(feature)
    remove_checkouts(project, slug, names)
    branches = list_feature_branches(project, slug, names)
    if feature.pull and feature.merged:
        merged = feature.pull.head
    else:
        merged = ""

    return Completed(
        tuple(
            branch
            for branch in branches
            if not _try_drop_branch(project, slug, branch, feature.base, merged)
        )
    )


def _try_drop_branch(project: Project, slug: str, branch: str, base: str, merged: str) -> bool:
    """A branch is not needed when its base, or the feature's branch, has its whole history."""
    targets = (base, f"feat/{slug}") if branch != f"feat/{slug}" else (base,)
    return any(
        delete_merged_branch(project.repository, branch, target, merged) for target in targets
    )


def remove_checkouts(project: Project, slug: str, work_names: Iterable[str]) -> tuple[str, ...]:
    """Remove the checkouts of a feature, saving what is in them; the folders that had to stay."""
    kept = []

    for work in work_names:
        for found in _find_checkouts(project, slug, work):
            if isinstance(
                remove_checkout(found, project.make_signature(), collect_lent_secrets(project)),
                UnsavedWork,
            ):
                kept.append(str(found.folder))

        for room in (
            review_folder(project, f"{slug}-{work}"),
            project.location.data_folder / "rooms" / f"{slug}-{work}",
        ):
            if room.exists():
                remove_tree(room)

    return tuple(kept)


def _find_checkouts(project: Project, slug: str, work: str) -> Iterator[Checkout]:
    """The checkouts of a piece of work: one, or one for each agent."""
    single = Assignment(slug, work)
    shares = (Assignment(slug, work, index) for index in range(MAX_AGENTS))
    attempts = (Assignment(slug, work, attempt=number) for number in range(MAX_ATTEMPTS))
    for assignment in (single, *shares, *attempts):
        found = find_checkout(project.repository, assignment)
        if found is not None:
            yield found


def list_feature_branches(project: Project, slug: str, work_names: Iterable[str]) -> list[str]:
    """The branches of a feature that there are, its own last."""
    tries = (
        Assignment(slug, work, attempt=number).branch
        for work in work_names
        for number in range(MAX_ATTEMPTS)
    )
    names = [*tries, *(f"feat/{slug}-{work}" for work in work_names), f"feat/{slug}"]
    refs = read_refs(project.repository, *(BRANCH_PREFIX + name for name in names))

    return [name for name in names if BRANCH_PREFIX + name in refs]


def check_commit_hooks(project: Project, branch: str, base: str) -> NotMerged | None:
    """A person may want no commits that their hooks have not seen."""
    if project.config.run.commit_hooks is CommitHookPolicy.STOP:
        hooks = list_commit_hooks(project.repository)
    else:
        hooks = ()

    if not hooks:
        return None
    return NotMerged(
        f"commits here go through hooks ({', '.join(hooks)}), and they are not run on ours",
        f'merge {branch} into {base} by hand, or set commit_hooks = "skip" in [run]; then resolve',
    )


def skipped_hook_notices(project: Project) -> tuple[str, ...]:
    """What a person is told where their hooks would run at a commit, and do not at ours."""
    hooks = list_commit_hooks(project.repository)
    if hooks:
        return (f"not run on this merge: your hooks {', '.join(hooks)} ([run] commit_hooks)",)
    return ()


def handle_failed_merge_checks(
    branch: FeatureBranch, base: str, base_tip: str, source: str, tree: str, evidence: Evidence
) -> SentBack | NotMerged | None:
    """What becomes of a red combination.

    None if the branch moved meanwhile.

    Where nothing came since the feature began, or the base fails by itself, more work at the
    feature would not help.
    """
    project = branch.project
    remedy = f"fix {branch.name}, then resolve"
    found = "\n".join(describe_failures(evidence))
    since = list_merged_subjects(project.repository, source, base_tip)
    reason = f"the checks fail on {branch.name} merged into {base}"
    if not since:
        return NotMerged(f"{reason}:\n{found}", remedy)

    if check_merge(project, branch.slug, base_tip, base_tip).failures:
        return NotMerged(
            f"{reason}, and on {base} without it:\n{found}", f"fix {base}, then resolve"
        )

    message = f"{branch.slug}: take in what came to {base}\n"
    commit = write_tree_commit(
        project.repository, tree, (source, base_tip), project.make_signature(), message
    )
    if not project.refs.move(branch.name, source, commit):
        return None

    return SentBack(explain_failed_combination(branch.name, base, since), found, remedy)
