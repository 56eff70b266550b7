"""`phasegate agent-file`: the shipped agent files, copies of them, and the prompt sections in anybody's agent files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from phasegate.doors.cli.group import Group
from phasegate.doors.cli.render import json_option, printable, show
from phasegate.errors import ConfigError
from phasegate.prompts.agent_files import Examined, ShippedFile, examine, shipped_files
from phasegate.prompts.agent_folder import agent_files_below, read_agent_text, replace_agent_text

paths_argument = click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))


class Change(NamedTuple):
    """A file, what is to be said about it, and the text to write, if any."""

    path: Path
    outcome: str
    text: str = ""
    mode: int | None = None


@click.group("agent-file", cls=Group)
def agent_file() -> None:
    """List and copy the shipped agent files; put the prompt sections into agent files.

    An agent file is a Markdown prompt for one agent. Its prompt section tells the agent which next steps to suggest
    when it is done.
    """


@agent_file.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the shipped agent files: name, kind, phases or parent.

    \b
    Example:
      phasegate agent-file list
    """
    files = shipped_files()
    data = [{"name": f.name, "kind": f.role.kind, "phases": f.role.phases, "parent": f.role.parent} for f in files]
    width = max(len(file.name) for file in files)
    show(data, "\n".join(_row(file, width) for file in files), as_json)


def _row(file: ShippedFile, width: int) -> str:
    serves = ", ".join(file.role.phases) or (f"for {file.role.parent}" if file.role.parent else "")
    return f"{file.name:<{width}}  {file.role.kind:<16}  {serves}".rstrip()


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
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the folder {folder}: {error.strerror}", "name a folder you may write"
        ) from error
    _carry_out([_installed(folder / f"{file.name}.md", file.text, force) for file in shipped_files()], as_json)


def _installed(path: Path, text: str, force: bool) -> Change:
    if not path.exists() and not path.is_symlink():
        return Change(path, "written", text)
    stored = read_agent_text(path)
    if stored.text == text:
        return Change(path, "unchanged")
    return Change(path, "replaced", text, stored.mode) if force else Change(path, "kept (differs)")


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
    changes: list[Change] = []
    for path in _files(paths):
        stored = read_agent_text(path)
        examined = _examine(stored.text, path)
        changes.append(_synced(path, stored.mode, examined) if examined.findings else Change(path, "unchanged"))
    _carry_out(changes, as_json)


def _synced(path: Path, mode: int, examined: Examined) -> Change:
    return Change(path, f"synced ({'; '.join(examined.findings)})", examined.text, mode)


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
    files = _files(paths)
    found = {path: _findings(path) for path in files}
    wrong = {printable(path): phrases for path, phrases in found.items() if phrases}
    lines = "\n".join(f"{path}: {'; '.join(phrases)}" for path, phrases in wrong.items())
    show({"ok": not wrong, "checked": len(files), "findings": wrong}, lines, as_json)
    return 1 if wrong else 0


def _findings(path: Path) -> list[str]:
    """What is wrong with a file; one that is there and cannot be judged is wrong too."""
    try:
        return _examine(read_agent_text(path).text, path).findings
    except ConfigError as error:
        return [error.message.removeprefix(f"{path}").lstrip(": ")]


def _examine(text: str, path: Path) -> Examined:
    try:
        return examine(text, path.stem)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", error.hint) from error


def _files(paths: Sequence[Path]) -> list[Path]:
    missing = [path for path in paths if not path.exists() and not path.is_symlink()]
    if missing:
        raise ConfigError(f"there is no {missing[0]}", "name a Markdown file, or a folder of them")
    return list(dict.fromkeys(_all_below(paths)))


def _all_below(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        files = agent_files_below(path)
        if not files:
            raise ConfigError(f"there is no Markdown file in {path}", "name a Markdown file, or a folder of them")
        yield from files


def _carry_out(changes: Sequence[Change], as_json: bool) -> None:
    for change in changes:
        if change.text:
            replace_agent_text(change.path, change.text, change.mode)
    data = [{"path": printable(change.path), "outcome": change.outcome} for change in changes]
    show(data, "\n".join(f"{row['path']}: {row['outcome']}" for row in data), as_json)
