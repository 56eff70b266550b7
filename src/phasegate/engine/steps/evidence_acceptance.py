"""Record that the user accepts a finding about the tests of a package."""

from __future__ import annotations

import msgspec

from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.test_strength.model import StrengthFinding
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.journal.entries import EVIDENCE_ACCEPTED, EvidenceAcceptance
from phasegate.engine.project.ports import RunRecord
from phasegate.engine.project.project import Project
from phasegate.engine.views.strength import read_strength
from phasegate.errors import ConfigError
from phasegate.storage.rows import NewEvent


def accept_finding(
    project: Project,
    record: RunRecord,
    package: WorkPackage,
    finding_id: str,
    reason: str,
    by: OrderOrigin,
) -> StrengthFinding:
    """Record the acceptance of a finding of the last check, and return the finding."""
    slug = package.feature_slug
    name = package.work_package_id
    report = read_strength(project, record, slug, name)
    known = {finding.id: finding for finding in report.findings} if report else {}
    if not reason.strip():
        raise ConfigError("the reason is empty", "give one; it is recorded")
    if finding_id not in known:
        raise ConfigError(
            f"{name} has no finding {finding_id}",
            f"available: {', '.join(known) or 'none'}; see phasegate show {name} --evidence",
        )

    acceptance = EvidenceAcceptance(package=name, finding=finding_id, reason=reason.strip(), by=by)
    record.append_unconditionally(
        slug, project.now(), [NewEvent(EVIDENCE_ACCEPTED, msgspec.json.encode(acceptance))]
    )
    return known[finding_id]
