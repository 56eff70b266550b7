"""A fleet seen from a machine that is no part of it: the bucket is enough, and the server tells who is at work."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest

from fleet.test_replay import replayed_and_kept
from phasegate.errors import StateConflict
from phasegate.storage.bucket.client import Bucket
from phasegate.storage.bucket.journal import BucketStore
from phasegate.storage.bucket.numbered_log import Page
from phasegate.storage.location import Location
from phasegate.storage.row_events import workflow_changed_event
from phasegate.storage.rows import NewEvent as Recordable
from phasegate.storage.rows import WorkflowRow
from phasegate.typed import read_json
from support.board_client import BoardClient
from support.feature_run import DESCRIPTION, SLUG, TYPE
from support.fleet_machines import Fleet, Machine
from support.record import TS
from support.s3_server import S3Server, find_free_ports
from support.temporal_server import TemporalServer


def status(machine: Machine) -> dict[str, Any]:
    said = machine.phasegate("status", "--fleet", "--json")
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


@pytest.mark.demand("X8.i")
def test_status_show_and_audit_tell_of_a_fleet_from_a_machine_that_is_no_part_of_it(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    fleet = Fleet(tmp_path, s3, temporal, prefix, lost_after_s=120)
    worker, person, other = fleet.machine("worker"), fleet.machine("person"), fleet.machine("other")
    assert "no workflow is active" in other.phasegate("status", "--fleet").stdout
    assert person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--detach").returncode == 0

    nobody = status(other)["fleet"]
    assert nobody["unknown"] == ""
    assert [queue["features"] for queue in nobody["unserved"]] == [[SLUG]]
    assert nobody["unserved"][0]["since"].startswith("20")

    with worker.worker() as process:
        _freeze_at_a_step(fleet, other, process)
        frozen = status(other)
        assert frozen["workflow"]["standing"] == "working"
        assert frozen["fleet"]["unserved"] == []
        process.send_signal(signal.SIGCONT)
        done = person.phasegate("run", "--fleet")
        assert done.returncode == 0, done.stderr

    assert replayed_and_kept(temporal.address, SLUG).events

    (port,) = find_free_ports(1)
    other.environment["PHASEGATE_FLEET__ADDRESS"] = (
        f"127.0.0.1:{port}"  # from here on without server and worker
    )
    after = status(other)
    assert (after["workflow"]["feature"], after["workflow"]["stage"]) == (SLUG, "gate-passed")
    assert "does not respond" in after["fleet"]["unknown"]
    told = other.phasegate("status", "--fleet").stdout
    assert "last recorded" in told
    assert "are unknown" in told
    package = other.phasegate("show", "WP01", "--fleet")
    assert "DONE" in package.stdout, package.stderr
    assert "You are the reviewer" in other.phasegate("show", "WP01", "--fleet", "--prompt").stdout
    followed = other.phasegate("show", "WP01", "--log", "--follow", "--fleet")
    assert (followed.returncode, "answer" in followed.stdout) == (0, True), followed.stderr
    trails = json.loads(other.phasegate("audit", "show", "--fleet", "--json").stdout)["trails"]
    started = {json.loads(one.payload)["id"] for one in fleet.events() if one.kind == "job.started"}
    assert {trail["job"] for trail in trails} == started != set()
    assert all(trail["entries"] for trail in trails)
    _look_at_the_board(other)
    assert not (other.root / ".phasegate/store.db").exists(), (
        "nothing of it is taken for a record of this machine"
    )
    assert "nothing is recorded" in other.phasegate("show", "WP01").stderr, (
        "control: it is the fleet that was shown"
    )


def _look_at_the_board(other: Machine) -> None:
    with BoardClient(other.root, "--fleet", env=other.environment) as board:
        found = re.search(rf"/at/([\w-]+)/feature/{SLUG}", board.get("/").text)
        assert found is not None
        feature = f"/at/{found[1]}/feature/{SLUG}"
        assert "WP01" in board.get(feature).text
        assert board.get(f"{feature}/WP01").status == 200
        assert "Verified" in board.post(f"/at/{found[1]}/verify").text
        refused = board.post(f"{feature}/order/complete", seq=board.seq(feature))
        assert "read-only here" in refused.text, "orders are given at the command line"


@pytest.mark.demand("X8.i")
def test_a_copy_follows_by_what_is_new_is_made_anew_when_damaged_and_refuses_another_bucket(
    tmp_path: Path, s3: S3Server, prefix: str
) -> None:
    kept, nowhere = tmp_path / "copy/store.db", Location(Path(), Path(), Path())
    bucket = s3.patient_bucket(prefix)

    def opened(bucket: Bucket = bucket) -> BucketStore:
        return BucketStore(bucket, nowhere, lambda: str(uuid4()), kept)

    with BucketStore(bucket, nowhere, lambda: str(uuid4())) as writer, opened() as reader:
        assert reader.features() == []
        for name in ("001-one", "002-two"):
            writer.append(name, 0, TS, [Recordable("noted", b'"x"')])
        writer.anchor()
        reader.sync_all_features()
        assert {*reader.features()} == {"001-one", "002-two"}
        asked = _gets(bucket, reader.sync_all_features)
        assert asked == [
            "heads/0000000002",
            "journal/001-one/0000000002",
            "journal/002-two/0000000002",
        ]
        writer.append("002-two", 1, TS, [Recordable("noted", b'"y"')])
        writer.anchor()
        assert json.loads(_body(bucket, "heads/0000000002")).keys() == {"002-two"}, (
            "only what moved"
        )
    kept.write_bytes(b"not a store")
    with opened() as reader:
        assert {*reader.features()} == {"001-one", "002-two"}, "the bucket has it all"
    with pytest.raises(StateConflict, match="no longer has head"):
        opened(s3.patient_bucket(f"{prefix}/made-anew"))


@pytest.mark.demand("X8.i")
def test_a_look_costs_what_is_open_however_many_features_have_ended(
    tmp_path: Path, s3: S3Server, prefix: str
) -> None:
    nowhere = Location(Path(), Path(), Path())
    bucket = s3.patient_bucket(prefix)
    looks = []
    with (
        BucketStore(bucket, nowhere, lambda: str(uuid4())) as writer,
        BucketStore(bucket, nowhere, lambda: str(uuid4()), tmp_path / "copy/store.db") as reader,
    ):
        writer.append("001-open", 0, TS, [workflow_changed_event(_workflow("001-open", "working"))])
        for ended in range(2):
            for number in range(12 * ended):
                slug = f"{number + 100}-ended"
                row = _workflow(slug, "completed")
                writer.append(slug, 0, TS, [workflow_changed_event(row)])
            writer.anchor()
            reader.sync_open_features()
            looks.append(_gets(bucket, reader.sync_open_features))
        assert len(reader.features()) == 13, "control: what has ended was read once"
    assert [len(look) for look in looks] == [2, 2], looks
    assert looks[1][1] == "journal/001-open/0000000002"


def _workflow(slug: str, stage: str) -> WorkflowRow:
    return WorkflowRow(
        feature=slug,
        type="quick",
        description="x",
        base="main",
        phases="01-requirements",
        position=0,
        stage=stage,
        round=1,
        since=TS,
    )


def _gets(bucket: Bucket, call: Callable[[], None]) -> list[str]:
    """The names that a call asks the bucket for."""
    names: list[str] = []
    plain = bucket.get
    with mock.patch.object(bucket, "get", lambda path: (names.append(path), plain(path))[1]):
        call()
    return sorted(names)


def _body(bucket: Bucket, path: str) -> bytes:
    found = bucket.get(path)
    assert found is not None
    return bytes(read_json(found.data, Page).body)


def _freeze_at_a_step(fleet: Fleet, other: Machine, process: Any) -> None:
    """Stop the worker's process while it has a step."""
    pause = Event()
    for _ in range(30):
        fleet.wait_for(len(fleet.events()) + 1, process)
        process.send_signal(signal.SIGSTOP)
        if any(one["worker"] for one in status(other)["fleet"]["features"]):
            return
        process.send_signal(signal.SIGCONT)
        pause.wait(0.2)
    raise AssertionError("it was never seen at a step")
