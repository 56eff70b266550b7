"""What is asked of a tree: what it asks for itself, and what the one did that the work began from."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from phasegate.checks.plan import Candidate, Plan, Purpose
from phasegate.config.settings import AlreadyFailing
from phasegate.config.settings import Checks as ProfileChecks
from phasegate.engine.detecting import look_at
from phasegate.engine.project import Project
from phasegate.prompts.profiles import load_profile
from phasegate.rules.detection import Detected
from phasegate.rules.work_package import COMMANDS, PROFILES, PackageChecks, WorkPackage


class CheckPlan(NamedTuple):
    """A plan, and what it was made from."""

    plan: Plan
    detected: Detected | None


def plan_for(project: Project, package: WorkPackage, start: str, commit: str) -> CheckPlan:
    """The plan for a commit that began from `start`.

    Work that takes a check away, or makes the project look like one of another kind, is not spared the check.
    """
    kind = kind_for(project, package.profile)
    began = look_at(project, start, kind)
    kind = began.detected.profile if began.detected else kind
    now = began if start == commit else look_at(project, commit, kind)
    detected = now.detected or began.detected
    own = own_checks(project, package, detected.profile if detected else kind or "")
    found = {**(began.detected.commands if began.detected else {}), **(now.detected.commands if now.detected else {})}
    commands = {purpose: one.run for purpose, one in found.items()}
    reasons = {purpose: one.why for purpose, one in found.items()}
    set_by_hand = {name: line for name in COMMANDS if (line := getattr(own, name)) is not None}
    plan = Plan(
        commands={**commands, **set_by_hand},
        reasons={**reasons, **dict.fromkeys(set_by_hand, "set by hand")},
        setups=() if "setup" in set_by_hand else _candidates(now.detected or began.detected, set_by_hand),
        test_functions=now.test_functions,
        coverage_min=own.coverage_min,
        code=package.deliverables.code,
        tolerates_old_failures=project.config.already_failing is AlreadyFailing.TOLERATE,
    )
    return CheckPlan(msgspec.structs.replace(plan, **_of_profile(detected.profile if detected else "")), detected)


def _candidates(detected: Detected | None, set_by_hand: dict[str, str]) -> tuple[Candidate, ...]:
    """The setups in order; a test command that a person set goes before the one that a setup brings."""
    own = Purpose.TEST in set_by_hand
    return tuple(
        Candidate(one.run, one.why, one.test.run if one.test and not own else "", one.builds)
        for one in (detected.setups if detected else ())
    )


def kind_for(project: Project, named: str) -> str | None:
    """The profile that a package names, or None: detection tells."""
    return named or None


def own_checks(project: Project, package: WorkPackage, profile: str) -> PackageChecks:
    """The package's own checks over those that the person configured for its profile."""
    configured = project.config.checks.get(profile, ProfileChecks())
    names = (*COMMANDS, "coverage_min")
    chosen = {name: getattr(package.checks, name) for name in names}
    return PackageChecks(**{n: getattr(configured, n) if value is None else value for n, value in chosen.items()})


def _of_profile(name: str) -> dict[str, tuple[str, ...]]:
    if name not in PROFILES:
        return {}
    profile = load_profile(name)
    found = {
        "lock_files": profile.lock_files,
        "coverage_reports": tuple(report.path for report in profile.coverage_reports),
        "bin_folders": profile.bin_folders,
    }
    return {name: values for name, values in found.items() if values}
