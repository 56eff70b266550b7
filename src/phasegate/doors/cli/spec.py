"""`phasegate spec check`: the documents of a feature, checked before anybody works from them."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.doors.cli.group import Group
from phasegate.doors.cli.render import json_option, show
from phasegate.rules.feature import FeatureReport, Placed


@click.group(cls=Group)
def spec() -> None:
    """Check a feature's specification, tasks and work packages."""


@spec.command()
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def check(path: Path, as_json: bool) -> int:
    """Check PATH: a specification, a tasks.md, a WPnn.md, or a feature's folder with all of them.

    Exit 0 when every rule holds; 1 and one line per finding otherwise: path:line: code message.

    \b
    Examples:
      phasegate spec check kitty-specs/001-user-login
      phasegate spec check kitty-specs/001-user-login/spec.md --json
    """
    from phasegate.engine.spec_check import check_documents

    report = check_documents(path)
    show({"ok": not report.findings, **_counts(report)}, "\n".join(_lines(report)), as_json)
    return 1 if report.findings else 0


def _counts(report: FeatureReport) -> dict[str, object]:
    return {
        "findings": report.findings,
        "notes": report.notes,
        "requirements": report.requirements,
        "tasks": report.tasks,
        "packages": report.packages,
    }


def _lines(report: FeatureReport) -> list[str]:
    lines = [_line(found) for found in report.findings] + [f"{_line(note)} (note)" for note in report.notes]
    counts = f"{report.requirements} requirements, {report.tasks} tasks, {report.packages} work packages"
    return [*lines, f"{len(report.findings)} findings in {counts}" if report.findings else f"no findings in {counts}"]


def _line(found: Placed) -> str:
    return f"{found.path}:{found.line}: {found.code} {found.message}"
