"""The record of one machine, copied to a bucket: whole and in order, whatever happens on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree
from threading import Event, Thread
from time import monotonic

import pytest

from phasegate.engine.project.local_services import FileDocumentStore
from phasegate.errors import EnvironmentUnavailable, StateConflict, TemporarilyUnavailable
from phasegate.storage.bucket.client import Bucket, BucketAddress
from phasegate.storage.bucket.copier import BucketCopier, chain_log
from phasegate.storage.bucket.numbered_log import decode_entries
from phasegate.storage.bucket.verify_copy import verify_bucket
from phasegate.storage.location import Location
from phasegate.storage.reader import open_store_reader
from phasegate.storage.row_events import trail_sealed_event
from phasegate.storage.rows import NewEvent as Recordable
from phasegate.storage.trails import TrailWriter
from phasegate.storage.verify_audit import verify_audit
from support.feature_run import DESCRIPTION, SLUG, TYPE, make_feature_run
from support.record import (
    FEATURE,
    STORE_ID,
    TS,
    append_numbers,
    make_record,
    make_repository,
    open_record,
    run_job,
    trail_of,
    wrote,
)
from support.s3_server import BUCKET, KEYS, FaultyProxy, Request, S3Server

KINDS = ("list", "get", "create", "replace")
PATIENCE_S = 90.0


def copy_all(location: Location, bucket: Bucket, by: str = "a copier") -> None:
    """Copy with patience; an outage that never ends fails the test."""
    until_s, pause = monotonic() + PATIENCE_S, Event()
    reader = open_store_reader(location)
    assert reader is not None
    with reader:
        copier = BucketCopier(location, reader, bucket, by)
        while True:
            try:
                if not copier.copy_next_page():
                    return
            except TemporarilyUnavailable:
                assert monotonic() < until_s
                pause.wait(0.1)


def reseal(location: Location, job: str = "job-a") -> None:
    """What is found out later about a job is added to its trail, which is sealed anew."""
    with (
        open_record(location) as store,
        TrailWriter.create(location, store.heads.folder, "later") as trails,
    ):
        seal = store.find_seal(job)
        assert seal is not None
        trails.reopen(seal)
        trails.append_entry(job, TS, wrote("src/later.py", 1))
        store.append_unconditionally(FEATURE, TS, [trail_sealed_event(trails.close(job))])
        trails.forget(job)


def keep_paper(location: Location, text: str) -> str:
    paper = FileDocumentStore(location.data_folder).put(text.encode())
    with open_record(location) as store:
        store.append_unconditionally(
            FEATURE, TS, [Recordable("noted", json.dumps({"evidence": paper}).encode())]
        )
    return paper


def phasegate(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_STATE_HOME": str(folder.parent / "state"), **variables}
    command = [sys.executable, "-m", "phasegate", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.demand("D13.d", "X8.a", "X8.b")
def test_a_run_is_in_the_bucket_when_it_has_ended_and_verifies_from_any_machine(
    tmp_path: Path, s3: S3Server, prefix: str
) -> None:
    run = make_feature_run(tmp_path / "here")
    config = run.root / "phasegate.toml"
    storage = f'[storage]\nurl = "s3://{BUCKET}/{prefix}"\nendpoint = "{s3.endpoint}"\n'
    config.write_text(config.read_text() + storage)
    run.git("commit", "-q", "-am", "Copy the record")
    canary = "canary-7d1c-of-nobody"
    done = phasegate(run.root, "run", TYPE, DESCRIPTION, "--merge", MY_SECRET_TOKEN=canary)
    assert done.returncode == 0, done.stderr
    bucket = s3.bucket(prefix)
    folder = run.root / ".phasegate"
    local = {
        path.relative_to(folder).as_posix(): path for path in (folder / "audit").rglob("*.jsonl")
    }
    assert {*bucket.list_paths("audit")} == {*local}, (
        "named as the interface specification names them"
    )
    assert len(local) > 5
    for name, path in local.items():
        found = bucket.get(name)
        assert found is not None
        assert found.data == path.read_bytes()
    papers = bucket.list_paths("papers")
    assert papers
    names = (*local, *papers, *bucket.list_paths("chain"))
    everything = b"".join(found.data for name in names if (found := bucket.get(name)))
    for secret in (canary, KEYS[1]):
        assert secret.encode() not in everything
    here = phasegate(run.root, "audit", "verify", "--remote", "--json")
    assert here.returncode == 0, here.stdout + here.stderr
    elsewhere = tmp_path / "another machine"
    elsewhere.mkdir()
    settings = {
        "PHASEGATE_STORAGE__URL": f"s3://{BUCKET}/{prefix}",
        "PHASEGATE_STORAGE__ENDPOINT": s3.endpoint,
    }
    there = phasegate(elsewhere, "audit", "verify", "--remote", "--json", **settings)
    assert there.returncode == 0, there.stdout + there.stderr
    assert json.loads(there.stdout) == json.loads(here.stdout)
    assert json.loads(there.stdout)["trails"] == len(local)
    assert json.loads(phasegate(run.root, "audit", "push", "--json").stdout)["waiting"] == 0
    assert SLUG in next(iter(local))


@pytest.mark.demand("X8.b")
def test_every_change_in_the_bucket_is_found(tmp_path: Path, s3: S3Server, prefix: str) -> None:
    location = make_repository(tmp_path)
    make_record(location)
    paper = keep_paper(location, "evidence\n")
    bucket = s3.bucket(prefix)
    copy_all(location, bucket)
    assert verify_bucket(bucket, None).ok, "control: as it was copied it verifies"
    trail, page = f"audit/{FEATURE}/job-a.jsonl", f"chain/{STORE_ID}/{1:010}"
    attacks: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
        "a line of a trail": (trail, lambda data: data.replace(b"src/1.py", b"src/9.py")),
        "a line more": (trail, lambda data: data + data.splitlines(keepends=True)[-1]),
        "a line less": (trail, lambda data: b"".join(data.splitlines(keepends=True)[:-1])),
        "a paper": (f"papers/{paper}", lambda data: data + b"forged\n"),
        "an entry": (page, lambda data: data.replace(b'{\\"number\\": 3}', b'{\\"number\\": 4}')),
        "no page": (page, lambda _: b"{}"),
    }
    for what, (name, change) in attacks.items():
        found = bucket.get(name)
        assert found is not None
        assert change(found.data) != found.data
        assert bucket.replace(name, change(found.data), found.etag)
        report = verify_bucket(bucket, None)
        assert not report.ok, what
        changed = bucket.get(name)
        assert changed is not None
        assert bucket.replace(name, found.data, changed.etag)
    assert verify_bucket(bucket, None).ok, "control: undone it verifies again"
    assert not verify_bucket(s3.bucket(f"{prefix}-none"), None).ok, "nothing there is a no"


@pytest.mark.demand("X8.b")
def test_an_older_copy_put_back_everywhere_on_the_machine_is_found_by_the_bucket(
    tmp_path: Path, s3: S3Server, prefix: str
) -> None:
    location = make_repository(tmp_path / "machine")
    make_record(location)
    copytree(tmp_path / "machine", tmp_path / "older")
    with open_record(location) as store:
        append_numbers(store, range(3))
        store.anchor()
    bucket = s3.bucket(prefix)
    copy_all(location, bucket)
    assert verify_bucket(bucket, location).ok
    rmtree(tmp_path / "machine")
    copytree(tmp_path / "older", tmp_path / "machine")
    control = verify_audit(location)
    assert control.ok, "control: store, heads and git ref agree with each other"
    report = verify_bucket(bucket, location)
    assert [problem.where for problem in report.problems] == [f"entry {control.entries + 1}"]
    with open_record(location) as store:
        append_numbers(store, range(100, 120))
    before = {name: bucket.get(name) for name in bucket.list_paths("chain")}
    with pytest.raises(StateConflict, match="a different history"):
        copy_all(location, bucket)
    assert {name: bucket.get(name) for name in bucket.list_paths("chain")} == before, (
        "nothing was written over"
    )


@pytest.mark.demand("X8.c")
def test_an_outage_of_ten_seconds_at_each_kind_of_call_loses_nothing(
    tmp_path: Path, s3: S3Server, prefix: str
) -> None:
    """Each kind of call fails from its first time on for ten seconds; the four at once, each with its own copy."""
    problems: list[str] = []

    def endure(kind: str) -> None:
        location = make_repository(tmp_path / kind)
        make_record(location)
        began: list[float] = []

        def fault(request: Request) -> str:
            if request.kind != kind:
                return ""
            began[:] = began or [monotonic()]
            return "away" if monotonic() - began[0] < 10 else ""

        with FaultyProxy(s3.port, fault) as proxy:
            bucket = s3.bucket(f"{prefix}/{kind}", proxy.endpoint)
            first = s3.bucket(f"{prefix}/{kind}")
            copy_all(location, first)  # so that there is something to be replaced, and to be read
            reseal(location)
            copy_all(location, bucket)
            with open_record(location) as store:
                run_job(location, store, "job-c", 3)
            first.create(
                f"audit/{FEATURE}/job-c.jsonl", b""
            )  # an answer that got lost: it is read, and replaced
            copy_all(location, bucket)
            report = verify_bucket(first, location)
            if not report.ok or report.notes or not proxy.count("away").get(kind):
                problems.append(f"{kind}: {report} {proxy.seen}")

    threads = [Thread(target=endure, args=(kind,)) for kind in KINDS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


@pytest.mark.demand("X8.c")
def test_lost_answers_double_nothing(tmp_path: Path, s3: S3Server, prefix: str) -> None:
    """Every call of every kind is carried out once without that we hear of it."""
    location = make_repository(tmp_path)
    make_record(location)
    lost: set[tuple[str, str]] = set()

    def fault(request: Request) -> str:
        if (request.kind, request.path) in lost:
            return ""
        lost.add((request.kind, request.path))
        return "lost"

    with FaultyProxy(s3.port, fault) as proxy:
        bucket = s3.bucket(prefix, proxy.endpoint)
        copy_all(location, bucket)
        reseal(location)
        copy_all(location, bucket)
        assert {*proxy.count("lost")} == {*KINDS}
    direct = s3.bucket(prefix)
    report = verify_bucket(direct, location)
    assert (report.ok, report.notes) == (True, ())
    pages = [decode_entries(kept) for kept in chain_log(direct, STORE_ID).pages_after()]
    positions = [entry.position for page in pages for entry in page.entries]
    assert positions == [*range(1, len(positions) + 1)]
    found = direct.get(f"audit/{FEATURE}/job-a.jsonl")
    assert found is not None
    assert found.data == trail_of(location).read_bytes()


@pytest.mark.demand("X8.c")
def test_a_copier_that_is_killed_at_any_call_is_followed_by_one_that_goes_on(
    tmp_path: Path, s3: S3Server, prefix: str
) -> None:
    location = make_repository(tmp_path)
    make_record(location)
    keep_paper(location, "evidence\n")
    copy_all(location, s3.bucket(prefix))
    reseal(location)
    keep_paper(location, "more evidence\n")
    started: list[subprocess.Popen[bytes]] = []
    calls, kills = 0, 0

    def fault(_: Request) -> str:
        """Kill whoever asks, at its first call, then at its second, ...: before the call and behind it in turn."""
        nonlocal calls
        calls += 1
        if calls <= kills // 2:
            return ""
        started[-1].kill()
        return "away" if kills % 2 else "lost"

    with FaultyProxy(s3.port, fault) as proxy:
        settings = {
            "PHASEGATE_STORAGE__URL": f"s3://{BUCKET}/{prefix}",
            "PHASEGATE_STORAGE__ENDPOINT": proxy.endpoint,
        }
        while True:
            calls = 0
            environment = {
                **os.environ,
                **settings,
                "XDG_STATE_HOME": str(location.state_home.parent),
            }
            command = [sys.executable, "-m", "phasegate", "audit", "push"]
            started.append(
                subprocess.Popen(
                    command, cwd=location.root, env=environment, stdout=subprocess.DEVNULL
                )
            )
            if (code := started[-1].wait(120)) == 0:
                break
            assert code == -signal.SIGKILL
            kills += 1
    assert kills > 6
    report = verify_bucket(s3.bucket(prefix), location)
    assert (report.ok, report.notes) == (True, ())


@pytest.mark.demand("X8.c")
def test_two_copiers_at_once_copy_everything_once(
    tmp_path: Path, s3: S3Server, prefix: str
) -> None:
    location = make_repository(tmp_path)
    make_record(location)
    finished = Event()

    def copy(by: str) -> None:
        while not finished.is_set():
            copy_all(location, s3.bucket(prefix), by)
        copy_all(location, s3.bucket(prefix), by)

    threads = [Thread(target=copy, args=(f"copier {number}",)) for number in range(2)]
    for thread in threads:
        thread.start()
    for number in range(10):
        with open_record(location) as store:
            append_numbers(store, range(5))
            run_job(location, store, f"job-{number}", 2)
        reseal(location)
    finished.set()
    for thread in threads:
        thread.join()
    direct = s3.bucket(prefix)
    report = verify_bucket(direct, location)
    assert (report.ok, report.notes, report.trails) == (True, (), 12)
    pages = [*chain_log(direct, STORE_ID).pages_after()]
    positions = [entry.position for kept in pages for entry in decode_entries(kept).entries]
    assert positions == [*range(1, report.entries + 1)]


@pytest.mark.demand("X8.c")
def test_a_server_that_dies_for_ten_seconds_is_waited_for(tmp_path: Path, s3_program: str) -> None:
    """Its own server: killed as by a power failure, and down for ten seconds before a copy goes on."""
    server = S3Server(s3_program, tmp_path / "s3")
    location = make_repository(tmp_path / "here")
    make_record(location)
    server.start()
    try:
        server.wait_until_ready()
        copy_all(location, server.bucket("mine"))
        server.kill()
        with open_record(location) as store:
            run_job(location, store, "job-c", 4)
        reseal(location)
        copying = Thread(target=copy_all, args=(location, server.bucket("mine")))
        copying.start()
        Event().wait(10)
        assert copying.is_alive(), "control: nothing can be copied while it is away"
        server.start()
        copying.join()
        report = verify_bucket(server.bucket("mine"), location)
        assert (report.ok, report.notes, report.trails) == (True, (), 3)
    finally:
        server.kill()


@pytest.mark.demand("X8.d")
def test_a_bucket_that_is_away_or_refuses_stops_nobody(
    tmp_path: Path, s3: S3Server, prefix: str
) -> None:
    run = make_feature_run(tmp_path / "here")
    config = run.root / "phasegate.toml"
    with FaultyProxy(s3.port, lambda _: "away") as proxy:
        storage = f'[storage]\nurl = "s3://{BUCKET}/{prefix}"\nendpoint = "{proxy.endpoint}"\n'
        config.write_text(config.read_text() + storage)
        run.git("commit", "-q", "-am", "Copy the record")
        done = phasegate(run.root, "run", TYPE, DESCRIPTION, "--merge")
        assert done.returncode == 0, done.stderr
        assert "phasegate audit push" in done.stderr
        waiting = phasegate(run.root, "audit", "push", "--wait", "0", "--json")
        assert waiting.returncode == 1
        left = json.loads(waiting.stdout)["waiting"]
        assert left > 50
        refused = phasegate(run.root, "audit", "verify", "--remote")
        assert refused.returncode == 3
        assert "is unavailable" in refused.stderr
        proxy.fault = lambda _: ""
        pushed = phasegate(run.root, "audit", "push", "--json")
        assert (pushed.returncode, json.loads(pushed.stdout)["copied"]) == (0, left)
        assert phasegate(run.root, "audit", "verify", "--remote").returncode == 0
    wrong = phasegate(
        run.root,
        "audit",
        "push",
        PHASEGATE_STORAGE__ENDPOINT=s3.endpoint,
        AWS_SECRET_ACCESS_KEY="wrong",
    )
    assert wrong.returncode == 3
    assert "check the secret key" in wrong.stderr


def test_no_bucket_is_not_an_empty_bucket(s3: S3Server) -> None:
    bucket = Bucket(BucketAddress(s3.endpoint, "there-is-no-such-bucket", "", "us-east-1"), KEYS)
    with pytest.raises(EnvironmentUnavailable, match="NoSuchBucket"):
        bucket.get("x")
