"""Writing the trails of jobs (D13): `audit/{feature}/{job}.jsonl` below `.phasegate`, durable entry by entry.

The order of things: an entry is durable in the log outside, then it is written to the trail. When the job ends the
trail is made durable, its end goes into the journal, and the log forgets it. A crash at any point leaves enough.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Self

from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.record.durable import sync_folders, write_all
from phasegate.record.group_commit import GroupCommit
from phasegate.record.location import Location
from phasegate.record.rows import Seal
from phasegate.record.spool import Base, Spool, batch, finished, opened
from phasegate.rules.artifact_path import require_slug
from phasegate.rules.trail import Done, bind, entry, origin

RESTART_BEYOND_BYTES = 4_000_000
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def trail_path(location: Location, feature: str, job: str) -> Path:
    """Where a job's trail is."""
    return location.trails / require_slug(feature) / f"{require_slug(job, 'job id')}.jsonl"


class _Trail:
    """One open trail: where it stands, and its file once there is something in it."""

    def __init__(self, base: Base, path: Path) -> None:
        self.at = base  # with the entries that wait
        self.written = base  # as the file is
        self.path = path
        self.descriptor = -1

    def add(self, unbound: bytes) -> _Line:
        feature, job, lines, size, before = self.at
        line, digest = bind(before, unbound)
        self.at = Base(feature, job, lines + 1, size + len(line), digest)
        return _Line(self, line, self.at)

    def write(self, data: bytes, then_at: Base) -> None:
        if self.descriptor < 0:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.descriptor = os.open(self.path, _FLAGS, 0o600)
        write_all(self.descriptor, data)
        self.written = then_at

    def sync(self) -> None:
        if self.descriptor >= 0:
            os.fsync(self.descriptor)


class _Line(NamedTuple):
    """A line to be written, and where its trail stands then."""

    trail: _Trail
    line: bytes
    then_at: Base


class Trails:
    """The trails that one process writes. Threads may write at once; their entries share an fsync."""

    def __init__(self, location: Location, spool: Spool) -> None:
        self._location = location
        self._spool = spool
        self._open: dict[str, _Trail] = {}
        self._disk = Lock()  # the log and the files
        self._entries: GroupCommit[tuple[_Trail, bytes]] = GroupCommit(self._write_out)

    @classmethod
    def create(cls, location: Location, outside: Path, writer_id: str) -> Self:
        """A writer with a log of its own in `outside`, the folder of the store's heads."""
        return cls(location, Spool.create(outside, require_slug(writer_id, "writer id")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the log behind if a trail is unfinished: it is what the next process goes on from."""
        for trail in self._open.values():
            if trail.descriptor >= 0:
                os.close(trail.descriptor)
        self._spool.close(remove=not self._open)

    def open(self, feature: str, job: str) -> None:
        """Begin the trail of a job. The journal must know the job already."""
        path = trail_path(self._location, feature, job)
        if os.path.lexists(path):
            raise StateConflict(f"the trail {path} exists already", "every run of an agent has a job id of its own")
        self.resume(Base(feature, job, 0, 0, origin(feature, job)))

    def resume(self, base: Base) -> None:
        """Go on with a trail from where it stands."""
        with self._disk:
            self._spool.add(opened(base))
            self.hold(base)

    def hold(self, at: Base) -> None:
        """Go on with a trail that the log holds already."""
        self._open[at.job] = _Trail(at, trail_path(self._location, at.feature, at.job))

    def write(self, job: str, ts: str, done: Done) -> None:
        """Append an entry to a job's trail. It is durable when this returns."""
        waiting = self._open[job], entry(ts, job, done)
        try:
            self._entries.submit(waiting)
        except OSError as error:
            raise EnvironmentUnavailable(f"the audit trail cannot be written: {error}", "check the disk") from error

    def _write_out(self, entries: list[tuple[_Trail, bytes]]) -> None:
        with self._disk:
            lines = [trail.add(unbound) for trail, unbound in entries]
            self._spool.add(batch([(then_at.job, line) for _, line, then_at in lines]))
            for trail, line, then_at in lines:
                trail.write(line, then_at)
            if self._spool.size > RESTART_BEYOND_BYTES:
                self._restart()

    def _restart(self) -> None:
        """Keep the log small: the trails made durable so far need not be in it, only where they stand."""
        for trail in self._open.values():
            trail.sync()
        self._spool.restart([trail.written for trail in self._open.values()])

    def close(self, job: str) -> Seal:
        """End a job's trail: durable as a whole. The seal belongs into the journal, and then call `forget`."""
        with self._disk:
            trail = self._open[job]
            if trail.written != trail.at:
                raise EnvironmentUnavailable(
                    f"the trail of job {job} could not be written to its end", "check the disk"
                )
            trail.write(b"", trail.at)  # also an empty trail is a file
            trail.sync()
            os.close(trail.descriptor)
            trail.descriptor = -1
            sync_folders(trail.path.parent, self._location.folder)
            return Seal(trail.at.feature, job, trail.at.lines, trail.at.bytes, trail.at.hash)

    def forget(self, job: str) -> None:
        """The journal has the trail's end: the log need not hold it any longer. A job that never began has none."""
        with self._disk:
            if self._open.pop(job, None) is not None:
                self._spool.add(finished(job))
