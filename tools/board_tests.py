"""Runs tests/board in a real Chromium: installs the browser (from Debian), its driver and axe where they are missing.

Usage: python tools/board_tests.py [arguments for pytest]

Where there is nothing to install from, the tests are skipped, this says so aloud, and the exit status is 0.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from tools.agent_tests import Unreachable, cache_folder, programs

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
INSTALLS = (("apt-get", "update", "-qq"), ("apt-get", "install", "-y", "-qq", "chromium"))


def main() -> int:
    """Install what is missing, run the tests."""
    try:
        browser = _browser()
        _driver()
        axe = (
            programs(Path("tests/board/package.json"), cache_folder(os.environ)).parent
            / "axe-core"
            / "axe.min.js"
        )
    except Unreachable as why:
        print(f"NOT RUN: tests/board, the pages in a real browser: {why}")
        return 0
    environment = {**os.environ, "PHASEGATE_TEST_BROWSER": browser, "PHASEGATE_TEST_AXE": str(axe)}
    command = [sys.executable, "-m", "pytest", "tests/board", *sys.argv[1:]]
    return subprocess.run(command, env=environment, check=False).returncode


def _browser() -> str:
    if found := next(filter(None, map(shutil.which, BROWSERS)), None):
        return found
    for command in INSTALLS:
        if (
            not shutil.which(command[0])
            or subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
        ):
            raise Unreachable("there is no Chromium, and none can be installed")
    return next(filter(None, map(shutil.which, BROWSERS)), None) or _missing()


def _missing() -> str:
    raise Unreachable("Chromium was installed and is not on PATH")


def _driver() -> None:
    if (
        find_spec("playwright") is not None
    ):  # not imported: `make check` runs where it is not installed
        return
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "-r",
        "requirements/browser.txt",
    ]
    if subprocess.run(install, check=False).returncode:
        raise Unreachable("playwright cannot be installed")


if __name__ == "__main__":
    sys.exit(main())
