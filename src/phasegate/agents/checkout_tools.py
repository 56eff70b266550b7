"""Programs of a checkout, such as those of `.venv/bin`, on the PATH of a job, and of nothing that belongs to us."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from phasegate.cage.run import find_program


def place_tools(folder: Path, tools: Sequence[Path]) -> None:
    """One command a tool, in a folder that the job cannot write to.

    The tools' own folder goes last on PATH. An agent could put a `git` of its own there, and the next agent in this
    checkout, perhaps of another provider, would start it with its key.
    """
    folder.mkdir(exist_ok=True)
    for tool in tools:
        command = folder / tool.name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(tool))} "$@"\n')
        command.chmod(0o755)


def pinned(argv: tuple[str, ...], path: str, cwd: Path) -> tuple[str, ...]:
    """The command with its program found on this PATH, and the interpreter too where `env` would look for it."""
    program = find_program(argv[0], path=path, cwd=cwd)
    if program is None:  # the cage says so
        return argv
    with Path(program).open("rb") as file:
        first, *words = file.readline(512).split() or [b""]
    words = words[1:] if words[:1] == [b"-S"] else words
    interpreter = None
    if first.startswith(b"#!") and first.endswith(b"/env") and words:
        interpreter = find_program(os.fsdecode(words[0]), path=path)
    if interpreter is None:
        return (program, *argv[1:])
    return (interpreter, *map(os.fsdecode, words[1:]), program, *argv[1:])
