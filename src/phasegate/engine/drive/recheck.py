"""Check again whether a blocker still holds, so that `run` continues without a `resolve`.

Only conditions that Phasegate can check itself, or that concern the machine and not the work, are
cleared: an allowed path, a clean checkout, a network failure, a missing sign-in. A finding, a
question or an order of the user always needs a decision.
"""

from __future__ import annotations

from phasegate.core.agents.harnesses import HARNESSES
from phasegate.core.machine.feature_events import AnyFeatureEvent, JobEnded, NotMerged, PackageEnded
from phasegate.core.machine.feature_state import Feature
from phasegate.core.machine.package_events import AnyPackageEvent, JobEndKind, PackageJobEnded
from phasegate.core.workflow.phase_transitions import Stage
from phasegate.engine.journal.entries import (
    FEATURE_STEP,
    PACKAGE_STEP,
    read_feature_step,
    read_package_step,
)
from phasegate.engine.journal.package import was_path_allowed
from phasegate.engine.project.ports import RecordReader
from phasegate.engine.project.project import Project
from phasegate.errors import StateConflict
from phasegate.workspace.repository.refs import BRANCH_PREFIX
from phasegate.workspace.repository.user_checkout import NOT_COMMITTED, list_uncommitted_paths

_PATH_ALLOWED = "the refused path was allowed"
_MACHINE_FAILURE = "the failed agent run is tried again"
_MAX_SHOWN_PATHS = 5


def describe_cleared_blocker(project: Project, record: RecordReader, feature: Feature) -> str:
    """Return how a feature's blocker was cleared; empty if it still applies."""
    workflow = feature.workflow
    if workflow.stage is not Stage.BLOCKED:
        return ""

    match _last_feature_event(record, workflow.feature):
        case NotMerged(reason) if NOT_COMMITTED in reason:
            if not list_uncommitted_paths(project.repository, f"{BRANCH_PREFIX}{feature.base}"):
                return "the checkout has no uncommitted files"
        case JobEnded(end=end, remediation=remediation) if _is_machine_failure(end, remediation):
            return _MACHINE_FAILURE
        case PackageEnded():
            cleared = {
                package: _describe_cleared_package(record, workflow.feature, package)
                for package in feature.blocked
            }
            if cleared and all(cleared.values()):
                return "; ".join(f"{package}: {how}" for package, how in cleared.items())

    return ""


def refuse_uncommitted_files(project: Project, base: str) -> None:
    """Raise StateConflict if the checkout of the base has changes that would stop a merge."""
    paths = list_uncommitted_paths(project.repository, f"{BRANCH_PREFIX}{base}")
    if paths:
        shown = ", ".join(paths[:_MAX_SHOWN_PATHS])
        raise StateConflict(
            f"the checkout of {base} has {NOT_COMMITTED}: {shown}",
            "commit or stash them, then phasegate complete",
        )


def _last_feature_event(record: RecordReader, slug: str) -> AnyFeatureEvent | None:
    steps = [event for event in record.events(slug) if event.kind == FEATURE_STEP]
    return read_feature_step(steps[-1].payload) if steps else None


def _describe_cleared_package(record: RecordReader, slug: str, package: str) -> str:
    """Say why a blocked package can be tried again; empty if it cannot."""
    if was_path_allowed(record, slug, package):
        return _PATH_ALLOWED

    last: AnyPackageEvent | None = None
    for event in record.events(slug):
        if event.kind == PACKAGE_STEP:
            name, step = read_package_step(event.payload)
            if name == package:
                last = step

    if isinstance(last, PackageJobEnded) and _is_machine_failure(last.end, last.remediation):
        return _MACHINE_FAILURE
    return ""


def _is_machine_failure(end: JobEndKind, remediation: str) -> bool:
    """Return whether a job failed because of the network, or because its agent is not signed in."""
    hints = [row.sign_in_hint for row in HARNESSES.values() if row.sign_in_hint]
    return end is JobEndKind.TRANSIENT or (end is JobEndKind.FAILED and remediation in hints)
