"""The sandbox's own cost: of a line that an agent writes, of a sandboxed start, and of a git call."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from bench.measure import Row, in_turn
from phasegate.sandbox.bounded_output import LineSplitter, OutputStream
from phasegate.sandbox.environment import build_environment
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import JobRequest, SandboxLevel
from phasegate.sandbox.run_program import run_program

LINES = 400_000
LINE = (
    b'{"type":"assistant","message":{"content":[{"type":"text","text":"%s"}]},"session_id":"0123"}'
    % (b"x" * 80)
)
MOST_S_A_LINE = 2e-6
MOST_GROWTH_MIB = 64
ROUNDS = 5


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder).resolve()
        (room / "worktree").mkdir()
        starts = [_start(room, level) for level in SandboxLevel if probe_level(level).is_supported]
        return [*_stream(room), *starts, _git(room)]


def _request(room: Path, argv: tuple[str, ...], level: SandboxLevel) -> JobRequest:
    tag = uuid.uuid4().hex
    worktree = room / "worktree"
    return JobRequest(
        argv, worktree, room / tag, tag, build_environment(), level, writable=(worktree,)
    )


def _stream(room: Path) -> list[Row]:
    """A stream split into lines, against the CPU time that is allowed a line; and the memory it takes, in MiB."""
    agent = room / "agent.out"
    with agent.open(
        "wb"
    ) as file:  # in pieces: what is measured below is the reader's memory, not ours
        for _ in range(LINES // 1000):
            file.write((LINE + b"\n") * 1000)
    Path("/proc/self/clear_refs").write_text(
        "5"
    )  # the peak begins anew: earlier benchmarks may have had a higher one
    before_kib = _peak_kib()
    spent_s = sorted(_read(room, agent) for _ in range(ROUNDS))[ROUNDS // 2]
    growth_mib = (_peak_kib() - before_kib) / 1024
    return [
        Row(f"agent stream, {LINES} lines", spent_s * 1000, LINES * MOST_S_A_LINE * 1000, 1.0),
        Row("agent stream, memory", growth_mib, MOST_GROWTH_MIB, 1.0, unit="MiB"),
    ]


def _peak_kib() -> int:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def _read(room: Path, agent: Path) -> float:
    """The CPU time of this process, start and end of the job included."""
    lines, count = LineSplitter(), 0

    def split(stream: OutputStream, chunk: bytes) -> None:
        nonlocal count
        count += len(lines.feed(chunk))

    start_s = time.process_time()
    SandboxedJob(_request(room, ("cat", str(agent)), SandboxLevel.NONE)).run(split)
    assert count == LINES
    return time.process_time() - start_s


def _start(room: Path, level: SandboxLevel) -> Row:
    """A job that does nothing, against an interpreter that does nothing."""

    def ours() -> None:
        assert SandboxedJob(_request(room, ("true",), level)).run().exit_code == 0

    def reference() -> None:
        subprocess.run([sys.executable, "-c", "pass"], check=True)

    return Row(
        f"sandboxed start, level {level}",
        *in_turn(ours, reference),
        4.0 if level.is_sandboxed else 2.5,
    )


def _git(room: Path) -> Row:
    env = build_environment()

    def ours() -> None:
        for _ in range(50):
            assert run_program(["git", "version"], cwd=room, env=env).ok

    def reference() -> None:
        for _ in range(50):
            subprocess.run(["git", "version"], cwd=room, env=env, check=True, capture_output=True)

    return Row("git call, 50 times", *in_turn(ours, reference), 1.2)
