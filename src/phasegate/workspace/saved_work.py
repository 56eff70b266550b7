"""Work that would be lost is kept under a ref first."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from phasegate.core.agents.secrets import LEFT_OUT, NOTHING_LENT, LentValues
from phasegate.errors import StateConflict
from phasegate.workspace.changes import DEFAULT_LIMITS, Observation, TooMuch, observe
from phasegate.workspace.checkout import Checkout
from phasegate.workspace.checkout_files import CheckoutLimits, Found
from phasegate.workspace.objects import NewCommit, Signature, Version, write_blobs, write_commits
from phasegate.workspace.path_states import can_be_taken, contents_seen, versions
from phasegate.workspace.ref_log import Move
from phasegate.workspace.refs import BRANCHES, SAVED, move_refs
from phasegate.workspace.repository import Repository, is_ancestor, read_refs
from phasegate.workspace.repository_locks import repository_lock
from phasegate.workspace.tree_diff import differences

_NOTE = f"{LEFT_OUT}\n".encode()
_EMPTY_KINDS = ("010", "140", "020", "060")


class Saved(NamedTuple):
    """Where the work is. `left_out` could not be kept: what is no plain file, or has a second name."""

    ref: str
    commit: str
    left_out: tuple[str, ...]


def save(
    checkout: Checkout,
    signature: Signature,
    lent: LentValues = NOTHING_LENT,
    *,
    limits: CheckoutLimits = DEFAULT_LIMITS,
) -> Saved | TooMuch | None:
    """Keep everything that the disk holds and the package's branch does not; None if there is nothing.

    A file that holds a key that was lent to the agent is kept as a note, and one with such a name not at all.
    """
    seen = observe(checkout, limits=limits)
    if isinstance(seen, TooMuch):
        return seen
    repository, ref = checkout.repository, BRANCHES + checkout.assignment.branch
    head = read_refs(repository, ref).get(ref, checkout.start)
    on_disk = _on_disk(seen)
    left_out = tuple(sorted(path for path, found in seen.versions.items() if found and _cannot_be_kept(found)))
    on_branch = versions(differences(repository.place(), checkout.start, head))
    if not left_out and not _unsaved(checkout, on_disk, on_branch):
        return None
    commit = _commit(checkout, seen, _kept(checkout, seen, on_disk, lent), head, signature)
    return Saved(keep_commit(repository, checkout.assignment.name, commit), commit, left_out)


def keep_branch(checkout: Checkout) -> Saved | None:
    """Keep the package's branch before it is moved back; None if the feature's branch has all of it."""
    repository, assignment = checkout.repository, checkout.assignment
    refs = read_refs(repository, BRANCHES + assignment.branch, BRANCHES + assignment.target)
    head, target = refs.get(BRANCHES + assignment.branch), refs.get(BRANCHES + assignment.target)
    if head is None or (target is not None and is_ancestor(repository, head, target)):
        return None
    return Saved(keep_commit(repository, assignment.name, head), head, ())


def _cannot_be_kept(found: Found) -> bool:
    """Whether something would be lost with it. A pipe, a socket or a device holds nothing."""
    return not can_be_taken(found) and found.mode[:3] not in _EMPTY_KINDS


def _unsaved(checkout: Checkout, on_disk: dict[str, Version | None], on_branch: dict[str, Version | None]) -> bool:
    """Whether the disk holds something that the branch has not, or has taken back something that it has from here."""
    new = any(path not in on_branch or on_branch[path] != version for path, version in on_disk.items())
    return new or any(path in on_branch and path not in on_disk for path in checkout.record.paths)


def _on_disk(seen: Observation) -> dict[str, Version | None]:
    usable = ((path, found) for path, found in seen.versions.items() if can_be_taken(found))
    return {path: None if found is None else Version(found.mode, found.object_id) for path, found in usable}


def _kept(
    checkout: Checkout, seen: Observation, on_disk: dict[str, Version | None], lent: LentValues
) -> dict[str, Version | None]:
    """What is saved of it: no key that was lent to the agent."""
    if not lent:
        return on_disk
    named = {path: one for path, one in on_disk.items() if not lent.are_in(path.encode("utf-8", "surrogateescape"))}
    note = Version(
        "100644", hashlib.new(checkout.repository.hash_name, b"blob %d\0%s" % (len(_NOTE), _NOTE)).hexdigest()
    )
    leaking = [path for path, content in contents_seen(checkout, seen, named) if lent.are_in(content)]
    return {**named, **dict.fromkeys(leaking, note)}


def _commit(
    checkout: Checkout,
    seen: Observation,
    kept: dict[str, Version | None],
    head: str,
    signature: Signature,
) -> str:
    """A commit of the whole state upon the start. The branch is a second parent: it may be moved back after this."""
    as_seen = [path for path, one in _on_disk(seen).items() if one is not None and kept.get(path) == one]
    write_blobs(checkout.repository, chain([_NOTE], (content for _, content in contents_seen(checkout, seen, as_seen))))
    parents = (checkout.start,) if head == checkout.start else (checkout.start, head)
    message = f"Saved work of {checkout.assignment.name}"
    plan = NewCommit(parents, signature, signature, message, kept)
    (made,) = write_commits(checkout.repository, [plan])
    return made


def keep_commit(repository: Repository, name: str, commit: str, taken_elsewhere: Iterable[str] = ()) -> str:
    """Give a commit the next free number of its checkout, here and among refs of another machine."""
    with repository_lock(repository) as lock:
        elsewhere = (ref for ref in taken_elsewhere if ref.startswith(f"{SAVED}{name}/"))
        taken = [ref.rpartition("/")[2] for ref in (*read_refs(repository, f"{SAVED}{name}"), *elsewhere)]
        number = 1 + max((int(one) for one in taken if one.isdigit()), default=0)
        ref = f"{SAVED}{name}/{number}"
        moved = move_refs(repository, lock, [Move(ref, None, commit)], f"save {name}")
    if moved is not None:
        raise StateConflict(f"{ref} was made by somebody else", "try again")
    return ref
