"""Setup and all checks on a tree before any work is done on it: without an agent, in a clean checkout, in the cage.

What it finds is kept: `phasegate check` shows it, `run` and `dispatch` know it before the first agent is paid, and
every later check is compared with it. The first run on a tree that no agent wrote also fills the cache of setups.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.checks.baseline import Baseline, baseline_of
from phasegate.checks.command_runner import CagedRunner
from phasegate.checks.commands import Bench, is_folder_of
from phasegate.checks.evidence import Check, Outcome, failed
from phasegate.checks.manifest import asked
from phasegate.checks.plan import Command, CommandRan, Plan, Purpose, Runner
from phasegate.checks.setup import FEW, SetupPlace
from phasegate.checks.setup_cache import SetupCache, key_of, programs_among
from phasegate.config.settings import AlreadyFailing
from phasegate.core.display.activity import RunningCommand
from phasegate.core.machine.retry import Fault
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.text.visible import visible
from phasegate.engine.checks.plan import CheckPlan, plans_for
from phasegate.engine.checks.setup_inputs import setup_inputs
from phasegate.engine.project.job_limits import job_limits, wanted_level
from phasegate.engine.project.project import Project
from phasegate.errors import EnvironmentUnavailable
from phasegate.files.durable_write import replace_file
from phasegate.storage.lock import repository_lock
from phasegate.typed import read_json
from phasegate.workspace.agent_git_writer import object_stores
from phasegate.workspace.checkout_creation import NOTHING_LAID, Laid
from phasegate.workspace.commit_log import person_commit
from phasegate.workspace.export import export
from phasegate.workspace.refs import BRANCHES
from phasegate.workspace.removal import remove_tree
from phasegate.workspace.repository import read_refs
from phasegate.workspace.submodules import what_is_not_whole
from phasegate.workspace.tree_diff import differences, tree_of

LONGEST_WAIT_S = 6 * 3600.0  # another package takes the same baseline meanwhile; a lock never outlives its process
TESTS_FOUND = "tests found"
_LINES_OF_OUTPUT = 12
Hear = Callable[[str, str], None]  # what a command is for, and its line


class CheckedRow(NamedTuple):
    """One check of the base, as it is shown."""

    root: str
    name: str
    outcome: str
    summary: str
    command: str
    why: str
    tests: int | None
    failing: tuple[str, ...]
    duration_s: float | None
    remedy: str
    notes: tuple[str, ...]
    log: str
    output: tuple[str, ...]  # the lines that matter

    @property
    def is_failed(self) -> bool:
        return self.outcome == Outcome.FAILED

    @property
    def is_asked(self) -> bool:
        return self.outcome != Outcome.NOT_ASKED


class BaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What our checks say about a root of a tree that work begins from."""

    commit: str
    root: str = ""
    profile: str
    name: str
    commands: dict[str, str]  # those that were run, by purpose
    reasons: dict[str, str]
    notes: tuple[str, ...]
    checks: tuple[Check, ...]
    logs: str
    test_functions: int | None = None
    is_cached: bool = False  # its setup, when this was found out

    @property
    def baseline(self) -> Baseline:
        return baseline_of(check for check in self.checks if check.name != TESTS_FOUND)

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.outcome is Outcome.FAILED)

    def check(self, name: str) -> Check | None:
        return next((check for check in self.checks if check.name == name), None)


# Made here, in one thread: of two that decode a type for the first time, one can see it half made, and crash.


def rows_of_report(report: BaseReport) -> tuple[CheckedRow, ...]:
    """Each check with its command, why it was chosen, and the lines of output that matter."""
    return tuple(
        CheckedRow(
            report.root,
            one.name,
            str(one.outcome),
            one.summary,
            report.commands.get(one.name, ""),
            report.reasons.get(one.name, ""),
            one.tests.executed if one.tests else None,
            one.tests.failing if one.tests else (),
            one.duration_s,
            one.remedy,
            one.notes,
            one.log,
            _matter(one),
        )
        for one in report.checks
    )


def _matter(one: Check) -> tuple[str, ...]:
    """The names of failing tests, else the last words."""
    if one.tests is not None and one.tests.failing:
        return one.tests.failing[:_LINES_OF_OUTPUT]
    return tuple(line for line in one.excerpt.splitlines() if line.strip())[-_LINES_OF_OUTPUT:]


def check_branch(project: Project, branch: str, hear: Hear, *, anew: bool) -> tuple[BaseReport, ...]:
    """Check the head of a branch of the person's, at each of its roots."""
    commit = read_refs(project.repository, BRANCHES + branch)[BRANCHES + branch]
    return whole_base(project, commit).reports(hear, anew=anew)


def whole_base(project: Project, commit: str) -> Base:
    """A commit of the person's with all its roots, without a package."""
    whole = WorkPackage(work_package_id="base", title="", feature_slug="base", file_scope=())
    return Base(project, whole, commit)


class Base:
    """The tree that the work on a package begins from, and the person's tree that it goes back to."""

    def __init__(self, project: Project, package: WorkPackage, start: str) -> None:
        self.project, self.package, self.start = project, package, start
        self.cache = SetupCache(project.location.folder / "setups")
        self.keeps = True  # the report, for later
        # A tree that no agent wrote. None where history does not tell: then nothing is kept, and nothing is trusted.
        self.origin = person_commit(project.repository, start, package.feature_slug)

    def kept_for(self, commit: str, plan: Plan) -> SetupPlace | None:
        """Where the setup of a commit's tree lies: that of the person's tree, if nothing that it reads was changed."""
        if self.origin is None:
            return None
        key = self._key(self.origin, plan.root)
        if key is None:
            return None
        if commit == self.origin:
            return SetupPlace(self.cache, key, fills=True)
        changed = {one.path for one in differences(self.project.repository.place(), self.origin, commit)}
        if changed & setup_inputs(self.project, (self.origin, commit), plan):
            return None
        if self.cache.entry(key) is None and self.start != self.origin:
            Base(self.project, self.package, self.origin).reports()  # it fills the cache
        return SetupPlace(self.cache, key)

    def lay_setup(self, folder: Path, home: Path) -> Laid:
        """Copy what the setups made of the person's tree into a checkout of `start` that will be moved to `home`."""
        laid = NOTHING_LAID
        for plan in [one.plan for one in plans_for(self.project, self.package, self.start, self.start)]:
            key = self._key(self.origin, plan.root) if self.origin else None
            is_there = is_folder_of(folder, plan.root)
            made = self.cache.lay(key, folder / plan.root, home / plan.root) if key and is_there else None
            if made is not None:
                paths = tuple(f"{plan.root}/{path}".lstrip("/") for path in made[1])
                laid = Laid((*laid.paths, *paths), (*laid.programs, *programs_among(folder, paths, plan.bin_folders)))
        return laid

    def _key(self, origin: str, root: str) -> str | None:
        """The name of a root's setup in the person's tree; None if it is none there."""
        plans = [one.plan for one in plans_for(self.project, self.package, origin, origin) if one.plan.root == root]
        tree = " ".join([tree_of(self.project.repository.place(), origin), *self._circumstances(origin)])
        return key_of(tree, plans[0]) if plans else None

    def _circumstances(self, commit: str) -> tuple[str, ...]:
        """With another sandbox or a submodule more, a setup makes something else and checks find something else."""
        return (self.project.config.run.sandbox.value, *self._not_whole(commit))

    def _not_whole(self, commit: str) -> tuple[str, ...]:
        return tuple(visible(line) for line in what_is_not_whole(self.project.repository, commit))

    def reports(self, hear: Hear | None = None, *, anew: bool = False) -> tuple[BaseReport, ...]:
        """What the checks say about each root of the start; found out once for a commit and a plan."""
        base = self._known_before()
        planned = plans_for(self.project, self.package, base.start, base.start)
        return tuple(base._report(one, hear, anew=anew) for one in planned)

    def _known_before(self) -> Base:
        """Where only documents of features were added to the person's commit, that one is looked at: it is known."""
        if self.origin is None or self.origin == self.start:
            return self
        changed = differences(self.project.repository.place(), self.origin, self.start)
        are_documents = all(one.path.startswith(f"{self.project.config.paths.features}/") for one in changed)
        return Base(self.project, self.package, self.origin) if are_documents else self

    def _report(self, planned: CheckPlan, hear: Hear | None, *, anew: bool) -> BaseReport:
        plan = msgspec.structs.replace(planned.plan, code=())
        name = hashlib.sha256(
            msgspec.json.encode([self.start, plan, os.environ.get("PATH", ""), *self._circumstances(self.start)])
        ).hexdigest()
        path = self.project.location.folder / "baselines" / f"{name}.json"
        if not anew and (known := self._still_known(path, plan)) is not None:
            return known
        self.project.location.locks.mkdir(parents=True, mode=0o700, exist_ok=True)
        with repository_lock(self.project.location.locks, f"base-{name[:16]}", LONGEST_WAIT_S, self.project.stop):
            if not anew and (known := self._still_known(path, plan)) is not None:
                return known
            made = self._made(planned._replace(plan=plan), name[:16], hear)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            if self.keeps and not _is_passing_fault(made):
                replace_file(path, msgspec.json.encode(made))
            return made

    def _still_known(self, path: Path, plan: Plan) -> BaseReport | None:
        """What was found out before. Where its setup was dropped from the cache since, it is found out anew.

        Else every check of every package would set up for itself: only the person's own tree fills the cache.
        """
        known = _read(path)
        return known if known is None or not known.is_cached or self._is_cached(plan) else None

    def _is_cached(self, plan: Plan) -> bool:
        kept = self.kept_for(self.start, plan)
        return kept is not None and kept.fills and self.cache.entry(kept.key) is not None

    def _made(self, planned: CheckPlan, name: str, hear: Hear | None) -> BaseReport:
        room = self.project.location.folder / "rooms" / f"base-{name}"
        logs = self.project.location.folder / "checks" / f"{self.start[:12]}-{name}"
        for folder in (room, logs):
            if folder.exists():
                remove_tree(folder)
            folder.mkdir(parents=True, mode=0o700)
        export(self.project.repository, self.start, room / "tree", with_git=True)
        runner = runner_in(self.project, room / "job", "base", hear)
        kept, is_persons = self.kept_for(self.start, planned.plan), self.start == self.origin
        bench = Bench(planned.plan, room / "tree", runner, kept, is_persons=is_persons, logs=logs)
        checks = [*bench.checks(asked(planned.plan)), *_few_tests(bench)]
        remove_tree(room)
        made = _reported(self.start, planned, bench, tuple(checks), logs, self._not_whole(self.start))
        return msgspec.structs.replace(made, is_cached=self._is_cached(planned.plan))


def runner_in(project: Project, folder: Path, kind: str, hear: Hear | None = None) -> Runner:
    """A build may ask git for its version: the clean checkout's git borrows the objects of the repository."""
    stores, tag = tuple(object_stores(project.repository)), f"{kind}-{project.clock.new_id()}"
    level, hosts = wanted_level(project), project.config.run.setup_hosts
    run = CagedRunner(folder, tag, level, project.stop, stores, job_limits(project), hosts)

    def shown(command: Command, /) -> CommandRan:
        """Who watches sees what runs and for how long."""
        if hear is not None:
            hear(command.purpose, command.argv[-1])
        project.commands[tag] = RunningCommand(command.purpose, project.clock.monotonic_s())
        try:
            return run(command)
        finally:
            project.commands.pop(tag, None)

    return shown


def _read(path: Path) -> BaseReport | None:
    try:
        return read_json(path.read_bytes(), BaseReport)
    except (OSError, msgspec.DecodeError):
        return None


def _is_passing_fault(report: BaseReport) -> bool:
    """What may be another tomorrow is asked again: a network, a lock."""
    return any(check.fault is not None and check.fault.is_transient for check in report.failures)


def _reported(
    commit: str,
    planned: CheckPlan,
    bench: Bench,
    checks: tuple[Check, ...],
    logs: Path,
    more: tuple[str, ...],
) -> BaseReport:
    detected, plan = planned.detected, planned.plan
    setup = bench.set_up.candidate if bench.set_up else None
    commands = {purpose: line for purpose, line in plan.commands.items() if purpose in [check.name for check in checks]}
    reasons = {**plan.reasons}
    if setup is not None and setup.run:
        commands[Purpose.SETUP], reasons[Purpose.SETUP] = setup.run, setup.why
    if setup is not None and setup.test:
        commands[Purpose.TEST] = setup.test
    return BaseReport(
        commit=commit,
        root=plan.root,
        profile=detected.profile if detected else "",
        name=detected.name if detected else "",
        commands=commands,
        reasons=reasons,
        notes=(*(detected.notes if detected else ()), *more),
        checks=checks,
        logs=str(logs),
        test_functions=plan.test_functions,
    )


def _few_tests(bench: Bench) -> list[Check]:
    """Far fewer tests than test functions is no success, green or not."""
    functions, found = bench.plan.test_functions, bench.set_up.found if bench.set_up else None
    if not functions or found is None or found.tests >= FEW * functions:
        return []
    what = f"the test command finds {found.tests} tests, the test files have {functions} test functions"
    return [
        failed(
            TESTS_FOUND,
            what,
            'Set the command that runs all of them: test = "..." in [checks.PROFILE] of phasegate.toml.',
        )
    ]


def refuse_unsound(project: Project, report: BaseReport) -> None:
    """Say what no agent can fix before one is paid: a failing setup, tests that cannot run, a red base if asked."""
    setup, test = report.check(Purpose.SETUP), report.check(Purpose.TEST)
    if setup is not None and setup.outcome is Outcome.FAILED:
        raise _unsound(
            report,
            setup,
            f'{setup.remedy} Or set your own: setup = "..." in {_table(report)} of phasegate.toml.',
        )
    if test is not None and test.outcome is Outcome.FAILED and _ran_none(test) and _cannot_run(report, test):
        raise _unsound(
            report, test, f'set test = "..." in {_table(report)} of phasegate.toml; an empty one asks for none'
        )
    if (few := report.check(TESTS_FOUND)) is not None:
        raise _unsound(report, few, f'set test = "..." in {_table(report)} of phasegate.toml; what you set is believed')
    if project.config.already_failing is AlreadyFailing.STOP and report.failures:
        names = ", ".join(check.name for check in report.failures)
        raise EnvironmentUnavailable(
            f"these checks fail before the work begins: {names}",
            'fix them, or set already_failing = "tolerate" in [checks]; `phasegate check` shows each',
        )


def _ran_none(test: Check) -> bool:
    return test.tests is None or not test.tests.executed


def _cannot_run(report: BaseReport, test: Check) -> bool:
    """Whether the tests that are there cannot be run. A script of the repository's own may be the agent's to write."""
    return bool(report.test_functions) or (test.fault is Fault.NO_PROGRAM and "/" not in test.summary)


def _table(report: BaseReport) -> str:
    return f'[checks.NAME] with root = "{report.root}"' if report.root else f"[checks.{report.profile or 'NAME'}]"


def _unsound(report: BaseReport, check: Check, hint: str) -> EnvironmentUnavailable:
    line = report.commands.get(check.name, "")
    offline = (
        "the setup could not reach the network, so nothing was tested"
        if check.fault is Fault.NETWORK
        else f"{check.name} fails on the base: {check.summary}"
    )
    tail = "\n".join(f"    {line}" for line in check.excerpt.splitlines()[-8:])
    told = f"\n  whole output: {check.log}" if check.log else ""
    notes = "".join(f"\n  note: {note}" for note in report.notes if check.name == Purpose.SETUP)
    return EnvironmentUnavailable(f"{offline}: {line}\n{tail}".rstrip(": \n") + told + notes, hint)
