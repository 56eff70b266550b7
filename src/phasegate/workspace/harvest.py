"""Allowed changes become commits on the package's branch, in the person's repository.

An agent's own commits are taken over one by one, with author and message, each cut down to the allowed paths; what it
left uncommitted follows in a commit of ours. The last tree is the start plus the allowed changes on the disk, byte for
byte, whatever the agent's git says: that is computed twice, and compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from phasegate.errors import StateConflict
from phasegate.git import GitFailed, make_durable
from phasegate.workspace.agent_history import AgentCommit
from phasegate.workspace.changes import DEFAULT_LIMITS, Observation
from phasegate.workspace.checkout import Checkout, Record, find_checkout, records_folder, write_record
from phasegate.workspace.checkout_files import CheckoutLimits, LimitReached
from phasegate.workspace.objects import NewCommit, Signature, Version, write_blobs, write_commits, write_merge
from phasegate.workspace.path_states import (
    States,
    can_be_taken,
    committed_blobs,
    contents_seen,
    presentable,
    remaining,
    versions,
)
from phasegate.workspace.refs import BRANCHES, RefMoved, advance_branch
from phasegate.workspace.repository import commit_of, is_ancestor, read_refs
from phasegate.workspace.repository_locks import RepositoryLock, checkout_lock, repository_lock
from phasegate.workspace.tree_diff import differences, tree_of
from phasegate.workspace.user_checkout import Obstacle


class Taken(NamedTuple):
    """A commit on the package's branch. `source` is the agent's own commit; None: we made it of what was left."""

    id: str
    message: str
    source: str | None
    renamed: bool  # the agent's message did not name the package: we put its name in front


class Harvest(NamedTuple):
    """What came in. `left_out` were changed and not allowed; `note` says why a history was not taken over."""

    tip: str
    commits: tuple[Taken, ...]
    left_out: tuple[str, ...]
    note: str


class Contested(NamedTuple):
    """Somebody else changed the same paths on the package's branch meanwhile. Nothing was changed."""

    paths: tuple[str, ...]


def harvest(
    checkout: Checkout,
    seen: Observation,
    allowed: Callable[[str], bool],
    *,
    committer: Signature,
    title: str,
    limits: CheckoutLimits = DEFAULT_LIMITS,
) -> Harvest | Contested | RefMoved | Obstacle:
    """Take the allowed changes of a checkout over to its branch. Several agents' harvests join one after the other."""
    with checkout_lock(checkout.repository, checkout.assignment.name):
        current = find_checkout(checkout.repository, checkout.assignment)
        if current is None or current.start != checkout.start:
            raise StateConflict(f"{checkout.folder} was replaced meanwhile", "dispatch again")
        current = _settled(current)
        commits, committed, note = _replayable(current, seen, allowed, limits)
        on_disk = (content for _, content in contents_seen(current, seen, filter(allowed, seen.versions)))
        write_blobs(checkout.repository, chain(committed, on_disk))
        with repository_lock(checkout.repository) as lock:
            return _Work(current, seen, allowed, committer, title).join(lock, commits, note)


def _settled(checkout: Checkout) -> Checkout:
    """The checkout, with a harvest noted that came into force and was cut off before it was noted."""
    record, ref = checkout.record, BRANCHES + checkout.assignment.branch
    if record.pending is None or commit_of(checkout.repository, record.pending[0]) is None:  # lost with the power
        return checkout
    head = read_refs(checkout.repository, ref).get(ref)
    if head is None or not is_ancestor(checkout.repository, record.pending[0], head):
        return checkout
    return checkout._replace(record=_noted(record, checkout, *record.pending))


def _noted(record: Record, checkout: Checkout, tip: str, taken: str) -> Record:
    folder = records_folder(checkout.repository, checkout.assignment.name)
    record = replace(record, tip=tip, taken=taken or None, pending=None, joins=None)
    write_record(folder, record)
    return record


def _replayable(
    checkout: Checkout, seen: Observation, allowed: Callable[[str], bool], limits: CheckoutLimits
) -> tuple[list[AgentCommit], list[bytes], str]:
    """The agent's commits that can be taken over one by one, with the contents of blobs; or why there are none."""
    record, history = checkout.record, seen.history
    if not history.linear or record.joins is not None:
        return [], [], history.note or "a conflict was solved: one commit has it all"
    ids = [record.start, *(commit.id for commit in history.commits)]
    if (record.taken or record.start) not in ids:
        return [], [], "the agent rewrote commits that were taken over before"
    commits = list(history.commits[ids.index(record.taken or record.start) :])
    try:
        blobs = committed_blobs(checkout, commits, allowed, limits)
        return commits, [content for _, content in blobs.values()], ""
    except (GitFailed, LimitReached, StateConflict) as error:
        return [], [], f"the agent's history cannot be read: {error}"


class _Work:
    """The part of a harvest that is done under the lock of the repository."""

    def __init__(
        self,
        checkout: Checkout,
        seen: Observation,
        allowed: Callable[[str], bool],
        committer: Signature,
        title: str,
    ) -> None:
        self._checkout, self._repository = checkout, checkout.repository
        self._seen, self._allowed = seen, allowed
        self._committer, self._title = committer, title

    def join(
        self, lock: RepositoryLock, commits: list[AgentCommit], note: str
    ) -> Harvest | Contested | RefMoved | Obstacle:
        branch, record = self._checkout.assignment.branch, self._checkout.record
        head = read_refs(self._repository, BRANCHES + branch).get(BRANCHES + branch)
        if head is None or (record.joins is not None and head != record.joins):
            return RefMoved(BRANCHES + branch, record.joins or record.start, head)
        states = States(self._repository, record, head, self._seen)
        wanted = states.wanted(self._allowed)
        contested = sorted(path for path in wanted if path in states.since and states.since[path] != wanted[path])
        if contested:
            return Contested(tuple(contested))
        taken = self._write(head, states, wanted, commits)
        tip = taken[-1].id if taken else head
        self._prove(states, wanted, tip)
        return self._publish(lock, head, tip, taken, wanted, note)

    def _write(
        self, head: str, states: States, wanted: Mapping[str, Version | None], commits: list[AgentCommit]
    ) -> list[Taken]:
        if self._checkout.record.joins is not None:
            return [self._solved(head, wanted)]
        now: dict[str, Version | None] = {}
        plans: list[tuple[NewCommit, str | None, bool]] = []
        for commit in commits:
            step = self._step(commit, states, now)
            if step:
                now.update(step)
                message, renamed = named(commit.message, self._checkout.assignment.work)
                plans.append((NewCommit((), commit.author, self._committer, message, step), commit.id, renamed))
        rest = remaining(states, wanted, now)
        if rest:
            message, _ = named(self._title, self._checkout.assignment.work)
            plans.append((NewCommit((), self._committer, self._committer, message, rest), None, False))
        made = [plan._replace(parents=(head,) if number == 0 else ()) for number, (plan, _, _) in enumerate(plans)]
        ids = write_commits(self._repository, made)
        return [
            Taken(one, plan.message, source, renamed) for one, (plan, source, renamed) in zip(ids, plans, strict=True)
        ]

    def _step(
        self, commit: AgentCommit, states: States, now: Mapping[str, Version | None]
    ) -> dict[str, Version | None]:
        """What one commit of the agent's changes on the branch: allowed paths, in the modes that they may have."""
        found: dict[str, Version | None] = {}
        for path, _, new in commit.changes:
            current = now[path] if path in now else states.head(path)
            shown = presentable(new, states.disk(path), states.start(path))
            if self._allowed(path) and shown != current and (new is None) == (shown is None):
                found[path] = shown
        return found

    def _solved(self, head: str, wanted: Mapping[str, Version | None]) -> Taken:
        """One merge commit: the start, with the allowed changes, is what the branch and the start have become."""
        record = self._checkout.record
        message, _ = named(self._title, self._checkout.assignment.work)
        plan = NewCommit((record.start,), self._committer, self._committer, message, wanted)
        (made,) = write_commits(self._repository, [plan])
        tree = tree_of(self._repository.place(), made)
        commit = write_merge(self._repository, tree, (head, record.start), self._committer, message)
        return Taken(commit, message, None, False)

    def _prove(self, states: States, wanted: Mapping[str, Version | None], tip: str) -> None:
        """The tree that git has now must be the one that was asked for, path by path."""
        expected = {**states.taken_before, **states.since, **wanted}
        expected = {path: version for path, version in expected.items() if version != states.start(path)}
        found = versions(differences(self._repository.place(), self._checkout.start, tip))
        if found != expected:
            odd = sorted(path for path in found.keys() | expected.keys() if found.get(path) != expected.get(path))
            raise StateConflict(
                f"the harvest is not what was checked: {odd[:5]!a}", "this is a bug in Phasegate: report it"
            )

    def _publish(
        self,
        lock: RepositoryLock,
        head: str,
        tip: str,
        taken: list[Taken],
        wanted: Iterable[str],
        note: str,
    ) -> Harvest | RefMoved | Obstacle:
        folder = records_folder(self._repository, self._checkout.assignment.name)
        last = self._seen.history.head or ""
        paths = tuple(sorted({*self._checkout.record.paths, *wanted}))
        write_record(folder, replace(self._checkout.record, pending=(tip, last), paths=paths))
        reason = f"harvest {self._checkout.assignment.name}"
        stopped = advance_branch(self._repository, lock, self._checkout.assignment.branch, head, tip, reason)
        if stopped is not None:
            return stopped
        make_durable()  # else a power failure may leave a record that has all taken, and the branch without it
        _noted(replace(self._checkout.record, paths=paths), self._checkout, tip, last)
        left_out = sorted(
            path for path, found in self._seen.versions.items() if not (self._allowed(path) and can_be_taken(found))
        )
        return Harvest(tip, tuple(taken), tuple(left_out), note)


def named(message: str, work: str) -> tuple[str, bool]:
    """A message that names its package, and whether we had to put the name there."""
    if re.match(rf"(?:{re.escape(work)}|[a-z]+\({re.escape(work)}\)!?): \S", message):
        return message, False
    return f"{work}: {message}", True
