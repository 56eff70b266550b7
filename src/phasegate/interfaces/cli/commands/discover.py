"""`phasegate discover`: let an agent find the setup and check commands; save those that work."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.engine.project.project import open_project, open_project_store
from phasegate.engine.steps.workplace import current_branch
from phasegate.engine.tools.discover import Discovery, discover_branch_checks, write_discovery
from phasegate.interfaces.cli.commands.check import format_check_row, show_running_command
from phasegate.interfaces.cli.completion_values import complete_from, list_agent_names
from phasegate.interfaces.cli.render import json_option, make_printable, print_line, print_result


@click.command()
@click.option(
    "--agent",
    shell_complete=complete_from(list_agent_names),
    help="The agent to ask; default: the reviewer.",
)
@click.option("--yes", is_flag=True, help="Save without asking.")
@json_option
def discover(agent: str | None, yes: bool, as_json: bool) -> int:
    """Let an agent find the commands for setup, tests and lint, and keep those that work.

    The agent works in a temporary copy of your branch, in the sandbox. Each proposed command is run
    on a clean checkout without your credentials; failing ones are dropped. The change to
    phasegate.toml is shown before it is saved. Exit 0: saved, or nothing to change. Exit 1: no
    command works, or you declined.

    \b
    Examples:
      phasegate discover
      phasegate discover --agent claude --yes
    """
    project = open_project(Path.cwd())
    with open_project_store(project) as store, show_running_command() as show_command:
        discovery = discover_branch_checks(
            project, store, current_branch(project), agent, show_command
        )

    is_changed = bool(discovery.diff)
    if not as_json:
        print_line("\n".join(_format_discovery(discovery)))

    write = is_changed and (yes or (not as_json and _confirm()))
    if write:
        write_discovery(project, discovery)

    if as_json:
        data = discovery._asdict()
        del data["before"], data["after"]
        data["checks"] = [row._asdict() for row in discovery.checks]
        data["written"] = write
        print_result(data, "", as_json)

    if discovery.kept and (write or not is_changed):
        return 0

    return 1


def _confirm() -> bool:
    return click.confirm("Save this to phasegate.toml?", err=True)


def _format_discovery(discovery: Discovery) -> list[str]:
    """Return the lines about proposed, dropped and saved commands."""
    lines = [f"{make_printable(discovery.agent)} proposed:"]
    for row in discovery.checks:
        name = f"{row.root}: {row.name}" if row.root else row.name
        if name in discovery.proposed:
            lines += format_check_row(row._replace(name=name))

    dropped = [name for name in discovery.proposed if name not in discovery.kept]
    if dropped:
        lines.append(f"dropped: {', '.join(dropped)}")

    return [*lines, *map(make_printable, discovery.diff.splitlines())]
