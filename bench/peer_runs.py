"""A peer at work, measured in turn with ours: checked output, nothing of our environment but PATH, a time limit."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from bench.measure import ROUNDS, PeerTime, cpu_ms
from bench.peers import cache_folder, installed
from phasegate.sandbox.run_program import run_program

TIMEOUT_S = 120.0
BUDGET_S = 20.0  # wall time for the rounds of one figure: a slow peer gets fewer, and its ratio is large anyhow
QUIET = {
    "CI": "1",
    "NO_COLOR": "1",
    "LANG": "C.UTF-8",
    "DO_NOT_TRACK": "1",
    "OPENSPEC_TELEMETRY": "0",
    "TASKMASTER_SKIP_AUTO_UPDATE": "1",
    "SPEC_KITTY_NO_NAG": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Bench",
    "GIT_AUTHOR_EMAIL": "bench@example.invalid",
    "GIT_COMMITTER_NAME": "Bench",
    "GIT_COMMITTER_EMAIL": "bench@example.invalid",
}
WITHOUT_NETWORK = ("unshare", "--map-current-user", "--net")


def write_nothing(folder: Path) -> None:
    """For what needs no files of ours."""


class Ask(NamedTuple):
    """What a peer is asked, what its output must hold and how often at least, and how its folder is made ready."""

    program: str
    arguments: tuple[str, ...]
    expects: str
    times: int = 1
    setup: tuple[tuple[str, ...], ...] = ()
    write: Callable[[Path], None] = write_nothing
    in_a_new_folder: bool = False  # each run, not only the first
    note: str = ""


class Failed(Exception):
    """A peer did not do what it was asked; the message says how."""


def peer_times(ours: Callable[[], object], asks: tuple[Ask, ...]) -> tuple[PeerTime, ...]:
    """The CPU time of each peer as a ratio to ours, or a word about why there is none."""
    return tuple(_time(ours, ask) for ask in asks)


def _time(ours: Callable[[], object], ask: Ask) -> PeerTime:
    program = installed(ask.program, cache_folder(os.environ))
    if program is None:
        return PeerTime(ask.program, None, "not installed")
    print(f"  {ask.program} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as room:
        try:
            return PeerTime(ask.program, _ratio(ours, _work(Path(room), program, ask)), ask.note)
        except Failed as why:
            return PeerTime(ask.program, None, str(why))


def _ratio(ours: Callable[[], object], works: Iterator[Callable[[], object]]) -> float:
    first = next(works)
    started_s = time.monotonic()
    ours()
    first()
    rounds = rounds_within(BUDGET_S, time.monotonic() - started_s)
    pairs = [(cpu_ms(ours), cpu_ms(next(works))) for _ in range(rounds)]
    return statistics.median(theirs for _, theirs in pairs) / statistics.median(
        mine for mine, _ in pairs
    )


def rounds_within(budget_s: float, one_s: float) -> int:
    """At least one, at most as many as for ours; an odd number, so that the median is one of them."""
    return max(1, min(ROUNDS, int(budget_s / max(one_s, 0.001))) - 1 | 1)


def _work(room: Path, program: Path, ask: Ask) -> Iterator[Callable[[], object]]:
    """The work of each round in turn; what prepares it is done before it is handed out, so it is not measured."""
    (room / "home").mkdir()
    for number in count():
        folder = room / ("project" if not ask.in_a_new_folder else f"project-{number}")
        if not folder.exists():
            _prepare(room, folder, program, ask)
        yield partial(_checked, room, folder, program, ask)


def _prepare(room: Path, folder: Path, program: Path, ask: Ask) -> None:
    """A repository with a commit, on a branch whose name none of them protects."""
    env = bare(room / "home", os.environ["PATH"])
    subprocess.run(
        ["git", "init", "--quiet", "--initial-branch=bench", str(folder)], env=env, check=True
    )
    subprocess.run(
        ["git", "commit", "--quiet", "--allow-empty", "-m", "first"],
        cwd=folder,
        env=env,
        check=True,
    )
    for arguments in ask.setup:
        _run(room, folder, program, arguments)
    ask.write(folder)


def _checked(room: Path, folder: Path, program: Path, ask: Ask) -> None:
    said = _run(room, folder, program, ask.arguments)
    if said.count(ask.expects) < ask.times:
        raise Failed("not the expected output")


def _run(room: Path, folder: Path, program: Path, arguments: tuple[str, ...]) -> str:
    argv = [*_without_network(), str(program), *arguments]
    done = run_program(
        argv, cwd=folder, env=bare(room / "home", os.environ["PATH"]), timeout_s=TIMEOUT_S
    )
    if done.timed_out:
        raise Failed(f"not done in {TIMEOUT_S:.0f} s")
    if not done.ok:
        raise Failed(f"exit status {done.exit_code}")
    return done.stdout.decode(errors="replace")


def bare(home: Path, path: str) -> dict[str, str]:
    """All that a peer sees of our environment is PATH."""
    return {
        **QUIET,
        "PATH": path,
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
    }


@cache
def _without_network() -> tuple[str, ...]:
    """A peer needs no network; where the system can take it away, none of them can report home."""
    try:
        taken = (
            subprocess.run([*WITHOUT_NETWORK, "true"], check=False, capture_output=True).returncode
            == 0
        )
    except OSError:
        taken = False
    return WITHOUT_NETWORK if taken else ()
