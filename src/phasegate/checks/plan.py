"""What is to be checked: commands by purpose, and limits.

The engine fills it from profile, config and package.
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
    """What a command is for, in the order in which they are run."""

    SETUP = "setup"
    BUILD = "build"
    TYPECHECK = "typecheck"
    LINT = "lint"
    TEST = "test"
    COVERAGE = "coverage"


class RegistryAccessLevel(StrEnum):
    """How far a command may reach package registries on behalf of the user."""

    NONE = "none"
    ANONYMOUS = "without credentials"
    USER = "with the user's credentials"


class CommandPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A purpose without a command is not asked for.

    An empty command was left out by the user on purpose.
    """

    # The folder of the checkout in which they are run
    root: str = ""
    commands: Mapping[str, str] = {}
    # By purpose: what in the project speaks for the command
    reasons: Mapping[str, str] = {}
    # In order; empty: the command for `setup`
    setups: tuple[SetupCandidate, ...] = ()
    # In the tree's test files; None: not counted
    test_functions: int | None = None
    coverage_min: float | None = None
    # Files that a coverage report should count; one that it does not is noted
    code: tuple[str, ...] = ()
    min_tests: int = 1
    # Of each command
    timeout_s: float = 1_800.0
    # A test run that fails is tried again this often: it may be flaky
    test_reruns: int = 1
    # What failed before the work began does not reject it
    tolerates_old_failures: bool = True
    lock_files: tuple[str, ...] = tuple(sorted(LOCK_FILES))
    coverage_reports: tuple[str, ...] = COVERAGE_REPORT_PATHS
    # Where a setup puts programs; the last is for those that it got aside.
    bin_folders: tuple[str, ...] = (".venv/bin", "node_modules/.bin", ".phasegate-tools/bin")


class Command(msgspec.Struct, frozen=True):
    """One program to run in a sandbox, where it can write to the checkout only.

    There is no field for variables to pass through: a check gets no keys. `access` names what a
    setup may be given to reach registries; the runner knows the values.
    """

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    # Goes before the rest of PATH
    path_prefix: tuple[Path, ...]
    network: bool
    timeout_s: float
    access: RegistryAccessLevel = RegistryAccessLevel.NONE
    # Where the whole output goes
    log: Path | None = None
    purpose: str = ""
    # The whole checkout, where `cwd` is a folder of it
    whole_checkout: Path | None = None


class CommandResult(msgspec.Struct, frozen=True):
    """How it ended.

    Of long output the beginning and the end are enough; `cut` says that there was more.
    """

    # None: a signal, the time limit, or unknown
    exit_status: int | None
    stdout: str
    stderr: str
    duration_s: float
    timed_out: bool = False
    is_truncated: bool = False
    # The limit at which it was ended, in words
    exceeded_limit: str = ""
    # Seconds since 1970
    ended_at_s: float = 0.0


class CommandRunner(Protocol):
    """Run a command in a sandbox without secrets.

    A program that is not found ends with status 127, as in a shell.
    """

    def __call__(self, command: Command, /) -> CommandResult: ...
