"""Run the packages of a feature in parallel.

Every package runs in its own thread; one thread records their results. `decide_feature_actions`
decides which packages start, and how many run at once (`[run] parallel`).
"""

from __future__ import annotations

from functools import partial

from phasegate.core.machine.feature_events import PackageEnded, PackageStarted
from phasegate.core.machine.feature_machine import decide_feature_actions
from phasegate.core.machine.feature_state import Feature, Step
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.drive.run_package import drive_package
from phasegate.engine.drive.step_runner import POLL_INTERVAL_S
from phasegate.engine.jobs.admission import DriverContext
from phasegate.engine.jobs.job_threads import ThreadPool
from phasegate.engine.journal.entries import (
    FEATURE_STEP,
    PACKAGE_STEP,
    read_feature_step,
    read_package_step,
)
from phasegate.engine.journal.feature import FeatureJournal
from phasegate.engine.journal.package import PackageReport, find_package
from phasegate.errors import Interrupted


class PackagePool:
    """Runs the packages that are due, as many in parallel as the feature's limits allow."""

    def __init__(
        self,
        context: DriverContext,
        journal: FeatureJournal,
        by: OrderOrigin,
    ) -> None:
        self._context = context
        self._journal = journal
        self._by = by
        self._pool: ThreadPool[PackageReport] = ThreadPool()

    @property
    def _feature(self) -> Feature:
        return self._journal.state

    def run(self) -> None:
        """Run packages until none is due. After an error, the running packages end first."""
        failure: BaseException | None = None

        try:
            while self._pool.running or (failure is None and self._is_due()):
                if failure is None:
                    if self._context.stop.is_set():
                        raise Interrupted

                    for name in self._prepare_startable():
                        self._pool.start(name, partial(self._run_package, name))

                result = self._pool.wait_for_result(POLL_INTERVAL_S)
                if result is None:
                    continue

                if isinstance(result.outcome, BaseException):
                    failure = failure or result.outcome
                else:
                    self._journal.record(_make_end_event(result.outcome))
        except BaseException:
            self._stop_packages()
            raise

        if failure is not None:
            raise failure

    def poll_once(self) -> None:
        """Poll the packages with an open pull request once, one by one. Starts no agent."""
        slug = self._journal.unit.slug
        waiting = [
            name for name, state in self._feature.packages.items() if state is PackageState.DOING
        ]

        for name in waiting:
            report = drive_package(
                self._context,
                find_package(self._context.record, name, slug),
                self._by,
                poll_once=True,
            )

            if report.state in (PackageState.DONE, PackageState.BLOCKED):
                self._journal.record(_make_end_event(report))

    def _stop_packages(self) -> None:
        """Stop the running packages.

        The stop flag is cleared afterwards unless it was set before: the caller may use the project
        again.
        """
        stop = self._context.stop
        was_set = stop.is_set()
        stop.set()
        self._pool.join()
        if not was_set:
            stop.clear()

    def _is_due(self) -> bool:
        return any(action.step is Step.PACKAGES for action in decide_feature_actions(self._feature))

    def _prepare_startable(self) -> tuple[str, ...]:
        """Record the packages that start or have ended; return those to run."""
        names = [
            name
            for action in decide_feature_actions(self._feature, self._pool.running)
            for name in action.packages
        ]
        new = [name for name in names if self._feature.packages[name] is not PackageState.DOING]
        ends = [
            end
            for name in names
            if name not in new and (end := self._find_unrecorded_end(name)) is not None
        ]
        for name in new:
            self._journal.record(PackageStarted(name))

        for end in ends:
            self._journal.record(end)

        ended = {end.package for end in ends}
        return tuple(name for name in names if name not in ended)

    def _find_unrecorded_end(self, name: str) -> PackageEnded | None:
        """Return the end of a package that was blocked in a run that died before recording it.

        The package waits for the user, as it would have done in that run.
        """
        rows = self._context.record.packages(self._journal.unit.slug)
        row = next((row for row in rows if row.id == name), None)

        if (
            row is None
            or row.state != PackageState.BLOCKED
            or not self._has_steps_since_start(name)
        ):
            return None

        return PackageEnded(name, PackageState.BLOCKED, row.reason, row.remediation)

    def _has_steps_since_start(self, name: str) -> bool:
        """Return True if a package has advanced since its last start.

        If it has not, its blocker is an older one that was resolved in the meantime.
        """
        has_steps = False

        started = PackageStarted(name)
        for recorded in self._context.record.events(self._journal.unit.slug):
            if recorded.kind == FEATURE_STEP and read_feature_step(recorded.payload) == started:
                has_steps = False
            elif recorded.kind == PACKAGE_STEP and read_package_step(recorded.payload)[0] == name:
                has_steps = True

        return has_steps

    def _run_package(self, name: str) -> PackageReport:
        package = find_package(self._context.record, name, self._journal.unit.slug)
        return drive_package(self._context, package, self._by)


def _make_end_event(report: PackageReport) -> PackageEnded:
    return PackageEnded(
        package=report.package,
        state=report.state,
        reason=report.reason,
        remediation=report.remediation,
        commit=report.commit,
    )
