"""Define the plan of the checks: commands by purpose, and limits.

The engine fills the plan from the language profile, the configuration and the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from phasegate.core.detection.model import SetupCandidate
from phasegate.core.paths.scope import LOCK_FILES

COVERAGE_REPORT_PATHS = (
    *("coverage.json", "coverage.xml", "coverage.lcov", "lcov.info", "coverage/lcov.info"),
    "coverage/coverage-summary.json",
    *("coverage/cobertura-coverage.xml", "cobertura.xml", "target/lcov.info", "coverage.out"),
)


class Purpose(StrEnum):
    """The purpose of a command, in execution order."""

    SETUP = "setup"
    BUILD = "build"
    TYPECHECK = "typecheck"
    LINT = "lint"
    TEST = "test"
    COVERAGE = "coverage"


class RegistryAccessLevel(StrEnum):
    """The access to package registries that a command gets."""

    NONE = "none"
    ANONYMOUS = "without credentials"
    USER = "with the user's credentials"


class CommandPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The commands to run, with their limits.

    A purpose without a command is not checked. An empty command was disabled by the user.
    """

    # The folder of the checkout in which the commands run
    root: str = ""
    commands: Mapping[str, str] = {}
    # Why each command was chosen, by purpose
    reasons: Mapping[str, str] = {}
    # Setup candidates in order; if empty, the command for `setup` is used
    setups: tuple[SetupCandidate, ...] = ()
    # Number of test functions in the tree; None if they were not counted
    test_functions: int | None = None
    coverage_min: float | None = None
    # Files that a coverage report should include; missing ones are noted
    code: tuple[str, ...] = ()
    min_tests: int = 1
    # Timeout of each command
    timeout_s: float = 1_800.0
    # How often a failed test run is repeated: it may be flaky
    test_reruns: int = 1
    # Failures that existed before the work began do not reject it
    tolerates_old_failures: bool = True
    lock_files: tuple[str, ...] = tuple(sorted(LOCK_FILES))
    coverage_reports: tuple[str, ...] = COVERAGE_REPORT_PATHS
    # Folders for programs that a setup installs; the last one is for extra tools.
    bin_folders: tuple[str, ...] = (".venv/bin", "node_modules/.bin", ".phasegate-tools/bin")


class Command(msgspec.Struct, frozen=True):
    """One program to run in a sandbox, where it can write to the checkout only.

    There is no field for variables to pass through: a check gets no keys. `access` names what a
    setup may be given to reach registries; the runner knows the values.
    """

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    # Prepended to PATH
    path_prefix: tuple[Path, ...]
    network: bool
    timeout_s: float
    access: RegistryAccessLevel = RegistryAccessLevel.NONE
    # File for the complete output
    log: Path | None = None
    purpose: str = ""
    # The whole checkout, if `cwd` is a folder in it
    whole_checkout: Path | None = None
    # Further folders that it may read, or write to
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended.

    Long output is reduced to its beginning and end, and `is_truncated` is set.
    """

    # None if a signal or the time limit ended it, or if the status is unknown
    exit_status: int | None
    stdout: str
    stderr: str
    duration_s: float
    timed_out: bool = False
    is_truncated: bool = False
    # Description of the limit that it exceeded
    exceeded_limit: str = ""
    # Seconds since 1970
    ended_at_s: float = 0.0


class CommandRunner(Protocol):
    """Run a command in a sandbox without secrets.

    A program that is not found ends with status 127, as in a shell.
    """

    def __call__(self, command: Command, /) -> CommandResult: ...
