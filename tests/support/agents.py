"""Launches carried out as they are, without a cage: what is tested with this is the harness."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from phasegate.agents.port import Finished, Launch


def carry_out(launch: Launch, checkout: Path, ours: Mapping[str, str] | None = None) -> Finished:
    """Start what a harness described, in the checkout, with the variables that it asked for and a PATH."""
    ours = os.environ if ours is None else ours
    passed = {name: ours[name] for name in launch.pass_env if name in ours}
    stdin = launch.stdin if isinstance(launch.stdin, bytes) else launch.stdin.read_bytes()
    started_s = time.monotonic()
    done = subprocess.run(
        launch.argv,
        cwd=checkout,
        env={"PATH": os.environ["PATH"], "HOME": str(checkout), **passed, **launch.env},
        input=stdin,
        capture_output=True,
        timeout=60,
    )
    return Finished(
        exit_status=done.returncode if done.returncode >= 0 else None,
        signal=-done.returncode if done.returncode < 0 else None,
        stdout=done.stdout.decode("utf-8", "replace"),
        stderr=done.stderr.decode("utf-8", "replace"),
        duration_s=time.monotonic() - started_s,
        ended_at_s=time.time(),
    )
