"""Determine whether the times of a file reliably show that it was written to."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path


def are_file_times_reliable(folder: Path) -> bool:
    """Return True if a write through a memory mapping updates a file's times.

    On tmpfs it does not once the page has been read.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        os.truncate(file.fileno(), 1)
        with mmap.mmap(file.fileno(), 1) as mapped:
            _ = mapped[0]
            os.utime(file.fileno(), ns=(0, 0))
            mapped[0] = 1

        return os.fstat(file.fileno()).st_mtime_ns != 0
