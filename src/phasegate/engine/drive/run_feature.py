"""Run a feature from its current state to its last gate, to its merge, or until it needs the user.

The loop decides, acts and records. `core/machine/feature_machine` decides; every result is in the
journal before the next step starts. A run that is killed at any time is continued by the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from phasegate.config.settings import MergeMode
from phasegate.core.display.status import ENDED_STAGE_NAMES
from phasegate.core.machine.feature_events import (
    Advanced,
    CompletionRequested,
    Resolved,
    Retried,
)
from phasegate.core.machine.feature_machine import decide_feature_actions
from phasegate.core.machine.feature_state import FORGE_STEPS, Feature, Step
from phasegate.core.plan.feature_overlap import describe_scope_overlaps
from phasegate.core.workflow.origin import ENGINE_ORIGIN, UNKNOWN_ORIGIN, OrderOrigin
from phasegate.engine.checks.feature_checks import refuse_untestable_base
from phasegate.engine.drive.forge_poller import ForgePoller
from phasegate.engine.drive.local_context import open_local_context
from phasegate.engine.drive.parallel_packages import PackagePool
from phasegate.engine.drive.receipt import write_receipt
from phasegate.engine.drive.recheck import describe_cleared_blocker
from phasegate.engine.drive.run_package import MERGE_LOCK_TIMEOUT_S, Stopped, list_sandbox_warnings
from phasegate.engine.drive.step_runner import StepRunner
from phasegate.engine.jobs.admission import DriverContext
from phasegate.engine.jobs.lost_jobs import clean_up_job, make_lost_row, read_last_seen
from phasegate.engine.journal.entries import FEATURE_STEP, PACKAGE_STEP
from phasegate.engine.journal.feature import (
    FeatureJournal,
    make_default_feature,
    open_feature_journal,
)
from phasegate.engine.journal.package import read_planned_packages
from phasegate.engine.notify.notifier import (
    notify_failure,
    notify_feature_end,
    notify_pull_request,
)
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.ports import RecordReader, RunRecord
from phasegate.engine.project.project import Project
from phasegate.engine.steps.feature_merge import list_work_names, remove_checkouts
from phasegate.engine.steps.feature_steps import FeatureSteps
from phasegate.engine.steps.spec_update import describe_spec_conflicts
from phasegate.errors import Interrupted, PhasegateError, StateConflict
from phasegate.storage.journal_store import Store
from phasegate.storage.lock import feature_lock, named_lock
from phasegate.storage.record import WritableStore
from phasegate.workspace.checkout_lifecycle import ensure_feature_branch
from phasegate.workspace.repository.repository import exclude_folder_from_git


class RunOptions(NamedTuple):
    """Options of a run: where it stops, and which agent it uses."""

    stop_at_gates: bool = False
    # Continue to the merge after the last gate
    merge: bool = False
    agent: str | None = None
    # Who started the run
    by: OrderOrigin = UNKNOWN_ORIGIN
    # Poll the forge once and start no agent
    poll_once: bool = False


def has_new_steps(record: RecordReader, slug: str, seen_seq: int) -> bool:
    """Return True if a feature or one of its packages has advanced since an event.

    Notices and timings do not count.
    """
    return any(
        recorded.kind in (FEATURE_STEP, PACKAGE_STEP) for recorded in record.events(slug, seen_seq)
    )


def refuse_if_stale(record: RecordReader, slug: str, seen_seq: int) -> None:
    """Refuse an order that is based on an outdated or unknown state of the feature."""
    if seen_seq > record.last_seq(slug) or has_new_steps(record, slug, seen_seq):
        raise StateConflict(
            f"{slug} has changed since it was shown", "check its status, then decide again"
        )


@contextmanager
def lock_feature_journal(
    project: Project, record: RunRecord, slug: str, command: str, seen_seq: int | None = None
) -> Iterator[FeatureJournal]:
    """Lock a feature and yield its journal.

    `seen_seq` is the last event that the user has seen: refuse if the feature has changed since.
    """
    with feature_lock(project.location.locks_folder, slug, command, project.now()):
        if seen_seq is not None:
            refuse_if_stale(record, slug, seen_seq)

        journal = open_feature_journal(project, record, slug)
        if not journal.is_started:
            raise StateConflict(
                f"feature {slug} has no workflow", 'start one: phasegate run feature "..."'
            )

        # Rewrites state.json, which may be outdated after a crash
        make_default_feature(project, record, journal)
        try:
            yield journal
        finally:
            record.anchor()


def drive_feature(
    project: Project, store: Store, slug: str, options: RunOptions | None = None
) -> Feature | Stopped:
    """Run a feature until it ends or needs the user; return its state.

    Setting `project.stop` stops the run.
    """
    try:
        with open_local_context(project, store, options.agent if options else None) as context:
            ended = drive_feature_with(context, slug, options)
    except PhasegateError as error:
        notify_failure(project, store, slug, error.message)
        raise

    if not isinstance(ended, Stopped):
        notify_feature_end(project, store, ended)
    return ended


def drive_feature_with(
    context: DriverContext, slug: str, options: RunOptions | None = None
) -> Feature | Stopped:
    """Run a feature with the ports of a driver context."""
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
    """Run one step of a feature that a driver on another machine has chosen.

    Return the state, and whether to continue. If a different step is due by now, do nothing: the
    driver then decides again.
    """
    project = context.project
    with feature_lock(project.location.locks_folder, slug, f"step {step}", project.now()):
        journal = open_feature_journal(project, context.record, slug)
        if not journal.is_started:
            raise StateConflict(
                f"feature {slug} has no workflow", 'start one: phasegate run feature "..." --fleet'
            )

        journal.start_timing()
        with journal.finish_on_error():
            driver = _FeatureDriver(context, journal, options)
            driver.prepare(is_first=is_first)
            is_due = decide_feature_actions(journal.state)[0].step is step
            should_continue = driver.run_step(step) if is_due else True

        return journal.state, should_continue


def clean_up_feature(context: DriverContext, slug: str) -> None:
    """Close the open jobs of a feature that has ended, and remove its checkouts."""
    project = context.project
    with feature_lock(project.location.locks_folder, slug, "clean up", project.now()):
        journal = open_feature_journal(project, context.record, slug)
        open_rows = [row for row in context.record.jobs(slug) if not row.ended]
        for row in open_rows:
            clean_up_job(project, row.id)

        if open_rows:
            journal.record(
                rows=[make_lost_row(row, read_last_seen(project, row)) for row in open_rows]
            )

        remove_checkouts(
            project, slug, list_work_names(journal.state, context.record.packages(slug))
        )


class _FeatureDriver:
    def __init__(
        self,
        context: DriverContext,
        journal: FeatureJournal,
        options: RunOptions,
    ) -> None:
        self._context = context
        self._journal = journal
        self._options = options
        self._project = context.project
        self._loop = StepRunner(context, journal, FeatureSteps(context.project, journal.unit.slug))
        self._forge_poller = ForgePoller(context.project, journal, self._loop, options.poll_once)

    @property
    def _feature(self) -> Feature:
        return self._journal.state

    @property
    def _slug(self) -> str:
        return self._journal.unit.slug

    def prepare(self, *, is_first: bool = True) -> None:
        """Prepare the branch and close lost jobs.

        `is_first` is set before the first step of a run.
        """
        if not self._feature.workflow.is_active:
            return

        ensure_feature_branch(self._project.repository, self._slug, self._feature.base)
        for folder in (self._project.worktrees_folder, self._project.root / ".isdlc"):
            exclude_folder_from_git(self._project.repository, folder)

        self._loop.close_lost_jobs("the run was killed")
        if is_first and (notices := list_sandbox_warnings(self._project)):
            self._journal.notify(*notices)
        if is_first and not self._options.poll_once and not self._context.record.jobs(self._slug):
            refuse_untestable_base(self._project, self._feature)

    def run(self) -> Feature:
        """Run steps until the feature stops; return its state."""
        self.prepare()
        if how := describe_cleared_blocker(self._project, self._context.record, self._feature):
            self._journal.record(Resolved(f"checked again: {how}", ENGINE_ORIGIN))

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
        """Run one step; return True if the run continues after it."""
        match step:
            case Step.ADVANCE:
                folded = FeatureSteps(self._project, self._slug).find_folded_phases(self._feature)
                self._journal.record(*folded, Advanced(ENGINE_ORIGIN))
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
            case Step.CLEAN_UP:
                write_receipt(self._project, self._context.record, self._journal)
                self._loop.run_step()
            case Step.PUBLISH | Step.AWAIT:
                return self._poll_forge() or self._forge_poller.wait_for_next_poll()
            case _:
                self._run_plain_step(step)

        if step is Step.GATE:
            self._context.record.anchor()
        return not (self._options.stop_at_gates and step is Step.GATE)

    def _poll_forge(self) -> bool:
        """Poll the forge once; notify the user of what needs them."""
        before = self._feature
        has_progress = self._forge_poller.poll()
        if has_progress and isinstance(self._context.record, WritableStore):
            notify_pull_request(self._project, self._context.record, before, self._feature)
        return has_progress

    def _run_plain_step(self, step: Step) -> None:
        self._loop.run_step()
        # Before agents are paid for it
        if step is Step.PLAN and (notices := self._describe_overlaps()):
            self._journal.notify(*notices)

    def _describe_overlaps(self) -> tuple[str, ...]:
        """Describe the planned files and the requirements that others may change too."""
        record = self._context.record
        scopes: dict[str, list[str]] = {}
        for row in record.workflows():
            if row.stage in ENDED_STAGE_NAMES:
                continue
            # A damaged record of another feature must not stop this one
            with suppress(StateConflict):
                packages = read_planned_packages(record, row.feature).values()
                scopes[row.feature] = [
                    path for planned in packages for path in planned.package.file_scope
                ]

        own = scopes.pop(self._slug, [])
        branch = FeatureBranch(self._project, self._slug)
        return (
            *describe_scope_overlaps(own, scopes),
            *describe_spec_conflicts(branch, self._feature.base, scopes),
        )


def merges_at_forge(project: Project) -> bool:
    """Return True if features are merged by pull requests."""
    return project.config.merge.mode is MergeMode.PULL_REQUEST
