"""What is asked of a tree: what it asks for itself, and what the one did that the work began from."""

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
    """A plan, and what it was made from."""

    plan: CommandPlan
    detected: DetectedProject | None


def make_check_plans(
    project: Project, package: WorkPackage, start: str, commit: str
) -> tuple[CheckPlan, ...]:
    """The plans for a commit that began from `start`, one for each root that the package's scope
    touches.

    Work that takes a check or a root away, or makes a root look like one of another kind, is not
    spared the check.
    """
    began = detect_roots(project, start, default_kind=package.profile or None)
    kinds = {root: seen.detected.profile for root, seen in began.items() if seen.detected}
    if start == commit:
        now = began
    else:
        now = detect_roots(project, commit, kinds, package.profile or None)

    roots = find_touched_roots([*dict.fromkeys((*began, *now))], package.file_scope)
    return tuple(
        _make_plan(project, package, root, began.get(root), now.get(root)) for root in roots
    )


def _make_plan(
    project: Project,
    package: WorkPackage,
    root: str,
    at_start: DetectedRoot | None,
    at_commit: DetectedRoot | None,
) -> CheckPlan:
    # What it asks for now goes before what it did
    seen = [one.detected for one in (at_start, at_commit) if one and one.detected]
    detected = seen[-1] if seen else None
    own = resolve_checks(project, package, detected.profile if detected else package.profile, root)
    found = {purpose: one for some in seen for purpose, one in some.commands.items()}
    set_by_hand = {
        name: line for name in CHECK_COMMANDS if (line := getattr(own, name)) is not None
    }
    plan = CommandPlan(
        root=root,
        commands={**{purpose: one.command for purpose, one in found.items()}, **set_by_hand},
        reasons={
            **{purpose: one.why for purpose, one in found.items()},
            **dict.fromkeys(set_by_hand, "set by hand"),
        },
        setups=() if "setup" in set_by_hand else _list_setup_candidates(detected, set_by_hand),
        test_functions=None
        if "test" in set_by_hand
        else _get_test_function_count(at_commit or at_start),
        # 0 asks for nothing
        coverage_min=own.coverage_min or None,
        code=package.deliverables.code,
        tolerates_old_failures=project.config.already_failing is AlreadyFailingPolicy.TOLERATE,
    )

    return CheckPlan(
        msgspec.structs.replace(
            plan, **_read_profile_settings(detected.profile if detected else "")
        ),
        detected,
    )


def _get_test_function_count(seen: DetectedRoot | None) -> int | None:
    if seen:
        return seen.test_functions
    return None


def _list_setup_candidates(
    detected: DetectedProject | None, set_by_hand: dict[str, str]
) -> tuple[SetupCandidate, ...]:
    """The setups in order; a test command that a person set goes before the one that a setup
    brings.
    """
    setups = detected.setups if detected else ()
    if Purpose.TEST in set_by_hand:
        return tuple(one._replace(test_command="") for one in setups)
    return setups


def resolve_checks(
    project: Project, package: WorkPackage, profile: str, root: str
) -> PackageChecks:
    """The package's own checks over those that the person set for its root, else for the root's
    profile.
    """
    tables = project.config.checks
    at_root = next((table for table in tables.values() if table.root == root), None)
    configured = at_root or tables.get(profile) or ProfileChecks()
    names = (*CHECK_COMMANDS, "coverage_min")
    chosen = {name: getattr(package.checks, name) for name in names}

    return PackageChecks(
        **{n: getattr(configured, n) if value is None else value for n, value in chosen.items()}
    )


def _read_profile_settings(name: str) -> dict[str, tuple[str, ...]]:
    if name not in PROFILES:
        return {}

    profile = load_profile(name)
    found = {
        "lock_files": profile.lock_files,
        "coverage_reports": profile.coverage_reports,
        "bin_folders": (*profile.bin_folders, *CommandPlan().bin_folders[-1:]),
    }
    return {name: values for name, values in found.items() if values}
