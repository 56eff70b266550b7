"""Validate the names under which artifacts are stored.

These are a feature's slug, a job's id, and a path below the feature's folder.
"""

from __future__ import annotations

import re

from phasegate.core.paths import repo_path
from phasegate.core.text.visible import escape_unprintable
from phasegate.errors import ConfigError

_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE | re.DOTALL)


def find_slug_problem(slug: str) -> str:
    """Return why a text cannot name a feature or a job; empty if it can."""
    if not slug:
        return "is empty"
    if _SLUG.fullmatch(slug) is None:
        return (
            "must be 1 to 100 letters, digits, dots, hyphens or underscores,"
            " starting with a letter or digit"
        )
    return _find_portability_problem(slug)


def require_slug(slug: str, what: str = "feature slug") -> str:
    """Return the slug; raise a ConfigError that gives the problem if it is invalid."""
    problem = find_slug_problem(slug)
    if problem:
        raise ConfigError(
            f"{what} '{escape_unprintable(slug[:120])}' {problem}",
            "use a name such as 001-user-login",
        )

    return slug


def find_artifact_path_problem(path: str) -> str:
    """Return why a path is not safe for a file below a folder on every system; empty if it is."""
    problem = repo_path.find_path_problem(path)
    if problem is not None:
        return problem
    if ":" in path:
        return "contains a colon"
    if path.rpartition("/")[2].casefold() == "head":
        return "would make git treat its folder as a repository, and apply the settings in it"

    return next(
        (problem for part in path.split("/") if (problem := _find_portability_problem(part))), ""
    )


def _find_portability_problem(part: str) -> str:
    """Return the reason why a name is invalid on another operating system."""
    if part.endswith("."):
        return "has a part that ends with a dot"
    if _DEVICE.fullmatch(part):
        return "names a device on some systems"
    return ""
