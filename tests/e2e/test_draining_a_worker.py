"""`worker --drain`: an order to the workers of a clone. No server is needed: a worker waits for its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.git_project import make_repository

pytest.importorskip("temporalio")
CONFIG = '[storage]\nurl = "s3://team"\nendpoint = "http://127.0.0.1:9"\n[fleet]\naddress = "127.0.0.1:9"\n'
COMMAND = [sys.executable, "-m", "phasegate", "worker"]


@pytest.fixture
def clones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    one, other = (make_repository(tmp_path / name, {"a.py": "x = 1\n"}).root for name in "ab")
    for clone in (one, other):
        (clone / "phasegate.toml").write_text(CONFIG)
    return one, other


def drain(clone: Path) -> tuple[int, str]:
    done = subprocess.run(
        [*COMMAND, "--drain"], cwd=clone, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


@contextmanager
def waiting_worker(clone: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(COMMAND, cwd=clone, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "waiting for the server" in process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_the_worker_of_a_clone_is_told_to_drain_and_no_other_one(
    clones: tuple[Path, Path],
) -> None:
    one, other = clones
    with waiting_worker(one) as first, waiting_worker(other) as second:
        code, text = drain(one)
        assert (code, f"worker {first.pid} drains" in text, "has ended" in text) == (0, True, True)
        assert first.wait(60) == 0
        assert second.poll() is None
        assert drain(one) == (0, "no worker runs in this clone\n")
        assert drain(other)[0] == 0
        assert second.wait(60) == 0


def test_what_a_killed_worker_left_names_nobody(clones: tuple[Path, Path]) -> None:
    with waiting_worker(clones[0]) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    (folder,) = (Path(os.environ["XDG_STATE_HOME"]) / "phasegate" / "fleet-workers").iterdir()
    assert [one.name for one in folder.iterdir()] == [str(process.pid)], "control"
    assert drain(clones[0]) == (0, "no worker runs in this clone\n")
    assert [*folder.iterdir()] == []
