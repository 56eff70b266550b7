"""The documents of a feature, checked before anybody works from them."""

from __future__ import annotations

from pathlib import Path

from phasegate.core.plan.consistency import FeatureReport
from phasegate.core.text.finding import Placed
from phasegate.prompts.feature_folder import check_path


def check_documents(path: Path) -> FeatureReport:
    """Every finding in a specification, a tasks.md, a WPnn.md, or a feature's folder with all of them."""
    return check_path(path)


def report_object(report: FeatureReport) -> dict[str, object]:
    """A report for programs."""
    return {
        "ok": not report.findings,
        "findings": report.findings,
        "notes": report.notes,
        "requirements": report.requirements,
        "tasks": report.tasks,
        "packages": report.packages,
    }


def report_lines(report: FeatureReport) -> str:
    """A report for people: one line a finding."""
    lines = [_line(found) for found in report.findings] + [f"{_line(note)} (note)" for note in report.notes]
    counts = f"{report.requirements} requirements, {report.tasks} tasks, {report.packages} work packages"
    last = f"{len(report.findings)} findings in {counts}" if report.findings else f"no findings in {counts}"
    return "\n".join([*lines, last])


def _line(found: Placed) -> str:
    return f"{found.path}:{found.line}: {found.code} {found.message}"
