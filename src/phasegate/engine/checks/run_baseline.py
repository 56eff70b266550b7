"""Run the setup and all checks on a tree before any work is done on it.

No agent is involved; the commands run in the sandbox, in a clean checkout. The results are stored:
`phasegate check` shows them, `run` and `dispatch` use them before the first agent costs money, and
later checks are compared with them. The first run on a tree without agents' work also fills the
cache of setups.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from phasegate.checks.baseline import Baseline, build_baseline
from phasegate.checks.command_runner import SandboxedRunner
from phasegate.checks.commands import PlanRunner, is_plain_folder
from phasegate.checks.evidence import CheckOutcome, CheckResult, failed_check
from phasegate.checks.manifest import get_requested_purposes
from phasegate.checks.plan import Command, CommandPlan, CommandResult, CommandRunner, Purpose
from phasegate.checks.setup import MIN_COLLECTED_RATIO, SetupCacheSlot, SetupResult
from phasegate.checks.setup_cache import SetupCache, find_programs, make_cache_key
from phasegate.config.settings import AlreadyFailingPolicy
from phasegate.core.detection.model import describe_command
from phasegate.core.display.activity import RunningCommand
from phasegate.core.machine.retry import Fault
from phasegate.core.paths.scope import Scope
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.test_strength.paths import is_code, is_test_path
from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.checks.flaky import Quarantine
from phasegate.engine.checks.known_checks import (
    KnownChecks,
    export_for_checks,
    hash_code_tree,
    list_known_checks,
)
from phasegate.engine.checks.plan import CheckPlan, make_check_plans
from phasegate.engine.checks.setup_inputs import find_setup_inputs
from phasegate.engine.project.project import Project
from phasegate.engine.project.resource_limits import get_sandbox_level, make_job_limits
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.sandbox.run_program import MIB
from phasegate.storage.lock import named_lock
from phasegate.typed import read_json
from phasegate.workspace.checkout.checkout_creation import NO_PLACED_FILES, PlacedFiles
from phasegate.workspace.checkout.removal import remove_tree
from phasegate.workspace.checkout.submodules import describe_incomplete_content
from phasegate.workspace.checkout.visible_objects import get_visible_objects_folder
from phasegate.workspace.repository.commit_log import find_latest_user_commit, list_blobs
from phasegate.workspace.repository.objects import NewCommit, write_commits
from phasegate.workspace.repository.refs import BRANCH_PREFIX
from phasegate.workspace.repository.repository import read_refs
from phasegate.workspace.repository.tree_diff import diff_trees

# Another package may make the same baseline at the same time. A lock never outlives its process.
BASELINE_LOCK_TIMEOUT_S = 6 * 3600.0
TESTS_FOUND = "tests found"
# What `init` writes
INIT_PATHS = ("phasegate.toml", ".agentd", "agentd")
_MAX_OUTPUT_LINES = 12
# Part of the key of stored reports: raise it when a report contains more
_REPORT_VERSION = 2
# Arguments: purpose and command line
OnCommand = Callable[[str, str], None]


class CheckRow(NamedTuple):
    """One check of the base commit, for display."""

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
    # The relevant lines
    output: tuple[str, ...]

    @property
    def is_failed(self) -> bool:
        return self.outcome == CheckOutcome.FAILED

    @property
    def is_asked(self) -> bool:
        return self.outcome != CheckOutcome.NOT_REQUESTED


class BaselineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the checks at one root of the tree that work starts from."""

    commit: str
    root: str = ""
    profile: str
    name: str
    # Commands that ran, by purpose
    commands: dict[str, str]
    reasons: dict[str, str]
    notes: tuple[str, ...]
    checks: tuple[CheckResult, ...]
    logs: str
    test_functions: int | None = None
    # True if the setup was in the cache when the report was made
    is_cached: bool = False

    @property
    def baseline(self) -> Baseline:
        return build_baseline(check for check in self.checks if check.name != TESTS_FOUND)

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        return tuple(check for check in self.checks if check.outcome is CheckOutcome.FAILED)

    def find_check(self, name: str) -> CheckResult | None:
        return next((check for check in self.checks if check.name == name), None)


def make_check_rows(report: BaselineReport) -> tuple[CheckRow, ...]:
    """Return every check with its command, why it was chosen, and the relevant output."""
    return tuple(
        CheckRow(
            root=report.root,
            name=check.name,
            outcome=str(check.outcome),
            summary=check.summary,
            command=describe_command(report.commands.get(check.name, "")),
            why=report.reasons.get(check.name, ""),
            tests=check.tests.executed if check.tests else None,
            failing=check.tests.failing if check.tests else (),
            duration_s=check.duration_s,
            remedy=check.remedy,
            notes=check.notes,
            log=check.log,
            output=_select_output_lines(check),
        )
        for check in report.checks
    )


def _select_output_lines(check: CheckResult) -> tuple[str, ...]:
    """Return the names of the failing tests, or else the last lines of the output."""
    if check.tests is not None and check.tests.failing:
        return check.tests.failing[:_MAX_OUTPUT_LINES]
    return tuple(line for line in check.excerpt.splitlines() if line.strip())[-_MAX_OUTPUT_LINES:]


def check_branch(
    project: Project, branch: str, on_command: OnCommand, *, force: bool
) -> tuple[BaselineReport, ...]:
    """Check the head of a branch of the user, at each of its roots."""
    commit = read_refs(project.repository, BRANCH_PREFIX + branch)[BRANCH_PREFIX + branch]
    reports = make_whole_base(project, commit).get_reports(on_command, force=force)
    if not any(report.failures for report in reports):
        return reports
    return _compare_without_own_files(project, commit, reports, on_command)


def _compare_without_own_files(
    project: Project,
    commit: str,
    reports: tuple[BaselineReport, ...],
    on_command: OnCommand,
) -> tuple[BaselineReport, ...]:
    """Repeat failed checks without the files that `init` added, and note which ones pass then."""
    paths = list_blobs(project.repository, commit)
    own = [path for path in paths if Scope(INIT_PATHS).covers(path)]
    if not own:
        return reports

    signature = project.make_signature()
    (stripped,) = write_commits(
        project.repository,
        [
            NewCommit(
                parents=(commit,),
                author=signature,
                committer=signature,
                message="Without the files of init\n",
                paths=dict.fromkeys(own),
            )
        ],
    )
    base = make_whole_base(project, stripped)
    base.keeps_report = False
    passed = {
        (report.root, check.name)
        for report in base.get_reports(on_command)
        for check in report.checks
        if check.outcome is CheckOutcome.PASSED
    }
    return tuple(
        replace(report, notes=(*report.notes, *_name_broken_by_init(report, passed, own)))
        for report in reports
    )


def _name_broken_by_init(
    report: BaselineReport, passed: Collection[tuple[str, str]], own: Sequence[str]
) -> Iterator[str]:
    for check in report.failures:
        if (report.root, check.name) in passed:
            files = ", ".join(own)
            yield f"{check.name} passes without {files}: move what breaks it, or set [paths]"


def make_whole_base(project: Project, commit: str) -> BaseTree:
    """Return the base tree of a commit of the user, with all its roots."""
    whole = WorkPackage(work_package_id="base", title="", feature_slug="base", file_scope=())
    return BaseTree(project, whole, commit)


class BaseTree:
    """The tree that work on a package starts from, and the user's tree that it is based on."""

    def __init__(self, project: Project, package: WorkPackage, base_commit: str) -> None:
        self.project = project
        self.package = package
        self.base_commit = base_commit
        self.cache = SetupCache(
            project.location.data_folder / "setups", project.config.limits.setup_cache_mib * MIB
        )
        # Whether reports are stored for later runs
        self.keeps_report = True
        # The latest commit without agents' work. If the history does not show it, it is None, and
        # nothing is cached or trusted.
        self.user_commit = find_latest_user_commit(
            project.repository, base_commit, package.feature_slug
        )

    def find_setup_place(self, commit: str, plan: CommandPlan) -> SetupCacheSlot | None:
        """Return the cache slot for the setup of a commit.

        If no input of the setup has changed since the user's commit, the slot of that commit is
        used.
        """
        if self.user_commit is None:
            return None

        key = self._make_setup_key(self.user_commit, plan.root)
        if key is None:
            return None
        if commit == self.user_commit:
            return SetupCacheSlot(self.cache, key, may_fill=True)

        changes = diff_trees(self.project.repository.place(), self.user_commit, commit)
        changed = {change.path for change in changes}
        if changed & find_setup_inputs(self.project, (self.user_commit, commit), plan):
            return None
        if self.cache.find_entry(key) is None and self.base_commit != self.user_commit:
            # Fills the cache
            BaseTree(self.project, self.package, self.user_commit).get_reports()

        return SetupCacheSlot(self.cache, key)

    def copy_setup(self, folder: Path, final_folder: Path) -> PlacedFiles:
        """Copy the cached setups of the user's tree into a checkout of the base.

        The checkout will be moved to `final_folder`.
        """
        placed = NO_PLACED_FILES
        if not self.user_commit:
            return placed

        for check_plan in make_check_plans(
            self.project, self.package, self.base_commit, self.base_commit
        ):
            plan = check_plan.plan
            key = self._make_setup_key(self.user_commit, plan.root)
            if key is None or not is_plain_folder(folder, plan.root):
                continue

            copied = self.cache.copy_into(key, folder / plan.root, final_folder / plan.root)
            if copied is not None:
                paths = tuple(f"{plan.root}/{path}".lstrip("/") for path in copied[1])
                placed = PlacedFiles(
                    (*placed.paths, *paths),
                    (*placed.programs, *find_programs(folder, paths, plan.bin_folders)),
                )

        return placed

    def _make_setup_key(self, commit: str, root: str) -> str | None:
        """Return the cache key of a root's setup at a commit; None if the root does not exist."""
        plans = [
            one.plan
            for one in make_check_plans(self.project, self.package, commit, commit)
            if one.plan.root == root
        ]
        if not plans:
            return None

        blobs = list_blobs(self.project.repository, commit, include_links=False)
        inputs = sorted(find_setup_inputs(self.project, (commit,), plans[0]))
        parts = [f"{blobs[path]} {path}" for path in inputs]
        return make_cache_key("\n".join([*parts, *self._list_environment(commit)]), plans[0])

    def _list_environment(self, commit: str) -> tuple[str, ...]:
        """Return everything except the tree that can influence setup and check results.

        These are the sandbox level and the missing submodules.
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
        """Return a report for every root of the base commit; made once per commit and plan."""
        base = self._find_user_base()
        plans = make_check_plans(self.project, self.package, base.base_commit, base.base_commit)
        return tuple(base._get_report(plan, on_command, force=force) for plan in plans)

    def _find_user_base(self) -> BaseTree:
        """Return the base of the user's commit if it has the same code: it fills the cache."""
        user_commit = self.user_commit
        if user_commit is None or user_commit == self.base_commit:
            return self
        if hash_code_tree(self.project, user_commit) != hash_code_tree(
            self.project, self.base_commit
        ):
            return self
        return BaseTree(self.project, self.package, user_commit)

    def find_known_checks(self, commit: str, plan: CommandPlan) -> KnownChecks:
        """Return the recorded results of a plan's commands on the tree of a commit."""
        return KnownChecks(self.project, plan, commit, self._list_environment(commit))

    def _get_report(
        self, planned: CheckPlan, on_command: OnCommand | None, *, force: bool
    ) -> BaselineReport:
        """Return the baseline report of a root, from the cache unless `force` is set."""
        plan = replace(planned.plan, code=())
        planned = planned._replace(plan=plan)
        tree = hash_code_tree(self.project, self.base_commit)
        key = hashlib.sha256(
            msgspec.json.encode(
                [
                    _REPORT_VERSION,
                    tree,
                    plan,
                    os.environ.get("PATH", ""),
                    *self._list_environment(self.base_commit),
                ]
            )
        ).hexdigest()
        room = self.project.location.data_folder / "rooms" / f"base-{key[:16]}"
        known = None if force else self._find_known_report(key, planned)
        if known is not None and not room.exists():
            return known

        self.project.location.locks_folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        with named_lock(
            self.project.location.locks_folder,
            f"base-{key[:16]}",
            BASELINE_LOCK_TIMEOUT_S,
            self.project.stop,
        ):
            known = None if force else self._find_known_report(key, planned)
            if room.exists():
                # Left by a process that was killed after it had recorded the results
                remove_tree(room)
            if known is not None:
                return known

            report = self._make_report(planned, room, on_command, force=force)
            if self.keeps_report and not _has_transient_fault(report):
                digest = self.project.document_store.put(msgspec.json.encode(report))
                self.project.check_record.add(self.project.now(), {key: digest})

            return report

    def _find_known_report(self, key: str, planned: CheckPlan) -> BaselineReport | None:
        """Return the recorded report of this tree, or one made from the recorded results.

        Return None if the setup is not in the cache any more: only the user's own tree fills it,
        and every check of every package would run the setup itself.
        """
        report = None
        if digest := self.project.check_record.find(key):
            with suppress(StateConflict, msgspec.MsgspecError):
                report = read_json(self.project.document_store.get(digest), BaselineReport)

        if report is not None and (not report.is_cached or self._is_setup_cached(planned.plan)):
            return replace(report, commit=self.base_commit)
        if report is not None or not self._has_usable_setup(planned.plan):
            return None

        purposes = get_requested_purposes(planned.plan)
        results = self.find_known_checks(self.base_commit, planned.plan).find(purposes)
        checks = list_known_checks(planned.plan, purposes, results, None)
        if checks is None:
            return None

        notes = self._list_incomplete_submodules(self.base_commit)
        return _build_report(self.base_commit, planned, None, tuple(checks), None, notes)

    def _has_usable_setup(self, plan: CommandPlan) -> bool:
        """Return True if the plan needs no setup, or its result is in the cache."""
        if not plan.setups and not plan.commands.get(Purpose.SETUP, "").strip():
            return True
        slot = self.find_setup_place(self.base_commit, plan)
        return slot is not None and self.cache.find_entry(slot.key) is not None

    def _is_setup_cached(self, plan: CommandPlan) -> bool:
        slot = self.find_setup_place(self.base_commit, plan)
        return slot is not None and slot.may_fill and self.cache.find_entry(slot.key) is not None

    def _make_report(
        self, planned: CheckPlan, room: Path, on_command: OnCommand | None, *, force: bool
    ) -> BaselineReport:
        """Run setup and checks on an export of the base, and store the report."""
        name = room.name.removeprefix("base-")
        logs = self.project.location.data_folder / "checks" / f"{self.base_commit[:12]}-{name}"
        for folder in (room, logs):
            if folder.exists():
                remove_tree(folder)

            folder.mkdir(parents=True, mode=0o700)

        export_for_checks(self.project, self.base_commit, room / "tree")
        runner = make_runner(self.project, room / "job", "base", on_command)
        purposes = get_requested_purposes(planned.plan)
        known = self.find_known_checks(self.base_commit, planned.plan)
        plan_runner = PlanRunner(
            planned.plan,
            room / "tree",
            runner,
            self.find_setup_place(self.base_commit, planned.plan),
            is_user_tree=self.base_commit == self.user_commit,
            logs=logs,
            known_results={} if force else known.find(purposes),
            reports=room / "reports",
        )
        checks = [
            *plan_runner.run_checks(purposes),
            *_check_test_count(plan_runner),
        ]
        if self.keeps_report:
            known.record(plan_runner)
        Quarantine(self.project).add(test for check in checks for test in check.flaky)
        remove_tree(room)
        report = _build_report(
            self.base_commit,
            planned,
            plan_runner.setup_result,
            tuple(checks),
            logs,
            self._list_incomplete_submodules(self.base_commit),
        )

        return replace(report, is_cached=self._is_setup_cached(planned.plan))


def make_runner(
    project: Project, folder: Path, kind: str, on_command: OnCommand | None = None
) -> CommandRunner:
    """Return a runner for commands in the sandbox; `on_command` is called before each one.

    Commands can read the repository's git objects: the clean checkout borrows them, and a build
    may ask git for the project's version.
    """
    stores = (get_visible_objects_folder(project.repository),)
    tag = f"{kind}-{project.clock.new_id()}"
    level = get_sandbox_level(project)
    hosts = project.config.run.setup_allowed_hosts
    run = SandboxedRunner(
        folder,
        tag,
        level,
        project.stop,
        stores,
        make_job_limits(project),
        hosts,
        trust=project.trust,
    )

    def run_and_report(command: Command, /) -> CommandResult:
        """Show the command as running while it runs."""
        if on_command is not None:
            on_command(command.purpose, describe_command(command.argv[-1]))

        project.running_commands[tag] = RunningCommand(command.purpose, project.clock.monotonic_s())
        try:
            return run(command)
        finally:
            project.running_commands.pop(tag, None)

    return run_and_report


def _has_transient_fault(report: BaselineReport) -> bool:
    """Return True if a failure may be temporary, such as a network error or a lock."""
    return any(check.fault is not None and check.fault.is_transient for check in report.failures)


def _build_report(
    commit: str,
    planned: CheckPlan,
    setup_result: SetupResult | None,
    checks: tuple[CheckResult, ...],
    logs: Path | None,
    extra_notes: tuple[str, ...],
) -> BaselineReport:
    """Build the baseline report from the results of its commands."""
    detected = planned.detected
    plan = planned.plan
    setup = setup_result.candidate if setup_result else None

    names = [check.name for check in checks]
    commands = {purpose: line for purpose, line in plan.commands.items() if purpose in names}
    reasons = {**plan.reasons}
    if setup is not None and setup.command:
        commands[Purpose.SETUP] = setup.command
        reasons[Purpose.SETUP] = setup.why
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
        logs=str(logs or ""),
        test_functions=plan.test_functions,
    )


def _check_test_count(plan_runner: PlanRunner) -> list[CheckResult]:
    """Fail if the command collects far fewer tests than there are test functions."""
    functions = plan_runner.plan.test_functions
    collected = plan_runner.setup_result.collected if plan_runner.setup_result else None
    if not functions or collected is None or collected.tests >= MIN_COLLECTED_RATIO * functions:
        return []

    return [
        failed_check(
            TESTS_FOUND,
            f"the test command finds {collected.tests} tests, "
            f"the test files have {functions} test functions",
            'Set a command that runs all of them: test = "..." in [checks.PROFILE] of '
            "phasegate.toml.",
        )
    ]


def refuse_unusable_base(project: Project, report: BaselineReport) -> None:
    """Refuse a base with problems that no agent can fix, before paying for an agent.

    These are a failing setup, tests that cannot run and, if configured, any failing check.
    """
    setup = report.find_check(Purpose.SETUP)
    test = report.find_check(Purpose.TEST)
    table = f"{_name_config_table(report)} of phasegate.toml"

    if setup is not None and setup.outcome is CheckOutcome.FAILED:
        raise _make_base_error(
            report, setup, f'{setup.remedy} Or set your own: setup = "..." in {table}.'
        )

    if (
        test is not None
        and test.outcome is CheckOutcome.FAILED
        and _ran_no_tests(test)
        and _has_unrunnable_tests(project, report, test)
    ):
        raise _make_base_error(
            report,
            test,
            f'set test = "..." in {table}; an empty string disables the tests',
        )

    too_few = report.find_check(TESTS_FOUND)
    if too_few is not None:
        raise _make_base_error(
            report,
            too_few,
            f'set test = "..." in {table}; the number of tests is not checked then',
        )

    if project.config.already_failing is AlreadyFailingPolicy.STOP and report.failures:
        names = ", ".join(check.name for check in report.failures)
        raise EnvironmentUnavailable(
            f"these checks fail before the work starts: {names}",
            'fix them, or set already_failing = "tolerate" in [checks]; see `phasegate check`',
        )


def _ran_no_tests(test: CheckResult) -> bool:
    return test.tests is None or not test.tests.executed


def list_quarantine(project: Project) -> list[str]:
    """Describe the flaky tests that neither reject nor prove anything, with their history."""
    now_s = project.clock.time_s()
    return [
        f"{one.test}: passed {one.passed} times, failed {one.failed} times, "
        f"for {max(1, round((one.expires_s - now_s) / 86_400))} more days"
        for one in Quarantine(project).list_tests()
    ]


def _has_unrunnable_tests(project: Project, report: BaselineReport, test: CheckResult) -> bool:
    """Return True if existing tests cannot be run.

    A missing script of the repository does not count: the agent may have to write it.
    """
    if test.fault is Fault.NO_PROGRAM:
        return bool(report.test_functions) or "/" not in test.summary
    prefix = f"{report.root}/" if report.root else ""
    patterns = project.config.evidence.test_files
    return bool(report.test_functions) or any(
        path.startswith(prefix) and is_code(path) and is_test_path(path, patterns)
        for path in list_blobs(project.repository, report.commit)
    )


def _name_config_table(report: BaselineReport) -> str:
    if report.root:
        return f'[checks.NAME] with root = "{report.root}"'
    return f"[checks.{report.profile or 'NAME'}]"


def _make_base_error(
    report: BaselineReport, check: CheckResult, hint: str
) -> EnvironmentUnavailable:
    """Create the error for a check that fails on the base, with its last lines."""
    problem = f"{check.name} fails on the base: {check.summary}"
    if check.fault is Fault.NETWORK:
        problem = "the setup could not reach the network, so nothing was tested"

    command = describe_command(report.commands.get(check.name, ""))
    tail = "\n".join(f"    {line}" for line in check.excerpt.splitlines()[-8:])
    message = f"{problem}: {command}\n{tail}".rstrip(": \n")
    if check.log:
        message += f"\n  full output: {check.log}"
    if check.name == Purpose.SETUP:
        message += "".join(f"\n  note: {note}" for note in report.notes)

    return EnvironmentUnavailable(message, hint)
