"""Trails and papers in a bucket, for machines that share no disk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Self

from phasegate.errors import StateConflict
from phasegate.files.durable import make_folder, replace_file
from phasegate.record.bucket import Bucket, put_grown
from phasegate.record.copying import PAPERS, trail_name
from phasegate.record.location import Location
from phasegate.record.reader import Reader
from phasegate.record.rows import Job, Seal
from phasegate.record.trail_files import export_trail, read_trail, trail_path
from phasegate.record.trail_log import OpenTrail, TrailLog
from phasegate.record.trails import Trails
from phasegate.rules.artifact_path import require_slug

PROMPT = "prompt.xml"  # in the folder of a job
_AT_ONCE = 16


class BucketTrails(Trails):
    """Fulfils `ports.TrailSink`: open trails are in the log of this machine, closed ones in the bucket too."""

    def __init__(self, bucket: Bucket, location: Location, log: TrailLog, trails: dict[str, OpenTrail]) -> None:
        super().__init__(location, log, trails)
        self._bucket = bucket

    @classmethod
    def in_bucket(cls, bucket: Bucket, location: Location, outside: Path, writer_id: str) -> Self:
        """A writer with a log of its own in `outside`, a folder that no agent can write."""
        make_folder(outside)
        return cls(bucket, location, TrailLog.create(outside, require_slug(writer_id, "writer id")), {})

    def open_again(self, seal: Seal) -> OpenTrail:
        """Go on with a trail that was closed, here or on another machine."""
        path = trail_path(self._location, seal.feature, seal.job)
        if len(read_trail(path)) != seal.bytes and (found := self._bucket.get(trail_name(seal.feature, seal.job))):
            export_trail(self._location, seal.feature, seal.job, found.data[: seal.bytes])
        return super().open_again(seal)

    def close(self, job: str) -> Seal:
        """The trail is in the bucket before its seal can be in the journal."""
        seal, content = super().close(job), self._open[job].content
        if not put_grown(self._bucket, trail_name(seal.feature, job), content):
            raise StateConflict(f"{self._bucket.address} holds another trail of job {job}", "nothing was changed there")
        return seal


def bring_trails(bucket: Bucket, copy: Location, reader: Reader) -> None:
    """Put the trails and prompts of a fleet's jobs where those of a repository lie. What is there is not asked for."""
    for folder in (copy.trails, copy.jobs):
        make_folder(folder)

    def bring(seal: Seal) -> None:
        if len(read_trail(trail_path(copy, seal.feature, seal.job))) < seal.bytes:
            found = bucket.get(trail_name(seal.feature, seal.job))
            if found is not None:
                export_trail(copy, seal.feature, seal.job, found.data)

    def bring_prompt(job: Job) -> None:
        path = copy.jobs / require_slug(job.id, "job id") / PROMPT
        if job.prompt_hash and not path.is_file():
            found = bucket.get(f"{PAPERS}/{job.prompt_hash}")
            if found is not None:
                make_folder(path.parent)
                replace_file(path, found.data)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in (*threads.map(bring, reader.seals()), *threads.map(bring_prompt, reader.all_rows(Job))):
            pass  # what went wrong in one is raised here


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
