"""The journal itself in a bucket: what every journal promises, and what the way to it must not change."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event as Pause
from threading import Thread
from time import monotonic
from uuid import uuid4

import pytest

from contract import test_ports
from phasegate.core.machine.feature_state import Feature
from phasegate.core.workflow.phase_transitions import Stage
from phasegate.engine.drive import orders
from phasegate.engine.drive.run_feature import RunOptions, drive_feature, drive_feature_with
from phasegate.engine.project.ports import RunRecord
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.errors import MovedOn, StateConflict, TemporarilyUnavailable
from phasegate.storage.bucket import trails as bucket_trails
from phasegate.storage.bucket.client import Bucket
from phasegate.storage.bucket.journal import BucketStore, journal_log
from phasegate.storage.bucket.trails import BucketDocumentStore, BucketTrailWriter, read_live_chunks
from phasegate.storage.bucket.verify_copy import verify_bucket
from phasegate.storage.location import Location, prepare_data_folder
from phasegate.storage.row_events import job_ended_event, job_started_event
from phasegate.storage.rows import JobRow
from phasegate.storage.rows import NewEvent as Recordable
from phasegate.storage.trail_log import list_log_files
from phasegate.storage.trail_recovery import close_orphaned_trails
from support.alike_runs import alike, one_at_a_time, tree_of
from support.feature_run import DESCRIPTION, SLUG, TYPE
from support.memory_ports import memory_desk
from support.record import FEATURE, TS, make_repository, wrote
from support.s3_server import FaultyProxy, Request, S3Server

CLAIMS = [
    claim
    for name, claim in inspect.getmembers(test_ports, inspect.isfunction)
    if name.startswith("test_") and [*inspect.signature(claim).parameters] == ["record"]
]


def new_id() -> str:
    return str(uuid4())


def open_bucket_record(bucket: Bucket) -> BucketStore:
    return BucketStore(bucket, Location(Path(), Path(), Path()), new_id)


def note(text: str) -> Recordable:
    return Recordable("noted", json.dumps(text).encode())


def notes(record: BucketStore) -> list[str]:
    return [json.loads(one.payload) for one in record.events(FEATURE)]


@pytest.fixture
def record(s3: S3Server, prefix: str) -> Iterator[RunRecord]:
    with open_bucket_record(s3.patient_bucket(prefix)) as found:
        yield found


@pytest.mark.demand("X8.k")
def test_an_open_trail_is_in_the_bucket_in_bounded_chunks_and_an_outage_makes_them_late_only(
    tmp_path: Path, s3: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_trails, "CHUNK_INTERVAL_S", 0.2)
    here, is_away, pause = make_repository(tmp_path / "here"), [True], Pause()
    prepare_data_folder(here)
    fault: Callable[[Request], str] = lambda request: (  # noqa: E731
        "away" if is_away[0] and "/trails/" in request.path else ""
    )
    with FaultyProxy(s3.port, fault) as proxy:
        bucket = s3.patient_bucket(prefix, proxy.endpoint)
        with BucketTrailWriter.create_in_bucket(
            bucket, here, here.state_home, "writer-1"
        ) as trails:
            trails.open(FEATURE, "job-a")
            for number in range(400):
                trails.append_entry("job-a", TS, wrote(f"src/{'long/' * 60}{number}.py", 1))
            while not proxy.count("away"):
                pause.wait(0.05)
            assert not [*read_live_chunks(s3.bucket(prefix), "job-a")], (
                "nobody waited for the bucket"
            )
            is_away[0] = False
            whole = trails._open_trails["job-a"].content
            while len(b"".join(read_live_chunks(s3.bucket(prefix), "job-a"))) < len(whole):
                pause.wait(0.05)
            chunks = [*read_live_chunks(s3.bucket(prefix), "job-a")]
            assert b"".join(chunks) == whole
            assert 1 < len(chunks) <= len(whole) // 30_000
            assert max(map(len, chunks)) <= bucket_trails.MAX_CHUNK_BYTES
            trails.close("job-a")
            trails.forget("job-a")


@pytest.mark.demand("X8.f")
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_a_journal_in_a_bucket_keeps_what_every_journal_promises(
    record: RunRecord, claim: Callable[[RunRecord], None]
) -> None:
    claim(record)


def test_all_claims_about_a_journal_were_found() -> None:
    assert len(CLAIMS) == 5


@pytest.mark.demand("X8.f")
def test_trails_and_papers_in_a_bucket_go_on_on_another_machine(
    tmp_path: Path, s3: S3Server, prefix: str
) -> None:
    bucket = s3.patient_bucket(prefix)
    here, there = make_repository(tmp_path / "here"), make_repository(tmp_path / "there")
    for location in (here, there):
        prepare_data_folder(location)
    paper = BucketDocumentStore(bucket).put(b"evidence\n", "a name for people")
    assert BucketDocumentStore(bucket).get(paper) == b"evidence\n"
    with pytest.raises(StateConflict):
        BucketDocumentStore(bucket).get("0" * 64)
    with BucketTrailWriter.create_in_bucket(bucket, here, here.state_home, "writer-1") as trails:
        trails.open(FEATURE, "job-a")
        trails.append_entry("job-a", TS, wrote("src/a.py", 1))
        seal = trails.close("job-a")
        trails.forget("job-a")
    with BucketTrailWriter.create_in_bucket(bucket, there, there.state_home, "writer-2") as trails:
        trails.reopen(seal)
        trails.append_entry("job-a", TS, wrote("src/b.py", 1))
        later = trails.close("job-a")
        trails.forget("job-a")
        assert (seal.lines, later.lines) == (1, 2)
    with BucketTrailWriter.create_in_bucket(bucket, here, here.state_home, "writer-3") as trails:
        trails.reopen(later)
        trails.forget("job-a")
        with pytest.raises(StateConflict):
            trails.reopen(later._replace(hash=seal.hash))


@pytest.mark.demand("X8.f", "X8.j")
def test_a_trail_of_one_that_died_before_its_record_is_gone_on_with_elsewhere_and_by_itself_let_be(
    tmp_path: Path, s3: S3Server, prefix: str
) -> None:
    bucket = s3.patient_bucket(prefix)
    here, there = make_repository(tmp_path / "here"), make_repository(tmp_path / "there")
    for location in (here, there):
        prepare_data_folder(location)
    with BucketTrailWriter.create_in_bucket(bucket, here, here.state_home, "writer-1") as trails:
        trails.open(FEATURE, "job-a")
        trails.append_entry("job-a", TS, wrote("src/a.py", 1))
        seal = trails.close("job-a")
        trails.forget("job-a")
    with BucketTrailWriter.create_in_bucket(bucket, here, here.state_home, "writer-2") as trails:
        trails.reopen(seal)
        trails.append_entry("job-a", TS, wrote("src/b.py", 1))
        trails.close("job-a")  # in the bucket, and in no record
    with BucketTrailWriter.create_in_bucket(bucket, there, there.state_home, "writer-3") as trails:
        trails.reopen(seal)
        trails.append_entry("job-a", TS, wrote("src/b.py", 1))
        later = trails.close("job-a")
        trails.forget("job-a")
    assert later.lines == 4, "both, and that the trail was recovered in between"
    with open_bucket_record(bucket) as record:
        assert list_log_files(here.state_home)
        assert (
            close_orphaned_trails(
                record, here.state_home, partial(BucketTrailWriter, bucket, here), TS
            )
            == []
        )
        assert not list_log_files(here.state_home), "the other one went on with it"
        assert record.seals() == []
    with BucketTrailWriter.create_in_bucket(bucket, here, here.state_home, "writer-4") as trails:
        trails.reopen(later)
        trails.append_entry("job-a", TS, wrote("src/c.py", 1))  # in no bucket
    with BucketTrailWriter.create_in_bucket(bucket, there, there.state_home, "writer-5") as trails:
        trails.reopen(later)
        trails.append_entry("job-a", TS, wrote("src/d.py", 1))
        last = trails.close("job-a")
        trails.forget("job-a")
    with open_bucket_record(bucket) as record:
        left = close_orphaned_trails(
            record, here.state_home, partial(BucketTrailWriter, bucket, here), TS
        )
        assert [(one.job, bool(one.problem)) for one in left] == [("job-a", True)]
        assert list_log_files(here.state_home), "what nobody else has is kept"
    changed = s3.bucket(prefix).get(f"audit/{FEATURE}/job-a.jsonl")
    assert changed is not None
    assert s3.bucket(prefix).replace(
        f"audit/{FEATURE}/job-a.jsonl", changed.data + b"{}\n", changed.etag
    )
    trails = BucketTrailWriter.create_in_bucket(bucket, there, there.state_home, "writer-6")
    with trails, pytest.raises(StateConflict, match="after its end"):
        trails.reopen(last)


@pytest.mark.demand("X8.f")
def test_a_feature_driven_with_its_record_in_a_bucket_gives_the_same_events_and_the_same_tree(
    tmp_path: Path, s3: S3Server, prefix: str
) -> None:
    stored, kept = one_at_a_time(tmp_path / "stored"), one_at_a_time(tmp_path / "kept")
    project = stored.project
    with open_project_store(project) as store:
        orders.start_workflow(project, store, TYPE, DESCRIPTION)
        by_store = drive_feature(project, store, SLUG, RunOptions(merge=True))
        first = list(store.events(SLUG))
    bucket = s3.patient_bucket(prefix)
    elsewhere = open_project(kept.root)._replace(document_store=BucketDocumentStore(bucket))
    location = elsewhere.location
    prepare_data_folder(location)  # the locks of this machine hold for every driver here
    outside = tmp_path / "outside"
    with (
        BucketStore(bucket, location, new_id) as record,
        BucketTrailWriter.create_in_bucket(bucket, location, outside, "w") as trails,
    ):
        orders.start_workflow(elsewhere, record, TYPE, DESCRIPTION)
        by_bucket = drive_feature_with(
            memory_desk(elsewhere, record, trails), SLUG, RunOptions(merge=True)
        )
        second = list(record.events(SLUG))
        jobs = record.jobs(SLUG)
    assert isinstance(by_store, Feature)
    assert isinstance(by_bucket, Feature)
    assert by_store.workflow.stage is by_bucket.workflow.stage is Stage.COMPLETED
    assert [*alike(second, kept.root)] == [*alike(first, stored.root)]
    assert tree_of(kept, second[0].ts) == tree_of(stored, first[0].ts) != {}
    assert not location.store_path.exists(), "control: the second had no store"
    report = verify_bucket(s3.bucket(prefix), None)
    assert (report.ok, report.entries, report.trails) == (True, len(second), len(jobs)), report


@pytest.mark.demand("X8.c", "X8.f")
def test_two_writers_that_are_killed_again_and_again_lose_nothing_and_double_nothing(
    tmp_path: Path, s3: S3Server, prefix: str
) -> None:
    """Answers get lost on the way besides, and for ten seconds the bucket is away."""
    calls, began = 0, monotonic()

    def fault(_: Request) -> str:
        nonlocal calls
        calls += 1
        return "away" if 2 < monotonic() - began < 12 else "lost" if calls % 7 == 0 else ""

    acknowledged: list[str] = []
    script, environment = (
        Path(__file__).with_name("journal_writer.py"),
        {**os.environ, "PYTHONPATH": "tests"},
    )
    with FaultyProxy(s3.port, fault) as proxy:

        def write(name: str) -> None:
            for life in range(4):
                command = [sys.executable, str(script), proxy.endpoint, prefix, f"{name}{life}"]
                with subprocess.Popen(
                    command, stdout=subprocess.PIPE, text=True, env=environment
                ) as writer:
                    assert writer.stdout is not None
                    lines = [writer.stdout.readline().strip() for _ in range(5 + 3 * life)]
                    writer.kill()
                    acknowledged.extend([*lines, *writer.stdout.read().split("\n")[:-1]])

        threads = [Thread(target=write, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert proxy.count("away")
        assert proxy.count("lost")
    with open_bucket_record(s3.patient_bucket(prefix)) as record:
        found = Counter(notes(record))
        assert max(found.values()) == 1
        assert {*acknowledged} <= {*found}
        assert len(found) - len({*acknowledged}) <= 8, (
            "what was never acknowledged: at most one a life"
        )
        record.anchor()
    assert verify_bucket(s3.bucket(prefix), None).ok


@pytest.mark.demand("X8.f")
def test_a_foreign_history_under_a_number_stops_the_writer_and_is_not_written_over(
    s3: S3Server, prefix: str
) -> None:
    bucket = s3.bucket(prefix)
    with open_bucket_record(bucket) as record, open_bucket_record(bucket) as other:
        record.append(FEATURE, 0, TS, [note("one")])
        record.anchor()
        assert other.append(FEATURE, 1, TS, [note("two")]) == 2, "control: another writer goes on"
        with pytest.raises(MovedOn):
            record.append(FEATURE, 1, TS, [note("also two")])
        path = f"journal/{FEATURE}/{3:010}"
        forged = b'{"n":3,"prev":"%s","by":"x","body":{"entries":[]}}' % (b"0" * 64)
        assert bucket.create(path, forged)
        for writer in (record, other):
            with pytest.raises(StateConflict, match="a different history"):
                writer.append(FEATURE, 2, TS, [note("three")])
        found = bucket.get(path)
        assert found is not None
        assert found.data == forged
    report = verify_bucket(bucket, None)
    assert [problem.where for problem in report.problems] == [f"journal {FEATURE} page 3"]


@pytest.mark.demand("X8.f")
def test_a_changed_event_is_found_by_its_own_hash_though_no_head_covers_it(
    s3: S3Server, prefix: str
) -> None:
    bucket = s3.bucket(prefix)
    with open_bucket_record(bucket) as record:
        record.append(FEATURE, 0, TS, [note("one")])
        record.append(FEATURE, 1, TS, [note("two")])
    assert verify_bucket(bucket, None).ok, "control"
    last = bucket.get(f"journal/{FEATURE}/{2:010}")
    assert last is not None
    changed = last.data.replace(b"two", b"six")
    assert changed != last.data
    assert bucket.replace(f"journal/{FEATURE}/{2:010}", changed, last.etag)
    report = verify_bucket(bucket, None)
    assert [problem.where for problem in report.problems] == [f"journal {FEATURE} entry 2"]


@pytest.mark.demand("X8.f")
def test_a_journal_that_was_cut_off_or_written_anew_is_found_by_its_heads(
    s3: S3Server, prefix: str
) -> None:
    whole, forged = s3.bucket(f"{prefix}/whole"), s3.bucket(f"{prefix}/forged")
    with open_bucket_record(whole) as record:
        record.append(FEATURE, 0, TS, [note("one")])
        record.append(FEATURE, 1, TS, [note("two")])
        record.anchor()
    assert verify_bucket(whole, None).ok, "control"
    heads = whole.get(f"heads/{1:010}")
    assert heads is not None
    forged.create(f"heads/{1:010}", heads.data)
    with open_bucket_record(forged) as record:
        record.append(FEATURE, 0, TS, [note("one")])
    assert "head 1 names" in str(verify_bucket(forged, None).problems)
    assert journal_log(forged, FEATURE).last_page() is not None


def test_a_bucket_that_stays_away_ends_the_wait_with_a_reason(s3: S3Server, prefix: str) -> None:
    with FaultyProxy(s3.port, lambda _: "away") as proxy:
        address = s3.bucket(prefix, proxy.endpoint).address
        bucket = Bucket(address, None, retry_timeout_s=1)
        with (
            open_bucket_record(bucket) as record,
            pytest.raises(TemporarilyUnavailable, match="is unavailable"),
        ):
            record.append(FEATURE, 0, TS, [note("one")])


@pytest.mark.demand("X8.f")
def test_what_heads_told_of_is_read_though_they_were_taken_in_for_something_else(
    s3: S3Server, prefix: str
) -> None:
    mine, theirs = (open_bucket_record(s3.patient_bucket(prefix)) for _ in range(2))
    job = JobRow("001-bye", str(uuid4()), "", "plan", 1, "actor", TS)
    with mine, theirs:
        theirs.append_unconditionally(job.feature, TS, [job_started_event(job)])
        theirs.anchor()
        mine.sync_all_features()
        theirs.append_unconditionally(
            job.feature, TS, [job_ended_event(job._replace(ended=TS, outcome="done"))]
        )
        theirs.anchor()
        mine.anchor()
        pause = Pause()
        for _ in range(60):
            if (row := mine.find_job(job.id)) and row.ended:
                return
            pause.wait(0.2)
    raise AssertionError(
        "it is not seen within twelve seconds, and all journals are looked at once a minute"
    )
