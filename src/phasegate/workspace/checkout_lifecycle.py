"""Create, reuse, update, reset and remove the checkouts of agents without losing work.

The files of a checkout that is no longer needed can be reused for the next one: everything that is
not in its commit is removed, it gets a new git directory, and only differing files are written.
This costs a fraction of a new checkout.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from phasegate.core.agents.secrets import NO_SECRETS, SecretMatcher
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.files.durable_write import sync_folders
from phasegate.workspace.changes.changes import CheckoutTooLarge
from phasegate.workspace.changes.saved_work import SavedWork, save_branch, save_work
from phasegate.workspace.checkout.checkout import (
    Assignment,
    Checkout,
    find_checkout,
    records_folder,
    validate_names,
)
from phasegate.workspace.checkout.checkout_base import (
    find_start_point,
    move_branch,
    reset_to_feature_head,
)
from phasegate.workspace.checkout.checkout_creation import (
    CheckoutOptions,
    create_checkout,
    get_worktrees_folder,
    move_to_pool,
    recreate_checkout,
)
from phasegate.workspace.checkout.removal import remove_tree
from phasegate.workspace.repository.objects import Signature
from phasegate.workspace.repository.ref_log import RefMove
from phasegate.workspace.repository.refs import (
    BRANCH_COPY_PREFIX,
    BRANCH_PREFIX,
    SAVED_PREFIX,
    missing_branch_error,
    move_refs,
)
from phasegate.workspace.repository.repository import Repository, is_ancestor, read_refs
from phasegate.workspace.repository.repository_locks import checkout_lock, repository_lock
from phasegate.workspace.repository.user_checkout import find_checkout_on_ref


class UnsavedWork(NamedTuple):
    """A checkout that was not removed, because it has work that could not be saved."""

    folder: Path
    reason: str
    paths: tuple[str, ...] = ()


class RenewedCheckout(NamedTuple):
    """A recreated checkout. `saved` has the work that was not on the branch."""

    checkout: Checkout
    saved: SavedWork | None


class RemovedCheckout(NamedTuple):
    """A removed checkout. `saved` has the work that was not on the branch."""

    saved: SavedWork | None


def ensure_feature_branch(repository: Repository, slug: str, base: str) -> str:
    """Return the head of `feat/{slug}`; create the branch from its base if it does not exist."""
    validate_names(Assignment(slug, "WP01"))
    ref = f"{BRANCH_PREFIX}feat/{slug}"
    kept = f"{BRANCH_COPY_PREFIX}feat/{slug}"
    refs = read_refs(repository, ref, BRANCH_PREFIX + base, kept)
    if ref in refs:
        return refs[ref]

    if BRANCH_PREFIX + base not in refs:
        raise StateConflict(
            f"there is no branch {base}", "commit something first, or name another base"
        )

    if kept in refs and not is_ancestor(repository, refs[kept], refs[BRANCH_PREFIX + base]):
        # A new branch would not contain that work
        raise missing_branch_error(repository, f"feat/{slug}")
    if not move_branch(repository, f"feat/{slug}", None, refs[BRANCH_PREFIX + base]):
        return ensure_feature_branch(repository, slug, base)

    return refs[BRANCH_PREFIX + base]


def ensure_checkout(
    repository: Repository, assignment: Assignment, options: CheckoutOptions
) -> Checkout:
    """Return the existing checkout of an assignment, or create one from the feature branch."""
    validate_names(assignment)
    with checkout_lock(repository, assignment.name):
        found = find_checkout(repository, assignment)
        if found is not None:
            return found

        begin = find_start_point(repository, assignment, options.signature)
        try:
            return create_checkout(repository, assignment, options, begin)
        except OSError as error:
            raise EnvironmentUnavailable(
                f"cannot create a checkout: {error}", "check the disk and its permissions"
            ) from error


def reset_checkout(checkout: Checkout, options: CheckoutOptions) -> RenewedCheckout | UnsavedWork:
    """Save the work in a checkout, then reset it to the feature branch (`cleanup_required`).

    The package's branch is reset too, unless other agents work on it. The saved commit keeps the
    branch's history.
    """
    repository = checkout.repository
    assignment = checkout.assignment
    with checkout_lock(repository, assignment.name):
        saved = _save_work(checkout, options.signature, options.lent)
        if isinstance(saved, UnsavedWork):
            return saved

        if assignment.agent_index is None:
            saved = saved or save_branch(checkout)
            return RenewedCheckout(
                recreate_checkout(checkout, options, reset_to_feature_head(repository, assignment)),
                saved,
            )

        return RenewedCheckout(
            recreate_checkout(
                checkout, options, find_start_point(repository, assignment, options.signature)
            ),
            saved,
        )


def update_checkout(checkout: Checkout, options: CheckoutOptions) -> RenewedCheckout | UnsavedWork:
    """Recreate a checkout with the package's work on top of the current feature branch.

    Conflicts are left in the files, with conflict markers.
    """
    with checkout_lock(checkout.repository, checkout.assignment.name):
        saved = _save_work(checkout, options.signature, options.lent)
        if isinstance(saved, UnsavedWork):
            return saved

        begin = find_start_point(checkout.repository, checkout.assignment, options.signature)
        return RenewedCheckout(recreate_checkout(checkout, options, begin), saved)


def remove_checkout(
    checkout: Checkout,
    signature: Signature,
    lent: SecretMatcher = NO_SECRETS,
    *,
    keep_for_reuse: bool = False,
    discard: bool = False,
) -> RemovedCheckout | UnsavedWork:
    """Remove a checkout after saving its work.

    With `keep_for_reuse`, its files are kept for the next checkout. With `discard`, the work is not
    saved.
    """
    repository = checkout.repository
    name = checkout.assignment.name
    with checkout_lock(repository, name):
        if discard:
            saved = None
        else:
            saved = _save_work(checkout, signature, lent)

        if isinstance(saved, UnsavedWork):
            return saved
        if not (keep_for_reuse and move_to_pool(checkout)):
            remove_tree(checkout.folder)

        home = get_worktrees_folder(checkout)
        if home.is_dir():
            # Otherwise a power failure could bring back the folder without its record
            sync_folders(home, home)

        shutil.rmtree(records_folder(repository, name), ignore_errors=True)
        remove_tree(home / f".new-{name}")

    return RemovedCheckout(saved)


def delete_merged_branch(
    repository: Repository, branch: str, target: str, merged: str = ""
) -> bool:
    """Delete a branch that is merged into `target`; return False if it was kept.

    A branch that is checked out is kept. `merged` is a commit that is known to be merged elsewhere;
    a branch that points to it is deleted too.
    """
    refs = read_refs(repository, BRANCH_PREFIX + branch, BRANCH_PREFIX + target)
    tip = refs.get(BRANCH_PREFIX + branch)
    into = refs.get(BRANCH_PREFIX + target)
    if tip is None:
        return True

    needed = tip != merged and (into is None or not is_ancestor(repository, tip, into))
    if needed or find_checkout_on_ref(repository, BRANCH_PREFIX + branch) is not None:
        return False

    return _delete_branch(repository, branch, tip)


def promote_attempt(repository: Repository, attempt: Assignment, package: Assignment) -> None:
    """Make an attempt's checkout and branch the package's own. Safe to repeat."""
    with checkout_lock(repository, attempt.name), checkout_lock(repository, package.name):
        refs = read_refs(repository, BRANCH_PREFIX + attempt.branch, BRANCH_PREFIX + package.branch)
        tip = refs.get(BRANCH_PREFIX + attempt.branch)
        own = refs.get(BRANCH_PREFIX + package.branch)
        # The attempt was already promoted
        if tip is None:
            return
        if not move_branch(repository, package.branch, own, tip):
            raise StateConflict(
                f"another process moved {package.branch}", "run `phasegate dispatch` again"
            )

        records = records_folder(repository, attempt.name)
        if records.exists():
            records.rename(records_folder(repository, package.name))

        _delete_branch(repository, attempt.branch, tip)


def archive_attempt(
    repository: Repository, attempt: Assignment, signature: Signature, lent: SecretMatcher
) -> tuple[str, UnsavedWork | None]:
    """Archive an attempt that was not selected.

    Return the ref that keeps its work, and a description of work that could not be saved.
    """
    found = find_checkout(repository, attempt)
    unsaved = None

    if found is not None:
        save_branch(found)
        removed = remove_checkout(found, signature, lent, keep_for_reuse=True)
        if isinstance(removed, UnsavedWork):
            unsaved = removed
        else:
            unsaved = None

    refs = read_refs(repository, BRANCH_PREFIX + attempt.branch, f"{SAVED_PREFIX}{attempt.name}")
    tip = refs.pop(BRANCH_PREFIX + attempt.branch, None)
    if tip is not None:
        _delete_branch(repository, attempt.branch, tip)

    return max(refs, key=lambda ref: int(ref.rpartition("/")[2]), default=""), unsaved


def _delete_branch(repository: Repository, branch: str, tip: str) -> bool:
    with repository_lock(repository) as lock:
        return (
            move_refs(
                repository, lock, [RefMove(BRANCH_PREFIX + branch, tip, None)], f"remove {branch}"
            )
            is None
        )


def _save_work(
    checkout: Checkout, signature: Signature, lent: SecretMatcher
) -> SavedWork | UnsavedWork | None:
    """Save the work of a checkout in a ref, or return why a part is not saved."""
    saved = save_work(checkout, signature, lent)
    if isinstance(saved, CheckoutTooLarge):
        return UnsavedWork(
            checkout.folder, f"it exceeds a limit: {saved.what} (limit {saved.limit})"
        )

    if saved is not None and saved.left_out:
        reason = f"some are special files or have hard links; the rest is saved in {saved.ref}"
        return UnsavedWork(checkout.folder, reason, saved.left_out)

    return saved
