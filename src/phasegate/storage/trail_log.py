"""The log of open trails.

One file for all trails of a process, in the folder of the heads, where no agent can write.

Entries are written only here while their trail is open. Entries of many jobs share one
fsync. A closed trail is exported to `.phasegate/audit`, its end is recorded in the journal,
and it is removed from the log. Until then the log is authoritative, whatever the file contains.
Lines of the log, with fields separated by tabs:

    phasegate-open-trails 1
    = feature job        a trail is open; all its entries follow, from the first one on
    + job line           an entry
    . job                the trail's end is in the journal

The file is preallocated with zeros, so that an entry does not change the size of the file
on disk and its fsync takes half as long. Data after the first zero was never acknowledged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from phasegate.core.audit.trail import extract_line_hash, trail_origin_hash
from phasegate.errors import StateConflict
from phasegate.files.durable_write import sync_folders, write_all, write_durably
from phasegate.storage.lock import is_held_elsewhere

_HEADER = b"phasegate-open-trails 1\n"
# Recovery briefly takes the lock to test whether another process holds it
_LOCK_PROBE_TIMEOUT_S = 0.05
_PREALLOCATED_BYTES = 1 << 16
_OPEN_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class OpenTrail:
    """A trail that may still grow, with all of its lines."""

    def __init__(self, feature: str, job: str, lines: Iterable[bytes] = ()) -> None:
        self.feature = feature
        self.job = job
        self.lines = list(lines)

    @property
    def last_hash(self) -> str:
        """The hash of the last line, to which the next line is linked."""
        if self.lines:
            return extract_line_hash(self.lines[-1])
        return trail_origin_hash(self.feature, self.job)

    @property
    def content(self) -> bytes:
        return b"".join(self.lines)


class TrailLog:
    """A log that this process has open and locked until it ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.size = self._allocated_size = os.fstat(descriptor).st_size

    @classmethod
    def create(cls, folder: Path, writer_id: str) -> Self:
        """Create a log in the folder of the chain heads."""
        path = folder / log_file_name(writer_id)
        if path.exists():
            raise StateConflict(
                f"the log {path} already exists", "use a separate log for each process"
            )

        return cls(path, _create_locked_file(path, _HEADER))

    @classmethod
    def adopt(cls, path: Path) -> tuple[Self, dict[str, OpenTrail]] | None:
        """Continue the log and trails of a dead process.

        Return None if the process is alive, or if it has just removed the log.
        """
        try:
            descriptor = os.open(path, _OPEN_FLAGS)
        except FileNotFoundError:
            return None

        if is_held_elsewhere(descriptor, _LOCK_PROBE_TIMEOUT_S) or not _is_same_file(
            path, descriptor
        ):
            os.close(descriptor)
            return None

        log = cls(path, descriptor)
        return log, log._truncate_and_parse()

    def _truncate_and_parse(self) -> dict[str, OpenTrail]:
        data = _acknowledged_prefix(os.pread(self._descriptor, self.size, 0))
        trails = _parse_log(self.path, data)
        os.ftruncate(self._descriptor, len(data))
        self.size = self._allocated_size = len(data)
        return trails

    def append(self, data: bytes) -> None:
        """Append lines, all or none. They are durable on return, in order and without gaps."""
        end = self.size + len(data)

        try:
            self._write(data, end)
        except BaseException:
            # Later entries must not be written after a partial one
            self._allocated_size = self.size
            os.ftruncate(self._descriptor, self.size)
            raise

        self.size = end

    def _write(self, data: bytes, end: int) -> None:
        if end > self._allocated_size:
            self._allocated_size = end + _PREALLOCATED_BYTES
            data += bytes(_PREALLOCATED_BYTES)
        write_durably(self._descriptor, data, self.size)

    def rewrite(self, trails: Iterable[OpenTrail]) -> None:
        """Replace the log with a new file that contains only these trails."""
        descriptor = _create_locked_file(
            self.path, _HEADER + b"".join(map(encode_opened_trail, trails))
        )
        os.close(self._descriptor)
        self._descriptor = descriptor
        self.size = self._allocated_size = os.fstat(descriptor).st_size

    def close(self, *, remove: bool) -> None:
        if remove:
            # The user may have removed the folder during the run
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _create_locked_file(path: Path, data: bytes) -> int:
    """Create a file that is complete and locked before it appears under its name."""
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, _OPEN_FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    is_held_elsewhere(descriptor)
    write_all(descriptor, data)
    os.fsync(descriptor)
    temporary.rename(path)
    sync_folders(path.parent, path.parent)

    return descriptor


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def encode_opened_trail(trail: OpenTrail) -> bytes:
    return f"=\t{trail.feature}\t{trail.job}\n".encode() + b"".join(
        encode_log_entry(trail.job, line) for line in trail.lines
    )


def encode_log_entry(job: str, line: bytes) -> bytes:
    return b"+\t%b\t%b" % (job.encode(), line)


def encode_closed_trail(job: str) -> bytes:
    return f".\t{job}\n".encode()


def log_file_name(writer_id: str) -> str:
    return f"open-trails-{writer_id}.log"


def list_log_files(log_folder: Path) -> list[Path]:
    """Return all logs of open trails in a folder."""
    return sorted(log_folder.glob("open-trails-*.log"))


def read_open_trails(path: Path) -> list[OpenTrail]:
    """Return the open trails in a log; none if its process has just removed it."""
    try:
        return list(_parse_log(path, _acknowledged_prefix(path.read_bytes())).values())
    except FileNotFoundError:
        return []


def _acknowledged_prefix(data: bytes) -> bytes:
    """Return the complete lines of a log up to the first zero byte, which no line contains."""
    lines = data.partition(b"\0")[0]
    return lines[: lines.rfind(b"\n") + 1]


def _parse_log(path: Path, data: bytes) -> dict[str, OpenTrail]:
    """Return the open trails of a log; raise StateConflict if it was changed."""
    if not data.startswith(_HEADER):
        raise StateConflict(f"{path} is not a log of trails", "run: phasegate audit verify")

    trails: dict[str, OpenTrail] = {}
    for number, line in enumerate(data.split(b"\n")[1:-1], 2):
        try:
            _apply_line(trails, line)
        except (ValueError, KeyError) as error:
            raise StateConflict(
                f"line {number} of {path} was not written by Phasegate",
                "run: phasegate audit verify",
            ) from error

    return trails


def _apply_line(trails: dict[str, OpenTrail], line: bytes) -> None:
    """Apply one line of the log; the module describes its format."""
    mark, _, rest = line.partition(b"\t")
    first, _, second = rest.partition(b"\t")

    match mark:
        case b"=":
            feature, job = first.decode(), second.decode()
            trails[job] = OpenTrail(feature, job)
        case b"+":
            trails[first.decode()].lines.append(second + b"\n")
        case b".":
            del trails[first.decode()]
        case _:
            raise ValueError(mark)
