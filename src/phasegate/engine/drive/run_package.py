"""Run a work package through implementation, manifest, review and merge.

The loop decides, acts and records. Every action is idempotent, or recorded before and after, so
that another dispatcher can continue after a crash. `core/machine/package_machine` decides which
step is next; this module makes no decisions about the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event as Cancelled
from typing import NamedTuple

from phasegate.core.display.event_lines import render_package_event
from phasegate.core.display.status import NO_SANDBOX_PREFIX
from phasegate.core.machine.package_events import (
    MAX_LOSSES,
    AnyPackageEvent,
    PackageLimits,
    PackageResolved,
)
from phasegate.core.machine.package_state import PACKAGE_FORGE_STEPS, PackageRun, PackageStep
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.origin import UNKNOWN_ORIGIN, OrderOrigin
from phasegate.engine.drive.forge_poller import ForgePoller
from phasegate.engine.drive.local_context import open_local_context
from phasegate.engine.drive.step_runner import StepRunner
from phasegate.engine.jobs.admission import DriverContext
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.journal.package import (
    PackageReport,
    PackageUnit,
    PlannedPackage,
    find_package_phase,
    name_package,
    refuse_if_not_ready,
    was_path_allowed,
)
from phasegate.engine.journal.unit_journal import Transition, UnitJournal
from phasegate.engine.notify.notifier import notify_package_end
from phasegate.engine.project.agents import NamedAgent, choose_agent
from phasegate.engine.project.project import Project
from phasegate.engine.project.resource_limits import get_sandbox_level
from phasegate.engine.steps.package_document import complete_package_document
from phasegate.engine.steps.package_steps import PackageSteps
from phasegate.engine.steps.workplace import PackageWorkspace
from phasegate.errors import Interrupted
from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import SandboxLevel
from phasegate.storage.journal_store import Store
from phasegate.storage.lock import feature_lock, named_lock

# Other packages check their merged trees while they hold the lock. A lock never outlives its
# process.
MERGE_LOCK_TIMEOUT_S = 6 * 3600.0
ReportLine = Callable[[str], None]


class Progress(NamedTuple):
    """The progress of a package, for a live display."""

    package: str
    state: PackageState
    round: int
    rounds: int
    step: PackageStep
    # Running now
    agents: tuple[str, ...] = ()


ReportProgress = Callable[[Progress], None]


class Stopped(NamedTuple):
    """The run ended because `project.stop` was set.

    The work of its agents is saved, and the run can be resumed.
    """

    # A feature or a package
    work: str


def dispatch_package(
    project: Project,
    store: Store,
    planned: PlannedPackage,
    *,
    agent: str | None,
    report_line: ReportLine,
    report_progress: ReportProgress = lambda _: None,
    stop: Cancelled | None = None,
    by: OrderOrigin = UNKNOWN_ORIGIN,
) -> PackageReport | Stopped:
    """Run a package from its current state to DONE or BLOCKED."""
    with open_local_context(project, store, agent, stop) as context:
        try:
            report = drive_package(
                context=context,
                planned=planned,
                by=by,
                report_line=report_line,
                report_progress=report_progress,
                notices=list_sandbox_warnings(project),
            )
        except Interrupted:
            return Stopped(planned.package.work_package_id)
        finally:
            store.anchor()

    notify_package_end(project, store, report)
    return report


def drive_package(
    context: DriverContext,
    planned: PlannedPackage,
    by: OrderOrigin,
    report_line: ReportLine = lambda _: None,
    report_progress: ReportProgress = lambda _: None,
    notices: Sequence[str] = (),
    poll_once: bool = False,
) -> PackageReport:
    """Lock a package and run it. Raises Interrupted when the context's stop flag is set.

    With `poll_once`, poll the forge once and start no agent.
    """
    project = context.project
    package = planned.package
    refuse_if_not_ready(context.record, planned)
    name = f"{package.feature_slug}-{package.work_package_id}"
    with feature_lock(
        project.location.locks_folder, name, f"dispatch {package.work_package_id}", project.now()
    ):
        phase = find_package_phase(context.record, package.feature_slug)
        agent = choose_agent(project, "implement", phase, context.agent_override)
        settings = agent.settings
        planned = complete_package_document(project, context.record, planned, settings.timeout_s)
        workspace = PackageWorkspace(
            project, planned, max(package.num_agents, settings.num_agents), phase
        )
        limits = PackageLimits(
            rounds=project.config.run.max_review_cycles,
            retries=settings.max_retries,
            agents=workspace.agent_count,
            losses=MAX_LOSSES,
        )

        contestants = _list_contestants(context, agent) if workspace.agent_count == 1 else ()
        remarks = _read_user_remarks(context, package.feature_slug)
        steps = PackageSteps(workspace, remarks, contestants)
        reporter = _ProgressReporter(package.work_package_id, report_line, report_progress)
        unit = PackageUnit(package, limits, phase)
        journal = UnitJournal(
            context.record, project.clock, unit, reporter.on_transitions, reporter.on_notice
        )
        journal.start_timing()
        reporter.run = journal.state
        with journal.finish_on_exit():
            _run_steps(
                context=context,
                journal=journal,
                loop=StepRunner(context, journal, steps, reporter.on_agents_changed),
                by=by,
                notices=notices,
                poll_once=poll_once,
            )

        return _make_report(planned, journal.state)


def _read_user_remarks(context: DriverContext, slug: str) -> str:
    feature = read_feature(context.record, slug)
    if feature:
        return feature.decisions
    return ""


def _run_steps(
    context: DriverContext,
    journal: UnitJournal[PackageRun, AnyPackageEvent],
    loop: StepRunner[PackageRun, AnyPackageEvent],
    by: OrderOrigin,
    notices: Sequence[str],
    poll_once: bool,
) -> None:
    """Continue from the recorded state. Lost jobs are closed and run again."""
    loop.close_lost_jobs("the dispatcher was killed")
    if journal.state.state is PackageState.BLOCKED:
        how = "dispatched again by the user"
        takes_work = was_path_allowed(context.record, journal.unit.slug, journal.unit.work)
        journal.record(PackageResolved(how, by, takes_work))
    if notices:
        journal.notify(*notices)

    poller = ForgePoller(context.project, journal, loop, poll_once)
    while (step := journal.state.step) is not PackageStep.STOP:
        if poll_once and step not in (*PACKAGE_FORGE_STEPS, PackageStep.CLEAN):
            return

        loop.raise_if_stopped()
        if step is not PackageStep.MERGE and step not in PACKAGE_FORGE_STEPS:
            loop.run_step()
            continue

        # The packages of a feature merge one after the other: each checks its merged tree once,
        # however many there are.
        name = f"merge-{journal.unit.slug}"
        locks = context.project.location.locks_folder
        with named_lock(locks, name, MERGE_LOCK_TIMEOUT_S, context.project.stop):
            if step is PackageStep.MERGE:
                loop.run_step()
                continue

            has_progress = poller.poll()

        if not has_progress and not poller.wait_for_next_poll():
            return


def _list_contestants(context: DriverContext, default_agent: NamedAgent) -> tuple[str, ...]:
    """Return the agent of every attempt of a contest; empty if there is only one attempt."""
    config = context.project.config
    names: Sequence[str] = (default_agent.name,)
    if config.run.competing_agents and not context.agent_override:
        names = config.run.competing_agents

    agents = {default_agent.name: default_agent.settings, **config.agents}
    contestants = tuple(name for name in names for _ in range(agents[name].attempts_per_package))
    if len(contestants) > 1:
        return contestants

    return ()


def _make_report(planned: PlannedPackage, run: PackageRun) -> PackageReport:
    """Create the report of a package from its state."""
    package = planned.package
    return PackageReport(
        package=package.work_package_id,
        feature=package.feature_slug,
        state=run.state,
        round=run.round,
        branch=package.branch,
        commit=run.commit,
        reason=run.blocker.reason,
        remediation=name_package(run.blocker.remediation, package.work_package_id),
        pr_url=run.pull_request.published.url if run.pull_request.published else "",
    )


def list_sandbox_warnings(project: Project) -> tuple[str, ...]:
    """Return a warning if no sandbox is available, unless the user has configured that."""
    probe = probe_level(SandboxLevel.WORKTREE)
    if get_sandbox_level(project) is not None or probe.is_supported:
        return ()
    return (
        f"{NO_SANDBOX_PREFIX} ({probe.problem}): changes outside of the checkout are only "
        "detected afterwards",
    )


class _ProgressReporter:
    """Reports the events and the progress of a package."""

    def __init__(self, name: str, report_line: ReportLine, report_progress: ReportProgress) -> None:
        self._name = name
        self._report_line = report_line
        self._report_progress = report_progress
        self._agents: tuple[str, ...] = ()
        self.run = PackageRun()

    def on_transitions(
        self, transitions: Sequence[Transition[PackageRun, AnyPackageEvent]]
    ) -> None:
        """Report the lines and state changes of recorded steps."""
        for before, event, after in transitions:
            if line := render_package_event(self._name, event):
                self._report_line(line)
            if before is not None and before.state is not after.state:
                self._report_line(f"{self._name} {before.state} -> {after.state}")

            self.run = after

        self.on_agents_changed(self._agents)

    def on_notice(self, text: str) -> None:
        self._report_line(f"{self._name}: {text}")

    def on_agents_changed(self, agents: tuple[str, ...]) -> None:
        """Report which agents are running now."""
        self._agents = agents
        run = self.run
        self._report_progress(
            Progress(
                package=self._name,
                state=run.state,
                round=run.round,
                rounds=run.last_round,
                step=run.step,
                agents=agents,
            )
        )
