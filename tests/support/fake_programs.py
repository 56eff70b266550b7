"""Agent programs that are shell scripts, on a PATH on which nothing else of this machine's agents can be found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from phasegate.sandbox.probe import choose_level
from support.entry import Done, phasegate
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

    def command(
        self, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Done:
        """What the program's entry does with these words, in this process and that environment."""
        with mock.patch.dict(os.environ, self._environment(env), clear=True):
            return phasegate(*arguments, cwd=cwd or self.repository)

    def program(self, *arguments: str) -> Done:
        """The program as a person runs it: a process finds out once which sandbox holds."""
        argv = [sys.executable, "-m", "phasegate", *arguments]
        env = self._environment(None)
        done = subprocess.run(
            argv, cwd=self.repository, env=env, capture_output=True, text=True, timeout=120
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        return {
            "PATH": str(self.programs),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            # The repository is the user's own
            "PHASEGATE_TRUST": "1",
            **_git(),
            **(more or {}),
        }


def _git() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("GIT_")}


def make_machine(folder: Path, config: str = "") -> Machine:
    choose_level(
        None, needs_network=False
    )  # found out once a process: here, and not on a PATH that goes with the test
    machine = Machine(folder)
    for one in (machine.home, machine.programs):
        one.mkdir()
    for name in TOOLS:
        if found := shutil.which(name):
            (machine.programs / name).symlink_to(os.path.realpath(found))
    make_repository(machine.repository, {"README.md": "A project\n", "phasegate.toml": config})
    return machine
