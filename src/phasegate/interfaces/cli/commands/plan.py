"""`phasegate plan`: load the work packages of a feature, and show their dependencies."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from phasegate.core.plan.plan_view import build_plan_view, render_plan
from phasegate.core.text.wording import join_names
from phasegate.engine.journal.package import load_plan
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.engine.views.overview import open_reader
from phasegate.engine.views.package import plan_views
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_result,
)

_MAX_OVERLAPS_NAMED = 5


@click.group(cls=Group)
def plan() -> None:
    """Load the work packages of a feature, or show their dependencies."""


@plan.command("load")
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def load(folder: Path, as_json: bool) -> None:
    """Load the work packages (tasks/WPnn.md) of a feature's FOLDER, written by hand or by a tool.

    Runs use the loaded version: load again after a change. A package that has started keeps its
    state.

    \b
    Example:
      phasegate plan load kitty-specs/001-user-login
    """
    project = open_project(current_folder())
    with open_project_store(project) as store:
        packages = load_plan(project, store, folder)

    lines = [make_printable(f"{one.work_package_id}  {one.title}") for one in packages]
    ids = [package.work_package_id for package in packages]
    print_result(ids, "\n".join(lines), as_json)
    view = build_plan_view(packages, {})
    _print_overlaps([overlap.packages for overlap in view.overlaps], view.feature)


def _print_overlaps(pairs: list[tuple[str, str]], slug: str) -> None:
    """Warn which packages cannot run in parallel, before any agent starts."""
    if pairs:
        named = join_names([f"{one} and {other}" for one, other in pairs], _MAX_OVERLAPS_NAMED)
        print(
            f"phasegate: these packages may change the same files, so the second of each pair "
            f"waits for the first: {named}",
            file=sys.stderr,
        )
        print(f"  hint: phasegate plan show --feature {slug}", file=sys.stderr)


@plan.command("show")
@feature_option
@json_option
def show_plan(feature: str | None, as_json: bool) -> None:
    """Draw the dependency graph of the packages: parallel waves, dependencies, scope overlaps.

    \b
    Examples:
      phasegate plan show
      phasegate plan show --feature 001-user-login --json
    """
    views = plan_views(open_reader(str(current_folder())), feature)
    text = "\n\n".join(
        "\n".join(make_printable(line) for line in render_plan(view)) for view in views
    )
    print_result({view.feature: view for view in views}, text, as_json)
