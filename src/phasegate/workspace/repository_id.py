"""Identify a repository for a fleet: a commit at `refs/phasegate/repository` of its remote.

All clones of one remote see the same commit; a fork or a repository from the same template has
another one, or none. The commit has an empty tree and no parent. Its message contains a random id
and the root commit of the history, so its object id identifies the repository.
"""

from __future__ import annotations

from typing import NamedTuple

from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.git import git
from phasegate.workspace.repository.objects import Signature, write_tree_commit
from phasegate.workspace.repository.ref_log import RefMove
from phasegate.workspace.repository.remote import PushResult, Remote, fetch_refs, push_refs
from phasegate.workspace.repository.repository import Repository, read_refs, resolve_commit
from phasegate.workspace.snapshots.feature_snapshot import set_refs

REPOSITORY_REF = "refs/phasegate/repository"
_ROOT_LABEL = "root "
_UNKNOWN_ROOT = "unknown"


class NewRepositoryId(NamedTuple):
    """The parts of a new id: a random text, and its creator."""

    random_id: str
    signature: Signature


def read_local_id(repository: Repository) -> str:
    """Return the id that this clone has seen at its remote; empty if it has seen none."""
    return read_refs(repository, REPOSITORY_REF).get(REPOSITORY_REF, "")


def check_remote_id(repository: Repository, remote: Remote, new: NewRepositoryId | None) -> str:
    """Return the id at the remote, and keep it in this clone.

    Raises StateConflict if this clone belongs to another repository. If the remote has no id, one
    is made from `new`; without `new` the result is empty.
    """
    known = read_local_id(repository)
    found = fetch_refs(repository, remote, REPOSITORY_REF).get(REPOSITORY_REF, "")

    if known and found != known:
        raise foreign_remote_error(remote, known, found)
    if not found and new is not None:
        found = _create(repository, remote, new)
    if not found:
        return ""

    _check_root(repository, remote, found)
    if not known:
        set_refs(repository, {REPOSITORY_REF: found}, "keep the repository's id")

    return found


def foreign_remote_error(remote: Remote, known: str, found: str) -> StateConflict:
    """Return the error for a remote that is not the repository of this clone."""
    if found:
        return StateConflict(
            f"{remote.shown_url} is repository {found[:12]}, this clone belongs to {known[:12]}",
            "correct the remote of this clone; or, to make it serve the other repository from now "
            f"on: git update-ref -d {REPOSITORY_REF}",
        )

    return StateConflict(
        f"{remote.shown_url} no longer has {REPOSITORY_REF}, this repository's id",
        f"if the repository was moved there, push it: git push {remote.shown_url} {REPOSITORY_REF}",
    )


def _create(repository: Repository, remote: Remote, new: NewRepositoryId) -> str:
    """Create an id at the remote. If another machine is faster, its id is returned."""
    written = git(repository.place(), "hash-object", "-t", "tree", "-w", "--stdin")
    tree = written.stdout.decode().strip()
    root = _find_root_commit(repository)
    message = f"phasegate repository {new.random_id}\n\n{_ROOT_LABEL}{root}\n"
    commit = write_tree_commit(repository, tree, (), new.signature, message)

    result, detail = push_refs(repository, remote, RefMove(REPOSITORY_REF, None, commit))
    if result is PushResult.REFUSED:
        raise EnvironmentUnavailable(
            f"{remote.shown_url} refuses {REPOSITORY_REF}: {detail}",
            "give this machine permission to push it, or run once on a machine that may",
        )
    if result is PushResult.DONE:
        return commit

    return fetch_refs(repository, remote, REPOSITORY_REF).get(REPOSITORY_REF, "")


def _find_root_commit(repository: Repository) -> str:
    """Return the first commit of the history; a shallow clone does not have it."""
    if _is_shallow(repository):
        return _UNKNOWN_ROOT

    listed = git(repository.refs_place, "rev-list", "--max-parents=0", "HEAD")
    return listed.stdout.decode().split()[-1]


def _is_shallow(repository: Repository) -> bool:
    return (repository.common_dir / "shallow").exists()


def _check_root(repository: Repository, remote: Remote, id_: str) -> None:
    """Refuse an id that was copied from a repository with another history."""
    message = git(repository.place(), "cat-file", "commit", id_).stdout.decode(errors="replace")
    root = message.rpartition(_ROOT_LABEL)[2].strip()
    if _is_shallow(repository) or root == _UNKNOWN_ROOT:
        return

    if not root or resolve_commit(repository, root) is None:
        raise StateConflict(
            f"{REPOSITORY_REF} of {remote.shown_url} belongs to a repository with another history: "
            f"this clone has no commit {root[:12]}",
            f"if it was copied there, remove it: git push {remote.shown_url} :{REPOSITORY_REF}",
        )
