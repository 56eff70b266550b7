"""Store a machine's complete code of a feature as one commit.

The commit has the refs of the feature, and the data to recreate its checkouts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import msgspec

from phasegate.errors import StateConflict
from phasegate.git import git
from phasegate.typed import read_value
from phasegate.workspace.changes.saved_work import save_commit
from phasegate.workspace.checkout.checkout import Assignment
from phasegate.workspace.repository.objects import Signature, write_tree_commit
from phasegate.workspace.repository.ref_log import RefMove
from phasegate.workspace.repository.refs import (
    BRANCH_COPY_PREFIX,
    BRANCH_PREFIX,
    SAVED_PREFIX,
    move_refs,
)
from phasegate.workspace.repository.repository import Repository, is_ancestor, read_refs
from phasegate.workspace.repository.repository_locks import repository_lock
from phasegate.workspace.repository.rewrite import (
    DELIVERED_PREFIX,
    ORIGINAL_PREFIX,
    PUBLISHED_PREFIX,
)
from phasegate.workspace.repository.tree_diff import resolve_tree
from phasegate.workspace.snapshots.job_snapshot import CheckoutSnapshot

_REF_PREFIXES = (
    f"{BRANCH_PREFIX}feat/",
    f"{BRANCH_COPY_PREFIX}feat/",
    SAVED_PREFIX,
    ORIGINAL_PREFIX,
    DELIVERED_PREFIX,
    PUBLISHED_PREFIX,
)
_REF_SUFFIXES = ("", "-*", "-*/*")
_WORK_NAME = re.compile(
    r"(?P<work>WP\d+|\d\d-[a-z-]+?|archive|feature)(?:-try(?P<attempt>\d+))?(?:-agent(?P<agent>\d+))?"
)


class FeatureClaim(msgspec.Struct, frozen=True):
    """The claim of a worker to a feature.

    `number` counts the claims so far; `by` is the name of the worker's queue.
    """

    number: int
    by: str


class FeatureSnapshot(msgspec.Struct, frozen=True):
    """The refs and checkouts of the machine that has claimed the feature.

    Checkouts that no job changed are not included: they are recreated from the branches.
    """

    claim: FeatureClaim
    refs: dict[str, str]
    checkouts: dict[str, CheckoutSnapshot] = {}


def parse_assignment(slug: str, name: str) -> Assignment | None:
    """Parse the name of a checkout, or of a branch without `feat/`.

    Return None if the name does not belong to this feature.
    """
    if name.startswith(f"{slug}-"):
        found = _WORK_NAME.fullmatch(name.removeprefix(f"{slug}-"))
    else:
        found = None

    if found is None:
        return None

    agent = found["agent"]
    attempt = found["attempt"]

    return Assignment(
        slug, found["work"], int(agent) if agent else None, int(attempt) - 1 if attempt else None
    )


def list_feature_refs(repository: Repository, slug: str) -> dict[str, str]:
    """Return the branches of a feature, the copies of these branches, and its saved work."""
    found = read_refs(
        repository, *(f"{head}{slug}{rest}" for head in _REF_PREFIXES for rest in _REF_SUFFIXES)
    )
    return {ref: commit for ref, commit in found.items() if _belongs_to_feature(slug, ref)}


def _work_name(ref: str) -> str:
    head = next((head for head in _REF_PREFIXES if ref.startswith(head)), ref)
    return ref.removeprefix(head).partition("/")[0]


def _belongs_to_feature(slug: str, ref: str) -> bool:
    """Return True if a ref belongs to this feature, and not to one whose slug starts the same."""
    return _work_name(ref) == slug or parse_assignment(slug, _work_name(ref)) is not None


def write_feature_snapshot(
    repository: Repository,
    slug: str,
    snapshot: FeatureSnapshot,
    previous: str | None,
    signature: Signature,
) -> str:
    """Write a snapshot as a commit from which everything that it describes is reachable.

    The commit is a child of the previous snapshot, so that no forced push is needed.
    """
    needed = sorted(
        {*snapshot.refs.values(), *(one.left.commit for one in snapshot.checkouts.values())}
    )
    # `json` can encode file names that are not valid UTF-8, msgspec cannot
    text = json.dumps(msgspec.to_builtins(snapshot))
    parents = (*((previous,) if previous else ()), *needed)

    return write_tree_commit(
        repository,
        resolve_tree(repository.place(), parents[-1]),
        parents,
        signature,
        f"{slug}\n\n{text}",
    )


def read_feature_snapshot(repository: Repository, commit: str) -> FeatureSnapshot:
    """Read the snapshot of a feature's code from a commit."""
    said = git(repository.place(), "cat-file", "commit", commit).stdout.decode()

    try:
        return read_value(json.loads(said.split("\n\n", 2)[2]), FeatureSnapshot)
    except (ValueError, IndexError) as error:
        raise StateConflict(
            f"{commit} is not a valid feature snapshot: {error}", "find out who pushed it"
        ) from error


def set_refs(repository: Repository, refs: Mapping[str, str | None], reason: str) -> None:
    """Set refs to these commits, whatever their current value; None deletes a ref.

    The copy of each branch is updated too.
    """
    alone = {
        ref: at
        for ref, at in refs.items()
        if not (ref.startswith(BRANCH_COPY_PREFIX) and _branch_of_copy(ref) in refs)
    }
    with repository_lock(repository) as lock:
        here = read_refs(repository, *alone)
        moved = move_refs(
            repository, lock, [RefMove(ref, here.get(ref), at) for ref, at in alone.items()], reason
        )

    if moved is not None:
        raise StateConflict(f"{moved.ref} was moved by another process", "run again")


def _branch_of_copy(kept: str) -> str:
    return BRANCH_PREFIX + kept.removeprefix(BRANCH_COPY_PREFIX)


def import_refs(repository: Repository, slug: str, wanted: Mapping[str, str]) -> None:
    """Replace a feature's refs with the refs from another machine.

    Commits that only this machine has are saved under new refs.
    """
    if foreign := sorted(ref for ref in wanted if not _belongs_to_feature(slug, ref)):
        raise StateConflict(
            f"the remote snapshot of {slug} contains {foreign[0]}, a ref of another feature",
            "find out who pushed it",
        )

    for ref, commit in list_feature_refs(repository, slug).items():
        there = wanted.get(ref)
        is_there = (
            there is not None
            and not ref.startswith(SAVED_PREFIX)
            and is_ancestor(repository, commit, there)
        )
        if not ref.startswith(BRANCH_COPY_PREFIX) and commit != there and not is_there:
            save_commit(repository, _work_name(ref), commit, wanted)

    here = list_feature_refs(repository, slug)
    gone = dict.fromkeys(
        ref for ref in here if ref not in wanted and not ref.startswith(SAVED_PREFIX)
    )
    set_refs(repository, {**wanted, **gone}, f"carry {slug}")
