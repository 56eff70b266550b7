"""The steps of one work package, each from values to events: checkouts, harvest, manifest, merge, and its agents."""

from __future__ import annotations

from itertools import islice

import msgspec

from phasegate.engine.briefing import brief_package
from phasegate.engine.claims import claimed, hold_against, said_last
from phasegate.engine.furnishing import furnisher
from phasegate.engine.harvesting import take_over, write_remarks
from phasegate.engine.job_end import Assigned, Ended
from phasegate.engine.merging import merge
from phasegate.engine.phase_checks import seconds_of
from phasegate.engine.staffing import Member
from phasegate.engine.steps import Did, Errand, Known
from phasegate.engine.validation import Checker, describe, failures_of
from phasegate.engine.workplace import Workplace, copy_for_review, current_branch, review_room
from phasegate.rules.package_run import (
    Cleaned,
    End,
    PackageHappened,
    PackageJobEnded,
    PackageJobStarted,
    PackagePrepared,
    PackageStep,
    Reviewed,
    Run,
    Validated,
    decide,
)
from phasegate.rules.retry import Fault
from phasegate.workspace.checkout import find_checkout
from phasegate.workspace.checkout_lifecycle import Unsaved, open_feature, remove_checkout, start_over
from phasegate.workspace.removal import remove_tree

MOST_TASKS = 1_000  # whose statuses are recorded of one answer


class PackageSteps:
    """Fulfils `steps.Steps` for a package."""

    def __init__(self, place: Workplace, said: str = "") -> None:
        """`said`: by a person, to all agents of the feature."""
        self._place, self._said = place, said

    def carry_out(self, run: Run, known: Known) -> Did[PackageHappened]:
        match run.step:
            case PackageStep.PREPARE:
                return self._prepare()
            case PackageStep.HARVEST:
                return take_over(self._place, run.round, known.allowed)
            case PackageStep.VALIDATE:
                return self._validate(run, known)
            case PackageStep.MERGE:
                return Did((merge(self._place),))
            case PackageStep.CLEAN:
                return self._clean()
            case step:
                raise AssertionError(f"{step} is not ours to carry out")

    def _prepare(self) -> Did[PackageHappened]:
        project, slug = self._place.project, self._place.package.feature_slug
        # Only where the feature has no branch yet must the person have one.
        head = project.refs.fetch(f"feat/{slug}").get(f"feat/{slug}")
        commit = head or open_feature(project.repository, slug, current_branch(project))
        Checker(project, self._place.package, commit).expect_base()  # what no agent can fix is told before one is paid
        folders = ", ".join(checkout.folder.name for checkout in self._place.checkouts())
        return Did(
            (PackagePrepared(commit),), notices=(f"worktree ready at {project.config.paths.worktrees}/{folders}",)
        )

    def _validate(self, run: Run, known: Known) -> Did[PackageHappened]:
        place = self._place
        checker = Checker(place.project, place.package, place.start())
        evidence = checker.check(run.commit)
        found = hold_against(place, said_last(known.claims, run.round), checker, evidence)
        lacking = tuple(check.name for check in evidence.failures if check.fault is Fault.NO_PROGRAM)
        event = Validated(
            run.commit,
            failures_of(evidence),
            lacking,
            place.project.papers.put(describe(evidence).encode(), place.paper_name(run.round)),
            write_remarks(place.project, found.remarks, place.paper_name(run.round, ".claims")),
        )
        return Did((event,), found.rows, found.remarks, seconds_of(evidence))

    def _clean(self) -> Did[PackageHappened]:
        place, kept = self._place, []
        for index in range(place.count):
            found = find_checkout(place.project.repository, place.assignment(index))
            if found is not None:
                removed = remove_checkout(found, place.signature(), place.lent, keep_for_reuse=True)
                if isinstance(removed, Unsaved):
                    kept.append(f"{removed.folder} is kept: {removed.reason}")
        return Did((Cleaned(),), notices=tuple(kept))

    # --- agents

    def errands(self, run: Run) -> tuple[Errand, ...]:
        if run.step not in (PackageStep.IMPLEMENT, PackageStep.REVIEW):
            return ()
        return tuple(
            Errand(
                str(action.step),
                self._place.phase,
                action.round,
                action.owed.agent_index,
                action.owed.retries,
                action.owed.asked_again,
                action.owed.reason,
            )
            for action in decide(run)
        )

    def assign(self, run: Run, errand: Errand, member: Member, job: str, known: Known) -> Assigned:
        place = self._place
        if errand.role == PackageStep.IMPLEMENT:
            checkout = place.checkout(errand.agent_index)
            folder, programs = checkout.folder, checkout.record.programs
        else:
            folder = copy_for_review(place.project, self._name, run.commit)
            programs = furnisher(place.project, place.package)(folder, folder, run.commit).programs
        return brief_package(place, run, errand, member, job, folder, known.allowed, self._said, programs)

    def started(self, errand: Errand, assigned: Assigned) -> PackageJobStarted:
        return PackageJobStarted(
            assigned.job, errand.role, errand.round, errand.agent_index, self.agent_name(errand, assigned)
        )

    def agent_name(self, errand: Errand, assigned: Assigned) -> str:
        several = self._place.count > 1 and errand.role == PackageStep.IMPLEMENT
        return f"{assigned.agent} (agent {errand.agent_index})" if several else assigned.agent

    def take_in(self, errand: Errand, assigned: Assigned, ended: Ended) -> Did[PackageHappened]:
        end = PackageJobEnded(assigned.job, ended.end, ended.reason, ended.remediation, ended.cleanup)
        if errand.role == PackageStep.REVIEW:
            verdict = ended.answer.verdict
            judged = (Reviewed(verdict, ended.answer.text),) if ended.end is End.DONE and verdict else ()
            remove_tree(review_room(self._place.project, self._name))
            return Did((end, *judged), ended.rows)
        end = msgspec.structs.replace(end, tasks=tuple(islice(ended.answer.task_statuses.items(), MOST_TASKS)))
        kept = self._tidy_after(errand.agent_index, ended)
        said = claimed(self._place, assigned, errand.agent_index, ended) if ended.end is End.DONE else ()
        return Did((end,), (*ended.rows, *said), kept)

    def _tidy_after(self, index: int, ended: Ended) -> tuple[str, ...]:
        if ended.cleanup:
            renewed = start_over(self._place.checkout(index), self._place.terms())
            if isinstance(renewed, Unsaved):  # the package is blocked: a person sees to the rest
                return (f"{renewed.folder} is not reset: {renewed.reason}",)
        elif ended.end is not End.DONE:  # else it is looked at first
            self._place.disarm(index)
        return ()

    def open_jobs(self, run: Run) -> tuple[str, ...]:
        return tuple(job.job for job in run.open_jobs)

    def save(self, run: Run) -> None:
        for job in run.open_jobs:
            if job.role == PackageStep.IMPLEMENT:
                self._place.renew(job.agent_index)

    def lost(self, job: str, why: str, last_seen: str) -> PackageJobEnded:
        return PackageJobEnded(job, End.LOST, why, last_seen=last_seen)

    @property
    def _name(self) -> str:
        return f"{self._place.package.feature_slug}-{self._place.package.work_package_id}"
