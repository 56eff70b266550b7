"""`phasegate plan`: work packages from a feature's folder."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from phasegate.core.plan.graph import build_plan_view, render_plan
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
    """Load a feature's work packages, and show how they depend on each other."""


@plan.command("load")
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def load(folder: Path, as_json: bool) -> None:
    """Load the packages (tasks/WPnn.md) of a feature's FOLDER, written by hand or by another tool.

    What is loaded is what is run: load again after a change. A package that has begun keeps its state.

    \b
    Example:
      phasegate plan load kitty-specs/001-user-login
    """
    project = open_project(current_folder())
    with open_project_store(project) as store:
        packages = load_plan(project, store, folder)

    lines = [f"{package.work_package_id}  {package.title}" for package in packages]
    print_result(
        [package.work_package_id for package in packages],
        "\n".join(make_printable(line) for line in lines),
        as_json,
    )
    _print_overlaps([overlap.packages for overlap in build_plan_view(packages, {}).overlaps])


def _print_overlaps(pairs: list[tuple[str, str]]) -> None:
    """Say before any agent starts which packages cannot run side by side."""
    if pairs:
        named = ", ".join(f"{one} and {other}" for one, other in pairs[:_MAX_OVERLAPS_NAMED])
        if len(pairs) > _MAX_OVERLAPS_NAMED:
            more = f" and {len(pairs) - _MAX_OVERLAPS_NAMED} more"
        else:
            more = ""

        print(f"phasegate: scopes overlap, one waits for the other: {named}{more}", file=sys.stderr)
        print("  hint: phasegate plan show", file=sys.stderr)


@plan.command("show")
@feature_option
@json_option
def show_plan(feature: str | None, as_json: bool) -> None:
    """Draw the packages as a graph: waves that can run side by side, what waits for what and why, overlaps of scope.

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
