"""`phasegate sync`: one look at the forge, for a person, a CI job or a timer."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.doors.cli.feature_option import feature_option
from phasegate.doors.cli.render import json_option
from phasegate.doors.cli.running import carry_on
from phasegate.engine import orders
from phasegate.engine.driver import Wishes
from phasegate.engine.project import open_project, opened_store


@click.command()
@feature_option
@json_option
def sync(feature: str | None, as_json: bool) -> int:
    """Look once at the pull request of a feature, and record what is new there. No agent is started.

    What is approved and green is merged, if [merge] automatic says so. Remarks: by the next `phasegate run`.
    Exit 0: it was looked at. Exit 1: it needs you.

    \b
    Examples:
      phasegate sync
      phasegate sync --feature 001-user-login --json
    """
    project = open_project(Path.cwd())
    with opened_store(project) as store:
        slug = orders.chosen(project, store, feature)
        return carry_on(project, store, slug, Wishes(by=project.ordered_at("cli"), look_once=True), as_json)
