"""`phasegate evidence accept`: accept a finding about the tests of a package."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.engine.journal.package import find_package
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.engine.steps.evidence_acceptance import accept_finding
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import feature_option, package_argument, reason_option
from phasegate.interfaces.cli.render import json_option, make_printable, print_result


@click.group(cls=Group)
def evidence() -> None:
    """Accept a finding about the tests of a work package."""


@evidence.command("accept")
@package_argument
@click.argument("finding")
@reason_option
@feature_option
@json_option
def accept(
    work_package: str, finding: str, reason: str, feature: str | None, as_json: bool
) -> None:
    """Accept FINDING, an id such as E-1a2b3c of `phasegate show WPnn --evidence`.

    It no longer rejects the package, and its reviewer need not answer it. A further change of the
    same kind is another finding.

    \b
    Example:
      phasegate evidence accept WP01 E-1a2b3c --reason "the old test described a defect"
    """
    project = open_project(Path.cwd())
    with open_project_store(project) as store:
        package = find_package(store, work_package, feature).package
        accepted = accept_finding(
            project=project,
            record=store,
            package=package,
            finding_id=finding,
            reason=reason,
            by=project.make_origin("cli"),
        )

    data = {
        "feature": package.feature_slug,
        "id": work_package,
        "finding": accepted.id,
        "reason": reason.strip(),
    }
    print_result(data, f"{work_package}: accepted: {make_printable(str(accepted))}", as_json)
