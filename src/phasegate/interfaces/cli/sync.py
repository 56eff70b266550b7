"""`phasegate sync`: one look at the forge, for a person, a CI job or a timer."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.engine.drive import orders
from phasegate.engine.drive.feature import RunOptions
from phasegate.engine.drive.forge_sync import list_features_at_forge, start_labelled_issues
from phasegate.engine.journal.feature import make_feature_option
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.render import json_option, print_line
from phasegate.interfaces.cli.run import run_and_report


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
    with open_project_store(project) as store:
        if feature is None:
            begun = start_labelled_issues(project, store)
        else:
            begun = []

        for slug in begun:
            print_line(
                f"{slug}: begun; then: phasegate run{make_feature_option(store, slug)}", err=True
            )

        if feature:
            waiting = []
        else:
            waiting = list_features_at_forge(project, store)

        if feature or not (waiting or project.config.forge.issue_workflows):
            waiting = [orders.select_feature(project, store, feature)]

        wishes = RunOptions(by=project.make_origin("cli"), poll_once=True)
        return max(
            (run_and_report(project, store, slug, wishes, as_json) for slug in waiting), default=0
        )
