"""`phasegate agent-file`.

The shipped agent files, copies of them, and the prompt sections in anybody's agent files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from phasegate.engine.tools.agent_files import (
    AgentFileChange,
    check_agent_files,
    install_agent_files,
    load_shipped_files,
    sync_agent_files,
)
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.render import json_option, make_printable, print_result

paths_argument = click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)


@click.group("agent-file", cls=Group)
def agent_file() -> None:
    """List and copy the shipped agent files; put the prompt sections into agent files.

    An agent file is a Markdown prompt for one agent. Its prompt section tells the agent which next
    steps to suggest when it is done.
    """


@agent_file.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the shipped agent files: name, kind, phases or parent.

    \b
    Example:
      phasegate agent-file list
    """
    files = load_shipped_files()
    data = [
        {"name": f.name, "kind": f.role.kind, "phases": f.role.phases, "parent": f.role.parent}
        for f in files
    ]
    width = max(len(file.name) for file in files)
    serve = {
        f.name: ", ".join(f.role.phases) or (f"for {f.role.parent}" if f.role.parent else "")
        for f in files
    }
    print_result(
        data,
        "\n".join(f"{f.name:<{width}}  {f.role.kind:<16}  {serve[f.name]}".rstrip() for f in files),
        as_json,
    )


@agent_file.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite files that differ from the shipped ones.")
@json_option
def install(folder: Path, force: bool, as_json: bool) -> None:
    """Copy the shipped agent files into DIR, which is made if it is missing.

    A file of yours that differs from the shipped one is kept, unless --force is given.

    \b
    Example:
      phasegate agent-file install .claude/agents
    """
    _show_changes(install_agent_files(folder, force), as_json)


@agent_file.command()
@paths_argument
@json_option
def sync(paths: tuple[Path, ...], as_json: bool) -> None:
    """Put the prompt section into the agent files named by PATH: files, or folders of Markdown files.

    The section goes after `# SELF-VALIDATION` and before the closing line. What the agent is, and so what its section
    says, is read from the file's front matter: `phases: [03-architecture]`, or `role:` (orchestrator,
    sub-orchestrator, sub-agent with `parent:` and `task:`), else from the names of the shipped files. All files are
    read before the first is written: one that is refused leaves all as they were.

    \b
    Example:
      phasegate agent-file sync .claude/agents my-agent.md
    """
    _show_changes(sync_agent_files(paths), as_json)


@agent_file.command()
@paths_argument
@json_option
def check(paths: tuple[Path, ...], as_json: bool) -> int:
    """Say which agent files have no prompt section, a stale one or one at the wrong place. Nothing is written.

    Exit 0 when all is well; 1 and one line per file otherwise.

    \b
    Example:
      phasegate agent-file check .claude/agents
    """
    found = check_agent_files(paths)
    wrong = {make_printable(path): phrases for path, phrases in found.items() if phrases}
    lines = "\n".join(f"{path}: {'; '.join(phrases)}" for path, phrases in wrong.items())
    print_result({"ok": not wrong, "checked": len(found), "findings": wrong}, lines, as_json)
    if wrong:
        return 1

    return 0


def _show_changes(changes: Sequence[AgentFileChange], as_json: bool) -> None:
    data = [{"path": make_printable(change.path), "outcome": change.outcome} for change in changes]
    print_result(data, "\n".join(f"{row['path']}: {row['outcome']}" for row in data), as_json)
