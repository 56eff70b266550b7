"""`phasegate drift`: show requirements whose tests or code changed outside of a feature."""

from __future__ import annotations

import json
from pathlib import Path

import click
import msgspec

from phasegate import __version__
from phasegate.core.specs.sarif import build_sarif, render_annotation
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.engine.tools.spec_files import accept_drift
from phasegate.engine.views.drift import find_drift, list_findings, render_drift
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.render import (
    FreeText,
    current_folder,
    json_option,
    make_printable,
    print_result,
)

_FORMATS = ("text", "sarif", "github")


@click.group(cls=Group, invoke_without_command=True)
@click.option("--check", is_flag=True, help="Exit 1 if something has drifted.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(_FORMATS),
    default="text",
    help="text, sarif for code scanning, or github for annotations of a workflow.",
)
@json_option
@click.pass_context
def drift(context: click.Context, check: bool, format_: str, as_json: bool) -> int:
    """Show requirements whose tests or code changed outside of a feature.

    A merged feature accepts what it changes. Blank lines and comments do not count. Each finding
    names the commit and its author.

    \b
    Examples:
      phasegate drift
      phasegate drift --check --format sarif > drift.sarif
      phasegate drift accept FR-AUTH-001 "the hot fix is right"
    """
    if context.invoked_subcommand is not None:
        return 0

    report = find_drift(open_project(current_folder()))
    findings = list_findings(report)
    if format_ == "sarif":
        text = json.dumps(build_sarif(findings, __version__), indent=2)
    elif format_ == "github":
        text = "\n".join(make_printable(render_annotation(one)) for one in findings)
    else:
        text = "\n".join(make_printable(line) for line in render_drift(report))

    data = {**msgspec.to_builtins(report), "clean": report.is_clean}
    print_result(data, text, as_json)
    return int(check and not report.is_clean)


@drift.command("accept")
@click.argument("requirement", metavar="FR-X")
@click.argument("why", type=FreeText())
@json_option
def accept(requirement: str, why: str, as_json: bool) -> int:
    """Accept the tests and the code of a requirement as they are now.

    The reason is recorded. The specification in your checkout gets the new baseline: commit it.

    \b
    Example:
      phasegate drift accept FR-AUTH-001 "the hot fix is right"
    """
    project = open_project(Path.cwd())
    with open_project_store(project) as store:
        path = accept_drift(project, store, requirement, why, project.make_origin("cli"))

    shown = make_printable(str(path.relative_to(project.root)))
    data = {"requirement": requirement, "why": why.strip(), "document": shown}
    print_result(data, f"{requirement}: accepted; commit {shown}", as_json)
    return 0
