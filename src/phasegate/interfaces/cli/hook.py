"""`phasegate hook`: the suggested next steps in an agent program's own hooks."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable

import click

from phasegate.core.agents.harnesses import KNOWN, ROWS, HarnessRow, Hooks, kind_named
from phasegate.engine.project.settings import root_around, settings_around
from phasegate.engine.tools.agent_settings import SettingsChange, carry_out, hook_entry, installing, removing
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.render import current_folder, json_option, printable, show

agent_argument = click.argument("agent", metavar="AGENT")


@click.group(cls=Group)
def hook() -> None:
    """Put `phasegate next` into an agent program's own hooks in this repository, or take it out.

    AGENT is claude, codex, cursor, gemini, qwen, or the name of an agent in phasegate.toml. After each turn the
    program then shows the suggested next steps; Cursor is told them when a session begins.
    """


@hook.command()
@agent_argument
@json_option
def install(agent: str, as_json: bool) -> None:
    """Add the hook to AGENT's settings in this repository. Everything else in them stays as it is.

    \b
    Examples:
      phasegate hook install claude
      phasegate hook install gemini --json
    """
    hooks = hooks_of(agent)
    _tell(installing(root_around(current_folder()), hook_entry(hooks)), hooks, as_json)
    for remark in (hooks.remark, "" if shutil.which("phasegate") else NOT_ON_PATH):
        if remark:
            print(f"phasegate: {remark}", file=sys.stderr)


NOT_ON_PATH = "phasegate is not on your PATH: the agent program must find it there"


@hook.command()
@agent_argument
@json_option
def remove(agent: str, as_json: bool) -> None:
    """Take the hook out of AGENT's settings in this repository. Only our own entry goes.

    \b
    Example:
      phasegate hook remove claude
    """
    hooks = hooks_of(agent)
    _tell(removing(root_around(current_folder()), hook_entry(hooks)), hooks, as_json)


def hooks_of(agent: str) -> Hooks:
    """Where the program that is meant looks for its hooks; an agent of the configuration is known by its own name."""
    hooks = ROWS[kind_meant(agent, [row for row in KNOWN.values() if row.hooks])].hooks
    if hooks is None:
        raise ConfigError(f"{agent} has no hooks in a settings file", "ask for the steps yourself: phasegate next")
    return hooks


def kind_meant(agent: str, fitting: Iterable[HarnessRow]) -> str:
    """The kind of program that is meant; `fitting` are those that a person may have meant."""
    kind = kind_named(agent) or _configured(agent)
    if kind is None:
        known = ", ".join(sorted(name for row in fitting for name in {row.agent, row.kind}))
        raise ConfigError(f"there is no agent {agent}", f"known are: {known}, and the agents in phasegate.toml")
    return kind


def _configured(agent: str) -> str | None:
    found = settings_around(root_around(current_folder())).config.agents.get(agent)
    return found.harness if found else None


def _tell(change: SettingsChange, hooks: Hooks, as_json: bool) -> None:
    carry_out(change)
    path = printable(os.path.relpath(change.path, current_folder()))
    data = {"path": path, "outcome": change.outcome, "event": hooks.event, "command": hooks.command}
    show(data, f"{path}: {change.outcome}", as_json)
