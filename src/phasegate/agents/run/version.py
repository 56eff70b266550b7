"""Which version a program says it is: asked in a cage, with a home of its own and without any key or sign-in."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from phasegate.errors import PhasegateError
from phasegate.sandbox.environment import scrubbed
from phasegate.sandbox.job import CagedJob
from phasegate.sandbox.request import JobOutcome, Level, Request

PATIENCE_S = 20.0  # a slow one takes six seconds on a busy machine
_VERSION = re.compile(r"(?<![\w.])v?([0-9]{1,9}(?:\.[0-9A-Za-z]{1,20}){1,5}(?:[-+][0-9A-Za-z.-]{1,40}){0,2})")


class ProgramVersion(NamedTuple):
    """A version, or why none is known."""

    number: str = ""
    why_not: str = ""


def ask_version(argv: tuple[str, ...], level: Level, patience_s: float = PATIENCE_S) -> ProgramVersion:
    """Start a program that is to print its version. Whatever it does instead, the answer is a value."""
    with tempfile.TemporaryDirectory(prefix="phasegate-version-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        work = folder / "work"
        work.mkdir()
        request = Request(
            argv=argv,
            command=argv,
            cwd=work,
            folder=folder / "job",
            tag=f"version-{uuid4().hex}",
            env=scrubbed(),
            level=level,
            timeout_s=patience_s,
            grace_s=1.0,
            writable=(work,),
            keep_bytes=100_000,
        )
        try:
            return _read(CagedJob(request).run())
        except PhasegateError as error:
            return ProgramVersion(why_not=error.message)


def _read(outcome: JobOutcome) -> ProgramVersion:
    if outcome.told_to_stop or outcome.timed_out:
        return ProgramVersion(why_not=f"it did not answer within {outcome.duration_s:.0f} s")
    if outcome.exit_code != 0:
        how = f"signal {outcome.signal}" if outcome.signal else f"exit status {outcome.exit_code}"
        return ProgramVersion(why_not=f"it ended with {how}")
    found = _VERSION.search(outcome.stdout.text)
    return ProgramVersion(found[1]) if found else ProgramVersion(why_not="it printed none")
