"""Find the root and the settings of a repository, for commands that do not work on a feature."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from phasegate.config import EffectiveConfig, load_config, locate_config
from phasegate.config.layers import ConfigLocation
from phasegate.config.settings import Config
from phasegate.core.prompt.template import resolve_template_prefix
from phasegate.storage.location import find_main_worktree, find_root


def find_repository_root(folder: Path) -> Path:
    """Return the root of the main working tree; refuse a folder outside of a repository."""
    return find_root(folder)


def find_settings_place(folder: Path) -> ConfigLocation:
    """Return the location of the settings, even if they cannot be read."""
    return locate_config(find_main_worktree(folder))


def load_settings(folder: Path, flags: Mapping[str, str] | None = None) -> EffectiveConfig:
    """Load the effective configuration; outside of a repository, that of the folder."""
    return load_config(find_main_worktree(folder), os.environ, flags)


def find_template_prefix(config: Config, agent: str) -> tuple[str, tuple[str, ...]]:
    """Return the template prefix of an agent, and the prefixes that the configuration names.

    `agent` is a configured name, a harness or a prefix. Templates named BASE replace missing ones
    of a configured prefix.
    """
    settings = config.agents.get(agent)
    if settings is None:
        return resolve_template_prefix(agent), ()

    prefix = settings.template or resolve_template_prefix(settings.harness)
    return prefix, (prefix,)
