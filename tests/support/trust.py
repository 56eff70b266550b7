"""Repositories that the user has not accepted: the tests' own variable is taken away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def as_a_stranger(home: Path, **values: str) -> dict[str, str]:
    """An environment with a fresh home, in which nothing was accepted yet."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PHASEGATE_TRUST", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
    }
    return {**kept, "HOME": str(home), **values}


def run_phasegate(
    folder: Path, env: Mapping[str, str], *arguments: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with exactly this environment."""
    return subprocess.run(
        [sys.executable, "-m", "phasegate", *arguments],
        cwd=folder,
        env={**env},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
