"""Merge a feature's branch into its base, and clean up its checkouts and branches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from phasegate.checks.evidence import Evidence
from phasegate.checks.excerpt import format_names
from phasegate.config.settings import MAX_ATTEMPTS, CommitHookPolicy
from phasegate.core.display.status import THEN_RUN
from phasegate.core.machine.feature_events import Completed, Merged, NotMerged, SentBack
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.acceptance import SealedTests
from phasegate.core.plan.feature_overlap import explain_failed_combination, format_merged
from phasegate.core.plan.work_package import PackageState
from phasegate.engine.checks.evidence_text import describe_evidence, describe_failures
from phasegate.engine.checks.feature_checks import check_merge
from phasegate.engine.jobs.step import StepContext
from phasegate.engine.jobs.trail_notes import TrailNoteBuilder
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import collect_lent_secrets
from phasegate.engine.steps.delivery import Delivery, list_archive_paths, prepare_delivery
from phasegate.engine.steps.spec_update import (
    SPEC_REMEDY,
    compute_merged_specs,
    describe_spec_problems,
    store_files,
)
from phasegate.engine.steps.workplace import review_folder
from phasegate.errors import BranchUpdateBlocked
from phasegate.storage.rows import PackageRow
from phasegate.workspace.changes.saved_work import save_commit
from phasegate.workspace.checkout.checkout import Assignment, Checkout, find_checkout
from phasegate.workspace.checkout.removal import remove_tree
from phasegate.workspace.checkout_lifecycle import (
    UnsavedWork,
    delete_merged_branch,
    remove_checkout,
)
from phasegate.workspace.repository.commit_log import diff_commits, list_merged_subjects
from phasegate.workspace.repository.merge import (
    AlreadyMerged,
    MergeConflict,
    PreparedMerge,
    SigningFailed,
    find_merge,
    find_merge_base,
    list_commit_hooks,
    merge_trees,
    prepare_merge,
    sign_merge,
)
from phasegate.workspace.repository.objects import write_tree_commit
from phasegate.workspace.repository.refs import BRANCH_PREFIX, missing_branch_error
from phasegate.workspace.repository.repository import Repository, is_ancestor, read_refs
from phasegate.workspace.repository.rewrite import (
    DELIVERED_PREFIX,
    ORIGINAL_PREFIX,
    find_path,
    pin_paths,
)
from phasegate.workspace.repository.user_checkout import NOT_COMMITTED

_MAX_MERGE_TRIES = 20
_MAX_CONFLICT_CHARS = 12_000
_SIGNING_REMEDY = (
    "unlock the key, or fix gpg.format, user.signingkey and gpg.program, "
    "then resolve to retry the merge"
)
_MAX_AGENT_CHECKOUTS = 64


def merge_feature(
    project: Project, feature: Feature, context: StepContext, notes: TrailNoteBuilder
) -> Merged | NotMerged | SentBack:
    """Merge a feature into its base, after the checks pass on the merged tree.

    What is merged is prepared by `delivery`. The base moves by compare-and-swap, so that no other
    commit is lost. After the last reviewed commit, only changes of the archive phase are accepted.
    """
    branch = FeatureBranch(project, feature.workflow.feature)
    base = feature.base

    for _ in range(_MAX_MERGE_TRIES):
        result = _try_feature_merge(branch, feature, context, notes)
        if result is not None:
            return result

    return NotMerged(
        f"{base} was updated concurrently too often",
        "resolve to retry when nothing else merges into it",
    )


def list_decisions(decisions: str) -> str:
    """Render the user's decisions as a list with a heading line; empty if there are none."""
    lines = [f"- {line}\n" for line in decisions.splitlines() if line.strip()]
    if lines:
        return f"\nDecisions:\n{''.join(lines)}"
    return ""


def _describe_checkout_remedy(reason: str) -> str:
    """Return what to do about a checkout that cannot follow its branch."""
    # `run` looks at it again by itself
    if NOT_COMMITTED in reason:
        return f"commit or stash your changes, {THEN_RUN}"
    return "commit or stash your changes, then resolve to retry the merge"


def _try_feature_merge(
    branch: FeatureBranch, feature: Feature, context: StepContext, notes: TrailNoteBuilder
) -> Merged | NotMerged | SentBack | None:
    """Try to merge once. Return None if the base has moved."""
    project = branch.project
    repository = project.repository
    base = feature.base
    delivery = _prepare_unmerged_delivery(branch, feature, context, notes)
    if not isinstance(delivery, Delivery):
        return delivery

    message = delivery.message
    merge = _prepare_merge_with_specs(branch, base, delivery)
    if merge is None or isinstance(merge, NotMerged):
        return merge

    if isinstance(merge, AlreadyMerged):
        return Merged(merge.commit)

    if isinstance(merge, MergeConflict):
        return handle_conflict(
            branch=branch,
            feature=feature,
            source=delivery.original,
            base_tip=project.refs.fetch(base)[base],
            paths=merge.paths,
            remedy=f"merge them: git switch {branch.name} && git merge {base}, fix the conflicts, "
            f"git commit, git switch {base}; then resolve to retry the merge",
        )

    if changed_later := branch.list_changes_since(
        feature.evaluated_commit,
        delivery.original,
        *list_archive_paths(branch, base, delivery.original),
    ):
        return NotMerged(
            f"changed on {branch.name} after its last review: {format_names(changed_later)}",
            "review these changes, then resolve to merge them",
        )

    evidence = _run_merge_checks(
        branch, merge.target_commit, merge.commit, notes, context.acceptance
    )
    if evidence.failures:
        return handle_failed_merge_checks(
            branch=branch,
            base=base,
            base_tip=merge.target_commit,
            source=delivery.original,
            evidence=evidence,
        )

    signed = sign_merge(repository, merge, message, project.make_signature())
    if isinstance(signed, SigningFailed):
        return NotMerged(
            f"commit.gpgsign is set, and signing failed: {signed.reason}",
            _SIGNING_REMEDY,
        )

    try:
        if not project.refs.move(base, signed.target_commit, signed.commit):
            return None
    except BranchUpdateBlocked as error:
        return NotMerged(str(error), _describe_checkout_remedy(str(error)))

    notes.add_merge(signed.commit, message)
    return Merged(signed.commit)


def _prepare_merge_with_specs(
    branch: FeatureBranch, base: str, delivery: Delivery
) -> PreparedMerge | MergeConflict | AlreadyMerged | NotMerged | None:
    """Prepare the merge that also changes the current specifications; None if the base moved."""
    project = branch.project
    base_tip = project.refs.fetch(base)[base]
    specs = compute_merged_specs(branch, delivery.original, base_tip, delivery.code)
    if specs.problems:
        return NotMerged(describe_spec_problems(specs), SPEC_REMEDY)

    files = store_files(branch, specs.files)
    for path in delivery.specs:
        # Written for an older base
        if path not in files and (present := find_path(project.repository, base_tip, path)):
            files[path] = present

    merge = prepare_merge(
        repository=project.repository,
        source=branch.name,
        target=base,
        message=delivery.message,
        signature=project.make_signature(),
        source_commit=delivery.commit,
        files=files,
    )
    if isinstance(merge, PreparedMerge) and merge.target_commit != base_tip:
        return None
    return merge


def _run_merge_checks(
    branch: FeatureBranch,
    base: str,
    commit: str,
    notes: TrailNoteBuilder,
    acceptance: SealedTests | None,
) -> Evidence:
    """Run the checks on the merge, and store the evidence."""
    project = branch.project
    evidence = check_merge(project, branch.slug, base, commit, acceptance)
    document = project.document_store.put(describe_evidence(evidence).encode())
    notes.add_checks(evidence, commit, document)
    return evidence


def _prepare_unmerged_delivery(
    branch: FeatureBranch, feature: Feature, context: StepContext, notes: TrailNoteBuilder
) -> Delivery | Merged | NotMerged:
    """Return the delivery to merge, or the result if it is merged already or must not be."""
    project = branch.project
    base_tip = project.refs.fetch(feature.base).get(feature.base)
    if base_tip is None:
        raise missing_branch_error(project.repository, feature.base)

    delivery = prepare_delivery(branch, feature, context, base_tip)
    if isinstance(delivery, NotMerged):
        return delivery
    if contained := _find_contained_commit(project.repository, base_tip, delivery):
        merge = find_merge(project.repository, feature.base, contained, base_tip)
        if merge.base:
            # A killed run has merged it, and may not have recorded its checks
            _run_merge_checks(branch, merge.base, merge.commit, notes, context.acceptance)
        return Merged(merge.commit)
    return check_commit_hooks(project, branch.slug, feature.base) or delivery


def _find_contained_commit(repository: Repository, base_tip: str, delivery: Delivery) -> str:
    """Return the commit of the feature that the base has: merged before a crash, or by the user.

    The document may have changed since a merge that was not recorded, so the code decides.
    """
    commits = [delivery.commit, delivery.original]
    if delivery.code != find_merge_base(repository, base_tip, delivery.original):
        commits.append(delivery.code)
    return next((commit for commit in commits if is_ancestor(repository, commit, base_tip)), "")


def handle_conflict(
    *,
    branch: FeatureBranch,
    feature: Feature,
    source: str,
    base_tip: str,
    paths: tuple[str, ...],
    remedy: str,
) -> NotMerged | SentBack | None:
    """Let an agent merge conflicting files, once; then the user has to do it.

    The branch gets the base's version of these files, so that nothing of the base is lost and the
    tree can be tested. The agent applies the feature's change to them again.
    """
    project = branch.project
    repository = project.repository
    base = feature.base
    names = ", ".join(paths)
    subjects = list_merged_subjects(repository, source, base_tip)
    reason = (
        f"{branch.name} and {base} changed the same lines: {names}; "
        f"merged since it started: {format_merged(subjects)}"
    )
    is_own = any(path.startswith(f"{branch.folder}/") for path in paths)
    if feature.sent_back or not feature.can_fix or is_own:
        return NotMerged(reason, remedy)

    merged = merge_trees(repository, source, base_tip).tree
    tree = pin_paths(repository, [merged], paths, base_tip)[merged]
    commit = write_tree_commit(
        repository,
        tree,
        (source, base_tip),
        project.make_signature(),
        f"{branch.slug}: merge new commits of {base}\n",
    )
    if not project.refs.move(branch.name, source, commit):
        return None

    start = find_merge_base(repository, source, base_tip)
    change = diff_commits(repository, start, source, paths)
    findings = (
        f"{names}: the file has the version of {base}. Apply this change of the feature to it "
        f"again, and keep what {base} has:\n\n{change[:_MAX_CONFLICT_CHARS]}"
    )
    return SentBack(reason, findings, remedy)


def list_work_names(feature: Feature, packages: Iterable[PackageRow]) -> tuple[str, ...]:
    """Return the names after which a feature's checkouts and branches are named.

    `packages` include those that a changed plan has replaced.
    """
    return (*(row.id for row in packages), *feature.workflow.phases, "archive", "feature")


def clean_up_feature(
    project: Project, feature: Feature, packages: Sequence[PackageRow]
) -> Completed:
    """Remove checkouts, temporary folders and merged branches; list the branches that are kept."""
    slug = feature.workflow.feature
    names = list_work_names(feature, packages)
    remove_checkouts(project, slug, names)
    branches = list_feature_branches(project, slug, names)
    kept = ORIGINAL_PREFIX + slug
    merged = read_refs(project.repository, kept).get(kept, "") if feature.merged else ""
    replaced = {
        Assignment(slug, row.id).branch for row in packages if row.state == PackageState.REPLACED
    }

    return Completed(
        tuple(
            branch
            for branch in branches
            if not _try_drop_branch(project, slug, branch, feature.base, merged)
            and not (feature.merged and branch in replaced and _archive_branch(project, branch))
        )
    )


def _archive_branch(project: Project, branch: str) -> bool:
    """Delete the branch of a replaced package, after its work is saved."""
    repository = project.repository
    ref = BRANCH_PREFIX + branch
    tip = read_refs(repository, ref)[ref]
    save_commit(repository, branch.removeprefix("feat/"), tip)
    return delete_merged_branch(repository, branch, branch, tip)


def _try_drop_branch(project: Project, slug: str, branch: str, base: str, merged: str) -> bool:
    """Delete a branch whose history is contained in the base or in the feature's branch."""
    targets = (base, f"feat/{slug}") if branch != f"feat/{slug}" else (base,)
    return any(
        delete_merged_branch(project.repository, branch, target, merged) for target in targets
    )


def remove_checkouts(project: Project, slug: str, work_names: Iterable[str]) -> tuple[str, ...]:
    """Remove the checkouts of a feature, saving their changes. Return the folders that are kept."""
    kept = []

    for work in work_names:
        for checkout in _find_checkouts(project, slug, work):
            if isinstance(
                remove_checkout(checkout, project.make_signature(), collect_lent_secrets(project)),
                UnsavedWork,
            ):
                kept.append(str(checkout.folder))

        for folder in (
            review_folder(project, f"{slug}-{work}"),
            project.location.data_folder / "rooms" / f"{slug}-{work}",
        ):
            if folder.exists():
                remove_tree(folder)

    return tuple(kept)


def _find_checkouts(project: Project, slug: str, work: str) -> Iterator[Checkout]:
    """Yield the checkouts of a package or phase: one, one per agent, or one per attempt."""
    single = Assignment(slug, work)
    shares = (Assignment(slug, work, index) for index in range(_MAX_AGENT_CHECKOUTS))
    attempts = (Assignment(slug, work, attempt=number) for number in range(MAX_ATTEMPTS))
    for assignment in (single, *shares, *attempts):
        checkout = find_checkout(project.repository, assignment)
        if checkout is not None:
            yield checkout


def list_feature_branches(project: Project, slug: str, work_names: Iterable[str]) -> list[str]:
    """List the existing branches of a feature, the feature's own branch last."""
    tries = (
        Assignment(slug, work, attempt=number).branch
        for work in work_names
        for number in range(MAX_ATTEMPTS)
    )
    names = [*tries, *(f"feat/{slug}-{work}" for work in work_names), f"feat/{slug}"]
    refs = read_refs(project.repository, *(BRANCH_PREFIX + name for name in names))

    return [name for name in names if BRANCH_PREFIX + name in refs]


def check_commit_hooks(project: Project, slug: str, base: str) -> NotMerged | None:
    """Refuse the merge if the user wants no commits that bypass the repository's hooks."""
    if project.config.run.commit_hooks is not CommitHookPolicy.STOP:
        return None

    hooks = list_commit_hooks(project.repository)
    if not hooks:
        return None
    return NotMerged(
        f"this repository has commit hooks ({', '.join(hooks)}), which Phasegate does not run",
        f"merge it into {base} manually (git merge --no-ff {DELIVERED_PREFIX}{slug}), "
        'or set commit_hooks = "skip" in [run]; then resolve',
    )


def skipped_hook_notices(project: Project) -> tuple[str, ...]:
    """Return a notice if the repository has commit hooks, which are not run on this merge."""
    hooks = list_commit_hooks(project.repository)
    if hooks:
        return (f"your hooks were not run on this merge: {', '.join(hooks)} ([run] commit_hooks)",)
    return ()


def handle_failed_merge_checks(
    branch: FeatureBranch, base: str, base_tip: str, source: str, evidence: Evidence
) -> SentBack | NotMerged | None:
    """Handle checks that failed on the merged tree.

    Return None if the branch has moved. If the base has no new commits, or fails by itself, more
    work on the feature would not help: the merge is refused. Otherwise the merge commit goes to the
    feature's branch and the feature is sent back.
    """
    project = branch.project
    remedy = f"fix {branch.name}, then resolve"
    failures = "\n".join(describe_failures(evidence))
    new_subjects = list_merged_subjects(project.repository, source, base_tip)
    reason = f"the checks fail on {branch.name} merged into {base}"
    if not new_subjects:
        return NotMerged(f"{reason}:\n{failures}", remedy)

    if check_merge(project, branch.slug, base_tip, base_tip).failures:
        return NotMerged(
            f"{reason}, and also on {base} alone:\n{failures}", f"fix {base}, then resolve"
        )

    message = f"{branch.slug}: merge new commits of {base}\n"
    tree = merge_trees(project.repository, source, base_tip).tree
    commit = write_tree_commit(
        project.repository, tree, (source, base_tip), project.make_signature(), message
    )
    if not project.refs.move(branch.name, source, commit):
        return None

    return SentBack(explain_failed_combination(branch.name, base, new_subjects), failures, remedy)
