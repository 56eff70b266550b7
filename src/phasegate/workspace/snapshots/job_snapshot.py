"""Save a job's work in a checkout as commits, from which another machine can recreate it.

Only commits and files that Phasegate could read are passed on, never the agent's git directory. If
the checkout contains a key that was given to the agent, nothing is passed on.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import msgspec
from msgspec.structs import replace

from phasegate.core.agents.secrets import SecretMatcher
from phasegate.errors import StateConflict
from phasegate.git import GitFailed
from phasegate.workspace.changes.agent_history import AgentCommit
from phasegate.workspace.changes.changes import (
    DEFAULT_LIMITS,
    CheckoutTooLarge,
    Observation,
    observe_checkout,
)
from phasegate.workspace.changes.path_states import (
    HARVESTABLE_MODES,
    is_harvestable,
    read_committed_blobs,
    read_observed_contents,
)
from phasegate.workspace.checkout.checkout import Assignment, Checkout, records_folder, write_record
from phasegate.workspace.checkout.checkout_base import StartPoint
from phasegate.workspace.checkout.checkout_creation import CheckoutOptions, create_checkout
from phasegate.workspace.repository.disk_files import LimitReached
from phasegate.workspace.repository.objects import (
    NewCommit,
    PathVersion,
    Signature,
    write_blobs,
    write_commits,
)
from phasegate.workspace.repository.refs import BRANCH_PREFIX
from phasegate.workspace.repository.repository import Repository, read_refs
from phasegate.workspace.repository.repository_locks import checkout_lock


class JobSnapshot(msgspec.Struct, frozen=True):
    """The commits that store a job's work.

    `commit` has the files as they were on disk; `head` is the copy of the agent's last commit.
    """

    # Distinguishes this checkout from a later one in the same folder
    made: str
    commit: str
    head: str = ""
    # The ids of the copies, by the ids of the agent's commits
    copies: dict[str, str] = {}


class CheckoutSnapshot(msgspec.Struct, frozen=True):
    """The metadata that another machine needs to recreate a checkout."""

    left: JobSnapshot
    start: str
    base: str
    paths: tuple[str, ...]
    joins: str | None
    tip: str | None
    taken: str | None
    pending: tuple[str, str] | None


def get_checkout_instance(repository: Repository, name: str) -> str:
    """Return a value that distinguishes this checkout from later ones in the same folder."""
    try:
        about = (records_folder(repository, name) / "index").stat()
    except FileNotFoundError:
        return ""
    return f"{about.st_ino}-{about.st_mtime_ns}"


def snapshot_job(
    checkout: Checkout, signature: Signature, lent: SecretMatcher, litter: Iterable[str]
) -> JobSnapshot | None:
    """Commit the history and files that a job left in its checkout.

    Return None if they cannot be read or must not be passed on.
    """
    try:
        seen = observe_checkout(checkout, litter=litter)
        if isinstance(seen, CheckoutTooLarge):
            return None
        return _commit_job_work(checkout, seen, signature, lent)
    except (GitFailed, LimitReached, StateConflict):
        return None


def _commit_job_work(
    checkout: Checkout, observation: Observation, signature: Signature, lent: SecretMatcher
) -> JobSnapshot | None:
    """Commit a job's files and history as they are now, or return None if nothing changed."""
    usable = {path: found for path, found in observation.versions.items() if is_harvestable(found)}
    files = {
        path: found and PathVersion(found.mode, found.object_id) for path, found in usable.items()
    }
    if observation.history.is_linear:
        commits = observation.history.commits
    else:
        commits = ()

    committed = [
        data
        for _, data in read_committed_blobs(
            checkout, commits, lambda _: True, DEFAULT_LIMITS
        ).values()
    ]

    on_disk = [data for _, data in read_observed_contents(checkout, observation, files)]
    if _contains_lent_secret(lent, observation, commits, (*committed, *on_disk)):
        return None

    write_blobs(checkout.repository, chain(committed, on_disk))
    ids = _copy_commits(checkout, commits)
    head = ids[-1] if ids else ""
    parents = (checkout.start, head) if head else (checkout.start,)
    message = f"Work of a job in {checkout.assignment.name}"
    (made,) = write_commits(
        checkout.repository,
        [
            NewCommit(
                parents=parents, author=signature, committer=signature, message=message, paths=files
            )
        ],
    )

    copies = dict(zip((one.id for one in commits), ids, strict=True))

    return JobSnapshot(
        get_checkout_instance(checkout.repository, checkout.assignment.name), made, head, copies
    )


def _copy_commits(checkout: Checkout, commits: Iterable[AgentCommit]) -> list[str]:
    """Write copies of the agent's commits, and return their ids.

    Copies of ordinary commits have the same ids, which the agent's claims refer to.
    """
    plans = []

    for number, one in enumerate(commits):
        paths = {
            path: new
            for path, _, new in one.changes
            if new is None or new.mode in HARVESTABLE_MODES
        }
        parents = () if number else (checkout.start,)
        plans.append(
            NewCommit(
                parents=parents,
                author=one.author,
                committer=one.committer,
                message=one.message,
                paths=paths,
            )
        )

    return write_commits(checkout.repository, plans)


def _contains_lent_secret(
    lent: SecretMatcher,
    observation: Observation,
    commits: Iterable[AgentCommit],
    contents: Iterable[bytes],
) -> bool:
    if not lent:
        return False
    names = (path.encode("utf-8", "surrogateescape") for path in observation.versions)
    messages = (one.message.encode(errors="replace") for one in commits)
    return any(lent.has_secret(data) for data in (*names, *messages, *contents))


def snapshot_checkout(checkout: Checkout, job: JobSnapshot) -> CheckoutSnapshot:
    """Return the data that another machine needs to recreate a checkout with a job's work."""
    one = checkout.record
    return CheckoutSnapshot(
        left=job,
        start=one.start,
        base=one.base,
        paths=one.paths,
        joins=one.joins,
        tip=one.tip,
        taken=one.taken,
        pending=one.pending,
    )


def restore_checkout(
    repository: Repository,
    assignment: Assignment,
    options: CheckoutOptions,
    snapshot: CheckoutSnapshot,
) -> Checkout:
    """Recreate a checkout of another machine from its snapshot."""
    left = snapshot.left
    target = BRANCH_PREFIX + assignment.feature_branch
    refs = read_refs(repository, target, "refs/tags")
    begin = StartPoint(
        start=snapshot.start,
        base=snapshot.base or snapshot.start,
        refs=refs,
        files_tree=left.commit,
        joins=snapshot.joins,
        head=left.head,
    )

    with checkout_lock(repository, assignment.name):
        made = create_checkout(repository, assignment, options, begin)
        pending = snapshot.pending and (
            snapshot.pending[0],
            left.copies.get(snapshot.pending[1], snapshot.pending[1]),
        )
        taken = left.copies.get(snapshot.taken or "", snapshot.taken)
        record = replace(
            made.record, paths=snapshot.paths, tip=snapshot.tip, taken=taken, pending=pending
        )
        write_record(records_folder(repository, assignment.name), record)

    return made._replace(record=record)
