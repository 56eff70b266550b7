"""A feature carried from where it stands to its last gate, to its merge, or until it needs a
person.

Decide, act, record, again. The rules decide (`core/machine/feature_machine`); what happened is in
the journal before the next step begins. Whoever kills this at any moment is followed by one that
goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from phasegate.config.settings import MergeMode
from phasegate.core.machine.feature_events import (
    Advanced,
    AnyFeatureEvent,
    CompletionRequested,
    Retried,
)
from phasegate.core.machine.feature_machine import decide_feature_actions
from phasegate.core.machine.feature_state import FORGE_STEPS, Feature, Step
from phasegate.core.workflow.origin import ENGINE_ORIGIN, UNKNOWN_ORIGIN, OrderOrigin
from phasegate.engine.checks.phase_commands import refuse_untestable_base
from phasegate.engine.drive.forge_polling import ForgePoller
from phasegate.engine.drive.local_context import open_local_context
from phasegate.engine.drive.loop import UnitLoop
from phasegate.engine.drive.package import MERGE_LOCK_TIMEOUT_S, Stopped, list_sandbox_warnings
from phasegate.engine.drive.packages import PackagePool
from phasegate.engine.jobs.admission import DriverContext
from phasegate.engine.jobs.run_job import clean_up_job, make_lost_row, read_last_seen
from phasegate.engine.journal.entries import FEATURE_STEP, PACKAGE_STEP
from phasegate.engine.journal.feature import make_default_feature, open_feature_journal
from phasegate.engine.journal.unit_journal import UnitJournal
from phasegate.engine.notify.notifier import notify_failure, notify_feature_end
from phasegate.engine.project.ports import RecordReader, RunRecord
from phasegate.engine.project.project import Project
from phasegate.engine.steps.feature_merge import list_work_names, remove_checkouts
from phasegate.engine.steps.feature_steps import FeatureSteps
from phasegate.errors import Interrupted, PhasegateError, StateConflict
from phasegate.storage.lock import feature_lock, named_lock
from phasegate.storage.store import Store
from phasegate.workspace.checkout_lifecycle import ensure_feature_branch
from phasegate.workspace.repository import exclude_folder_from_git


class RunOptions(NamedTuple):
    """How far a run is to go, and with whom."""

    # Stop at each gate
    stop_at_gates: bool = False
    # Go on to the merge
    merge: bool = False
    agent: str | None = None
    # Whose run it is
    by: OrderOrigin = UNKNOWN_ORIGIN
    # At the forge, and start no agent
    poll_once: bool = False


def has_new_steps(record: RecordReader, slug: str, seen_seq: int) -> bool:
    """Whether anything has happened to a feature or its packages since an event.

    Notes and times are no step of it.
    """
    return any(one.kind in (FEATURE_STEP, PACKAGE_STEP) for one in record.events(slug, seen_seq))


def refuse_if_stale(record: RecordReader, slug: str, seen_seq: int) -> None:
    """Refuse what a person decided on something that is not so any more, or that never was shown."""
    if seen_seq > record.last_seq(slug) or has_new_steps(record, slug, seen_seq):
        raise StateConflict(
            f"{slug} has moved on since it was shown", "look at it again, and decide again"
        )


@contextmanager
def lock_feature_journal(
    project: Project, record: RunRecord, slug: str, command: str, seen_seq: int | None = None
) -> Iterator[UnitJournal[Feature, AnyFeatureEvent]]:
    """Hold a feature alone, with its journal.

    `seen`: its last event as a person saw it; if it moved since, refuse.
    """
    with feature_lock(project.location.locks_folder, slug, command, project.now()):
        if seen_seq is not None:
            refuse_if_stale(record, slug, seen_seq)

        journal = open_feature_journal(project, record, slug)
        if not journal.is_started:
            raise StateConflict(
                f"feature {slug} has no workflow", 'begin one: phasegate run feature "..."'
            )

        # Whatever became of the view, the store is right
        make_default_feature(project, record, journal)
        try:
            yield journal
        finally:
            record.anchor()


def drive_feature(
    project: Project, store: Store, slug: str, options: RunOptions | None = None
) -> Feature | Stopped:
    """Carry a feature on; where it stands when nothing more can be done without a person.

    `project.stop` ends it.
    """
    try:
        with open_local_context(project, store, options.agent if options else None) as desk:
            ended = drive_feature_with(desk, slug, options)
    except PhasegateError as error:
        notify_failure(project, store, slug, error.message)
        raise

    if not isinstance(ended, Stopped):
        notify_feature_end(project, store, ended)
    return ended


def drive_feature_with(
    context: DriverContext, slug: str, options: RunOptions | None = None
) -> Feature | Stopped:
    """Carry a feature on, with whichever record and trails."""
    with lock_feature_journal(context.project, context.record, slug, f"run {slug}") as journal:
        journal.start_timing()
        try:
            with journal.finish_on_exit():
                return _FeatureDriver(context, journal, options or RunOptions()).run()
        except Interrupted:
            return Stopped(slug)


def run_single_step(
    context: DriverContext, slug: str, step: Step, options: RunOptions, *, is_first: bool
) -> tuple[Feature, bool]:
    """Carry out one step of a feature, for a driver elsewhere that has decided on it.

    Whether to go on after it.

    Another step may be due by now: then nothing is done, and the driver decides anew.
    """
    project = context.project
    with feature_lock(project.location.locks_folder, slug, f"step {step}", project.now()):
        journal = open_feature_journal(project, context.record, slug)
        if not journal.is_started:
            raise StateConflict(
                f"feature {slug} has no workflow", 'begin one: phasegate run feature "..." --fleet'
            )

        journal.start_timing()
        with journal.finish_on_error():
            drive = _FeatureDriver(context, journal, options)
            drive.prepare(is_first=is_first)
            goes_on = decide_feature_actions(journal.state)[0].step is not step or drive.run_step(
                step
            )

        return journal.state, goes_on


def clean_up_feature(context: DriverContext, slug: str) -> None:
    """Close the jobs that a feature which was ended left open, and put its checkouts away."""
    project = context.project
    with feature_lock(project.location.locks_folder, slug, "clear up", project.now()):
        journal = open_feature_journal(project, context.record, slug)
        left = [row for row in context.record.jobs(slug) if not row.ended]
        for row in left:
            clean_up_job(project, row.id)

        if left:
            journal.record(rows=[make_lost_row(row, read_last_seen(project, row)) for row in left])

        remove_checkouts(project, slug, list_work_names(journal.state))


class _FeatureDriver:
    def __init__(
        self,
        context: DriverContext,
        journal: UnitJournal[Feature, AnyFeatureEvent],
        options: RunOptions,
    ) -> None:
        self._context = context
        self._journal = journal
        self._options = options
        self._project = context.project
        self._loop = UnitLoop(context, journal, FeatureSteps(context.project, journal.unit.slug))
        self._forge_poller = ForgePoller(context.project, journal, self._loop, options.poll_once)

    @property
    def _feature(self) -> Feature:
        return self._journal.state

    @property
    def _slug(self) -> str:
        return self._journal.unit.slug

    def prepare(self, *, is_first: bool = True) -> None:
        """Go on from what the journal says: jobs that nobody saw the end of are closed.

        `is_first`: of this run.
        """
        if not self._feature.workflow.is_active:
            return

        ensure_feature_branch(self._project.repository, self._slug, self._feature.base)
        for folder in (self._project.worktrees_folder, self._project.root / ".isdlc"):
            exclude_folder_from_git(self._project.repository, folder)

        self._loop.close_lost_jobs("the run died before its end")
        if is_first and (notices := list_sandbox_warnings(self._project)):
            self._journal.notify(*notices)
        if is_first and not self._options.poll_once and not self._context.record.jobs(self._slug):
            refuse_untestable_base(self._project, self._feature)

    def run(self) -> Feature:
        self.prepare()
        while (step := decide_feature_actions(self._feature)[0].step) is not Step.STOP:
            if self._options.poll_once and step not in FORGE_STEPS:
                if step is Step.PACKAGES:
                    PackagePool(self._context, self._journal, self._options.by).poll_once()
                break

            self._loop.raise_if_stopped()
            if not self.run_step(step):
                break

        return self._feature

    def run_step(self, step: Step) -> bool:
        """Carry one step out; whether to go on after it."""
        match step:
            case Step.ADVANCE:
                self._journal.record(Advanced(ENGINE_ORIGIN))
            case Step.RETRY:
                self._journal.record(Retried(ENGINE_ORIGIN))
            case Step.COMPLETE:
                at_forge = merges_at_forge(self._project)
                if self._feature.workflow.merges and not (self._options.merge or at_forge):
                    return False

                self._journal.record(CompletionRequested(self._options.by, at_forge))
            case Step.PACKAGES:
                PackagePool(self._context, self._journal, self._options.by).run()
            case Step.MERGE:
                name = f"merge-into-{self._feature.base.replace('/', '-')}"
                locks = self._project.location.locks_folder
                with named_lock(locks, name, MERGE_LOCK_TIMEOUT_S, self._project.stop):
                    self._loop.run_step()
            case Step.PUBLISH | Step.AWAIT:
                return self._forge_poller.poll() or self._forge_poller.wait_for_next_poll()
            case _:
                self._loop.run_step()

        if step is Step.GATE:
            self._context.record.anchor()
        return not (self._options.stop_at_gates and step is Step.GATE)


def merges_at_forge(project: Project) -> bool:
    """Whether features get into their base by pull requests."""
    return project.config.merge.mode is MergeMode.PULL_REQUEST
