"""Settings of the kernel in /proc and /sys: a job can open none of them for writing, as root neither.

The attempts open and close the files. Nothing is ever written to them.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

import phasegate
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import SandboxLevel
from support.sandboxed import SANDBOXED, make_room, need, python

pytestmark = [
    pytest.mark.demand("D6.f"),
    pytest.mark.skipif(sys.platform != "linux", reason="there is no sandbox on this system"),
]
# Prints what could be opened for writing, outside of the process's own folders in /proc.
OPEN_AND_CLOSE = """
    import os, sys
    for top in ("/proc", "/sys"):
        for folder, folders, files in os.walk(top):
            if folder == "/proc":
                folders[:] = [name for name in folders if not name.isdigit()]
            for name in files:
                path = os.path.join(folder, name)
                try:
                    if os.stat(path).st_mode & 0o222:
                        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                        print(path)
                except OSError:
                    pass
    for name in os.listdir("/proc/self/net"):
        try:
            os.close(os.open("/proc/self/net/" + name, os.O_WRONLY))
            print("/proc/self/net/" + name)
        except OSError:
            pass
    print("uid", os.getuid(), os.geteuid(), os.getgid())
    open("delivered", "w").close()
"""
CORE_PATTERN = "/proc/sys/kernel/core_pattern"


@pytest.mark.parametrize("level", SANDBOXED)
def test_a_job_opens_no_setting_of_the_kernel_for_writing_and_is_not_root(
    tmp_path: Path, level: SandboxLevel
) -> None:
    room = make_room(tmp_path)
    outcome = SandboxedJob(room.request(OPEN_AND_CLOSE, level)).run()
    opened = outcome.stdout.text.split("\n")
    assert [line for line in opened if line.startswith("/")] == []
    assert "uid 0" not in outcome.stdout.text
    assert (room.worktree / "delivered").stat().st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may open them at all")
def test_without_the_sandbox_root_can_open_them(tmp_path: Path) -> None:
    """The positive control: the same attempt on one file that every machine has."""
    room = make_room(tmp_path)
    code = f"import os; os.close(os.open({CORE_PATTERN!r}, os.O_WRONLY)); print('opened')"
    assert subprocess.run(python(code), capture_output=True, check=True).stdout == b"opened\n"
    assert SandboxedJob(room.request(code, SandboxLevel.NONE)).run().exit_code == 0


def find_python_for_everybody() -> str:
    """A Python that another user may start, new enough for Phasegate."""
    # A virtual environment may hold a copy: what it was copied from must be readable too.
    check = (
        "import os, sys; is_readable = os.access(sys._base_executable, os.X_OK); "
        "sys.exit(sys.version_info < (3, 11) or not is_readable)"
    )
    for program in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        with suppress(PermissionError, subprocess.CalledProcessError):
            subprocess.run([program, "-c", check], user="nobody", check=True)
            return program
    pytest.skip("no Python that the user nobody may start")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_has_the_same_sandbox() -> None:
    """The trial that Phasegate makes itself, and the attempts, by the user nobody."""
    need(SandboxLevel.OFFLINE)
    nobody = pwd.getpwnam("nobody")
    code = f"""if True:
        import tempfile
        from pathlib import Path
        from phasegate.sandbox.environment import build_environment
        from phasegate.sandbox.job import SandboxedJob
        from phasegate.sandbox.probe import probe_level
        from phasegate.sandbox.request import JobRequest, SandboxLevel
        for level in (SandboxLevel.WORKTREE, SandboxLevel.OFFLINE):
            found = probe_level(level)
            assert found.is_supported, found.problem
            with tempfile.TemporaryDirectory() as folder:
                work = Path(folder, "work")
                work.mkdir()
                argv = ("/usr/bin/python3", "-c", {textwrap.dedent(OPEN_AND_CLOSE)!r})
                env = build_environment()
                request = JobRequest(argv, work, Path(folder, "job"), "tag", env, level)
                outcome = SandboxedJob(request._replace(writable=(work,))).run()
                assert (work / "delivered").exists(), outcome.stderr.text
                print(outcome.stdout.text)
    """
    with tempfile.TemporaryDirectory() as shared:
        # The checkout may be in a folder that nobody else can read
        Path(shared).chmod(0o755)
        package = Path(phasegate.__file__).parent
        shutil.copytree(
            package, f"{shared}/phasegate", ignore=shutil.ignore_patterns("__pycache__")
        )
        env = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": shared,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        ran = subprocess.run(
            [find_python_for_everybody(), "-c", code],
            env=env,
            cwd="/",
            user="nobody",
            group=nobody.pw_gid,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.split("\n")
    assert [line for line in lines if line.startswith("/")] == []
    assert lines.count(f"uid {nobody.pw_uid} {nobody.pw_uid} {nobody.pw_gid}") == len(SANDBOXED)
