"""What detection says about a project.

Candidates for its setup, and its check commands, each with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class FoundCommand(NamedTuple):
    """A command line, and what in the project speaks for it."""

    command: str
    why: str


class SetupCandidate(NamedTuple):
    """A way to set a project up.

    `builds` says that it compiles sources: its result holds for one tree only.
    """

    # Empty: nothing is to be installed
    command: str
    why: str = ""
    # A test command that goes with this setup alone
    test_command: str = ""
    compiles_sources: bool = False


class DetectedProject(NamedTuple):
    """One root of a repository: what it is, and how it is set up and checked."""

    profile: str
    # The project's own
    name: str
    setups: tuple[SetupCandidate, ...]
    # By purpose, without the setup
    commands: Mapping[str, FoundCommand]
    # What is installed beside, what is missing
    notes: tuple[str, ...] = ()
    # Its folder; empty: the repository's
    root: str = ""


class MachineInfo(NamedTuple):
    """What detection must know about the machine: programs on the PATH, versions of Python by name."""

    programs: frozenset[str] = frozenset()
    pythons: Mapping[str, tuple[int, int]] = {}

    def has_program(self, program: str) -> bool:
        return program in self.programs


# The programs that detection asks about.
PROBED_PROGRAMS = (
    *(
        "uv",
        "poetry",
        "pdm",
        "npm",
        "pnpm",
        "yarn",
        "bun",
        "corepack",
        "mvn",
        "gradle",
        "just",
        "task",
        "cmake",
    ),
    "golangci-lint",
)
PYTHON_COMMANDS = ("python3", *(f"python3.{minor}" for minor in range(15, 7, -1)))
