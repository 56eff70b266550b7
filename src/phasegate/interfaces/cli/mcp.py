"""`phasegate mcp`: the MCP server, and its entry in the settings of an agent program."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import click

from phasegate.core.agents.harnesses import KNOWN, ROWS, McpPlace
from phasegate.engine.project.settings import root_around
from phasegate.engine.tools.agent_settings import (
    OwnEntry,
    SettingsChange,
    carry_out,
    installing,
    removing,
    server_entry,
)
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.hook import NOT_ON_PATH, agent_argument, kind_meant
from phasegate.interfaces.cli.render import current_folder, json_option, printable, show

yes_option = click.option("--yes", is_flag=True, help="Change the file without asking.")


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def mcp(ctx: click.Context) -> None:
    """Serve this repository to an agent program, by MCP on stdin and stdout.

    The program's agent can then look, begin features, run and stop them. Decisions stay with the person: their program
    asks them. `[mcp] decisions` in phasegate.toml says more.

    \b
    Examples:
      phasegate mcp install claude
      phasegate mcp
    """
    if ctx.invoked_subcommand is not None:
        return
    from phasegate.interfaces.mcp.jsonrpc import McpWire, own_streams
    from phasegate.interfaces.mcp.server import Server

    server = Server(current_folder())
    if sys.stdin.isatty():
        print("phasegate: an agent program starts this and speaks to it; end with Ctrl-D", file=sys.stderr)
    McpWire(*own_streams()).serve(server.answer)


@mcp.command()
@agent_argument
@yes_option
@json_option
def install(agent: str, yes: bool, as_json: bool) -> int:
    """Add `phasegate mcp` to AGENT's MCP servers in this repository. The change is shown first.

    AGENT is claude, codex, cursor, gemini, opencode, qwen, or the name of an agent in phasegate.toml.

    \b
    Examples:
      phasegate mcp install claude
      phasegate mcp install codex --yes
    """
    place = _place_of(agent)
    code = _settle(installing, place, yes, as_json)
    for remark in (place.remark, "" if shutil.which("phasegate") else NOT_ON_PATH):
        if remark and code == 0:
            print(f"phasegate: {remark}", file=sys.stderr)
    return code


@mcp.command()
@agent_argument
@yes_option
@json_option
def remove(agent: str, yes: bool, as_json: bool) -> int:
    """Take `phasegate mcp` out of AGENT's MCP servers in this repository. Only our own entry goes.

    \b
    Example:
      phasegate mcp remove claude
    """
    return _settle(removing, _place_of(agent), yes, as_json)


def _place_of(agent: str) -> McpPlace:
    place = ROWS[kind_meant(agent, [row for row in KNOWN.values() if row.mcp])].mcp
    if place is None:
        raise ConfigError(f"{agent} takes no MCP server from a file of a repository", "add it there: phasegate mcp")
    return place


def _settle(plan: Callable[[Path, OwnEntry], SettingsChange], place: McpPlace, yes: bool, as_json: bool) -> int:
    """Show the change, and make it if the person agrees."""
    change = plan(root_around(current_folder()), server_entry(place))
    path = printable(os.path.relpath(change.path, current_folder()))
    is_change = change.after != change.before
    if is_change and not as_json:
        click.echo("\n".join(_difference(change, path)))
    if is_change and not yes:
        if as_json or not sys.stdin.isatty():
            raise ConfigError("nothing was changed: nobody was there to agree", "--yes changes the file without asking")
        if not click.confirm(f"Change {path}?", err=True):
            return 1
    carry_out(change)
    show({"path": path, "outcome": change.outcome}, f"{path}: {change.outcome}", as_json)
    return 0


def _difference(change: SettingsChange, path: str) -> list[str]:
    from difflib import unified_diff

    before, after = ((text or "").splitlines() for text in (change.before, change.after))
    return [printable(line.rstrip("\n")) for line in unified_diff(before, after, path, path, lineterm="")]
