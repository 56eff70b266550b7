"""Run the project's own commands in a clean checkout, and interpret their results."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from phasegate.checks.baseline import Baseline, compare_with_baseline, extract_findings
from phasegate.checks.coverage_report import (
    CoverageCounts,
    InvalidCoverageReport,
    find_uncounted_files,
    meets_threshold,
    read_coverage,
)
from phasegate.checks.evidence import (
    CheckOutcome,
    CheckResult,
    failed_check,
    not_requested_check,
    passed_check,
)
from phasegate.checks.excerpt import find_cause, format_names, make_excerpt, to_one_line
from phasegate.checks.failed_tests import describe_failed_tests
from phasegate.checks.plan import (
    Command,
    CommandPlan,
    CommandResult,
    CommandRunner,
    Purpose,
    RegistryAccessLevel,
)
from phasegate.checks.setup import SetupCacheSlot, SetupContext, SetupResult, run_setup
from phasegate.checks.snapshot import read_stamp, take_snapshot
from phasegate.checks.test_output import TestRun, parse_test_output
from phasegate.checks.test_report import (
    RunReport,
    add_reporter,
    can_select_tests,
    find_report_problem,
    merge_report,
    read_run_report,
    write_reporters,
)
from phasegate.core.detection.model import describe_command
from phasegate.core.machine.retry import Fault, classify_failure
from phasegate.core.test_strength.model import FlakyTest, TestOutcome
from phasegate.core.text.escapes import sanitize_for_terminal
from phasegate.core.text.wording import pluralize

_EXIT_NOT_EXECUTABLE = 126
_EXIT_NOT_FOUND = 127
_EXIT_PYTEST_NO_TESTS = 5
_NO_MODULE = re.compile(
    r"^\S{1,500}: No module named \S{1,200}$|^npm (?:ERR!|error) Missing script: ", re.M
)
_MISSING_PROGRAM = re.compile(
    r"(?:sh|bash|dash)(?: \d+|: line \d+|: \d+)?: (\S+): (?:command )?not found|No module named"
    r" '?([\w.]+)"
)
# Some linters also fail because of warnings, and report that: eslint in its last line, pylint in
# the bits of its exit status.
_ESLINT_COMMAND = re.compile(r"\b(?:eslint|npm|npx|pnpm|yarn|bun)\b")
_ESLINT_COUNTS = re.compile(
    r"^\u2716 [0-9]{1,8} problems? \(([0-9]{1,8}) errors?, [0-9]{1,8} warnings?\)$", re.M
)
_PYLINT_WARNING_BITS = 4 | 8 | 16
_MAX_SCRIPTS_CHARS = 200_000
# How often failed tests are run again alone, and how many at most
RERUNS_ALONE = 3
_MAX_RERUN_TESTS = 20
# Commands run unattended: no watch mode, hooks, browsers, or byte code next to the
# sources. Colours stay enabled, since a project's tests may depend on NO_COLOR; we strip them
# when parsing. One finding per line. Cargo and Go download into the checkout during the setup,
# where later commands find the files and the cache keeps them.
_TOOLS_FOLDER = ".phasegate-tools"
_ENVIRONMENT = {
    "CI": "1",
    "HUSKY": "0",
    "PUPPETEER_SKIP_DOWNLOAD": "1",
    "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1",
    "CYPRESS_INSTALL_BINARY": "0",
    "RUFF_OUTPUT_FORMAT": "concise",
    "UV_PYTHON_DOWNLOADS": "never",
    "PYTHONDONTWRITEBYTECODE": "1",
    "GOFLAGS": "-modcacherw",
    # pnpm would stop if it is not exactly the version in `packageManager`.
    "pnpm_config_pm_on_fail": "ignore",
}


class PlanRunner:
    """Runs the commands of one plan, one after the other, in a clean checkout."""

    def __init__(
        self,
        plan: CommandPlan,
        checkout: Path,
        run: CommandRunner,
        cache_slot: SetupCacheSlot | None = None,
        baseline: Baseline | None = None,
        *,
        is_user_tree: bool = False,
        logs: Path | None = None,
        known_results: Mapping[str, CheckResult] = MappingProxyType({}),
        reports: Path | None = None,
    ) -> None:
        """Prepare to run the commands of a plan.

        Set `is_user_tree` if no agent wrote the tree: then its setup may reach registries with
        credentials. `logs` is a folder for the complete output of each command, `reports` one for
        the reports of test runs; without it, only the output of test runs is read. Commands with
        `known_results` on this tree are not run, by purpose.
        """
        self.plan = plan
        self._run = run
        self._cache_slot = cache_slot
        self._baseline = baseline
        self.whole_checkout = checkout
        self.checkout = checkout / plan.root
        if is_user_tree:
            self._access = RegistryAccessLevel.USER
        else:
            self._access = RegistryAccessLevel.ANONYMOUS

        self._logs = logs
        # Several roots may share a folder of logs
        self._log_prefix = f"{plan.root.replace('/', '-')}-" if plan.root else ""
        self._reports = reports
        self._test_runs = 0
        self._setup_attempts = 0
        self.setup_result: SetupResult | None = None
        self._known_results = known_results
        # Results of the commands that ran, by purpose, not yet compared with the baseline
        self.raw_results: dict[str, CheckResult] = {}
        self._root_exists = is_plain_folder(checkout, plan.root)
        if self._root_exists:
            self.initial_files = take_snapshot(self.checkout)
        else:
            self.initial_files = {}

        self._report_stamps = {
            path: read_stamp(self.checkout / path)
            for path in plan.coverage_reports
            if self._root_exists
        }

    def run_checks(self, purposes: Collection[str] = tuple(Purpose)) -> list[CheckResult]:
        """Run the commands for these purposes, setup first.

        A command that cannot run because another one failed is a failure too.
        """
        done: dict[str, CheckResult] = {}

        for purpose in Purpose:
            if purpose in purposes or purpose is Purpose.SETUP:
                raw = self._known_results.get(purpose)
                if raw is None:
                    raw = self._with_log(self._run_check(purpose, done))
                    self.raw_results[purpose] = raw

                done[purpose] = compare_result(raw, self.plan, self._baseline)

        return [add_root(check, self.plan) for check in done.values()]

    def _with_log(self, check: CheckResult) -> CheckResult:
        if self._logs:
            path = self._logs / f"{self._log_prefix}{check.name}.log"
        else:
            path = None

        if path and path.exists():
            return replace(check, log=str(path))
        return check

    def run_custom_command(self, line: str, *, network: bool = True) -> CheckResult:
        """Run a command line of the user, which may need the network.

        Exit status 0 is a pass.
        """
        return self._check_from_status(line, line, self._run_command(line, line, network=network))

    def _run_check(self, purpose: Purpose, done: dict[str, CheckResult]) -> CheckResult:
        """Run one check of the plan; `done` has the results of earlier checks."""
        if purpose is Purpose.SETUP:
            return self._run_setup()

        line = self.get_command_line(purpose)
        if purpose is Purpose.COVERAGE and self.plan.coverage_min is not None:
            return self._check_coverage(line, done)

        if not line:
            was_left_out = purpose in self.plan.commands
            return not_requested_check(
                purpose,
                "disabled by configuration" if was_left_out else "the project has no such command",
            )

        if (setup := done.get(Purpose.SETUP)) and setup.outcome is CheckOutcome.FAILED:
            unrun = failed_check(
                purpose, "it was not run: the setup failed", "Fix the setup first."
            )
            return replace(unrun, fault=setup.fault)

        if purpose is Purpose.TEST:
            return self._run_tests(line)

        ran = self._run_command(purpose, line)
        return self._check_from_warnings(purpose, line, ran) or self._check_from_status(
            purpose, line, ran
        )

    def get_command_line(self, purpose: Purpose) -> str:
        """Return the command line for a purpose.

        The chosen setup may override the test command.
        """
        if self.setup_result:
            candidate = self.setup_result.candidate
        else:
            candidate = None

        if candidate and purpose is Purpose.TEST:
            own = candidate.test_command
        else:
            own = ""

        return (own or self.plan.commands.get(purpose, "")).strip()

    def _next_log_path(self, purpose: str) -> Path | None:
        """Return the log file of the next run; attempts of the setup are numbered."""
        if self._logs is None:
            return None

        self._setup_attempts += purpose == Purpose.SETUP
        if self._setup_attempts > 1 and purpose in (Purpose.SETUP, "collect"):
            name = f"{purpose}-{self._setup_attempts}"
        else:
            name = purpose

        if name.replace("-", "").isalnum():
            return self._logs / f"{self._log_prefix}{name}.log"

        return None

    def run_build(self) -> CommandResult:
        """Run the build command of the plan."""
        return self._run_command(Purpose.BUILD, self.get_command_line(Purpose.BUILD))

    def run_test_command(
        self, line: str, wanted: tuple[str, ...] = (), timeout_s: float | None = None
    ) -> tuple[CommandResult, RunReport | None]:
        """Run a test command with our reporter, if one fits.

        `wanted` limits the run to some files or tests, where the reporter can select them.
        """
        setup = None
        if self._reports is not None:
            self._test_runs += 1
            self._reports.mkdir(parents=True, mode=0o700, exist_ok=True)
            report = self._reports / f"run-{self._test_runs}.jsonl"
            report.unlink(missing_ok=True)
            programs = self._get_reporters_folder(self._reports)
            write_reporters(programs)
            setup = add_reporter(line, report, programs, self._read_scripts(), wanted)

        if setup is None:
            return self._run_command(Purpose.TEST, line, timeout_s=timeout_s), None

        ran = self._run_command(Purpose.TEST, setup.line, env=setup.env, timeout_s=timeout_s)
        found = read_run_report(report)
        if found is None and ran.exit_status != 0 and not ran.timed_out:
            # The reporter may not fit this runner
            return self._run_command(Purpose.TEST, line, timeout_s=timeout_s), None
        return ran, found

    def _get_reporters_folder(self, reports: Path) -> Path:
        return reports.with_name(f"{reports.name}-programs")

    def _read_scripts(self) -> str:
        path = self.checkout / "package.json"
        if not path.is_file() or path.is_symlink():
            return ""
        return path.read_text(encoding="utf-8", errors="replace")[:_MAX_SCRIPTS_CHARS]

    def _run_command(
        self,
        purpose: str,
        line: str,
        *,
        network: bool = False,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> CommandResult:
        """Run a shell command in the sandbox; `network` and the setup may go online."""
        reaches = network or purpose == Purpose.SETUP
        reports = self._reports if env is not None else None
        command = Command(
            argv=("sh", "-c", line),
            cwd=self.checkout,
            whole_checkout=self.whole_checkout,
            purpose=purpose if purpose.isalnum() else "command",
            env={
                **_ENVIRONMENT,
                "CARGO_HOME": str(self.checkout / _TOOLS_FOLDER / "cargo"),
                "GOMODCACHE": str(self.checkout / _TOOLS_FOLDER / "go"),
                **(env or {}),
            },
            path_prefix=self._find_bin_folders(),
            network=reaches,
            timeout_s=min(timeout_s or self.plan.timeout_s, self.plan.timeout_s),
            access=self._access if reaches else RegistryAccessLevel.NONE,
            log=self._next_log_path(purpose),
            readable=(self._get_reporters_folder(reports),) if reports else (),
            writable=(reports,) if reports else (),
        )
        return self._run(command)

    def _find_bin_folders(self) -> tuple[Path, ...]:
        """Return the program folders that the setup created.

        A folder that was already in the tree may be an agent's and is ignored.
        """
        mine = [
            folder
            for folder in self.plan.bin_folders
            if not self._is_in_tree(folder.partition("/")[0])
        ]
        made = [self.checkout / name for name in mine]
        return tuple(folder for folder in made if os.path.isdir(folder))  # noqa: PTH112 - it may be shut: then `is_dir` raises

    def _is_in_tree(self, folder: str) -> bool:
        return any(path == folder or path.startswith(f"{folder}/") for path in self.initial_files)

    def _run_setup(self) -> CheckResult:
        """Run the setup, and keep its result for the commands that follow."""
        if Purpose.SETUP in self.plan.commands and not self.plan.commands[Purpose.SETUP].strip():
            return not_requested_check(Purpose.SETUP, "disabled by configuration")

        if not self._root_exists:
            return failed_check(
                Purpose.SETUP,
                "the folder is no longer in the tree",
                "Restore it, or disable its commands with a table for this `root` in"
                " phasegate.toml.",
            )

        self.setup_result = run_setup(
            SetupContext(
                plan=self.plan,
                checkout=self.checkout,
                initial_files=self.initial_files,
                run=self._run_command,
                check_from_status=self._check_from_status,
            ),
            self._cache_slot,
        )
        return self.setup_result.check

    def _check_from_status(self, purpose: str, line: str, ran: CommandResult) -> CheckResult:
        """Turn the exit status of a command into a check result.

        Status 0 passes, even if the command printed warnings. Any other status is a failure, which
        is described and classified.
        """
        if ran.exit_status == 0:
            outcome = CheckOutcome.PASSED
            summary, remedy = ("exit status 0", "")
        else:
            outcome = CheckOutcome.FAILED
            summary, remedy = _describe_failure(purpose, line, ran)

        check = _make_check(
            purpose=purpose, line=line, ran=ran, outcome=outcome, summary=summary, remedy=remedy
        )
        if outcome is CheckOutcome.PASSED or ran.is_truncated:
            return check

        return replace(
            check, findings=extract_findings(f"{ran.stdout}\n{ran.stderr}", str(self.checkout))
        )

    def _check_from_warnings(
        self, purpose: Purpose, line: str, ran: CommandResult
    ) -> CheckResult | None:
        """Accept a linter's exit status that only warnings caused, or return None for others."""
        if purpose is not Purpose.LINT or not _has_only_warnings(line, ran):
            return None

        summary = f"exit status {ran.exit_status}, because of warnings only: accepted"
        return _make_check(
            purpose=purpose,
            line=line,
            ran=ran,
            outcome=CheckOutcome.PASSED,
            summary=summary,
            remedy="",
        )

    def _run_tests(self, line: str) -> CheckResult:
        """Run the tests, and repeat a run that failed.

        If a repeated run passes, the tests are flaky: the check passes, with a note.
        """
        first = check = self._run_tests_once(line)
        if self._can_rerun_alone(line, first):
            return self._rerun_alone(first)

        for attempt in range(2, self.plan.test_reruns + 2):
            judged = excuse_old_failures(check, self.plan, self._baseline)
            if (
                judged.outcome is not CheckOutcome.FAILED
                or check.tests is None
                or not check.tests.failed
            ):
                break

            check = self._run_tests_once(line)
            judged = excuse_old_failures(check, self.plan, self._baseline)
            if judged.outcome is CheckOutcome.PASSED and _ran_as_many(check.tests, first.tests):
                note = (
                    f"flaky: passed on attempt {attempt}, failed before:"
                    f" {_format_failing_names(first.tests)}"
                )
                return replace(check, notes=(*check.notes, note), fault=Fault.FLAKY_TEST)

        return first

    def _can_rerun_alone(self, line: str, check: CheckResult) -> bool:
        tests = check.tests
        judged = excuse_old_failures(check, self.plan, self._baseline)
        return (
            judged.outcome is CheckOutcome.FAILED
            and tests is not None
            and tests.is_reported
            and not tests.is_forged
            and 0 < tests.failed <= _MAX_RERUN_TESTS
            and can_select_tests(line)
        )

    def _rerun_alone(self, check: CheckResult) -> CheckResult:
        """Run only the failed tests again. On the base, a flaky test does not fail the check."""
        tests = check.tests
        assert tests is not None
        names = tuple({case.id: None for case in tests.cases if case.outcome.is_failure})
        counts = self.count_alone(names, RERUNS_ALONE)
        flaky = tuple(
            FlakyTest(test=name, passed=passed, failed=failed + 1, on_base=self._baseline is None)
            for name, (passed, failed) in counts.items()
            if passed
        )
        if not flaky:
            return check

        note = f"flaky, passed when run again alone: {format_names([one.test for one in flaky])}"
        check = replace(check, flaky=flaky, notes=(*check.notes, note))
        if self._baseline is not None or len(flaky) < len(names):
            return check
        summary = f"{tests.passed} tests passed; {len(flaky)} are flaky"
        return replace(
            check,
            outcome=CheckOutcome.PASSED,
            summary=summary,
            remedy="",
            fault=Fault.FLAKY_TEST,
        )

    def count_alone(self, names: tuple[str, ...], runs: int) -> dict[str, tuple[int, int]]:
        """Run only these tests, several times; return how often each passed and failed."""
        passed: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        for _ in range(runs):
            _, report = self.run_test_command(self.get_command_line(Purpose.TEST), names)
            for case in report.cases if report else ():
                if case.outcome is TestOutcome.PASSED:
                    passed[case.id] += 1
                elif case.outcome.is_failure:
                    failed[case.id] += 1

        return {name: (passed[name], failed[name]) for name in names}

    def _run_tests_once(self, line: str) -> CheckResult:
        """Run the test command and check its output against the runner's own report."""
        ran, report = self.run_test_command(line)
        parsed = parse_test_output(f"{ran.stdout}\n{ran.stderr}")
        tests = merge_report(parsed, report)
        problem = self._find_test_problem(line, ran, tests)
        forged = find_report_problem(report, parsed) if report is not None else None
        if forged is not None and tests is not None:
            tests = replace(tests, is_forged=True)
            problem = (forged, "Let the test runner report its own results, and exit by itself.")

        if problem is None:
            assert tests is not None
            summary = (
                f"{tests.executed} {'test' if tests.executed == 1 else 'tests'} ran and passed"
                f" ({tests.runner})"
            )
            return _make_check(
                purpose=Purpose.TEST,
                line=line,
                ran=ran,
                outcome=CheckOutcome.PASSED,
                summary=summary,
                remedy="",
                tests=tests,
            )

        check = _make_check(Purpose.TEST, line, ran, CheckOutcome.FAILED, *problem, tests)
        if tests is not None and tests.failed:
            output = f"{ran.stdout}\n{ran.stderr}".replace(f"{self.checkout}/", "")
            check = replace(check, failed_tests=describe_failed_tests(output, tests.failing))

        return check

    def _find_test_problem(
        self, line: str, ran: CommandResult, tests: TestRun | None
    ) -> tuple[str, str] | None:
        """Return the problem of a test run and its remedy, or None if it proves that tests passed.

        The exit status is examined first, then the output.
        """
        if tests is not None and tests.failed:
            if ran.exit_status == 0:
                hidden = ", though the exit status is 0"
            else:
                hidden = ""

            return (
                f"{tests.failed} of {tests.executed} tests failed{hidden}",
                f"Run `{to_one_line(line)}` and fix the tests that it lists as failed.",
            )

        if ran.exit_status not in (0, _EXIT_PYTEST_NO_TESTS):
            return _describe_failure(Purpose.TEST, line, ran)

        executed = 0 if tests is None else tests.executed
        if tests is None and ran.exit_status == 0:
            return (
                "no summary of a known test runner was found in the output",
                "Make the test command print its runner's summary as the last output.",
            )

        if executed < max(self.plan.min_tests, 1) or ran.exit_status:
            return (
                f"{executed} tests ran, at least {max(self.plan.min_tests, 1)} required",
                "Write the tests, and make sure that the runner finds them.",
            )

        return None

    def _check_coverage(self, line: str, done: dict[str, CheckResult]) -> CheckResult:
        """Run the coverage command, if there is one, and check the report.

        Without a coverage command, the report of the test run is used.
        """
        undone = [
            check for check in done.values() if check.name in ("setup", "test") and check.remedy
        ]

        if undone:
            name = undone[0].name
            unrun = failed_check(
                Purpose.COVERAGE, f"it was not measured: {name} failed", f"Fix {name} first."
            )
            return replace(unrun, fault=undone[0].fault)

        check = passed_check(Purpose.COVERAGE, "")
        if line:
            check = self._check_from_status(
                Purpose.COVERAGE, line, self._run_command(Purpose.COVERAGE, line)
            )

        if check.outcome is CheckOutcome.FAILED:
            return check

        return self._measure_coverage(check)

    def _measure_coverage(self, check: CheckResult) -> CheckResult:
        """Compare the lowest coverage report with the threshold."""
        least = self.plan.coverage_min
        assert least is not None

        try:
            path, counted = self._read_lowest_report()
        except InvalidCoverageReport as error:
            remedy = (
                "Make the coverage or test command write one of:"
                f" {', '.join(self.plan.coverage_reports)}."
            )
            return replace(check, outcome=CheckOutcome.FAILED, summary=str(error), remedy=remedy)

        summary = (
            f"{counted.percent:.1f} % of {counted.total} lines are covered ({path}),"
            f" at least {least:g} % required"
        )
        missed = find_uncounted_files(counted, self.plan.code)
        notes = (
            *check.notes,
            *([f"the report does not count {format_names(missed)}"] if missed else []),
        )
        measured = replace(check, summary=summary, notes=notes, coverage_percent=counted.percent)
        if meets_threshold(counted, least):
            return measured

        remedy = "Add tests for the uncovered lines that the report lists."
        return replace(measured, outcome=CheckOutcome.FAILED, remedy=remedy)

    def _read_lowest_report(self) -> tuple[str, CoverageCounts]:
        """Return the path and counts of the report with the lowest coverage that this run wrote.

        A report that was already in the tree is ignored: it proves nothing.
        """
        fresh = [
            path
            for path, mark in self._report_stamps.items()
            if read_stamp(self.checkout / path) not in (None, mark)
        ]
        if not fresh:
            raise InvalidCoverageReport("the run wrote no coverage report")

        try:
            return min(
                ((path, read_coverage(self.checkout / path)) for path in fresh),
                key=lambda found: found[1].percent,
            )
        except InvalidCoverageReport as error:
            raise InvalidCoverageReport(
                f"a coverage report cannot be used: {to_one_line(str(error))}"
            ) from None


def compare_result(raw: CheckResult, plan: CommandPlan, baseline: Baseline | None) -> CheckResult:
    """Compare the result of a command with the baseline; the result may be a recorded one."""
    return compare_with_baseline(
        excuse_old_failures(raw, plan, baseline),
        baseline,
        tolerate_old_failures=plan.tolerates_old_failures,
    )


def add_root(check: CheckResult, plan: CommandPlan) -> CheckResult:
    """Name the plan's root in the summary of a check."""
    if not plan.root or check.outcome is CheckOutcome.NOT_REQUESTED:
        return check
    return replace(check, summary=f"{plan.root}: {check.summary}", root=plan.root)


def excuse_old_failures(
    check: CheckResult, plan: CommandPlan, baseline: Baseline | None
) -> CheckResult:
    """Pass a failed test check if every failed test also failed before the work began.

    This requires that the plan tolerates old failures, and that the runner named each failed test.
    """
    tests = check.tests
    if check.name != Purpose.TEST or check.outcome is not CheckOutcome.FAILED:
        return check
    if tests is None or baseline is None or not plan.tolerates_old_failures or tests.is_forged:
        return check
    if check.exit_status is None or check.exit_status not in (1, baseline.test_status):
        return check

    old = baseline.old_failures(tests)
    if not tests.failed == len(old) == len(tests.failing):
        return check
    # If no test file can be loaded, nothing was shown, however often that was so before
    if tests.passed == 0 or tests.executed < plan.min_tests:
        return check

    note = f"already failing before the work began: {format_names(old)}"
    return replace(
        check,
        outcome=CheckOutcome.PASSED,
        summary=f"{pluralize(tests.passed, 'test')} passed; {tests.failed} failed, as before",
        remedy="",
        notes=(*check.notes, note),
    )


def is_plain_folder(checkout: Path, root: str) -> bool:
    """Return True if `root` is a folder of the checkout.

    An agent could have replaced the folder with a link.
    """
    parts = root.split("/") if root else []
    folders = [checkout.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    return all(folder.is_dir() and not folder.is_symlink() for folder in folders)


def _make_check(
    purpose: str,
    line: str,
    ran: CommandResult,
    outcome: CheckOutcome,
    summary: str,
    remedy: str,
    tests: TestRun | None = None,
) -> CheckResult:
    """Create the result of a command that was run in a shell."""
    return CheckResult(
        name=purpose,
        outcome=outcome,
        summary=summary,
        remedy=remedy,
        argv=("sh", "-c", line),
        exit_status=ran.exit_status,
        duration_s=ran.duration_s,
        ended_at_s=ran.ended_at_s,
        excerpt=make_excerpt(f"{ran.stdout}\n{ran.stderr}"),
        notes=("part of its output was omitted",) if ran.is_truncated else (),
        tests=tests,
        fault=_classify_fault(purpose, ran) if outcome is CheckOutcome.FAILED else None,
    )


def _classify_fault(purpose: str, ran: CommandResult) -> Fault:
    """Return the kind of a failure.

    Only setups and builds can fail temporarily. The output of tests and linters is about the work,
    not about the machine.
    """
    if _is_program_missing(ran):
        return Fault.NO_PROGRAM
    if purpose not in (Purpose.SETUP, Purpose.BUILD):
        return Fault.PERMANENT
    return classify_failure(ran.exit_status, f"{ran.stdout}\n{ran.stderr}")


def _is_program_missing(ran: CommandResult) -> bool:
    return ran.exit_status in (_EXIT_NOT_EXECUTABLE, _EXIT_NOT_FOUND) or bool(
        ran.exit_status and _NO_MODULE.search(ran.stderr[-10_000:])
    )


def _find_missing_program(ran: CommandResult) -> str:
    """Return the program or module that the shell or the interpreter reported as missing."""
    found = _MISSING_PROGRAM.search(f"{ran.stderr}\n{ran.stdout}"[-20_000:])
    if found:
        return f" ({to_one_line(found[found.lastindex or 0])})"
    return ""


def _describe_failure(purpose: str, line: str, ran: CommandResult) -> tuple[str, str]:
    """Return a summary of a failed command, and the remedy."""
    shown = to_one_line(describe_command(line))
    if purpose is Purpose.SETUP and _classify_fault(purpose, ran) is Fault.NETWORK:
        remedy = (
            f'Connect, or set `setup = ""` in [checks.PROFILE] of phasegate.toml if `{shown}` is'
            " not needed."
        )
        return "the setup could not reach the network", remedy
    if ran.exceeded_limit:
        remedy = f"Make `{shown}` use less, or raise the limit in [limits] of phasegate.toml."
        return f"it was killed because it exceeded {ran.exceeded_limit}", remedy

    if ran.timed_out:
        return (
            f"it timed out after {ran.duration_s:.0f} s",
            f"Make `{shown}` faster, or split the package.",
        )

    if ran.exit_status is None:
        return (
            "it was killed by a signal",
            f"Run `{shown}` to see why it is killed; it may need too much memory.",
        )

    if _is_program_missing(ran):
        remedy = (
            f"Make `setup` install what `{shown}` needs, or set another {purpose} command or an"
            " empty one."
        )
        return (
            f"exit status {ran.exit_status}: its program is missing{_find_missing_program(ran)}",
            remedy,
        )

    summary = f"exit status {ran.exit_status}"
    if purpose == Purpose.SETUP and (cause := find_cause(f"{ran.stdout}\n{ran.stderr}")):
        summary += f": {cause}"
    return summary, f"Run `{shown}` and fix the problems it reports."


def _has_only_warnings(line: str, ran: CommandResult) -> bool:
    if ran.exit_status is None or ran.exit_status <= 0 or ran.is_truncated:
        return False
    if "pylint" in line:
        return ran.exit_status & ~_PYLINT_WARNING_BITS == 0
    # Another linter could print such a line as a quote from the code that it checks
    if not _ESLINT_COMMAND.search(line):
        return False

    errors = _ESLINT_COUNTS.findall(sanitize_for_terminal(ran.stdout))
    return ran.exit_status == 1 and bool(errors) and set(errors) == {"0"}


def _ran_as_many(again: TestRun | None, first: TestRun | None) -> bool:
    return again is not None and first is not None and again.executed >= first.executed


def _format_failing_names(tests: TestRun | None) -> str:
    if tests and tests.failing:
        return format_names(tests.failing)
    return "tests that the runner did not name"
