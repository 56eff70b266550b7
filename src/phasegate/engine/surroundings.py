"""The repository around a folder, as far as commands need it that do not work on a feature: its root, its settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from phasegate.config import Effective, find_place, load
from phasegate.config.layers import Place
from phasegate.record.location import find_root, main_tree


def root_around(folder: Path) -> Path:
    """The main working tree; a folder outside of any repository is refused."""
    return find_root(folder)


def place_around(folder: Path) -> Place:
    """Where the settings are kept, whether or not they can be read."""
    return find_place(main_tree(folder))


def settings_around(folder: Path, flags: Mapping[str, str] | None = None) -> Effective:
    """The configuration in effect; outside of a repository, that of the folder itself."""
    return load(main_tree(folder), os.environ, flags)
