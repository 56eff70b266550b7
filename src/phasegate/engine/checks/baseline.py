"""Setup and all checks on a tree before any work is done on it.

Without an agent, in a clean checkout, in the cage.

What it finds is kept: `phasegate check` shows it, `run` and `dispatch` know it before the first
agent is paid, and every later check is compared with it. The first run on a tree that no agent
wrote also fills the cache of setups.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.checks.baseline import Baseline, build_baseline
from phasegate.checks.command_runner import SandboxedRunner
from phasegate.checks.commands import PlanRunner, is_plain_folder
from phasegate.checks.evidence import CheckOutcome, CheckResult, failed_check
from phasegate.checks.manifest import get_requested_purposes
from phasegate.checks.plan import Command, CommandPlan, CommandResult, CommandRunner, Purpose
from phasegate.checks.setup import MIN_COLLECTED_RATIO, SetupCacheSlot
from phasegate.checks.setup_cache import SetupCache, find_programs, make_cache_key
from phasegate.config.settings import AlreadyFailingPolicy
from phasegate.core.display.activity import RunningCommand
from phasegate.core.machine.retry import Fault
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.checks.plan import CheckPlan, make_check_plans
from phasegate.engine.checks.setup_inputs import find_setup_inputs
from phasegate.engine.project.job_limits import get_sandbox_level, make_job_limits
from phasegate.engine.project.project import Project
from phasegate.errors import EnvironmentUnavailable
from phasegate.files.durable_write import replace_file
from phasegate.storage.lock import named_lock
from phasegate.typed import read_json
from phasegate.workspace.agent_git_writer import list_object_stores
from phasegate.workspace.checkout_creation import NO_PLACED_FILES, PlacedFiles
from phasegate.workspace.commit_log import find_latest_user_commit
from phasegate.workspace.export import export_tree
from phasegate.workspace.refs import BRANCH_PREFIX
from phasegate.workspace.removal import remove_tree
from phasegate.workspace.repository import read_refs
from phasegate.workspace.submodules import describe_incomplete_content
from phasegate.workspace.tree_diff import diff_trees, resolve_tree

# Another package takes the same baseline meanwhile; a lock never outlives its process
BASELINE_LOCK_TIMEOUT_S = 6 * 3600.0
TESTS_FOUND = "tests found"
_MAX_OUTPUT_LINES = 12
# What a command is for, and its line
OnCommand = Callable[[str, str], None]


class CheckRow(NamedTuple):
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
    # The lines that matter
    output: tuple[str, ...]

    @property
    def is_failed(self) -> bool:
        return self.outcome == CheckOutcome.FAILED

    @property
    def is_asked(self) -> bool:
        return self.outcome != CheckOutcome.NOT_REQUESTED


class BaselineReport(msgspec.Struct, frozen=True, kw_only=True):
    """What our checks say about a root of a tree that work begins from."""

    commit: str
    root: str = ""
    profile: str
    name: str
    # Those that were run, by purpose
    commands: dict[str, str]
    reasons: dict[str, str]
    notes: tuple[str, ...]
    checks: tuple[CheckResult, ...]
    logs: str
    test_functions: int | None = None
    # Its setup, when this was found out
    is_cached: bool = False

    @property
    def baseline(self) -> Baseline:
        return build_baseline(check for check in self.checks if check.name != TESTS_FOUND)

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        return tuple(check for check in self.checks if check.outcome is CheckOutcome.FAILED)

    def find_check(self, name: str) -> CheckResult | None:
        return next((check for check in self.checks if check.name == name), None)


# Made here, in one thread: of two that decode a type for the first time, one can see it half made,
# and crash.


def make_check_rows(report: BaselineReport) -> tuple[CheckRow, ...]:
    """Each check with its command, why it was chosen, and the lines of output that matter."""
    return tuple(
        CheckRow(
            root=report.root,
            name=one.name,
            outcome=str(one.outcome),
            summary=one.summary,
            command=report.commands.get(one.name, ""),
            why=report.reasons.get(one.name, ""),
            tests=one.tests.executed if one.tests else None,
            failing=one.tests.failing if one.tests else (),
            duration_s=one.duration_s,
            remedy=one.remedy,
            notes=one.notes,
            log=one.log,
            output=_select_output_lines(one),
        )
        for one in report.checks
    )


def _select_output_lines(one: CheckResult) -> tuple[str, ...]:
    """The names of failing tests, else the last words."""
    if one.tests is not None and one.tests.failing:
        return one.tests.failing[:_MAX_OUTPUT_LINES]
    return tuple(line for line in one.excerpt.splitlines() if line.strip())[-_MAX_OUTPUT_LINES:]


def check_branch(
    project: Project, branch: str, on_command: OnCommand, *, force: bool
) -> tuple[BaselineReport, ...]:
    """Check the head of a branch of the person's, at each of its roots."""
    commit = read_refs(project.repository, BRANCH_PREFIX + branch)[BRANCH_PREFIX + branch]
    return make_whole_base(project, commit).get_reports(on_command, force=force)


def make_whole_base(project: Project, commit: str) -> BaseTree:
    """A commit of the person's with all its roots, without a package."""
    whole = WorkPackage(work_package_id="base", title="", feature_slug="base", file_scope=())
    return BaseTree(project, whole, commit)


class BaseTree:
    """The tree that the work on a package begins from, and the person's tree that it goes back to."""

    def __init__(self, project: Project, package: WorkPackage, start: str) -> None:
        self.project = project
        self.package = package
        self.start = start
        self.cache = SetupCache(project.location.data_folder / "setups")
        # The report, for later
        self.keeps_report = True
        # A tree that no agent wrote. None where history does not tell: then nothing is kept, and
        # nothing is trusted.
        self.user_commit = find_latest_user_commit(project.repository, start, package.feature_slug)

    def find_setup_place(self, commit: str, plan: CommandPlan) -> SetupCacheSlot | None:
        """Where the setup of a commit's tree lies.

        That of the person's tree, if nothing that it reads was changed.
        """
        if self.user_commit is None:
            return None

        key = self._make_setup_key(self.user_commit, plan.root)
        if key is None:
            return None
        if commit == self.user_commit:
            return SetupCacheSlot(self.cache, key, may_fill=True)

        changed = {
            one.path
            for one in diff_trees(self.project.repository.place(), self.user_commit, commit)
        }
        if changed & find_setup_inputs(self.project, (self.user_commit, commit), plan):
            return None
        if self.cache.find_entry(key) is None and self.start != self.user_commit:
            # It fills the cache
            BaseTree(self.project, self.package, self.user_commit).get_reports()

        return SetupCacheSlot(self.cache, key)

    def copy_setup(self, folder: Path, final_folder: Path) -> PlacedFiles:
        """Copy what the setups made of the person's tree into a checkout of `start` that will be
        moved to `home`.
        """
        laid = NO_PLACED_FILES

        for plan in [
            one.plan for one in make_check_plans(self.project, self.package, self.start, self.start)
        ]:
            if self.user_commit:
                key = self._make_setup_key(self.user_commit, plan.root)
            else:
                key = None

            is_there = is_plain_folder(folder, plan.root)
            if key and is_there:
                made = self.cache.copy_into(key, folder / plan.root, final_folder / plan.root)
            else:
                made = None

            if made is not None:
                paths = tuple(f"{plan.root}/{path}".lstrip("/") for path in made[1])
                laid = PlacedFiles(
                    (*laid.paths, *paths),
                    (*laid.programs, *find_programs(folder, paths, plan.bin_folders)),
                )

        return laid

    def _make_setup_key(self, commit: str, root: str) -> str | None:
        """The name of a root's setup in the person's tree; None if it is none there."""
        plans = [
            one.plan
            for one in make_check_plans(self.project, self.package, commit, commit)
            if one.plan.root == root
        ]
        tree = " ".join(
            [resolve_tree(self.project.repository.place(), commit), *self._list_environment(commit)]
        )
        if plans:
            return make_cache_key(tree, plans[0])

        return None

    def _list_environment(self, commit: str) -> tuple[str, ...]:
        """With another sandbox or a submodule more, a setup makes something else and checks find
        something else.
        """
        return (self.project.config.run.sandbox.value, *self._list_incomplete_submodules(commit))

    def _list_incomplete_submodules(self, commit: str) -> tuple[str, ...]:
        return tuple(
            escape_unprintable(line)
            for line in describe_incomplete_content(self.project.repository, commit)
        )

    def get_reports(
        self, on_command: OnCommand | None = None, *, force: bool = False
    ) -> tuple[BaselineReport, ...]:
        """What the checks say about each root of the start; found out once for a commit and a plan."""
        base = self._find_known_base()
        planned = make_check_plans(self.project, self.package, base.start, base.start)
        return tuple(base._get_report(one, on_command, force=force) for one in planned)

    def _find_known_base(self) -> BaseTree:
        """Where only documents of features were added to the person's commit, that one is looked
        at: it is known.
        """
        if self.user_commit is None or self.user_commit == self.start:
            return self

        changed = diff_trees(self.project.repository.place(), self.user_commit, self.start)
        are_documents = all(
            one.path.startswith(f"{self.project.config.paths.features}/") for one in changed
        )
        if are_documents:
            return BaseTree(self.project, self.package, self.user_commit)

        return self

    def _get_report(
        self, planned: CheckPlan, on_command: OnCommand | None, *, force: bool
    ) -> BaselineReport:
        plan = msgspec.structs.replace(planned.plan, code=())
        name = hashlib.sha256(
            msgspec.json.encode(
                [self.start, plan, os.environ.get("PATH", ""), *self._list_environment(self.start)]
            )
        ).hexdigest()
        path = self.project.location.data_folder / "baselines" / f"{name}.json"
        if not force and (known := self._read_valid_report(path, plan)) is not None:
            return known

        self.project.location.locks_folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        with named_lock(
            self.project.location.locks_folder,
            f"base-{name[:16]}",
            BASELINE_LOCK_TIMEOUT_S,
            self.project.stop,
        ):
            if not force and (known := self._read_valid_report(path, plan)) is not None:
                return known

            made = self._make_report(planned._replace(plan=plan), name[:16], on_command)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            if self.keeps_report and not _has_transient_fault(made):
                replace_file(path, msgspec.json.encode(made))

            return made

    def _read_valid_report(self, path: Path, plan: CommandPlan) -> BaselineReport | None:
        """What was found out before.

        Where its setup was dropped from the cache since, it is found out anew.

        Else every check of every package would set up for itself: only the person's own tree fills
        the cache.
        """
        known = _read_report(path)
        if known is None or not known.is_cached or self._is_setup_cached(plan):
            return known
        return None

    def _is_setup_cached(self, plan: CommandPlan) -> bool:
        kept = self.find_setup_place(self.start, plan)
        return kept is not None and kept.may_fill and self.cache.find_entry(kept.key) is not None

    def _make_report(
        self, planned: CheckPlan, name: str, on_command: OnCommand | None
    ) -> BaselineReport:
        room = self.project.location.data_folder / "rooms" / f"base-{name}"
        logs = self.project.location.data_folder / "checks" / f"{self.start[:12]}-{name}"
        for folder in (room, logs):
            if folder.exists():
                remove_tree(folder)

            folder.mkdir(parents=True, mode=0o700)

        export_tree(self.project.repository, self.start, room / "tree", with_git=True)
        runner = make_runner(self.project, room / "job", "base", on_command)
        kept = self.find_setup_place(self.start, planned.plan)
        is_persons = self.start == self.user_commit
        bench = PlanRunner(
            planned.plan, room / "tree", runner, kept, is_user_tree=is_persons, logs=logs
        )
        checks = [
            *bench.run_checks(get_requested_purposes(planned.plan)),
            *_check_test_count(bench),
        ]
        remove_tree(room)
        made = _build_report(
            self.start,
            planned,
            bench,
            tuple(checks),
            logs,
            self._list_incomplete_submodules(self.start),
        )

        return msgspec.structs.replace(made, is_cached=self._is_setup_cached(planned.plan))


def make_runner(
    project: Project, folder: Path, kind: str, on_command: OnCommand | None = None
) -> CommandRunner:
    """A build may ask git for its version.

    The clean checkout's git borrows the objects of the repository.
    """
    stores = tuple(list_object_stores(project.repository))
    tag = f"{kind}-{project.clock.new_id()}"
    level = get_sandbox_level(project)
    hosts = project.config.run.setup_allowed_hosts
    run = SandboxedRunner(folder, tag, level, project.stop, stores, make_job_limits(project), hosts)

    def shown(command: Command, /) -> CommandResult:
        """Who watches sees what runs and for how long."""
        if on_command is not None:
            on_command(command.purpose, command.argv[-1])

        project.running_commands[tag] = RunningCommand(command.purpose, project.clock.monotonic_s())
        try:
            return run(command)
        finally:
            project.running_commands.pop(tag, None)

    return shown


def _read_report(path: Path) -> BaselineReport | None:
    try:
        return read_json(path.read_bytes(), BaselineReport)
    except (OSError, msgspec.DecodeError):
        return None


def _has_transient_fault(report: BaselineReport) -> bool:
    """What may be another tomorrow is asked again: a network, a lock."""
    return any(check.fault is not None and check.fault.is_transient for check in report.failures)


def _build_report(
    commit: str,
    planned: CheckPlan,
    bench: PlanRunner,
    checks: tuple[CheckResult, ...],
    logs: Path,
    extra_notes: tuple[str, ...],
) -> BaselineReport:
    detected = planned.detected
    plan = planned.plan
    if bench.setup_result:
        setup = bench.setup_result.candidate
    else:
        setup = None

    commands = {
        purpose: line
        for purpose, line in plan.commands.items()
        if purpose in [check.name for check in checks]
    }
    reasons = {**plan.reasons}
    if setup is not None and setup.command:
        commands[Purpose.SETUP], reasons[Purpose.SETUP] = setup.command, setup.why
    if setup is not None and setup.test_command:
        commands[Purpose.TEST] = setup.test_command

    return BaselineReport(
        commit=commit,
        root=plan.root,
        profile=detected.profile if detected else "",
        name=detected.name if detected else "",
        commands=commands,
        reasons=reasons,
        notes=(*(detected.notes if detected else ()), *extra_notes),
        checks=checks,
        logs=str(logs),
        test_functions=plan.test_functions,
    )


def _check_test_count(bench: PlanRunner) -> list[CheckResult]:
    """Far fewer tests than test functions is no success, green or not."""
    functions = bench.plan.test_functions
    if bench.setup_result:
        found = bench.setup_result.collected
    else:
        found = None

    if not functions or found is None or found.tests >= MIN_COLLECTED_RATIO * functions:
        return []

    what = f"the test command finds {found.tests} tests, the test files have {functions} test functions"
    return [
        failed_check(
            TESTS_FOUND,
            what,
            'Set the command that runs all of them: test = "..." in [checks.PROFILE] of phasegate.toml.',
        )
    ]


def refuse_unusable_base(project: Project, report: BaselineReport) -> None:
    """Say what no agent can fix before one is paid.

    A failing setup, tests that cannot run, a red base if asked.
    """
    setup = report.find_check(Purpose.SETUP)
    test = report.find_check(Purpose.TEST)

    if setup is not None and setup.outcome is CheckOutcome.FAILED:
        raise _make_base_error(
            report,
            setup,
            f'{setup.remedy} Or set your own: setup = "..." in {_name_config_table(report)} of phasegate.toml.',
        )

    if (
        test is not None
        and test.outcome is CheckOutcome.FAILED
        and _ran_no_tests(test)
        and _has_unrunnable_tests(report, test)
    ):
        raise _make_base_error(
            report,
            test,
            f'set test = "..." in {_name_config_table(report)} of phasegate.toml; an empty one asks for none',
        )

    if (few := report.find_check(TESTS_FOUND)) is not None:
        raise _make_base_error(
            report,
            few,
            f'set test = "..." in {_name_config_table(report)} of phasegate.toml; what you set is believed',
        )

    if project.config.already_failing is AlreadyFailingPolicy.STOP and report.failures:
        names = ", ".join(check.name for check in report.failures)
        raise EnvironmentUnavailable(
            f"these checks fail before the work begins: {names}",
            'fix them, or set already_failing = "tolerate" in [checks]; `phasegate check` shows each',
        )


def _ran_no_tests(test: CheckResult) -> bool:
    return test.tests is None or not test.tests.executed


def _has_unrunnable_tests(report: BaselineReport, test: CheckResult) -> bool:
    """Whether the tests that are there cannot be run.

    A script of the repository's own may be the agent's to write.
    """
    return bool(report.test_functions) or (
        test.fault is Fault.NO_PROGRAM and "/" not in test.summary
    )


def _name_config_table(report: BaselineReport) -> str:
    if report.root:
        return f'[checks.NAME] with root = "{report.root}"'
    return f"[checks.{report.profile or 'NAME'}]"


def _make_base_error(
    report: BaselineReport, check: CheckResult, hint: str
) -> EnvironmentUnavailable:
    line = report.commands.get(check.name, "")
    if check.fault is Fault.NETWORK:
        offline = "the setup could not reach the network, so nothing was tested"
    else:
        offline = f"{check.name} fails on the base: {check.summary}"

    tail = "\n".join(f"    {line}" for line in check.excerpt.splitlines()[-8:])
    if check.log:
        told = f"\n  whole output: {check.log}"
    else:
        told = ""

    notes = "".join(f"\n  note: {note}" for note in report.notes if check.name == Purpose.SETUP)
    return EnvironmentUnavailable(f"{offline}: {line}\n{tail}".rstrip(": \n") + told + notes, hint)
