"""A work package carried through implementation, manifest, review and merge: decide, act, record, again.

Every act is idempotent or recorded before and after, so that a dispatcher that was killed is followed by one that goes
on. The rules say what is next (`rules/package_run`); nothing here decides about the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Event as Cancelled
from typing import NamedTuple

from phasegate.cage.level import Level
from phasegate.cage.probe import holding
from phasegate.engine.agent_jobs import AgentJobs, Progress
from phasegate.engine.claims import hold_against
from phasegate.engine.harvesting import take_over
from phasegate.engine.jobs import wanted_level
from phasegate.engine.merging import merge
from phasegate.engine.packages import PackageUnit, Planned, phase_of_packages, refuse_unready
from phasegate.engine.phase_checks import seconds_of
from phasegate.engine.project import Project
from phasegate.engine.staffing import member_for
from phasegate.engine.validation import Checker, describe, failures_of
from phasegate.engine.work_journal import Transition, WorkJournal
from phasegate.engine.workplace import Workplace
from phasegate.errors import Interrupted, StateConflict
from phasegate.record.lock import feature_lock
from phasegate.record.rows import Event
from phasegate.record.store import Store
from phasegate.record.trails import Trails
from phasegate.rules.ordering import NOT_KEPT, By
from phasegate.rules.package_run import (
    MOST_LOSSES,
    Cleaned,
    Happened,
    Limits,
    Prepared,
    Resolved,
    Run,
    Step,
    Validated,
)
from phasegate.rules.retry import Fault
from phasegate.rules.telling import tell_package
from phasegate.rules.work_package import State
from phasegate.workspace.checkout import find_checkout
from phasegate.workspace.checkout_lifecycle import Unsaved, open_feature, remove_checkout
from phasegate.workspace.refs import BRANCHES
from phasegate.workspace.repository import read_refs

Say = Callable[[str], None]
Show = Callable[[Progress], None]


class Report(NamedTuple):
    """Where a package stands when the dispatcher stops."""

    package: str
    feature: str
    state: State
    round: int
    branch: str
    commit: str
    reason: str
    remediation: str

    @property
    def accepted(self) -> bool:
        return self.state is State.DONE


class Stopped(NamedTuple):
    """The run ended because `project.stop` was set: what its agents left is saved, and it can be gone on with."""

    work: str  # a feature, or a package


def dispatch(
    project: Project,
    store: Store,
    one: Planned,
    *,
    agent: str | None,
    say: Say,
    show: Show | None = None,
    cancelled: Cancelled | None = None,
    by: By = NOT_KEPT,
) -> Report | Stopped:
    """Carry a package to DONE or BLOCKED, from wherever it stands. `show` hears of each change of what is going on."""
    package = one.package
    refuse_unready(store, one)
    lock = f"{package.feature_slug}-{package.work_package_id}"
    with (
        feature_lock(project.location.locks, lock, f"dispatch {package.work_package_id}", project.now()),
        Trails.create(project.location, store.heads.path.parent, project.clock.new_id()) as trails,
    ):
        phase = phase_of_packages(store, package.feature_slug)
        settings = member_for(project, "implement", phase, agent).settings
        place = Workplace(project, store, one, max(package.num_agents, settings.num_agents), phase)
        limits = Limits(project.config.run.max_review_cycles, settings.max_retries, place.count, losses=MOST_LOSSES)
        record = _Record(place, store, limits, say, show or (lambda _: None))
        jobs = AgentJobs(place, trails, record, agent, cancelled or project.stop)
        try:
            with record.ended():
                return _Dispatch(place, record, jobs, by).carry_on()
        except Interrupted:
            return Stopped(package.work_package_id)
        finally:
            store.anchor()


class _Record:
    """The package's journal, and those who are told when something is put into it."""

    def __init__(self, place: Workplace, store: Store, limits: Limits, say: Say, show: Show) -> None:
        self._name = place.package.work_package_id
        self._say, self._show = say, show
        self._agents: tuple[str, ...] = ()
        unit = PackageUnit(place.package, limits, place.phase)
        self._journal = WorkJournal(store, place.project.clock, unit, self._heard)
        self._journal.time_steps()

    @property
    def run(self) -> Run:
        return self._journal.state

    def __call__(
        self, *events: Happened, rows: tuple[Event, ...] = (), parts: Mapping[str, float] | None = None
    ) -> None:
        self._journal.record(*events, rows=rows, parts=parts)

    def _heard(self, taken: Sequence[Transition[Run, Happened]]) -> None:
        for before, event, after in taken:
            if line := tell_package(self._name, event):
                self._say(line)
            if before is not None and before.state is not after.state:
                self._say(f"{self._name} {before.state} -> {after.state}")
        self.show()

    def read_again(self) -> None:
        """Take in what is on record: an interrupted step may be, or may not."""
        self._journal.read_again()

    def say(self, text: str, *, at_once: bool = False) -> None:
        """Tell something that is no event, and put it on record: with the next event, or before a wait at once."""
        self._say(f"{self._name}: {text}")
        self._journal.tell(text) if at_once else self._journal.note(text)

    def ended(self) -> AbstractContextManager[None]:
        """Record what waits when nothing more is done in this run."""
        return self._journal.ended()

    def show(self, agents: tuple[str, ...] | None = None) -> None:
        """Tell the watcher what is going on; without `agents`, those of the last time are still at work."""
        self._agents, run = self._agents if agents is None else agents, self.run
        self._show(Progress(self._name, run.state, run.round, run.last_round, run.step, self._agents))


class _Dispatch:
    """One package, one dispatcher."""

    def __init__(self, place: Workplace, record: _Record, jobs: AgentJobs, by: By) -> None:
        self._place, self._record, self._jobs, self._by = place, record, jobs, by
        self._steps: dict[Step, Callable[[], None]] = {
            Step.PREPARE: self._prepare,
            Step.IMPLEMENT: jobs.run,
            Step.HARVEST: self._harvest,
            Step.VALIDATE: self._validate,
            Step.REVIEW: jobs.run,
            Step.MERGE: self._merge,
            Step.CLEAN: self._clean,
        }

    def carry_on(self) -> Report:
        self._pick_up()
        self._say_what_does_not_hold()
        self._record.show()
        while self._record.run.step is not Step.STOP:
            self._jobs.stop_if_cancelled()
            self._steps[self._record.run.step]()
        run, package = self._record.run, self._place.package
        return Report(
            package.work_package_id,
            package.feature_slug,
            run.state,
            run.round,
            package.branch,
            run.commit,
            run.reason,
            run.remediation,
        )

    def _pick_up(self) -> None:
        """Go on from what the journal says: a job that nobody saw the end of is run again, from a clean beginning."""
        self._jobs.give_up("the dispatcher died before its end")
        if self._record.run.state is State.BLOCKED:
            self._record(Resolved("dispatched again by a person", self._by))

    def _say_what_does_not_hold(self) -> None:
        """A person should know that nothing holds an agent back, unless they asked for it."""
        found = holding(Level.WORKTREE)
        if wanted_level(self._place.project) is None and not found.holds:
            self._record.say(
                f"no sandbox holds here ({found.why_not}): what agents change elsewhere is found afterwards"
            )

    def _prepare(self) -> None:
        place = self._place
        base = self._feature_head()
        Checker(place.project, place.package, base).expect_base()  # what no agent can mend is told before one is paid
        folders = [checkout.folder.name for checkout in place.checkouts()]
        self._record.say(f"worktree ready at {place.project.config.paths.worktrees}/{', '.join(folders)}")
        self._record(Prepared(base))

    def _feature_head(self) -> str:
        """The head of the feature's branch, which is made if it is not there: only then must the person have one."""
        project, slug = self._place.project, self._place.package.feature_slug
        ref = f"{BRANCHES}feat/{slug}"
        head = read_refs(project.repository, ref).get(ref)
        return head or open_feature(project.repository, slug, current_branch(project))

    def _harvest(self) -> None:
        self._record(take_over(self._place, self._record.run.round, self._record.say))

    def _validate(self) -> None:
        run, place = self._record.run, self._place
        checker = Checker(place.project, place.package, place.start())
        evidence = checker.check(run.commit)
        place.evidence_file(run.round).write_text(describe(evidence), encoding="utf-8")
        wrong = hold_against(place, run.round, checker, evidence, self._record.say)
        lacking = tuple(check.name for check in evidence.failures if check.fault is Fault.NO_PROGRAM)
        self._record(Validated(run.commit, failures_of(evidence), lacking), rows=wrong, parts=seconds_of(evidence))

    def _merge(self) -> None:
        self._record(merge(self._place))

    def _clean(self) -> None:
        place = self._place
        for index in range(place.count):
            found = find_checkout(place.project.repository, place.assignment(index))
            if found is not None:
                removed = remove_checkout(found, place.signature(), keep_for_reuse=True)
                if isinstance(removed, Unsaved):
                    self._record.say(f"{removed.folder} is kept: {removed.reason}")
        self._record(Cleaned())


def current_branch(project: Project) -> str:
    """The branch that the person has checked out: the base of a new feature."""
    head = (project.repository.git_dir / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref: " + BRANCHES):
        raise StateConflict("HEAD is detached", "check out the branch that the feature is to be based on")
    branch = head.removeprefix("ref: " + BRANCHES)
    if not read_refs(project.repository, BRANCHES + branch):
        raise StateConflict(f"{branch} has no commit yet", "commit something first")
    return branch
