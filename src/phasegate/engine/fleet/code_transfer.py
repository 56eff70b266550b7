"""The code of a feature on its way between machines: all of its refs and checkouts, as one commit at the remote.

`refs/phasegate/fleet/{slug}` leads to that commit. It is moved by compare and swap, together with the feature's
branch, before the journal tells of a step. So whoever has the journal finds the code to it; and a worker that has lost
the feature can push nothing, because the one that took it over has moved the ref.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import TypeVar

from msgspec.structs import replace

from phasegate.engine.jobs.admission import keep_on_disk
from phasegate.engine.jobs.assignment import Assigned
from phasegate.engine.journal.package import find_package, phase_of_packages
from phasegate.engine.project.local_ports import LocalRefs
from phasegate.engine.project.ports import RecordReader
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import lent_keys
from phasegate.engine.steps.feature_steps import PhaseSteps
from phasegate.engine.steps.workplace import Workplace, expect_saved
from phasegate.errors import GivenAway, InTheWay, StateConflict
from phasegate.storage.bucket.client import patiently
from phasegate.workspace.checkout import Assignment, Checkout, find_checkout, list_checkouts
from phasegate.workspace.checkout_base import advance
from phasegate.workspace.checkout_creation import Terms
from phasegate.workspace.checkout_lifecycle import remove_checkout
from phasegate.workspace.feature_snapshot import (
    Claim,
    FeatureCode,
    assignment_of,
    read_code,
    refs_of,
    set_refs,
    take_refs,
    write_code,
)
from phasegate.workspace.job_snapshot import KeptCheckout, LeftWork, kept_checkout, leave, make_anew, making_of
from phasegate.workspace.ref_log import Move
from phasegate.workspace.refs import BRANCHES
from phasegate.workspace.remote import Pushed, Remote, fetch_refs, push_refs
from phasegate.workspace.repository import Repository, is_ancestor, read_refs

CODE = "refs/phasegate/fleet/"
PATIENCE_S = 600.0  # with a remote that is away
T = TypeVar("T")


class CarriedCode:
    """The code of one feature on this machine, while this machine has the feature."""

    def __init__(self, project: Project, remote: Remote, slug: str, claim: Claim) -> None:
        self._project, self._remote, self._slug, self._claim = project, remote, slug, claim
        self._repository, self._branch, self._ref = project.repository, f"{BRANCHES}feat/{slug}", f"{CODE}{slug}"
        self._mutex = Lock()
        self._left: dict[str, LeftWork] = {}
        self._last: FeatureCode | None = None
        self._there: dict[str, str] = {}  # where ref and branch are at the remote

    def arrive(self, record: RecordReader, base: str) -> None:
        """Bring here what the last machine published, if that was another one, and let nobody else publish."""
        repository, names = self._repository, (self._ref, self._branch, BRANCHES + base)
        self._there = self._patiently(lambda: fetch_refs(repository, self._remote, *names))
        here, published = read_refs(repository, *names), self._there.get(self._ref)
        if published:
            code = read_code(repository, published)
            if code.claim.number > self._claim.number:
                raise GivenAway(f"{self._slug} is with {code.claim.by} now")
            if code.claim.by != self._claim.by or self._ref not in here:
                self._restore(record, code)
            else:
                self._left = {name: one.left for name, one in code.checkouts.items()}
            self._last = code
            set_refs(repository, {self._ref: published}, f"carry {self._slug}")
        self._follow(base)
        self._follow(f"feat/{self._slug}")
        self.publish()

    def keep(self, assigned: Assigned) -> None:
        """Commit what a job left; it is published with the record of its end."""
        keep_on_disk(assigned)
        found = find_checkout(self._repository, assigned.own) if assigned.own else None
        if found is not None:
            lent, litter = lent_keys(self._project), assigned.scope.litter
            left = leave(found, self._project.signature(), lent, litter)
            if left is not None:
                with self._mutex:
                    self._left[found.assignment.name] = left

    def publish(self) -> None:
        """Put at the remote what is here, or raise GivenAway. Nothing is done where nothing has changed."""
        with self._mutex:
            code = FeatureCode(self._claim, refs_of(self._repository, self._slug), dict(self._checkouts()))
            if code == self._last or not (code.refs or self._last):
                return
            signature, before = self._project.signature(), self._there.get(self._ref)
            commit = write_code(self._repository, self._slug, code, before, signature)
            moves = [Move(self._ref, before, commit)]
            old, new = self._there.get(self._branch), code.refs.get(self._branch)
            if old != new:
                moves.append(Move(self._branch, old, new))
            pushed, said = self._patiently(lambda: push_refs(self._repository, self._remote, *moves))
            if pushed is not Pushed.DONE:
                raise self._refused(said)
            self._there = {self._ref: commit, **({self._branch: new} if new else {})}
            set_refs(self._repository, {self._ref: commit}, f"publish {self._slug}")
            self._last = code

    def _refused(self, said: str) -> StateConflict:
        there = self._patiently(lambda: fetch_refs(self._repository, self._remote, self._ref))
        if there.get(self._ref) != self._there.get(self._ref):
            return GivenAway(f"another worker has {self._slug} now")
        return StateConflict(
            f"feat/{self._slug} cannot be moved at the remote: {said}",
            "if somebody moved it there: put it back, then run again",
        )

    def _checkouts(self) -> Iterator[tuple[str, KeptCheckout]]:
        """Those that are there, and in which a job left something."""
        for name, left in sorted(self._left.items()):
            assignment = assignment_of(self._slug, name)
            found = find_checkout(self._repository, assignment) if assignment else None
            if found is not None and left.made == making_of(self._repository, name):
                yield name, kept_checkout(found, left)

    def move_base(self, branch: str, old: str, new: str) -> bool:
        """Push a merge into the base, over nobody's commits. What is pushed counts, whatever the branch here does."""
        move = Move(BRANCHES + branch, old, new)
        pushed, said = self._patiently(lambda: push_refs(self._repository, self._remote, move))
        if pushed is Pushed.REFUSED:
            raise InTheWay(f"{branch} cannot be moved at the remote: {said}", "let the workers push it")
        if pushed is Pushed.DONE:
            with suppress(InTheWay):
                advance(self._repository, branch, old, new)
            return True
        self._there |= self._patiently(lambda: fetch_refs(self._repository, self._remote, move.name))
        self._follow(branch)
        if self._project.refs.fetch(branch).get(branch) != self._there.get(move.name):
            raise StateConflict(f"{branch} here has commits that the remote has not", "push them, or drop them")
        return False

    # --- what another machine had

    def _restore(self, record: RecordReader, code: FeatureCode) -> None:
        """Make refs and checkouts those of the other machine. What only this one has is saved."""
        project = self._project
        for found in self._all_here():
            expect_saved(remove_checkout(found, project.signature(), lent_keys(project), keep_for_reuse=True))
        take_refs(self._repository, self._slug, code.refs)
        for name, kept in code.checkouts.items():
            if assignment := assignment_of(self._slug, name):
                make_anew(self._repository, assignment, self._terms(record, assignment), kept)
                self._left[name] = replace(kept.left, made=making_of(self._repository, name))

    def _all_here(self) -> Iterator[Checkout]:
        for name, _ in list_checkouts(self._repository):
            assignment = assignment_of(self._slug, name)
            if assignment and (found := find_checkout(self._repository, assignment)):
                yield found

    def _terms(self, record: RecordReader, assignment: Assignment) -> Terms:
        if not assignment.work.startswith("WP"):
            return PhaseSteps(self._project, self._slug).terms()
        package = find_package(record, assignment.work, self._slug)
        return Workplace(self._project, package, 1, phase_of_packages(record, self._slug)).terms()

    def _follow(self, branch: str) -> None:
        """Take in what people pushed to a branch. What is only here stays; both at once is for a person to solve."""
        there, here = self._there.get(BRANCHES + branch), self._project.refs.fetch(branch).get(branch)
        if there is None or (here is not None and is_ancestor(self._repository, there, here)):
            return
        if here is not None and not is_ancestor(self._repository, here, there):
            raise StateConflict(
                f"{branch} at the remote and {branch} here have gone different ways", "put one of them back, run again"
            )
        advance(self._repository, branch, here, there)

    def _patiently(self, call: Callable[[], T]) -> T:
        """A remote that is away is waited for, as the bucket is: a step that is not published is not recorded."""
        until_s = monotonic() + PATIENCE_S
        return patiently(call, lambda: monotonic() > until_s, self._project.stop.wait)


class FleetRefs(LocalRefs):
    """Fulfils `ports.Refs` for a worker: a base moves at the remote first. Branches of features are published."""

    def __init__(self, repository: Repository, code: CarriedCode) -> None:
        super().__init__(repository)
        self._code = code

    def move(self, branch: str, old: str, new: str) -> bool:
        if branch.startswith("feat/"):
            return super().move(branch, old, new)
        return self._code.move_base(branch, old, new)
