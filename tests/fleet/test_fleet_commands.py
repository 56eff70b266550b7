"""`fleet up`, `fleet doctor` and `fleet resume`, with real servers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.feature_run import DESCRIPTION, SLUG, TYPE
from support.fleet_machines import Fleet
from support.s3_server import S3Server, find_free_ports
from support.temporal_server import TemporalServer


@pytest.mark.demand("X8.l")
def test_fleet_up_runs_a_feature_in_its_own_folder_and_ends_all_that_it_started(
    tmp_path: Path,
    s3_program: str,
    temporal_program: str,
    s3: S3Server,
    temporal: TemporalServer,
    prefix: str,
) -> None:
    person = Fleet(tmp_path, s3, temporal, prefix).machine(
        "person"
    )  # its settings are those of another fleet
    path = f"{Path(s3_program).parent}:{Path(temporal_program).parent}:{person.environment['PATH']}"
    environment = {**person.environment, "PATH": path}
    before = person.phasegate("config", "show").stdout
    trial = person.folder / "trial"
    (person.folder / "scenario.json").rename(person.folder / "elsewhere")
    command = [sys.executable, "-m", "phasegate", "fleet", "up", "--folder", str(trial)]
    with subprocess.Popen(
        command,
        cwd=person.root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("the fleet is up: 2 workers"), line + (
                process.stderr.read() if process.stderr else ""
            )
            (trial / "scenario.json").write_text((person.folder / "elsewhere").read_text())
            run = f'. {trial}/variables.sh && "{sys.executable}" -m phasegate'
            done = _in_shell(
                f"{run} run {TYPE} '{DESCRIPTION}' --fleet", trial / "you", environment
            )
            assert done.returncode == 0, done.stdout + done.stderr
            said = json.loads(
                _in_shell(f"{run} status --fleet --json", trial / "you", environment).stdout
            )
            assert said["workflow"]["stage"] == "gate-passed"
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(200)
            except subprocess.TimeoutExpired:
                process.kill()
    assert process.returncode == 0
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert str(trial) not in line.read_bytes().decode(errors="replace"), (
                "nothing of it lives"
            )
        except OSError:
            continue
    assert (trial / "variables.sh").stat().st_mode & 0o777 == 0o600
    assert person.phasegate("config", "show").stdout == before
    again = person.phasegate("fleet", "up", "--folder", str(trial))
    assert (again.returncode, "is not empty" in again.stderr) == (2, True)


def _in_shell(
    line: str, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.demand("X8.l")
def test_fleet_doctor_names_what_is_lacking_and_resume_begins_open_features_after_the_server_lost_its_database(
    tmp_path: Path, s3: S3Server, prefix: str, temporal_program: str
) -> None:
    temporal = TemporalServer(temporal_program, tmp_path / "temporal")
    temporal.start()
    try:
        fleet = Fleet(tmp_path, s3, temporal, prefix)
        person, worker = fleet.machine("person"), fleet.machine("worker")
        checks = _doctor(person.phasegate("fleet", "doctor", "--json").stdout)
        assert [
            name for name in ("packages", "server", "bucket", "remote") if not checks[name]["ok"]
        ] == []
        assert any(name.startswith("agent ") for name in checks)
        plain = dict(person.environment)
        for variable, value, lacking, why in (
            (
                "PHASEGATE_FLEET__ADDRESS",
                f"127.0.0.1:{find_free_ports(1)[0]}",
                "server",
                "the Temporal server at",
            ),
            ("PHASEGATE_FLEET__NAMESPACE", "nobody", "server", "has no namespace nobody"),
            ("AWS_SECRET_ACCESS_KEY", "wrong", "bucket", "refused"),
            ("PHASEGATE_FORGE__REMOTE", "nowhere", "remote", "there is no remote"),
        ):
            person.environment[variable] = value
            done = person.phasegate("fleet", "doctor", "--json")
            found = _doctor(done.stdout)
            assert (done.returncode, found[lacking]["ok"]) == (1, False), done.stdout + done.stderr
            assert why in found[lacking]["found"]
            person.environment.clear()
            person.environment.update(plain)

        assert person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--detach").returncode == 0
        already = json.loads(person.phasegate("fleet", "resume", "--json").stdout)
        assert already["features"] == [{"feature": SLUG, "outcome": "already running"}], "control"
        with worker.worker() as process:
            fleet.wait_for(15, process)
            temporal.kill()
            temporal.forget()
            temporal.start()
            resumed = person.phasegate("fleet", "resume")
            assert resumed.stdout == f"{SLUG}: restarted\n", resumed.stderr
            done = person.phasegate("run", "--fleet")
            assert done.returncode == 0, done.stdout + done.stderr
        told = json.loads(person.phasegate("fleet", "resume", "--json").stdout)
        assert told["features"] == [{"feature": SLUG, "outcome": "waiting for a decision"}]
    finally:
        temporal.kill()


def _doctor(stdout: str) -> dict[str, dict[str, object]]:
    return {check["name"]: check for check in json.loads(stdout)["checks"]}
