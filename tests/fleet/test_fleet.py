"""Features by workers: a real Temporal server, a real S3 server, a real git remote, clones and homes apart."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from threading import Event

import pytest

from phasegate.storage.bucket.verify_copy import verify_bucket
from support.feature_run import DESCRIPTION, TYPE
from support.fleet_machines import Fleet
from support.s3_server import S3Server, find_free_ports
from support.temporal_server import TemporalServer


@pytest.mark.demand("X8.h")
def test_a_feature_ends_though_its_worker_and_the_server_die_again_and_again(
    tmp_path: Path, s3: S3Server, prefix: str, temporal_program: str
) -> None:
    """The worker is killed three times and told to end once; the server dies, and later loses its database too.

    In the end a person stops the feature, and lets it go on.
    """
    temporal = TemporalServer(temporal_program, tmp_path / "temporal")
    temporal.start()
    try:
        fleet = Fleet(tmp_path, s3, temporal, prefix, lost_after_s=4)
        worker, person = fleet.machine("worker"), fleet.machine("person")
        given = person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--detach")
        assert given.returncode == 0, given.stderr
        for number, after in enumerate((20, 45, 70, 95)):
            with worker.worker() as process:
                fleet.wait_for(after, process)
                if number == 0:
                    temporal.kill()
                    Event().wait(6)
                    temporal.start()
                process.send_signal(signal.SIGTERM if number == 2 else signal.SIGKILL)
                process.wait(60)
            if number == 1:
                temporal.kill()
                temporal.forget()
                temporal.start()
                assert person.phasegate("run", "--fleet", "--detach").returncode == 0
        assert person.phasegate("escalate", "Wait for me", "--fleet").returncode == 0
        with worker.worker():
            stopped = person.phasegate("run", "--fleet", "--json")
            assert (stopped.returncode, json.loads(stopped.stdout)["stage"]) == (1, "blocked"), (
                stopped.stderr
            )
            assert person.phasegate("resolve", "Go on", "--fleet").returncode == 0
            done = person.phasegate("run", "--fleet")
            assert done.returncode == 0, done.stdout + done.stderr
    finally:
        temporal.kill()
    events = fleet.events()
    started = Counter(json.loads(one.payload)["id"] for one in events if one.kind == "job.started")
    ended = Counter(json.loads(one.payload)["id"] for one in events if one.kind == "job.ended")
    assert started == ended, "each job is started and ended once on record"
    assert {*started.values()} == {1}
    report = verify_bucket(s3.bucket(prefix), None)
    assert (report.ok, report.entries) == (True, len(events)), report
    tree = fleet.tree(events[0].ts)
    assert {"bye.py", "hi.py"} <= {*tree}


@pytest.mark.demand("X8.h")
def test_a_fleet_that_is_not_there_is_said_in_plain_words(
    tmp_path: Path, s3: S3Server, prefix: str
) -> None:
    (port,) = find_free_ports(1)
    nowhere = TemporalServer.__new__(TemporalServer)
    nowhere.address = f"127.0.0.1:{port}"
    fleet = Fleet(tmp_path, s3, nowhere, prefix)
    person = fleet.machine("person")
    refused = person.phasegate("run", TYPE, DESCRIPTION, "--fleet")
    assert refused.returncode == 3, refused.stderr
    assert "does not respond" in refused.stderr
    with person.start_worker() as process:
        assert process.stdout is not None
        waits = process.stdout.readline()
        assert "waiting for the server" in waits, "a worker may be started before its server"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, "and ends at once if it is asked to"
    assert person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--step").returncode == 2
    assert fleet.events() == [], "nothing was started"
