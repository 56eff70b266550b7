"""The steps of one work package, each from values to events: checkouts, harvest, manifest, merge, and its agents."""

from __future__ import annotations

from itertools import islice

import msgspec

from phasegate.config.settings import FinalReview, MergeMode, MergePer
from phasegate.core.machine.package_events import (
    Cleaned,
    End,
    PackageHappened,
    PackageJobEnded,
    PackageJobStarted,
    PackagePrepared,
    Reviewed,
    failure_key,
)
from phasegate.core.machine.package_machine import BY_AGENTS, PackageStep, Run, decide
from phasegate.engine.checks.manifest import Checker
from phasegate.engine.jobs.assignment import Assigned, Ended
from phasegate.engine.jobs.step import Did, Errand, Known
from phasegate.engine.project.agents import Member
from phasegate.engine.project.project import Project
from phasegate.engine.steps.briefing import brief_package
from phasegate.engine.steps.contest import assign_comparison, compared, judge_attempt, take_best
from phasegate.engine.steps.harvest import take_over
from phasegate.engine.steps.package_merge import merge
from phasegate.engine.steps.validate import claimed, said_last, validate
from phasegate.engine.steps.workplace import (
    Workplace,
    branch_and_head,
    copy_for_review,
    furnisher,
    review_room,
    show_state,
)
from phasegate.workspace.checkout import find_checkout
from phasegate.workspace.checkout_lifecycle import Unsaved, open_feature, remove_checkout, start_over
from phasegate.workspace.removal import remove_tree


def packages_at_forge(project: Project) -> bool:
    """Whether each package is a pull request of its own."""
    merge = project.config.merge
    return merge.mode is MergeMode.PULL_REQUEST and merge.per is MergePer.PACKAGE


MOST_TASKS = 1_000  # whose statuses are recorded of one answer


class PackageSteps:
    """Fulfils `steps.Steps` for a package."""

    def __init__(self, place: Workplace, said: str = "", entrants: tuple[str, ...] = ()) -> None:
        """`said`: by a person, to all agents of the feature. `entrants`: the agents of a contest, one an attempt."""
        self._place, self._said, self._entrants = place, said, entrants
        self._seen_rounds: set[int] = set()  # whose agents ended while we looked on

    def carry_out(self, run: Run, known: Known) -> Did[PackageHappened]:
        match run.step:
            case PackageStep.PREPARE:
                return self._prepare()
            case PackageStep.HARVEST:
                return take_over(self._place, run, known, is_resumed=run.round not in self._seen_rounds)
            case PackageStep.VALIDATE:
                said = said_last(known.claims, run.round)
                return validate(self._place, run.round, run.commit, said, known.workers)[1]
            case PackageStep.JUDGE:
                return judge_attempt(self._place, run, known)
            case PackageStep.TAKE:
                return take_best(self._place, run)
            case PackageStep.MERGE:
                return merge(self._place, known.workers)
            case PackageStep.PUBLISH | PackageStep.AWAIT:
                # Nothing of a forge is loaded where there is none.
                from phasegate.engine.steps.package_pull import carry_out_at_forge

                return carry_out_at_forge(self._place, run, known)
            case PackageStep.CLEAN:
                return self._clean()
            case step:
                raise AssertionError(f"{step} is not ours to carry out")

    def _prepare(self) -> Did[PackageHappened]:
        project, slug = self._place.project, self._place.package.feature_slug
        branch, commit = branch_and_head(project, f"feat/{slug}")
        if branch != f"feat/{slug}":
            commit = open_feature(project.repository, slug, branch)
        Checker(project, self._place.package, commit).expect_base()  # what no agent can fix is told before one is paid
        # A package that has work already goes on with it.
        goes_on = self._entrants and project.refs.fetch(self._place.package.branch)
        entrants = () if goes_on else self._entrants
        places = [self._place.of_attempt(number) for number in range(len(entrants))] or [self._place]
        folders = ", ".join(checkout.folder.name for place in places for checkout in place.checkouts())
        is_delta_final = project.config.run.final_review is FinalReview.DELTA
        return Did(
            (PackagePrepared(commit, entrants, is_delta_final, packages_at_forge(project)),),
            notices=(f"worktree ready at {project.config.paths.worktrees}/{folders}",),
        )

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
        if run.step not in BY_AGENTS:
            return ()
        judges, maker = run.step is not PackageStep.IMPLEMENT, (run.maker,) if run.maker else ()
        return tuple(
            Errand(
                str(action.step),
                self._place.phase,
                action.round,
                action.owed.agent_index,
                action.owed.retries,
                action.owed.asked_again,
                action.owed.reason,
                "" if judges else run.entrants[action.owed.agent_index] if run.entrants else run.maker,
                bool(run.entrants) and not judges,
                (run.entrants or maker) if judges else (),
                tuple(one.number for one in run.candidates.values()) if run.step is PackageStep.COMPARE else (),
            )
            for action in decide(run)
        )

    def assign(self, run: Run, errand: Errand, member: Member, job: str, known: Known) -> Assigned:
        place, said = self._place_of(errand), "\n".join(filter(None, (self._said, *known.answers)))
        if errand.role == PackageStep.COMPARE:
            assigned = assign_comparison(place, run, errand, member, job)
            start = place.of_attempt(errand.candidates[0]).start()  # the package has no checkout of its own yet
            show_state(assigned.checkout, known.state, place.blobs_of(start))
            return assigned
        tracked = place.blobs_of(place.start())
        if errand.role == PackageStep.IMPLEMENT:
            checkout = place.checkout(errand.agent_index)
            folder, programs = checkout.folder, checkout.record.programs
            show_state(folder, known.state, tracked, checkout.record.set_aside)
        else:
            folder = copy_for_review(place.project, place.name, run.commit)
            programs = furnisher(place.project, place.package)(folder, folder, place.start()).programs
            show_state(folder, known.state, tracked)
        return brief_package(place, run, errand, member, job, folder, known, said, programs)

    def started(self, errand: Errand, assigned: Assigned) -> PackageJobStarted:
        return PackageJobStarted(
            assigned.job,
            errand.role,
            errand.round,
            errand.agent_index,
            self.agent_name(errand, assigned),
            assigned.saved_tokens,
        )

    def agent_name(self, errand: Errand, assigned: Assigned) -> str:
        if errand.is_attempt:
            return f"{assigned.agent} (attempt {errand.agent_index + 1})"
        several = self._place.count > 1 and errand.role == PackageStep.IMPLEMENT
        return f"{assigned.agent} (agent {errand.agent_index})" if several else assigned.agent

    def take_in(self, errand: Errand, assigned: Assigned, ended: Ended) -> Did[PackageHappened]:
        end = PackageJobEnded(assigned.job, ended.end, ended.reason, ended.remediation, ended.cleanup)
        if errand.role == PackageStep.COMPARE:
            return Did((*compared(self._place, errand, end, ended.answer),), ended.rows)
        if errand.role == PackageStep.REVIEW:
            verdict = ended.answer.verdict
            is_delta, text = assigned.saved_tokens > 0, ended.answer.text
            reviewed = Reviewed(verdict, text, is_delta, failure_key(text)) if verdict else None
            judged = (reviewed,) if ended.end is End.DONE and reviewed else ()
            remove_tree(review_room(self._place.project, self._place.name))
            return Did((end, *judged), ended.rows)
        self._seen_rounds.add(errand.round)
        end = msgspec.structs.replace(end, tasks=tuple(islice(ended.answer.task_statuses.items(), MOST_TASKS)))
        kept = self._tidy_after(self._place_of(errand), errand.agent_index, ended)
        said = claimed(self._place, assigned, errand.agent_index, ended)
        return Did((end,), (*ended.rows, *said), kept)

    def _place_of(self, errand: Errand) -> Workplace:
        return self._place.of_attempt(errand.agent_index) if errand.is_attempt else self._place

    def _tidy_after(self, place: Workplace, index: int, ended: Ended) -> tuple[str, ...]:
        if ended.cleanup:
            renewed = start_over(place.checkout(index), place.terms())
            if isinstance(renewed, Unsaved):  # the package is blocked: a person sees to the rest
                return (f"{renewed.folder} is not reset: {renewed.reason}",)
        elif ended.end is not End.DONE:  # else it is looked at first
            place.disarm(index)
        return ()

    def open_jobs(self, run: Run) -> tuple[str, ...]:
        return tuple(job.job for job in run.open_jobs)

    def save(self, run: Run) -> None:
        for job in run.open_jobs:
            if job.role == PackageStep.IMPLEMENT:
                place = self._place.of_attempt(job.agent_index) if run.entrants else self._place
                place.renew(job.agent_index)

    def lost(self, job: str, why: str, last_seen: str) -> PackageJobEnded:
        return PackageJobEnded(job, End.LOST, why, last_seen=last_seen)
