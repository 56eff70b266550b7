"""Several repositories with one bucket and one server: each fleet touches its own repository only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.feature_run import DESCRIPTION, SLUG, TYPE
from support.fleet_machines import Fleet
from support.git_project import git
from support.s3_server import S3Server
from support.temporal_server import TemporalServer


def main_of(fleet: Fleet) -> str:
    return git(fleet.remote, "rev-parse", "main").strip()


@pytest.mark.demand("X8.h", "X8.l")
def test_two_repositories_that_share_a_bucket_without_a_prefix_never_touch_each_other(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer
) -> None:
    ours, theirs = (Fleet(tmp_path / name, s3, temporal, prefix="") for name in ("ours", "theirs"))
    person, worker = theirs.machine("person"), theirs.machine("worker")
    before = main_of(ours)
    with ours.machine("worker").worker():
        given = person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--detach", "--merge")
        assert given.returncode == 0, given.stderr
        with worker.worker():
            done = person.phasegate("run", "--fleet", "--merge", "--json")
        assert json.loads(done.stdout)["stage"] == "completed", done.stdout + done.stderr
        our_person = ours.machine("person")
        assert "nothing was given" not in our_person.phasegate("status", "--fleet").stderr
        shown = json.loads(our_person.phasegate("status", "--fleet", "--json").stdout)
        assert shown["workflow"] is None, "their feature is not shown here"
    assert main_of(ours) == before, "their feature must not reach our main"
    assert "bye.py" in git(theirs.remote, "ls-tree", "--name-only", "main"), (
        "control: it was merged"
    )
    found = json.loads(person.phasegate("fleet", "doctor", "--json").stdout)["checks"]
    repository = next(check for check in found if check["name"] == "repository")
    assert repository["ok"], repository
    assert "repositories/" in repository["found"]
    verified = person.phasegate("audit", "verify", "--remote", "--json")
    assert verified.returncode == 0, verified.stdout
    assert json.loads(verified.stdout)["entries"] > 20


@pytest.mark.demand("X8.h", "X8.l")
def test_a_prefix_with_the_fleet_of_another_repository_is_refused_by_run_worker_and_doctor(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    ours, theirs = (Fleet(tmp_path / name, s3, temporal, prefix) for name in ("ours", "theirs"))
    with ours.machine("worker").worker():
        pass
    person = theirs.machine("person")
    for command in (("run", TYPE, DESCRIPTION, "--fleet", "--detach"), ("worker",)):
        refused = person.phasegate(*command)
        assert refused.returncode == 4, refused.stdout + refused.stderr
        assert "contains the fleet of repository" in refused.stderr
    doctor = person.phasegate("fleet", "doctor", "--json")
    checks = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert (doctor.returncode, checks["repository"]["ok"]) == (1, False), doctor.stdout
    assert theirs.events() == [], "nothing was recorded"
    control = ours.machine("person").phasegate("run", TYPE, DESCRIPTION, "--fleet", "--detach")
    assert control.returncode == 0, control.stderr


@pytest.mark.demand("X8.h")
def test_a_worker_whose_clone_was_pointed_to_another_remote_runs_no_step_there(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    fleet = Fleet(tmp_path / "ours", s3, temporal, prefix)
    other = Fleet(tmp_path / "theirs", s3, temporal, "another")
    worker, person = fleet.machine("worker"), fleet.machine("person")
    with worker.worker():
        git(worker.root, "remote", "set-url", "origin", str(other.remote))
        stopped = person.phasegate("run", TYPE, DESCRIPTION, "--fleet")
    assert stopped.returncode == 4, stopped.stdout + stopped.stderr
    assert "no longer has refs/phasegate/repository" in stopped.stderr
    assert git(other.remote, "for-each-ref", f"refs/heads/feat/{SLUG}") == ""
    again = worker.phasegate("worker")
    assert (again.returncode, "no longer has refs/phasegate/repository" in again.stderr) == (
        4,
        True,
    )
