"""Runs tests/forges: our requests and the fake's answers against what the forges publish of their interfaces.

Usage: python tools/forge_tests.py [arguments for pytest]

Where there is no package registry, the tests are not run, this says so aloud, and the exit status is 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from tools.agent_tests import Unreachable, cache_folder, programs


def main() -> int:
    try:
        found = programs(Path("tests/forges/package.json"), cache_folder(os.environ)).parent
    except Unreachable as why:
        print(
            f"\n*** NOT RUN: tests/forges, the forges' published interfaces: {why}. ***\n",
            file=sys.stderr,
        )
        return 0
    for unread in (found / "@octokit/openapi/generated").glob("*.json"):  # 380 MB
        if unread.name != "api.github.com.json":
            unread.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "tests/forges", *sys.argv[1:]]
    return subprocess.run(
        command, env={**os.environ, "PHASEGATE_TEST_FORGES": str(found)}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
