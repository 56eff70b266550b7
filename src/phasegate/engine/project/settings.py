"""Find the root and the settings of a repository, for commands that do not work on a feature."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.config.layers import (
    ConfigLocation,
    Key,
    locate_config,
    parse_file_values,
    read_config_file,
)
from phasegate.config.load import EffectiveConfig, load_config
from phasegate.config.settings import Config, PathSettings
from phasegate.config.trust import TRUST_VARIABLE, accept_parts, find_trust, forget_trust
from phasegate.core.prompt.template import resolve_template_prefix
from phasegate.core.trust import Trust, describe_parts, hash_parts
from phasegate.errors import ConfigError
from phasegate.sandbox.environment import JOB_TAG_VARIABLE
from phasegate.storage.location import find_main_worktree, find_root

COMMAND_KEYS = ("setup", "build", "test", "coverage", "lint", "typecheck", "scan")
SEED_PROJECT_FILE = "agentd/project.md"


def find_repository_root(folder: Path) -> Path:
    """Return the root of the main working tree; refuse a folder outside of a repository."""
    return find_root(folder)


def find_settings_place(folder: Path) -> ConfigLocation:
    """Return the location of the settings, even if they cannot be read."""
    return locate_config(find_main_worktree(folder))


def load_settings(folder: Path, flags: Mapping[str, str] | None = None) -> EffectiveConfig:
    """Load the effective configuration; outside of a repository, that of the folder."""
    return load_config(find_main_worktree(folder), os.environ, flags)


class RepositoryTrust(NamedTuple):
    """A repository's requests, and the subset that the user has accepted."""

    root: Path
    trust: Trust
    # Check commands: they need no trust in the sandbox, but are shown
    commands: tuple[tuple[Key, object], ...] = ()

    @property
    def digest(self) -> str:
        """Return the value of PHASEGATE_TRUST that accepts exactly this content."""
        return hash_parts(self.trust.parts)

    def describe(self) -> dict[str, list[str]]:
        """Return the requests of the repository by kind."""
        return describe_parts(self.trust.parts, self.commands)

    def accept(self) -> None:
        """Record that the user accepts all of it."""
        if JOB_TAG_VARIABLE in os.environ:
            raise ConfigError("a job cannot accept settings", "run it in your own terminal")
        accept_parts(self.root, self.trust.parts, os.environ)

    def forget(self) -> None:
        """Withdraw the user's acceptance."""
        forget_trust(self.root, os.environ)


def open_trust(folder: Path) -> RepositoryTrust:
    """Return the requests of a folder's repository; PHASEGATE_TRUST is ignored."""
    location = locate_config(find_main_worktree(folder))
    text = read_config_file(location.file) or ""
    settings = [(one.key, one.value) for one in parse_file_values(text, location.file.name)]
    environ = {name: value for name, value in os.environ.items() if name != TRUST_VARIABLE}
    commands = tuple(
        (key, value)
        for key, value in settings
        if key[0] == "checks" and key[-1] in COMMAND_KEYS and value
    )
    return RepositoryTrust(location.root, find_trust(location.root, settings, environ), commands)


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


def choose_prompt_files(config: Config, trust: Trust, root: Path) -> tuple[str, str]:
    """Return the project's description and its folder of templates, each empty if not trusted.

    Without a configured description, an existing one at the seed's path is used.
    """
    description = config.paths.project_file
    if description == PathSettings().project_file and os.path.lexists(root / SEED_PROJECT_FILE):
        description = SEED_PROJECT_FILE

    paths = (description, config.paths.templates)
    project_file, templates = (path if trust.accepts_path(path) else "" for path in paths)
    return project_file, templates
