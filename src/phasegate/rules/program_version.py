"""The version of an agent program, compared with those that we know of."""

from __future__ import annotations

import re
from enum import StrEnum

_NUMBERS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})*")


class VersionStanding(StrEnum):
    """How a version stands to the oldest one that works and the newest one that was tested."""

    TESTED = "tested"
    TOO_OLD = "too old"
    OLDER = "older than tested"
    NEWER = "newer than tested"
    UNKNOWN = "unknown"  # it, or what to compare it with


def standing_of_version(version: str, oldest: str, tested: str) -> VersionStanding:
    """Compare by the numbers: what comes after them (`-beta.4`) is the same version."""
    found, newest = _numbers(version), _numbers(tested)
    if not found or not newest:
        return VersionStanding.UNKNOWN
    if found == newest:
        return VersionStanding.TESTED
    if found > newest:
        return VersionStanding.NEWER
    return VersionStanding.TOO_OLD if found < _numbers(oldest) else VersionStanding.OLDER


def _numbers(version: str) -> tuple[int, ...]:
    found = _NUMBERS.match(version.removeprefix("v"))
    return tuple(int(part) for part in found[0].split(".")) if found else ()
