"""The shipped language profiles, loaded and typed."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from tomllib import loads

import msgspec

from phasegate.core.plan.work_package import PROFILES
from phasegate.core.text.finding import suggest_closest
from phasegate.errors import ConfigError
from phasegate.typed import read_value


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a language's projects have in common."""

    name: str
    title: str
    layout: str
    pinned: str
    package: str
    constraints: tuple[str, ...]
    reference_commands: tuple[str, ...]
    style: tuple[str, ...]
    lock_files: tuple[str, ...]
    litter: tuple[str, ...]
    # Where a coverage run leaves them; the form is told from the text
    coverage_reports: tuple[str, ...]
    bin_folders: tuple[str, ...] = ()


@cache
def load_profile(name: str) -> Profile:
    """A shipped profile by name."""
    if name not in PROFILES:
        raise ConfigError(
            f"there is no language profile {name!r}{suggest_closest(name, PROFILES)}",
            f"known: {', '.join(PROFILES)}",
        )

    text = (files(__package__) / "profiles" / f"{name}.toml").read_text(encoding="utf-8")
    return read_value(loads(text), Profile)
