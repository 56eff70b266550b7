"""Trails and papers in a bucket, for machines that share no disk.

    audit/{feature}/{job}.jsonl     a trail that was closed, whole
    trails/{job}/{number}           what was written to one that is open: lines, made once; for those who watch

Nobody waits for the chunks, and nothing is decided by them: while the bucket is away they are late.
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

from phasegate.core.audit.trail import origin as trail_origin
from phasegate.core.audit.trail import read_lines
from phasegate.core.paths.artifact_path import require_slug
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.files.durable_write import make_folder, replace_file
from phasegate.storage.bucket.client import Bucket, put_grown
from phasegate.storage.bucket.copier import PAPERS, trail_name
from phasegate.storage.bucket.journal import BucketRecord
from phasegate.storage.location import Location
from phasegate.storage.reader import Reader
from phasegate.storage.row_events import trail_sealed
from phasegate.storage.rows import Job, Seal
from phasegate.storage.trail_files import export_trail, read_trail, trail_path
from phasegate.storage.trail_log import OpenTrail, TrailLog
from phasegate.storage.trail_reader import read_entry
from phasegate.storage.trails import Trails, recovered

CHUNK_EVERY_S, CHUNK_BYTES = 10.0, 64_000
PROMPT = "prompt.xml"  # in the folder of a job
_AT_ONCE = 16


class LiveChunk(NamedTuple):
    """How far the chunks of an open trail go: the number of the next, and the lines that it begins and ends with."""

    number: int = 1
    begin: int = 0
    end: int = 0  # behind `begin` while one is on its way: it is tried again with the same bytes


class BucketTrails(Trails):
    """Fulfils `ports.TrailSink`: open trails are in the log of this machine, closed ones in the bucket too."""

    def __init__(self, bucket: Bucket, location: Location, log: TrailLog, trails: dict[str, OpenTrail]) -> None:
        super().__init__(location, log, trails)
        self._bucket = bucket
        self.before_close: Callable[[], None] = lambda: None  # must be done before a trail is put into the bucket
        self._live: dict[str, LiveChunk] = {}
        self._unsent, self._full, self._ended = 0, Event(), Event()
        self._sender = Thread(target=self._send_until_ended, name="live chunks", daemon=True)

    @classmethod
    def in_bucket(cls, bucket: Bucket, location: Location, outside: Path, writer_id: str) -> Self:
        """A writer with a log of its own in `outside`, a folder that no agent can write."""
        make_folder(outside)
        return cls(bucket, location, TrailLog.create(outside, require_slug(writer_id, "writer id")), {})

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._full.set()
        if self._sender.ident:
            self._sender.join()
        super().__exit__(*error)

    def open(self, feature: str, job: str) -> None:
        super().open(feature, job)
        self._live[job] = LiveChunk()
        if not self._sender.ident:
            self._sender.start()

    def _write_out(self, waiting: list[tuple[OpenTrail, list[bytes]]]) -> None:
        super()._write_out(waiting)
        self._unsent += sum(len(line) for _, lines in waiting for line in lines)
        if self._unsent >= CHUNK_BYTES:
            self._full.set()

    def _send_until_ended(self) -> None:
        while True:
            self._full.wait(CHUNK_EVERY_S)
            if self._ended.is_set():
                return
            self._full.clear()
            self._unsent = 0
            for job in [*self._live]:
                with suppress(EnvironmentUnavailable):  # the next look tries again
                    self._send(job)

    def _send(self, job: str) -> None:
        """Put what is new of an open trail into the bucket, a chunk at a time."""
        while (trail := self._open.get(job)) and (at := self._live.get(job)) and at.begin < len(trail.lines):
            end = at.end if at.end > at.begin else _chunk_end(trail.lines, at.begin)
            self._live[job] = at._replace(end=end)
            data = b"".join(trail.lines[at.begin : end])
            self._bucket.create(chunk_name(job, at.number), data, once=True)  # who waits here is late for others
            self._live[job] = LiveChunk(at.number + 1, end, end)

    def open_again(self, seal: Seal) -> OpenTrail:
        """Go on with a trail that was closed, here or on another machine.

        Lines behind its seal are of one that died before it recorded them: they stay, and the trail says so.
        """
        kept, start = self.kept_elsewhere(seal.feature, seal.job), trail_origin(seal.feature, seal.job)
        if read_lines(kept[: seal.bytes], start) != (seal.lines, seal.bytes, seal.hash, 0, None):
            return super().open_again(seal)
        rest = read_lines(kept[seal.bytes :], seal.hash)
        if rest.broken or rest.torn_bytes:
            raise StateConflict(f"the trail of job {seal.job} in {self._bucket.address} was changed behind its end")
        if kept != read_trail(trail_path(self._location, seal.feature, seal.job)):
            export_trail(self._location, seal.feature, seal.job, kept)
        lines, size = seal.lines + rest.lines, seal.bytes + rest.bytes
        trail = super().open_again(seal._replace(lines=lines, bytes=size, hash=rest.hash))
        if rest.lines:
            self.write(seal.job, str(read_entry(trail.lines[-1])["ts"]), recovered(lines))
        return trail

    def kept_elsewhere(self, feature: str, job: str) -> bytes:
        found = self._bucket.get(trail_name(feature, job))
        return found.data if found else b""

    def close(self, job: str) -> Seal:
        """The trail is in the bucket before its seal can be in the journal."""
        self._live.pop(job, None)
        self.before_close()
        seal, content = super().close(job), self._open[job].content
        if not put_grown(self._bucket, trail_name(seal.feature, job), content):
            raise StateConflict(f"{self._bucket.address} holds another trail of job {job}", "nothing was changed there")
        return seal


def close_grown(record: BucketRecord, trails: BucketTrails, feature: str, ts: str) -> None:
    """Seal what is behind the seals of a feature's trails: another machine died before it had recorded that."""
    for seal in (one for one in record.seals() if one.feature == feature):
        if len(trails.kept_elsewhere(feature, seal.job)) > seal.bytes:
            with suppress(StateConflict):  # nobody of ours wrote it: `audit verify` says so
                trails.open_again(seal)
                record.append_now(feature, ts, [trail_sealed(trails.close(seal.job))])
            trails.forget(seal.job)


def _chunk_end(lines: list[bytes], begin: int) -> int:
    size, end = 0, begin
    while end < len(lines) and (end == begin or size + len(lines[end]) <= CHUNK_BYTES):
        size, end = size + len(lines[end]), end + 1
    return end


def chunk_name(job: str, number: int) -> str:
    return f"trails/{require_slug(job, 'job id')}/{number:06}"


def live_chunks(bucket: Bucket, job: str, after: int = 0) -> Iterator[bytes]:
    """What is in the bucket of a trail that is open, behind so many chunks."""
    for number in count(after + 1):
        found = bucket.get(chunk_name(job, number))
        if found is None:
            return
        yield found.data


def bring_trails(bucket: Bucket, copy: Location, reader: Reader) -> None:
    """Put the trails and prompts of a fleet's jobs where those of a repository lie. What is there is not asked for."""
    for folder in (copy.trails, copy.jobs):
        make_folder(folder)
    unsealed = [job for job in reader.at_work() if reader.seal(job.id) is None]
    wanted = (_bring_sealed, reader.seals()), (_bring_live, unsealed), (_bring_prompt, reader.all_rows(Job))
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in chain(*(threads.map(partial(bring, bucket, copy), rows) for bring, rows in wanted)):
            pass  # what went wrong in one is raised here


def _bring_sealed(bucket: Bucket, copy: Location, seal: Seal) -> None:
    if len(read_trail(trail_path(copy, seal.feature, seal.job))) < seal.bytes:
        found = bucket.get(trail_name(seal.feature, seal.job))
        if found is not None:
            export_trail(copy, seal.feature, seal.job, found.data)


def _bring_live(bucket: Bucket, copy: Location, job: Job) -> None:
    export_trail(copy, job.feature, job.id, b"".join(live_chunks(bucket, job.id)))


def _bring_prompt(bucket: Bucket, copy: Location, job: Job) -> None:
    path = copy.jobs / require_slug(job.id, "job id") / PROMPT
    if job.prompt_hash and not path.is_file():
        found = bucket.get(f"{PAPERS}/{job.prompt_hash}")
        if found is not None:
            make_folder(path.parent)
            replace_file(path, found.data)


class BucketPapers:
    """Fulfils `ports.Papers`: by content, made once."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def put(self, data: bytes, name: str = "") -> str:
        digest = sha256(data).hexdigest()
        self._bucket.create(f"{PAPERS}/{digest}", data)
        return digest

    def get(self, digest: str) -> bytes:
        found = self._bucket.get(f"{PAPERS}/{digest}")
        if found is None or sha256(found.data).hexdigest() != digest:
            why = "is not there" if found is None else "was changed"
            raise StateConflict(
                f"the paper {digest} {why} in {self._bucket.address}", "put it back as it was, then run"
            )
        return found.data
