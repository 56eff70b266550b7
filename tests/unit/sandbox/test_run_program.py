"""Short programs that we trust."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from phasegate.errors import EnvironmentUnavailable
from phasegate.sandbox.run_program import MIB, ProgramResult, find_program, run_program
from support.sandboxed import eventually, kill_all_with, make_room, processes_with, python

ENV = {"PATH": os.environ["PATH"], "GREETING": "hello"}


def test_a_program_gets_its_input_folder_and_environment_and_nothing_else(tmp_path: Path) -> None:
    done = run_program(
        ["sh", "-c", "cat; pwd; env; echo bad >&2; exit 3"], cwd=tmp_path, env=ENV, stdin=b"in\n"
    )
    assert (done.exit_code, done.signal, done.ok, done.truncated, done.timed_out) == (
        3,
        None,
        False,
        False,
        False,
    )
    assert done.stdout.splitlines()[:2] == [b"in", os.fsencode(tmp_path)]
    names = {line.partition(b"=")[0] for line in done.stdout.splitlines()[2:]}
    assert names <= {b"PATH", b"GREETING", b"PWD", b"OLDPWD", b"SHLVL", b"_"}
    assert done.stderr == b"bad\n"


def test_input_and_output_larger_than_any_pipe_pass_at_once(tmp_path: Path) -> None:
    data = os.urandom(8 * MIB)
    assert run_program(["cat"], cwd=tmp_path, env=ENV, stdin=data).stdout == data


def test_a_program_that_does_not_read_its_input_hangs_nobody(tmp_path: Path) -> None:
    done = run_program(
        ["sh", "-c", "exec 0<&-; echo done"], cwd=tmp_path, env=ENV, stdin=b"x" * 8 * MIB
    )
    assert done.stdout == b"done\n"


def test_output_over_the_limit_is_cut_and_says_so(tmp_path: Path) -> None:
    exact = run_program(["printf", "12345678"], cwd=tmp_path, env=ENV, max_output_bytes=8)
    assert (exact.stdout, exact.truncated, exact.ok) == (b"12345678", False, True)
    over = run_program(["printf", "123456789"], cwd=tmp_path, env=ENV, max_output_bytes=8)
    assert (over.stdout, over.truncated, over.ok) == (b"12345678", True, False)
    assert (
        run_program(
            ["head", "-c", "50000000", "/dev/zero"], cwd=tmp_path, env=ENV, max_output_bytes=10
        ).exit_code
        == 0
    )


def test_output_can_go_to_a_file_instead(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        done = run_program(
            ["sh", "-c", "echo out; echo err >&2"], cwd=tmp_path, env=ENV, stdout_fd=file.fileno()
        )
    assert (done.stdout, done.stderr) == (b"", b"err\n")
    assert (tmp_path / "out").read_bytes() == b"out\n"


def test_a_program_that_takes_too_long_is_told_first_and_killed_then(tmp_path: Path) -> None:
    polite = python(
        "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(7))\nprint(1, flush=True)\ntime.sleep(60)"
    )
    done = run_until_it_speaks(polite, tmp_path)
    assert (done.timed_out, done.exit_code, done.stdout) == (True, 7, b"1\n")
    stubborn = python(
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint(1, flush=True)\ntime.sleep(60)"
    )
    assert run_until_it_speaks(stubborn, tmp_path).signal == signal.SIGKILL


def run_until_it_speaks(argv: Sequence[str], folder: Path) -> ProgramResult:
    """With little time; on a loaded machine, with so much that the program has come to its first word."""
    for timeout_s in (2.0, 8.0, 30.0):
        done = run_program(argv, cwd=folder, env=ENV, timeout_s=timeout_s)
        if done.stdout:
            break
    return done


def test_a_helper_that_keeps_the_output_open_holds_up_nobody(tmp_path: Path) -> None:
    room = make_room(tmp_path)
    code = """
        import os, sys, time
        if os.fork() == 0:
            time.sleep(60)
        print("parent", flush=True)
    """
    try:
        done = run_program([*python(code), room.token], cwd=tmp_path, env=ENV, timeout_s=30.0)
        assert (done.stdout, done.timed_out) == (b"parent\n", False)
        assert processes_with(room.token)
    finally:
        kill_all_with(room.token)


def test_no_descriptor_of_ours_is_passed_on(tmp_path: Path) -> None:
    with (tmp_path / "held").open("wb") as held:
        os.set_inheritable(held.fileno(), True)
        code = "import os; print(sorted(int(n) for n in os.listdir('/dev/fd') if os.path.exists(f'/dev/fd/{n}')))"
        assert run_program(python(code), cwd=tmp_path, env=ENV).stdout.strip() == b"[0, 1, 2]"


def test_what_is_not_installed_is_an_answer_or_a_refusal_with_a_hint(tmp_path: Path) -> None:
    assert find_program("no-such-program") is None
    with pytest.raises(EnvironmentUnavailable, match="no-such-program was not found") as refused:
        run_program(["no-such-program"], cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
    assert refused.value.hint
    with pytest.raises(EnvironmentUnavailable, match="gone was not found"):
        run_program(["true"], cwd=tmp_path / "gone", env=ENV)


def test_a_file_that_cannot_be_executed_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x")
    with pytest.raises(EnvironmentUnavailable, match="could not start"):
        run_program([tmp_path / "text"], cwd=tmp_path, env=ENV)


def test_a_name_with_a_slash_is_never_looked_for_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    assert find_program("./tool", cwd=tmp_path) is None
    (tmp_path / "tool").chmod(0o755)
    assert find_program("./tool", cwd=tmp_path) == str(tmp_path / "tool")
    assert find_program("bin/sh", path="/usr:/", cwd=tmp_path) is None
    assert find_program("sh", path="/bin") == "/bin/sh"


def test_a_program_that_ctrl_c_hit_before_it_started_is_started_again(tmp_path: Path) -> None:
    script = "[ -e started ] || { touch started; kill -INT $$; }; echo done"
    done = run_program(["sh", "-c", script], cwd=tmp_path, env=ENV)
    assert (done.exit_code, done.stdout) == (0, b"done\n")

    always = run_program(["sh", "-c", "kill -INT $$"], cwd=tmp_path, env=ENV)
    assert always.signal == signal.SIGINT


def test_an_interrupted_run_ends_its_program(tmp_path: Path) -> None:
    """Ctrl-C in the middle: the program gets SIGTERM, in which git removes its lock files, and nothing is left."""
    room = make_room(tmp_path)
    lock = tmp_path / "index.lock"
    payload = tmp_path / "payload.py"
    payload.write_text(
        f"import pathlib, signal, sys, time\nlock = pathlib.Path({str(lock)!r})\n"
        "signal.signal(15, lambda *_: (lock.unlink(), sys.exit()))\nlock.touch()\ntime.sleep(60)\n"
    )

    def interrupt() -> None:
        eventually(lock.exists)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_program([sys.executable, payload, room.token], cwd=tmp_path, env=ENV)
    thread.join()
    assert not lock.exists()
    assert not processes_with(room.token)
