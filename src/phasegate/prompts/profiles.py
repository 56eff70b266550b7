"""The shipped language profiles, loaded and typed."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from tomllib import loads

import msgspec

from phasegate.errors import ConfigError
from phasegate.rules.finding import closest
from phasegate.rules.profile import Profile

# The order in which a repository is asked what it is: a language's own build file comes before the more general ones.
NAMES = ("rust", "go", "typescript", "python")


@cache
def load_profile(name: str) -> Profile:
    """A shipped profile by name."""
    if name not in NAMES:
        raise ConfigError(f"there is no language profile {name!r}{closest(name, NAMES)}", f"known: {', '.join(NAMES)}")
    text = (files(__package__) / "profiles" / f"{name}.toml").read_text(encoding="utf-8")
    return msgspec.convert(loads(text), Profile)


def all_profiles() -> tuple[Profile, ...]:
    """Every shipped profile, in the order of detection."""
    return tuple(load_profile(name) for name in NAMES)
