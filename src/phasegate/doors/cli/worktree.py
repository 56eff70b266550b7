"""`phasegate worktree list`: what is ready, and where work lies."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.doors.cli.feature_option import feature_option
from phasegate.doors.cli.group import Group
from phasegate.doors.cli.package import NO_PACKAGES, as_data, line_of, open_reader, rows_of
from phasegate.doors.cli.render import json_option, show
from phasegate.engine.project import open_project
from phasegate.engine.spool_answers import ready_packages


@click.group(cls=Group)
def worktree() -> None:
    """List the work packages that are ready, and their worktrees."""


@worktree.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that are not ready.")
@feature_option
@json_option
def list_worktrees(everything: bool, feature: str | None, as_json: bool) -> None:
    """List the packages that could be dispatched now: planned, and all that they wait for is DONE.

    \b
    Examples:
      phasegate worktree list
      phasegate worktree list --all --json
    """
    below = open_project(Path.cwd()).config.paths.worktrees
    reader = open_reader()
    rows = rows_of(reader, feature)
    ready = {(slug, name) for slug in {row.feature for row in rows} for name in ready_packages(reader, slug)}
    shown = [row for row in rows if everything or (row.feature, row.id) in ready]
    lines = [f"{line_of(row)}  {below}/{row.feature}-{row.id}" for row in shown]
    show(as_data(shown), "\n".join(lines) or (NO_PACKAGES if everything else "no package is ready"), as_json)
