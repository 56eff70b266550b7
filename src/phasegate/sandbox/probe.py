"""Find out which sandbox levels work on this machine, by one trial per process."""

from __future__ import annotations

import os
import platform
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import EnvironmentUnavailable, PhasegateError
from phasegate.sandbox import bubblewrap_arguments, seccomp, syscalls
from phasegate.sandbox.environment import build_environment
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.request import JobOutcome, JobRequest, SandboxLevel

_SOCKET_SCOPE_LANDLOCK_VERSION = 6
_HINT = (
    "install bubblewrap and allow user namespaces, "
    "or set `sandbox` in [run] to a level that works on this machine"
)
# Writes inside, then tries to write outside, then prints its namespaces and which settings of the
# kernel it could open for writing. It writes nothing to them.
_TRIAL_SCRIPT = """
echo in > inside; echo out > "$1"
for kind in pid net; do readlink /proc/self/ns/$kind; done
shift
for file in "$@"; do (: >> "$file") 2> /dev/null && echo "$file"; done
"""
_KERNEL_SETTINGS = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sysrq-trigger",
    "/proc/mtrr",
    "/sys/devices/system/cpu/cpu1/online",
    "/sys/kernel/uevent_helper",
)


class LevelSupport(NamedTuple):
    """Whether one level works on this machine."""

    level: SandboxLevel
    is_supported: bool
    # why it does not work
    problem: str = ""
    # protections that this machine lacks, although the level works
    gaps: tuple[str, ...] = ()


def choose_level(wanted: SandboxLevel | None, needs_network: bool) -> SandboxLevel:
    """Return the wanted level, or raise EnvironmentUnavailable if it does not work here.

    Without a wanted level, return the strongest that works and allows the needed network.
    """
    if wanted is not None:
        support = probe_level(wanted)
        if not support.is_supported:
            raise EnvironmentUnavailable(
                f"sandbox level {wanted} does not work here: {support.problem}", _HINT
            )

        return wanted

    if not needs_network and probe_level(SandboxLevel.OFFLINE).is_supported:
        return SandboxLevel.OFFLINE
    if probe_level(SandboxLevel.WORKTREE).is_supported:
        return SandboxLevel.WORKTREE
    return SandboxLevel.NONE


def can_restrict_hosts(level: SandboxLevel, is_wanted: bool) -> bool:
    """Return True if a job with network access is restricted to its hosts.

    Always at `offline`; at `worktree` if that is wanted.
    """
    return level is SandboxLevel.OFFLINE or (
        level is SandboxLevel.WORKTREE
        and is_wanted
        and probe_level(SandboxLevel.OFFLINE).is_supported
    )


@cache
def probe_level(level: SandboxLevel) -> LevelSupport:
    """Try this level on this machine; the result is cached per process."""
    if level is SandboxLevel.NONE:
        return LevelSupport(
            level, True, gaps=("nothing is enforced: changes are detected afterwards",)
        )

    if bubblewrap_arguments.find_bubblewrap() is None:
        return LevelSupport(level, False, "bubblewrap is not installed")
    # Offline is worktree plus network isolation.
    if level is SandboxLevel.WORKTREE and probe_level(SandboxLevel.OFFLINE).is_supported:
        return LevelSupport(level, True, gaps=_find_gaps(level))

    with tempfile.TemporaryDirectory(prefix="phasegate-probe-") as folder:
        problem = _run_trial(level, Path(folder).resolve())

    if problem:
        return LevelSupport(level, False, problem)
    return LevelSupport(level, True, gaps=_find_gaps(level))


def _run_trial(level: SandboxLevel, folder: Path) -> str:
    """Return why the level does not work; empty if it does."""
    work = folder / "work"
    canary = folder / "canary"
    work.mkdir()
    canary.write_text("untouched")
    argv = ("/bin/sh", "-c", _TRIAL_SCRIPT, "sh", str(canary), *_KERNEL_SETTINGS)
    tag = f"probe-{os.getpid()}-{level}"
    request = JobRequest(
        argv=argv,
        cwd=work,
        folder=folder / "job",
        tag=tag,
        env=build_environment(),
        level=level,
        timeout_s=20.0,
        writable=(work,),
    )

    try:
        outcome = SandboxedJob(request).run()
    except PhasegateError as error:
        return error.message

    if not (work / "inside").is_file():
        return f"a job could not write to its own folder: {outcome.stderr.text.strip()}"
    if canary.read_text() != "untouched":
        return "a job could write outside of its folder"

    return _find_failed_isolation(level, outcome)


def _find_failed_isolation(level: SandboxLevel, outcome: JobOutcome) -> str:
    pid, net, *settings = (*outcome.stdout.text.split(), "", "")
    if not pid or pid == os.readlink("/proc/self/ns/pid"):
        return "a job shares the host's PID namespace"
    if level is SandboxLevel.OFFLINE and (not net or net == os.readlink("/proc/self/ns/net")):
        return "a job shares the host's network"
    if any(settings):
        return f"a job could change kernel settings: {settings[0]}"
    return ""


def _find_gaps(level: SandboxLevel) -> tuple[str, ...]:
    """Return the protections that a sandbox level lacks on this machine."""
    gaps = []
    landlock_version = syscalls.get_landlock_version()
    if landlock_version == 0:
        gaps.append("no Landlock: writes are restricted by the mount namespace only")

    if level is SandboxLevel.WORKTREE:
        if landlock_version < _SOCKET_SCOPE_LANDLOCK_VERSION:
            gaps.append("abstract unix sockets can be reached (Landlock 6 prevents that)")
        if probe_level(SandboxLevel.OFFLINE).is_supported:
            gaps.append("the network is open to setups without `setup_allowed_hosts`")
        else:
            gaps.append("the network is open, including this machine's services")

    if seccomp.build_filter(platform.machine()) is None:
        gaps.append("no system-call filter for this processor")
    if os.geteuid() == 0:
        gaps.append("the number of processes is not limited, because Phasegate runs as root")

    return tuple(gaps)
