"""The log in which trails are made durable: one file for all trails of a process, outside `.phasegate`.

Many entries of many jobs share one fsync here; then each goes to its job's own file, which is made durable when the job
ends. So this log holds what the trails of unfinished jobs must be, where no agent can write: a crash is mended from it,
and a changed trail is found by it. Lines of the file, fields apart by tabs:

    phasegate-trails 1
    = feature job lines bytes hash      a trail is open; it begins, or stands, here
    * job line                          an entry, the first of a batch
    + job line                          an entry of the same batch
    . job                               the trail's end is in the journal

The file is filled with zeros ahead of the lines: then an entry costs no change of the file's size on the disk, and its
fsync half as much. What stands behind the first zero was never acknowledged.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, Self

from phasegate.errors import StateConflict
from phasegate.record.durable import sync_folders, write_all, write_durably
from phasegate.record.lock import is_held
from phasegate.rules.chain import Break
from phasegate.rules.trail import origin, read_lines

HEADER = b"phasegate-trails 1\n"
_GLANCE_S = 0.05  # `audit verify` holds the lock for a moment to see whether anybody else does
_AHEAD_BYTES = 1 << 16
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class Base(NamedTuple):
    """Where a trail stood when the log began to hold it."""

    feature: str
    job: str
    lines: int
    bytes: int
    hash: str


class Spooled(NamedTuple):
    """What the log says about one trail: where it stood, what was added, and how much of that may be unwritten yet."""

    base: Base
    added: bytes
    last_batch_bytes: int


class Comparison(NamedTuple):
    """A trail against the log: what is whole of it, what is missing, and the first line that is wrong."""

    whole_bytes: int
    torn_bytes: int
    missing: bytes
    broken: Break | None


class Spool:
    """One open log, locked for as long as its process lives."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.size = self._filled = os.fstat(descriptor).st_size

    @classmethod
    def create(cls, folder: Path, writer_id: str) -> Self:
        """A new log in the folder of the heads."""
        path = folder / f"trails-{writer_id}.log"
        if path.exists():
            raise StateConflict(f"the log {path} exists already", "every process writes a log of its own")
        return cls(path, _put(path))

    @classmethod
    def adopt(cls, path: Path) -> Self | None:
        """The log of a dead process, to go on from; None if its process lives, or has just removed it."""
        try:
            descriptor = os.open(path, _FLAGS)
        except FileNotFoundError:
            return None
        if is_held(descriptor, _GLANCE_S) or not _is_at(path, descriptor):
            os.close(descriptor)
            return None
        return cls(path, descriptor)

    def add(self, data: bytes) -> None:
        """Append lines, all of them or none. They are durable then, one after the other: there is never a hole."""
        end = self.size + len(data)
        try:
            self._write(data, end)
        except BaseException:  # nothing that follows may be written into the middle of what is there now
            self._filled = self.size
            os.ftruncate(self._descriptor, self.size)
            raise
        self.size = end

    def _write(self, data: bytes, end: int) -> None:
        if end > self._filled:
            self._filled = end + _AHEAD_BYTES
            data += bytes(_AHEAD_BYTES)
        write_durably(self._descriptor, data, self.size)

    def read(self) -> dict[str, Spooled]:
        """The trails that were not finished, by job."""
        return parse(self.path, os.pread(self._descriptor, self.size, 0))

    def cut_torn_end(self) -> None:
        """Take away what is no whole line, or stands behind a zero: it was never acknowledged."""
        self.size = self._filled = len(_acknowledged(os.pread(self._descriptor, self.size, 0)))
        os.ftruncate(self._descriptor, self.size)

    def restart(self, bases: list[Base]) -> None:
        """Go on in a new file that holds only where the open trails stand. They must be durable themselves."""
        descriptor = _put(self.path, b"".join(map(opened, bases)))
        os.close(self._descriptor)
        self._descriptor = descriptor
        self.size = self._filled = os.fstat(descriptor).st_size

    def close(self, *, remove: bool) -> None:
        if remove:
            self.path.unlink()
        os.close(self._descriptor)


def _put(path: Path, data: bytes = b"") -> int:
    """A new file, whole and locked before anybody can find it under its name."""
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    is_held(descriptor)
    write_all(descriptor, HEADER + data)
    os.fsync(descriptor)
    temporary.rename(path)
    sync_folders(path.parent, path.parent)
    return descriptor


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def opened(base: Base) -> bytes:
    return f"=\t{base.feature}\t{base.job}\t{base.lines}\t{base.bytes}\t{base.hash}\n".encode()


def batch(entries: list[tuple[str, bytes]]) -> bytes:
    """Entries that become durable together; each line keeps its own end."""
    marks = [b"*", *[b"+"] * (len(entries) - 1)]
    return b"".join(
        b"%b\t%b\t%b" % (mark, job.encode(), line) for mark, (job, line) in zip(marks, entries, strict=True)
    )


def finished(job: str) -> bytes:
    return f".\t{job}\n".encode()


class _Unfinished:
    """A trail while the log is read."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self.lines: list[bytes] = []
        self.batch, self.batch_bytes = 0, 0

    def add(self, batch_number: int, line: bytes) -> None:
        if self.batch != batch_number:
            self.batch, self.batch_bytes = batch_number, 0
        self.batch_bytes += len(line)
        self.lines.append(line)


def _acknowledged(data: bytes) -> bytes:
    """The whole lines of a log up to the first zero. No line of ours has one."""
    lines = data.partition(b"\0")[0]
    return lines[: lines.rfind(b"\n") + 1]


def parse(path: Path, data: bytes) -> dict[str, Spooled]:
    """The unfinished trails in a log. What was never acknowledged does not count."""
    if not data.startswith(HEADER):
        raise StateConflict(f"{path} is no log of trails")
    trails: dict[str, _Unfinished] = {}
    batches = 0
    for number, line in enumerate(_acknowledged(data).split(b"\n")[1:-1], 2):
        mark, _, rest = line.partition(b"\t")
        batches += mark == b"*"
        try:
            _apply(trails, mark, rest, batches)
        except (ValueError, KeyError) as error:
            raise StateConflict(f"{path} holds at line {number} what was not written here") from error
    return {job: _spooled(trail, batches) for job, trail in trails.items()}


def _apply(trails: dict[str, _Unfinished], mark: bytes, rest: bytes, batch_number: int) -> None:
    if mark == b"=":
        feature, job, lines, size, digest = rest.decode().split("\t")
        trails[job] = _Unfinished(Base(feature, job, int(lines), int(size), digest))
    elif mark in (b"*", b"+"):
        name, _, entry = rest.partition(b"\t")
        trails[name.decode()].add(batch_number, entry + b"\n")
    elif mark == b".":
        del trails[rest.decode()]
    else:
        raise ValueError(mark)


def _spooled(trail: _Unfinished, batches: int) -> Spooled:
    """Only the last batch of all may be missing from a trail: each is written out before the next begins."""
    return Spooled(trail.base, b"".join(trail.lines), trail.batch_bytes if trail.batch == batches else 0)


def compare(trail: bytes, spooled: Spooled) -> Comparison:
    """Hold a trail against the log: a crash leaves it short, and nothing but a crash does only that."""
    base, expected = spooled.base, spooled.added
    start = read_lines(trail[: base.bytes], origin(base.feature, base.job))
    if start.broken or (start.lines, start.bytes, start.hash) != (base.lines, base.bytes, base.hash):
        return Comparison(0, 0, b"", start.broken or Break(start.lines + 1, "is not the one that was written"))
    rest = trail[base.bytes :].rstrip(b"\0")  # a power failure can leave zeros where data was to come
    if expected.startswith(rest):
        whole = rest.rfind(b"\n") + 1
        return Comparison(base.bytes + whole, len(trail) - base.bytes - whole, expected[whole:], None)
    if rest.startswith(expected):
        return Comparison(0, 0, b"", Break(base.lines + expected.count(b"\n") + 1, "was added"))
    pairs = zip(rest.split(b"\n"), expected.split(b"\n"), strict=False)
    different = next(number for number, (found, wanted) in enumerate(pairs, base.lines + 1) if found != wanted)
    return Comparison(0, 0, b"", Break(different, "was changed, or does not follow the line before it"))
