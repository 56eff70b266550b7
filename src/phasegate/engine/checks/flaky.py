"""Tell flaky tests from failures, and keep the ones that also flake on the base in quarantine.

A failing test is run again alone, on the work and on the base. It is excused only if it exists on
the base, in a file that the package did not change: an implementer cannot excuse its own test.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from phasegate.checks.baseline import Baseline
from phasegate.checks.commands import RERUNS_ALONE, PlanRunner
from phasegate.checks.evidence import CheckOutcome, CheckResult
from phasegate.checks.excerpt import format_names
from phasegate.core.machine.retry import Fault
from phasegate.core.test_strength.model import FlakyTest
from phasegate.engine.project.project import Project
from phasegate.files.durable_write import replace_file
from phasegate.typed import read_json

# Tests that flake on the work only: more of them are not a coincidence
MAX_UNCONFIRMED = 3
_DAY_S = 86_400.0


class QuarantinedTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test that neither rejects nor proves anything until it expires, with its history."""

    test: str
    first_seen_s: float
    expires_s: float
    passed: int
    failed: int


class Quarantine:
    """The quarantined tests of a repository, on this machine."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._path: Path = project.location.data_folder / "quarantine.json"

    def list_tests(self) -> list[QuarantinedTest]:
        """Return the tests that have not expired."""
        try:
            known = read_json(self._path.read_bytes(), list[QuarantinedTest])
        except (OSError, msgspec.DecodeError):
            return []
        now_s = self._project.clock.time_s()
        return [one for one in known if one.expires_s > now_s]

    def add(self, flaky: Iterable[FlakyTest]) -> None:
        """Add the tests that flaked on the base; a known one is kept for longer."""
        now_s = self._project.clock.time_s()
        days = self._project.config.evidence.quarantine_days
        tests = {one.test: one for one in self.list_tests()}
        found = [*flaky]
        if not found:
            return
        for one in found:
            known = tests.get(one.test)
            tests[one.test] = QuarantinedTest(
                test=one.test,
                first_seen_s=known.first_seen_s if known else now_s,
                expires_s=now_s + days * _DAY_S,
                passed=one.passed + (known.passed if known else 0),
                failed=one.failed + (known.failed if known else 0),
            )
        replace_file(self._path, msgspec.json.encode([*tests.values()]))


def excuse_flaky_tests(
    check: CheckResult,
    baseline: Baseline | None,
    changed: Collection[str],
    quarantine: Quarantine,
    make_base_runner: Callable[[], PlanRunner],
) -> CheckResult:
    """Pass a failed test check if every failure is flaky, known or old, and not of the package."""
    tests = check.tests
    if check.outcome is not CheckOutcome.FAILED or tests is None or tests.is_forged:
        return check
    if baseline is None or baseline.test_run is None or not tests.is_reported:
        return check

    on_base = {case.id: case for case in baseline.test_run.cases}
    known = {one.test for one in quarantine.list_tests()}
    failing = {case.id for case in tests.cases if case.outcome.is_failure}
    new = {name for name in failing if name in on_base and not on_base[name].outcome.is_failure}
    flaky = {one.test: one for one in check.flaky}
    own = [
        name
        for name in failing
        if name not in on_base or (name in new and _get_file(name) in changed)
    ]
    if own or not new or new - known - flaky.keys():
        return check

    suspects = [flaky[name] for name in sorted(new - known)]
    judged = _run_on_base(suspects, make_base_runner) if suspects else []
    if sum(not one.on_base for one in judged) > MAX_UNCONFIRMED:
        return check

    quarantine.add(one for one in judged if one.on_base)
    names = sorted(new)
    return replace(
        check,
        outcome=CheckOutcome.PASSED,
        summary=f"{tests.passed} tests passed; flaky: {format_names(names)}",
        remedy="",
        notes=(*check.notes, *(f"flaky: {one}" for one in judged)),
        flaky=tuple(judged),
        fault=Fault.FLAKY_TEST,
    )


def _get_file(test: str) -> str:
    return test.partition("::")[0]


def _run_on_base(
    suspects: list[FlakyTest], make_base_runner: Callable[[], PlanRunner]
) -> list[FlakyTest]:
    """Run suspected tests alone on the base, and add the counts."""
    runner = make_base_runner()
    names = tuple(one.test for one in suspects)
    counts = runner.count_alone(names, RERUNS_ALONE)
    return [
        FlakyTest(
            test=one.test,
            passed=one.passed + counts[one.test][0],
            failed=one.failed + counts[one.test][1],
            on_base=min(counts[one.test]) > 0,
        )
        for one in suspects
    ]
