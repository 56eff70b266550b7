"""Output and resources without end (ATTACKS M03, M05): bounded memory, cut and said so, and the others live on."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import JobLimits, SandboxLevel
from support.sandboxed import ALL_LEVELS, SANDBOXED, Room, eventually, make_room, unprotected

MIB = 1024**2
MOST_GROWTH = 64 * MIB
every_level = pytest.mark.parametrize("level", ALL_LEVELS)
READER = Path(__file__).parents[1] / "support/flood_reader.py"

FLOODS = {
    "stdout": (
        "import os\nfor _ in range({mib}): os.write(1, b'x' * 1023 * 1024 + b'\\n' * 1024)",
        1024,
    ),
    "one line": ("import os\nfor _ in range({mib}): os.write(1, b'x' * 1048576)", 0),
    "many lines": (
        "import os\nfor _ in range({mib}): os.write(1, b'0123456789abcde\\n' * 65536)",
        65536,
    ),
    "stderr": ("import os\nfor _ in range({mib}): os.write(2, b'x' * 1048576)", 0),
}


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return make_room(tmp_path)


def read_flood(room: Room, name: str, mib: int, *options: str) -> list[str]:
    code, _ = FLOODS[name]
    log = room.root / "log"
    request = room.request(
        code.format(mib=mib),
        SandboxLevel.NONE,
        timeout_s=300.0,
        stdout_log=log,
        max_log_bytes=5 * MIB,
    )
    order = room.root / "request.pickle"
    order.write_bytes(pickle.dumps(request))
    argv = [sys.executable, READER, order, *options]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=400)
    assert said.returncode == 0, said.stderr
    return said.stdout.split()


@pytest.mark.parametrize("mib", [200, pytest.param(1024, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_costs_bounded_memory_and_is_marked_as_cut(room: Room, name: str, mib: int) -> None:
    growth, out_size, err_size, out_cut, err_cut, exit_code, lines, skipped = read_flood(
        room, name, mib
    )
    assert int(growth) < MOST_GROWTH
    size, cut = (err_size, err_cut) if name == "stderr" else (out_size, out_cut)
    assert (int(size), cut, exit_code) == (mib * MIB, "True", "0")
    assert int(lines) == mib * FLOODS[name][1]
    assert skipped == str(name == "one line")
    assert (room.root / "log").stat().st_size == (0 if name == "stderr" else 5 * MIB)


def test_the_control_a_careless_reader_keeps_all_of_it(room: Room) -> None:
    growth, size = read_flood(room, "stdout", 200, "--naive")
    assert int(size) == 200 * MIB
    assert int(growth) > MOST_GROWTH


HOGS = {
    "descriptors": "import os\nfor _ in range(400): os.dup(0)",
    "file": "import os\nwith open('big', 'wb') as file: file.truncate(400 * 1048576)",
}
TIGHT = JobLimits(open_files=100, file_bytes=100 * MIB)


@pytest.mark.skipif(sys.platform != "linux", reason="not enforceable here: limits of Linux")
@every_level
@pytest.mark.parametrize("name", HOGS)
def test_a_hog_fails_and_its_sibling_and_we_live_on(
    room: Room, level: SandboxLevel, name: str
) -> None:
    code = f"import pathlib\npathlib.Path('work').touch()\n{HOGS[name]}\npathlib.Path('hogged').touch()"
    with unprotected(room, code) as careless:
        careless.communicate()
    assert (room.worktree / "hogged").exists(), "invalid: it fails even without limits"
    (room.worktree / "hogged").unlink()
    (room.worktree / "work").unlink()

    (room.root / "sibling").mkdir()
    sibling_room = make_room(room.root / "sibling")
    sibling = SandboxedJob(
        sibling_room.request("import sys\nprint(sys.stdin.readline())", level, keep_stdin_open=True)
    )
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(sibling.run()))
    thread.start()
    hog = SandboxedJob(room.request(code, level, limits=TIGHT)).run()
    sibling.send(b"still there\n")
    sibling.close_stdin()
    thread.join()
    assert (room.worktree / "work").exists()
    assert not (room.worktree / "hogged").exists()
    assert hog.exit_code != 0
    assert "still there" in outcomes[0].stdout.text


# Each takes what it wants, says so, and keeps it for a while; all of it is bounded.
JOB_HOGS = {
    "memory": (
        "hoard = b'x' * (160 << 20)",
        JobLimits(memory_bytes=96 * MIB),
        "its memory limit of 96 MiB",
    ),
    "memory of children": (
        "import os\nif os.fork() and os.fork(): pass\nhoard = b'x' * (60 << 20)",
        JobLimits(memory_bytes=120 * MIB),
        "its memory limit of 120 MiB",
    ),
    "processes": (
        "import os, time\nfor _ in range(60):\n    if not os.fork(): time.sleep(20); os._exit(0)",
        JobLimits(tasks=40),
        "its limit of 40 tasks",
    ),
    "threads": (
        "from threading import Thread\nimport time\n"
        "for _ in range(60): Thread(target=time.sleep, args=(20,), daemon=True).start()",
        JobLimits(tasks=40),
        "its limit of 40 tasks",
    ),
    "disk": (
        "for n in range(6): open(f'big{n}', 'wb').write(bytes(range(256)) * 32768)",
        JobLimits(disk_bytes=24 * MIB),
        "its disk limit of 24 MiB",
    ),
}
HOLDING = "\nimport pathlib, time\npathlib.Path('hogged').touch()\ntime.sleep({hold_s})"


@pytest.mark.skipif(
    sys.platform != "linux", reason="not enforceable here: a job is measured in /proc"
)
@every_level
@pytest.mark.parametrize("name", JOB_HOGS)
def test_a_job_that_takes_too_much_in_all_is_ended_and_the_limit_named(
    room: Room, level: SandboxLevel, name: str
) -> None:
    code, limits, words = JOB_HOGS[name]
    ample = SandboxedJob(room.request(code + HOLDING.format(hold_s=0), level)).run()
    assert (ample.exit_code, ample.exceeded_limit) == (0, ""), (
        "invalid: it fails even without limits"
    )
    assert (room.worktree / "hogged").exists()
    ended = SandboxedJob(room.request(code + HOLDING.format(hold_s=25), level, limits=limits)).run()
    assert (ended.exit_code, ended.signal) == (None, 9)
    assert ended.exceeded_limit == words
    assert ended.survivors_left == 0


@pytest.mark.skipif(
    sys.platform != "linux", reason="not enforceable here: a job is measured in /proc"
)
@every_level
def test_memory_that_processes_share_counts_once(room: Room, level: SandboxLevel) -> None:
    """Six copies of 40 MiB that nobody has written to since: 240 MiB resident, 40 MiB used."""
    code = """
        import os, time
        hoard = b"x" * (40 << 20)
        for _ in range(6):
            if not os.fork():
                time.sleep(3)
                os._exit(0)
        for _ in range(6):
            os.wait()
    """
    outcome = SandboxedJob(
        room.request(code, level, limits=JobLimits(memory_bytes=160 * MIB))
    ).run()
    assert (outcome.exit_code, outcome.exceeded_limit) == (0, "")


@pytest.mark.skipif(
    sys.platform != "linux", reason="not enforceable here: there is no order of victims"
)
@every_level
def test_when_memory_runs_out_agents_are_looked_at_before_us(
    room: Room, level: SandboxLevel
) -> None:
    outcome = SandboxedJob(
        room.request("print(open('/proc/self/oom_score_adj').read())", level)
    ).run()
    assert int(outcome.stdout.text) > int(Path("/proc/self/oom_score_adj").read_text())


@every_level
def test_no_job_leaves_a_core_dump(room: Room, level: SandboxLevel) -> None:
    code = "import os, resource\nprint(resource.getrlimit(resource.RLIMIT_CORE), flush=True)\nos.abort()"
    outcome = SandboxedJob(room.request(code, level)).run()
    assert outcome.stdout.text == "(0, 0)\n"
    assert outcome.signal == 6
    assert not [*room.worktree.iterdir()]


@pytest.mark.parametrize("level", SANDBOXED)
def test_memory_kept_as_files_is_bounded(room: Room, level: SandboxLevel) -> None:
    """The sandbox's own tmpfs: what is written there is memory, and belongs to no process."""
    code = """
        import os
        at = os.statvfs("/dev/shm")
        print(at.f_blocks * at.f_frsize)
    """
    assert 0 < int(SandboxedJob(room.request(code, level)).run().stdout.text) <= 1024 * MIB


@every_level
def test_a_listener_slower_than_the_job_slows_the_job_and_loses_nothing(
    room: Room, level: SandboxLevel
) -> None:
    """Back-pressure: what has not been taken in waits in the pipe, not in our memory."""
    seen: list[int] = []
    gate = threading.Event()

    def listen(_: object, chunk: bytes) -> None:
        seen.append(len(chunk))
        assert eventually(gate.is_set)

    job = SandboxedJob(room.program(("head", "-c", str(20 * MIB), "/dev/zero"), level))
    threading.Timer(0.3, gate.set).start()
    outcome = job.run(listen)
    assert sum(seen) == outcome.stdout.size == 20 * MIB
