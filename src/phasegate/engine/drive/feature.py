"""A feature carried from where it stands to its last gate, to its merge, or until it needs a person.

Decide, act, record, again. The rules decide (`core/machine/feature_machine`); what happened is in the journal before the next step
begins. Whoever kills this at any moment is followed by one that goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from phasegate.config.settings import MergeMode
from phasegate.core.machine.feature_events import Advanced, CompletionAsked, Happened, Retried
from phasegate.core.machine.feature_machine import decide
from phasegate.core.machine.feature_state import AT_FORGE, Feature, Step
from phasegate.core.workflow.origin import ENGINE, NOT_KEPT, By
from phasegate.engine.checks.phase_commands import expect_base
from phasegate.engine.drive.forge_polling import Patience
from phasegate.engine.drive.local_context import local_desk
from phasegate.engine.drive.loop import UnitLoop
from phasegate.engine.drive.package import LONGEST_WAIT_S, Stopped, what_does_not_hold
from phasegate.engine.drive.packages import SideBySide
from phasegate.engine.jobs.admission import DriverDesk
from phasegate.engine.jobs.run_job import clear_away, last_seen, lost_row
from phasegate.engine.journal.entries import FEATURE_STEP, PACKAGE_STEP
from phasegate.engine.journal.feature import choose, open_feature_journal
from phasegate.engine.journal.unit_journal import WorkJournal
from phasegate.engine.notify.notifier import tell_about_failure, tell_about_feature
from phasegate.engine.project.ports import RecordReader, RunRecord
from phasegate.engine.project.project import Project
from phasegate.engine.steps.feature_merge import put_away, works_of
from phasegate.engine.steps.feature_steps import PhaseSteps
from phasegate.errors import Interrupted, PhasegateError, StateConflict
from phasegate.storage.lock import feature_lock, repository_lock
from phasegate.storage.store import Store
from phasegate.workspace.checkout_lifecycle import open_feature
from phasegate.workspace.repository import keep_out_of_git


class Wishes(NamedTuple):
    """How far a run is to go, and with whom."""

    step: bool = False  # stop at each gate
    merge: bool = False  # go on to the merge
    agent: str | None = None
    by: By = NOT_KEPT  # whose run it is
    look_once: bool = False  # at the forge, and start no agent


def has_moved(record: RecordReader, slug: str, seen: int) -> bool:
    """Whether anything has happened to a feature or its packages since an event; notes and times are no step of it."""
    return any(one.kind in (FEATURE_STEP, PACKAGE_STEP) for one in record.events(slug, seen))


def refuse_if_moved(record: RecordReader, slug: str, seen: int) -> None:
    """Refuse what a person decided on something that is not so any more, or that never was shown."""
    if seen > record.seq(slug) or has_moved(record, slug, seen):
        raise StateConflict(f"{slug} has moved on since it was shown", "look at it again, and decide again")


@contextmanager
def at_work(
    project: Project, record: RunRecord, slug: str, command: str, seen: int | None = None
) -> Iterator[WorkJournal[Feature, Happened]]:
    """Hold a feature alone, with its journal. `seen`: its last event as a person saw it; if it moved since, refuse."""
    with feature_lock(project.location.locks, slug, command, project.now()):
        if seen is not None:
            refuse_if_moved(record, slug, seen)
        journal = open_feature_journal(project, record, slug)
        if not journal.is_begun:
            raise StateConflict(f"feature {slug} has no workflow", 'begin one: phasegate run feature "..."')
        choose(project, record, journal)  # whatever became of the view, the store is right
        try:
            yield journal
        finally:
            record.anchor()


def drive(project: Project, store: Store, slug: str, wishes: Wishes | None = None) -> Feature | Stopped:
    """Carry a feature on; where it stands when nothing more can be done without a person. `project.stop` ends it."""
    try:
        with local_desk(project, store, wishes.agent if wishes else None) as desk:
            ended = drive_with(desk, slug, wishes)
    except PhasegateError as error:
        tell_about_failure(project, store, slug, error.message)
        raise
    if not isinstance(ended, Stopped):
        tell_about_feature(project, store, ended)
    return ended


def drive_with(desk: DriverDesk, slug: str, wishes: Wishes | None = None) -> Feature | Stopped:
    """Carry a feature on, with whichever record and trails."""
    with at_work(desk.project, desk.record, slug, f"run {slug}") as journal:
        journal.time_steps()
        try:
            with journal.ended():
                return _Drive(desk, journal, wishes or Wishes()).go()
        except Interrupted:
            return Stopped(slug)


def take_one(desk: DriverDesk, slug: str, step: Step, wishes: Wishes, *, is_first: bool) -> tuple[Feature, bool]:
    """Carry out one step of a feature, for a driver elsewhere that has decided on it; whether to go on after it.

    Another step may be due by now: then nothing is done, and the driver decides anew.
    """
    project = desk.project
    with feature_lock(project.location.locks, slug, f"step {step}", project.now()):
        journal = open_feature_journal(project, desk.record, slug)
        if not journal.is_begun:
            raise StateConflict(f"feature {slug} has no workflow", 'begin one: phasegate run feature "..." --fleet')
        journal.time_steps()
        with journal.failed():
            drive = _Drive(desk, journal, wishes)
            drive.begin(is_first=is_first)
            goes_on = decide(journal.state)[0].step is not step or drive.take(step)
        return journal.state, goes_on


def clear_up(desk: DriverDesk, slug: str) -> None:
    """Close the jobs that a feature which was ended left open, and put its checkouts away."""
    project = desk.project
    with feature_lock(project.location.locks, slug, "clear up", project.now()):
        journal = open_feature_journal(project, desk.record, slug)
        left = [row for row in desk.record.jobs(slug) if not row.ended]
        for row in left:
            clear_away(project, row.id)
        if left:
            journal.record(rows=[lost_row(row, last_seen(project, row)) for row in left])
        put_away(project, slug, works_of(journal.state))


class _Drive:
    def __init__(self, desk: DriverDesk, journal: WorkJournal[Feature, Happened], wishes: Wishes) -> None:
        self._desk, self._journal, self._wishes = desk, journal, wishes
        self._project = desk.project
        self._loop = UnitLoop(desk, journal, PhaseSteps(desk.project, journal.unit.slug))
        self._patience = Patience(desk.project, journal, self._loop, wishes.look_once)

    @property
    def _feature(self) -> Feature:
        return self._journal.state

    @property
    def _slug(self) -> str:
        return self._journal.unit.slug

    def begin(self, *, is_first: bool = True) -> None:
        """Go on from what the journal says: jobs that nobody saw the end of are closed. `is_first`: of this run."""
        if not self._feature.workflow.active:
            return
        open_feature(self._project.repository, self._slug, self._feature.base)
        for folder in (self._project.worktrees, self._project.root / ".isdlc"):
            keep_out_of_git(self._project.repository, folder)
        self._loop.give_up("the run died before its end")
        if is_first and (notices := what_does_not_hold(self._project)):
            self._journal.tell(*notices)
        if is_first and not self._wishes.look_once and not self._desk.record.jobs(self._slug):
            expect_base(self._project, self._feature)

    def go(self) -> Feature:
        self.begin()
        while (step := decide(self._feature)[0].step) is not Step.STOP:
            if self._wishes.look_once and step not in AT_FORGE:
                if step is Step.PACKAGES:
                    SideBySide(self._desk, self._journal, self._wishes.by).look()
                break
            self._loop.stop_if_asked()
            if not self.take(step):
                break
        return self._feature

    def take(self, step: Step) -> bool:
        """Carry one step out; whether to go on after it."""
        match step:
            case Step.ADVANCE:
                self._journal.record(Advanced(ENGINE))
            case Step.RETRY:
                self._journal.record(Retried(ENGINE))
            case Step.COMPLETE:
                at_forge = merges_at_forge(self._project)
                if self._feature.workflow.merges and not (self._wishes.merge or at_forge):
                    return False
                self._journal.record(CompletionAsked(self._wishes.by, at_forge))
            case Step.PACKAGES:
                SideBySide(self._desk, self._journal, self._wishes.by).run()
            case Step.MERGE:
                name, locks = f"merge-into-{self._feature.base.replace('/', '-')}", self._project.location.locks
                with repository_lock(locks, name, LONGEST_WAIT_S, self._project.stop):
                    self._loop.take_step()
            case Step.PUBLISH | Step.AWAIT:
                return self._patience.look() or self._patience.wait()
            case _:
                self._loop.take_step()
        if step is Step.GATE:
            self._desk.record.anchor()
        return not (self._wishes.step and step is Step.GATE)


def merges_at_forge(project: Project) -> bool:
    """Whether features get into their base by pull requests."""
    return project.config.merge.mode is MergeMode.PULL_REQUEST
