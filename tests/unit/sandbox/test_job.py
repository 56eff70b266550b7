"""One job from start to end, at each level that this machine has."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from phasegate.errors import ConfigError, EnvironmentUnavailable, Interrupted
from phasegate.sandbox.bounded_output import OutputStream
from phasegate.sandbox.bubblewrap_arguments import find_bubblewrap
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import JobRequest, SandboxLevel
from support.sandboxed import ALL_LEVELS, Room, make_room

MIB = 1024**2
every_level = pytest.mark.parametrize("level", ALL_LEVELS)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return make_room(tmp_path)


@every_level
def test_a_job_reads_its_prompt_writes_its_work_and_tells_how_it_ended(
    room: Room, level: SandboxLevel
) -> None:
    code = """
        import pathlib, sys
        pathlib.Path("answer").write_text(sys.stdin.read().upper())
        print("out"); print("err", file=sys.stderr); sys.exit(3)
    """
    started_s = time.monotonic()
    outcome = SandboxedJob(room.request(code, level, stdin=b"prompt")).run()
    assert 0 < outcome.duration_s <= time.monotonic() - started_s
    assert (outcome.exit_code, outcome.signal, outcome.supervisor_lost) == (3, None, False)
    assert (outcome.sigterm_sent, outcome.timed_out) == (False, False)
    assert (outcome.stdout.text, outcome.stderr.text) == ("out\n", "err\n")
    assert (outcome.survivors_killed, outcome.survivors_left) == (0, 0)
    assert (room.worktree / "answer").read_text() == "PROMPT"


@every_level
def test_the_prompt_can_come_from_a_file(room: Room, level: SandboxLevel) -> None:
    prompt = room.root / "prompt.xml"
    prompt.write_bytes(b"<prompt/>")
    assert (
        SandboxedJob(room.program(("cat",), level, stdin=prompt)).run().stdout.data == b"<prompt/>"
    )


@every_level
def test_a_job_has_a_home_and_a_tmp_of_its_own(room: Room, level: SandboxLevel) -> None:
    code = """
        import os, pathlib, tempfile
        pathlib.Path.home().joinpath("setting").write_text("s")
        pathlib.Path(tempfile.gettempdir(), "scratch").write_text("t")
        print(os.environ["HOME"], tempfile.gettempdir(), os.getcwd(), os.environ["PWD"])
    """
    request = room.request(code, level)
    outcome = SandboxedJob(request).run()
    assert outcome.stdout.text.split() == [
        str(p) for p in (request.home, request.tmp, room.worktree, room.worktree)
    ]
    assert (request.home / "setting").read_text() == "s"
    assert (request.tmp / "scratch").read_text() == "t"
    assert request.home.stat().st_mode & 0o077 == 0


@every_level
def test_a_program_that_dies_by_a_signal_is_not_one_that_exits(
    room: Room, level: SandboxLevel
) -> None:
    outcome = SandboxedJob(room.program(("sh", "-c", "kill -SEGV $$"), level)).run()
    assert (outcome.exit_code, outcome.signal) == (None, signal.SIGSEGV)


@every_level
def test_output_arrives_while_the_job_runs_and_the_job_can_be_answered(
    room: Room, level: SandboxLevel
) -> None:
    code = """
        import sys
        print("question", flush=True)
        print(sys.stdin.readline().strip() + "!", flush=True)
        print(repr(sys.stdin.read()))
    """
    job = SandboxedJob(room.request(code, level, stdin=b"", keep_stdin_open=True))
    seen: list[tuple[OutputStream, bytes]] = []

    def listen(stream: OutputStream, chunk: bytes) -> None:
        seen.append((stream, chunk))
        if chunk == b"question\n":
            job.send(b"answer\n")
        if chunk == b"answer!\n":
            job.send(b"the rest")
            job.close_stdin()

    outcome = job.run(listen)
    assert [chunk for _, chunk in seen] == [b"question\n", b"answer!\n", b"'the rest'\n"]
    assert outcome.exit_code == 0
    with pytest.raises(ValueError, match="closed"):
        job.send(b"late")


@every_level
def test_a_job_that_is_stopped_is_asked_first(room: Room, level: SandboxLevel) -> None:
    code = """
        import os, signal, time
        signal.signal(15, lambda *_: (os.write(1, b"cleaned up\\n"), os._exit(0)))
        print("ready", flush=True)
        time.sleep(60)
    """
    job = SandboxedJob(room.request(code, level))
    outcome = job.run(lambda _, chunk: job.stop() if chunk == b"ready\n" else None)
    assert (outcome.sigterm_sent, outcome.timed_out, outcome.exit_code) == (True, False, 0)
    assert outcome.stdout.text == "ready\ncleaned up\n"


@every_level
def test_a_job_that_does_not_listen_is_killed_after_the_grace_or_when_it_is_stopped_again(
    room: Room, level: SandboxLevel
) -> None:
    code = """
        import signal, time
        signal.signal(15, signal.SIG_IGN)
        print("ready", flush=True)
        time.sleep(60)
    """
    patient = SandboxedJob(room.request(code, level, grace_s=0.3))
    outcome = patient.run(lambda *_: patient.stop())
    assert (outcome.sigterm_sent, outcome.timed_out, outcome.signal) == (True, True, signal.SIGKILL)
    hasty = SandboxedJob(room.request(code, level, grace_s=600.0))
    outcome = hasty.run(lambda *_: (hasty.stop(), hasty.stop())[0])
    assert (outcome.sigterm_sent, outcome.timed_out, outcome.signal) == (
        True,
        False,
        signal.SIGKILL,
    )


@every_level
def test_a_job_can_be_stopped_before_it_has_started_and_after_it_has_ended(
    room: Room, level: SandboxLevel
) -> None:
    job = SandboxedJob(room.program(("sleep", "60"), level))
    job.stop()
    assert job.run().signal == signal.SIGTERM
    job.stop()
    job.close_stdin()


@every_level
def test_a_listener_that_fails_harms_no_job_and_is_known(room: Room, level: SandboxLevel) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("listener")

    outcome = SandboxedJob(room.request("print(1, flush=True)\nprint(2)", level)).run(fail)
    assert (outcome.exit_code, outcome.stdout.data, outcome.listener_failed) == (0, b"1\n2\n", True)


@every_level
def test_both_streams_are_logged_up_to_a_cap(room: Room, level: SandboxLevel) -> None:
    out, err = room.root / "out.log", room.root / "err.log"
    request = room.program(("sh", "-c", "printf 0123456789; printf abc >&2"), level)
    outcome = SandboxedJob(request._replace(stdout_log=out, stderr_log=err, max_log_bytes=5)).run()
    assert (out.read_bytes(), err.read_bytes()) == (b"01234", b"abc")
    assert outcome.stdout.data == b"0123456789"


@every_level
def test_many_jobs_run_at_once_and_each_keeps_to_itself(room: Room, level: SandboxLevel) -> None:
    outcomes: dict[int, str] = {}

    def request(number: int) -> JobRequest:
        return room.program(
            ("sh", "-c", f"cat; echo {number}; sleep 0.2; echo {number}"), level, stdin=b"in\n"
        )

    def run(number: int, job: SandboxedJob) -> None:
        outcomes[number] = job.run().stdout.text

    threads = [
        threading.Thread(target=run, args=(number, SandboxedJob(request(number))))
        for number in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {number: f"in\n{number}\n{number}\n" for number in range(6)}


def descriptors() -> list[str]:
    return sorted(entry.name for entry in os.scandir("/dev/fd"))


@every_level
def test_no_descriptor_of_ours_is_lost(room: Room, level: SandboxLevel) -> None:
    SandboxedJob(room.program(("true",), level)).run()
    before = descriptors()
    SandboxedJob(room.program(("true",), level, stdin=b"x" * MIB)).run()
    with pytest.raises(EnvironmentUnavailable):
        SandboxedJob(room.program(("no-such-program",), level)).run()
    assert descriptors() == before


@every_level
def test_what_cannot_be_started_is_a_refusal_that_says_why(room: Room, level: SandboxLevel) -> None:
    text, script, wrong = (room.worktree / name for name in ("text", "script", "wrong"))
    text.write_text("just text")
    script.write_text("#!/no/such/interpreter\n")
    wrong.write_bytes(b"\x7fELF nothing")
    for program in (script, wrong):
        program.chmod(0o755)
    for argv, why in [
        (("no-such-program",), "was not found"),
        (("./text",), "was not found"),
        (("./script",), "No such file"),
        (("./wrong",), "Exec format error"),
        (("sh", "x" * 300_000), "Argument list too long"),
    ]:
        with pytest.raises(EnvironmentUnavailable, match=why) as refused:
            SandboxedJob(room.program(argv, level)).run()
        assert refused.value.hint


@every_level
def test_a_folder_that_is_missing_is_a_refusal(room: Room, level: SandboxLevel) -> None:
    with pytest.raises(EnvironmentUnavailable, match="enter"):
        SandboxedJob(room.program(("true",), level)._replace(cwd=room.worktree / "gone")).run()


@every_level
def test_a_link_in_the_place_of_a_jobs_own_folder_is_refused(
    room: Room, level: SandboxLevel
) -> None:
    request = room.program(("true",), level)
    request.folder.mkdir()
    request.home.symlink_to(room.root)
    with pytest.raises(ConfigError, match="link"):
        SandboxedJob(request).run()


@every_level
def test_arguments_and_names_are_bytes_to_us(room: Room, level: SandboxLevel) -> None:
    odd = os.fsdecode(b"\xff\xfe \n'\"$(id)")
    code = "import os, sys\nsys.stdout.buffer.write(os.fsencode(sys.argv[2]) + b'|' + os.environb[b'ODD'])"
    request = room.request(code, level, odd)
    outcome = SandboxedJob(request._replace(env={**request.env, "ODD": odd})).run()
    assert outcome.stdout.data == os.fsencode(odd) + b"|" + os.fsencode(odd)


@every_level
def test_a_program_starts_with_signals_as_a_shell_would_give_them(
    room: Room, level: SandboxLevel
) -> None:
    code = """
        import re
        status = open("/proc/self/status").read()
        print(re.search("SigBlk:\\\\s*(\\\\w+)", status)[1], re.search("SigIgn:\\\\s*(\\\\w+)", status)[1])
    """
    if sys.platform == "linux":
        blocked, ignored = SandboxedJob(room.request(code, level)).run().stdout.text.split()
        assert int(blocked, 16) == 0
        # Python itself, as the payload, ignores SIGPIPE and SIGXFSZ and nothing else. Signal 32 is the C library's own.
        assert int(ignored, 16) & 0x7FFFFFFF == 1 << (signal.SIGPIPE - 1) | 1 << (
            signal.SIGXFSZ - 1
        )


@pytest.mark.parametrize(
    ("name", "error"), [("INT", Interrupted), ("TERM", EnvironmentUnavailable)]
)
def test_an_interrupt_before_the_supervisor_has_started_is_no_broken_sandbox(
    room: Room, monkeypatch: pytest.MonkeyPatch, name: str, error: type[Exception]
) -> None:
    """Ctrl-C reaches a child between fork and setsid."""
    request = room.request("print(1)", SandboxLevel.WORKTREE)
    folder = room.root / "bin"
    folder.mkdir()
    (folder / "bwrap").write_text(f"#!/bin/sh\nkill -{name} $$\n")
    (folder / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    find_bubblewrap.cache_clear()
    try:
        with pytest.raises(error):
            SandboxedJob(request).run()
    finally:
        find_bubblewrap.cache_clear()
