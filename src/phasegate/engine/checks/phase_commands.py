"""The commands of a phase, and those that must pass before a branch moves, run by us on a clean
checkout.
"""

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
# Coverage is measured by a test run: where no threshold is set, the run itself is what is asked
# for.
_IMPLIED_PURPOSES = {Purpose.COVERAGE: (Purpose.TEST, Purpose.COVERAGE)}


def run_phase_commands(
    project: Project, slug: str, start: str, commit: str, commands: tuple[str, ...]
) -> tuple[CommandsRan, Evidence]:
    """Run a phase's commands: names of checks, or command lines.

    A check that the project has not is no result.

    `start` is the commit that the feature began from: a check that the project had there is still
    one.
    """
    names = [Purpose(name) for name in commands if name in Purpose.__members__.values()]
    lines = [line for line in commands if line not in Purpose.__members__.values()]
    purposes = [meant for name in names for meant in _IMPLIED_PURPOSES.get(name, (name,))]
    evidence = _make_checker(project, slug, start).run_checks(commit, purposes, lines)
    lacking = (
        f"{one.name}: {one.summary}" for one in evidence.failures if one.is_system_program_missing
    )

    return CommandsRan(
        _summarize_results(evidence), describe_evidence(evidence), commit, tuple(lacking)
    ), evidence


def refuse_untestable_base(project: Project, feature: Feature) -> None:
    """Refuse a feature that will be tested on a base that cannot be, before its first agent is
    paid.
    """
    slug = feature.workflow.feature
    head = project.refs.fetch(f"feat/{slug}").get(f"feat/{slug}")
    if head and any(get_phase(key).work is PhaseWork.PACKAGES for key in feature.workflow.phases):
        _make_checker(project, slug, head).refuse_unusable_base()


def check_merge(project: Project, slug: str, start: str, commit: str) -> Evidence:
    """Build and test a merged tree before its branch moves on from `start`."""
    return _make_checker(project, slug, start).run_checks(commit, MERGE_PURPOSES)


def sum_durations_s(evidence: Evidence) -> dict[str, float]:
    """How long each command took."""
    taken = [
        (check.name, check.duration_s) for check in evidence.checks if check.duration_s is not None
    ]
    return {name: round(sum(one for other, one in taken if other == name), 3) for name, _ in taken}


def _summarize_results(evidence: Evidence) -> dict[str, bool]:
    """Each check that was asked for.

    A setup counts only where it failed: by itself it shows nothing.
    """
    asked = [check for check in evidence.checks if check.outcome is not CheckOutcome.NOT_REQUESTED]
    broken = {check.name for check in evidence.failures}
    return {
        check.name: check.name not in broken
        for check in asked
        if check.name in broken or check.name != Purpose.SETUP
    }


def _make_checker(project: Project, slug: str, start: str) -> PackageChecker:
    whole = WorkPackage(work_package_id="feature", title="", feature_slug=slug, file_scope=())
    return PackageChecker(project, whole, start)
