"""What is asked of a tree: what it asks for itself, and what the one did that the work began from."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from phasegate.checks.plan import Plan, Purpose
from phasegate.config.settings import AlreadyFailing
from phasegate.config.settings import Checks as ProfileChecks
from phasegate.core.detection.model import Detected, SetupCandidate
from phasegate.core.detection.roots import touched_roots
from phasegate.core.plan.work_package import COMMANDS, PROFILES, PackageChecks, WorkPackage
from phasegate.engine.checks.detect import SeenRoot, look_at
from phasegate.engine.project.project import Project
from phasegate.prompts.profiles import load_profile


class CheckPlan(NamedTuple):
    """A plan, and what it was made from."""

    plan: Plan
    detected: Detected | None


def plans_for(project: Project, package: WorkPackage, start: str, commit: str) -> tuple[CheckPlan, ...]:
    """The plans for a commit that began from `start`, one for each root that the package's scope touches.

    Work that takes a check or a root away, or makes a root look like one of another kind, is not spared the check.
    """
    began = look_at(project, start, named=package.profile or None)
    kinds = {root: seen.detected.profile for root, seen in began.items() if seen.detected}
    now = began if start == commit else look_at(project, commit, kinds, package.profile or None)
    roots = touched_roots([*dict.fromkeys((*began, *now))], package.file_scope)
    return tuple(_plan(project, package, root, began.get(root), now.get(root)) for root in roots)


def _plan(project: Project, package: WorkPackage, root: str, began: SeenRoot | None, now: SeenRoot | None) -> CheckPlan:
    seen = [
        one.detected for one in (began, now) if one and one.detected
    ]  # what it asks for now goes before what it did
    detected = seen[-1] if seen else None
    own = own_checks(project, package, detected.profile if detected else package.profile, root)
    found = {purpose: one for some in seen for purpose, one in some.commands.items()}
    set_by_hand = {name: line for name in COMMANDS if (line := getattr(own, name)) is not None}
    plan = Plan(
        root=root,
        commands={**{purpose: one.run for purpose, one in found.items()}, **set_by_hand},
        reasons={**{purpose: one.why for purpose, one in found.items()}, **dict.fromkeys(set_by_hand, "set by hand")},
        setups=() if "setup" in set_by_hand else _candidates(detected, set_by_hand),
        test_functions=None if "test" in set_by_hand else _functions(now or began),
        coverage_min=own.coverage_min or None,  # 0 asks for nothing
        code=package.deliverables.code,
        tolerates_old_failures=project.config.already_failing is AlreadyFailing.TOLERATE,
    )
    return CheckPlan(msgspec.structs.replace(plan, **_of_profile(detected.profile if detected else "")), detected)


def _functions(seen: SeenRoot | None) -> int | None:
    return seen.test_functions if seen else None


def _candidates(detected: Detected | None, set_by_hand: dict[str, str]) -> tuple[SetupCandidate, ...]:
    """The setups in order; a test command that a person set goes before the one that a setup brings."""
    setups = detected.setups if detected else ()
    return tuple(one._replace(test="") for one in setups) if Purpose.TEST in set_by_hand else setups


def own_checks(project: Project, package: WorkPackage, profile: str, root: str) -> PackageChecks:
    """The package's own checks over those that the person set for its root, else for the root's profile."""
    tables = project.config.checks
    at_root = next((table for table in tables.values() if table.root == root), None)
    configured = at_root or tables.get(profile) or ProfileChecks()
    names = (*COMMANDS, "coverage_min")
    chosen = {name: getattr(package.checks, name) for name in names}
    return PackageChecks(**{n: getattr(configured, n) if value is None else value for n, value in chosen.items()})


def _of_profile(name: str) -> dict[str, tuple[str, ...]]:
    if name not in PROFILES:
        return {}
    profile = load_profile(name)
    found = {
        "lock_files": profile.lock_files,
        "coverage_reports": profile.coverage_reports,
        "bin_folders": (*profile.bin_folders, *Plan().bin_folders[-1:]),
    }
    return {name: values for name, values in found.items() if values}
