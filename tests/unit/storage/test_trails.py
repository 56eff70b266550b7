"""Writing trails: one file a job, durable together, small in memory and on disk."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phasegate.core.audit.trail import Action, Source, TrailEvent
from phasegate.errors import EnvironmentUnavailable, StateConflict
from phasegate.interfaces.cli.main import run_command
from phasegate.storage import group_commit, trail_log
from phasegate.storage import trails as trails_module
from phasegate.storage.group_commit import GroupCommit, _make_held_lock
from phasegate.storage.journal_store import Store
from phasegate.storage.location import Location
from phasegate.storage.row_events import job_ended_event, job_started_event, trail_sealed_event
from phasegate.storage.rows import JobRow
from phasegate.storage.trail_reader import list_trails
from phasegate.storage.trail_recovery import TrailRecovery, recover_trails
from phasegate.storage.trails import TrailWriter
from phasegate.storage.verify_audit import verify_audit
from support.record import (
    FEATURE,
    TS,
    entries_of,
    make_record,
    make_repository,
    open_record,
    run_job,
    trail_of,
    wrote,
)


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return make_repository(tmp_path)


def begin(store: Store, trails: TrailWriter, job: str) -> None:
    store.append_unconditionally(
        FEATURE, TS, [job_started_event(JobRow(FEATURE, job, "WP01", "06", 1, "x", TS))]
    )
    trails.open(FEATURE, job)


def end(store: Store, trails: TrailWriter, job: str) -> None:
    store.append_unconditionally(FEATURE, TS, [trail_sealed_event(trails.close(job))])
    trails.forget(job)


@pytest.mark.demand("D13.c")
def test_a_trail_is_kept_by_feature_and_job(location: Location) -> None:
    make_record(location, trail_lines=3)
    path = location.root / ".phasegate" / "audit" / FEATURE / "job-a.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [entry["path"] for entry in entries] == ["src/0.py", "src/1.py", "src/2.py"]
    assert {entry["job"] for entry in entries} == {"job-a"}


def test_entries_of_many_threads_share_their_fsyncs(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = 0
    real = trail_log.write_durably

    def counted(descriptor: int, data: bytes, position: int) -> None:
        nonlocal synced
        synced += 1
        real(descriptor, data, position)

    with (
        open_record(location) as store,
        TrailWriter.create(location, store.heads.folder, "w") as trails,
    ):
        jobs = [f"job-{number}" for number in range(8)]
        for job in jobs:
            store.append_unconditionally(
                FEATURE, TS, [job_started_event(JobRow(FEATURE, job, "WP01", "06", 1, "x", TS))]
            )
            trails.open(FEATURE, job)

        def work(job: str) -> None:
            for number in range(50):
                trails.append_entry(job, TS, wrote("a.py", number))

        monkeypatch.setattr(trail_log, "write_durably", counted)
        workers = [threading.Thread(target=work, args=(job,)) for job in jobs]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert 50 <= synced < 400 / 2.5, "one fsync an entry would be 400"
    for job in jobs:
        assert [entry["lines"] for entry in entries_of(location, job)] == [*range(50)]
    assert verify_audit(location).ok


def test_where_no_call_writes_and_waits_at_once_the_log_is_synced_by_another(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an old kernel, or in a sandbox that stands in for one."""
    real, synced = os.pwritev, []

    def without_flags(descriptor: int, buffers: list[bytes], position: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(descriptor, buffers, position)

    with (
        open_record(location) as store,
        TrailWriter.create(location, store.heads.folder, "w") as trails,
    ):
        store.append_unconditionally(
            FEATURE, TS, [job_started_event(JobRow(FEATURE, "job-a", "WP01", "06", 1, "x", TS))]
        )
        trails.open(FEATURE, "job-a")
        monkeypatch.setattr(os, "pwritev", without_flags)
        monkeypatch.setattr(os, "fsync", synced.append)
        trails.append_entry("job-a", TS, wrote("a.py", 1))
        monkeypatch.undo()
    assert len(synced) == 1
    assert verify_audit(location).ok
    assert len(entries_of(location)) == 1


class Written:
    """Takes batches; fails the first so many times."""

    def __init__(self, failures: int = 0) -> None:
        self.batches: list[list[int]] = []
        self.failures = failures

    def __call__(self, items: list[int]) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(28, "No space left on device")
        self.batches.append(items)


def test_a_lone_thread_does_not_wait_for_others() -> None:
    written = Written()
    commit = GroupCommit(written)
    for number in range(5):
        commit.submit(number)
    assert written.batches == [[0], [1], [2], [3], [4]]


def test_after_a_failed_write_nothing_claims_to_be_durable() -> None:
    written = Written(failures=1)
    commit = GroupCommit(written)
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            commit.submit(1)
    assert written.batches == []


def test_after_a_crowd_a_lone_thread_waits_a_moment_and_not_for_ever() -> None:
    written, together = Written(), threading.Barrier(8)
    commit = GroupCommit(written)

    def come(number: int) -> None:
        together.wait()
        commit.submit(number)

    crowd = [threading.Thread(target=come, args=(number,)) for number in range(8)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    commit.submit(8)
    assert sorted(number for batch in written.batches for number in batch) == [*range(9)]
    assert written.batches[-1] == [8]


def test_an_interrupted_thread_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the first of its batch, so the one that looks at the clock; another comes while it is interrupted."""
    began, interrupted, batches = threading.Event(), threading.Event(), []
    waits = threading.Event()

    class Gate:
        """A lock that says when somebody waits at it."""

        def __init__(self) -> None:
            self.lock = _make_held_lock()
            self.release, self.locked = self.lock.release, self.lock.locked

        def acquire(self, timeout: float = -1) -> bool:
            waits.set()
            return self.lock.acquire(timeout=timeout)

    def slow(items: list[int]) -> None:
        began.set()
        interrupted.wait(30)
        batches.append(items)

    def interrupt(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    commit = GroupCommit(slow)
    others = [threading.Thread(target=commit.submit, args=(number,)) for number in (0, 2)]
    others[0].start()
    began.wait()
    monkeypatch.setattr(group_commit, "_make_held_lock", Gate)
    before = signal.signal(signal.SIGINT, interrupt)
    try:

        def come_between() -> None:
            waits.wait()
            # A signal that comes just before the lock is waited for does not interrupt the wait
            while not interrupted.is_set():
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                interrupted.wait(0.05)
            others[1].start()

        between = threading.Thread(target=come_between)
        between.start()
        with pytest.raises(KeyboardInterrupt):
            commit.submit(1)
    finally:
        signal.signal(signal.SIGINT, before)
    for thread in (between, *others):
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert [number for batch in batches for number in batch] == [0, 1, 2]


def test_an_entry_that_cannot_be_made_harms_no_other(location: Location) -> None:
    with (
        open_record(location) as store,
        TrailWriter.create(location, store.heads.folder, "w") as trails,
    ):
        store.append_unconditionally(
            FEATURE, TS, [job_started_event(JobRow(FEATURE, "job-a", "WP01", "06", 1, "x", TS))]
        )
        trails.open(FEATURE, "job-a")
        with pytest.raises(ValueError, match="belongs to every entry"):
            trails.append_entry(
                "job-a", TS, TrailEvent("x", Action.NOTICE, Source.OBSERVED, {"prev": "y"})
            )
        trails.append_entry("job-a", TS, wrote("a.py", 1))
    assert len(entries_of(location)) == 1


def test_the_log_outside_forgets_closed_trails(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trails_module, "LOG_REWRITE_THRESHOLD_BYTES", 4000)
    with (
        open_record(location) as store,
        TrailWriter.create(location, store.heads.folder, "w") as trails,
    ):
        begin(store, trails, "open")
        trails.append_entry("open", TS, wrote("a.py", 0))
        for job in (f"job-{number}" for number in range(6)):
            begin(store, trails, job)
            for number in range(20):
                trails.append_entry(job, TS, wrote("a.py", number))
            end(store, trails, job)
            assert verify_audit(location).ok
        (log,) = store.heads.folder.glob("open-trails-*.log")
        assert log.read_bytes().count(b"\t") < 5
        assert len(entries_of(location, "open")) == 1
        trails.append_entry("open", TS, wrote("a.py", 1))
        assert len(entries_of(location, "open")) == 2, (
            "the log is written to after it was begun anew"
        )
        end(store, trails, "open")
    assert verify_audit(location).ok
    assert list(store.heads.folder.glob("open-trails-*")) == []


def test_what_a_power_failure_left_behind_a_hole_in_the_log_was_never_acknowledged(
    location: Location,
) -> None:
    with open_record(location) as store:
        store.append_unconditionally(
            FEATURE, TS, [job_started_event(JobRow(FEATURE, "job-a", "WP01", "06", 1, "x", TS))]
        )
        with TrailWriter.create(location, store.heads.folder, "w") as trails:
            trails.open(FEATURE, "job-a")
            trails.append_entry("job-a", TS, wrote("a.py", 1))
            (log,) = store.heads.folder.glob("open-trails-*.log")
            data = bytearray(log.read_bytes())
            end = data.index(b"\0")
            data[end + 4096 : end + 4100] = b"zz\n+"
        log.write_bytes(data)
        assert verify_audit(location).ok
        assert recover_trails(store, location, "r", TS) == [TrailRecovery(FEATURE, "job-a", 1)]
    assert verify_audit(location).ok
    assert [json.loads(line)["action"] for line in trail_of(location).read_text().splitlines()] == [
        "write_file",
        "recovered",
    ]


def test_a_job_has_one_trail(location: Location) -> None:
    with open_record(location) as store:
        run_job(location, store, "job-a", 1)
        with (
            TrailWriter.create(location, store.heads.folder, "w") as trails,
            pytest.raises(StateConflict, match="exists"),
        ):
            trails.open(FEATURE, "job-a")


def test_an_open_trail_is_no_file_yet_and_is_shown_all_the_same(location: Location) -> None:
    with (
        open_record(location) as store,
        TrailWriter.create(location, store.heads.folder, "w") as trails,
    ):
        begin(store, trails, "job-a")
        trails.append_entry("job-a", TS, wrote("a.py", 1))
        assert not trail_of(location).exists()
        assert [trail.entries for trail in list_trails(location)] == [1]
        assert verify_audit(location).trails == 1
        end(store, trails, "job-a")
    assert trail_of(location).read_bytes().count(b"\n") == 1


@pytest.mark.demand("D13.c", "D13.h")
def test_a_closed_trail_is_opened_again_for_what_is_found_out_later(location: Location) -> None:
    with open_record(location) as store:
        run_job(location, store, "job-a", 2)
        with TrailWriter.create(location, store.heads.folder, "later") as trails:
            (seal,) = store.seals()
            trails.reopen(seal)
            trails.append_entry("job-a", TS, wrote("later.py", 3))
            assert verify_audit(location).ok, "while it is open, the file is as it was sealed"
            assert len(entries_of(location)) == 3
            again = trails.close("job-a")
            assert verify_audit(location).ok, "exported, and not sealed again yet"
            store.append_unconditionally(FEATURE, TS, [trail_sealed_event(again)])
            trails.forget("job-a")
        assert verify_audit(location).ok
        assert store.seals() == [again]
        assert again.lines == 3
    older = b"".join(trail_of(location).read_bytes().splitlines(keepends=True)[:2])
    trail_of(location).write_bytes(older)
    assert "line 3" in verify_audit(location).problems[0].where, (
        "the file of the first seal does not pass for the second"
    )


@pytest.mark.demand("D13.h")
def test_a_closed_trail_that_was_changed_is_not_opened_again(location: Location) -> None:
    with open_record(location) as store:
        run_job(location, store, "job-a", 2)
        path = trail_of(location)
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
        not_that = pytest.raises(StateConflict, match="was changed after it was closed")
        with TrailWriter.create(location, store.heads.folder, "later") as trails, not_that:
            trails.reopen(store.seals()[0])


@pytest.mark.demand("W5.a")
@pytest.mark.parametrize("exported", [False, True])
def test_a_trail_that_was_open_again_at_a_crash_is_closed_once_more(
    location: Location, exported: bool
) -> None:
    with open_record(location) as store:
        run_job(location, store, "job-a", 2)
        with TrailWriter.create(location, store.heads.folder, "later") as trails:
            trails.reopen(store.seals()[0])
            trails.append_entry("job-a", TS, wrote("later.py", 3))
            if exported:
                trails.close("job-a")
        assert verify_audit(location).ok
        assert recover_trails(store, location, "r", TS) == [TrailRecovery(FEATURE, "job-a", 3)]
        assert recover_trails(store, location, "r2", TS) == []
        assert [seal.lines for seal in store.seals()] == [4]
    assert verify_audit(location).ok


def test_a_trail_that_was_sealed_and_not_forgotten_is_left_as_it_is(location: Location) -> None:
    with open_record(location) as store:
        with TrailWriter.create(location, store.heads.folder, "w") as trails:
            begin(store, trails, "job-a")
            trails.append_entry("job-a", TS, wrote("a.py", 1))
            store.append_unconditionally(FEATURE, TS, [trail_sealed_event(trails.close("job-a"))])
        assert recover_trails(store, location, "r", TS) == []
        assert list(store.heads.folder.glob("open-trails-*")) == []
    assert len(entries_of(location)) == 1
    assert verify_audit(location).ok


@pytest.mark.parametrize("kind", ["pipe", "link", "file"])
def test_what_stands_in_the_place_of_a_trail_is_neither_opened_nor_replaced(
    location: Location, kind: str
) -> None:
    with open_record(location) as store:
        with TrailWriter.create(location, store.heads.folder, "w") as trails:
            begin(store, trails, "job-p")
            trails.append_entry("job-p", TS, wrote("a.py", 2))
            path = trail_of(location, "job-p")
            path.parent.mkdir()
            match kind:
                case "pipe":
                    os.mkfifo(path)
                case "link":
                    path.symlink_to(location.root / "elsewhere")
                case _:
                    path.write_bytes(b"x\n")
            with pytest.raises(StateConflict, match="was not written by Phasegate"):
                trails.close("job-p")
        (found,) = recover_trails(store, location, "r", TS)
        assert "its file was not written by Phasegate" in found.problem
        assert not verify_audit(location).ok
        path.unlink()
        (found,) = recover_trails(store, location, "r2", TS)
        assert (found.entries, found.problem) == (1, "")
    assert verify_audit(location).ok
    assert not (location.root / "elsewhere").exists()


@pytest.mark.demand("D13.c")
def test_a_link_in_the_place_of_a_feature_folder_leads_nowhere(
    location: Location, tmp_path: Path
) -> None:
    with (
        open_record(location) as store,
        TrailWriter.create(location, store.heads.folder, "w") as trails,
    ):
        begin(store, trails, "job-a")
        (tmp_path / "elsewhere").mkdir()
        (location.trails_folder / FEATURE).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(EnvironmentUnavailable, match="cannot be written"):
            trails.close("job-a")
        assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_trail_whose_log_was_lost_is_missed(location: Location) -> None:
    with open_record(location) as store:
        with TrailWriter.create(location, store.heads.folder, "w") as trails:
            begin(store, trails, "job-c")
            trails.append_entry("job-c", TS, wrote("a.py", 1))
        for log in store.heads.folder.glob("open-trails-*"):
            log.unlink()
        assert recover_trails(store, location, "r", TS) == []
        ended = JobRow(FEATURE, "job-c", "WP01", "06", 1, "x", TS, TS, "lost")
        store.append_unconditionally(FEATURE, TS, [job_ended_event(ended)])
    assert "job-c has no trail" in verify_audit(location).notes[0]


def test_a_trail_whose_log_was_lost_after_its_export_is_closed_as_unwitnessed(
    location: Location,
) -> None:
    with open_record(location) as store:
        with TrailWriter.create(location, store.heads.folder, "w") as trails:
            begin(store, trails, "job-c")
            trails.append_entry("job-c", TS, wrote("a.py", 1))
            trails.close("job-c")
        for log in store.heads.folder.glob("open-trails-*"):
            log.unlink()
        assert "neither the journal nor the external log" in verify_audit(location).problems[0].why
        assert recover_trails(store, location, "r", TS) == [TrailRecovery(FEATURE, "job-c", 1)]
    report = verify_audit(location)
    assert report.ok
    assert "unwitnessed" in report.notes[0]


def test_the_trails_are_shown(
    location: Location, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_record(location, trail_lines=2)
    monkeypatch.chdir(location.root)
    monkeypatch.setenv("XDG_STATE_HOME", str(location.state_home.parent))
    assert run_command(["audit", "show"]) == 0
    assert (
        f"{FEATURE}/job-a  WP01, 06-implementation, round 1, claude, running  2 entries"
        in capsys.readouterr().out
    )
    assert run_command(["audit", "show", "--feature", "002-none", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"trails": []}
    assert run_command(["audit", "show", "--job", "job-a"]) == 0
    assert (
        f"{TS}  agent:claude-code  write_file       src/0.py lines 0  (observed)"
        in capsys.readouterr().out
    )
    assert run_command(["audit", "show", "--job", "job-", "--json"]) == 2
    assert "2 trails begin" in capsys.readouterr().err
    assert run_command(["audit", "show", "--chain", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["chain"][0]["payload"] == {"number": 0}


def test_what_is_shown_cannot_command_a_terminal(
    location: Location, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        open_record(location) as store,
        TrailWriter.create(location, store.heads.folder, "w") as trails,
    ):
        store.append_unconditionally(
            FEATURE,
            TS,
            [job_started_event(JobRow(FEATURE, "job-t", "WP01", "06", 1, "x\x1b[2J", TS))],
        )
        trails.open(FEATURE, "job-t")
        trails.append_entry("job-t", TS, wrote("a\x1b]0;owned\x07\x9b2J\r.py", 1))
        end(store, trails, "job-t")
    trail_of(location, "job-t").write_bytes(
        trail_of(location, "job-t").read_bytes() + b"\x1b[31mtorn \xff"
    )
    monkeypatch.chdir(location.root)
    for arguments in (["--job", "job-t"], ["--chain"], []):
        assert run_command(["audit", "show", *arguments]) == 0
        shown = capsys.readouterr().out
        assert shown.replace("\n", "").isprintable()


@pytest.mark.demand("D13.c")
def test_a_full_disk_in_the_middle_of_an_entry_leaves_a_log_that_the_next_process_can_read(
    location: Location,
) -> None:
    """What was not acknowledged is taken away: another job's end would be written into the middle of it."""
    with (
        open_record(location) as store,
        TrailWriter.create(location, store.heads.folder, "w") as trails,
    ):
        for job in ("a", "b"):
            store.append_unconditionally(
                FEATURE, TS, [job_started_event(JobRow(FEATURE, job, "WP01", "06", 1, "x", TS))]
            )
            trails.open(FEATURE, job)
            trails.append_entry(job, TS, wrote("a.py", 0))
        seal = trails.close("b")
        (log,) = store.heads.folder.glob("open-trails-*.log")
        filled = log.stat().st_size
        with full_beyond(filled + 200), pytest.raises(EnvironmentUnavailable):
            write_on(trails, "a")
        cut = log.stat().st_size
        store.append_unconditionally(FEATURE, TS, [trail_sealed_event(seal)])
        trails.forget("b")
    assert cut < filled  # the control: it was the write beyond the end that failed
    with open_record(location) as store:
        (found,) = recover_trails(store, location, "next", TS)
    assert (found.job, found.problem) == ("a", "")
    assert verify_audit(location).problems == ()


def write_on(trails: TrailWriter, job: str) -> None:
    while True:
        trails.append_entry(job, TS, wrote("a.py", 1))


@contextmanager
def full_beyond(size: int) -> Iterator[None]:
    """No file can grow beyond this size meanwhile: a write over the edge is cut off there, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
