"""Run the commands of a phase, and the checks before a merge, in a clean checkout."""

from __future__ import annotations

from phasegate.checks.evidence import CheckOutcome, Evidence
from phasegate.checks.plan import Purpose
from phasegate.core.machine.feature_events import CommandsRan
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.workflow.phases import PhaseWork, get_phase
from phasegate.engine.checks.manifest import PackageChecker, describe_evidence
from phasegate.engine.project.project import Project

MERGE_PURPOSES = (Purpose.BUILD, Purpose.TEST)
# Coverage is measured by a test run; without a threshold, only the test run counts.
_IMPLIED_PURPOSES = {Purpose.COVERAGE: (Purpose.TEST, Purpose.COVERAGE)}


def run_phase_commands(
    project: Project, slug: str, start: str, commit: str, commands: tuple[str, ...]
) -> tuple[CommandsRan, Evidence]:
    """Run the commands of a phase, given as names of checks or as command lines.

    A check that the project does not have gives no result. A check that it had at `start`, the
    start commit of the feature, still counts.
    """
    names = [Purpose(name) for name in commands if name in Purpose.__members__.values()]
    lines = [line for line in commands if line not in Purpose.__members__.values()]
    purposes = [purpose for name in names for purpose in _IMPLIED_PURPOSES.get(name, (name,))]
    evidence = _make_checker(project, slug, start).run_checks(commit, purposes, lines)
    missing_programs = tuple(
        f"{check.name}: {check.summary}"
        for check in evidence.failures
        if check.is_system_program_missing
    )
    event = CommandsRan(
        _summarize_results(evidence), describe_evidence(evidence), commit, missing_programs
    )
    return event, evidence


def refuse_untestable_base(project: Project, feature: Feature) -> None:
    """Refuse a feature whose base cannot be tested, before its first agent costs money."""
    slug = feature.workflow.feature
    head = project.refs.fetch(f"feat/{slug}").get(f"feat/{slug}")
    if head and any(get_phase(key).work is PhaseWork.PACKAGES for key in feature.workflow.phases):
        _make_checker(project, slug, head).refuse_unusable_base()


def check_merge(project: Project, slug: str, start: str, commit: str) -> Evidence:
    """Build and test a merged tree before its branch moves from `start`."""
    return _make_checker(project, slug, start).run_checks(commit, MERGE_PURPOSES)


def sum_durations_s(evidence: Evidence) -> dict[str, float]:
    """Return the total duration of every command, in seconds."""
    durations_s: dict[str, float] = {}
    for check in evidence.checks:
        if check.duration_s is not None:
            durations_s[check.name] = durations_s.get(check.name, 0.0) + check.duration_s

    return {name: round(duration_s, 3) for name, duration_s in durations_s.items()}


def _summarize_results(evidence: Evidence) -> dict[str, bool]:
    """Return whether each requested check passed. A passed setup is left out: it proves nothing."""
    failed = {check.name for check in evidence.failures}
    return {
        check.name: check.name not in failed
        for check in evidence.checks
        if check.outcome is not CheckOutcome.NOT_REQUESTED
        and (check.name in failed or check.name != Purpose.SETUP)
    }


def _make_checker(project: Project, slug: str, start: str) -> PackageChecker:
    whole = WorkPackage(work_package_id="feature", title="", feature_slug=slug, file_scope=())
    return PackageChecker(project, whole, start)
