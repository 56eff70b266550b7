"""`phasegate agent-file`: shipped agent files, and the prompt sections in any agent file."""

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
    """List, copy, update or check agent files and their prompt sections.

    An agent file is a Markdown prompt for one agent. Its prompt section tells the agent which next
    steps to suggest when it has finished.
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
    lines = []
    for file in files:
        used_for = ", ".join(file.role.phases)
        if not used_for and file.role.parent:
            used_for = f"for {file.role.parent}"

        lines.append(f"{file.name:<{width}}  {file.role.kind:<16}  {used_for}".rstrip())

    print_result(data, "\n".join(lines), as_json)


@agent_file.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite files that differ from the shipped ones.")
@json_option
def install(folder: Path, force: bool, as_json: bool) -> None:
    """Copy the shipped agent files into DIR, which is created if it is missing.

    A file that differs from the shipped one is kept, unless --force is given.

    \b
    Example:
      phasegate agent-file install .claude/agents
    """
    _show_changes(install_agent_files(folder, force), as_json)


@agent_file.command()
@paths_argument
@json_option
def sync(paths: tuple[Path, ...], as_json: bool) -> None:
    """Insert or update the prompt section in agent files: files, or folders of Markdown files.

    The section goes after `# SELF-VALIDATION` and before the closing line. Its content depends on
    the role of the agent, which is read from the front matter: `phases: [03-architecture]`, or
    `role:` (orchestrator, sub-orchestrator, sub-agent with `parent:` and `task:`). Without front
    matter, the name of a shipped file decides. All files are read before the first one is written:
    an invalid file leaves all of them unchanged.

    \b
    Example:
      phasegate agent-file sync .claude/agents my-agent.md
    """
    _show_changes(sync_agent_files(paths), as_json)


@agent_file.command()
@paths_argument
@json_option
def check(paths: tuple[Path, ...], as_json: bool) -> int:
    """Report prompt sections that are missing, outdated or misplaced. Nothing is written.

    Exit 0: all sections are correct. Exit 1: one line for each file with a problem.

    \b
    Example:
      phasegate agent-file check .claude/agents
    """
    problems = check_agent_files(paths)
    findings = {make_printable(path): texts for path, texts in problems.items() if texts}
    lines = "\n".join(f"{path}: {'; '.join(texts)}" for path, texts in findings.items())
    data = {"ok": not findings, "checked": len(problems), "findings": findings}
    print_result(data, lines, as_json)
    if findings:
        return 1

    return 0


def _show_changes(changes: Sequence[AgentFileChange], as_json: bool) -> None:
    data = [{"path": make_printable(change.path), "outcome": change.outcome} for change in changes]
    print_result(data, "\n".join(f"{row['path']}: {row['outcome']}" for row in data), as_json)
