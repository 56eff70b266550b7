"""Read the test strength report of a package."""

from __future__ import annotations

import msgspec

from phasegate.core.machine.package_events import Validated
from phasegate.core.test_strength.model import StrengthReport
from phasegate.engine.journal.entries import (
    EVIDENCE_ACCEPTED,
    PACKAGE_STEP,
    EvidenceAcceptance,
    read_package_step,
)
from phasegate.engine.project.ports import RecordReader
from phasegate.engine.project.project import Project
from phasegate.typed import read_json


def read_strength(
    project: Project, reader: RecordReader, feature: str, package: str
) -> StrengthReport | None:
    """Return the report of the last checked commit, with the findings accepted since."""
    document = ""
    accepted = {}
    for recorded in reader.events(feature):
        if recorded.kind == EVIDENCE_ACCEPTED:
            one = read_json(recorded.payload, EvidenceAcceptance)
            if one.package == package:
                accepted[one.finding] = one.reason
        elif recorded.kind == PACKAGE_STEP and b'"validated"' in recorded.payload:
            name, event = read_package_step(recorded.payload)
            if name == package and isinstance(event, Validated) and event.strength:
                document = event.strength

    if not document:
        return None
    report = read_json(project.document_store.get(document), StrengthReport)
    return msgspec.structs.replace(report, accepted=accepted)
