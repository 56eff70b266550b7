"""Which levels hold on this machine: found out by trying them, once a process."""

from __future__ import annotations

import os
import platform
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import EnvironmentUnavailable, PhasegateError
from phasegate.sandbox import bubblewrap_arguments, seccomp, syscalls
from phasegate.sandbox.environment import scrubbed
from phasegate.sandbox.job import CagedJob
from phasegate.sandbox.request import JobOutcome, Level, Request

_ABSTRACT_SOCKETS_FENCED = 6
_HINT = "install bubblewrap and allow user namespaces, or set `sandbox` in [run] to a level that holds here"
# Writes inside, then tries to write outside, then shows which namespaces it is in.
_TRIAL = 'echo in > inside; echo out > "$1"; for kind in pid net; do readlink /proc/self/ns/$kind; done'


class Holding(NamedTuple):
    """Whether one level holds here: if not, why; if so, what it lacks on this machine."""

    level: Level
    holds: bool
    why_not: str = ""
    gaps: tuple[str, ...] = ()


def choose(wanted: Level | None, needs_network: bool) -> Level:
    """The wanted level, or a refusal; when none is named, the strongest that holds and that the network need allows."""
    if wanted is not None:
        found = holding(wanted)
        if not found.holds:
            raise EnvironmentUnavailable(f"The sandbox level {wanted} does not hold here: {found.why_not}", _HINT)
        return wanted
    candidates = (Level.WORKTREE,) if needs_network else (Level.OFFLINE, Level.WORKTREE)
    return next((level for level in candidates if holding(level).holds), Level.NONE)


def bounds_hosts(level: Level, are_known: bool) -> bool:
    """Whether a job with a network is bound to its hosts: always at `offline`, at `worktree` where they are known."""
    return level is Level.OFFLINE or (level is Level.WORKTREE and are_known and holding(Level.OFFLINE).holds)


@cache
def holding(level: Level) -> Holding:
    """Whether this level holds here: tried once a process."""
    if level is Level.NONE:
        return Holding(level, True, gaps=("nothing is enforced: changes are looked for afterwards",))
    if bubblewrap_arguments.bubblewrap() is None:
        return Holding(level, False, "bubblewrap is not installed")
    if level is Level.WORKTREE and holding(Level.OFFLINE).holds:  # the same, and no network besides
        return Holding(level, True, gaps=_gaps(level))
    with tempfile.TemporaryDirectory(prefix="phasegate-probe-") as folder:
        why_not = _try(level, Path(folder).resolve())
    return Holding(level, not why_not, why_not, () if why_not else _gaps(level))


def _try(level: Level, folder: Path) -> str:
    """Why the level does not hold, or nothing."""
    work, canary = folder / "work", folder / "canary"
    work.mkdir()
    canary.write_text("untouched")
    argv = ("/bin/sh", "-c", _TRIAL, "sh", str(canary))
    tag = f"probe-{os.getpid()}-{level}"
    request = Request(argv, work, folder / "job", tag, scrubbed(), level, timeout_s=20.0, writable=(work,))
    try:
        outcome = CagedJob(request).run()
    except PhasegateError as error:
        return error.message
    if not (work / "inside").is_file():
        return f"a job could not write to its own folder: {outcome.stderr.text.strip()}"
    if canary.read_text() != "untouched":
        return "a job could write outside of its folder"
    return _shared_namespace(level, outcome)


def _shared_namespace(level: Level, outcome: JobOutcome) -> str:
    pid, net = (*outcome.stdout.text.split(), "", "")[:2]
    if not pid or pid == os.readlink("/proc/self/ns/pid"):
        return "a job shares our PID namespace"
    if level is Level.OFFLINE and (not net or net == os.readlink("/proc/self/ns/net")):
        return "a job shares our network"
    return ""


def _gaps(level: Level) -> tuple[str, ...]:
    version = syscalls.landlock_version()
    sockets_open = level is Level.WORKTREE and version < _ABSTRACT_SOCKETS_FENCED
    gaps = {
        "Landlock is missing: only the mount namespace keeps writes inside": version == 0,
        "abstract unix sockets of the machine can be reached (Landlock 6 closes them)": sockets_open,
        "the network is open to agents whose hosts are not known": level is Level.WORKTREE,
        "no system-call filter for this processor": seccomp.filter_for(platform.machine()) is None,
        "the number of processes is not bounded, because we run as root": os.geteuid() == 0,
    }
    return tuple(text for text, applies in gaps.items() if applies)
