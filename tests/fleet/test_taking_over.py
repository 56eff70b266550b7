"""A worker dies or stands still in the middle of a feature: another one takes it over, with all of its code."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

import pytest

from phasegate.storage.bucket.verify_copy import verify_bucket
from phasegate.storage.rows import RecordedEvent
from support.alike_runs import alike
from support.feature_run import DESCRIPTION, SLUG, TYPE
from support.fleet_machines import BRANCH, Fleet, local_run
from support.git_project import git
from support.s3_server import FaultyProxy, Request, S3Server
from support.temporal_server import TemporalServer

CODE = f"refs/phasegate/fleet/{SLUG}"
OF_THE_RUN = ("step.timed", "notice")


def without_times(events: Sequence[RecordedEvent], *roots: Path) -> list[tuple[str, object]]:
    """What happened, without how long it took and what was told of it."""
    return [one for one in alike(events, *roots) if not one[0].endswith(OF_THE_RUN)]


def ends_an_implementation(request: Request) -> bool:
    """Whether a request records the end of an implementer's job."""
    is_page = request.kind == "create" and f"/journal/{SLUG}/" in request.path
    data = request.data.replace(b"\\", b"")
    return is_page and b'"job-ended"' in data and b'"phase":"implement"' in data


@pytest.mark.demand("X8.j")
def test_a_worker_that_dies_between_implement_and_harvest_is_followed_by_another_and_no_round_is_lost(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    local, first, tree = local_run(tmp_path / "local")
    workers: list[subprocess.Popen[str]] = []
    ended: list[bytes] = []

    def fault(request: Request) -> str:
        """Kill the first worker at its first call after the end of an implementation is on record."""
        if len(workers) == 1 and ended:
            workers[0].kill()
            return "away"
        if ends_an_implementation(request):
            ended.append(request.data)
        return ""

    with FaultyProxy(s3.port, fault) as proxy:
        fleet = Fleet(tmp_path, s3, temporal, prefix, lost_after_s=3, endpoint=proxy.endpoint)
        person, one, other = fleet.machine("person"), fleet.machine("one"), fleet.machine("other")
        assert person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--detach").returncode == 0
        with one.worker() as process:
            workers.append(process)
            assert process.wait(120) == -signal.SIGKILL
        with other.worker() as process:
            workers.append(process)
            done = person.phasegate("run", "--fleet", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    second = fleet.events()
    assert without_times(second, one.root, other.root) == without_times(first, local.root)
    tree.pop("phasegate.toml")
    by_fleet = fleet.tree(second[0].ts)
    by_fleet.pop("phasegate.toml")
    assert by_fleet == tree != {}
    by_one, by_local = (
        {*git(folder, "log", "--format=%an %s", BRANCH).splitlines()}
        for folder in (fleet.remote, local.root)
    )
    assert by_one - {"Test Work as a fleet"} == by_local, "the agents' own commits too"
    assert verify_bucket(s3.bucket(prefix), None).ok


@pytest.mark.demand("X8.j")
def test_a_worker_that_stood_still_pushes_nothing_and_records_nothing_after_another_has_taken_over(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    """It stands still with the end of an implementation in its hands, and goes on when the feature is done."""
    workers: list[subprocess.Popen[str]] = []
    held, thawed = Event(), Event()

    def fault(request: Request) -> str:
        if not held.is_set() and ends_an_implementation(request):
            held.set()
            workers[0].send_signal(signal.SIGSTOP)
            thawed.wait(180)
            return "away"
        return ""

    with FaultyProxy(s3.port, fault) as proxy:
        fleet = Fleet(tmp_path, s3, temporal, prefix, lost_after_s=3, endpoint=proxy.endpoint)
        person, one, other = fleet.machine("person"), fleet.machine("one"), fleet.machine("other")
        assert person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--detach").returncode == 0
        with one.worker() as frozen:
            workers.append(frozen)
            assert held.wait(120)
            with other.worker():
                done = person.phasegate("run", "--fleet", "--json")
                assert done.returncode == 0, done.stdout + done.stderr
            before = fleet.events(), git(fleet.remote, "for-each-ref")
            frozen.send_signal(signal.SIGCONT)
            thawed.set()
            said: list[str] = []
            reader = Thread(target=lambda: said.extend(frozen.stdout or ()), daemon=True)
            reader.start()
            pause = Event()
            for _ in range(300):
                if any("Completing activity as failed" in line for line in said):
                    break
                pause.wait(0.1)
            else:
                raise AssertionError(said)
    assert (fleet.events(), git(fleet.remote, "for-each-ref")) == before
    events = before[0]
    ended = Counter(
        json.loads(event.payload)["id"] for event in events if event.kind == "job.ended"
    )
    started = Counter(
        json.loads(event.payload)["id"] for event in events if event.kind == "job.started"
    )
    assert started == ended
    assert {*ended.values()} == {1}
    assert {"bye.py", "hi.py"} <= {*fleet.tree(events[0].ts)}
    assert verify_bucket(s3.bucket(prefix), None).ok
