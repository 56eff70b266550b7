"""The project's own commands, run on a clean checkout, and what their ends mean."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

import msgspec

from phasegate.checks.baseline import Baseline, compared, findings_in
from phasegate.checks.coverage_report import BadReport, Counted, reaches, read_coverage, uncounted
from phasegate.checks.evidence import Check, Outcome, failed, not_asked, passed
from phasegate.checks.excerpt import excerpt, listed, one_line
from phasegate.checks.plan import Access, Command, CommandRan, Plan, Purpose, Runner
from phasegate.checks.setup import SetUp, SetupGround, SetupPlace, set_up
from phasegate.checks.snapshot import mark_of, take_snapshot
from phasegate.checks.test_output import TestRun, read_test_output
from phasegate.core.machine.retry import Fault, classify
from phasegate.core.text.escapes import for_terminal

_NOT_EXECUTABLE, _NOT_FOUND, _PYTEST_NO_TESTS = 126, 127, 5
_NO_MODULE = re.compile(r"^\S{1,500}: No module named \S{1,200}$|^npm (?:ERR!|error) Missing script: ", re.M)
_MISSING = re.compile(
    r"(?:sh|bash|dash)(?: \d+|: line \d+|: \d+)?: (\S+): (?:command )?not found|No module named '?([\w.]+)"
)
# Linters that end with a failure for warnings alone say so: eslint in its last line, pylint in the bits of its status.
_ESLINT = re.compile(r"\b(?:eslint|npm|npx|pnpm|yarn|bun)\b")
_ESLINT_COUNTS = re.compile(r"^\u2716 [0-9]{1,8} problems? \(([0-9]{1,8}) errors?, [0-9]{1,8} warnings?\)$", re.M)
_PYLINT_WARNINGS = 4 | 8 | 16
# Commands are told that nobody watches: no watch mode, no hooks, no browsers, no byte code beside the sources. Colours
# are left to them: tests of a project may depend on NO_COLOR, and we read past colours. One finding a line. What
# Cargo and Go fetch during the setup goes into the checkout, where the commands after it look and the cache keeps it.
_TOOLS = ".phasegate-tools"
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
    # pnpm would stop where it is not of the exact version that `packageManager` names.
    "pnpm_config_pm_on_fail": "ignore",
}


class Bench:
    """A clean checkout in which the commands of one plan are run, one after the other."""

    def __init__(
        self,
        plan: Plan,
        checkout: Path,
        run: Runner,
        kept: SetupPlace | None = None,
        baseline: Baseline | None = None,
        *,
        is_persons: bool = False,
        logs: Path | None = None,
    ) -> None:
        """`is_persons` says that no agent wrote the tree: its setup may reach registries with credentials.

        `logs` is a folder for the whole output of each command.
        """
        self.plan, self._run, self._kept, self._baseline = plan, run, kept, baseline
        self.place, self.checkout = checkout, checkout / plan.root
        self._access, self._logs = Access.PERSON if is_persons else Access.PLAIN, logs
        self._tries = 0
        self.set_up: SetUp | None = None
        self._is_there = is_folder_of(checkout, plan.root)
        self.before = take_snapshot(self.checkout) if self._is_there else {}
        self._reports = {path: mark_of(self.checkout / path) for path in plan.coverage_reports if self._is_there}

    def checks(self, purposes: Collection[str] = tuple(Purpose)) -> list[Check]:
        """Run the commands for these purposes, setup first. What cannot be run because of another is a failure too."""
        done: dict[str, Check] = {}
        for purpose in Purpose:
            if purpose in purposes or purpose is Purpose.SETUP:
                done[purpose] = self._logged(self._compared(self._check(purpose, done)))
        return [self._placed(check) for check in done.values()]

    def _placed(self, check: Check) -> Check:
        if not self.plan.root or check.outcome is Outcome.NOT_ASKED:
            return check
        return msgspec.structs.replace(check, summary=f"{self.plan.root}: {check.summary}")

    def _logged(self, check: Check) -> Check:
        path = self._logs / f"{check.name}.log" if self._logs else None
        return msgspec.structs.replace(check, log=str(path)) if path and path.exists() else check

    def _compared(self, check: Check) -> Check:
        return compared(check, self._baseline, tolerates=self.plan.tolerates_old_failures)

    def own(self, line: str) -> Check:
        """Run a command line of a person's own, which may need the network: exit status 0 is a pass."""
        return self._by_status(line, line, self._ran(line, line, network=True))

    def _check(self, purpose: Purpose, done: dict[str, Check]) -> Check:
        if purpose is Purpose.SETUP:
            return self._setup()
        line = self._line(purpose)
        if purpose is Purpose.COVERAGE and self.plan.coverage_min is not None:
            return self._coverage(line, done)
        if not line:
            was_left_out = purpose in self.plan.commands
            return not_asked(
                purpose, "left out by configuration" if was_left_out else "the project has no such command"
            )
        if (setup := done.get(Purpose.SETUP)) and setup.outcome is Outcome.FAILED:
            unrun = failed(purpose, "it was not run: the setup failed", "Fix the setup first.")
            return msgspec.structs.replace(unrun, fault=setup.fault)
        if purpose is Purpose.TEST:
            return self._tests(line)
        ran = self._ran(purpose, line)
        return self._passed_with_warnings(purpose, line, ran) or self._by_status(purpose, line, ran)

    def _line(self, purpose: Purpose) -> str:
        """The command for a purpose; a setup may bring a test command of its own."""
        candidate = self.set_up.candidate if self.set_up else None
        own = candidate.test if candidate and purpose is Purpose.TEST else ""
        return (own or self.plan.commands.get(purpose, "")).strip()

    def _log(self, purpose: str) -> Path | None:
        if self._logs is None:
            return None
        self._tries += purpose == Purpose.SETUP
        name = f"{purpose}-{self._tries}" if self._tries > 1 and purpose in (Purpose.SETUP, "collect") else purpose
        return self._logs / f"{name}.log" if name.replace("-", "").isalnum() else None

    def _ran(self, purpose: str, line: str, *, network: bool = False) -> CommandRan:
        reaches = network or purpose == Purpose.SETUP
        command = Command(
            argv=("sh", "-c", line),
            cwd=self.checkout,
            place=self.place,
            purpose=purpose if purpose.isalnum() else "command",
            env={
                **_ENVIRONMENT,
                "CARGO_HOME": str(self.checkout / _TOOLS / "cargo"),
                "GOMODCACHE": str(self.checkout / _TOOLS / "go"),
            },
            path_first=self._programs(),
            network=reaches,
            timeout_s=self.plan.timeout_s,
            access=self._access if reaches else Access.NONE,
            log=self._log(purpose),
        )
        return self._run(command)

    def _programs(self) -> tuple[Path, ...]:
        """Folders of programs that the setup made. One that came with the tree is an agent's, not the setup's."""
        mine = [folder for folder in self.plan.bin_folders if not self._is_in_tree(folder.partition("/")[0])]
        made = [self.checkout / name for name in mine]
        return tuple(folder for folder in made if os.path.isdir(folder))  # noqa: PTH112 - it may be shut: then `is_dir` raises

    def _is_in_tree(self, folder: str) -> bool:
        return any(path == folder or path.startswith(f"{folder}/") for path in self.before)

    def _setup(self) -> Check:
        if Purpose.SETUP in self.plan.commands and not self.plan.commands[Purpose.SETUP].strip():
            return not_asked(Purpose.SETUP, "left out by configuration")
        if not self._is_there:
            return failed(
                Purpose.SETUP,
                "the folder is not in the tree any more",
                "Put it back. A person can leave its commands out, by a table with this `root` in phasegate.toml.",
            )
        self.set_up = set_up(SetupGround(self.plan, self.checkout, self.before, self._ran, self._by_status), self._kept)
        return self.set_up.check

    def _by_status(self, purpose: str, line: str, ran: CommandRan) -> Check:
        """Exit status 0 is a pass, warnings or not; anything else is a failure that says of which kind."""
        outcome = Outcome.PASSED if ran.exit_status == 0 else Outcome.FAILED
        summary, remedy = ("exit status 0", "") if ran.exit_status == 0 else _failure(purpose, line, ran)
        check = _of_command(purpose, line, ran, outcome, summary, remedy)
        if outcome is Outcome.PASSED or ran.cut:
            return check
        return msgspec.structs.replace(check, findings=findings_in(f"{ran.stdout}\n{ran.stderr}", str(self.checkout)))

    def _passed_with_warnings(self, purpose: Purpose, line: str, ran: CommandRan) -> Check | None:
        if purpose is not Purpose.LINT or not _only_warnings(line, ran):
            return None
        summary = f"exit status {ran.exit_status}, for warnings alone: they do not reject"
        return _of_command(purpose, line, ran, Outcome.PASSED, summary, "")

    def _tests(self, line: str) -> Check:
        """A test run that fails and passes when it is run again is flaky: passed, and named so."""
        first = check = self._test_run(line)
        for attempt in range(2, self.plan.test_reruns + 2):
            if check.outcome is not Outcome.FAILED or check.tests is None or not check.tests.failed:
                break
            check = self._test_run(line)
            if check.outcome is Outcome.PASSED and _ran_as_many(check.tests, first.tests):
                note = f"flaky: passed at try {attempt}, failed before: {_names_of(first.tests)}"
                return msgspec.structs.replace(check, notes=(*check.notes, note), fault=Fault.FLAKY_TEST)
        return first

    def _test_run(self, line: str) -> Check:
        ran = self._ran(Purpose.TEST, line)
        tests = read_test_output(f"{ran.stdout}\n{ran.stderr}")
        problem = self._test_problem(line, ran, tests)
        if problem is None:
            assert tests is not None
            summary = f"{tests.executed} {'test' if tests.executed == 1 else 'tests'} ran and passed ({tests.runner})"
            return _of_command(Purpose.TEST, line, ran, Outcome.PASSED, summary, "", tests)
        return self._excused(_of_command(Purpose.TEST, line, ran, Outcome.FAILED, *problem, tests), ran)

    def _test_problem(self, line: str, ran: CommandRan, tests: TestRun | None) -> tuple[str, str] | None:
        """Why a test run is no proof: first what the exit status says, then what the output does."""
        if tests is not None and tests.failed:
            hidden = ", though the exit status is 0" if ran.exit_status == 0 else ""
            return (
                f"{tests.failed} of {tests.executed} tests failed{hidden}",
                f"Run `{one_line(line)}` and fix what it names.",
            )
        if ran.exit_status not in (0, _PYTEST_NO_TESTS):
            return _failure(Purpose.TEST, line, ran)
        executed = 0 if tests is None else tests.executed
        if tests is None and ran.exit_status == 0:
            return (
                "no test runner said what it ran",
                "Let the test command print its runner's summary, and nothing after it.",
            )
        if executed < max(self.plan.min_tests, 1) or ran.exit_status:
            return (
                f"{executed} tests ran, at least {max(self.plan.min_tests, 1)} must",
                "Write the tests, and see that they are found.",
            )
        return None

    def _excused(self, check: Check, ran: CommandRan) -> Check:
        """Let old failures pass where a person decided so, if the runner named each one that failed."""
        tests, baseline = check.tests, self._baseline
        if tests is None or baseline is None or not self.plan.tolerates_old_failures:
            return check
        if ran.exit_status is None or ran.exit_status not in (1, baseline.test_status):
            return check
        old = baseline.old_failures(tests)
        if not tests.failed == len(old) == len(tests.failing) or tests.executed < max(self.plan.min_tests, 1):
            return check
        note = f"already failing before the work began: {listed(old)}"
        summary = f"{tests.passed} tests passed; {tests.failed} fail as before"
        changes = {"outcome": Outcome.PASSED, "summary": summary, "remedy": "", "notes": (*check.notes, note)}
        return msgspec.structs.replace(check, **changes)

    def _coverage(self, line: str, done: dict[str, Check]) -> Check:
        """Run the coverage command, if there is one, and read the report that it or the test run left."""
        undone = [check for check in done.values() if check.name in ("setup", "test") and check.remedy]
        if undone:
            name = undone[0].name
            unrun = failed(Purpose.COVERAGE, f"it was not measured: {name} failed", f"Fix {name} first.")
            return msgspec.structs.replace(unrun, fault=undone[0].fault)
        check = passed(Purpose.COVERAGE, "")
        if line:
            check = self._by_status(Purpose.COVERAGE, line, self._ran(Purpose.COVERAGE, line))
        return check if check.outcome is Outcome.FAILED else self._measured(check)

    def _measured(self, check: Check) -> Check:
        least = self.plan.coverage_min
        assert least is not None
        try:
            path, counted = self._lowest_report()
        except BadReport as error:
            remedy = f"Let the coverage or test command write one of: {', '.join(self.plan.coverage_reports)}."
            return msgspec.structs.replace(check, outcome=Outcome.FAILED, summary=str(error), remedy=remedy)
        summary = f"{counted.percent:.1f} % of {counted.total} lines ({path}), at least {least:g} % must be"
        missed = uncounted(counted, self.plan.code)
        notes = (*check.notes, *([f"the report does not count {listed(missed)}"] if missed else []))
        measured = msgspec.structs.replace(check, summary=summary, notes=notes, coverage_percent=counted.percent)
        if reaches(counted, least):
            return measured
        remedy = "Test the lines that no test runs; the report names them."
        return msgspec.structs.replace(measured, outcome=Outcome.FAILED, remedy=remedy)

    def _lowest_report(self) -> tuple[str, Counted]:
        """Of the reports that our run wrote, the one that says least. One that came with the tree proves nothing."""
        fresh = [path for path, mark in self._reports.items() if mark_of(self.checkout / path) not in (None, mark)]
        if not fresh:
            raise BadReport("the run left no coverage report")
        try:
            return min(
                ((path, read_coverage(self.checkout / path)) for path in fresh), key=lambda found: found[1].percent
            )
        except BadReport as error:
            raise BadReport(f"a coverage report cannot be used: {one_line(str(error))}") from None


def is_folder_of(checkout: Path, root: str) -> bool:
    """Whether a root is a folder of the tree. An agent could have put a link there, to anywhere."""
    parts = root.split("/") if root else []
    folders = [checkout.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    return all(folder.is_dir() and not folder.is_symlink() for folder in folders)


def _of_command(
    purpose: str, line: str, ran: CommandRan, outcome: Outcome, summary: str, remedy: str, tests: TestRun | None = None
) -> Check:
    return Check(
        name=purpose,
        outcome=outcome,
        summary=summary,
        remedy=remedy,
        argv=("sh", "-c", line),
        exit_status=ran.exit_status,
        duration_s=ran.duration_s,
        ended_at_s=ran.ended_at_s,
        excerpt=excerpt(f"{ran.stdout}\n{ran.stderr}"),
        notes=("some of its output was left out",) if ran.cut else (),
        tests=tests,
        fault=_fault(purpose, ran) if outcome is Outcome.FAILED else None,
    )


def _fault(purpose: str, ran: CommandRan) -> Fault:
    """Fetching and building can fail for reasons that pass. What tests and linters print is about the work."""
    if _lacks_its_program(ran):
        return Fault.NO_PROGRAM
    if purpose not in (Purpose.SETUP, Purpose.BUILD):
        return Fault.PERMANENT
    return classify(ran.exit_status, f"{ran.stdout}\n{ran.stderr}")


def _lacks_its_program(ran: CommandRan) -> bool:
    return ran.exit_status in (_NOT_EXECUTABLE, _NOT_FOUND) or bool(
        ran.exit_status and _NO_MODULE.search(ran.stderr[-10_000:])
    )


def _missing_program(ran: CommandRan) -> str:
    """The name of what is missing, as the shell or the interpreter said it."""
    found = _MISSING.search(f"{ran.stderr}\n{ran.stdout}"[-20_000:])
    return f" ({one_line(found[found.lastindex or 0])})" if found else ""


def _failure(purpose: str, line: str, ran: CommandRan) -> tuple[str, str]:
    """What happened and what to do, for a command that did not end well."""
    shown = one_line(line)
    if purpose is Purpose.SETUP and _fault(purpose, ran) is Fault.NETWORK:
        remedy = f'Connect, or set `setup = ""` in [checks.PROFILE] of phasegate.toml if `{shown}` is not needed.'
        return "the setup could not reach the network", remedy
    if ran.over:
        remedy = f"Let `{shown}` use less, or raise the limit in [limits] of phasegate.toml."
        return f"it was ended at {ran.over}", remedy
    if ran.timed_out:
        return f"it ran out of time after {ran.duration_s:.0f} s", f"Make `{shown}` faster, or split the package."
    if ran.exit_status is None:
        return "it was ended by a signal", f"Run `{shown}` and see why it is killed; it may need too much memory."
    if _lacks_its_program(ran):
        remedy = f"Let `setup` install what `{shown}` needs, or set another {purpose} command, or an empty one."
        return f"exit status {ran.exit_status}: its program is missing{_missing_program(ran)}", remedy
    return f"exit status {ran.exit_status}", f"Run `{shown}` and fix what it names."


def _only_warnings(line: str, ran: CommandRan) -> bool:
    if ran.exit_status is None or ran.exit_status <= 0 or ran.cut:
        return False
    if "pylint" in line:
        return ran.exit_status & ~_PYLINT_WARNINGS == 0
    if not _ESLINT.search(line):  # another linter could quote such a line from the code that it complains about
        return False
    errors = _ESLINT_COUNTS.findall(for_terminal(ran.stdout))
    return ran.exit_status == 1 and bool(errors) and set(errors) == {"0"}


def _ran_as_many(again: TestRun | None, first: TestRun | None) -> bool:
    return again is not None and first is not None and again.executed >= first.executed


def _names_of(tests: TestRun | None) -> str:
    return listed(tests.failing) if tests and tests.failing else "tests that the runner did not name"
