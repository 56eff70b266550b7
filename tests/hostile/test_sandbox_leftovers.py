"""Nothing of a job is left behind (ATTACKS E01, E04, E05, E07, E08): on success, on failure, and when we are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from phasegate.sandbox import orphans
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import JobOutcome, SandboxLevel
from support.sandboxed import (
    ALL_LEVELS,
    SANDBOXED,
    Room,
    eventually,
    kill_all_with,
    make_room,
    need,
    processes_with,
    start_orchestrator,
    unprotected,
)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="not enforceable here: detached processes are not found"
)
every_level = pytest.mark.parametrize("level", ALL_LEVELS)
MIB = 1024**2

# Each does its legitimate work, then misbehaves. `daemon()` leaves a detached process behind that ignores SIGTERM.
BEGINNING = """
    import os, pathlib, signal, sys, time
    pathlib.Path("work").write_text("done")
    def daemon(then=None, keep_output=False):
        if os.fork():
            os.wait()
            return
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(15, signal.SIG_IGN)
        if not keep_output:
            for number in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
        pathlib.Path("daemon").touch()
        if then:
            then()
        time.sleep(60)
        os._exit(0)
    def daemon_is_there():
        while not pathlib.Path("daemon").exists():
            time.sleep(0.01)
"""
MISBEHAVIOURS = {
    "sleeps": "time.sleep(60)",
    "ignores SIGTERM": "signal.signal(15, signal.SIG_IGN)\ntime.sleep(60)",
    "leaves a child": "if not os.fork():\n    time.sleep(60)",
    "leaves a daemon": "daemon()\ndaemon_is_there()",
    "leaves a daemon and hangs": "daemon()\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(60)",
    "leaves a daemon that keeps the output open": "daemon(keep_output=True)\ndaemon_is_there()",
    "forks in chains": (
        "def chain():\n    for _ in range(400):\n        if os.fork():\n            os._exit(0)\n"
        "    pathlib.Path('end of the chain').touch()\n"
        "daemon(chain)\ndaemon_is_there()"
    ),
    "leaves a daemon without its environment": (
        "argv = [sys.executable, '-c', 'import time; time.sleep(60)', sys.argv[1]]\n"
        "daemon(lambda: os.execve(sys.executable, argv, {}))\ndaemon_is_there()"
    ),
    "leaves many": "for _ in range(30):\n    if not os.fork():\n        time.sleep(60)",
    "crashes and leaves a daemon": "daemon()\ndaemon_is_there()\nos.kill(os.getpid(), 11)",
}
HANGING = ("sleeps", "ignores SIGTERM", "leaves a daemon and hangs")


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = make_room(tmp_path)
    yield made
    kill_all_with(made.token)


def payload(name: str) -> str:
    return BEGINNING + "".join(f"    {line}\n" for line in MISBEHAVIOURS[name].splitlines())


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_the_control_something_outlives_a_careless_start(room: Room, name: str) -> None:
    with unprotected(room, payload(name), stdout=subprocess.DEVNULL) as careless:
        if name not in HANGING:
            careless.wait()
        assert eventually((room.worktree / "work").exists)
        # A chain of forks runs away from every look into /proc until it stands still.
        assert eventually(lambda: processes_with(room.token))
        assert "chains" not in name or eventually((room.worktree / "end of the chain").exists)
        kill_all_with(room.token)


def run_until_it_begins(room: Room, level: SandboxLevel, name: str) -> JobOutcome:
    """One that hangs gets little time; on a loaded machine, so much that it has begun within it."""
    timeout_s = 4.0 if name in HANGING else 60.0
    while True:
        outcome = SandboxedJob(room.request(payload(name), level, timeout_s=timeout_s)).run()
        if (room.worktree / "work").exists() or timeout_s > 60.0:
            return outcome
        timeout_s *= 4


@pytest.mark.demand("D9.c")
@every_level
@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_no_process_outlives_its_job(room: Room, level: SandboxLevel, name: str) -> None:
    outcome = run_until_it_begins(room, level, name)
    assert processes_with(room.token) == []
    assert "chains" not in name or not eventually((room.worktree / "end of the chain").exists, 1.0)
    assert (room.worktree / "work").read_text() == "done"
    assert (outcome.timed_out, outcome.survivors_left, outcome.supervisor_lost) == (
        name in HANGING and name != "sleeps",
        0,
        False,
    )
    if name not in HANGING:
        assert outcome.survivors_killed >= 1
        assert outcome.signal == (signal.SIGSEGV if "crashes" in name else None)


@every_level
def test_a_job_that_closes_its_output_goes_on_to_its_end(room: Room, level: SandboxLevel) -> None:
    code = """
        import os, pathlib, time
        os.close(1)
        os.close(2)
        time.sleep(0.3)
        pathlib.Path("work").write_text("done")
    """
    assert SandboxedJob(room.request(code, level)).run().exit_code == 0
    assert (room.worktree / "work").read_text() == "done"


@every_level
@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        ("import time\ntime.sleep(0.2)", b""),
        ("import os, time\nos.close(0)\ntime.sleep(0.2)", b""),
        (
            "import sys\nprint(len(sys.stdin.buffer.read()), sys.stdin.buffer.read())",
            b"10485760 b''\n",
        ),
        ("import sys\nprint(len(sys.stdin.buffer.read(70000)))", b"70000\n"),
        (
            "import sys\nsys.stdout.write('o' * 5_000_000); sys.stderr.write('e' * 5_000_000)\n"
            "print(len(sys.stdin.buffer.read()))",
            b"o10485760\n",
        ),
    ],
    ids=[
        "never reads",
        "closes its input",
        "reads to the end",
        "reads a part",
        "writes much before it reads",
    ],
)
def test_a_long_prompt_never_holds_a_job_up(
    room: Room, level: SandboxLevel, reader: str, expected: bytes
) -> None:
    outcome = SandboxedJob(
        room.request(reader, level, stdin=b"p" * 10 * MIB, max_kept_bytes=16 * MIB)
    ).run()
    assert outcome.exit_code == 0
    assert not outcome.sigterm_sent
    assert outcome.stdout.data.endswith(expected)


OVERWRITE_INPUT = """
    import os, pathlib
    pathlib.Path("got").write_bytes(os.read(0, 100))
    try:
        os.write(os.open("/proc/self/fd/0", os.O_RDWR), b"escaped")
    except OSError:
        pass
"""


@every_level
def test_a_prompt_that_comes_from_a_file_cannot_be_changed_through_its_descriptor(
    room: Room, level: SandboxLevel
) -> None:
    """An open file can be opened again through /proc, whatever the sandbox shows of the file system."""
    prompt = room.root / "prompt.xml"
    prompt.write_bytes(b"the prompt")
    with prompt.open("rb") as file, unprotected(room, OVERWRITE_INPUT, stdin=file) as careless:
        careless.communicate()
    assert prompt.read_bytes() == b"escapedmpt"
    prompt.write_bytes(b"the prompt")
    assert SandboxedJob(room.request(OVERWRITE_INPUT, level, stdin=prompt)).run().exit_code == 0
    assert (room.worktree / "got").read_bytes() == b"the prompt"
    assert prompt.read_bytes() == b"the prompt"


def test_the_control_for_prompts_a_plain_write_does_hang(room: Room) -> None:
    with unprotected(room, "import time\ntime.sleep(60)", stdin=subprocess.PIPE) as careless:
        assert careless.stdin is not None
        stdin = careless.stdin
        written = threading.Event()

        def write() -> None:
            try:
                stdin.write(b"p" * 10 * MIB)
                written.set()
            except BrokenPipeError:
                return

        thread = threading.Thread(target=write)
        thread.start()
        assert not written.wait(0.5)
        careless.kill()
        thread.join()
        try:
            stdin.close()
        except BrokenPipeError:
            careless.stdin = None


# --- when we are killed


READY = payload("leaves a daemon and hangs")


@every_level
@pytest.mark.parametrize(
    "round_", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 17))]
)
def test_when_we_are_killed_every_agent_dies(room: Room, level: SandboxLevel, round_: int) -> None:
    with start_orchestrator(room, room.request(READY, level, timeout_s=60.0)) as process:
        assert processes_with(room.token)
        process.kill()
        assert eventually(lambda: not processes_with(room.token), 2.0)
        process.communicate()


def test_the_control_for_a_kill_agents_of_a_careless_orchestrator_live_on(room: Room) -> None:
    with start_orchestrator(room, room.request(READY, SandboxLevel.NONE), "--naive") as process:
        process.kill()
        process.wait()
        assert len(processes_with(room.token)) >= 2
        kill_all_with(room.token)
        process.communicate()


@every_level
@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP", "SIGTERM"])
def test_a_signal_that_ends_us_leaves_no_orphan(room: Room, level: SandboxLevel, name: str) -> None:
    with start_orchestrator(room, room.request(READY, level, timeout_s=60.0)) as process:
        process.send_signal(getattr(signal, name))
        if name == "SIGINT":
            process.send_signal(signal.SIGINT)  # a person presses it twice
        process.communicate()
        assert process.returncode != 0
        assert eventually(lambda: not processes_with(room.token), 2.0)


@every_level
def test_closing_the_terminal_leaves_no_orphan(room: Room, level: SandboxLevel) -> None:
    master, slave = os.openpty()
    request = room.request(READY, level, timeout_s=60.0)
    with start_orchestrator(room, request, "--terminal", os.ttyname(slave)) as process:
        os.close(slave)
        os.close(master)
        process.communicate()
        assert process.returncode == -signal.SIGHUP
        assert eventually(lambda: not processes_with(room.token), 2.0)


def supervisors_of(room: Room) -> list[int]:
    """The ancestors of the job's processes that belong to the sandbox, nearest first."""
    found: list[int] = []
    for process in processes_with(room.token):
        pid = process
        while True:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
            if (
                pid <= 1
                or b"phasegate.sandbox.supervisor" not in Path(f"/proc/{pid}/cmdline").read_bytes()
            ):
                break
            found.append(pid)
    return list(dict.fromkeys(found))


def test_at_level_none_a_killed_supervisor_is_noticed_and_its_job_is_ended(room: Room) -> None:
    request = room.request(READY, SandboxLevel.NONE, timeout_s=60.0)

    def kill_supervisor() -> None:
        eventually((room.worktree / "daemon").exists)
        for pid in supervisors_of(room):
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill_supervisor)
    thread.start()
    outcome = SandboxedJob(request).run()
    thread.join()
    assert (outcome.supervisor_lost, outcome.exit_code, outcome.signal) == (True, None, None)
    assert eventually(lambda: not processes_with(room.token), 2.0)


def test_at_level_none_what_outlives_us_and_the_supervisor_is_found_by_its_tag(room: Room) -> None:
    request = room.request(READY, SandboxLevel.NONE, timeout_s=60.0)
    with start_orchestrator(room, request) as process:
        supervisors = supervisors_of(room)
        os.kill(process.pid, signal.SIGSTOP)  # so that neither can act for the other
        for pid in supervisors:
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate()
        assert processes_with(room.token), "invalid: nothing outlives both"
        assert orphans.kill_tagged_processes(request.tag) >= 1
        assert eventually(lambda: not processes_with(room.token), 2.0)


@pytest.mark.parametrize("level", SANDBOXED)
def test_a_sandboxed_job_cannot_end_or_stop_its_supervisor(room: Room, level: SandboxLevel) -> None:
    code = """
        import os, pathlib, signal
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGCHLD, signal.SIGINT):
            try:
                os.kill(1, number)
            except OSError:
                pass
        for name in ("fd/3", "fd/4", "mem", "environ"):
            try:
                print(pathlib.Path("/proc/1", name).open("rb").read(1))
            except OSError:
                print("refused")
        pathlib.Path("work").write_text("done")
    """
    outcome = SandboxedJob(room.request(code, level, timeout_s=60.0)).run()
    assert outcome.stdout.text == "refused\n" * 4
    assert (outcome.exit_code, outcome.supervisor_lost, outcome.timed_out) == (0, False, False)
    assert (room.worktree / "work").read_text() == "done"


@pytest.mark.parametrize("level", SANDBOXED)
def test_a_sandbox_whose_outer_process_is_killed_ends_with_it(
    room: Room, level: SandboxLevel
) -> None:
    need(level)
    request = room.request(READY, level, timeout_s=60.0)

    def kill_outermost() -> None:
        eventually((room.worktree / "daemon").exists)
        os.kill(supervisors_of(room)[-1], signal.SIGKILL)

    thread = threading.Thread(target=kill_outermost)
    thread.start()
    outcome = SandboxedJob(request).run()
    thread.join()
    assert outcome.supervisor_lost
    assert eventually(lambda: not processes_with(room.token), 2.0)
