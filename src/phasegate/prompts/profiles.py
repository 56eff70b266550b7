"""Load the shipped language profiles."""

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
    """Properties that the projects of a language have in common."""

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
    # Paths of coverage reports; the format is detected from the content
    coverage_reports: tuple[str, ...]
    bin_folders: tuple[str, ...] = ()


@cache
def load_profile(name: str) -> Profile:
    """Load a shipped profile by name."""
    if name not in PROFILES:
        raise ConfigError(
            f"there is no language profile {name!r}{suggest_closest(name, PROFILES)}",
            f"available: {', '.join(PROFILES)}",
        )

    text = (files(__package__) / "profiles" / f"{name}.toml").read_text(encoding="utf-8")
    return read_value(loads(text), Profile)
