"""Kill -9 at every step on the disk, and at any moment: nothing acknowledged is lost, and a crash is no tampering."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from phasegate.storage.verify_audit import verify_audit
from support.record import make_repository
from support.recovered_record import acknowledged, location_in, recovered, what_is_missing

SCENARIO = Path(__file__).with_name("record_scenario.py")
SEED = 20260301


def run_scenario(*arguments: str) -> str:
    result = subprocess.run([sys.executable, SCENARIO, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def torn_logs(folder: Path) -> list[Path]:
    logs = folder.glob("state/phasegate/heads/*/open-trails-*.log")
    return [path for path in logs if not path.read_bytes().rstrip(b"\0").endswith(b"\n")]


@pytest.mark.demand("W5.a", "W5.c", "D13.i")
def test_killed_at_every_step_the_record_verifies_and_loses_nothing(tmp_path: Path) -> None:
    make_repository(tmp_path / "template")
    run_scenario("steps", str(tmp_path))
    folders = sorted(tmp_path.glob("a-*"))
    assert len(folders) > 60
    torn = 0
    for folder in folders:
        at_once = verify_audit(location_in(folder))
        assert at_once.problems == (), folder.name
        torn += len(torn_logs(folder))
        after = recovered(folder)
        assert after.problems == (), folder.name
        assert what_is_missing(folder) == set(), folder.name
        view = folder / "repository" / ".isdlc" / "state.json"
        assert (
            not view.exists()
            or json.loads(view.read_text())["active_workflow"]["type"] == "feature"
        )
    assert torn > 0, "control: the kills do tear lines"


@pytest.mark.demand("W5.a", "W5.c")
def test_killed_at_every_step_of_the_recovery_it_can_be_recovered_again(tmp_path: Path) -> None:
    make_repository(tmp_path / "template")
    run_scenario("resume", str(tmp_path))
    assert torn_logs(tmp_path / "torn"), "control: there is half an entry"
    folders = sorted(tmp_path.glob("b-*"))
    for folder in folders:
        assert verify_audit(location_in(folder)).problems == (), folder.name
        assert recovered(folder).problems == (), folder.name
        assert what_is_missing(folder) == set(), folder.name
    trails = [
        trail.read_text() for trail in location_in(folders[-1]).trails_folder.glob("*/*.jsonl")
    ]
    assert any('"action":"recovered"' in trail for trail in trails), (
        "what was recovered is on record"
    )


def kill_at_any_moment(tmp_path: Path, kills: int) -> None:
    make_repository(tmp_path)
    rng = random.Random(SEED)
    for number in range(kills):
        ready = acknowledged(tmp_path).count("ready")
        with subprocess.Popen(
            [sys.executable, SCENARIO, "forever", tmp_path], stderr=subprocess.PIPE
        ) as process:
            while acknowledged(tmp_path).count("ready") == ready:
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(
                    0.005
                )  # polls for the line; the kill itself comes at a random moment after it
            time.sleep(rng.uniform(0, 0.15))
            process.kill()
        assert verify_audit(location_in(tmp_path)).problems == (), number
    assert recovered(tmp_path).problems == ()
    assert what_is_missing(tmp_path) == set()


@pytest.mark.demand("W5.a", "W5.c", "D13.i")
def test_killed_at_any_moment_the_record_verifies_and_loses_nothing(tmp_path: Path) -> None:
    kill_at_any_moment(tmp_path, 6)


@pytest.mark.long
@pytest.mark.demand("W5.a", "W5.c", "D13.i")
def test_killed_two_hundred_times_the_record_verifies_and_loses_nothing(tmp_path: Path) -> None:
    kill_at_any_moment(tmp_path, 200)
