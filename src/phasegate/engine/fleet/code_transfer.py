"""The code of a feature on its way between machines.

All of its refs and checkouts, as one commit at the remote.

`refs/phasegate/fleet/{slug}` leads to that commit. It is moved by compare and swap, together with
the feature's branch, before the journal tells of a step. So whoever has the journal finds the code
to it; and a worker that has lost the feature can push nothing, because the one that took it over
has moved the ref.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import TypeVar

from msgspec.structs import replace

from phasegate.engine.jobs.admission import sync_checkout
from phasegate.engine.jobs.assignment import JobAssignment
from phasegate.engine.journal.package import find_package, find_package_phase
from phasegate.engine.project.local_ports import LocalRefs
from phasegate.engine.project.ports import RecordReader
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import collect_lent_secrets
from phasegate.engine.steps.feature_steps import FeatureSteps
from phasegate.engine.steps.workplace import PackageWorkspace, raise_if_unsaved
from phasegate.errors import BranchUpdateBlocked, GivenAway, StateConflict
from phasegate.storage.bucket.client import retry_with_backoff
from phasegate.workspace.checkout import Assignment, Checkout, find_checkout, list_checkouts
from phasegate.workspace.checkout_base import move_branch
from phasegate.workspace.checkout_creation import CheckoutOptions
from phasegate.workspace.checkout_lifecycle import remove_checkout
from phasegate.workspace.feature_snapshot import (
    FeatureClaim,
    FeatureSnapshot,
    import_refs,
    list_feature_refs,
    parse_assignment,
    read_feature_snapshot,
    set_refs,
    write_feature_snapshot,
)
from phasegate.workspace.job_snapshot import (
    CheckoutSnapshot,
    JobSnapshot,
    get_checkout_instance,
    restore_checkout,
    snapshot_checkout,
    snapshot_job,
)
from phasegate.workspace.ref_log import RefMove
from phasegate.workspace.refs import BRANCH_PREFIX
from phasegate.workspace.remote import PushResult, Remote, fetch_refs, push_refs
from phasegate.workspace.repository import Repository, is_ancestor, read_refs

CODE_REF_PREFIX = "refs/phasegate/fleet/"
# With a remote that is away
REMOTE_TIMEOUT_S = 600.0
T = TypeVar("T")


class FeatureCodeTransfer:
    """The code of one feature on this machine, while this machine has the feature."""

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
        # Where ref and branch are at the remote
        self._remote_refs: dict[str, str] = {}

    def fetch_published(self, record: RecordReader, base: str) -> None:
        """Bring here what the last machine published, if that was another one, and let nobody else
        publish.
        """
        repository = self._repository
        names = (self._ref, self._branch, BRANCH_PREFIX + base)
        self._remote_refs = self._retry_remote(lambda: fetch_refs(repository, self._remote, *names))
        here = read_refs(repository, *names)
        published = self._remote_refs.get(self._ref)

        if published:
            code = read_feature_snapshot(repository, published)
            if code.claim.number > self._claim.number:
                raise GivenAway(f"{self._slug} is with {code.claim.by} now")

            if code.claim.by != self._claim.by or self._ref not in here:
                self._restore(record, code)
            else:
                self._left_work = {name: one.left for name, one in code.checkouts.items()}

            self._last_published = code
            set_refs(repository, {self._ref: published}, f"carry {self._slug}")

        self._fast_forward(base)
        self._fast_forward(f"feat/{self._slug}")
        self.publish()

    def commit_job_work(self, assigned: JobAssignment) -> None:
        """Commit what a job left; it is published with the record of its end."""
        sync_checkout(assigned)
        if assigned.own_checkout:
            found = find_checkout(self._repository, assigned.own_checkout)
        else:
            found = None

        if found is not None:
            lent = collect_lent_secrets(self._project)
            litter = assigned.scope.litter
            left = snapshot_job(found, self._project.make_signature(), lent, litter)
            if left is not None:
                with self._mutex:
                    self._left_work[found.assignment.name] = left

    def publish(self) -> None:
        """Put at the remote what is here, or raise GivenAway.

        Nothing is done where nothing has changed.
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

            pushed, said = self._retry_remote(
                lambda: push_refs(self._repository, self._remote, *moves)
            )
            if pushed is not PushResult.DONE:
                raise self._refusal_error(said)

            self._remote_refs = {self._ref: commit, **({self._branch: new} if new else {})}
            set_refs(self._repository, {self._ref: commit}, f"publish {self._slug}")
            self._last_published = code

    def _refusal_error(self, output: str) -> StateConflict:
        there = self._retry_remote(lambda: fetch_refs(self._repository, self._remote, self._ref))
        if there.get(self._ref) != self._remote_refs.get(self._ref):
            return GivenAway(f"another worker has {self._slug} now")
        return StateConflict(
            f"feat/{self._slug} cannot be moved at the remote: {output}",
            "if somebody moved it there: put it back, then run again",
        )

    def _kept_checkouts(self) -> Iterator[tuple[str, CheckoutSnapshot]]:
        """Those that are there, and in which a job left something."""
        for name, left in sorted(self._left_work.items()):
            assignment = parse_assignment(self._slug, name)
            if assignment:
                found = find_checkout(self._repository, assignment)
            else:
                found = None

            if found is not None and left.made == get_checkout_instance(self._repository, name):
                yield name, snapshot_checkout(found, left)

    def push_base(self, branch: str, old: str, new: str) -> bool:
        """Push a merge into the base, over nobody's commits.

        What is pushed counts, whatever the branch here does.
        """
        move = RefMove(BRANCH_PREFIX + branch, old, new)
        pushed, said = self._retry_remote(lambda: push_refs(self._repository, self._remote, move))
        if pushed is PushResult.REFUSED:
            raise BranchUpdateBlocked(
                f"{branch} cannot be moved at the remote: {said}", "let the workers push it"
            )

        if pushed is PushResult.DONE:
            with suppress(BranchUpdateBlocked):
                move_branch(self._repository, branch, old, new)
            return True

        self._remote_refs |= self._retry_remote(
            lambda: fetch_refs(self._repository, self._remote, move.name)
        )
        self._fast_forward(branch)
        if self._project.refs.fetch(branch).get(branch) != self._remote_refs.get(move.name):
            raise StateConflict(
                f"{branch} here has commits that the remote has not", "push them, or drop them"
            )

        return False

    # --- what another machine had

    def _restore(self, record: RecordReader, code: FeatureSnapshot) -> None:
        """Make refs and checkouts those of the other machine. What only this one has is saved."""
        project = self._project

        for found in self._local_checkouts():
            raise_if_unsaved(
                remove_checkout(
                    found,
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
            if assignment and (found := find_checkout(self._repository, assignment)):
                yield found

    def _checkout_options(self, record: RecordReader, assignment: Assignment) -> CheckoutOptions:
        if not assignment.work_id.startswith("WP"):
            return FeatureSteps(self._project, self._slug).checkout_options()
        package = find_package(record, assignment.work_id, self._slug)
        return PackageWorkspace(
            self._project, package, 1, find_package_phase(record, self._slug)
        ).checkout_options()

    def _fast_forward(self, branch: str) -> None:
        """Take in what people pushed to a branch.

        What is only here stays; both at once is for a person to solve.
        """
        there = self._remote_refs.get(BRANCH_PREFIX + branch)
        here = self._project.refs.fetch(branch).get(branch)
        if there is None or (here is not None and is_ancestor(self._repository, there, here)):
            return

        if here is not None and not is_ancestor(self._repository, here, there):
            raise StateConflict(
                f"{branch} at the remote and {branch} here have gone different ways",
                "put one of them back, run again",
            )

        move_branch(self._repository, branch, here, there)

    def _retry_remote(self, call: Callable[[], T]) -> T:
        """A remote that is away is waited for, as the bucket is.

        A step that is not published is not recorded.
        """
        until_s = monotonic() + REMOTE_TIMEOUT_S
        return retry_with_backoff(call, lambda: monotonic() > until_s, self._project.stop.wait)


class FleetRefs(LocalRefs):
    """Fulfils `ports.Refs` for a worker: a base moves at the remote first.

    Branches of features are published.
    """

    def __init__(self, repository: Repository, code: FeatureCodeTransfer) -> None:
        super().__init__(repository)
        self._code = code

    def move(self, branch: str, old: str, new: str) -> bool:
        if branch.startswith("feat/"):
            return super().move(branch, old, new)
        return self._code.push_base(branch, old, new)
