"""`phasegate spec`: check the documents of a feature, or import specifications."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_result,
)


@click.group(cls=Group)
def spec() -> None:
    """Check a specification, its tasks and its work packages; import specifications."""


@spec.command("import")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.option(
    "--change",
    metavar="NAME",
    help="Print a change of OpenSpec as requirements for a feature's spec.md; write nothing.",
)
@json_option
def import_(folder: Path, change: str | None, as_json: bool) -> int:
    """Import the OpenSpec or Spec Kit specifications in FOLDER as current specifications.

    The files openspec/specs/NAME/spec.md and specs/NNN-NAME/spec.md are read. Requirements get ids;
    all other text is kept. Existing documents are never overwritten.

    \b
    Examples:
      phasegate spec import
      phasegate spec import ../other-clone --json
      phasegate spec import --change add-two-factor > spec.md
    """
    from phasegate.engine.project.project import open_project
    from phasegate.engine.tools.spec_files import import_change, import_specs

    if change is not None:
        text = import_change(open_project(current_folder()), folder, change)
        shown = "\n".join(map(make_printable, text.split("\n")))
        print_result({"change": change, "text": text}, shown, as_json)
        return 0

    imported = import_specs(open_project(current_folder()), folder)
    lines = [
        f"{one.document}: {one.requirements} requirements, {one.scenarios} scenarios "
        f"(from {one.source})"
        for one in imported
    ]
    lines += [
        f"WARNING {one.source} has no requirement that was recognized, such as **FR-001**: its "
        f"text was kept in {one.document}, but nothing of it is traced or watched"
        for one in imported
        if not one.requirements
    ]
    print_result(imported, "\n".join(map(make_printable, lines)), as_json)
    return 0


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
