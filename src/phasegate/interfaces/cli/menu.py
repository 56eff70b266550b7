"""`phasegate` without arguments on a terminal: a menu that leads to a command. The menu is the suggestion."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from phasegate.config.layers import find_place
from phasegate.core.display.menu import ENTRIES, ROOT, MenuEntry, choice_of, headline, is_code, render_box, scenario_of
from phasegate.engine.project.active_state import active_state
from phasegate.interfaces.cli.render import current_folder

_TRIES = 5
_LONGEST_ANSWER_BYTES = 10_000
_MOST_FILES_SEEN = 5_000
_LEAVE = ("", "q", "quit", "exit")


def on_a_terminal() -> bool:
    """Whether there is a person at both ends."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def offer() -> int:
    """Show the menu that fits, read a choice, and run its command."""
    folder = current_folder()
    place = find_place(folder)
    state = active_state(str(folder))
    scenario = scenario_of(state, os.path.lexists(place.file), _has_code(place.root))
    entries = ENTRIES[scenario]
    click.echo(render_box(headline(scenario, state), [entry.label for entry in entries]))
    try:
        return _lead_on(entries, os.path.relpath(place.root, folder))
    except KeyboardInterrupt:
        click.echo()
        raise


def _lead_on(entries: tuple[MenuEntry, ...], root: str) -> int:
    for _ in range(_TRIES):
        answer = _asked(f"Choose 1-{len(entries)}, or q to leave: ")
        if answer in _LEAVE:
            return 0
        entry = choice_of(answer, entries)
        if entry is not None:
            return _carry_out(entry, root)
        click.echo("Please type one of the numbers.")
    click.echo("No choice was made.")
    return 2


def _carry_out(entry: MenuEntry, root: str) -> int:
    command = [part.replace(ROOT, root) for part in entry.command]
    if entry.question:
        answer = _asked(f"{entry.question}: ")
        if not answer:
            click.echo("Nothing was done.")
            return 0
        command.append(answer)
    return _run(command)


def _run(command: list[str]) -> int:
    """Run the command as if it had been typed; one that does not exist yet is only shown."""
    from phasegate.interfaces.cli import COMMANDS, run_command

    shown = f"phasegate {shlex.join(command)}"
    if command[0] not in COMMANDS and not command[0].startswith("-"):
        click.echo(f"Not in this version: {shown}")
        return 1
    click.echo(f"$ {shown}")
    return run_command(command)


def _asked(question: str) -> str:
    """One line from the person, without what is not printable; the end of input is an empty one."""
    click.echo(question, nl=False)
    line = sys.stdin.buffer.readline(_LONGEST_ANSWER_BYTES)
    if not line.endswith(b"\n"):
        click.echo()
    return "".join(letter for letter in line.decode("utf-8", "replace") if letter.isprintable()).strip()


def _has_code(root: Path) -> bool:
    """Whether there is code below a folder, as far as a quick look tells."""
    seen = 0
    for _, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if any(is_code(name) for name in names):
            return True
        seen += len(names) + len(folders)
        if seen > _MOST_FILES_SEEN:
            return False
    return False
