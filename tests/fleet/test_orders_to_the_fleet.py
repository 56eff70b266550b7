"""Orders, leases and abilities: a step is ended with all of its processes, and goes to who can do it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client

from phasegate.storage.bucket.journal import BucketStore
from phasegate.storage.location import Location
from phasegate.storage.row_events import job_ended_event, job_started_event
from phasegate.storage.rows import JobRow
from support.feature_run import DESCRIPTION, SCENARIO, SLUG, TYPE, Turn, judges, names_in, plans
from support.fleet_machines import Fleet
from support.git_project import git
from support.record import TS
from support.s3_server import S3Server
from support.temporal_server import TemporalServer

PATIENCE_S = 120.0


def wait_until(is_so: Callable[[], object]) -> None:
    pause = Event()
    for _ in range(int(PATIENCE_S / 0.2)):
        if is_so():
            return
        pause.wait(0.2)
    raise AssertionError("it did not come to that")


def alive(mark: str) -> list[str]:
    """The processes that have this text among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def lingers(turn: Turn, mark: str) -> Turn:
    """The same turn, which first waits with a child and a grandchild."""
    waits = f": {mark}; sleep 600 & sh -c ': {mark}; sleep 600'"
    return {**turn, "steps": [{"run": ["sh", "-c", waits]}, *turn["steps"]]}


def outcomes(fleet: Fleet) -> Counter[str]:
    ends = (json.loads(one.payload) for one in fleet.events() if one.kind == "job.ended")
    return Counter(f"{end['phase']} {end['outcome']}" for end in ends)


def started(fleet: Fleet) -> int:
    return sum(one.kind == "job.started" for one in fleet.events())


@pytest.mark.demand("X8.q")
def test_a_cancelled_feature_ends_its_agent_with_all_its_processes_and_leaves_no_job_open(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    fleet = Fleet(tmp_path, s3, temporal, prefix, lost_after_s=120)
    mark = f"mark-{uuid4()}"
    fleet.origin.play(lingers(plans("never"), mark))
    worker, person = fleet.machine("worker"), fleet.machine("person")
    with worker.worker():
        assert person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--detach").returncode == 0
        wait_until(lambda: len(alive(mark)) > 1)
        refused = person.phasegate("advance", "--fleet")
        assert (refused.returncode, alive(mark) != []) == (4, True), (
            "control: what the rules refuse ends nothing"
        )
        ordered = person.phasegate("cancel", "--reason", "changed our mind", "--fleet", "--json")
        assert ordered.returncode == 0, ordered.stderr
        wait_until(lambda: not alive(mark))
        wait_until(
            lambda: sum(outcomes(fleet).values()) == 1 and not names_in(worker.root / ".worktrees")
        )
    assert (outcomes(fleet), started(fleet)) == ({"plan lost": 1}, 1)


@pytest.mark.demand("X8.q")
def test_a_restart_of_the_server_costs_no_agent_and_one_that_is_gone_for_long_ends_them(
    tmp_path: Path, s3: S3Server, prefix: str, temporal_program: str
) -> None:
    temporal = TemporalServer(temporal_program, tmp_path / "temporal")
    temporal.start()
    try:
        fleet = Fleet(tmp_path, s3, temporal, prefix, lost_after_s=18)
        short, long = f"mark-{uuid4()}", f"mark-{uuid4()}"
        plan = plans("somehow")
        steps = [{"run": ["sh", "-c", f": {short}; sleep 8; :"]}, *plan["steps"]]
        fleet.origin.play({**plan, "steps": steps}, lingers(judges("challenge", "PASS"), long))
        worker, person = fleet.machine("worker"), fleet.machine("person")
        with worker.worker() as process:
            assert person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--detach").returncode == 0
            wait_until(lambda: alive(short))
            temporal.kill()
            temporal.start()
            wait_until(lambda: alive(long))
            assert outcomes(fleet) == {"plan done": 1}, (
                "the agent that worked meanwhile was not ended"
            )
            temporal.kill()
            wait_until(lambda: not alive(long))
            assert process.poll() is None
            wait_until(lambda: outcomes(fleet)["challenge lost"] == 1)
            assert person.phasegate("cancel", "--reason", "enough", "--fleet").returncode == 0
            temporal.start()
            assert person.phasegate("run", "--fleet", "--feature", SLUG).returncode == 4, (
                "it is over"
            )
    finally:
        temporal.kill()
    assert outcomes(fleet) == {"plan done": 1, "challenge lost": 1}


@pytest.mark.demand("X8.r")
def test_a_feature_goes_to_a_worker_that_has_the_agent_of_its_next_step(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    critic = '[agents.critic]\nharness = "scripted"\nscenario = "../critic.json"\n[roles]\nchallenge = "critic"\n'
    critic += "".join(f'{role} = "actor"\n' for role in ("plan", "implement", "review", "archive"))
    fleet = Fleet(tmp_path, s3, temporal, prefix, more=critic)
    writer, judge, person = fleet.machine("writer"), fleet.machine("judge"), fleet.machine("person")
    (judge.folder / "scenario.json").unlink()
    (judge.folder / "critic.json").write_text(json.dumps([*SCENARIO]))
    with writer.worker():
        assert person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--detach").returncode == 0

        def unserved() -> list[str]:
            said = json.loads(person.phasegate("status", "--fleet", "--json").stdout)
            return [queue["name"] for queue in said["fleet"]["unserved"]]

        wait_until(lambda: any(name.endswith("agent:critic") for name in unserved()))
        said = person.phasegate("status", "--fleet").stdout
        assert "waiting for a worker since" in said
        assert "stopped" not in said
        assert outcomes(fleet) == {"plan done": 1}
        with judge.worker():
            done = person.phasegate("run", "--fleet")
            assert done.returncode == 0, done.stdout + done.stderr
    ends = [json.loads(one.payload) for one in fleet.events() if one.kind == "job.ended"]
    by = {(end["phase"], end["logs"].split("/repo/")[0]) for end in ends}
    assert ("challenge", str(judge.folder)) in by
    assert ("implement", str(writer.folder)) in by
    assert ("challenge", str(writer.folder)) not in by
    assert {"bye.py", "hi.py"} <= {*fleet.tree(fleet.events()[0].ts)}


@pytest.mark.demand("X8.r", "X8.t")
def test_what_no_worker_takes_and_what_ended_a_run_is_told_and_the_feature_goes_on_when_that_is_mended(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    """A worker without a remote ends the run. Then no single worker has implementer and reviewer, until one has."""
    critic = '[agents.critic]\nharness = "scripted"\nscenario = "../critic.json"\n[roles]\nreview = "critic"\n'
    critic += "".join(
        f'{role} = "actor"\n' for role in ("plan", "challenge", "implement", "archive")
    )
    fleet = Fleet(tmp_path, s3, temporal, prefix, more=critic)
    writer, judge, person = fleet.machine("writer"), fleet.machine("judge"), fleet.machine("person")
    (judge.folder / "scenario.json").unlink()
    (judge.folder / "critic.json").write_text(json.dumps([*SCENARIO]))

    def status() -> Any:
        return json.loads(person.phasegate("status", "--fleet", "--json").stdout)

    def waits() -> list[Any]:
        return [queue for queue in status()["fleet"]["unserved"] if queue["why"]]

    found: list[Any] = []
    with writer.worker():
        git(writer.root, "remote", "remove", "origin")
        assert person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--detach").returncode == 0
        wait_until(lambda: "there is no remote" in status()["workflow"]["reason"])
        told = person.phasegate("status", "--fleet").stdout
        assert (
            "why: the run has failed: there is no remote 'origin'; a fleet exchanges code" in told
        )
        git(writer.root, "remote", "add", "origin", str(fleet.remote))
        assert person.phasegate("run", "--fleet", "--detach").returncode == 0
        with judge.worker():
            wait_until(lambda: found.extend(waits()) or found)
            queue = found[0]
            assert (queue["features"], queue["name"][-12:]) == ([SLUG], "agent:critic")
            assert "one worker must have critic, actor, and" in queue["why"]
            assert queue["since"].startswith("20")
            said = person.phasegate("status", "--fleet").stdout
            assert f"(since {queue['since']}; {SLUG}): one worker must have" in said
            asked, length = asyncio.run(asking(temporal.address, prefix))
            wait_until(lambda: asyncio.run(asking(temporal.address, prefix))[0] > asked + 1)
            assert asyncio.run(asking(temporal.address, prefix))[1] == length, (
                "waiting makes no history longer"
            )
            later = status()
            assert later["fleet"]["unserved"][0]["since"] == queue["since"]
            assert later["workflow"]["reason"] == "", (
                "what ended an earlier run is not told any more"
            )
            (judge.folder / "scenario.json").write_text(json.dumps([*SCENARIO]))
            done = person.phasegate("run", "--fleet")
            assert done.returncode == 0, done.stdout + done.stderr
    assert {"bye.py", "hi.py"} <= {*fleet.tree(fleet.events()[0].ts)}


async def asking(address: str, prefix: str) -> tuple[int, int]:
    """How often a worker was asked to take the feature that waits, and the length of its history."""
    client = await Client.connect(address)
    running = client.list_workflows('ExecutionStatus = "Running"')
    (id_,) = [one.id async for one in running if prefix in one.id]
    said = await client.get_workflow_handle(id_).describe()
    return sum(one.attempt for one in said.raw_description.pending_activities), said.history_length


@pytest.mark.demand("X8.s")
def test_caps_hold_over_all_features_of_a_fleet_and_so_many_are_open_and_no_more(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    fleet = Fleet(
        tmp_path, s3, temporal, prefix, more="max_open_features = 1\n[limits]\ntotal_cost_usd = 5\n"
    )
    worker, person = fleet.machine("worker"), fleet.machine("person")
    other = JobRow("900-other", str(uuid4()), "", "plan", 1, "actor", TS)
    assert person.phasegate("status", "--fleet").returncode == 0, "it registers the repository"
    repository = git(fleet.remote, "rev-parse", "refs/phasegate/repository").strip()
    bucket = s3.patient_bucket(prefix)
    with BucketStore(
        bucket.at(bucket.address, repository),
        Location(Path(), Path(), Path()),
        lambda: str(uuid4()),
    ) as record:
        ended = other._replace(ended=TS, outcome="done", cost_usd=6.0)
        record.append_unconditionally(
            "900-other", TS, [job_started_event(other), job_ended_event(ended)]
        )
    with worker.worker():
        stopped = person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--json")
    ran = json.loads(stopped.stdout)
    assert (stopped.returncode, ran["stage"]) == (1, "blocked"), stopped.stdout + stopped.stderr
    ends = [
        json.loads(one.payload) for one in fleet.events(ran["feature"]) if one.kind == "job.ended"
    ]
    assert [end["outcome"] for end in ends] == ["blocked"], "no agent was started"
    refused = person.phasegate("run", TYPE, "One more", "--fleet")
    assert (refused.returncode, "max_open_features" in refused.stderr) == (4, True), refused.stderr
