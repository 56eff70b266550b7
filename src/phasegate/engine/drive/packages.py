"""The packages of a feature side by side.

Each in a thread of its own; one thread records their ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from queue import Empty, Queue
from threading import Thread
from typing import NamedTuple

from phasegate.core.machine.feature_events import AnyFeatureEvent, PackageEnded, PackageStarted
from phasegate.core.machine.feature_machine import decide_feature_actions
from phasegate.core.machine.feature_state import Feature, Step
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.drive.loop import POLL_INTERVAL_S
from phasegate.engine.drive.package import drive_package
from phasegate.engine.jobs.admission import DriverContext
from phasegate.engine.journal.entries import (
    FEATURE_STEP,
    PACKAGE_STEP,
    read_feature_step,
    read_package_step,
)
from phasegate.engine.journal.package import PackageReport, find_package
from phasegate.engine.journal.unit_journal import UnitJournal
from phasegate.errors import Interrupted


class PackageResult(NamedTuple):
    """How a package came back: where it stands, or the reason why it could not be carried on."""

    package: str
    outcome: PackageReport | BaseException


class PackagePool:
    """Carries out the packages that are due, as many at once as the feature's limits allow."""

    def __init__(
        self,
        context: DriverContext,
        journal: UnitJournal[Feature, AnyFeatureEvent],
        by: OrderOrigin,
    ) -> None:
        self._context = context
        self._journal = journal
        self._by = by
        self._results: Queue[PackageResult] = Queue()
        self._running: dict[str, Thread] = {}

    @property
    def _feature(self) -> Feature:
        return self._journal.state

    def run(self) -> None:
        """Until none is due any more. One that fails to run lets the others end first."""
        failure: BaseException | None = None

        try:
            while self._running or (failure is None and self._is_due()):
                if failure is None:
                    if self._context.stop.is_set():
                        raise Interrupted

                    for name in self._prepare_startable():
                        self._start_package(name)

                came = self._wait_for_result()
                if came is None:
                    continue

                self._running.pop(came.package).join()
                if isinstance(came.outcome, BaseException):
                    failure = failure or came.outcome
                else:
                    self._journal.record(_make_end_event(came.outcome))
        except BaseException:
            self._stop_threads(self._running.values())
            raise

        if failure is not None:
            raise failure

    def poll_once(self) -> None:
        """Look once at those whose pull request is out, one after the other; no agent is started."""
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

    def _stop_threads(self, threads: Iterable[Thread]) -> None:
        """End what still runs. A wish of our own goes with it: the project may be used again."""
        stop = self._context.stop
        is_wished = stop.is_set()
        stop.set()
        for thread in threads:
            thread.join()

        if not is_wished:
            stop.clear()

    def _wait_for_result(self) -> PackageResult | None:
        try:
            return self._results.get(timeout=POLL_INTERVAL_S)
        except Empty:
            return None

    def _is_due(self) -> bool:
        return any(action.step is Step.PACKAGES for action in decide_feature_actions(self._feature))

    def _prepare_startable(self) -> tuple[str, ...]:
        names = [
            name
            for action in decide_feature_actions(self._feature, self._running)
            for name in action.packages
        ]
        fresh = [name for name in names if self._feature.packages[name] is not PackageState.DOING]
        ended = [
            came
            for name in names
            if name not in fresh and (came := self._find_unrecorded_end(name)) is not None
        ]
        for name in fresh:
            self._journal.record(PackageStarted(name))

        for end in ended:
            self._journal.record(end)

        gone = {end.package for end in ended}
        return tuple(name for name in names if name not in gone)

    def _find_unrecorded_end(self, name: str) -> PackageEnded | None:
        """How a package ended in a run that died before it took that in.

        A blocked one waits for a person, as ever.
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
        """Whether anything happened to a package since it was begun.

        Else it is blocked from before, and resolved.
        """
        worked = False

        for recorded in self._context.record.events(self._journal.unit.slug):
            if recorded.kind == FEATURE_STEP and read_feature_step(
                recorded.payload
            ) == PackageStarted(name):
                worked = False
            elif recorded.kind == PACKAGE_STEP and read_package_step(recorded.payload)[0] == name:
                worked = True

        return worked

    def _start_package(self, name: str) -> None:
        thread = Thread(target=self._run_package, args=(name,), name=f"package {name}", daemon=True)
        self._running[name] = thread
        thread.start()

    def _run_package(self, name: str) -> None:
        try:
            one = find_package(self._context.record, name, self._journal.unit.slug)
            self._results.put(PackageResult(name, drive_package(self._context, one, self._by)))
        except BaseException as error:
            # The thread that waits raises it
            self._results.put(PackageResult(name, error))


def _make_end_event(report: PackageReport) -> PackageEnded:
    return PackageEnded(report.package, report.state, report.reason, report.remediation)
