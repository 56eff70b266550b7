"""SIGTERM at 90 % of the time, SIGKILL at its end, to everybody, by a clock nobody sets (ATTACKS E02, E03, E06)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import JobRequest, SandboxLevel
from support.sandboxed import (
    ALL_LEVELS,
    Room,
    eventually,
    kill_all_with,
    make_room,
    processes_with,
    start_orchestrator,
    unprotected,
)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="not enforceable here: detached processes are not found"
)
every_level = pytest.mark.parametrize("level", ALL_LEVELS)
TIMEOUT_S = 4.0
TIMEOUTS_S = (
    TIMEOUT_S,
    16.0,
    64.0,
)  # the shortest in which all three processes are up before they are told to stop
LATE_S = 60.0  # a loaded machine may be late, never early; what nobody stops lives for two minutes and more

# Three processes, one of them detached; each notes when it is told to stop, and every 10 ms that it lives.
WATCHED = """
    import os, pathlib, signal, time
    def live(name):
        def note(*_):
            pathlib.Path(name + ".told").write_text(str(time.monotonic()))
        signal.signal(15, note)
        heart = os.open(name + ".alive", os.O_WRONLY | os.O_CREAT)
        pathlib.Path(name + ".ready").write_text(str(time.monotonic()))
        for _ in range(12000):
            os.pwrite(heart, f"{time.monotonic():020.6f}".encode(), 0)
            time.sleep(0.01)
    if not os.fork():
        live("child")
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        live("daemon")
    print("partial", flush=True)
    pathlib.Path("daemon").touch()
    live("main")
"""
NAMES = ("main", "child", "daemon")


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    made = make_room(tmp_path)
    yield made
    kill_all_with(made.token)


def moments(room: Room, kind: str) -> list[float]:
    return [float((room.worktree / f"{name}.{kind}").read_text()) for name in NAMES]


def all_were_ready(room: Room, before_s: float) -> bool:
    """Whether the watched had all begun by then, in this run."""
    begun = [room.worktree / f"{name}.ready" for name in NAMES]
    return all(path.exists() for path in begun) and max(moments(room, "ready")) < before_s


def all_between(moments_s: list[float], first_s: float, last_s: float) -> bool:
    return all(first_s <= moment_s <= last_s for moment_s in moments_s)


@pytest.mark.demand("D9.a", "D9.b", "D9.c", "D9.f")
@every_level
def test_everybody_is_told_at_nine_tenths_and_killed_at_the_end(
    room: Room, level: SandboxLevel
) -> None:
    for timeout_s in TIMEOUTS_S:
        started_s = time.monotonic()
        outcome = SandboxedJob(room.request(WATCHED, level, timeout_s=timeout_s)).run()
        if all_were_ready(room, started_s + 0.9 * timeout_s):
            break
    told_s, end_s = started_s + 0.9 * timeout_s, started_s + timeout_s
    assert all_between(moments(room, "told"), told_s, end_s + LATE_S)
    assert all_between(moments(room, "alive"), started_s, end_s + LATE_S)
    assert (outcome.sigterm_sent, outcome.timed_out, outcome.signal) == (True, True, signal.SIGKILL)
    assert outcome.stdout.text == "partial\n"
    assert timeout_s <= outcome.duration_s <= timeout_s + LATE_S
    assert not processes_with(room.token)


def test_the_control_a_careless_stop_does_not_reach_the_detached(room: Room) -> None:
    with unprotected(room, WATCHED, stdout=subprocess.DEVNULL) as careless:
        assert all(eventually((room.worktree / f"{name}.ready").exists) for name in NAMES)
        os.killpg(careless.pid, signal.SIGTERM)
        assert eventually((room.worktree / "child.told").exists)
        assert not (room.worktree / "daemon.told").exists()
        os.killpg(careless.pid, signal.SIGKILL)
        careless.wait()
        assert eventually(
            lambda: len(processes_with(room.token)) == 1
        )  # one that was killed is there for a moment
        kill_all_with(room.token)


@pytest.mark.demand("D9.a")
def test_by_default_an_agent_has_half_an_hour_and_at_least_the_seeds_thirty_seconds_to_end() -> (
    None
):
    request = JobRequest((), Path(), Path(), "", {}, SandboxLevel.NONE)
    assert request.timeout_s == 1800
    assert 0.1 * 300 >= 30


@pytest.mark.demand("D9.d", "D9.e", "D9.f")
@every_level
def test_an_agent_that_ends_by_itself_after_being_told_is_known_as_such(
    room: Room, level: SandboxLevel
) -> None:
    code = """
        import os, signal, time
        signal.signal(15, lambda *_: (os.write(1, b'{"success": true}'), os._exit(0)))
        time.sleep(60)
    """
    outcome = SandboxedJob(room.request(code, level, timeout_s=5.0)).run()
    assert (outcome.exit_code, outcome.sigterm_sent, outcome.timed_out) == (0, True, False)
    assert outcome.stdout.text == '{"success": true}'
    assert 0.9 * 5.0 <= outcome.duration_s <= 5.0 + LATE_S


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_wall_clock_that_jumps_changes_nothing(
    room: Room, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    """The clock of the machine cannot be set in a test: what we could ask for is made to jump instead."""
    asked = iter([time.time(), *([time.time() + jump_s] * 100_000)])
    monkeypatch.setattr(time, "time", lambda: next(asked))
    careless_deadline_s = time.time() + 1.5
    is_over = (
        time.time() > careless_deadline_s
    )  # the control: a deadline by this clock is an hour off
    assert is_over == (jump_s > 0)
    started_s = time.monotonic()
    outcome = SandboxedJob(room.program(("sleep", "600"), SandboxLevel.NONE, timeout_s=1.0)).run()
    assert outcome.sigterm_sent
    assert 0.9 <= time.monotonic() - started_s <= 0.9 + LATE_S


@every_level
def test_the_time_runs_out_also_while_we_are_stopped(room: Room, level: SandboxLevel) -> None:
    """The supervisor keeps the time, so a busy or suspended orchestrator gives its agents no extra."""
    for timeout_s in TIMEOUTS_S:
        (room.worktree / "daemon").unlink(missing_ok=True)
        started_s = time.monotonic()
        with start_orchestrator(room, room.request(WATCHED, level, timeout_s=timeout_s)) as process:
            process.send_signal(signal.SIGSTOP)
            gone = eventually(
                lambda: not processes_with(room.token), within_s=timeout_s + 2 * LATE_S
            )
            process.send_signal(signal.SIGCONT)
            output, _ = process.communicate()
        if all_were_ready(room, started_s + 0.9 * timeout_s):
            break
    assert gone, "control: nobody but the supervisor could have ended them"
    assert all_between(
        moments(room, "told"), started_s + 0.9 * timeout_s, started_s + timeout_s + LATE_S
    )
    assert all_between(
        moments(room, "alive"), started_s, min(moments(room, "told")) + 0.1 * timeout_s + LATE_S
    )
    assert b"timed_out=True" in output


@every_level
def test_a_job_without_end_gets_no_more_than_its_time_whatever_it_forks(
    room: Room, level: SandboxLevel
) -> None:
    """New processes all the time: those that were born after SIGTERM are killed with the others."""
    code = """
        import os, pathlib, signal, time
        signal.signal(15, signal.SIG_IGN)
        pathlib.Path("work").touch()
        begun = time.monotonic()
        while time.monotonic() - begun < 120:
            if not os.fork():
                os.setsid()
                time.sleep(0.2)
                os._exit(0)
            time.sleep(0.01)
    """
    outcome = SandboxedJob(room.request(code, level, timeout_s=TIMEOUT_S)).run()
    assert (outcome.timed_out, outcome.survivors_left) == (True, 0)
    assert not processes_with(room.token)
    assert (room.worktree / "work").exists()


def test_subprocess_is_not_needed_by_the_supervisor() -> None:
    """It starts in some 15 ms because it imports next to nothing."""
    code = "import sys; import phasegate.sandbox.supervisor; print(*sorted(sys.modules))"
    argv = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"]
    loaded = set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
    assert not loaded & {
        "subprocess",
        "enum",
        "re",
        "typing",
        "pathlib",
        "json",
        "threading",
        "signal",
    }
