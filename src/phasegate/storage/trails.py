"""Write the trails of jobs: durable entry by entry, exported as one file per job.

Guarantees:
- An entry is durable when `append_entry` returns, in the external log (`trail_log`). Threads may
  write concurrently.
- A trail stays open until it is closed, even after its job has ended: later findings about the job
  (checks, commits, a merge) belong to its trail too.
- `close` exports the whole trail and returns its seal. When the journal has the seal, `forget`
  ends the trail.
- A closed trail can be reopened by its seal, by the driver of the same feature, even after a
  crash. The next seal replaces the previous one in the journal.
- A crash at any point loses no entry: `recover_trails` closes what a dead process left open.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Self

from phasegate.core.audit.trail import (
    Action,
    Source,
    TrailEvent,
    chain_entry,
    encode_entry,
    scan_trail,
    trail_origin_hash,
)
from phasegate.core.paths.artifact_path import require_slug
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.storage.group_commit import GroupCommit
from phasegate.storage.location import Location
from phasegate.storage.rows import TrailSeal
from phasegate.storage.trail_files import export_trail, read_trail, trail_path
from phasegate.storage.trail_log import (
    OpenTrail,
    TrailLog,
    encode_closed_trail,
    encode_log_entry,
    encode_opened_trail,
)

ACTOR = "phasegate"
LOG_REWRITE_THRESHOLD_BYTES = 4_000_000


def recovery_entry(entries: int) -> TrailEvent:
    """Return the entry that says that a trail's process died after this number of entries."""
    return TrailEvent(
        actor=ACTOR, action=Action.RECOVERED, source=Source.OBSERVED, fields={"entries": entries}
    )


class TrailWriter:
    """Writes the trails of one process.

    Threads may write concurrently; their entries share an fsync.
    """

    def __init__(self, location: Location, log: TrailLog, trails: dict[str, OpenTrail]) -> None:
        self._location = location
        self._log = log
        self._open_trails = trails
        self._disk_lock = Lock()
        self._commit_queue: GroupCommit[tuple[OpenTrail, list[bytes]]] = GroupCommit(
            self._write_batch
        )

    @classmethod
    def create(cls, location: Location, log_folder: Path, writer_id: str) -> Self:
        """Create a writer with its own log in `log_folder`, the folder of the chain heads."""
        return cls(location, TrailLog.create(log_folder, require_slug(writer_id, "writer id")), {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Keep the log if a trail is open: the next process continues from it."""
        self._log.close(remove=not self._open_trails)

    def open(self, feature: str, job: str) -> None:
        """Start the trail of a job. The job must already be in the journal."""
        path = trail_path(self._location, feature, job)
        if os.path.lexists(path):
            raise StateConflict(
                f"the trail {path} already exists", "every agent run must have a unique job id"
            )

        with self._disk_lock:
            self._log.append(encode_opened_trail(OpenTrail(feature, job)))
            self._open_trails[job] = OpenTrail(feature, job)

    def reopen(self, seal: TrailSeal) -> OpenTrail:
        """Continue a closed trail. Its file must match `seal`, the seal in the journal."""
        path = trail_path(self._location, seal.feature, seal.job)
        content = read_trail(path)
        reading = scan_trail(content, trail_origin_hash(seal.feature, seal.job))
        if reading != (seal.lines, seal.bytes, seal.hash, 0, None):
            raise StateConflict(
                f"the trail {path} was changed after it was closed", "run: phasegate audit verify"
            )

        trail = OpenTrail(seal.feature, seal.job, content.splitlines(keepends=True))
        with self._disk_lock:
            # Rewritten as a whole: a crash must not leave a part of the trail in the log
            self._log.rewrite([*self._open_trails.values(), trail])
            self._open_trails[seal.job] = trail

        return trail

    def append_entry(self, job: str, ts: str, done: TrailEvent) -> None:
        """Append an entry to a job's trail. It is durable on return."""
        self.append_entries(job, [(ts, done)])

    def append_entries(self, job: str, entries: Sequence[tuple[str, TrailEvent]]) -> None:
        """Append entries to a job's trail in order. They are durable on return."""
        waiting = self._open_trails[job], [encode_entry(ts, job, done) for ts, done in entries]

        try:
            self._commit_queue.submit(waiting)
        except OSError as error:
            raise EnvironmentUnavailable(
                f"the audit trail cannot be written: {error}",
                "check the disk space and permissions",
            ) from error

    def _write_batch(self, batch: list[tuple[OpenTrail, list[bytes]]]) -> None:
        """Chain the entries of several trails by hash and append them to the log in one write."""
        with self._disk_lock:
            last_hashes: dict[str, str] = {}
            lines: list[tuple[OpenTrail, bytes]] = []
            for trail, entry in ((trail, one) for trail, entries in batch for one in entries):
                previous_hash = last_hashes.get(trail.job) or trail.last_hash
                line, last_hashes[trail.job] = chain_entry(previous_hash, entry)
                lines.append((trail, line))

            self._log.append(b"".join(encode_log_entry(trail.job, line) for trail, line in lines))
            for trail, line in lines:
                trail.lines.append(line)

    def find_foreign_file(self, job: str) -> Path | None:
        """Return the file at the path of an open trail if it is not an earlier export of that
        trail.
        """
        trail = self._open_trails[job]
        path = trail_path(self._location, trail.feature, job)
        found = read_trail(path)
        earlier = trail.content.startswith(found) and found[-1:] in (b"", b"\n") and path.is_file()
        if os.path.lexists(path) and not earlier:
            return path

        return None

    def read_remote_trail(self, feature: str, job: str) -> bytes:
        """Return a trail as other machines see it; empty if it exists only on this machine."""
        return b""

    def close(self, job: str) -> TrailSeal:
        """Export a job's trail to its file and return the seal.

        The caller must record the seal in the journal, then call `forget`.
        """
        if (path := self.find_foreign_file(job)) is not None:
            raise StateConflict(
                f"{path} was not written by Phasegate",
                "move it aside; then repeat the command",
            )

        trail = self._open_trails[job]
        content = trail.content
        export_trail(self._location, trail.feature, job, content)

        return TrailSeal(
            feature=trail.feature,
            job=job,
            lines=len(trail.lines),
            bytes=len(content),
            hash=trail.last_hash,
        )

    def forget(self, job: str) -> None:
        """Remove a trail from the log, once the journal has its seal.

        A job that never started has no trail, which is not an error.
        """
        with self._disk_lock:
            if self._open_trails.pop(job, None) is None:
                return

            self._log.append(encode_closed_trail(job))
            if self._log.size > LOG_REWRITE_THRESHOLD_BYTES:
                self._log.rewrite(self._open_trails.values())
