"""What a job left in its checkout, as commits of ours: another machine can make the checkout anew from them.

Nothing of the agent's git is passed on but what was read from it. A checkout that holds a key that was lent to the
agent is not passed on at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import msgspec
from msgspec.structs import replace

from phasegate.core.agents.secrets import LentValues
from phasegate.errors import StateConflict
from phasegate.git import GitFailed
from phasegate.workspace.agent_history import AgentCommit
from phasegate.workspace.changes import DEFAULT_LIMITS, Observation, TooMuch, observe
from phasegate.workspace.checkout import Assignment, Checkout, records_folder, write_record
from phasegate.workspace.checkout_base import Beginning
from phasegate.workspace.checkout_creation import Terms, make
from phasegate.workspace.checkout_files import LimitReached
from phasegate.workspace.objects import NewCommit, Signature, Version, write_blobs, write_commits
from phasegate.workspace.path_states import TAKEN_MODES, can_be_taken, committed_blobs, contents_seen
from phasegate.workspace.refs import BRANCHES
from phasegate.workspace.repository import Repository, read_refs
from phasegate.workspace.repository_locks import checkout_lock


class LeftWork(msgspec.Struct, frozen=True):
    """`commit` has the files as they lay there; `head` is the agent's own last commit, written by us."""

    made: str  # tells this checkout from one that is made later in its place
    commit: str
    head: str = ""
    copies: dict[str, str] = {}  # the agent's commits, and ours that stand for them


class KeptCheckout(msgspec.Struct, frozen=True):
    """What must be known of a checkout to make it anew, besides what lies in it."""

    left: LeftWork
    start: str
    base: str
    paths: tuple[str, ...]
    joins: str | None
    tip: str | None
    taken: str | None
    pending: tuple[str, str] | None


def making_of(repository: Repository, name: str) -> str:
    """What tells the checkout that is there now from those before and after it in its place."""
    try:
        about = (records_folder(repository, name) / "index").stat()
    except FileNotFoundError:
        return ""
    return f"{about.st_ino}-{about.st_mtime_ns}"


def leave(checkout: Checkout, signature: Signature, lent: LentValues, litter: Iterable[str]) -> LeftWork | None:
    """Commit what a job left, history and files; None where that cannot or must not be passed on."""
    try:
        seen = observe(checkout, litter=litter)
        return None if isinstance(seen, TooMuch) else _left(checkout, seen, signature, lent)
    except (GitFailed, LimitReached, StateConflict):
        return None


def _left(checkout: Checkout, seen: Observation, signature: Signature, lent: LentValues) -> LeftWork | None:
    usable = {path: found for path, found in seen.versions.items() if can_be_taken(found)}
    files = {path: found and Version(found.mode, found.object_id) for path, found in usable.items()}
    commits = seen.history.commits if seen.history.linear else ()
    committed = [data for _, data in committed_blobs(checkout, commits, lambda _: True, DEFAULT_LIMITS).values()]
    on_disk = [data for _, data in contents_seen(checkout, seen, files)]
    if _holds_lent(lent, seen, commits, (*committed, *on_disk)):
        return None
    write_blobs(checkout.repository, chain(committed, on_disk))
    ids = _copied(checkout, commits)
    head = ids[-1] if ids else ""
    parents = (checkout.start, head) if head else (checkout.start,)
    message = f"What a job left in {checkout.assignment.name}"
    (made,) = write_commits(checkout.repository, [NewCommit(parents, signature, signature, message, files)])
    copies = dict(zip((one.id for one in commits), ids, strict=True))
    return LeftWork(making_of(checkout.repository, checkout.assignment.name), made, head, copies)


def _copied(checkout: Checkout, commits: Iterable[AgentCommit]) -> list[str]:
    """The agent's commits, written by us; where all is plain in them they have the ids that its claims name."""
    plans = []
    for number, one in enumerate(commits):
        paths = {path: new for path, _, new in one.changes if new is None or new.mode in TAKEN_MODES}
        parents = () if number else (checkout.start,)
        plans.append(NewCommit(parents, one.author, one.committer, one.message, paths))
    return write_commits(checkout.repository, plans)


def _holds_lent(lent: LentValues, seen: Observation, commits: Iterable[AgentCommit], contents: Iterable[bytes]) -> bool:
    if not lent:
        return False
    names = (path.encode("utf-8", "surrogateescape") for path in seen.versions)
    messages = (one.message.encode(errors="replace") for one in commits)
    return any(lent.are_in(data) for data in (*names, *messages, *contents))


def kept_checkout(checkout: Checkout, left: LeftWork) -> KeptCheckout:
    """What another machine needs of a checkout in which a job left something."""
    one = checkout.record
    return KeptCheckout(left, one.start, one.base, one.paths, one.joins, one.tip, one.taken, one.pending)


def make_anew(repository: Repository, assignment: Assignment, terms: Terms, kept: KeptCheckout) -> Checkout:
    """Make a checkout as another machine had it."""
    left, target = kept.left, BRANCHES + assignment.target
    refs = read_refs(repository, target, "refs/tags")
    begin = Beginning(kept.start, kept.base or kept.start, refs, left.commit, kept.joins, head=left.head)
    with checkout_lock(repository, assignment.name):
        made = make(repository, assignment, terms, begin)
        pending = kept.pending and (kept.pending[0], left.copies.get(kept.pending[1], kept.pending[1]))
        taken = left.copies.get(kept.taken or "", kept.taken)
        record = replace(made.record, paths=kept.paths, tip=kept.tip, taken=taken, pending=pending)
        write_record(records_folder(repository, assignment.name), record)
    return made._replace(record=record)
