"""`phasegate init` for the cases that its fast path does not handle: help and errors."""

from __future__ import annotations

import os

import click

from phasegate.engine.tools.init import prepare_repository
from phasegate.interfaces.cli.render import current_folder, json_option
from phasegate.interfaces.fast_path.init import print_setup


@click.command()
@json_option
def init(as_json: bool) -> int:
    """Prepare this repository: write the configuration and the project description.

    Creates phasegate.toml (the installed agents and their roles) and .agentd/project.md
    (information for agents), and adds .phasegate, .worktrees and .isdlc to .git/info/exclude.
    Existing files are not changed, so it can be repeated. No program is started.

    \b
    Examples:
      phasegate init
      phasegate init --json
    """
    return print_setup(prepare_repository(str(current_folder()), os.environ), as_json=as_json)
