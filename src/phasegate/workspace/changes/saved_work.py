"""Save work under a ref before it is lost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from phasegate.core.agents.secrets import NO_SECRETS, REDACTED_NOTE, SecretMatcher
from phasegate.errors import StateConflict
from phasegate.workspace.changes.changes import (
    DEFAULT_LIMITS,
    CheckoutTooLarge,
    Observation,
    observe_checkout,
)
from phasegate.workspace.changes.path_states import (
    collect_new_versions,
    is_harvestable,
    read_observed_contents,
)
from phasegate.workspace.checkout.checkout import Checkout
from phasegate.workspace.repository.disk_files import CheckoutLimits, DiskEntry
from phasegate.workspace.repository.objects import (
    NewCommit,
    PathVersion,
    Signature,
    VersionMap,
    write_blobs,
    write_commits,
)
from phasegate.workspace.repository.ref_log import RefMove
from phasegate.workspace.repository.refs import BRANCH_PREFIX, SAVED_PREFIX, move_refs
from phasegate.workspace.repository.repository import Repository, is_ancestor, read_refs
from phasegate.workspace.repository.repository_locks import repository_lock
from phasegate.workspace.repository.tree_diff import diff_trees

_REDACTED_NOTE = f"{REDACTED_NOTE}\n".encode()
_CONTENTLESS_TYPES = ("010", "140", "020", "060")


class SavedWork(NamedTuple):
    """Where work was saved.

    `left_out` are files that could not be saved: special files and files with hard links.
    """

    ref: str
    commit: str
    left_out: tuple[str, ...]


def save_work(
    checkout: Checkout,
    signature: Signature,
    lent: SecretMatcher = NO_SECRETS,
    *,
    limits: CheckoutLimits = DEFAULT_LIMITS,
) -> SavedWork | CheckoutTooLarge | None:
    """Save everything on disk that is not on the package's branch, or return None if nothing is.

    A file that contains a secret of the agent is replaced with a note. A file whose name contains
    one is not saved.
    """
    seen = observe_checkout(checkout, limits=limits)
    if isinstance(seen, CheckoutTooLarge):
        return seen

    repository = checkout.repository
    ref = BRANCH_PREFIX + checkout.assignment.branch
    head = read_refs(repository, ref).get(ref, checkout.start)
    on_disk = _disk_versions(seen)
    left_out = tuple(
        sorted(path for path, found in seen.versions.items() if found and _is_unsavable(found))
    )
    on_branch = collect_new_versions(diff_trees(repository.place(), checkout.start, head))
    if not left_out and not _has_unsaved_changes(checkout, on_disk, on_branch):
        return None

    commit = _commit_saved_work(
        checkout, seen, _remove_lent_secrets(checkout, seen, on_disk, lent), head, signature
    )
    return SavedWork(save_commit(repository, checkout.assignment.name, commit), commit, left_out)


def save_branch(checkout: Checkout) -> SavedWork | None:
    """Save the package's branch before it is reset.

    Return None if the feature branch already has all of its commits.
    """
    repository = checkout.repository
    assignment = checkout.assignment
    refs = read_refs(
        repository, BRANCH_PREFIX + assignment.branch, BRANCH_PREFIX + assignment.feature_branch
    )
    head = refs.get(BRANCH_PREFIX + assignment.branch)
    target = refs.get(BRANCH_PREFIX + assignment.feature_branch)
    if head is None or (target is not None and is_ancestor(repository, head, target)):
        return None

    return SavedWork(save_commit(repository, assignment.name, head), head, ())


def _is_unsavable(found: DiskEntry) -> bool:
    """Return True if the entry has content that cannot be saved.

    A pipe, socket or device has no content to lose.
    """
    return not is_harvestable(found) and found.mode[:3] not in _CONTENTLESS_TYPES


def _has_unsaved_changes(
    checkout: Checkout,
    on_disk: VersionMap,
    on_branch: VersionMap,
) -> bool:
    """Return True if the disk has changes that are not on the branch, or lacks harvested ones."""
    new = any(
        path not in on_branch or on_branch[path] != version for path, version in on_disk.items()
    )
    return new or any(path in on_branch and path not in on_disk for path in checkout.record.paths)


def _disk_versions(observation: Observation) -> VersionMap:
    usable = (
        (path, found) for path, found in observation.versions.items() if is_harvestable(found)
    )
    return {
        path: None if found is None else PathVersion(found.mode, found.object_id)
        for path, found in usable
    }


def _remove_lent_secrets(
    checkout: Checkout,
    observation: Observation,
    on_disk: VersionMap,
    lent: SecretMatcher,
) -> VersionMap:
    """Return the versions to save, without secrets that were given to the agent."""
    if not lent:
        return on_disk

    named = {
        path: one
        for path, one in on_disk.items()
        if not lent.has_secret(path.encode("utf-8", "surrogateescape"))
    }
    note = PathVersion(
        "100644",
        hashlib.new(
            checkout.repository.hash_name, b"blob %d\0%s" % (len(_REDACTED_NOTE), _REDACTED_NOTE)
        ).hexdigest(),
    )

    leaking = [
        path
        for path, content in read_observed_contents(checkout, observation, named)
        if lent.has_secret(content)
    ]

    return {**named, **dict.fromkeys(leaking, note)}


def _commit_saved_work(
    checkout: Checkout,
    observation: Observation,
    kept: VersionMap,
    head: str,
    signature: Signature,
) -> str:
    """Commit the state on disk on top of the start, with the branch as a second parent."""
    as_seen = [
        path
        for path, one in _disk_versions(observation).items()
        if one is not None and kept.get(path) == one
    ]
    write_blobs(
        checkout.repository,
        chain(
            [_REDACTED_NOTE],
            (content for _, content in read_observed_contents(checkout, observation, as_seen)),
        ),
    )

    parents = (checkout.start,) if head == checkout.start else (checkout.start, head)
    message = f"Saved work of {checkout.assignment.name}"
    plan = NewCommit(
        parents=parents, author=signature, committer=signature, message=message, paths=kept
    )
    (made,) = write_commits(checkout.repository, [plan])

    return made


def save_commit(
    repository: Repository, name: str, commit: str, remote_refs: Iterable[str] = ()
) -> str:
    """Save a commit under the next free number of its checkout.

    Numbers that are in use on another machine (`remote_refs`) are skipped.
    """
    with repository_lock(repository) as lock:
        elsewhere = (ref for ref in remote_refs if ref.startswith(f"{SAVED_PREFIX}{name}/"))
        taken = [
            ref.rpartition("/")[2]
            for ref in (*read_refs(repository, f"{SAVED_PREFIX}{name}"), *elsewhere)
        ]
        number = 1 + max((int(one) for one in taken if one.isdigit()), default=0)
        ref = f"{SAVED_PREFIX}{name}/{number}"
        moved = move_refs(repository, lock, [RefMove(ref, None, commit)], f"save {name}")

    if moved is not None:
        raise StateConflict(f"{ref} was created by another process", "try again")
    return ref
