"""A feature carried from where it stands to its last gate, to its merge, or until it needs a person.

Decide, act, record, again. The rules decide (`rules/decide`); what happened is in the journal before the next step
begins. Whoever kills this at any moment is followed by one that goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple

from phasegate.engine.closing import merge_feature, tidy
from phasegate.engine.dispatch import Report, Stopped, dispatch
from phasegate.engine.feature_journal import HAPPENED, choose, open_feature_journal, read_happened
from phasegate.engine.packages import HAPPENED as OF_PACKAGE
from phasegate.engine.packages import find_package, read_package_event
from phasegate.engine.phase_steps import LOOK_EVERY_S, PhaseSteps
from phasegate.engine.project import Project
from phasegate.engine.work_journal import WorkJournal
from phasegate.errors import Interrupted, StateConflict
from phasegate.record.lock import feature_lock
from phasegate.record.store import Store
from phasegate.record.trails import Trails
from phasegate.rules.decide import decide
from phasegate.rules.feature_events import Advanced, CompletionAsked, Happened, PackageEnded, PackageStarted, Retried
from phasegate.rules.feature_state import Feature, Step
from phasegate.rules.ordering import ENGINE, NOT_KEPT, By
from phasegate.rules.work_package import State
from phasegate.workspace.checkout_lifecycle import open_feature
from phasegate.workspace.repository import keep_out_of_git


class Wishes(NamedTuple):
    """How far a run is to go, and with whom."""

    step: bool = False  # stop at each gate
    merge: bool = False  # go on to the merge
    agent: str | None = None
    by: By = NOT_KEPT  # whose run it is


class _Came(NamedTuple):
    package: str
    result: Report | Stopped | BaseException


@contextmanager
def at_work(project: Project, store: Store, slug: str, command: str) -> Iterator[WorkJournal[Feature, Happened]]:
    """Hold a feature alone, with its journal."""
    with feature_lock(project.location.locks, slug, command, project.now()):
        journal = open_feature_journal(project, store, slug)
        if not journal.is_begun:
            raise StateConflict(f"feature {slug} has no workflow", 'begin one: phasegate run feature "..."')
        choose(project, store, journal)  # whatever became of the view, the store is right
        try:
            yield journal
        finally:
            store.anchor()


def drive(project: Project, store: Store, slug: str, wishes: Wishes | None = None) -> Feature | Stopped:
    """Carry a feature on; where it stands when nothing more can be done without a person. `project.stop` ends it."""
    with (
        at_work(project, store, slug, f"run {slug}") as journal,
        Trails.create(project.location, store.heads.path.parent, project.clock.new_id()) as trails,
    ):
        journal.time_steps()
        try:
            with journal.ended():
                return _Drive(project, store, trails, journal, wishes or Wishes()).go()
        except Interrupted:
            return Stopped(slug)


class _Drive:
    def __init__(
        self,
        project: Project,
        store: Store,
        trails: Trails,
        journal: WorkJournal[Feature, Happened],
        wishes: Wishes,
    ) -> None:
        self._project, self._store, self._journal = project, store, journal
        self._wishes = wishes
        self._phase = PhaseSteps(project, store, trails, journal, wishes.agent)

    @property
    def _feature(self) -> Feature:
        return self._journal.state

    @property
    def _slug(self) -> str:
        return self._feature.workflow.feature

    def go(self) -> Feature:
        if self._feature.workflow.active:
            open_feature(self._project.repository, self._slug, self._feature.base)
            for folder in (self._project.worktrees, self._project.root / ".isdlc"):
                keep_out_of_git(self._project.repository, folder)
            self._phase.pick_up()
        while (step := decide(self._feature)[0].step) is not Step.STOP:
            self._stop_if_cancelled()
            if not self._take(step):
                break
        return self._feature

    def _take(self, step: Step) -> bool:
        """Carry one step out; whether to go on after it."""
        match step:
            case Step.ADVANCE:
                self._journal.record(Advanced(ENGINE))
            case Step.RETRY:
                self._journal.record(Retried(ENGINE))
            case Step.COMPLETE:
                if self._feature.workflow.merges and not self._wishes.merge:
                    return False
                self._journal.record(CompletionAsked(self._wishes.by))
            case Step.PACKAGES:
                self._run_packages()
            case Step.MERGE:
                feature = self._feature
                title = f"{self._slug}: {' '.join(feature.description.split()) or feature.workflow.type}"
                self._journal.record(merge_feature(self._project, self._slug, feature.base, title, feature.judged))
            case Step.TIDY:
                works = (*self._feature.packages, *self._feature.workflow.phases, "archive", "feature")
                self._journal.record(tidy(self._project, self._slug, self._feature.base, works))
            case _:
                self._phase.steps[step]()
        return not (self._wishes.step and step is Step.GATE)

    def _run_packages(self) -> None:
        """Packages side by side, each by its own dispatcher; one that fails to run lets the others end first."""
        ends: SimpleQueue[_Came] = SimpleQueue()
        running: dict[str, Thread] = {}
        failure: BaseException | None = None
        try:
            while running or (failure is None and self._is_due()):
                if failure is None:
                    self._stop_if_cancelled()
                    for name in self._startable(running):
                        running[name] = self._start(name, ends)
                came = _next(ends)
                if came is None:
                    continue
                running.pop(came.package).join()
                if isinstance(came.result, Stopped):
                    failure = failure or Interrupted()
                elif isinstance(came.result, BaseException):
                    failure = failure or came.result
                else:
                    self._journal.record(_as_event(came.result))
        except BaseException:
            self._end(running.values())
            raise
        if failure is not None:
            raise failure

    def _end(self, threads: Iterable[Thread]) -> None:
        """End what still runs. A wish of our own goes with it: the project may be used again."""
        stop = self._project.stop
        is_wished = stop.is_set()
        stop.set()
        for thread in threads:
            thread.join()
        if not is_wished:
            stop.clear()

    def _is_due(self) -> bool:
        return any(action.step is Step.PACKAGES for action in decide(self._feature))

    def _startable(self, running: dict[str, Thread]) -> tuple[str, ...]:
        names = [name for action in decide(self._feature, running) for name in action.packages]
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
        row = next((row for row in self._store.packages(self._slug) if row.id == name), None)
        if row is None or row.state != State.BLOCKED or not self._was_worked_on(name):
            return None
        return PackageEnded(name, State.BLOCKED, row.reason, row.remediation)

    def _was_worked_on(self, name: str) -> bool:
        """Whether anything happened to a package since it was begun: else it is blocked from before, and resolved."""
        worked = False
        for recorded in self._store.events(self._slug):
            if recorded.kind == HAPPENED and read_happened(recorded.payload) == PackageStarted(name):
                worked = False
            elif recorded.kind == OF_PACKAGE and read_package_event(recorded.payload)[0] == name:
                worked = True
        return worked

    def _start(self, name: str, ends: SimpleQueue[_Came]) -> Thread:
        thread = Thread(target=self._dispatch, args=(name, ends), name=f"package {name}", daemon=True)
        thread.start()
        return thread

    def _dispatch(self, name: str, ends: SimpleQueue[_Came]) -> None:
        try:
            one = find_package(self._store, name, self._slug)
            report = dispatch(
                self._project,
                self._store,
                one,
                agent=self._wishes.agent,
                say=lambda line: None,
                cancelled=self._project.stop,
                by=self._wishes.by,
            )
            ends.put(_Came(name, report))
        except BaseException as error:  # the thread that waits raises it
            ends.put(_Came(name, error))

    def _stop_if_cancelled(self) -> None:
        if self._project.stop.is_set():
            raise Interrupted


def _next(ends: SimpleQueue[_Came]) -> _Came | None:
    try:
        return ends.get(timeout=LOOK_EVERY_S)
    except Empty:
        return None


def _as_event(report: Report) -> PackageEnded:
    return PackageEnded(report.package, report.state, report.reason, report.remediation)
