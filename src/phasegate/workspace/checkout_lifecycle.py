"""Checkouts of agents: made, reused, brought up to date, started over, removed. Nothing is lost on the way.

A checkout that is done with can be kept for the next one: it is swept of everything that is not in its commit, given
a new git directory, and only the files that differ are written. That costs a fraction of a new one.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from phasegate.core.agents.secrets import NOTHING_LENT, LentValues
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.files.durable_write import sync_folders
from phasegate.workspace.changes import TooMuch
from phasegate.workspace.checkout import Assignment, Checkout, check_names, find_checkout, records_folder
from phasegate.workspace.checkout_base import advance, at_feature_head, beginning_of
from phasegate.workspace.checkout_creation import Terms, adopt, home_of, make, retire
from phasegate.workspace.objects import Signature
from phasegate.workspace.ref_log import Move
from phasegate.workspace.refs import BRANCHES, KEPT, SAVED, branch_is_gone, move_refs
from phasegate.workspace.removal import remove_tree
from phasegate.workspace.repository import Repository, is_ancestor, read_refs
from phasegate.workspace.repository_locks import checkout_lock, repository_lock
from phasegate.workspace.saved_work import Saved, keep_branch, save
from phasegate.workspace.user_checkout import checkout_on


class Unsaved(NamedTuple):
    """A checkout stays as it is, because it holds what could not be saved."""

    folder: Path
    reason: str
    paths: tuple[str, ...] = ()


class Renewed(NamedTuple):
    """A checkout is as new; what it held and the branch did not is under `saved`."""

    checkout: Checkout
    saved: Saved | None


class Removed(NamedTuple):
    """A checkout is gone; what it held and the branch did not is under `saved`."""

    saved: Saved | None


def open_feature(repository: Repository, slug: str, base: str) -> str:
    """The head of `feat/{slug}`; the branch is made from its base if it is not there."""
    check_names(Assignment(slug, "WP01"))
    ref = f"{BRANCHES}feat/{slug}"
    kept = f"{KEPT}feat/{slug}"
    refs = read_refs(repository, ref, BRANCHES + base, kept)
    if ref in refs:
        return refs[ref]
    if BRANCHES + base not in refs:
        raise StateConflict(f"there is no branch {base}", "commit something first, or name another base")
    if kept in refs and not is_ancestor(repository, refs[kept], refs[BRANCHES + base]):
        raise branch_is_gone(repository, f"feat/{slug}")  # a new one would begin without that work
    if not advance(repository, f"feat/{slug}", None, refs[BRANCHES + base]):
        return open_feature(repository, slug, base)
    return refs[BRANCHES + base]


def take_checkout(repository: Repository, assignment: Assignment, terms: Terms) -> Checkout:
    """The checkout of an assignment: the one that is there, or a new one from the head of its feature's branch."""
    check_names(assignment)
    with checkout_lock(repository, assignment.name):
        found = find_checkout(repository, assignment)
        if found is not None:
            return found
        begin = beginning_of(repository, assignment, terms.signature)
        try:
            return make(repository, assignment, terms, begin)
        except OSError as error:
            raise EnvironmentUnavailable(
                f"no checkout can be made: {error}", "check the disk and its permissions"
            ) from error


def start_over(checkout: Checkout, terms: Terms) -> Renewed | Unsaved:
    """Save what is there, then bring the checkout back to the head of the feature's branch (`cleanup_required`).

    The package's branch goes back too, unless other agents work on it: the saved commit keeps its history.
    """
    repository, assignment = checkout.repository, checkout.assignment
    with checkout_lock(repository, assignment.name):
        saved = _saved(checkout, terms.signature, terms.lent)
        if isinstance(saved, Unsaved):
            return saved
        if assignment.agent_index is None:
            saved = saved or keep_branch(checkout)
            return Renewed(adopt(checkout, terms, at_feature_head(repository, assignment)), saved)
        return Renewed(adopt(checkout, terms, beginning_of(repository, assignment, terms.signature)), saved)


def bring_up_to_date(checkout: Checkout, terms: Terms) -> Renewed | Unsaved:
    """Put the package's work on top of the feature's branch as it is now; what conflicts is in the files, marked."""
    with checkout_lock(checkout.repository, checkout.assignment.name):
        saved = _saved(checkout, terms.signature, terms.lent)
        if isinstance(saved, Unsaved):
            return saved
        begin = beginning_of(checkout.repository, checkout.assignment, terms.signature)
        return Renewed(adopt(checkout, terms, begin), saved)


def remove_checkout(
    checkout: Checkout,
    signature: Signature,
    lent: LentValues = NOTHING_LENT,
    *,
    keep_for_reuse: bool = False,
    discard: bool = False,
) -> Removed | Unsaved:
    """Remove a checkout, or keep its files for the next one. `discard`: even if its work cannot be saved."""
    repository, name = checkout.repository, checkout.assignment.name
    with checkout_lock(repository, name):
        saved = None if discard else _saved(checkout, signature, lent)
        if isinstance(saved, Unsaved):
            return saved
        if not (keep_for_reuse and retire(checkout)):
            remove_tree(checkout.folder)
        home = home_of(checkout)
        if home.is_dir():
            sync_folders(home, home)  # else a power failure brings the folder back, and nobody has a record of it
        shutil.rmtree(records_folder(repository, name), ignore_errors=True)
        remove_tree(home / f".new-{name}")
    return Removed(saved)


def drop_branch(repository: Repository, branch: str, target: str, merged: str = "") -> bool:
    """Remove a branch whose whole history another one has. One that holds more, or is checked out, stays.

    `merged` is a commit that is known to be merged elsewhere: a branch at it is not needed either.
    """
    refs = read_refs(repository, BRANCHES + branch, BRANCHES + target)
    tip, into = refs.get(BRANCHES + branch), refs.get(BRANCHES + target)
    if tip is None:
        return True
    needed = tip != merged and (into is None or not is_ancestor(repository, tip, into))
    if needed or checkout_on(repository, BRANCHES + branch) is not None:
        return False
    return _remove_branch(repository, branch, tip)


def take_attempt(repository: Repository, attempt: Assignment, package: Assignment) -> None:
    """Make an attempt's checkout and branch those of its package, which has none yet. A second time is no harm."""
    with checkout_lock(repository, attempt.name), checkout_lock(repository, package.name):
        refs = read_refs(repository, BRANCHES + attempt.branch, BRANCHES + package.branch)
        tip, own = refs.get(BRANCHES + attempt.branch), refs.get(BRANCHES + package.branch)
        if tip is None:  # it was taken before
            return
        if not advance(repository, package.branch, own, tip):
            raise StateConflict(f"{package.branch} moved meanwhile", "dispatch again")
        records = records_folder(repository, attempt.name)
        if records.exists():
            records.rename(records_folder(repository, package.name))
        _remove_branch(repository, attempt.branch, tip)


def set_attempt_aside(
    repository: Repository, attempt: Assignment, signature: Signature, lent: LentValues
) -> tuple[str, Unsaved | None]:
    """Put an attempt away that was not taken: the ref under which its work is kept, and what could not be saved."""
    found, unsaved = find_checkout(repository, attempt), None
    if found is not None:
        keep_branch(found)
        removed = remove_checkout(found, signature, lent, keep_for_reuse=True)
        unsaved = removed if isinstance(removed, Unsaved) else None
    refs = read_refs(repository, BRANCHES + attempt.branch, f"{SAVED}{attempt.name}")
    tip = refs.pop(BRANCHES + attempt.branch, None)
    if tip is not None:
        _remove_branch(repository, attempt.branch, tip)
    return max(refs, key=lambda ref: int(ref.rpartition("/")[2]), default=""), unsaved


def _remove_branch(repository: Repository, branch: str, tip: str) -> bool:
    with repository_lock(repository) as lock:
        return move_refs(repository, lock, [Move(BRANCHES + branch, tip, None)], f"remove {branch}") is None


def _saved(checkout: Checkout, signature: Signature, lent: LentValues) -> Saved | Unsaved | None:
    saved = save(checkout, signature, lent)
    if isinstance(saved, TooMuch):
        return Unsaved(checkout.folder, f"it holds too much: {saved.what} (limit {saved.limit})")
    if saved is not None and saved.left_out:
        reason = f"some of it is not a plain file with one name; the rest is in {saved.ref}"
        return Unsaved(checkout.folder, reason, saved.left_out)
    return saved
