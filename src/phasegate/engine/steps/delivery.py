"""Prepare the merged parts of a feature: its code, its tests and one document.

The feature's branch keeps everything that the workflow wrote. What is merged is a copy of its
history without these files, plus one commit for the document. The checks run on the merge of that
copy. Nothing is moved here but two refs of Phasegate: the original branch and the copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from phasegate.config.settings import DeliveredDocuments, MergeMode, MergePer
from phasegate.core.machine.feature_events import NotMerged
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.delivery import (
    DeliveredTexts,
    find_changelog,
    forbids_changelog,
    make_title,
    render_document,
    render_merge_message,
)
from phasegate.engine.jobs.step import StepContext
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.steps.spec_update import compute_spec_update, store_files
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.merge import find_fork_point, find_merge_base
from phasegate.workspace.repository.objects import write_tree_commit
from phasegate.workspace.repository.repository import (
    is_ancestor,
    read_blobs,
    read_refs,
    resolve_commit,
)
from phasegate.workspace.repository.rewrite import (
    DELIVERED_PREFIX,
    ORIGINAL_PREFIX,
    PUBLISHED_PREFIX,
    add_files,
    find_path,
    rewrite_history,
)
from phasegate.workspace.repository.tree_diff import resolve_tree
from phasegate.workspace.snapshots.feature_snapshot import set_refs

DEFAULT_CHANGELOG = "CHANGELOG.md"
_GUIDELINES = ("CONTRIBUTING.md", "CONTRIBUTING.rst", "CONTRIBUTING", ".github/CONTRIBUTING.md")


class Delivery(NamedTuple):
    """The commit to merge instead of the feature's branch, and the texts of the merge."""

    # Head of the feature's branch, with all documents
    original: str
    # Head of the rewritten history, without and with the commit of the document
    code: str
    commit: str
    title: str
    message: str
    # Paths of the current specifications that the last commit changes
    specs: tuple[str, ...] = ()


def read_changelog_path(branch: FeatureBranch, commit: str) -> str:
    """Return the changelog that the project keeps and wants contributors to edit; else empty."""
    if not branch.project.config.deliver.changelog:
        return ""

    blobs = list_blobs(branch.project.repository, commit)
    changelog = find_changelog(blobs)
    wanted = [blobs[name] for name in _GUIDELINES if name in blobs]
    texts = read_blobs(branch.project.repository.place(), wanted).values()
    if any(forbids_changelog(text.decode(errors="replace")) for text in texts):
        return ""
    return changelog


def list_archive_paths(branch: FeatureBranch, base: str, head: str) -> tuple[str, ...]:
    """Return the paths that the archive phase may change after the last review."""
    start = find_fork_point(branch.project.repository, base, head)
    changelog = read_changelog_path(branch, start) or DEFAULT_CHANGELOG
    return (changelog, branch.folder)


def prepare_delivery(
    branch: FeatureBranch,
    feature: Feature,
    context: StepContext,
    base_tip: str,
    remote_head: str = "",
) -> Delivery | NotMerged:
    """Rewrite the history of a feature's branch for its merge, and keep both in refs.

    `remote_head` is the end of the branch on the forge, if it has one. A recorded pull request
    overrides it.
    """
    repository = branch.project.repository
    head = branch.read_head()
    texts = _collect_texts(branch, feature, context, head)
    documents = _delivered_documents(branch)
    path = branch.document_path if documents is DeliveredDocuments.ONE else ""
    delivery = Delivery(
        original=head,
        code=head,
        commit=head,
        title=make_title(texts),
        message=render_merge_message(texts, path),
    )
    if feature.pull is not None:
        remote_head = feature.pull.head
    known = _find_published_copy(branch, head, remote_head)
    start = find_merge_base(repository, base_tip, head)
    specs = compute_spec_update(branch, head, start or head, head)
    if documents is not DeliveredDocuments.ALL and start:
        written = _rewrite(branch, delivery, base_tip, start, known, specs.files)
        if isinstance(written, NotMerged):
            return written
        delivery = written
        if path:
            document = {path: render_document(texts).encode()}
            delivery = _add_files(branch, delivery, document, "Add the specification")
    elif specs.files:
        delivery = _continue_published_copy(branch, delivery, known)
    delivery = _add_files(branch, delivery, specs.files, "Update the current specifications")
    delivery = delivery._replace(specs=tuple(specs.files))

    kept = {ORIGINAL_PREFIX + branch.slug: head, DELIVERED_PREFIX + branch.slug: delivery.commit}
    for original, copy in known.items():
        # Found again by a run that continues after the push, before it was recorded
        kept[PUBLISHED_PREFIX + branch.slug] = write_tree_commit(
            repository,
            resolve_tree(repository.place(), copy),
            (original, copy),
            branch.project.make_signature(),
            f"Published copy of {branch.slug}\n",
        )
    if read_refs(repository, *kept) != kept:
        set_refs(repository, kept, f"deliver {branch.slug}")
    return delivery


def _delivered_documents(branch: FeatureBranch) -> DeliveredDocuments:
    config = branch.project.config
    if not config.run.merge_feature_folder:
        return DeliveredDocuments.NONE
    # Packages were merged into the branch on the forge: its history is public
    if config.merge.mode is MergeMode.PULL_REQUEST and config.merge.per is MergePer.PACKAGE:
        return DeliveredDocuments.ALL
    return config.deliver.documents


def _collect_texts(
    branch: FeatureBranch, feature: Feature, context: StepContext, head: str
) -> DeliveredTexts:
    return DeliveredTexts(
        slug=branch.slug,
        description=feature.description or feature.workflow.type,
        documents=branch.read_documents(branch.list_documents(head)),
        decisions=tuple("\n".join((feature.decisions, *context.user_answers)).split("\n")),
    )


def _rewrite(
    branch: FeatureBranch,
    delivery: Delivery,
    base_tip: str,
    start: str,
    known: Mapping[str, str],
    specs: Iterable[str],
) -> Delivery | NotMerged:
    """Rewrite the feature's commits for the merge, or return why they are not merged."""
    repository = branch.project.repository
    path = branch.document_path
    is_foreign = not path.startswith(f"{branch.folder}/") and find_path(repository, start, path)
    if is_foreign:
        return NotMerged(
            f"{path} already exists, and the document of this feature would replace it",
            "set another document in [deliver], then resolve",
        )

    pinned = [branch.folder, path, *specs]
    if not read_changelog_path(branch, start):
        pinned.append(DEFAULT_CHANGELOG)

    code = rewrite_history(
        repository,
        delivery.original,
        excluded=(base_tip,),
        pinned_paths=pinned,
        reference=next(iter(known.values()), start),
        known=known,
    )
    return delivery._replace(code=code, commit=code)


def _continue_published_copy(
    branch: FeatureBranch, delivery: Delivery, known: Mapping[str, str]
) -> Delivery:
    """Merge the copy that the forge has with a newer head, so that no push has to be forced."""
    repository = branch.project.repository
    for original, copy in known.items():
        if original != delivery.original and copy != original:
            commit = write_tree_commit(
                repository,
                resolve_tree(repository.place(), delivery.original),
                (copy, delivery.original),
                branch.project.make_signature(),
                f"Continue {branch.slug}\n",
            )
            return delivery._replace(commit=commit)
    return delivery


def _find_published_copy(branch: FeatureBranch, head: str, remote_head: str) -> dict[str, str]:
    """Return the head of the branch and its copy that the forge has, if there is one.

    New commits are added on top of that copy, so that no push has to be forced.
    """
    if not remote_head:
        return {}

    repository = branch.project.repository
    prefixes = (ORIGINAL_PREFIX, DELIVERED_PREFIX, PUBLISHED_PREFIX)
    names = [prefix + branch.slug for prefix in prefixes]
    refs = read_refs(repository, *names)
    original, delivered, published = (refs.get(name, "") for name in names)
    pairs = [(original, delivered)]
    if published:
        first, second = (resolve_commit(repository, f"{published}^{n}") or "" for n in (1, 2))
        pairs.append((first, second))

    return {
        original: delivered
        for original, delivered in pairs
        if delivered == remote_head and is_ancestor(repository, original, head)
    }


def _add_files(
    branch: FeatureBranch, delivery: Delivery, files: Mapping[str, bytes], subject: str
) -> Delivery:
    """Add documents in one more commit; none if nothing changes."""
    repository = branch.project.repository
    commit = add_files(
        repository,
        delivery.commit,
        store_files(branch, files),
        f"{subject} of {branch.slug}\n",
        dated=delivery.original,
    )
    return delivery._replace(commit=commit)
