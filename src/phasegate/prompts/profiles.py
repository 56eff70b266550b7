"""The shipped language profiles, loaded and typed."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from tomllib import loads

from phasegate.errors import ConfigError
from phasegate.rules.finding import closest
from phasegate.rules.profile import Profile
from phasegate.rules.work_package import PROFILES
from phasegate.typed import read_value


@cache
def load_profile(name: str) -> Profile:
    """A shipped profile by name."""
    if name not in PROFILES:
        raise ConfigError(
            f"there is no language profile {name!r}{closest(name, PROFILES)}", f"known: {', '.join(PROFILES)}"
        )
    text = (files(__package__) / "profiles" / f"{name}.toml").read_text(encoding="utf-8")
    return read_value(loads(text), Profile)
