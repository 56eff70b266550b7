"""Copies of shipped templates in the project, for people to change."""

from __future__ import annotations

import os
from pathlib import Path

from phasegate.errors import ConfigError
from phasegate.prompts.templates import Template


def eject_template(template: Template, folder: Path, force: bool) -> bool:
    """Write the template into the folder. Whether it was written: what exists stays, unless it is to be replaced."""
    path = folder / template.name.file_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if force and os.path.lexists(path):
            path.unlink()  # a link goes, not what it points at
        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(template.text)
    except FileExistsError:
        return False
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", "make the folder writable") from error
    return True
