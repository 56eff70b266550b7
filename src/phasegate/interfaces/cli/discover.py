"""`phasegate discover`.

An agent finds out how the project is set up and tested; what holds is written.
"""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.engine.project.project import open_project, open_project_store
from phasegate.engine.steps.workplace import current_branch
from phasegate.engine.tools.discover import Discovery, discover_branch_checks, write_discovery
from phasegate.interfaces.cli.check import CheckProgress, format_check_row
from phasegate.interfaces.cli.completion_values import complete_from, list_agent_names
from phasegate.interfaces.cli.render import json_option, make_printable, print_line, print_result


@click.command()
@click.option(
    "--agent",
    shell_complete=complete_from(list_agent_names),
    help="The agent to ask; else who reviews.",
)
@click.option("--yes", is_flag=True, help="Write what holds without asking.")
@json_option
def discover(agent: str | None, yes: bool, as_json: bool) -> int:
    """Let an agent find out how the project is set up, tested and linted, and keep what holds.

    It works in a copy of your branch that is thrown away, in the cage. Each command that it proposes is run on a clean
    checkout, without your credentials; what fails is dropped. You see the change of phasegate.toml before it is
    written. Exit 0: written, or nothing to change. Exit 1: nothing held, or you said no.

    \b
    Examples:
      phasegate discover
      phasegate discover --agent claude --yes
    """
    project = open_project(Path.cwd())
    with open_project_store(project) as store, CheckProgress() as progress:
        found = discover_branch_checks(
            project, store, current_branch(project), agent, progress.show_command
        )

    is_new = bool(found.diff)
    if not as_json:
        print_line("\n".join(_format_discovery(found)))

    write = is_new and (
        yes or (not as_json and click.confirm("Write this to phasegate.toml?", err=True))
    )
    if write:
        write_discovery(project, found)

    if as_json:
        data = found._asdict() | {
            "checks": [row._asdict() for row in found.checks],
            "written": write,
        }
        print_result(
            {name: value for name, value in data.items() if name not in ("before", "after")},
            "",
            as_json,
        )

    if found.kept and (write or not is_new):
        return 0

    return 1


def _format_discovery(found: Discovery) -> list[str]:
    named = [(f"{row.root}: {row.name}" if row.root else row.name, row) for row in found.checks]
    told = [
        line
        for name, row in named
        if name in found.proposed
        for line in format_check_row(row._replace(name=name))
    ]

    dropped = [name for name in found.proposed if name not in found.kept]
    if dropped:
        ends = [f"not kept: {', '.join(dropped)}"]
    else:
        ends = []

    return [
        f"{make_printable(found.agent)} proposed:",
        *told,
        *ends,
        *map(make_printable, found.diff.splitlines()),
    ]
