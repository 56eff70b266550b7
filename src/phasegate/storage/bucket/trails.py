"""Trails and documents in a bucket, for machines without a shared disk.

    audit/{feature}/{job}.jsonl     a closed trail, complete
    trails/{job}/{number}           lines of an open trail, written once, for display

Nothing waits for these chunks or depends on them: while the bucket is unavailable they are late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple, Self

from phasegate.core.audit.trail import scan_trail
from phasegate.core.audit.trail import trail_origin_hash as trail_origin
from phasegate.core.paths.artifact_path import require_slug
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.files.durable_write import make_folder, replace_file
from phasegate.storage.bucket.client import Bucket, put_append_only
from phasegate.storage.bucket.copier import DOCUMENTS_FOLDER, trail_object_path
from phasegate.storage.bucket.journal import BucketStore
from phasegate.storage.location import Location
from phasegate.storage.reader import StoreReader
from phasegate.storage.row_events import trail_sealed_event
from phasegate.storage.rows import JobRow, TrailSeal
from phasegate.storage.trail_files import export_trail, read_trail, trail_path
from phasegate.storage.trail_log import OpenTrail, TrailLog
from phasegate.storage.trail_reader import parse_entry
from phasegate.storage.trails import TrailWriter, recovery_entry

CHUNK_INTERVAL_S = 10.0
MAX_CHUNK_BYTES = 64_000
# File in the folder of a job
PROMPT_FILE = "prompt.xml"
_MAX_CONCURRENT_DOWNLOADS = 16


class ChunkProgress(NamedTuple):
    """How far an open trail has been uploaded: the number of the next chunk, and its range of
    lines.
    """

    number: int = 1
    begin: int = 0
    # Greater than `begin` during an upload, which is retried with the same bytes
    end: int = 0


class BucketTrailWriter(TrailWriter):
    """Implements `ports.TrailSink` for a bucket.

    Open trails are in the log of this machine; closed trails are also in the bucket.
    """

    def __init__(
        self, bucket: Bucket, location: Location, log: TrailLog, trails: dict[str, OpenTrail]
    ) -> None:
        super().__init__(location, log, trails)
        self._bucket = bucket
        # Called before a trail is uploaded
        self.before_close: Callable[[], None] = lambda: None
        self._chunk_progress: dict[str, ChunkProgress] = {}
        self._unsent_bytes = 0
        self._wake_sender = Event()
        self._is_closing = Event()
        self._sender = Thread(target=self._run_sender, name="live chunks", daemon=True)

    @classmethod
    def create_in_bucket(
        cls, bucket: Bucket, location: Location, log_folder: Path, writer_id: str
    ) -> Self:
        """Create a writer with its own log in `log_folder`, which no agent can write to."""
        make_folder(log_folder)
        return cls(
            bucket, location, TrailLog.create(log_folder, require_slug(writer_id, "writer id")), {}
        )

    def __exit__(self, *error: object) -> None:
        self._is_closing.set()
        self._wake_sender.set()
        if self._sender.ident:
            self._sender.join()
        super().__exit__(*error)

    def open(self, feature: str, job: str) -> None:
        super().open(feature, job)
        self._chunk_progress[job] = ChunkProgress()
        if not self._sender.ident:
            self._sender.start()

    def _write_batch(self, batch: list[tuple[OpenTrail, list[bytes]]]) -> None:
        super()._write_batch(batch)
        self._unsent_bytes += sum(len(line) for _, lines in batch for line in lines)
        if self._unsent_bytes >= MAX_CHUNK_BYTES:
            self._wake_sender.set()

    def _run_sender(self) -> None:
        """Upload new lines of open trails at intervals, until closed."""
        while True:
            self._wake_sender.wait(CHUNK_INTERVAL_S)
            if self._is_closing.is_set():
                return

            self._wake_sender.clear()
            self._unsent_bytes = 0
            for job in [*self._chunk_progress]:
                # Retried at the next interval
                with suppress(EnvironmentUnavailable):
                    self._send_chunks(job)

    def _send_chunks(self, job: str) -> None:
        """Upload the new lines of an open trail, one chunk at a time."""
        while (
            (trail := self._open_trails.get(job))
            and (at := self._chunk_progress.get(job))
            and at.begin < len(trail.lines)
        ):
            if at.end > at.begin:
                end = at.end
            else:
                end = _find_chunk_end(trail.lines, at.begin)

            self._chunk_progress[job] = at._replace(end=end)
            data = b"".join(trail.lines[at.begin : end])
            # Waiting here would delay the other trails
            self._bucket.create(chunk_path(job, at.number), data, no_retry=True)
            self._chunk_progress[job] = ChunkProgress(at.number + 1, end, end)

    def reopen(self, seal: TrailSeal) -> OpenTrail:
        """Continue a trail that was closed on this or another machine.

        Lines after the seal were written by a process that died before it recorded them. They are
        kept, and an entry of the trail says so.
        """
        kept = self.read_remote_trail(seal.feature, seal.job)
        start = trail_origin(seal.feature, seal.job)
        if scan_trail(kept[: seal.bytes], start) != (seal.lines, seal.bytes, seal.hash, 0, None):
            return super().reopen(seal)

        rest = scan_trail(kept[seal.bytes :], seal.hash)
        if rest.broken or rest.partial_bytes:
            raise StateConflict(
                f"the trail of job {seal.job} in {self._bucket.address} was changed after its end"
            )

        if kept != read_trail(trail_path(self._location, seal.feature, seal.job)):
            export_trail(self._location, seal.feature, seal.job, kept)

        lines = seal.lines + rest.lines
        size = seal.bytes + rest.bytes
        trail = super().reopen(seal._replace(lines=lines, bytes=size, hash=rest.hash))
        if rest.lines:
            self.append_entry(
                seal.job, str(parse_entry(trail.lines[-1])["ts"]), recovery_entry(lines)
            )

        return trail

    def read_remote_trail(self, feature: str, job: str) -> bytes:
        found = self._bucket.get(trail_object_path(feature, job))
        if found:
            return found.data
        return b""

    def close(self, job: str) -> TrailSeal:
        """Close a trail and upload it, before its seal can be recorded in the journal."""
        self._chunk_progress.pop(job, None)
        self.before_close()
        seal = super().close(job)
        content = self._open_trails[job].content

        if not put_append_only(self._bucket, trail_object_path(seal.feature, job), content):
            raise StateConflict(
                f"{self._bucket.address} has a different trail of job {job}",
                "compare them with: phasegate audit verify --remote (nothing was changed there)",
            )

        return seal


def seal_unrecorded_lines(
    record: BucketStore, trails: BucketTrailWriter, feature: str, ts: str
) -> None:
    """Seal the lines of a feature's trails that no seal covers yet.

    Such lines exist if another machine died before it recorded them.
    """
    for seal in (one for one in record.seals() if one.feature == feature):
        if len(trails.read_remote_trail(feature, seal.job)) > seal.bytes:
            # Not written by Phasegate: `audit verify` reports it
            with suppress(StateConflict):
                trails.reopen(seal)
                record.append_unconditionally(
                    feature, ts, [trail_sealed_event(trails.close(seal.job))]
                )

            trails.forget(seal.job)


def _find_chunk_end(lines: list[bytes], begin: int) -> int:
    size = 0
    end = begin
    while end < len(lines) and (end == begin or size + len(lines[end]) <= MAX_CHUNK_BYTES):
        size = size + len(lines[end])
        end = end + 1
    return end


def chunk_path(job: str, number: int) -> str:
    return f"trails/{require_slug(job, 'job id')}/{number:06}"


def read_live_chunks(bucket: Bucket, job: str, after: int = 0) -> Iterator[bytes]:
    """Yield the chunks of an open trail in the bucket, after chunk number `after`."""
    for number in count(after + 1):
        found = bucket.get(chunk_path(job, number))
        if found is None:
            return
        yield found.data


def download_trails(bucket: Bucket, copy_location: Location, reader: StoreReader) -> None:
    """Download the trails and prompts of a fleet's jobs into the layout of a repository.

    Existing files are not downloaded again.
    """
    for folder in (copy_location.trails_folder, copy_location.jobs_folder):
        make_folder(folder)

    unsealed = [job for job in reader.running_jobs() if reader.find_seal(job.id) is None]
    wanted = (
        (_download_sealed_trail, reader.seals()),
        (_download_live_trail, unsealed),
        (_download_prompt, reader.all_rows(JobRow)),
    )
    with ThreadPoolExecutor(_MAX_CONCURRENT_DOWNLOADS) as threads:
        for _ in chain(
            *(threads.map(partial(bring, bucket, copy_location), rows) for bring, rows in wanted)
        ):
            # Iterating raises the errors of the threads
            pass


def _download_sealed_trail(bucket: Bucket, copy: Location, seal: TrailSeal) -> None:
    if len(read_trail(trail_path(copy, seal.feature, seal.job))) < seal.bytes:
        found = bucket.get(trail_object_path(seal.feature, seal.job))
        if found is not None:
            export_trail(copy, seal.feature, seal.job, found.data)


def _download_live_trail(bucket: Bucket, copy: Location, job: JobRow) -> None:
    export_trail(copy, job.feature, job.id, b"".join(read_live_chunks(bucket, job.id)))


def _download_prompt(bucket: Bucket, copy: Location, job: JobRow) -> None:
    path = copy.jobs_folder / require_slug(job.id, "job id") / PROMPT_FILE
    if job.prompt_hash and not path.is_file():
        found = bucket.get(f"{DOCUMENTS_FOLDER}/{job.prompt_hash}")
        if found is not None:
            make_folder(path.parent)
            replace_file(path, found.data)


class BucketDocumentStore:
    """Implements `ports.DocumentStore`: content-addressed, written once."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def put(self, data: bytes, name: str = "") -> str:
        digest = sha256(data).hexdigest()
        self._bucket.create(f"{DOCUMENTS_FOLDER}/{digest}", data)
        return digest

    def get(self, digest: str) -> bytes:
        """Return a document; raise StateConflict if it is missing or was changed."""
        found = self._bucket.get(f"{DOCUMENTS_FOLDER}/{digest}")
        if found is None or sha256(found.data).hexdigest() != digest:
            if found is None:
                why = "is missing"
            else:
                why = "was changed"

            raise StateConflict(
                f"the document {digest} {why} in {self._bucket.address}",
                "restore it, then run again",
            )

        return found.data
