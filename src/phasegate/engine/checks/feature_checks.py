"""Run the commands of a phase, and the checks before a merge, in a clean checkout."""

from __future__ import annotations

from collections.abc import Mapping

from phasegate.checks.evidence import CheckOutcome, CheckResult, Evidence
from phasegate.checks.plan import Purpose
from phasegate.checks.test_output import TestRun
from phasegate.core.detection.python_tests import is_test_file
from phasegate.core.detection.scan import detect_scans
from phasegate.core.machine.feature_events import CommandsRan
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.acceptance import SealedTests
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.workflow.phases import PhaseWork, get_phase
from phasegate.engine.checks.acceptance import check_sealed_tests
from phasegate.engine.checks.detect import read_project_files
from phasegate.engine.checks.evidence_text import describe_evidence
from phasegate.engine.checks.manifest import PackageChecker
from phasegate.engine.project.project import Project

MERGE_PURPOSES = (Purpose.BUILD, Purpose.TEST)
_REVIEW_PURPOSES = (Purpose.BUILD, Purpose.TYPECHECK, Purpose.LINT, Purpose.TEST)
# Coverage is measured by a test run; without a threshold, only the test run counts.
_IMPLIED_PURPOSES = {Purpose.COVERAGE: (Purpose.TEST, Purpose.COVERAGE)}


def run_phase_commands(
    project: Project,
    slug: str,
    phase: str,
    base_commit: str,
    commit: str,
    commands: tuple[str, ...],
) -> tuple[CommandsRan, Evidence]:
    """Run the commands of a phase, given as names of checks or as command lines.

    A check that the project does not have gives no result. A check that it had at `base_commit`,
    where the feature started, still counts.
    """
    names = [Purpose(name) for name in commands if name in Purpose.__members__.values()]
    lines = [line for line in commands if line not in Purpose.__members__.values()]
    purposes = [purpose for name in names for purpose in _IMPLIED_PURPOSES.get(name, (name,))]
    checker = _make_checker(project, slug, base_commit)._replace(purpose=phase)
    evidence = checker.run_checks(commit, purposes, lines)
    missing_programs = tuple(
        f"{check.name}: {check.summary}"
        for check in evidence.failures
        if check.is_system_program_missing
    )
    event = CommandsRan(
        results=_summarize_results(evidence),
        findings=describe_evidence(evidence),
        commit=commit,
        lacking=missing_programs,
        needs_review=bool(find_points_to_judge(evidence, checker.get_base_checks())),
    )
    return event, evidence


def find_points_to_judge(
    evidence: Evidence, base_checks: Mapping[str, CheckResult]
) -> tuple[str, ...]:
    """Return the points that a reviewer has to judge.

    There are none if the evidence is green and no worse than the base.

    The user's own command lines, failures, tolerated failures, flaky tests, fewer or newly skipped
    tests and lower coverage are judged.
    """
    if not evidence.has_passed:
        return ("not every check passed",)

    points = []
    for check in evidence.checks:
        base = base_checks.get(check.name)
        # An exit status says little about a deployment
        if check.name not in Purpose.__members__.values():
            points.append(f"the output of `{check.name}`")
        points += _compare_tests(check, base.tests if base else None)
        if check.fault is not None or check.exit_status not in (None, 0):
            points.append(f"{check.name}: {check.summary}")
        if check.coverage_percent is not None and (
            base is None
            or base.coverage_percent is None
            or check.coverage_percent < base.coverage_percent
        ):
            points.append(f"{check.name} is lower than before, or was not measured before")

    return tuple(points)


def _compare_tests(check: CheckResult, before: TestRun | None) -> list[str]:
    tests = check.tests
    if tests is None or before is None:
        return []
    points = []
    if tests.executed < before.executed:
        points.append(f"{tests.executed} tests ran, {before.executed} before")
    if tests.skipped > before.skipped:
        points.append(f"{tests.skipped} tests were skipped, {before.skipped} before")
    return points


def gather_review_evidence(
    project: Project, slug: str, phase: str, base_commit: str, commit: str
) -> str:
    """Return the evidence of a tree for the reviewer of a whole feature: checks and scans.

    Results that are recorded for the same tree are not produced again.
    """
    checker = _make_checker(project, slug, base_commit)._replace(purpose=phase)
    evidence = checker.run_checks(commit, _REVIEW_PURPOSES, _find_scans(project, base_commit))
    return describe_evidence(evidence)


def _find_scans(project: Project, commit: str) -> tuple[str, ...]:
    """Return the configured scan commands, or those that the project itself uses."""
    tables = project.config.checks.values()
    configured = [table.scan for table in tables if table.scan is not None]
    if configured:
        return tuple(filter(None, configured))

    files = read_project_files(project, commit)
    texts = {path: text for path, text in files.texts.items() if not is_test_file(path)}
    return detect_scans(files.paths, texts)


def refuse_untestable_base(project: Project, feature: Feature) -> None:
    """Refuse a feature whose base cannot be tested, before its first agent costs money."""
    slug = feature.workflow.feature
    head = project.refs.fetch(f"feat/{slug}").get(f"feat/{slug}")
    if head and any(get_phase(key).work is PhaseWork.PACKAGES for key in feature.workflow.phases):
        _make_checker(project, slug, head).refuse_unusable_base()


def check_merge(
    project: Project,
    slug: str,
    base_commit: str,
    commit: str,
    acceptance: SealedTests | None = None,
) -> Evidence:
    """Build and test a merged tree before its branch moves from `base_commit`.

    All sealed acceptance tests must pass on it.
    """
    checker = _make_checker(project, slug, base_commit)
    evidence = checker.run_checks(commit, MERGE_PURPOSES)
    if acceptance is None or evidence.failures:
        return evidence
    return Evidence((*evidence.checks, check_sealed_tests(checker, commit, acceptance).check))


def sum_durations_s(evidence: Evidence) -> dict[str, float]:
    """Return the total duration of every command that was run, in seconds."""
    durations_s: dict[str, float] = {}
    for check in evidence.checks:
        if check.duration_s is not None and not check.is_recorded:
            durations_s[check.name] = durations_s.get(check.name, 0.0) + check.duration_s

    return {name: round(duration_s, 3) for name, duration_s in durations_s.items()}


def _summarize_results(evidence: Evidence) -> dict[str, bool]:
    """Return whether each requested check passed, without a passed setup: it proves nothing."""
    failed = {check.name for check in evidence.failures}
    return {
        check.name: check.name not in failed
        for check in evidence.checks
        if check.outcome is not CheckOutcome.NOT_REQUESTED
        and (check.name in failed or check.name != Purpose.SETUP)
    }


def _make_checker(project: Project, slug: str, base_commit: str) -> PackageChecker:
    whole = WorkPackage(work_package_id="feature", title="", feature_slug=slug, file_scope=())
    return PackageChecker(project, whole, base_commit)
