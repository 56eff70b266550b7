"""`phasegate spec check`: check the documents of a feature before agents work from them."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.render import json_option, print_result


@click.group(cls=Group)
def spec() -> None:
    """Check a specification, its tasks and its work packages."""


@spec.command()
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def check(path: Path, as_json: bool) -> int:
    """Check PATH: a specification, a tasks.md, a WPnn.md, or the folder of a feature.

    Exit 0: no findings. Exit 1: one line for each finding: path:line: code message.

    \b
    Examples:
      phasegate spec check kitty-specs/001-user-login
      phasegate spec check kitty-specs/001-user-login/spec.md --json
    """
    from phasegate.engine.views.spec_check import check_documents, render_report, report_as_dict

    report = check_documents(path)
    print_result(report_as_dict(report), render_report(report), as_json)
    if report.findings:
        return 1

    return 0
