"""Measure whether the tests of a change would notice it, by running them over other trees.

Three kinds of trees are made in one checkout, which is set up once: the work with the base's test
files, the base's code with the work's test files, and the work with one changed line (a mutant).
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.checks.commands import PlanRunner
from phasegate.checks.evidence import CheckOutcome
from phasegate.checks.plan import Purpose
from phasegate.checks.test_output import TestRun, parse_test_output
from phasegate.checks.test_report import can_select_tests
from phasegate.core.test_strength.blocks import split_tests
from phasegate.core.test_strength.compare import (
    ChangedText,
    Outcomes,
    PackagePlanFacts,
    SourceIndex,
    find_dependent_tests,
    find_lost_tests,
    judge_base_tests,
    judge_lost_tests,
    judge_mutants,
    judge_probe,
    judge_reverted_code,
    match_requirements,
    summarize_outcomes,
)
from phasegate.core.test_strength.dilution import list_added_lines
from phasegate.core.test_strength.model import (
    MutantResult,
    RevertedRequirement,
    Severity,
    StrengthFinding,
    StrengthReport,
)
from phasegate.core.test_strength.mutants import EMPTIED, Mutant, make_mutants
from phasegate.core.test_strength.paths import (
    is_code,
    is_data,
    is_runner_config,
    is_test_path,
)
from phasegate.core.test_strength.probes import (
    choose_probes,
    find_dulled_tests,
    has_rewritten_helpers,
    list_rewritten_words,
)
from phasegate.errors import UnreadableFile
from phasegate.files import create_new_file
from phasegate.files.block_reader import read_up_to
from phasegate.files.durable_write import write_all
from phasegate.files.safe_open import closing_descriptor, folder_descriptor, make_folder_beneath

WHOLE_SUITE = "the test command"
_MAX_SCANNED_BYTES = 200_000
_MAX_SCANNED_FILES = 5_000
_FOREIGN_FOLDERS = ("node_modules", "venv", "site-packages", "__pycache__")


class FileVersion(NamedTuple):
    """The content of a file in a commit."""

    data: bytes
    is_executable: bool = False


class ChangedContent(NamedTuple):
    """A changed file of one root, relative to the root. None where it does not exist."""

    path: str
    old: FileVersion | None
    new: FileVersion | None

    def decode(self) -> ChangedText:
        return ChangedText(self.path, _decode(self.old), _decode(self.new))


def _decode(version: FileVersion | None) -> str | None:
    if version is None:
        return None
    return version.data.decode("utf-8", errors="replace")


class StrengthInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one root before its tests are run over other trees."""

    changed: tuple[ChangedContent, ...]
    facts: PackagePlanFacts
    base_run: TestRun | None
    work_run: TestRun
    suite_s: float
    budget_s: float
    test_files: tuple[str, ...] = ()
    # Whether the tree has test files at all
    has_test_files: bool = True
    with_mutants: bool = True
    # Flaky tests, which prove nothing
    flaky: frozenset[str] = frozenset()


class _VariantRun(NamedTuple):
    """A test run over a changed tree."""

    # None if our reporter does not fit the command
    outcomes: Outcomes | None
    parsed: TestRun | None
    exit_status: int | None
    timed_out: bool


class StrengthRunner:
    """Runs the tests of one root on variants of the work, in a checkout of it."""

    def __init__(self, inputs: StrengthInputs, runner: PlanRunner) -> None:
        self._inputs = inputs
        self._runner = runner
        self._started_s = time.monotonic()
        # Before anything ran, a variant is expected to take as long as the whole suite
        self._slowest_s = inputs.suite_s
        self._findings: list[StrengthFinding] = []
        self._explained: list[str] = []
        self._notes: list[str] = []
        self._mutants: list[MutantResult] = []
        # What the base's tests say about the new code; None if they did not run
        self._old_tests: _VariantRun | None = None

        patterns = inputs.test_files
        self._tests = [
            one
            for one in inputs.changed
            if is_test_path(one.path, patterns) or is_runner_config(one.path)
        ]
        self._code = [one for one in inputs.changed if one not in self._tests and is_code(one.path)]
        self._sources = SourceIndex([one.decode() for one in self._tests])
        self._base = summarize_outcomes(inputs.base_run.cases if inputs.base_run else ())
        self._work = summarize_outcomes(inputs.work_run.cases)

    def measure(self) -> StrengthReport:
        """Run the comparisons, as far as they apply, within the time limit."""
        self._compare_runs()
        self._ask_about_data()
        rows: tuple[RevertedRequirement, ...] = ()
        if not self._inputs.has_test_files:
            self._notes.append(
                "the tree has no test files, so nothing was compared; "
                "name them with `test_files` in [evidence]"
            )
        elif not self._code:
            self._notes.append("no code was changed, so no test has to notice it")
        if self._needs_checkout() and self._set_up():
            self._run_base_tests()
            if self._inputs.with_mutants:
                self._probe_rewritten_tests()
            if self._code and self._inputs.has_test_files:
                rows = self._judge_bites()
                if self._inputs.with_mutants:
                    self._try_mutants()

        return StrengthReport(
            findings=tuple(self._findings),
            requirements=rows,
            mutants=tuple(self._mutants),
            explained=tuple(self._explained),
            notes=tuple(self._notes),
            suite_s=self._inputs.suite_s,
            cost_s=time.monotonic() - self._started_s,
        )

    def _needs_checkout(self) -> bool:
        return bool(self._tests) or bool(self._code and self._inputs.has_test_files)

    # --- the runs that exist already

    def _compare_runs(self) -> None:
        """Compare the test run of the work with the base's, and add findings."""
        base = self._inputs.base_run
        work = self._inputs.work_run
        self._compare_runners(base, work)
        if base is None:
            self._notes.append("the tests did not run on the base, so none can be compared")
            return
        if base.is_reported and not work.is_reported:
            self._add(
                "unreported tests",
                "the base's test run reported its tests one by one, but this one did not",
                "the test run",
            )
            return
        if base.is_reported:
            lost = find_lost_tests(self._base, self._work)
            findings, explained = judge_lost_tests(
                lost, self._work, self._sources, self._inputs.facts
            )
            self._findings += findings
            self._explained += explained
        elif work.executed < base.executed:
            text = f"{work.executed} tests ran, {base.executed} on the base"
            self._add("fewer tests", text, f"{base.executed - work.executed} fewer")

    def _compare_runners(self, base: TestRun | None, work: TestRun) -> None:
        """Reject a run that replaced functions of the test runner, which the base's did not."""
        known = base.changed_functions if base is not None else ()
        if known is None or work.changed_functions is None:
            return
        if changed := sorted({*work.changed_functions} - {*known}):
            names = ", ".join(changed[:5])
            text = f"the test run replaced functions of the test runner: {names}"
            self._add("changes the test run", text, names)

    def _add(self, kind: str, text: str, detail: str, severity: Severity = Severity.REJECT) -> None:
        self._findings.append(
            StrengthFinding(kind=kind, severity=severity, text=text, detail=detail)
        )

    def _ask_about_data(self) -> None:
        """Ask about changed data files that a test file names: they may hold expected values."""
        data = {
            one.path: one
            for one in self._inputs.changed
            if one.old is not None and _holds_data(one) and _count_removed(one)
        }
        if not data:
            return
        texts = self._read_files(are_tests=True).values()
        for path, one in data.items():
            named = _name_in_tests(path)
            if is_test_path(path, self._inputs.test_files) or any(map(named.search, texts)):
                text = f"{_count_removed(one)} lines of test data were removed or changed"
                self._findings.append(
                    StrengthFinding(
                        kind="changed test data", severity=Severity.ASK, path=one.path, text=text
                    )
                )

    def _read_files(self, *, are_tests: bool) -> dict[str, str]:
        """Return the text of the test files of the checkout, or of its other source files."""
        checkout = self._runner.checkout
        texts: dict[str, str] = {}
        for folder, folders, names in os.walk(checkout):
            folders[:] = [
                one for one in folders if not one.startswith(".") and one not in _FOREIGN_FOLDERS
            ]
            for name in names:
                path = str(Path(folder, name).relative_to(checkout))
                is_wanted = is_test_path(path, self._inputs.test_files) is are_tests
                if is_wanted and is_code(path) and len(texts) < _MAX_SCANNED_FILES:
                    with suppress(UnreadableFile):
                        data, size = read_up_to(
                            checkout / path, _MAX_SCANNED_BYTES, follow_links=False
                        )
                        # A part of a source file cannot be altered and restored
                        if are_tests or size == len(data):
                            texts[path] = data.decode(errors="surrogateescape")
        return texts

    # --- the base's tests over the new code

    def _run_base_tests(self) -> None:
        """Run the base's test files over the new code; add a finding if one fails."""
        base = self._inputs.base_run
        if base is None or not any(one.old or is_runner_config(one.path) for one in self._tests):
            return

        wanted = _select_files([(one.path, one.old) for one in self._tests])
        ran = self._run_variant({one.path: one.old for one in self._tests}, wanted)
        self._old_tests = ran
        if ran.timed_out:
            self._note_timeout("the base's tests over the new code")
        elif ran.outcomes is not None and base.is_reported:
            findings, explained = judge_base_tests(
                self._base, ran.outcomes, self._work, self._sources, self._inputs.facts
            )
            self._findings += findings
            self._explained += explained
        elif ran.exit_status:
            names = [name for name in _failing(ran) if name not in base.failing]
            for name in names or [WHOLE_SUITE]:
                text = f"{name} fails over the new code with the base's test files"
                self._add("weakened test", text, name)

    # --- the base's and the work's tests over altered code

    def _probe_rewritten_tests(self) -> None:
        """Mutate the code under rewritten tests; they must detect what the old ones detected."""
        old_run = self._old_tests
        changed = [one.decode() for one in self._tests if one.old is not None]
        words = list_rewritten_words(changed)
        if not words or old_run is None or old_run.timed_out:
            return
        if has_rewritten_helpers(changed):
            words += tuple(re.findall(r"\w+", "\n".join(self._read_files(are_tests=True).values())))

        old_files = {one.path: one.old for one in self._tests}
        wanted_old = _select_files([(one.path, one.old) for one in self._tests])
        wanted_new = _select_files([(one.path, one.new) for one in self._tests])
        probes = choose_probes(self._read_files(are_tests=False), words)
        affordable = self._count_affordable(len(probes))
        compared: set[str] = set()
        for path, mutant in probes[:affordable]:
            version = FileVersion(mutant.text.encode(errors="surrogateescape"))
            old = self._run_variant({**old_files, path: version}, wanted_old)
            if not _is_noticed(old, old_run):
                continue
            new = self._run_variant({path: version}, wanted_new)
            self._judge_probe(path, mutant, (old_run, old, new))
            compared |= _list_failed(old.outcomes or {})
        if affordable < len(probes):
            self._ask_about_uncompared(changed, compared)

    def _count_affordable(self, count: int) -> int:
        """Return how many probes fit in the time limit; all of them if the suite is short.

        This depends on the time of earlier runs, so that load during the probes changes nothing.
        """
        if 2 * count * self._inputs.suite_s <= self._inputs.budget_s:
            return count
        return min(count, max(0, int(self._remaining_s / 2 / (2.6 * self._slowest_s))))

    def _ask_about_uncompared(self, changed: Sequence[ChangedText], compared: set[str]) -> None:
        """Add a question about rewritten tests that detected no mutation in time."""
        kept = {block.text for blocks in self._sources.new.values() for block in blocks}
        rewritten = {
            test
            for test in self._base
            if (block := self._sources.find_old(test)) and block.text not in kept
        }
        names = sorted(rewritten - compared)
        if has_rewritten_helpers(changed) or not rewritten:
            names += [one.path for one in changed]
        if names:
            text = f"too little time to compare with the base: {', '.join(names[:5])}"
            self._add("not measured", text, "rewritten tests", Severity.ASK)

    def _judge_probe(
        self, path: str, mutant: Mutant, runs: tuple[_VariantRun, _VariantRun, _VariantRun]
    ) -> None:
        """Add a finding for each rewritten test that misses a mutant that its old version detected.

        `runs`: the old tests over the work, and the old and the new tests over the mutant.
        """
        over_work, old, new = runs
        if old.timed_out or new.timed_out:
            return
        if old.outcomes is None or new.outcomes is None or over_work.outcomes is None:
            dulled = [] if new.exit_status else [WHOLE_SUITE]
        else:
            base = {
                test: outcome
                for test, outcome in self._base.items()
                if test not in over_work.outcomes or not over_work.outcomes[test].is_failure
            }
            dulled = find_dulled_tests(base, old.outcomes, new.outcomes)

        known = {finding.detail for finding in self._findings}
        what = f"{path}:{mutant.line} {mutant.kind}: {mutant.before} -> {mutant.after}"
        for test in dulled:
            finding, reason = judge_probe(test, what, self._sources, self._inputs.facts)
            if reason:
                self._explained.append(f"{test} notices less than on the base: {reason}")
            elif finding.detail not in known:
                self._findings.append(finding)

    # --- the work's tests over the base's code

    def _find_bites(self) -> list[str] | None:
        """Run the tests without the change, and return those that fail then."""
        if all(one.new is None for one in self._tests):
            return find_dependent_tests(self._base, {}, self._work)

        wanted = _select_files([(one.path, one.new) for one in self._tests])
        ran = self._run_variant({one.path: one.old for one in self._code}, wanted)
        if ran.timed_out:
            self._note_timeout("the tests without the change")
            return None
        if ran.outcomes is not None:
            return find_dependent_tests(self._base, ran.outcomes, self._work)
        if not ran.exit_status:
            return []

        base = self._inputs.base_run
        names = [name for name in _failing(ran) if base is None or name not in base.failing]
        return names or [WHOLE_SUITE]

    def _judge_bites(self) -> tuple[RevertedRequirement, ...]:
        found = self._find_bites()
        if found is None:
            return ()
        found = [test for test in found if test not in self._inputs.flaky]
        requirements = self._inputs.facts.requirements
        rows = match_requirements(requirements, found, self._list_test_texts())
        names = ", ".join(one.path for one in self._code[:5])
        self._findings += judge_reverted_code(found, rows, self._inputs.facts, names)
        return rows

    def _list_test_texts(self) -> dict[str, str]:
        """Return the id and source of every test of the work in a changed file."""
        changed = {one.path for one in self._tests if one.new is not None}
        texts = {}
        for test in self._work:
            if test.partition("::")[0] in changed:
                block = self._sources.find_new(test)
                texts[test] = f"{test}\n{block.text if block else ''}"
        return texts

    # --- mutants

    def _try_mutants(self) -> None:
        """Try mutants of the changed lines while time is left, with the changed tests."""
        tests = [(one.path, one.new) for one in self._tests]
        wanted = _select_files(tests) if any(new for _, new in tests) else ()
        mutants = [
            (one, mutant)
            for one in self._code
            if one.new is not None
            for mutant in make_mutants(one.path, _decode(one.new) or "", _added_numbers(one))
        ]
        for one, mutant in sorted(mutants, key=lambda pair: pair[1].kind != EMPTIED):
            if self._remaining_s < 1.3 * self._slowest_s:
                left = len(mutants) - len(self._mutants)
                self._notes.append(f"{left} mutants were not tried: no time left")
                break
            version = FileVersion(mutant.text.encode(errors="surrogateescape"))
            ran = self._run_variant({one.path: version}, wanted)
            self._mutants.append(
                MutantResult(
                    path=one.path,
                    line=mutant.line,
                    kind=mutant.kind,
                    before=mutant.before[:120],
                    after=mutant.after[:120],
                    killed=self._is_killed(ran),
                )
            )

        if not mutants:
            self._notes.append("nothing could be mutated in the changed lines")
        self._findings += judge_mutants(self._mutants, self._inputs.facts)

    def _is_killed(self, ran: _VariantRun) -> bool:
        if ran.timed_out or ran.outcomes is None:
            return ran.timed_out or bool(ran.exit_status)
        return bool(_list_failed(ran.outcomes) - _list_failed(self._work) - self._inputs.flaky)

    # --- running

    def _set_up(self) -> bool:
        checks = self._runner.run_checks((Purpose.SETUP,))
        if any(check.outcome is CheckOutcome.FAILED for check in checks):
            self._add(
                "not measured",
                f"the checkout for the comparison could not be set up: {checks[0].summary}",
                "setup",
                Severity.ASK,
            )
            return False
        return True

    def _note_timeout(self, what: str) -> None:
        self._add("not measured", f"{what} took too long", what, Severity.ASK)

    @property
    def _remaining_s(self) -> float:
        return self._inputs.budget_s - (time.monotonic() - self._started_s)

    def _run_variant(
        self, files: Mapping[str, FileVersion | None], wanted: Sequence[str]
    ) -> _VariantRun:
        """Run tests with some files replaced, then restore them."""
        began_s = time.monotonic()
        new = {one.path: one.new for one in self._inputs.changed}
        checkout = self._runner.checkout
        restored = {
            path: new[path] if path in new else _read_version(checkout / path) for path in files
        }
        self._place(files)
        try:
            line = self._runner.get_command_line(Purpose.TEST)
            if not can_select_tests(line):
                wanted = ()
            ran = None
            if self._runner.plan.commands.get(Purpose.BUILD, "").strip():
                ran = self._runner.run_build()
            report = None
            if ran is None or ran.exit_status == 0:
                limit_s = max(self._remaining_s, self._inputs.suite_s * 2, 10.0)
                ran, report = self._runner.run_test_command(line, tuple(wanted), limit_s)
        finally:
            self._place(restored)

        self._slowest_s = time.monotonic() - began_s
        outcomes = None
        if report is not None and report.cases:
            outcomes = summarize_outcomes(report.cases)
        return _VariantRun(
            outcomes=outcomes,
            parsed=parse_test_output(f"{ran.stdout}\n{ran.stderr}"),
            exit_status=ran.exit_status if ran.exit_status is not None else 1,
            timed_out=ran.timed_out,
        )

    def _place(self, files: Mapping[str, FileVersion | None]) -> None:
        for path, version in files.items():
            place_file(self._runner.checkout, path, version)


def _select_files(versions: Sequence[tuple[str, FileVersion | None]]) -> tuple[str, ...]:
    """Return the test files to run; none if another file changed, which any test may use."""
    existing = [(path, _decode(version) or "") for path, version in versions if version]
    if all(split_tests(path, text) for path, text in existing):
        return tuple(path for path, _ in existing)
    return ()


def _read_version(path: Path) -> FileVersion:
    data, _ = read_up_to(path, _MAX_SCANNED_BYTES, follow_links=False)
    return FileVersion(data, os.access(path, os.X_OK))


def _is_noticed(ran: _VariantRun, before: _VariantRun) -> bool:
    """Return True if a test fails that did not fail before."""
    if ran.outcomes is None or before.outcomes is None:
        return bool(ran.exit_status) and not before.exit_status
    return bool(_list_failed(ran.outcomes) - _list_failed(before.outcomes))


def _list_failed(outcomes: Outcomes) -> set[str]:
    return {test for test, outcome in outcomes.items() if outcome.is_failure}


def _added_numbers(one: ChangedContent) -> frozenset[int]:
    return frozenset(number for number, _ in list_added_lines(one.decode()))


def _count_removed(one: ChangedContent) -> int:
    """Count the lines of the old version that the new one does not have."""
    if one.old is None:
        return 0
    old = Counter(one.old.data.splitlines())
    new = Counter(one.new.data.splitlines() if one.new else ())
    return (old - new).total()


_DEFINITION = re.compile(r"\b(?:def|class|function|return|lambda)\b|=>")


def _holds_data(one: ChangedContent) -> bool:
    """Return True for a data file, and for a source file that has only tables."""
    text = _decode(one.old) or ""
    is_table = (
        is_code(one.path) and not _DEFINITION.search(text) and bool(re.search(r"[\[{]", text))
    )
    return is_table or is_data(one.path)


def _name_in_tests(path: str) -> re.Pattern[str]:
    """Return a pattern of how tests name a file: by its name, as a module, or by its folder."""
    *folders, name = path.split("/")
    names = [rf"['\"/]{re.escape(folder)}['\"/]" for folder in folders]
    if is_code(path):
        names = [rf"(?:import|from|require).*\b{re.escape(name.partition('.')[0])}\b"]
    return re.compile("|".join((re.escape(name), *names)))


def _failing(ran: _VariantRun) -> Iterable[str]:
    return ran.parsed.failing if ran.parsed is not None else ()


def place_file(root: Path, path: str, version: FileVersion | None) -> None:
    """Write or remove a file of a checkout in which commands have run.

    They may have replaced folders by links, which are not followed.
    """
    *folders, name = path.split("/")
    with folder_descriptor(root) as top:
        parent = make_folder_beneath(top, folders)
        with closing_descriptor(parent):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=parent)
            if version is not None:
                mode = 0o755 if version.is_executable else 0o644
                with closing_descriptor(create_new_file(name, mode, parent)) as file:
                    write_all(file, version.data)
