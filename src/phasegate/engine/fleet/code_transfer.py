"""Transfer the code of a feature between machines: its refs and checkouts as one remote commit.

`refs/phasegate/fleet/{slug}` points to that commit. It is moved by compare-and-swap, together with
the feature's branch, before a step is recorded in the journal. So a machine that has the journal
finds the matching code. A worker that has lost the feature cannot push, because the worker that
took the feature has moved the ref.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import TypeVar

from msgspec.structs import replace

from phasegate.engine.jobs.admission import sync_checkout
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.journal.package import find_package, find_package_phase
from phasegate.engine.project.fleet_repository import fleet_remote, get_repository_id
from phasegate.engine.project.local_services import LocalRefs
from phasegate.engine.project.ports import RecordReader
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import collect_lent_secrets
from phasegate.engine.steps.feature_merge import remove_checkouts
from phasegate.engine.steps.feature_steps import FeatureSteps
from phasegate.engine.steps.workplace import PackageWorkspace, raise_if_unsaved
from phasegate.errors import BranchUpdateBlocked, GivenAway, StateConflict
from phasegate.storage.bucket.client import retry_with_backoff
from phasegate.workspace.checkout.checkout import (
    Assignment,
    Checkout,
    find_checkout,
    list_checkouts,
)
from phasegate.workspace.checkout.checkout_base import move_branch
from phasegate.workspace.checkout.checkout_creation import CheckoutOptions
from phasegate.workspace.checkout_lifecycle import remove_checkout
from phasegate.workspace.repository.ref_log import RefMove
from phasegate.workspace.repository.refs import BRANCH_PREFIX, SAVED_PREFIX
from phasegate.workspace.repository.remote import (
    PushResult,
    Remote,
    fetch_refs,
    list_remote_refs,
    push_refs,
)
from phasegate.workspace.repository.repository import Repository, is_ancestor, read_refs
from phasegate.workspace.repository_id import REPOSITORY_REF, foreign_remote_error
from phasegate.workspace.snapshots.feature_snapshot import (
    FeatureClaim,
    FeatureSnapshot,
    import_refs,
    list_feature_refs,
    parse_assignment,
    read_feature_snapshot,
    set_refs,
    write_feature_snapshot,
)
from phasegate.workspace.snapshots.job_snapshot import (
    CheckoutSnapshot,
    JobSnapshot,
    get_checkout_instance,
    restore_checkout,
    snapshot_checkout,
    snapshot_job,
)

CODE_REF_PREFIX = "refs/phasegate/fleet/"
# Time to retry an unreachable remote
REMOTE_TIMEOUT_S = 600.0
T = TypeVar("T")


class FeatureCodeTransfer:
    """The code of one feature on this machine, while this machine has the claim to it."""

    def __init__(self, project: Project, remote: Remote, slug: str, claim: FeatureClaim) -> None:
        self._project = project
        self._remote = remote
        self._slug = slug
        self._claim = claim
        self._repository = project.repository
        self._branch = f"{BRANCH_PREFIX}feat/{slug}"
        self._ref = f"{CODE_REF_PREFIX}{slug}"
        self._mutex = Lock()
        self._left_work: dict[str, JobSnapshot] = {}
        self._last_published: FeatureSnapshot | None = None
        # Ref and branch on the remote
        self._remote_refs: dict[str, str] = {}

    def fetch_published(self, record: RecordReader, base: str) -> None:
        """Fetch the code that another machine published last, and publish it with this machine's
        claim.

        From then on no other machine can publish.
        """
        repository = self._repository
        names = (self._ref, self._branch, BRANCH_PREFIX + base)
        self._remote_refs = self._retry_remote(
            lambda: fetch_refs(repository, self._remote, *names, REPOSITORY_REF)
        )
        own_id = get_repository_id(self._project)
        remote_id = self._remote_refs.pop(REPOSITORY_REF, "")
        if remote_id != own_id:
            raise foreign_remote_error(self._remote, own_id, remote_id)

        local_refs = read_refs(repository, *names)
        published = self._remote_refs.get(self._ref)

        if published:
            code = read_feature_snapshot(repository, published)
            if code.claim.number > self._claim.number:
                raise GivenAway(f"{code.claim.by} has claimed {self._slug}")

            if code.claim.by != self._claim.by or self._ref not in local_refs:
                self._restore(record, code)
            else:
                self._left_work = {name: checkout.left for name, checkout in code.checkouts.items()}

            self._last_published = code
            set_refs(repository, {self._ref: published}, f"carry {self._slug}")

        self._fast_forward(base)
        self._fast_forward(f"feat/{self._slug}")
        self.publish()

    def commit_job_work(self, assigned: JobAssignment) -> None:
        """Commit the changes of a job; they are published with the record of its end."""
        sync_checkout(assigned)
        if assigned.own_checkout is None:
            return

        checkout = find_checkout(self._repository, assigned.own_checkout)
        if checkout is None:
            return

        snapshot = snapshot_job(
            checkout,
            self._project.make_signature(),
            collect_lent_secrets(self._project),
            assigned.scope.litter,
        )
        if snapshot is not None:
            with self._mutex:
                self._left_work[checkout.assignment.name] = snapshot

    def publish(self) -> None:
        """Push the snapshot ref and the feature's branch if either changed.

        Raises GivenAway if another worker has the claim, StateConflict if the remote refuses.
        """
        with self._mutex:
            code = FeatureSnapshot(
                self._claim,
                list_feature_refs(self._repository, self._slug),
                dict(self._kept_checkouts()),
            )
            if code == self._last_published or not (code.refs or self._last_published):
                return

            signature = self._project.make_signature()
            before = self._remote_refs.get(self._ref)
            commit = write_feature_snapshot(self._repository, self._slug, code, before, signature)
            moves = [RefMove(self._ref, before, commit)]
            old = self._remote_refs.get(self._branch)
            new = code.refs.get(self._branch)
            if old != new:
                moves.append(RefMove(self._branch, old, new))

            result, detail = self._retry_remote(
                lambda: push_refs(self._repository, self._remote, *moves)
            )
            if result is not PushResult.DONE and self._is_branch_at(new):
                # A forge has removed the branch of a merged pull request, or moved it already
                result, detail = self._retry_remote(
                    lambda: push_refs(self._repository, self._remote, moves[0])
                )
            if result is not PushResult.DONE:
                raise self._refusal_error(detail)

            self._remote_refs = {self._ref: commit, **({self._branch: new} if new else {})}
            set_refs(self._repository, {self._ref: commit}, f"publish {self._slug}")
            self._last_published = code

    def _is_branch_at(self, commit: str | None) -> bool:
        there = self._retry_remote(
            lambda: list_remote_refs(self._repository, self._remote, self._branch)
        )
        return there.get(self._branch) == commit

    def retire(self) -> None:
        """Remove the ref of a merged feature, here and at the remote: its code is in the base."""
        with self._mutex:
            published = self._remote_refs.pop(self._ref, None)
            if published:
                move = RefMove(self._ref, published, None)
                self._retry_remote(lambda: push_refs(self._repository, self._remote, move))
            set_refs(self._repository, {self._ref: None}, f"retire {self._slug}")

    def _refusal_error(self, output: str) -> StateConflict:
        remote_refs = self._retry_remote(
            lambda: fetch_refs(self._repository, self._remote, self._ref)
        )
        if remote_refs.get(self._ref) != self._remote_refs.get(self._ref):
            return GivenAway(f"another worker has claimed {self._slug}")
        return StateConflict(
            f"feat/{self._slug} cannot be updated on the remote: {output}",
            "if another user moved it, move it back, "
            f"then: phasegate run --feature {self._slug} --fleet",
        )

    def _kept_checkouts(self) -> Iterator[tuple[str, CheckoutSnapshot]]:
        """Yield the existing checkouts in which a job left changes."""
        for name, snapshot in sorted(self._left_work.items()):
            assignment = parse_assignment(self._slug, name)
            checkout = find_checkout(self._repository, assignment) if assignment else None
            if checkout is not None and snapshot.made == get_checkout_instance(
                self._repository, name
            ):
                yield name, snapshot_checkout(checkout, snapshot)

    def push_base(self, branch: str, old: str, new: str) -> bool:
        """Push a merge into the base without overwriting other commits.

        The push decides, even if the local branch cannot be moved.
        """
        move = RefMove(BRANCH_PREFIX + branch, old, new)
        result, detail = self._retry_remote(lambda: push_refs(self._repository, self._remote, move))
        if result is PushResult.REFUSED:
            raise BranchUpdateBlocked(
                f"{branch} cannot be updated on the remote: {detail}",
                "give the workers permission to push to it",
            )

        if result is PushResult.DONE:
            with suppress(BranchUpdateBlocked):
                move_branch(self._repository, branch, old, new)
            return True

        self._remote_refs |= self._retry_remote(
            lambda: fetch_refs(self._repository, self._remote, move.name)
        )
        self._fast_forward(branch)
        if self._project.refs.fetch(branch).get(branch) != self._remote_refs.get(move.name):
            raise StateConflict(
                f"the local {branch} has commits that are not on the remote",
                "push them, or drop them",
            )

        return False

    # --- restore the code of another machine

    def _restore(self, record: RecordReader, code: FeatureSnapshot) -> None:
        """Restore refs and checkouts of the other machine, after saving local changes."""
        project = self._project

        for checkout in self._local_checkouts():
            raise_if_unsaved(
                remove_checkout(
                    checkout,
                    project.make_signature(),
                    collect_lent_secrets(project),
                    keep_for_reuse=True,
                )
            )

        import_refs(self._repository, self._slug, code.refs)
        for name, kept in code.checkouts.items():
            if assignment := parse_assignment(self._slug, name):
                restore_checkout(
                    self._repository, assignment, self._checkout_options(record, assignment), kept
                )
                self._left_work[name] = replace(
                    kept.left, made=get_checkout_instance(self._repository, name)
                )

    def _local_checkouts(self) -> Iterator[Checkout]:
        for name, _ in list_checkouts(self._repository):
            assignment = parse_assignment(self._slug, name)
            if assignment and (checkout := find_checkout(self._repository, assignment)):
                yield checkout

    def _checkout_options(self, record: RecordReader, assignment: Assignment) -> CheckoutOptions:
        if not assignment.work_id.startswith("WP"):
            return FeatureSteps(self._project, self._slug).checkout_options()
        package = find_package(record, assignment.work_id, self._slug)
        return PackageWorkspace(
            self._project, package, 1, find_package_phase(record, self._slug)
        ).checkout_options()

    def _fast_forward(self, branch: str) -> None:
        """Fast-forward a branch to the remote; local commits are kept, divergence is an error."""
        remote = self._remote_refs.get(BRANCH_PREFIX + branch)
        local = self._project.refs.fetch(branch).get(branch)
        if remote is None or (local is not None and is_ancestor(self._repository, remote, local)):
            return

        if local is not None and not is_ancestor(self._repository, local, remote):
            raise StateConflict(
                f"{branch} has diverged from the remote",
                f"to use the remote's: git branch --delete --force {branch}, "
                f"then: phasegate run --feature {self._slug} --fleet",
            )

        move_branch(self._repository, branch, local, remote)

    def _retry_remote(self, call: Callable[[], T]) -> T:
        """Retry while the remote is unreachable, with the same back-off as for the bucket.

        A step that is not published is not recorded.
        """
        until_s = monotonic() + REMOTE_TIMEOUT_S
        return retry_with_backoff(call, lambda: monotonic() > until_s, self._project.stop.wait)


def remove_retired_code(project: Project, slug: str, works: Iterable[str]) -> None:
    """Remove the checkouts and branches of a feature that another machine has merged.

    Checkouts are saved first. A branch that is not as this machine has handed it over stays.
    """
    repository = project.repository
    ref = f"{CODE_REF_PREFIX}{slug}"
    published = read_refs(repository, ref)[ref]
    handed_over = read_feature_snapshot(repository, published).refs
    remote = fleet_remote(project)
    if list_remote_refs(repository, remote, ref).get(ref) == published:
        # The worker that merged it was killed before it could
        push_refs(repository, remote, RefMove(ref, published, None))

    remove_checkouts(project, slug, works)
    gone = {
        name: None
        for name, commit in list_feature_refs(repository, slug).items()
        if handed_over.get(name) == commit and not name.startswith(SAVED_PREFIX)
    }
    set_refs(repository, {**gone, ref: None}, f"retire {slug}")


def list_carried_features(project: Project) -> list[str]:
    """Return the features whose code this clone has published or fetched."""
    refs = read_refs(project.repository, CODE_REF_PREFIX)
    return sorted(ref.removeprefix(CODE_REF_PREFIX) for ref in refs)


def fetch_snapshot(project: Project, slug: str) -> FeatureSnapshot | None:
    """Fetch the code that a worker has published last, or return None if there is none."""
    ref = f"{CODE_REF_PREFIX}{slug}"
    commit = fetch_refs(project.repository, fleet_remote(project), ref).get(ref)
    return read_feature_snapshot(project.repository, commit) if commit else None


class FleetRefs(LocalRefs):
    """Refs of a worker; implements `Refs`.

    A base moves on the remote first; feature branches are published by the code transfer.
    """

    def __init__(self, repository: Repository, code: FeatureCodeTransfer) -> None:
        super().__init__(repository)
        self._code = code

    def move(self, branch: str, old: str, new: str) -> bool:
        if branch.startswith("feat/"):
            return super().move(branch, old, new)
        return self._code.push_base(branch, old, new)
