"""Reading a large file in blocks, and seeing whether somebody writes to it meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import ConfigError, UnreadableFile
from phasegate.files import open_regular_file

# Stays in the processor's nearest cache while it is looked through some thirty times
BLOCK_BYTES = 32 * 1024
_CLOCK_RESOLUTION_NS = 100_000_000


class OpenFile(NamedTuple):
    descriptor: int
    size: int
    changed_ns: int
    opened_ns: int

    def read_blocks(self) -> Iterator[bytes]:
        """The content from the start, in blocks."""
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        want = min(BLOCK_BYTES, self.size + 1)

        while block := os.read(self.descriptor, want):
            yield block
            if len(block) < want:
                # A regular file has ended
                return

    def has_changed(self) -> bool:
        """Whether somebody wrote the file since it was opened, by the change time that the kernel
        keeps.

        That clock is coarse: a file that was written just before it was opened counts as changed.
        """
        status = os.fstat(self.descriptor)
        just_written = status.st_ctime_ns > self.opened_ns - _CLOCK_RESOLUTION_NS
        return just_written or (status.st_size, status.st_ctime_ns) != (self.size, self.changed_ns)


@contextmanager
def regular_file_reader(path: Path, *, follow_links: bool = True) -> Iterator[OpenFile]:
    """An open regular file. A pipe, a device or a folder is refused without a wait."""
    try:
        descriptor = open_regular_file(path, follow_link=follow_links)
    except (OSError, ValueError) as error:
        raise _unreadable_error(path, _describe_error(error)) from error

    try:
        status = os.fstat(descriptor)
        yield OpenFile(descriptor, status.st_size, status.st_ctime_ns, time.time_ns())
    finally:
        os.close(descriptor)


def read_up_to(path: Path, limit_bytes: int, *, follow_links: bool = True) -> tuple[bytes, int]:
    """The first bytes of a regular file, and its whole size."""
    with regular_file_reader(path, follow_links=follow_links) as file:
        return _read_prefix(file, limit_bytes), file.size


def reject_path_outside(root: Path, path: Path) -> None:
    """Refuse a name in a repository that leads out of it by a link, or into its git directory.

    A commit of anybody's can hold such a link; what it leads to would go to a provider with the
    prompt.
    """
    named = Path(os.path.normpath(path.absolute()))
    real = path.resolve()
    home = root.resolve()
    if not (named.is_relative_to(root) or named.is_relative_to(home)):
        # The person named a file elsewhere
        return

    if not real.is_relative_to(home) or real.relative_to(home).parts[:1] == (".git",):
        raise ConfigError(
            f"{path} leads out of the repository", "put the file itself there: nothing was read"
        )


def _read_prefix(file: OpenFile, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    left = limit_bytes

    for block in file.read_blocks():
        parts.append(block[:left])
        left -= len(parts[-1])
        if left == 0:
            break

    return b"".join(parts)


def _unreadable_error(path: Path, reason: str) -> UnreadableFile:
    return UnreadableFile(
        f"cannot read {path}: {reason}", "name a regular file that can be read", reason
    )


def _describe_error(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)
