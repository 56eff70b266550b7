"""`phasegate` without arguments on a terminal: a menu of commands for the current state."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from phasegate.config.layers import locate_config
from phasegate.core.display.menu import (
    MENU_ENTRIES,
    ROOT_PLACEHOLDER,
    MenuEntry,
    MenuKind,
    choose_menu,
    is_code_file,
    parse_choice,
    render_box,
    render_headline,
)
from phasegate.engine.project.active_state import read_active_state, read_own_state
from phasegate.engine.project.settings import find_repository_root
from phasegate.engine.views.overview import build_overview, open_reader
from phasegate.errors import PhasegateError
from phasegate.interfaces.cli.render import current_folder, make_printable

_MAX_TRIES = 5
_MAX_ANSWER_BYTES = 10_000
_MAX_FILES_SCANNED = 5_000
_QUIT_ANSWERS = ("", "q", "quit", "exit")


def is_interactive() -> bool:
    """Return whether stdin and stdout are terminals."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def show_menu() -> int:
    """Show the menu for the current state, read a choice, and run its command."""
    folder = current_folder()
    # Outside of a repository, every choice but the help would fail
    find_repository_root(folder)
    location = locate_config(folder)
    state = read_active_state(str(folder))
    scenario = choose_menu(
        state,
        os.path.lexists(location.file),
        _has_code(location.root),
        read_own_state(str(folder)),
    )
    entries = MENU_ENTRIES[scenario]
    click.echo(render_box(render_headline(scenario, state), [entry.label for entry in entries]))
    if scenario is MenuKind.BLOCKED and (reason := _find_reason(str(folder))):
        click.echo(f"why: {make_printable(reason)}")

    try:
        return _run_choice(entries, os.path.relpath(location.root, folder))
    except KeyboardInterrupt:
        click.echo()
        raise


def _find_reason(folder: str) -> str:
    """Return why the shown workflow waits; empty if that is not recorded."""
    try:
        workflow = build_overview(open_reader(folder), folder).workflow
    except PhasegateError:
        return ""

    return workflow.reason if workflow else ""


def _run_choice(entries: tuple[MenuEntry, ...], root: str) -> int:
    """Ask for an entry a few times, run it, and return the exit status."""
    for _ in range(_MAX_TRIES):
        answer = _ask_line(f"Choose 1-{len(entries)}, or q to quit: ")
        if answer in _QUIT_ANSWERS:
            return 0

        entry = parse_choice(answer, entries)
        if entry is not None:
            return _run_entry(entry, root)

        click.echo("Enter one of the numbers.")

    click.echo("No valid choice: the menu ends.")
    return 2


def _run_entry(entry: MenuEntry, root: str) -> int:
    command = [part.replace(ROOT_PLACEHOLDER, root) for part in entry.command]
    if entry.question:
        answer = _ask_line(f"{entry.question}: ")
        if not answer:
            click.echo("Nothing was done.")
            return 0

        command.append(answer)

    return _run_command_line(command)


def _run_command_line(command: list[str]) -> int:
    """Print a command and run it; a command that does not exist is only printed."""
    from phasegate.interfaces.cli.commands import COMMANDS
    from phasegate.interfaces.cli.main import run_command

    command_line = f"phasegate {shlex.join(command)}"
    if command[0] not in COMMANDS and not command[0].startswith("-"):
        click.echo(f"Not available in this version: {command_line}")
        return 1

    click.echo(f"$ {command_line}")
    return run_command(command)


def _ask_line(question: str) -> str:
    """Read one line without unprintable characters. The end of input is an empty line."""
    click.echo(question, nl=False)
    line = sys.stdin.buffer.readline(_MAX_ANSWER_BYTES)
    if not line.endswith(b"\n"):
        click.echo()

    text = line.decode("utf-8", "replace")
    return "".join(character for character in text if character.isprintable()).strip()


def _has_code(root: Path) -> bool:
    """Return whether there is code below a folder. The scan is bounded, so it may miss some."""
    scanned = 0

    for _, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if any(is_code_file(name) for name in names):
            return True

        scanned += len(names) + len(folders)
        if scanned > _MAX_FILES_SCANNED:
            return False

    return False
