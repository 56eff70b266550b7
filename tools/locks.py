"""Reads the locks in requirements/: what pip-compile wrote, and nothing that it would not have written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

EXTRAS = (
    "board",
    "otel",
    "s3",
    "fleet",
)  # what a user gets who asks for it: pip install 'phasegate[board]'
LOCKS = ("runtime", "build", "dev", *EXTRAS)
_PIN = re.compile(r"(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[0-9][^\s;]*)(?: ; [^\\]+)? \\")
_HASH = re.compile(r" {4}--hash=sha256:(?P<digest>[0-9a-f]{64})(?: \\)?")
_VIA = re.compile(r" {4}# +(?:via )?(?P<name>[a-z0-9][a-z0-9._-]*)")


class Pin(NamedTuple):
    """One locked package: the digests of all its files, and the packages that ask for it."""

    name: str
    version: str
    sha256: tuple[str, ...]
    asked_by: frozenset[str]


class UnreadableLock(Exception):
    """A line that pip-compile does not write; the message has file and number."""


def read_lock(path: Path) -> list[Pin]:
    """The packages of a lock, in its order; a line that is not understood is refused, not passed over."""
    pins: list[Pin] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if found := _PIN.fullmatch(line):
            pins.append(Pin(found["name"], found["version"], (), frozenset()))
        elif pins and (found := _HASH.fullmatch(line)):
            pins[-1] = pins[-1]._replace(sha256=(*pins[-1].sha256, found["digest"]))
        elif pins and (found := _VIA.fullmatch(line)):
            pins[-1] = pins[-1]._replace(asked_by=pins[-1].asked_by | ({found["name"]} - {"via"}))
        elif line.strip() and not line.lstrip().startswith("#"):
            raise UnreadableLock(f"{path}:{number}: {line!r}")
    for pin in pins:
        if not pin.sha256:
            raise UnreadableLock(f"{path}: {pin.name} has no hash")
    return pins
