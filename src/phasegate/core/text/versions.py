"""Compare versions of agent programs, and check a Python version against a required range."""

from __future__ import annotations

import re
from enum import StrEnum

_NUMBERS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})*")


class VersionStatus(StrEnum):
    """A version relative to the oldest that works and the newest that was tested."""

    TESTED = "tested"
    TOO_OLD = "too old"
    OLDER = "older than tested"
    NEWER = "newer than tested"
    # The version, or the one to compare it with, is unknown
    UNKNOWN = "unknown"


def compare_version(version: str, oldest: str, tested: str) -> VersionStatus:
    """Compare by the numbers; a suffix such as `-beta.4` is ignored."""
    numbers = _parse_numbers(version)
    newest = _parse_numbers(tested)
    if not numbers or not newest:
        return VersionStatus.UNKNOWN
    if numbers == newest:
        return VersionStatus.TESTED
    if numbers > newest:
        return VersionStatus.NEWER
    if numbers < _parse_numbers(oldest):
        return VersionStatus.TOO_OLD

    return VersionStatus.OLDER


def _parse_numbers(version: str) -> tuple[int, ...]:
    match = _NUMBERS.match(version.removeprefix("v"))
    if match:
        return tuple(int(part) for part in match[0].split("."))
    return ()


_VERSION_BOUND = re.compile(
    r"\s*(~=|===?|!=|<=|>=|<|>|\^|~)?\s*v?(\d+)(?:\.(\d+|\*))?(?:\.(\d+|\*))?"
)


def is_version_allowed(version_range: str, version: tuple[int, int]) -> bool:
    """Return True if a version such as (3, 12) is in a range such as `>=3.9,<4`.

    A part that cannot be parsed is ignored.
    """
    return all(_satisfies_bound(part, version) for part in version_range.split(",") if part.strip())


def _satisfies_bound(part: str, version: tuple[int, int]) -> bool:
    """Return whether a version satisfies one bound such as `>=3.8` or `^18`."""
    match = _VERSION_BOUND.match(part)
    if match is None:
        return True

    sign = match[1] or "=="
    major = int(match[2])
    minor = match[3]
    patch = match[4]
    bound = (major, 0 if minor in (None, "*") else int(minor))

    if sign in ("^", "~", "~="):
        only_major = (
            sign == "^" or (sign == "~=" and patch is None) or (sign == "~" and minor is None)
        )
        return version >= bound and version[0] == major and (only_major or version == bound)

    if minor in (None, "*") and sign in ("==", "===", "!="):
        return (version[0] == major) is (sign != "!=")

    return {
        "==": version == bound,
        "===": version == bound,
        "!=": version != bound or patch not in (None, "*"),
        "<": version < bound or (version == bound and patch not in (None, "*", "0")),
        "<=": version <= bound,
        ">": version > bound or (version == bound and patch is not None),
        ">=": version >= bound,
    }[sign]
