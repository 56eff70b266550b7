"""Find problems that make `run` fail at once: a lost store, or an invalid configuration."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from phasegate.engine.project.settings import load_settings
from phasegate.errors import ConfigError
from phasegate.storage.journal_store import refuse_missing_store
from phasegate.storage.location import locate_repository


def refuse_lost_store(folder: str) -> None:
    """Raise StateConflict if the repository of a folder without a store had one with entries."""
    location = locate_repository(Path(folder), os.environ)
    if location.fleet_copy is None:
        refuse_missing_store(location)


def find_config_error(folder: str) -> ConfigError | None:
    """Return why the configuration of a folder's repository cannot be loaded, or None if it can."""
    # Untrusted settings are reported by the commands that would use them
    logging.disable(logging.WARNING)
    try:
        load_settings(locate_repository(Path(folder), os.environ).root)
    except ConfigError as error:
        return error
    finally:
        logging.disable(logging.NOTSET)

    return None
