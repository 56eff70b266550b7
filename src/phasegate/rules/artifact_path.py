"""Names under which artifacts are kept: what may stand in a feature's slug, a job's id and a path below the feature."""

from __future__ import annotations

import re

from phasegate.errors import ConfigError
from phasegate.rules.visible_text import visible

LONGEST_PATH_BYTES = 1024
LONGEST_NAME_BYTES = 255

_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE | re.DOTALL)


def slug_problem(slug: str) -> str:
    """Why this cannot name a feature or a job; empty if it can (J03)."""
    if not slug:
        return "is empty"
    if _SLUG.fullmatch(slug) is None:
        return "must be 1 to 100 letters, digits, dots, hyphens or underscores, beginning with a letter or digit"
    return _part_problem(slug)


def require_slug(slug: str, what: str = "feature slug") -> str:
    """The slug itself; a ConfigError that says what is wrong with it otherwise."""
    problem = slug_problem(slug)
    if problem:
        raise ConfigError(f"{what} '{visible(slug[:120])}' {problem}", "for instance 001-user-login")
    return slug


def path_problem(path: str) -> str:
    """Why this is not plainly the path of one file below a folder; empty if it is (J01)."""
    if not path:
        return "is empty"
    if not path.isprintable():
        return "holds a control, invisible or undecodable character"
    if "\\" in path or ":" in path:
        return "holds a backslash or a colon: separate folders with /"
    if path.startswith(("/", "~")):
        return "is absolute: name it relative to the feature's folder"
    if len(path.encode()) > LONGEST_PATH_BYTES:
        return f"is longer than {LONGEST_PATH_BYTES} bytes"
    return next((problem for part in path.split("/") if (problem := _part_problem(part))), "")


def _part_problem(part: str) -> str:
    if part in ("", ".", ".."):
        return "holds an empty, `.` or `..` part"
    if len(part.encode()) > LONGEST_NAME_BYTES:
        return f"has a part of more than {LONGEST_NAME_BYTES} bytes"
    if part.casefold().rstrip(". ") in (".git", "git~1"):
        return "names a git directory"
    if part != part.strip() or part.endswith("."):
        return "has a part that begins or ends with a blank, or ends with a dot"
    if _DEVICE.fullmatch(part):
        return "names a device on some systems"
    return ""
