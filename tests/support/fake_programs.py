"""Agent programs that are shell scripts, on a PATH on which nothing else of this machine's agents can be found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from support.entry import Done
from support.git_project import make_repository

TOOLS = ("git", "bwrap", "sh", "cat", "sed", "sleep", "python3", "env", "mkdir", "test")


class Machine(NamedTuple):
    """A person's machine: a home, programs, a repository."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def programs(self) -> Path:
        return self.folder / "bin"

    @property
    def repository(self) -> Path:
        return self.folder / "repo"

    def install(self, name: str, script: str) -> Path:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def sign_in(self, name: str, content: str = "{}") -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def command(self, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Done:
        argv = [sys.executable, "-m", "phasegate", *arguments]
        told = {"PATH": str(self.programs), "HOME": str(self.home), "LANG": "C.UTF-8", **_git(), **(env or {})}
        done = subprocess.run(
            argv, cwd=cwd or self.repository, env=told, capture_output=True, text=True, timeout=120, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr)


def _git() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("GIT_")}


def make_machine(folder: Path, config: str = "") -> Machine:
    machine = Machine(folder)
    for one in (machine.home, machine.programs):
        one.mkdir()
    for name in TOOLS:
        if found := shutil.which(name):
            (machine.programs / name).symlink_to(os.path.realpath(found))
    make_repository(machine.repository, {"README.md": "A project\n", "phasegate.toml": config})
    return machine
