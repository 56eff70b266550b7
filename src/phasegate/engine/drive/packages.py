"""The packages of a feature side by side: each in a thread of its own; one thread records their ends."""

from __future__ import annotations

from collections.abc import Iterable
from queue import Empty, Queue
from threading import Thread
from typing import NamedTuple

from phasegate.core.machine.feature_events import Happened, PackageEnded, PackageStarted
from phasegate.core.machine.feature_machine import decide
from phasegate.core.machine.feature_state import Feature, Step
from phasegate.core.plan.work_package import State
from phasegate.core.workflow.origin import By
from phasegate.engine.drive.loop import LOOK_EVERY_S
from phasegate.engine.drive.package import carry_package
from phasegate.engine.jobs.admission import DriverDesk
from phasegate.engine.journal.entries import FEATURE_STEP, PACKAGE_STEP, read_feature_step, read_package_step
from phasegate.engine.journal.package import PackageReport, find_package
from phasegate.engine.journal.unit_journal import WorkJournal
from phasegate.errors import Interrupted


class PackageCame(NamedTuple):
    """How a package came back: where it stands, or the reason why it could not be carried on."""

    package: str
    result: PackageReport | BaseException


class SideBySide:
    """Carries out the packages that are due, as many at once as the feature's limits allow."""

    def __init__(self, desk: DriverDesk, journal: WorkJournal[Feature, Happened], by: By) -> None:
        self._desk, self._journal, self._by = desk, journal, by
        self._ends: Queue[PackageCame] = Queue()
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
                    if self._desk.stop.is_set():
                        raise Interrupted
                    for name in self._startable():
                        self._start(name)
                came = self._next()
                if came is None:
                    continue
                self._running.pop(came.package).join()
                if isinstance(came.result, BaseException):
                    failure = failure or came.result
                else:
                    self._journal.record(_as_event(came.result))
        except BaseException:
            self._end(self._running.values())
            raise
        if failure is not None:
            raise failure

    def look(self) -> None:
        """Look once at those whose pull request is out, one after the other; no agent is started."""
        slug = self._journal.unit.slug
        waiting = [name for name, state in self._feature.packages.items() if state is State.DOING]
        for name in waiting:
            report = carry_package(self._desk, find_package(self._desk.record, name, slug), self._by, look_once=True)
            if report.state in (State.DONE, State.BLOCKED):
                self._journal.record(_as_event(report))

    def _end(self, threads: Iterable[Thread]) -> None:
        """End what still runs. A wish of our own goes with it: the project may be used again."""
        stop = self._desk.stop
        is_wished = stop.is_set()
        stop.set()
        for thread in threads:
            thread.join()
        if not is_wished:
            stop.clear()

    def _next(self) -> PackageCame | None:
        try:
            return self._ends.get(timeout=LOOK_EVERY_S)
        except Empty:
            return None

    def _is_due(self) -> bool:
        return any(action.step is Step.PACKAGES for action in decide(self._feature))

    def _startable(self) -> tuple[str, ...]:
        names = [name for action in decide(self._feature, self._running) for name in action.packages]
        fresh = [name for name in names if self._feature.packages[name] is not State.DOING]
        ended = [came for name in names if name not in fresh and (came := self._end_unseen(name)) is not None]
        for name in fresh:
            self._journal.record(PackageStarted(name))
        for end in ended:
            self._journal.record(end)
        gone = {end.package for end in ended}
        return tuple(name for name in names if name not in gone)

    def _end_unseen(self, name: str) -> PackageEnded | None:
        """How a package ended in a run that died before it took that in. A blocked one waits for a person, as ever."""
        rows = self._desk.record.packages(self._journal.unit.slug)
        row = next((row for row in rows if row.id == name), None)
        if row is None or row.state != State.BLOCKED or not self._was_worked_on(name):
            return None
        return PackageEnded(name, State.BLOCKED, row.reason, row.remediation)

    def _was_worked_on(self, name: str) -> bool:
        """Whether anything happened to a package since it was begun: else it is blocked from before, and resolved."""
        worked = False
        for recorded in self._desk.record.events(self._journal.unit.slug):
            if recorded.kind == FEATURE_STEP and read_feature_step(recorded.payload) == PackageStarted(name):
                worked = False
            elif recorded.kind == PACKAGE_STEP and read_package_step(recorded.payload)[0] == name:
                worked = True
        return worked

    def _start(self, name: str) -> None:
        thread = Thread(target=self._dispatch, args=(name,), name=f"package {name}", daemon=True)
        self._running[name] = thread
        thread.start()

    def _dispatch(self, name: str) -> None:
        try:
            one = find_package(self._desk.record, name, self._journal.unit.slug)
            self._ends.put(PackageCame(name, carry_package(self._desk, one, self._by)))
        except BaseException as error:  # the thread that waits raises it
            self._ends.put(PackageCame(name, error))


def _as_event(report: PackageReport) -> PackageEnded:
    return PackageEnded(report.package, report.state, report.reason, report.remediation)
