"""`phasegate hook`: show the suggested next steps in the hooks of an agent program."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable

import click

from phasegate.core.agents.harnesses import (
    HARNESSES,
    INSTALLABLE_HARNESSES,
    HarnessRow,
    HookFile,
    find_harness_kind,
)
from phasegate.engine.project.settings import find_repository_root, load_settings
from phasegate.engine.tools.agent_settings import (
    SettingsChange,
    apply_change,
    hook_entry,
    plan_install,
    plan_removal,
)
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_result,
)

agent_argument = click.argument("agent", metavar="AGENT")


@click.group(cls=Group)
def hook() -> None:
    """Install `phasegate next` as a hook of an agent program in this repository, or remove it.

    AGENT is claude, codex, cursor, gemini, qwen, or the name of an agent in phasegate.toml. The
    program then shows the suggested next steps after each turn; Cursor gets them at the start of a
    session.
    """


@hook.command()
@agent_argument
@json_option
def install(agent: str, as_json: bool) -> None:
    """Add the hook to the settings of AGENT in this repository. Other settings are not changed.

    \b
    Examples:
      phasegate hook install claude
      phasegate hook install gemini --json
    """
    hooks = find_hooks(agent)
    _apply_change(
        plan_install(find_repository_root(current_folder()), hook_entry(hooks)), hooks, as_json
    )
    for remark in (hooks.remark, "" if shutil.which("phasegate") else NOT_ON_PATH):
        if remark:
            print(f"phasegate: {remark}", file=sys.stderr)


NOT_ON_PATH = "phasegate is not on your PATH, where the agent program looks for it"


@hook.command()
@agent_argument
@json_option
def remove(agent: str, as_json: bool) -> None:
    """Remove the hook from the settings of AGENT in this repository. Other entries are kept.

    \b
    Example:
      phasegate hook remove claude
    """
    hooks = find_hooks(agent)
    _apply_change(
        plan_removal(find_repository_root(current_folder()), hook_entry(hooks)), hooks, as_json
    )


def find_hooks(agent: str) -> HookFile:
    """Return the hook settings of a program. `agent` may be a configured name."""
    candidates = [row for row in INSTALLABLE_HARNESSES.values() if row.hooks]
    hooks = HARNESSES[resolve_harness_kind(agent, candidates)].hooks
    if hooks is None:
        raise ConfigError(
            f"{agent} has no hooks in a settings file", "print the steps yourself: phasegate next"
        )

    return hooks


def resolve_harness_kind(agent: str, candidates: Iterable[HarnessRow]) -> str:
    """Return the harness of an agent. `candidates` are listed if it is unknown."""
    kind = find_harness_kind(agent) or _find_configured_harness(agent)

    if kind is None:
        available = ", ".join(
            sorted(name for row in candidates for name in {row.default_agent, row.kind})
        )
        raise ConfigError(
            f"there is no agent {agent}",
            f"available: {available}, and the agents in phasegate.toml",
        )

    return kind


def _find_configured_harness(agent: str) -> str | None:
    settings = load_settings(find_repository_root(current_folder())).config.agents.get(agent)
    if settings:
        return settings.harness
    return None


def _apply_change(change: SettingsChange, hooks: HookFile, as_json: bool) -> None:
    apply_change(change)
    path = make_printable(os.path.relpath(change.path, current_folder()))
    data = {"path": path, "outcome": change.outcome, "event": hooks.event, "command": hooks.command}
    print_result(data, f"{path}: {change.outcome}", as_json)
