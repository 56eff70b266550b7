"""`phasegate sync`: poll the forge once, for a user, a CI job or a timer."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.engine.drive import orders
from phasegate.engine.drive.feature import RunOptions
from phasegate.engine.drive.forge_sync import (
    is_run_elsewhere,
    list_features_at_forge,
    start_labelled_issues,
)
from phasegate.engine.journal.feature import make_feature_option
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.errors import StateConflict
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.render import json_option, print_line
from phasegate.interfaces.cli.run import run_and_report


@click.command()
@feature_option
@json_option
def sync(feature: str | None, as_json: bool) -> int:
    """Poll the forge once, and record what is new. No agent is started.

    A pull request that is approved and green is merged, unless [merge] auto_merge is false. Review
    comments are handled by the next `phasegate run`. An issue with a label of [forge]
    issue_workflows starts a workflow, once. Exit 0: nothing needs you, or there is nothing to do.
    Exit 1: a feature needs you.

    \b
    Examples:
      phasegate sync
      phasegate sync --feature 001-user-login --json
    """
    project = open_project(Path.cwd())
    with open_project_store(project) as store:
        if feature is not None:
            waiting = [orders.select_feature(project, store, feature)]
        else:
            for slug in start_labelled_issues(project, store):
                next_command = f"phasegate run{make_feature_option(store, slug)}"
                print_line(f"{slug}: started; then: {next_command}", err=True)

            waiting = list_features_at_forge(project, store)

        options = RunOptions(by=project.make_origin("cli"), poll_once=True)
        codes = []
        for slug in waiting:
            try:
                codes.append(run_and_report(project, store, slug, options, as_json))
            except StateConflict:
                # A run or another sync polls for it
                if feature is not None or not is_run_elsewhere(project, slug):
                    raise

        return max(codes, default=0)
