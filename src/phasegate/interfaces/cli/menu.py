"""`phasegate` without arguments on a terminal: a menu that leads to a command.

The menu is the suggestion.
"""

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
    choose_menu,
    is_code_file,
    parse_choice,
    render_box,
    render_headline,
)
from phasegate.engine.project.active_state import read_active_state
from phasegate.interfaces.cli.render import current_folder

_MAX_TRIES = 5
_MAX_ANSWER_BYTES = 10_000
_MAX_FILES_SCANNED = 5_000
_QUIT_ANSWERS = ("", "q", "quit", "exit")


def is_interactive() -> bool:
    """Whether there is a person at both ends."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def show_menu() -> int:
    """Show the menu that fits, read a choice, and run its command."""
    folder = current_folder()
    place = locate_config(folder)
    state = read_active_state(str(folder))
    scenario = choose_menu(state, os.path.lexists(place.file), _has_code(place.root))
    entries = MENU_ENTRIES[scenario]
    click.echo(render_box(render_headline(scenario, state), [entry.label for entry in entries]))

    try:
        return _run_choice(entries, os.path.relpath(place.root, folder))
    except KeyboardInterrupt:
        click.echo()
        raise


def _run_choice(entries: tuple[MenuEntry, ...], root: str) -> int:
    for _ in range(_MAX_TRIES):
        answer = _ask_line(f"Choose 1-{len(entries)}, or q to leave: ")
        if answer in _QUIT_ANSWERS:
            return 0

        entry = parse_choice(answer, entries)
        if entry is not None:
            return _run_entry(entry, root)

        click.echo("Please type one of the numbers.")

    click.echo("No choice was made.")
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
    """Run the command as if it had been typed; one that does not exist yet is only shown."""
    from phasegate.interfaces.cli import COMMANDS, run_command

    shown = f"phasegate {shlex.join(command)}"
    if command[0] not in COMMANDS and not command[0].startswith("-"):
        click.echo(f"Not in this version: {shown}")
        return 1

    click.echo(f"$ {shown}")
    return run_command(command)


def _ask_line(question: str) -> str:
    """One line from the person, without what is not printable; the end of input is an empty one."""
    click.echo(question, nl=False)
    line = sys.stdin.buffer.readline(_MAX_ANSWER_BYTES)
    if not line.endswith(b"\n"):
        click.echo()

    return "".join(
        letter for letter in line.decode("utf-8", "replace") if letter.isprintable()
    ).strip()


def _has_code(root: Path) -> bool:
    """Whether there is code below a folder, as far as a quick look tells."""
    seen = 0

    for _, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if any(is_code_file(name) for name in names):
            return True

        seen += len(names) + len(folders)
        if seen > _MAX_FILES_SCANNED:
            return False

    return False
