"""`phasegate mcp`: run the MCP server, or install it in the settings of an agent program."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import click

from phasegate.core.agents.harnesses import HARNESSES, INSTALLABLE_HARNESSES, McpConfigFile
from phasegate.engine.project.settings import find_repository_root
from phasegate.engine.tools.agent_settings import (
    SettingsChange,
    SettingsEntry,
    apply_change,
    plan_install,
    plan_removal,
    server_entry,
)
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.commands.hook import NOT_ON_PATH, agent_argument, resolve_harness_kind
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_result,
)

yes_option = click.option("--yes", is_flag=True, help="Change the file without asking.")


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def mcp(ctx: click.Context) -> None:
    """Run the MCP server of this repository on stdin and stdout.

    An agent program can then read the state, and start, run and stop features. Decisions stay with
    the user, whom the program asks; see `[mcp] decisions` in phasegate.toml.

    \b
    Examples:
      phasegate mcp install claude
      phasegate mcp
    """
    if ctx.invoked_subcommand is not None:
        return

    from phasegate.interfaces.mcp.jsonrpc import McpConnection, reserve_stdio
    from phasegate.interfaces.mcp.server import McpServer

    server = McpServer(current_folder())

    if sys.stdin.isatty():
        print(
            "phasegate: this server is started by an agent program; exit with Ctrl-D",
            file=sys.stderr,
        )

    McpConnection(*reserve_stdio()).serve(server.handle_call)


@mcp.command()
@agent_argument
@yes_option
@json_option
def install(agent: str, yes: bool, as_json: bool) -> int:
    """Add `phasegate mcp` to the MCP servers of AGENT in this repository.

    The change is shown before it is made.

    AGENT is claude, codex, cursor, gemini, opencode, qwen, or the name of an agent in
    phasegate.toml.

    \b
    Examples:
      phasegate mcp install claude
      phasegate mcp install codex --yes
    """
    config_file = _find_mcp_settings(agent)
    code = _confirm_and_apply(plan_install, config_file, yes, as_json)
    for remark in (config_file.remark, "" if shutil.which("phasegate") else NOT_ON_PATH):
        if remark and code == 0:
            print(f"phasegate: {remark}", file=sys.stderr)

    return code


@mcp.command()
@agent_argument
@yes_option
@json_option
def remove(agent: str, yes: bool, as_json: bool) -> int:
    """Remove `phasegate mcp` from the MCP servers of AGENT in this repository.

    Other entries are kept.

    \b
    Example:
      phasegate mcp remove claude
    """
    return _confirm_and_apply(plan_removal, _find_mcp_settings(agent), yes, as_json)


def _find_mcp_settings(agent: str) -> McpConfigFile:
    candidates = [row for row in INSTALLABLE_HARNESSES.values() if row.mcp]
    config_file = HARNESSES[resolve_harness_kind(agent, candidates)].mcp
    if config_file is None:
        raise ConfigError(
            f"{agent} does not read MCP servers from a file in the repository",
            "add a stdio server with the command `phasegate mcp` to its settings",
        )

    return config_file


def _confirm_and_apply(
    plan_change: Callable[[Path, SettingsEntry], SettingsChange],
    config_file: McpConfigFile,
    yes: bool,
    as_json: bool,
) -> int:
    """Show the change, and apply it if the user confirms. Return the exit code."""
    change = plan_change(find_repository_root(current_folder()), server_entry(config_file))
    path = make_printable(os.path.relpath(change.path, current_folder()))
    is_change = change.after != change.before
    if is_change and not as_json:
        click.echo("\n".join(_render_diff(change, path)))

    if is_change and not yes:
        if as_json or not sys.stdin.isatty():
            raise ConfigError(
                "nothing was changed: there is no terminal to confirm on",
                "--yes changes the file without asking",
            )

        if not click.confirm(f"Change {path}?", err=True):
            return 1

    apply_change(change)
    print_result({"path": path, "outcome": change.outcome}, f"{path}: {change.outcome}", as_json)

    return 0


def _render_diff(change: SettingsChange, path: str) -> list[str]:
    from difflib import unified_diff

    before, after = ((text or "").splitlines() for text in (change.before, change.after))
    return [
        make_printable(line.rstrip("\n"))
        for line in unified_diff(before, after, path, path, lineterm="")
    ]
