"""A work package at its forge: published onto its feature's branch, then one look at a time until it is merged."""

from __future__ import annotations

from phasegate.core.forge.pull_request import BodyParts, PullStep, finding_of, judge_pull, pull_body
from phasegate.core.machine.package_events import (
    PackageHappened,
    PackageHeld,
    PackageMerged,
    PackagePublished,
    PackageRemarked,
    RemarkTaken,
)
from phasegate.core.machine.package_machine import PackageStep, Run
from phasegate.engine.jobs.step import Did, Known
from phasegate.engine.jobs.trail_notes import JobNotes
from phasegate.engine.steps.package_merge import prepare
from phasegate.engine.steps.pull_request import ForgeStop, Publisher, title_of
from phasegate.engine.steps.workplace import Workplace
from phasegate.errors import EnvironmentUnavailable
from phasegate.forge.port import MergeOutcome
from phasegate.workspace.merge import Prepared
from phasegate.workspace.refs import BRANCHES, advance_branch
from phasegate.workspace.remote import branch_there, fetch_branch, push_branch
from phasegate.workspace.repository import is_ancestor, read_refs
from phasegate.workspace.repository_locks import repository_lock


def carry_out_at_forge(place: Workplace, run: Run, known: Known) -> Did[PackageHappened]:
    """The step of a package that is due at its forge."""
    steps = _PackagePulls(place, run, known)
    return steps.publish() if run.step is PackageStep.PUBLISH else steps.look()


class _PackagePulls:
    def __init__(self, place: Workplace, run: Run, known: Known) -> None:
        self._place, self._run, self._known = place, run, known
        self._package, self._target = place.package, f"feat/{place.package.feature_slug}"
        self._publisher = Publisher(place.project, place.name, known.begun)

    def publish(self) -> Did[PackageHappened]:
        """Push what passed the manifest, onto a feature's branch that is the same here and there."""
        run, publisher, branch = self._run, self._publisher, self._package.branch
        stopped = self._level() or publisher.push(branch, run.commit, run.pull.commit if run.pull else "")
        if stopped:
            return Did((PackageHeld(*stopped),))
        title = title_of(f"{self._package.feature_slug} {self._package.work_package_id}", self._package.title)
        pull = publisher.opened(branch, self._target, title, self._body())
        if isinstance(pull, ForgeStop):
            return Did((PackageHeld(*pull),))
        publisher.at.forge.set_status(run.commit, True, "the manifest passed")
        publisher.answer(pull, run.remarks[len(run.remarks) - run.unanswered :], run.commit)
        return Did((PackagePublished(pull.number, pull.url, run.commit),))

    def _body(self) -> str:
        package, run = self._package, self._run
        head = run.commit[:12]
        tests = ", ".join(package.deliverables.tests)
        return pull_body(
            BodyParts(
                marker=self._publisher.marker,
                asked=package.title,
                requirements=[(name, package.work_package_id, head, tests) for name in package.requirements],
                packages=[(package.work_package_id, f"{package.title} (round {run.round})", head)],
                gates=[("manifest", "passed", self._place.phase)],
            )
        )

    def _level(self) -> ForgeStop | None:
        """The feature's branch is the same here and at the forge: whichever is behind is moved forward."""
        repository, remote = self._place.project.repository, self._publisher.at.remote
        here = read_refs(repository, BRANCHES + self._target)[BRANCHES + self._target]
        there = fetch_branch(repository, remote, self._target)
        if not there or there == here or is_ancestor(repository, there, here):
            return self._publisher.push(self._target, here, there)
        if is_ancestor(repository, here, there):
            with repository_lock(repository) as lock:
                moved = advance_branch(repository, lock, self._target, here, there, "as merged at the forge")
            return (
                ForgeStop(f"{self._target} cannot be moved: {moved}", "see who has it, then resolve") if moved else None
            )
        return ForgeStop(
            f"{self._target} here and at the forge have both moved on", "merge one into the other, then resolve"
        )

    def look(self) -> Did[PackageHappened]:
        """One look at the pull request; no event where nothing is to be done yet."""
        run = self._run
        assert run.pull is not None, "it was published before"
        look = self._publisher.at.forge.look(run.pull.number)
        known = frozenset(one.id for one in run.remarks)
        automatic = self._place.project.config.merge.automatic
        found = judge_pull(look, head=run.commit, base=self._target, known=known, automatic=automatic)
        match found.step:
            case PullStep.STOP:
                return Did((PackageHeld(found.reason, found.remedy),))
            case PullStep.MEND:
                remarks = tuple(RemarkTaken(one.id, one.thread, finding_of(one)) for one in found.remarks)
                return Did((PackageRemarked(remarks),))
            case PullStep.MERGE:
                return self._merge(run.pull)
            case PullStep.MERGED:
                return self._merged(found.reason)
            case _:
                return Did((), notices=(f"waits for {run.pull.url}: {found.reason}",))

    def _merge(self, pull: PackagePublished) -> Did[PackageHappened]:
        """Checked on top of what was merged before it; then the forge merges it at the head that was judged."""
        if stopped := self._level():
            return Did((PackageHeld(*stopped),))
        notes = JobNotes(self._place.project, self._known.workers)
        made = prepare(self._place, notes)
        if not isinstance(made, Prepared):
            return Did((made,), trail=notes.all)
        settings = self._place.project.config.merge
        answer = self._publisher.at.forge.merge(pull.number, pull.commit, settings.method, queue=settings.queue)
        if answer.outcome is MergeOutcome.MERGED:
            return self._merged(answer.detail)._replace(trail=notes.all)
        if answer.outcome is MergeOutcome.REFUSED:
            return Did((PackageHeld(f"the forge refuses the merge: {answer.detail}", "see its rules, then resolve"),))
        return Did((), notices=(f"waits for {pull.url}: {answer.outcome} {answer.detail}".rstrip(),))

    def _merged(self, commit: str) -> Did[PackageHappened]:
        """The forge says that it merged: the feature's branch there must hold that, and comes here."""
        if not self._publisher.holds(self._target, commit):
            reason = f"the forge says that it merged as {commit[:12] or 'nothing'}, and {self._target} has not that"
            return Did((PackageHeld(reason, "look at the forge, then resolve"),))
        if stopped := self._level():
            return Did((PackageHeld(*stopped),))
        return Did((PackageMerged(commit),), notices=self._tidied())

    def _tidied(self) -> tuple[str, ...]:
        """The package's branch at the forge is removed, if it is where we left it. It stops nothing."""
        branch, commit, remote = self._package.branch, self._run.commit, self._publisher.at.remote
        repository = self._place.project.repository
        try:
            if branch_there(repository, remote, branch) == commit:
                push_branch(repository, remote, branch, commit, None)
        except EnvironmentUnavailable as error:
            return (f"{branch} may be left at the forge: {error.message}",)
        return ()
