"""A work package carried through implementation, manifest, review and merge: decide, act, record, again.

Every act is idempotent or recorded before and after, so that a dispatcher that was killed is followed by one that goes
on. The rules say what is next (`core/machine/package_machine`); nothing here decides about the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event as Cancelled
from typing import NamedTuple

from phasegate.core.display.event_lines import tell_package
from phasegate.core.machine.package_events import MOST_LOSSES, PackageHappened, PackageLimits, PackageResolved
from phasegate.core.machine.package_machine import PACKAGE_AT_FORGE, PackageStep, Run
from phasegate.core.plan.work_package import State
from phasegate.core.workflow.origin import NOT_KEPT, By
from phasegate.engine.drive.forge_polling import Patience
from phasegate.engine.drive.local_context import local_desk
from phasegate.engine.drive.loop import UnitLoop
from phasegate.engine.jobs.admission import DriverDesk
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.journal.package import (
    PackageReport,
    PackageUnit,
    PlannedPackage,
    phase_of_packages,
    refuse_unready,
)
from phasegate.engine.journal.unit_journal import Transition, WorkJournal
from phasegate.engine.notify.notifier import tell_about_package
from phasegate.engine.project.agents import Member, member_for
from phasegate.engine.project.job_limits import wanted_level
from phasegate.engine.project.project import Project
from phasegate.engine.steps.package_document import made_whole
from phasegate.engine.steps.package_steps import PackageSteps
from phasegate.engine.steps.workplace import Workplace
from phasegate.errors import Interrupted
from phasegate.sandbox.probe import holding
from phasegate.sandbox.request import Level
from phasegate.storage.lock import feature_lock, repository_lock
from phasegate.storage.store import Store

LONGEST_WAIT_S = 6 * 3600.0  # others check their merged trees meanwhile; a lock never outlives its process
Say = Callable[[str], None]


class Progress(NamedTuple):
    """What is going on, for a person who watches."""

    package: str
    state: State
    round: int
    rounds: int
    step: PackageStep
    agents: tuple[str, ...] = ()  # at work now


Show = Callable[[Progress], None]


class Stopped(NamedTuple):
    """The run ended because `project.stop` was set: what its agents left is saved, and it can be gone on with."""

    work: str  # a feature, or a package


def dispatch(
    project: Project,
    store: Store,
    one: PlannedPackage,
    *,
    agent: str | None,
    say: Say,
    show: Show = lambda _: None,
    cancelled: Cancelled | None = None,
    by: By = NOT_KEPT,
) -> PackageReport | Stopped:
    """Carry a package to DONE or BLOCKED, from wherever it stands. `show` hears of each change of what is going on."""
    with local_desk(project, store, agent, cancelled) as desk:
        try:
            report = carry_package(desk, one, by, say, show, what_does_not_hold(project))
        except Interrupted:
            return Stopped(one.package.work_package_id)
        finally:
            store.anchor()
    tell_about_package(project, store, report)
    return report


def carry_package(
    desk: DriverDesk,
    one: PlannedPackage,
    by: By,
    say: Say = lambda _: None,
    show: Show = lambda _: None,
    notices: Sequence[str] = (),
    look_once: bool = False,
) -> PackageReport:
    """Carry a package on, under its lock. Raises Interrupted when the desk is told to stop.

    `look_once`: at the forge, and start no agent.
    """
    project, package = desk.project, one.package
    refuse_unready(desk.record, one)
    name = f"{package.feature_slug}-{package.work_package_id}"
    with feature_lock(project.location.locks, name, f"dispatch {package.work_package_id}", project.now()):
        phase = phase_of_packages(desk.record, package.feature_slug)
        member = member_for(project, "implement", phase, desk.agent)
        settings = member.settings
        one = made_whole(project, desk.record, one, settings.timeout_s)
        place = Workplace(project, one, max(package.num_agents, settings.num_agents), phase)
        limits = PackageLimits(
            project.config.run.max_review_cycles, settings.max_retries, place.count, losses=MOST_LOSSES
        )
        said = _said(desk, package.feature_slug)
        steps = PackageSteps(place, said, _entrants(desk, member) if place.count == 1 else ())
        teller = _Teller(package.work_package_id, say, show)
        unit = PackageUnit(package, limits, phase)
        journal = WorkJournal(desk.record, project.clock, unit, teller.heard, teller.noted)
        journal.time_steps()
        teller.run = journal.state
        with journal.ended():
            _carry(desk, journal, UnitLoop(desk, journal, steps, teller.at_work), by, notices, look_once)
        return _report(one, journal.state)


def _said(desk: DriverDesk, slug: str) -> str:
    feature = read_feature(desk.record, slug)
    return feature.said if feature else ""


def _carry(
    desk: DriverDesk,
    journal: WorkJournal[Run, PackageHappened],
    loop: UnitLoop[Run, PackageHappened],
    by: By,
    notices: Sequence[str],
    look_once: bool,
) -> None:
    """Go on from what the journal says: a job that nobody saw the end of is run again, from a clean beginning."""
    loop.give_up("the dispatcher died before its end")
    if journal.state.state is State.BLOCKED:
        journal.record(PackageResolved("dispatched again by a person", by))
    if notices:
        journal.tell(*notices)
    patience = Patience(desk.project, journal, loop, look_once)
    while (step := journal.state.step) is not PackageStep.STOP:
        if look_once and step not in (*PACKAGE_AT_FORGE, PackageStep.CLEAN):
            return
        loop.stop_if_asked()
        if step is not PackageStep.MERGE and step not in PACKAGE_AT_FORGE:
            loop.take_step()
            continue
        # One package of a feature after the other: each checks its merged tree once, however many there are.
        name, locks = f"merge-{journal.unit.slug}", desk.project.location.locks
        with repository_lock(locks, name, LONGEST_WAIT_S, desk.project.stop):
            if step is PackageStep.MERGE:
                loop.take_step()
                continue
            found = patience.look()
        if not found and not patience.wait():
            return


def _entrants(desk: DriverDesk, member: Member) -> tuple[str, ...]:
    """The agents that each try a whole package, one an attempt; none where one tries it once."""
    config = desk.project.config
    named = (member.name,) if desk.agent else config.run.contest or (member.name,)
    agents = {member.name: member.settings, **config.agents}
    entrants = tuple(name for name in named for _ in range(agents[name].attempts))
    return entrants if len(entrants) > 1 else ()


def _report(one: PlannedPackage, run: Run) -> PackageReport:
    package = one.package
    return PackageReport(
        package.work_package_id,
        package.feature_slug,
        run.state,
        run.round,
        package.branch,
        run.commit,
        run.reason,
        run.remediation,
        run.pull.url if run.pull else "",
    )


def what_does_not_hold(project: Project) -> tuple[str, ...]:
    """A person should know that nothing holds an agent back, unless they asked for it."""
    found = holding(Level.WORKTREE)
    if wanted_level(project) is not None or found.holds:
        return ()
    return (f"no sandbox holds here ({found.why_not}): what agents change elsewhere is found afterwards",)


class _Teller:
    """Tells a watcher what goes on with a package."""

    def __init__(self, name: str, say: Say, show: Show) -> None:
        self._name, self._say, self._show = name, say, show
        self._agents: tuple[str, ...] = ()
        self.run = Run()

    def heard(self, taken: Sequence[Transition[Run, PackageHappened]]) -> None:
        for before, event, after in taken:
            if line := tell_package(self._name, event):
                self._say(line)
            if before is not None and before.state is not after.state:
                self._say(f"{self._name} {before.state} -> {after.state}")
            self.run = after
        self.at_work(self._agents)

    def noted(self, text: str) -> None:
        self._say(f"{self._name}: {text}")

    def at_work(self, agents: tuple[str, ...]) -> None:
        self._agents, run = agents, self.run
        self._show(Progress(self._name, run.state, run.round, run.last_round, run.step, agents))
