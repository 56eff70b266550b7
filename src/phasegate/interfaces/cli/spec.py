"""`phasegate spec check`: the documents of a feature, checked before anybody works from them."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.render import json_option, print_result


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
    from phasegate.engine.views.spec_check import check_documents, render_report, report_as_dict

    report = check_documents(path)
    print_result(report_as_dict(report), render_report(report), as_json)
    if report.findings:
        return 1

    return 0
