"""The documents of a feature, checked before anybody works from them."""

from __future__ import annotations

from pathlib import Path

from phasegate.core.plan.consistency import ConsistencyReport
from phasegate.core.text.finding import LocatedFinding
from phasegate.prompts.feature_folder import check_feature_path


def check_documents(path: Path) -> ConsistencyReport:
    """Every finding in a specification, a tasks.md, a WPnn.md, or a feature's folder with all of
    them.
    """
    return check_feature_path(path)


def report_as_dict(report: ConsistencyReport) -> dict[str, object]:
    """A report for programs."""
    return {
        "ok": not report.findings,
        "findings": report.findings,
        "notes": report.notes,
        "requirements": report.requirements,
        "tasks": report.tasks,
        "packages": report.packages,
    }


def render_report(report: ConsistencyReport) -> str:
    """A report for people: one line a finding."""
    lines = [_render_finding(found) for found in report.findings] + [
        f"{_render_finding(note)} (note)" for note in report.notes
    ]
    counts = (
        f"{report.requirements} requirements, {report.tasks} tasks, {report.packages} work packages"
    )
    if report.findings:
        last = f"{len(report.findings)} findings in {counts}"
    else:
        last = f"no findings in {counts}"

    return "\n".join([*lines, last])


def _render_finding(found: LocatedFinding) -> str:
    return f"{found.path}:{found.line}: {found.code} {found.message}"
