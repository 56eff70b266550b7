"""Check the documents of a feature before work starts from them."""

from __future__ import annotations

from pathlib import Path

from phasegate.core.plan.consistency import ConsistencyReport
from phasegate.core.text.finding import LocatedFinding
from phasegate.prompts.feature_folder import check_feature_path


def check_documents(path: Path) -> ConsistencyReport:
    """Check a specification, a tasks.md, a WPnn.md, or a whole feature folder."""
    return check_feature_path(path)


def report_as_dict(report: ConsistencyReport) -> dict[str, object]:
    """Return a report as a JSON-compatible dict."""
    return {
        "ok": not report.findings,
        "findings": report.findings,
        "notes": report.notes,
        "requirements": report.requirements,
        "tasks": report.tasks,
        "packages": report.packages,
    }


def render_report(report: ConsistencyReport) -> str:
    """Render a report as text, one line per finding."""
    lines = [_render_finding(finding) for finding in report.findings] + [
        f"{_render_finding(note)} (note)" for note in report.notes
    ]
    counts = (
        f"{report.requirements} requirements, {report.tasks} tasks, {report.packages} work packages"
    )
    total = len(report.findings) or "no"

    return "\n".join([*lines, f"{total} findings in {counts}"])


def _render_finding(finding: LocatedFinding) -> str:
    return f"{finding.path}:{finding.line}: {finding.code} {finding.message}"
