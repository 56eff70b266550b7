"""Results of detection: setup candidates and check commands, each with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class FoundCommand(NamedTuple):
    """A command line, and the reason why it was chosen."""

    command: str
    why: str


def describe_command(command: str) -> str:
    """Return a command as users are shown it: a script by the comment in its first line."""
    first, _, rest = command.partition("\n")
    if rest and first.startswith("# "):
        return first.removeprefix("# ")
    return command


class SetupCandidate(NamedTuple):
    """One possible setup of a project.

    With `compiles_sources`, its result is valid for one tree only.
    """

    # Empty if nothing has to be installed
    command: str
    why: str = ""
    # A test command that replaces the usual one with this setup
    test_command: str = ""
    compiles_sources: bool = False


class DetectedProject(NamedTuple):
    """One root of a repository: its profile, and how it is set up and checked."""

    profile: str
    name: str
    setups: tuple[SetupCandidate, ...]
    # By purpose; the setup is not included
    commands: Mapping[str, FoundCommand]
    # What is installed in addition, what is missing
    notes: tuple[str, ...] = ()
    # Relative to the repository; empty for the repository itself
    root: str = ""


class MachineInfo(NamedTuple):
    """The machine as far as detection needs it: programs on the PATH, Python versions by name."""

    programs: frozenset[str] = frozenset()
    pythons: Mapping[str, tuple[int, int]] = {}

    def has_program(self, program: str) -> bool:
        return program in self.programs


# The programs that detection looks for.
PROBED_PROGRAMS = (
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
    "golangci-lint",
)
PYTHON_COMMANDS = ("python3", *(f"python3.{minor}" for minor in range(15, 7, -1)))
