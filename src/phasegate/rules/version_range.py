"""Ranges of versions as `requires-python` writes them, as far as major and minor tell."""

from __future__ import annotations

import re

_PART = re.compile(r"\s*(~=|===?|!=|<=|>=|<|>|\^|~)?\s*v?(\d+)(?:\.(\d+|\*))?(?:\.(\d+|\*))?")


def allows(wanted: str, version: tuple[int, int]) -> bool:
    """Whether a version such as (3, 12) is in a range such as `>=3.9,<4`. What cannot be read forbids nothing."""
    return all(_allows(part, version) for part in wanted.split(",") if part.strip())


def _allows(part: str, version: tuple[int, int]) -> bool:
    found = _PART.match(part)
    if found is None:
        return True
    sign, major, minor, patch = found[1] or "==", int(found[2]), found[3], found[4]
    bound = (major, 0 if minor in (None, "*") else int(minor))
    if sign in ("^", "~", "~="):
        only_major = sign == "^" or (sign == "~=" and patch is None) or (sign == "~" and minor is None)
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
