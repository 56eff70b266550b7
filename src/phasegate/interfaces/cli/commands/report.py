"""`phasegate report`: write a self-contained HTML report of a feature."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.engine.project.project import open_project
from phasegate.engine.views.overview import require_reader
from phasegate.engine.views.report import report_view
from phasegate.errors import EnvironmentUnavailable
from phasegate.files.block_reader import reject_path_outside
from phasegate.interfaces.cli.completion_values import complete_from, list_feature_slugs
from phasegate.interfaces.cli.options import fleet_view_option, resolve_feature_callback
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_result,
)


@click.command()
@click.argument(
    "feature", callback=resolve_feature_callback, shell_complete=complete_from(list_feature_slugs)
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file to write; default: SLUG.html.",
)
@fleet_view_option(with_trails=True)
@json_option
def report(feature: str, output: Path | None, as_json: bool) -> None:
    """Write an HTML report of FEATURE: requests, decisions, changes, tests, agents and cost.

    The page is self-contained and has no scripts. It requires: the extra `board`. With
    --json, the data is printed instead and no file is written.

    \b
    Example:
      phasegate report 001-user-login -o report.html
    """
    project = open_project(current_folder())
    with require_reader(str(current_folder())) as reader:
        view = report_view(project, reader, feature)

    if as_json:
        print_result(view, "", as_json)
        return

    try:
        from phasegate.interfaces.html.report import render_report
    except ModuleNotFoundError as error:
        raise EnvironmentUnavailable(
            f"{error.name} is not installed",
            "in a checkout of Phasegate: pip install '.[board]'; or use --json",
        ) from error

    path = output or Path(f"{feature}.html")
    if output is None:
        reject_path_outside(project.root, path)
    try:
        path.write_text(render_report(view, project.now()), encoding="utf-8")
    except OSError as error:
        raise EnvironmentUnavailable(
            f"cannot write {path}: {error.strerror}", "choose another file with -o"
        ) from error

    print_result({}, f"wrote {make_printable(path)}", as_json)
