"""`phasegate init` for what the quick way does not take: help, and errors."""

from __future__ import annotations

import os

import click

from phasegate.engine.tools.init import prepare_repository
from phasegate.interfaces.cli.render import current_folder, json_option
from phasegate.interfaces.fast_path.init import print_setup


@click.command()
@json_option
def init(as_json: bool) -> int:
    """Prepare the repository around the current folder, and show each file.

    Writes phasegate.toml (the agent programs that are installed, who does what) and agentd/project.md (what agents
    should know about the project) unless they are there, and keeps .phasegate, .worktrees and .isdlc out of git by
    .git/info/exclude. Nothing that is there is changed; repeat it as you like. No program is started.

    \b
    Examples:
      phasegate init
      phasegate init --json
    """
    return print_setup(prepare_repository(str(current_folder()), os.environ), as_json=as_json)
