"""The repository around a folder, as far as commands need it that do not work on a feature.

Its root, its settings.
"""

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
    """The main working tree; a folder outside of any repository is refused."""
    return find_root(folder)


def find_settings_place(folder: Path) -> ConfigLocation:
    """Where the settings are kept, whether or not they can be read."""
    return locate_config(find_main_worktree(folder))


def load_settings(folder: Path, flags: Mapping[str, str] | None = None) -> EffectiveConfig:
    """The configuration in effect; outside of a repository, that of the folder itself."""
    return load_config(find_main_worktree(folder), os.environ, flags)


def find_template_prefix(config: Config, agent: str) -> tuple[str, tuple[str, ...]]:
    """The prefix of an agent's templates, named by its configured name, its harness or the prefix
    itself.

    And the prefixes that the configuration names: BASE stands in for them.
    """
    settings = config.agents.get(agent)
    if settings is None:
        return resolve_template_prefix(agent), ()

    prefix = settings.template or resolve_template_prefix(settings.harness)
    return prefix, (prefix,)
