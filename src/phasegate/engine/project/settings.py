"""The repository around a folder, as far as commands need it that do not work on a feature: its root, its settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from phasegate.config import Effective, find_place, load
from phasegate.config.layers import SettingPlace
from phasegate.config.settings import Config
from phasegate.core.prompt.template import prefix_of
from phasegate.storage.location import find_root, main_tree


def root_around(folder: Path) -> Path:
    """The main working tree; a folder outside of any repository is refused."""
    return find_root(folder)


def place_around(folder: Path) -> SettingPlace:
    """Where the settings are kept, whether or not they can be read."""
    return find_place(main_tree(folder))


def settings_around(folder: Path, flags: Mapping[str, str] | None = None) -> Effective:
    """The configuration in effect; outside of a repository, that of the folder itself."""
    return load(main_tree(folder), os.environ, flags)


def template_prefix(config: Config, agent: str) -> tuple[str, tuple[str, ...]]:
    """The prefix of an agent's templates, named by its configured name, its harness or the prefix itself.

    And the prefixes that the configuration names: BASE stands in for them.
    """
    settings = config.agents.get(agent)
    if settings is None:
        return prefix_of(agent), ()
    prefix = settings.template or prefix_of(settings.harness)
    return prefix, (prefix,)
