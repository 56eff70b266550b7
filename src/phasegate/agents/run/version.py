"""Ask a program for its version, in a sandbox with its own HOME, without keys or sign-in."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from phasegate.errors import PhasegateError
from phasegate.sandbox.environment import build_environment
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import JobOutcome, JobRequest, SandboxLevel

# A slow program takes six seconds on a busy machine.
VERSION_TIMEOUT_S = 20.0
_VERSION = re.compile(
    r"(?<![\w.])v?([0-9]{1,9}(?:\.[0-9A-Za-z]{1,20}){1,5}(?:[-+][0-9A-Za-z.-]{1,40}){0,2})"
)


class ProgramVersion(NamedTuple):
    """A version, or why it is not known."""

    number: str = ""
    problem: str = ""


def probe_version(
    argv: tuple[str, ...], level: SandboxLevel, timeout_s: float = VERSION_TIMEOUT_S
) -> ProgramVersion:
    """Run a command that prints the version of a program; every failure is returned as a value."""
    with tempfile.TemporaryDirectory(
        prefix="phasegate-version-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name).resolve()
        work = folder / "work"
        work.mkdir()
        request = JobRequest(
            argv=argv,
            configured_command=argv,
            cwd=work,
            folder=folder / "job",
            tag=f"version-{uuid4().hex}",
            env=build_environment(),
            level=level,
            timeout_s=timeout_s,
            grace_s=1.0,
            writable=(work,),
            max_kept_bytes=100_000,
        )

        try:
            return _parse_outcome(SandboxedJob(request).run())
        except PhasegateError as error:
            return ProgramVersion(problem=error.message)


def _parse_outcome(outcome: JobOutcome) -> ProgramVersion:
    """Return the version that the program printed, or why it printed none."""
    if outcome.sigterm_sent or outcome.timed_out:
        return ProgramVersion(problem=f"it did not answer within {outcome.duration_s:.0f} s")

    if outcome.signal:
        return ProgramVersion(problem=f"it ended with signal {outcome.signal}")
    if outcome.exit_code != 0:
        return ProgramVersion(problem=f"it ended with exit status {outcome.exit_code}")

    match = _VERSION.search(outcome.stdout.text)
    if match:
        return ProgramVersion(match[1])

    return ProgramVersion(problem="it printed no version")
