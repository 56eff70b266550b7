"""Commit allowed changes to the package's branch in the user's repository.

An agent's own commits are harvested one by one, with author and message, each reduced to the
allowed paths. Uncommitted changes follow in a commit by Phasegate. The final tree is the start plus
the allowed changes on disk, byte for byte, whatever the agent's git contains: it is computed in two
ways, and the results are compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from phasegate.core.forge.outgoing_text import defuse_triggers
from phasegate.errors import StateConflict
from phasegate.git import GitFailed, sync_written_folders
from phasegate.workspace.changes.agent_history import AgentCommit
from phasegate.workspace.changes.changes import DEFAULT_LIMITS, Observation
from phasegate.workspace.changes.path_states import (
    PathVersions,
    collect_new_versions,
    find_remaining_changes,
    is_harvestable,
    normalize_version,
    read_committed_blobs,
    read_observed_contents,
)
from phasegate.workspace.checkout.checkout import (
    Checkout,
    CheckoutRecord,
    find_checkout,
    records_folder,
    write_record,
)
from phasegate.workspace.repository.disk_files import CheckoutLimits, LimitReached
from phasegate.workspace.repository.objects import (
    NewCommit,
    Signature,
    VersionMap,
    write_blobs,
    write_commits,
    write_tree_commit,
)
from phasegate.workspace.repository.refs import BRANCH_PREFIX, RefMoved, advance_branch
from phasegate.workspace.repository.repository import (
    Repository,
    is_ancestor,
    read_refs,
    resolve_commit,
)
from phasegate.workspace.repository.repository_locks import (
    RepositoryLock,
    checkout_lock,
    repository_lock,
)
from phasegate.workspace.repository.tree_diff import diff_trees, resolve_tree
from phasegate.workspace.repository.user_checkout import Obstacle


class HarvestedCommit(NamedTuple):
    """A commit on the package's branch.

    `agent_commit` is None if Phasegate committed uncommitted changes.
    """

    id: str
    message: str
    agent_commit: str | None
    # True if the package's id was prepended to the message
    message_changed: bool
    # True if words of the message that a forge acts on were broken, or its author was replaced
    defused: bool = False


class Harvest(NamedTuple):
    """The result of a harvest.

    `left_out` are changed paths that are not allowed; `note` says why the agent's own commits were
    not used.
    """

    tip: str
    commits: tuple[HarvestedCommit, ...]
    left_out: tuple[str, ...]
    note: str


class HarvestConflict(NamedTuple):
    """Another process changed the same paths on the package's branch.

    Nothing was changed.
    """

    paths: tuple[str, ...]


def harvest_checkout(
    checkout: Checkout,
    observation: Observation,
    allowed: Callable[[str], bool],
    *,
    committer: Signature,
    title: str,
    limits: CheckoutLimits = DEFAULT_LIMITS,
) -> Harvest | HarvestConflict | RefMoved | Obstacle:
    """Commit the allowed changes of a checkout to its branch.

    If several agents work on a package, their harvests are merged one after the other.
    """
    with checkout_lock(checkout.repository, checkout.assignment.name):
        current = find_checkout(checkout.repository, checkout.assignment)
        if current is None or current.start != checkout.start:
            raise StateConflict(
                f"another process replaced {checkout.folder}", "run `phasegate dispatch` again"
            )

        current = _settle_pending_harvest(current)
        commits, committed, note = _find_replayable_commits(current, observation, allowed, limits)
        on_disk = (
            content
            for _, content in read_observed_contents(
                current, observation, filter(allowed, observation.versions)
            )
        )

        write_blobs(checkout.repository, chain(committed, on_disk))
        with repository_lock(checkout.repository) as lock:
            locked_harvest = _LockedHarvest(
                checkout=current,
                observation=observation,
                allowed=allowed,
                committer=committer,
                title=title,
            )
            return locked_harvest.run(lock, commits, note)


def _settle_pending_harvest(checkout: Checkout) -> Checkout:
    """Record a harvest that was completed but not recorded because of a crash.

    Return the checkout with its current record.
    """
    record = checkout.record
    ref = BRANCH_PREFIX + checkout.assignment.branch
    # The commit was lost in a power failure
    if record.pending is None or resolve_commit(checkout.repository, record.pending[0]) is None:
        return checkout

    head = read_refs(checkout.repository, ref).get(ref)
    if head is None or not is_ancestor(checkout.repository, record.pending[0], head):
        return checkout

    return checkout._replace(record=_record_harvest(record, checkout, *record.pending))


def _record_harvest(
    record: CheckoutRecord, checkout: Checkout, tip: str, taken: str
) -> CheckoutRecord:
    folder = records_folder(checkout.repository, checkout.assignment.name)
    record = replace(record, tip=tip, taken=taken or None, pending=None, joins=None)
    write_record(folder, record)
    return record


def _find_replayable_commits(
    checkout: Checkout,
    observation: Observation,
    allowed: Callable[[str], bool],
    limits: CheckoutLimits,
) -> tuple[list[AgentCommit], list[bytes], str]:
    """Return the agent's commits that can be harvested one by one, with the contents of their
    blobs.

    If there are none, the last element says why.
    """
    record = checkout.record
    history = observation.history
    if not history.is_linear or record.joins is not None:
        return [], [], history.note or "a conflict was resolved: all changes are in one commit"

    ids = [record.start, *(commit.id for commit in history.commits)]
    if (record.taken or record.start) not in ids:
        return [], [], "the agent rewrote commits that were harvested before"

    commits = list(history.commits[ids.index(record.taken or record.start) :])
    try:
        blobs = read_committed_blobs(checkout, commits, allowed, limits)
        return commits, [content for _, content in blobs.values()], ""
    except (GitFailed, LimitReached, StateConflict) as error:
        return [], [], f"the agent's history cannot be read: {error}"


class _LockedHarvest(NamedTuple):
    """The part of a harvest that runs under the repository lock."""

    checkout: Checkout
    observation: Observation
    allowed: Callable[[str], bool]
    committer: Signature
    title: str

    @property
    def repository(self) -> Repository:
        return self.checkout.repository

    def run(
        self, lock: RepositoryLock, commits: list[AgentCommit], note: str
    ) -> Harvest | HarvestConflict | RefMoved | Obstacle:
        """Commit the allowed changes on the branch, or return the obstacle."""
        branch = self.checkout.assignment.branch
        record = self.checkout.record
        head = read_refs(self.repository, BRANCH_PREFIX + branch).get(BRANCH_PREFIX + branch)
        if head is None or (record.joins is not None and head != record.joins):
            return RefMoved(BRANCH_PREFIX + branch, record.joins or record.start, head)

        states = PathVersions(self.repository, record, head, self.observation)
        wanted = states.required_changes(self.allowed)
        contested = sorted(
            path
            for path in wanted
            if path in states.changed_since_harvest
            and states.changed_since_harvest[path] != wanted[path]
        )

        if contested:
            return HarvestConflict(tuple(contested))

        taken = self._write_commits(head, states, wanted, commits)
        tip = taken[-1].id if taken else head
        self._verify_tree(states, wanted, tip)

        return self._publish(lock, head, tip, taken, wanted, note)

    def _write_commits(
        self,
        head: str,
        states: PathVersions,
        wanted: VersionMap,
        commits: list[AgentCommit],
    ) -> list[HarvestedCommit]:
        """Write the agent's commits again, with the allowed changes only."""
        if self.checkout.record.joins is not None:
            return [self._write_resolution(head, wanted)]

        now: VersionMap = {}
        plans: list[tuple[NewCommit, str | None, bool, bool]] = []

        for commit in commits:
            step = self._commit_changes(commit, states, now)
            if step:
                now.update(step)
                safe = defuse_triggers(commit.message)
                message, renamed = ensure_package_prefix(safe, self.checkout.assignment.work_id)
                author = commit.author._replace(who=self.committer.who)
                plans.append(
                    (
                        NewCommit(
                            parents=(),
                            author=author,
                            committer=self.committer,
                            message=message,
                            paths=step,
                        ),
                        commit.id,
                        renamed,
                        safe != commit.message or author != commit.author,
                    )
                )

        rest = find_remaining_changes(states, wanted, now)
        if rest:
            message = self._make_own_message()
            plans.append(
                (
                    NewCommit(
                        parents=(),
                        author=self.committer,
                        committer=self.committer,
                        message=message,
                        paths=rest,
                    ),
                    None,
                    False,
                    False,
                )
            )

        made = [
            plan._replace(parents=(head,) if number == 0 else ())
            for number, (plan, *_) in enumerate(plans)
        ]
        ids = write_commits(self.repository, made)

        return [
            HarvestedCommit(
                id=one,
                message=plan.message,
                agent_commit=source,
                message_changed=renamed,
                defused=defused,
            )
            for one, (plan, source, renamed, defused) in zip(ids, plans, strict=True)
        ]

    def _make_own_message(self) -> str:
        """Return the message of a commit of changes that the agent did not commit."""
        title = defuse_triggers(self.title)
        return ensure_package_prefix(title, self.checkout.assignment.work_id)[0]

    def _commit_changes(
        self, commit: AgentCommit, states: PathVersions, now: VersionMap
    ) -> VersionMap:
        """Return the changes that one commit of the agent makes on the branch.

        Only allowed paths with allowed modes are included.
        """
        found: VersionMap = {}

        for path, _, new in commit.changes:
            if path in now:
                current = now[path]
            else:
                current = states.at_head(path)

            shown = normalize_version(new, states.on_disk(path), states.at_start(path))
            if self.allowed(path) and shown != current and (new is None) == (shown is None):
                found[path] = shown

        return found

    def _write_resolution(self, head: str, wanted: VersionMap) -> HarvestedCommit:
        """Write a merge commit of the branch and the start, with the allowed changes."""
        record = self.checkout.record
        message = self._make_own_message()
        plan = NewCommit(
            parents=(record.start,),
            author=self.committer,
            committer=self.committer,
            message=message,
            paths=wanted,
        )

        (made,) = write_commits(self.repository, [plan])
        tree = resolve_tree(self.repository.place(), made)
        commit = write_tree_commit(
            self.repository, tree, (head, record.start), self.committer, message
        )

        return HarvestedCommit(commit, message, None, False)

    def _verify_tree(self, states: PathVersions, wanted: VersionMap, tip: str) -> None:
        """Check path by path that git's tree is the expected one."""
        expected = {**states.harvested_before, **states.changed_since_harvest, **wanted}
        expected = {
            path: version for path, version in expected.items() if version != states.at_start(path)
        }
        found = collect_new_versions(diff_trees(self.repository.place(), self.checkout.start, tip))

        if found != expected:
            odd = sorted(
                path
                for path in found.keys() | expected.keys()
                if found.get(path) != expected.get(path)
            )
            raise StateConflict(
                f"the harvested tree differs from the checked changes: {odd[:5]!a}",
                "this is a bug in Phasegate: report it",
            )

    def _publish(
        self,
        lock: RepositoryLock,
        head: str,
        tip: str,
        taken: list[HarvestedCommit],
        wanted: Iterable[str],
        note: str,
    ) -> Harvest | RefMoved | Obstacle:
        """Record the harvest, then move the branch to it."""
        folder = records_folder(self.repository, self.checkout.assignment.name)
        last = self.observation.history.head or ""
        paths = tuple(sorted({*self.checkout.record.paths, *wanted}))
        write_record(folder, replace(self.checkout.record, pending=(tip, last), paths=paths))
        reason = f"harvest {self.checkout.assignment.name}"
        stopped = advance_branch(
            repository=self.repository,
            lock=lock,
            branch=self.checkout.assignment.branch,
            old=head,
            new=tip,
            reason=reason,
        )

        if stopped is not None:
            return stopped

        # Otherwise a power failure could keep the record of the harvest, but not the branch
        sync_written_folders()
        _record_harvest(replace(self.checkout.record, paths=paths), self.checkout, tip, last)
        left_out = sorted(
            path
            for path, found in self.observation.versions.items()
            if not (self.allowed(path) and is_harvestable(found))
        )

        return Harvest(tip, tuple(taken), tuple(left_out), note)


def ensure_package_prefix(message: str, work_id: str) -> tuple[str, bool]:
    """Return a commit message that names the package, and True if the name was added."""
    if re.match(rf"(?:{re.escape(work_id)}|[a-z]+\({re.escape(work_id)}\)!?): \S", message):
        return message, False
    return f"{work_id}: {message}", True
