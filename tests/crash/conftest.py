"""Where crashes are played, and in what slices: all of them take longer than a person waits."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY, ROOM = Path("/dev/shm"), 2**30


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where there is room: it is the syncs that are counted, nobody has to wait for them."""
    quick = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    with tempfile.TemporaryDirectory(
        dir=MEMORY if quick else None, ignore_cleanup_errors=True
    ) as made:
        yield Path(made)


@pytest.fixture
def kept(folder: Path) -> Path:
    """A folder that says what was shown: `CUTS=FOLDER` keeps it for the next slice."""
    return Path(os.environ.get("CUTS", folder))


@pytest.fixture
def until() -> float:
    """When this slice ends: `SECONDS=500`, from now on."""
    return time.monotonic() + float(os.environ.get("SECONDS", "inf"))
