"""`phasegate sync`: one look at the forge, for a person, a CI job or a timer."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.engine.drive import orders
from phasegate.engine.drive.feature import Wishes
from phasegate.engine.drive.forge_sync import at_forge, begin_labelled
from phasegate.engine.journal.feature import naming
from phasegate.engine.project.project import open_project, opened_store
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.render import json_option, say
from phasegate.interfaces.cli.run import carry_on


@click.command()
@feature_option
@json_option
def sync(feature: str | None, as_json: bool) -> int:
    """Look once at the forge, and record what is new there. No agent is started.

    What is approved and green is merged, if [merge] automatic says so. Remarks: by the next `phasegate run`. Issues
    with a label of [forge] starts begin a workflow, once each. Exit 0: it was looked at. Exit 1: one needs you.

    \b
    Examples:
      phasegate sync
      phasegate sync --feature 001-user-login --json
    """
    project = open_project(Path.cwd())
    with opened_store(project) as store:
        begun = begin_labelled(project, store) if feature is None else []
        for slug in begun:
            say(f"{slug}: begun; then: phasegate run{naming(store, slug)}", err=True)
        waiting = [] if feature else at_forge(project, store)
        if feature or not (waiting or project.config.forge.starts):
            waiting = [orders.chosen(project, store, feature)]
        wishes = Wishes(by=project.ordered_at("cli"), look_once=True)
        return max((carry_on(project, store, slug, wishes, as_json) for slug in waiting), default=0)
