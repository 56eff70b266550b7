"""`phasegate worktree list`: list the packages that are ready, and the worktrees."""

from __future__ import annotations

import click

from phasegate.engine.project.project import open_project
from phasegate.engine.views.overview import list_features, require_reader
from phasegate.engine.views.package import planned_cards
from phasegate.engine.views.status_text import render_worktrees
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.render import current_folder, json_option, print_result


@click.group(cls=Group)
def worktree() -> None:
    """List the work packages that are ready, with their worktrees."""


@worktree.command("list")
@click.option("--all", "everything", is_flag=True, help="Include packages that are not ready.")
@feature_option
@json_option
def list_worktrees(everything: bool, feature: str | None, as_json: bool) -> None:
    """List the packages that can be dispatched now: planned, with all dependencies DONE.

    \b
    Examples:
      phasegate worktree list
      phasegate worktree list --all --json
    """
    worktrees_folder = open_project(current_folder()).config.paths.worktrees
    reader = require_reader(str(current_folder()))
    cards = [
        card for slug in list_features(reader, feature) for card in planned_cards(reader, slug)
    ]
    listed = [card for card in cards if everything or card.is_ready]
    print_result(listed, render_worktrees(listed, worktrees_folder, show_all=everything), as_json)
