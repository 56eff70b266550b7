"""Plan the checks of a commit, from its own tree and from the tree that the work started from."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from phasegate.checks.plan import CommandPlan, Purpose
from phasegate.config.settings import AlreadyFailingPolicy
from phasegate.config.settings import CheckSettings as ProfileChecks
from phasegate.core.detection.model import DetectedProject, SetupCandidate
from phasegate.core.detection.roots import find_touched_roots
from phasegate.core.plan.work_package import CHECK_COMMANDS, PROFILES, PackageChecks, WorkPackage
from phasegate.engine.checks.detect import DetectedRoot, detect_roots
from phasegate.engine.project.project import Project
from phasegate.prompts.profiles import load_profile


class CheckPlan(NamedTuple):
    """A command plan and the detected project that it is based on."""

    plan: CommandPlan
    detected: DetectedProject | None


def make_check_plans(
    project: Project, package: WorkPackage, base_commit: str, commit: str
) -> tuple[CheckPlan, ...]:
    """Return a plan for every root that the package's scope touches.

    The checks at `base_commit` still apply to `commit`: work that removes a check or a root, or
    makes a root look like another kind of project, does not avoid the check.
    """
    at_base = detect_roots(project, base_commit, default_kind=package.profile or None)
    at_commit = at_base
    if base_commit != commit:
        kinds = {root: found.detected.profile for root, found in at_base.items() if found.detected}
        at_commit = detect_roots(project, commit, kinds, package.profile or None)

    roots = find_touched_roots([*dict.fromkeys((*at_base, *at_commit))], package.file_scope)
    return tuple(
        _make_plan(project, package, root, at_base.get(root), at_commit.get(root)) for root in roots
    )


def _make_plan(
    project: Project,
    package: WorkPackage,
    root: str,
    at_base: DetectedRoot | None,
    at_commit: DetectedRoot | None,
) -> CheckPlan:
    """Plan the checks of a root from detection, configuration and package."""
    # The commands of the current commit override those of the base
    projects = [found.detected for found in (at_base, at_commit) if found and found.detected]
    detected = projects[-1] if projects else None
    profile = detected.profile if detected else ""
    checks = resolve_checks(project, package, profile if detected else package.profile, root)
    commands: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for found_project in projects:
        for purpose, candidate in found_project.commands.items():
            commands[purpose] = candidate.command
            reasons[purpose] = candidate.why

    configured = {
        name: line for name in CHECK_COMMANDS if (line := getattr(checks, name)) is not None
    }
    counted_root = at_commit or at_base
    plan = CommandPlan(
        root=root,
        commands={**commands, **configured},
        reasons={**reasons, **dict.fromkeys(configured, "set by hand")},
        setups=() if "setup" in configured else _list_setup_candidates(detected, configured),
        test_functions=(
            counted_root.test_functions if counted_root and "test" not in configured else None
        ),
        # 0 disables the check
        coverage_min=checks.coverage_min or None,
        code=package.deliverables.code,
        tolerates_old_failures=project.config.already_failing is AlreadyFailingPolicy.TOLERATE,
    )

    return CheckPlan(msgspec.structs.replace(plan, **_read_profile_settings(profile)), detected)


def _list_setup_candidates(
    detected: DetectedProject | None, configured: dict[str, str]
) -> tuple[SetupCandidate, ...]:
    """Return the setup candidates in order.

    If a test command is configured, those of the candidates are dropped.
    """
    setups = detected.setups if detected else ()
    if Purpose.TEST in configured:
        return tuple(setup._replace(test_command="") for setup in setups)
    return setups


def resolve_checks(
    project: Project, package: WorkPackage, profile: str, root: str
) -> PackageChecks:
    """Return the checks of a package.

    Checks that the package does not set come from the configuration of its root, or of the root's
    profile.
    """
    tables = project.config.checks
    at_root = next((table for table in tables.values() if table.root == root), None)
    configured = at_root or tables.get(profile) or ProfileChecks()
    values = {}
    for name in (*CHECK_COMMANDS, "coverage_min"):
        value = getattr(package.checks, name)
        values[name] = getattr(configured, name) if value is None else value

    return PackageChecks(**values)


def _read_profile_settings(name: str) -> dict[str, tuple[str, ...]]:
    if name not in PROFILES:
        return {}

    profile = load_profile(name)
    settings = {
        "lock_files": profile.lock_files,
        "coverage_reports": profile.coverage_reports,
        "bin_folders": (*profile.bin_folders, *CommandPlan().bin_folders[-1:]),
    }
    return {key: values for key, values in settings.items() if values}
