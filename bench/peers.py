"""The nearest peers: at which versions, and where `make bench-peers` puts them, outside every checkout."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

COMPLETE = "complete"  # a file that is written last: half an installation is never used


class Package(NamedTuple):
    """A peer as its registry knows it, and the program that it brings."""

    name: str
    version: str
    installer: Literal["npm", "pip"]
    program: str

    @property
    def pin(self) -> str:
        return f"{self.name}{'@' if self.installer == 'npm' else '=='}{self.version}"


PACKAGES = (
    Package("backlog.md", "1.52.0", "npm", "backlog"),
    Package("@fission-ai/openspec", "1.13.2", "npm", "openspec"),
    Package("task-master-ai", "0.43.1", "npm", "task-master"),
    Package("spec-kitty-cli", "3.2.7", "pip", "spec-kitty"),
    Package("specify-cli", "1.2.3", "pip", "specify"),
)


def cache_folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or f"{environment.get('HOME') or '/var/tmp'}/.cache"
    return Path(base) / "phasegate-bench-peers"


def folder_of(package: Package, cache: Path) -> Path:
    """Another version, another machine, another Python: another folder."""
    identity = f"{package.pin} {platform.system()} {platform.machine()} {sys.version_info[:2]}"
    return cache / f"{package.program}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def program_in(package: Package, folder: Path) -> Path:
    return (
        folder
        / ("node_modules/.bin" if package.installer == "npm" else "venv/bin")
        / package.program
    )


def installed(program: str, cache: Path) -> Path | None:
    """The program of a peer whose installation is complete."""
    package = next(package for package in PACKAGES if package.program == program)
    folder = folder_of(package, cache)
    return program_in(package, folder) if (folder / COMPLETE).is_file() else None
